//! Answers requests to look: finds the probe, bounds it, judges, writes the evidence.

use crate::contracts::Contracts;
use crate::error::ObserverError;
use crate::judge::Expected;
use crate::options::{ObserverOptions, TIMEOUT_MS_MAX};
use crate::probe::{Look, Probe, ProbeContext, unavailable};
use crate::summary;
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::claim::ClaimCheck;
use detent_bus::env::SharedEnv;
use detent_bus::{Handler, failpoint};
use detent_protocol::claim::{self, FETCHED_BYTES_MAX};
use detent_protocol::expect::{Evidence, Observation, Verdict};
use detent_protocol::json::Digest;
use detent_protocol::messages::Observe;
use detent_protocol::{Code, Fault, GoalId, envelope};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// What a probe gets beyond its time to end by itself, as a process tree that has to be
/// killed and reaped.
const GRACE: Duration = Duration::from_secs(5);

/// What an observer has done since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObserverStats {
    /// Looks that are going on.
    pub in_flight: u64,
    /// Verdicts *met*.
    pub met: u64,
    /// Verdicts *absent*.
    pub absent: u64,
    /// Verdicts *mismatch*.
    pub mismatch: u64,
    /// Verdicts *unavailable*.
    pub unavailable: u64,
    /// Requests that were no request to look.
    pub refused: u64,
}

#[derive(Default)]
struct Counters {
    in_flight: AtomicU64,
    met: AtomicU64,
    absent: AtomicU64,
    mismatch: AtomicU64,
    unavailable: AtomicU64,
    refused: AtomicU64,
}

struct InFlight<'a>(&'a AtomicU64);

impl<'a> InFlight<'a> {
    fn enter(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct Service {
    options: ObserverOptions,
    claims: ClaimCheck,
    probes: BTreeMap<String, Arc<dyn Probe>>,
    env: SharedEnv,
    contracts: Contracts,
    counters: Counters,
}

#[async_trait]
impl Handler for Service {
    async fn handle(&self, _subject: &str, payload: Bytes) -> Bytes {
        let answer = match envelope::expect::<Observe>(&payload) {
            Ok(ask) => Ok(self.observe(ask).await),
            Err(fault) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                Err(fault)
            }
        };
        envelope::reply(answer)
    }
}

impl Service {
    pub(crate) fn new(
        options: ObserverOptions,
        claims: ClaimCheck,
        probes: Vec<Arc<dyn Probe>>,
        env: SharedEnv,
    ) -> Result<Self, ObserverError> {
        let mut by_kind = BTreeMap::new();
        for probe in probes {
            let kind = probe.kind().to_owned();
            if by_kind.insert(kind.clone(), probe).is_some() {
                let what = format!("two probes of the kind {kind:?}");
                return Err(ObserverError::Options { what });
            }
        }
        Ok(Self {
            options,
            claims,
            probes: by_kind,
            env,
            contracts: Contracts::default(),
            counters: Counters::default(),
        })
    }

    pub(crate) fn stats(&self) -> ObserverStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let c = &self.counters;
        ObserverStats {
            in_flight: read(&c.in_flight),
            met: read(&c.met),
            absent: read(&c.absent),
            mismatch: read(&c.mismatch),
            unavailable: read(&c.unavailable),
            refused: read(&c.refused),
        }
    }

