//! The actor: serves planner requests on the bus until it is stopped.
//!
//! Promises: every request is answered, with a plan or a fault; no secret that the
//! redactor knows leaves in either. Requests and waiting requests are bounded. Must
//! never know: what a plan means.

use crate::error::ReasonerError;
use crate::openai::Openai;
use crate::options::{ProviderConfig, ReasonerOptions};
use crate::playbook::{self, Playbook};
use crate::provider::Provider;
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{Bus, Handler, ServeOptions, Served};
use detent_protocol::messages::{PlanAnswer, PlanRequest};
use detent_protocol::redact::Redactor;
use detent_protocol::{Code, Fault, envelope, subject};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The planner service of one node.
#[derive(Debug)]
pub struct Reasoner;

impl Reasoner {
    /// Starts the providers and serves [`subject::REASON_ALL`] until it is stopped.
    /// Under a supervisor where one is given.
    ///
    /// Fails with [`ReasonerError::Config`] where a provider can't work as it is
    /// configured (a missing key above all), with [`ReasonerError::Bus`] where the bus
    /// refuses the service.
    pub async fn spawn(
        options: ReasonerOptions,
        bus: Bus,
        supervisor: Option<ActorCell>,
    ) -> Result<ReasonerHandle, ReasonerError> {
        let serve = serve_options(&options).map_err(ReasonerError::Config)?;
        let service = Service::new(&options).map_err(ReasonerError::Config)?;
        let names: Vec<_> = service.providers.keys().cloned().collect();
        let messages = &bus.messages;
        let served = messages.serve(subject::REASON_ALL, serve, Arc::new(service));
        let served = served.await?;
        let spawned = match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, Shell, served, supervisor).await,
            None => Actor::spawn(None, Shell, served).await,
        };
        let (actor, ended) = spawned.map_err(|e| ReasonerError::Actor(e.to_string()))?;
        tracing::info!(providers = ?names, "reasoner serves");
        Ok(ReasonerHandle {
            actor: actor.get_cell(),
            ended,
        })
    }
}

fn serve_options(options: &ReasonerOptions) -> Result<ServeOptions, Fault> {
    if !(1..=4096).contains(&options.concurrency_max) {
        let fault = Fault::new(Code::ConfigInvalid, "takes 1 to 4096");
        return Err(fault.at("reasoner.concurrency_max"));
    }
    Ok(ServeOptions {
        concurrency_max: options.concurrency_max,
        queue_max: options.queue_max,
        ..ServeOptions::default()
    })
}

/// A running reasoner.
#[derive(Debug)]
pub struct ReasonerHandle {
    actor: ActorCell,
    ended: tokio::task::JoinHandle<()>,
}

impl ReasonerHandle {
    /// The actor, for whoever supervises it.
    pub fn cell(&self) -> ActorCell {
        self.actor.clone()
    }

    /// Takes no more requests; returns when the actor has ended. Requests that are
    /// being handled are finished by the bus.
    pub async fn stop(self) {
        self.actor.stop(None);
        // A panic of the actor was told to its supervisor.
        let _ = self.ended.await;
    }
}

/// Holds the service on the bus for as long as it lives.
struct Shell;

/// The actor gets no messages: requests come over the bus.
enum Nothing {}

impl Actor for Shell {
    type Msg = Nothing;
    type State = Option<Served>;
    type Arguments = Served;

    async fn pre_start(
        &self,
        _me: ActorRef<Nothing>,
        served: Served,
    ) -> Result<Option<Served>, ActorProcessingErr> {
        Ok(Some(served))
    }

    async fn post_stop(
        &self,
        _me: ActorRef<Nothing>,
        served: &mut Option<Served>,
    ) -> Result<(), ActorProcessingErr> {
        drop(served.take());
        Ok(())
    }
}

/// Leads a request to its provider.
struct Service {
    providers: BTreeMap<String, Arc<dyn Provider>>,
    redactor: Redactor,
}

impl Service {
    fn new(options: &ReasonerOptions) -> Result<Self, Fault> {
        let mut providers: BTreeMap<String, Arc<dyn Provider>> = BTreeMap::new();
        providers.insert(playbook::NAME.to_owned(), Arc::new(Playbook));
        for (name, config) in &options.providers {
            config.lint(name)?;
            let provider: Arc<dyn Provider> = match config {
                ProviderConfig::Playbook {} => Arc::new(Playbook),
                ProviderConfig::Openai(config) => Arc::new(Openai::new(name, config.clone())?),
            };
            providers.insert(name.clone(), provider);
        }
        Ok(Self {
            providers,
            redactor: options.redactor.clone(),
        })
    }

    async fn answer(&self, subject: &str, payload: &Bytes) -> Result<PlanAnswer, Fault> {
        let request: PlanRequest = envelope::expect(payload)?;
        let prefix = subject::reason("");
        let name = subject.strip_prefix(&prefix).unwrap_or_default();
        let Some(provider) = self.providers.get(name) else {
            let known: Vec<_> = self.providers.keys().map(String::as_str).collect();
            let message = format!("no planner {name:?} here; there are {}", known.join(", "));
            return Err(Fault::new(Code::ModelUnavailable, message));
        };
        let mut answer = provider.plan(&request).await?;
        if !answer.trusted {
            // It goes into the journal: a secret that a model repeats stops here.
            self.redactor.json(&mut answer.plan);
        }
        tracing::debug!(
            provider = name, goal = %request.goal, revision = request.revision,
            tokens = answer.tokens, "planned"
        );
        Ok(answer)
    }

    fn redacted(&self, fault: Fault) -> Fault {
        Fault {
            message: self.redactor.text(&fault.message),
            at: fault.at.map(|at| self.redactor.text(&at)),
            ..fault
        }
    }
}

#[async_trait]
impl Handler for Service {
    async fn handle(&self, subject: &str, payload: Bytes) -> Bytes {
        let answer = self.answer(subject, &payload).await;
        let answer = answer.map_err(|f| {
            let fault = self.redacted(f);
            tracing::warn!(subject, %fault, "no plan");
            fault
        });
        envelope::reply(answer)
    }
}
