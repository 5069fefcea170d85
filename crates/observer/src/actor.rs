//! The actor: serves the bus for as long as it lives. The work itself runs in the bus's
//! tasks, so that a slow look holds up neither the mailbox nor another look.

use crate::error::ObserverError;
use crate::options::ObserverOptions;
use crate::probe::Probe;
use crate::service::{ObserverStats, Service};
use detent_bus::claim::ClaimCheck;
use detent_bus::env::SharedEnv;
use detent_bus::{Bus, BusError, ServeOptions, Served};
use detent_protocol::subject;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use std::convert::Infallible;
use std::sync::Arc;

/// The observer.
#[derive(Debug)]
pub struct Observer;

impl Observer {
    /// Starts an observer that serves all kinds of `probes` on `bus` until it is stopped.
    /// With a supervisor it is its child; restarting it is the supervisor's affair.
    ///
    /// Makes the work root: short blocking I/O.
    ///
    /// # Errors
    /// [`ObserverError`].
    pub async fn spawn(
        options: ObserverOptions,
        bus: Bus,
        probes: Vec<Arc<dyn Probe>>,
        env: SharedEnv,
        supervisor: Option<ActorCell>,
    ) -> Result<ObserverHandle, ObserverError> {
        let options = options.prepared()?;
        let serve = ServeOptions {
            group: String::new(),
            concurrency_max: options.concurrency_max,
            queue_max: options.queue_max,
        };
        let subject = subject::observations_of(&options.node);
        let claims = ClaimCheck::new(bus.blobs.clone());
        let service = Arc::new(Service::new(options, claims, probes, env)?);
        let start = Start {
            bus,
            subject,
            serve,
            service: Arc::clone(&service),
        };
        let started = match supervisor {
            Some(cell) => Actor::spawn_linked(None, Shell, start, cell).await,
            None => Actor::spawn(None, Shell, start).await,
        };
        let (actor, ended) = started.map_err(start_error)?;
        Ok(ObserverHandle {
            cell: actor.get_cell(),
            ended,
            service,
        })
    }
}

fn start_error(error: SpawnErr) -> ObserverError {
    if let SpawnErr::StartupFailed(cause) = &error
        && let Some(bus) = cause.downcast_ref::<BusError>()
    {
        return ObserverError::Bus(bus.clone());
    }
    ObserverError::Start {
        what: error.to_string(),
    }
}

/// A running observer. Dropping the handle does not stop it.
pub struct ObserverHandle {
    cell: ActorCell,
    ended: tokio::task::JoinHandle<()>,
    service: Arc<Service>,
}

impl std::fmt::Debug for ObserverHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObserverHandle")
            .field("actor", &self.cell.get_id())
            .field("stats", &self.stats())
            .finish()
    }
}

impl ObserverHandle {
    /// The actor, for a supervisor.
    pub fn cell(&self) -> &ActorCell {
        &self.cell
    }

    /// What it has done so far.
    pub fn stats(&self) -> ObserverStats {
        self.service.stats()
    }

    /// Takes no more requests and returns once the actor has ended; looks that are going
    /// on are finished and answered.
    pub async fn stop(self) {
        self.cell.stop(None);
        // An error here is the actor's panic, which its supervisor is told of.
        let _ = self.ended.await;
    }
}

struct Shell;

struct Start {
    bus: Bus,
    subject: String,
    serve: ServeOptions,
    service: Arc<Service>,
}

impl Actor for Shell {
    /// It is told nothing: requests come over the bus.
    type Msg = Infallible;
    /// `None` once it has stopped.
    type State = Option<Served>;
    type Arguments = Start;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        start: Start,
    ) -> Result<Self::State, ActorProcessingErr> {
        let messages = &start.bus.messages;
        let served = messages
            .serve(&start.subject, start.serve, start.service)
            .await?;
        Ok(Some(served))
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        served: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        served.take();
        Ok(())
    }
}
