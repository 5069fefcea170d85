//! A broker of one's own: a nats-server as a child of this process.
//!
//! What it is for: `detent up --nats-server`, and every test that needs a real broker.
//!
//! What it promises: the server listens on the loopback interface only and keeps all it
//! has in one folder. It never outlives this process, however that ends: the kernel kills
//! it when its keeper thread is gone. It is stopped with SIGTERM, which hands leadership
//! over and takes some 50 ms where SIGKILL costs a cluster seconds. It is not in this
//! process's group, so that a Ctrl-C does not take the broker away from a node that is
//! still draining.
//!
//! What it must not know: what is said over it.

mod config;
mod find;
mod keeper;
mod ports;
mod ready;

pub use config::{ClusterOptions, ServerOptions};
pub use find::find_server;
pub use ports::free as free_ports;

use detent_protocol::{Code, Fault};
use keeper::Keeper;
use rustix::process::Signal;
use std::process::ExitStatus;
use std::time::Duration;

/// How long a server that was told to end may take; then it is killed.
const STOP_MAX: Duration = Duration::from_secs(20);
/// How often another port is tried where one was taken by somebody else in between.
const PORT_TRIES: u32 = 5;

/// A nats-server that this process started. Dropping it kills it.
#[derive(Debug)]
pub struct PrivateServer {
    options: ServerOptions,
    keeper: Option<Keeper>,
}

impl PrivateServer {
    /// Starts a server and waits until it answers ([`PrivateServer::wait_ready`]).
    ///
    /// # Errors
    /// `CONFIG_INVALID` where the folder can't be written or the program not be started,
    /// `BROKER_UNREACHABLE` where the server ends at once or does not answer; the message
    /// has the last lines of its log.
    pub async fn start(options: ServerOptions) -> Result<Self, Fault> {
        let given = options.ports_are_given();
        let mut tries = 0;
        loop {
            tries += 1;
            let wait = options.start_timeout;
            let mut server = Self::spawn(options.clone())?;
            match server.wait_ready(wait).await {
                Ok(()) => return Ok(server),
                Err(_) if !given && tries < PORT_TRIES && server.found_its_port_taken() => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Starts a server and does not wait: several that make a cluster need each other to
    /// be ready. Ports that `options` leaves open are chosen here.
    ///
    /// # Errors
    /// `CONFIG_INVALID` as for [`PrivateServer::start`].
    pub fn spawn(options: ServerOptions) -> Result<Self, Fault> {
        let options = options.with_ports()?;
        let keeper = Some(launch(&options)?);
        Ok(Self { options, keeper })
    }

    /// Waits until clients can connect and, where it has a monitoring port, until it says
    /// that it is healthy: then JetStream works and, in a cluster, has a leader.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE` after `wait`, or as soon as the server has ended.
    pub async fn wait_ready(&mut self, wait: Duration) -> Result<(), Fault> {
        let Some(keeper) = &mut self.keeper else {
            return Err(self.fault("it was stopped"));
        };
        let pid = keeper.pid();
        let what = tokio::select! {
            status = keeper.ended() => format!("it ended with {status}"),
            ready = tokio::time::timeout(wait, ready::ready(&self.options, pid)) => match ready {
                Ok(()) => return Ok(()),
                Err(_) => format!("it does not answer after {wait:?}"),
            },
        };
        Err(self.fault(&what))
    }

    /// Its settings, with the ports that were chosen.
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// Where clients connect: `nats://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.options.port)
    }

    /// Its monitoring endpoint: `http://127.0.0.1:PORT`, where it has one.
    pub fn monitor_url(&self) -> Option<String> {
        let port = self.options.monitor_port?;
        Some(format!("http://127.0.0.1:{port}"))
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        let keeper = self.keeper.as_ref()?;
        keeper.status().is_none().then(|| keeper.pid())
    }

    /// Waits until it ends by itself; pending for ever when it was stopped before.
    pub async fn ended(&mut self) -> ExitStatus {
        match &mut self.keeper {
            Some(keeper) => keeper.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Stops it: SIGTERM, and SIGKILL where it takes more than 20 s. Does nothing when it
    /// was stopped before.
    pub async fn stop(&mut self) {
        let Some(mut keeper) = self.keeper.take() else {
            return;
        };
        keeper.signal(Signal::TERM);
        if tokio::time::timeout(STOP_MAX, keeper.ended())
            .await
            .is_err()
        {
            tracing::warn!(pid = keeper.pid(), "nats-server does not stop: killing it");
            keeper.signal(Signal::KILL);
            keeper.ended().await;
        }
    }

    /// Kills it, as a power cut would: SIGKILL.
    pub async fn kill(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            keeper.signal(Signal::KILL);
            keeper.ended().await;
        }
    }

    /// Starts it again on the same ports and folder, and waits until it answers. Stops it
    /// first where it runs.
    ///
    /// # Errors
    /// As for [`PrivateServer::start`].
    pub async fn restart(&mut self) -> Result<(), Fault> {
        self.stop().await;
        self.keeper = Some(launch(&self.options)?);
        self.wait_ready(self.options.start_timeout).await
    }

    /// As [`PrivateServer::restart`], without waiting: a cluster of which several were
    /// down is ready only when enough of them are back.
    ///
    /// # Errors
    /// `CONFIG_INVALID` as for [`PrivateServer::start`].
    pub async fn respawn(&mut self) -> Result<(), Fault> {
        self.stop().await;
        self.keeper = Some(launch(&self.options)?);
        Ok(())
    }

    fn found_its_port_taken(&self) -> bool {
        config::log_tail(&self.options).contains("address already in use")
    }

    fn fault(&self, what: &str) -> Fault {
        let tail = config::log_tail(&self.options);
        let program = self.options.program.display();
        let text = format!(
            "{program} on {}: {what}; its log ends with:\n{tail}",
            self.url()
        );
        let log = self.options.log_file().display().to_string();
        Fault::new(Code::BrokerUnreachable, text).at(log)
    }
}

fn launch(options: &ServerOptions) -> Result<Keeper, Fault> {
    config::write(options)?;
    Keeper::spawn(options)
}
