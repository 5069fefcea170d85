//! Streams with the settings that what they keep needs.
//!
//! Promises: a stream that is missing is made where that is allowed; one that stands
//! weaker than wanted is refused with every setting that is too weak, and never used.
//! Stronger is fine: more copies, larger limits. [`setup`] mends what JetStream lets
//! change in place and names the rest. A description, a placement, a compression are the
//! operator's business.
//!
//! Must not know: what a stream keeps.

use super::Broker;
use super::api::{self, Complaint, Failed, code};
use super::connect::API_TIMEOUT;
use super::weaker::{Weaker, compare};
use async_nats::jetstream::stream::Config;
use detent_protocol::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;

/// Between two tries while servers are finding each other.
const PAUSE: Duration = Duration::from_millis(250);
/// For one try: while a cluster's leader changes a question may go to nobody, and asking
/// again is all that helps.
const TRY: Duration = Duration::from_secs(3);

/// What [`setup`] did to a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUp {
    /// It stood as it should.
    Fine(String),
    /// It was made.
    Made(String),
    /// These settings were changed: `what is X, has to be Y`.
    Mended(String, Vec<String>),
}

#[derive(Deserialize)]
struct Info {
    config: Config,
}

/// Checks that each stream stands at least as strong as wanted. A missing one is made
/// where `options.create` allows it.
///
/// # Errors
/// `STREAM_SETTINGS` with all that is missing or too weak, `BROKER_REFUSED` where the
/// account has no JetStream or no permission, `BROKER_UNREACHABLE`.
pub(crate) async fn ensure(broker: &Broker, wanted: &[Config]) -> Result<(), Fault> {
    let mut wrong = Vec::new();
    for config in wanted {
        let standing = match standing(broker, &config.name).await? {
            None if broker.options.create => {
                make(broker, config).await?;
                // Another node may have been faster.
                standing(broker, &config.name).await?
            }
            found => found,
        };
        let name = &config.name;
        match standing {
            None => wrong.push(format!("{name} is missing")),
            Some(standing) => {
                let weaker = compare(&standing, config);
                wrong.extend(weaker.iter().map(|w| format!("{name}: {}", w.text)));
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(too_weak(
            &wrong,
            "`detent nats setup` mends what can be changed in place",
        )),
    }
}

/// Makes each stream that is missing and strengthens each that is too weak.
///
/// # Errors
/// As [`ensure`]; `STREAM_SETTINGS` also for what can't be changed in place: such a
/// stream is not touched.
pub(crate) async fn setup(broker: &Broker, wanted: &[Config]) -> Result<Vec<SetUp>, Fault> {
    let mut done = Vec::new();
    let mut stuck = Vec::new();
    for config in wanted {
        let name = config.name.clone();
        let Some(standing) = standing(broker, &name).await? else {
            make(broker, config).await?;
            done.push(SetUp::Made(name));
            continue;
        };
        let weaker = compare(&standing, config);
        let fixed = weaker.iter().filter(|w| w.mend.is_none());
        let fixed: Vec<_> = fixed.map(|w| format!("{name}: {}", w.text)).collect();
        if !fixed.is_empty() {
            stuck.extend(fixed);
        } else if weaker.is_empty() {
            done.push(SetUp::Fine(name));
        } else {
            mend(broker, standing, config, &weaker).await?;
            let texts = weaker.into_iter().map(|w| w.text).collect();
            done.push(SetUp::Mended(name, texts));
        }
    }
    match stuck.is_empty() {
        true => Ok(done),
        false => Err(too_weak(
            &stuck,
            "this can't be changed in place: copy the stream",
        )),
    }
}

fn too_weak(wrong: &[String], next: &str) -> Fault {
    let text = format!("{}; {next}", wrong.join("; "));
    Fault::new(Code::StreamSettings, text)
}

async fn standing(broker: &Broker, name: &str) -> Result<Option<Config>, Fault> {
    let what = format!("looking at {name}");
    let (subject, nothing) = (format!("STREAM.INFO.{name}"), serde_json::json!({}));
    match persist(broker, &what, &subject, &nothing).await {
        Ok(info) => Ok(Some(info.config)),
        Err(failed) if failed.is(code::NO_STREAM) => Ok(None),
        Err(failed) => Err(fault(failed, &what)),
    }
}

async fn make(broker: &Broker, config: &Config) -> Result<(), Fault> {
    let what = format!("making {}", config.name);
    let subject = format!("STREAM.CREATE.{}", config.name);
    match persist(broker, &what, &subject, config).await {
        // With other settings: looked at by the caller.
        Err(failed) if failed.is(code::NAME_TAKEN) => Ok(()),
        Err(failed) => Err(fault(failed, &what)),
        Ok(_) => {
            tracing::info!(stream = config.name, "made");
            Ok(())
        }
    }
}

async fn mend(
    broker: &Broker,
    mut standing: Config,
    wanted: &Config,
    weaker: &[Weaker],
) -> Result<(), Fault> {
    for mend in weaker.iter().filter_map(|w| w.mend) {
        mend(&mut standing, wanted);
    }
    let what = format!("mending {}", wanted.name);
    let subject = format!("STREAM.UPDATE.{}", wanted.name);
    let asked = persist(broker, &what, &subject, &standing).await;
    asked.map(drop).map_err(|failed| fault(failed, &what))
}

/// Asks again for a while where servers have not found each other yet.
async fn persist<Q: Serialize + Sync>(
    broker: &Broker,
    what: &str,
    subject: &str,
    question: &Q,
) -> Result<Info, Failed> {
    let deadline = Instant::now() + broker.options.connect_timeout.max(API_TIMEOUT);
    loop {
        let failed = match api::ask_within(broker, TRY, subject, question).await {
            Err(failed) if may_pass(&failed) => failed,
            done => return done,
        };
        // The server tells it beside the request, which just gets no answer.
        if let Some(denied) = broker.links.denied(subject) {
            let text = format!("{what}: {denied}");
            return Err(Failed::NotSent(Fault::new(Code::BrokerRefused, text)));
        }
        if Instant::now() + PAUSE > deadline {
            return Err(failed);
        }
        tracing::debug!(what, ?failed, "not yet");
        tokio::time::sleep(PAUSE).await;
    }
}

/// 10023 is said while the servers of a cluster have not told each other what they have.
fn may_pass(failed: &Failed) -> bool {
    match failed {
        Failed::NotSent(fault) => fault.code.retryable(),
        Failed::Silent(_) => true,
        Failed::Said(Complaint { err_code, .. }) => {
            [code::NOT_AVAILABLE, code::NO_PEERS, 10009, 10023].contains(err_code)
        }
    }
}

fn fault(failed: Failed, what: &str) -> Fault {
    let Failed::Said(complaint) = failed else {
        return failed.fault(what);
    };
    let code = match complaint.err_code {
        // No JetStream, also for this account.
        10076 | 10039 => Code::BrokerRefused,
        _ if may_pass(&Failed::Said(complaint.clone())) => Code::BrokerUnreachable,
        // Too few servers for the copies, no room, settings that it does not know.
        _ => Code::StreamSettings,
    };
    Fault::new(code, format!("{what}: {complaint}"))
}