    async fn observe(&self, ask: Observe) -> Observation {
        let _in_flight = InFlight::enter(&self.counters.in_flight);
        let (goal, step, kind) = (ask.goal, ask.step.clone(), ask.probe.clone());
        let observation = self.look_and_judge(ask).await.unwrap_or_else(|mut fault| {
            fault.message = self.options.redactor.text(&fault.message);
            Observation {
                verdict: Verdict::Unavailable { fault },
                evidence: None,
                output: None,
            }
        });
        let (count, verdict) = self.counter_of(&observation.verdict);
        count.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%goal, %step, probe = kind, verdict, "observed");
        observation
    }

    fn counter_of(&self, verdict: &Verdict) -> (&AtomicU64, &'static str) {
        let c = &self.counters;
        match verdict {
            Verdict::Met => (&c.met, "met"),
            Verdict::Absent => (&c.absent, "absent"),
            Verdict::Mismatch { .. } => (&c.mismatch, "mismatch"),
            Verdict::Unavailable { .. } => (&c.unavailable, "unavailable"),
        }
    }

    async fn look_and_judge(&self, mut ask: Observe) -> Result<Observation, Fault> {
        let Some(probe) = self.probes.get(&ask.probe).cloned() else {
            let message = format!("this observer has no probe {:?}", ask.probe);
            return Err(unavailable(message).at("/probe"));
        };
        // Before the look: a look that can't be judged is not worth its time.
        let expected = self.expected(&ask)?;
        let cx = self.context(&mut ask)?;
        self.fetch(&mut ask, &cx).await?;
        failpoint::hit("observe.before");
        let look = bounded_look(probe, ask.params, cx).await;
        failpoint::hit("observe.after");
        let at_ms = self.env.now_ms();
        let look = look?;
        let verdict = self.masked(expected.judge(&look));
        let output = match verdict {
            Verdict::Met => {
                let at = ask.output_at.as_deref();
                self.output(&ask.goal, &look.seen, at).await?
            }
            _ => None,
        };
        Ok(Observation {
            verdict,
            evidence: Some(self.evidence(ask.probe, look, at_ms)),
            output,
        })
    }

    /// Fetches what the parameters lack, within the look's time.
    async fn fetch(&self, ask: &mut Observe, cx: &ProbeContext) -> Result<(), Fault> {
        if ask.claims.is_empty() {
            return Ok(());
        }
        let (goal, claims) = (&ask.goal, &ask.claims);
        let fetched = self
            .claims
            .fetch(goal, &mut ask.params, claims, FETCHED_BYTES_MAX);
        let limit = Duration::from_millis(cx.timeout_ms);
        match tokio::time::timeout(limit, fetched).await {
            Ok(fetched) => fetched,
            Err(_) => Err(unavailable("its parameters could not be fetched in time")),
        }
    }

    fn expected(&self, ask: &Observe) -> Result<Expected, Fault> {
        let absent = ask.absent.as_ref();
        let absent = absent.map(|schema| self.contracts.get(schema));
        Ok(Expected {
            met: self
                .contracts
                .get(&ask.schema)
                .map_err(|f| f.at("/schema"))?,
            absent: absent.transpose().map_err(|f| f.at("/absent"))?,
        })
    }

    /// The context; takes `timeout_ms`, which every kind of probe has, out of the
    /// parameters.
    fn context(&self, ask: &mut Observe) -> Result<ProbeContext, Fault> {
        let wish = ask.params.as_object_mut();
        let wish = wish.and_then(|params| params.remove("timeout_ms"));
        let timeout_ms = match wish {
            None | Some(Value::Null) => self.options.timeout_ms,
            Some(wish) => wish
                .as_u64()
                .filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms))
                .ok_or_else(|| {
                    let message = format!("timeout_ms must be 1 to {TIMEOUT_MS_MAX}");
                    unavailable(message).at("/params/timeout_ms")
                })?,
        };
        let options = &self.options;
        Ok(ProbeContext {
            goal: ask.goal,
            step: ask.step.clone(),
            work_dir: options.work_root.join(ask.goal.to_string()),
            config_dir: options.config_dir.clone(),
            data_dir: options.data_dir.clone(),
            timeout_ms,
        })
    }

    fn masked(&self, mut verdict: Verdict) -> Verdict {
        let text = match &mut verdict {
            Verdict::Mismatch { why } => why,
            Verdict::Unavailable { fault } => &mut fault.message,
            Verdict::Met | Verdict::Absent => return verdict,
        };
        *text = self.options.redactor.text(text);
        verdict
    }

    /// The tool's output as it was seen; a large one is put aside. One that no claim can
    /// stand for is left out, as if it were not known.
    async fn output(
        &self,
        goal: &GoalId,
        seen: &Value,
        at: Option<&str>,
    ) -> Result<Option<Value>, Fault> {
        let Some(output) = at.and_then(|at| seen.pointer(at)) else {
            return Ok(None);
        };
        if claim::is_reserved(output) {
            tracing::warn!(
                key = claim::KEY,
                "an output that uses this key was left out"
            );
            return Ok(None);
        }
        let mut output = output.clone();
        self.options.redactor.json(&mut output);
        match self.claims.keep(goal, output).await {
            Ok(output) => Ok(Some(output)),
            Err(fault) if fault.code == Code::ResponseTooLarge => {
                tracing::warn!(%fault, "an output was left out");
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn evidence(&self, probe: String, look: Look, at_ms: u64) -> Evidence {
        let redactor = &self.options.redactor;
        let digest = Digest::of_json(&look.seen);
        // Masked before it is cut: half a secret is not known as one.
        let mut seen = look.seen;
        redactor.json(&mut seen);
        Evidence {
            probe,
            what: redactor.text(&look.what),
            at_ms,
            digest,
            seen: summary::cut(seen),
        }
    }
}

/// Looks in a task of its own, so that a probe that panics is one that could not look.
async fn bounded_look(
    probe: Arc<dyn Probe>,
    params: Value,
    cx: ProbeContext,
) -> Result<Look, Fault> {
    let limit = Duration::from_millis(cx.timeout_ms) + GRACE;
    // Dropping the set ends the task.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { probe.look(&params, &cx).await });
    match tokio::time::timeout(limit, tasks.join_next()).await {
        Ok(Some(Ok(look))) => look,
        Ok(_) => Err(unavailable("the probe failed inside")),
        Err(_) => Err(unavailable(format!(
            "the probe did not end within {} ms",
            limit.as_millis()
        ))),
    }
}
