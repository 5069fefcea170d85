//! What the connection is like: its state for the node, its checks for the doctor.

use super::api::{self, API};
use super::inbox::{CONTROL, INTAKE, PENDING_MAX, consumer_info};
use super::link::Link;
use super::synced::{Synced, synced};
use super::{Broker, NatsOptions, bus, streams};
use async_nats::datetime::DateTime;
use detent_protocol::{Code, Fault};
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Longest wait for a round trip.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);
/// A clock that is further off makes times of different nodes hard to compare.
const OFFSET_MAX: Duration = Duration::from_secs(1);

/// The state of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsStatus {
    /// Is there one?
    pub connected: bool,
    /// Since when it is so.
    pub since: SystemTime,
    /// How often it was lost.
    pub losses: u64,
    /// Messages that were dropped because their receiver was too slow, at least.
    pub dropped: u64,
    /// Name of the server it was made to last.
    pub server: String,
    /// That server's version.
    pub version: String,
    /// The last round trip that was measured ([`NatsHandle::round_trip`]).
    pub round_trip: Option<Duration>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsCheck {
    /// What was looked at.
    pub what: String,
    /// What was found, or what is wrong with it.
    pub found: Result<String, Fault>,
}

/// Looks at a connection. Keeps it open.
#[derive(Clone)]
pub struct NatsHandle {
    broker: Broker,
    round_trip: Arc<Mutex<Option<Duration>>>,
}

impl NatsHandle {
    pub(super) fn new(broker: Broker) -> Self {
        Self {
            broker,
            round_trip: Arc::default(),
        }
    }

    /// The state now.
    pub fn status(&self) -> NatsStatus {
        let link = self.broker.links.now();
        let server = self.broker.client.server_info();
        NatsStatus {
            connected: self.broker.is_connected(),
            since: link.since,
            losses: link.losses,
            dropped: link.dropped,
            server: server.server_name,
            version: server.version,
            round_trip: *self.measured(),
        }
    }

    /// The state of the connection and its changes. Under a flood of changes the client
    /// may leave some out: [`NatsHandle::status`] is exact.
    pub fn watch(&self) -> watch::Receiver<Link> {
        self.broker.links.watch()
    }

    /// Measures how long a message takes to the server and back.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE` after 5 s, or at once without a connection.
    pub async fn round_trip(&self) -> Result<Duration, Fault> {
        let took = match self.broker.is_connected() {
            true => self.broker.round_trip(ROUND_TRIP_MAX).await,
            false => None,
        };
        *self.measured() = took;
        took.ok_or_else(|| {
            let text = format!("no connection, or no message back within {ROUND_TRIP_MAX:?}");
            Fault::new(Code::BrokerUnreachable, text)
        })
    }

    /// Looks at everything: server, round trip, account, clock, syncing, each stream,
    /// each queue. Changes nothing.
    pub async fn check(&self) -> Vec<NatsCheck> {
        let mut checks = Vec::new();
        let mut add = |what: &str, found| {
            let what = what.to_owned();
            checks.push(NatsCheck { what, found });
        };
        add("server", Ok(self.server()));
        let took = self.round_trip().await;
        add("round trip", took.map(|took| format!("{took:?}")));
        add("JetStream account", self.check_account().await);
        add("clock", self.check_clock().await);
        add("syncing", self.check_synced().await);
        let options = NatsOptions {
            create: false,
            ..(*self.broker.options).clone()
        };
        let looking = Broker {
            options: Arc::new(options),
            ..self.broker.clone()
        };
        for config in bus::wanted(&looking.options) {
            let found = match streams::ensure(&looking, std::slice::from_ref(&config)).await {
                Ok(()) => self.check_stream(&config.name).await,
                Err(fault) => Err(fault),
            };
            add(&config.name, found);
        }
        for stream in [INTAKE, CONTROL] {
            let what = format!("takers of {stream}");
            add(&what, self.check_takers(stream).await);
        }
        checks
    }

    fn server(&self) -> String {
        let server = self.broker.client.server_info();
        let (name, version) = (server.server_name, server.version);
        format!(
            "{name} {version}, messages of up to {} bytes",
            server.max_payload
        )
    }

    async fn check_account(&self) -> Result<String, Fault> {
        let asked = self.broker.jetstream.query_account().await;
        let account = asked.map_err(|e| self.broker.fault("asking for the account", &e))?;
        let limit = account.limits.max_storage;
        let limit = limit.map_or("no limit".into(), |limit| format!("limit {limit}"));
        Ok(format!(
            "{} streams, {} bytes in files, {} reserved, {limit}",
            account.streams, account.storage, account.reserved_storage
        ))
    }

    /// How far this machine's clock is off the stream's leader's.
    async fn check_clock(&self) -> Result<String, Fault> {
        #[derive(Deserialize)]
        struct Answer {
            ts: String,
        }
        let before = SystemTime::now();
        let subject = format!("STREAM.INFO.{INTAKE}");
        let nothing = serde_json::json!({});
        let asked = api::ask::<Answer>(&self.broker, &subject, &nothing);
        let answer = asked
            .await
            .map_err(|failed| failed.fault("asking for the time"))?;
        let took = before.elapsed().unwrap_or_default();
        let theirs = async_nats::datetime::parse_rfc3339(&answer.ts);
        let theirs = theirs.map_err(|e| api::unreachable(format!("{API}: {e}")))?;
        let ours = DateTime::from(before + took / 2);
        let offset_ms = (ours - theirs).whole_milliseconds();
        let text = format!("{offset_ms} ms ahead of the broker's, give or take {took:?}");
        if offset_ms.unsigned_abs() <= OFFSET_MAX.as_millis() + took.as_millis() {
            return Ok(text);
        }
        let text = format!("this machine's clock is {text}: set both by NTP");
        Err(Fault::new(Code::ConfigInvalid, text))
    }

    async fn check_synced(&self) -> Result<String, Fault> {
        Ok(match synced(self.broker.options.monitor.as_deref()).await {
            Synced::Always => "before each confirmation".into(),
            Synced::Every(every) => format!(
                "every {every:?}: a power cut of most servers at once takes what was confirmed \
                 since; set `sync_interval: always`"
            ),
            Synced::NotVisible(why) => format!("can't be seen: {why}"),
        })
    }

    async fn check_stream(&self, name: &str) -> Result<String, Fault> {
        let asked = self.broker.jetstream.get_stream(name).await;
        let mut stream = asked.map_err(|e| self.broker.fault(name, &e))?;
        let info = stream
            .info()
            .await
            .map_err(|e| self.broker.fault(name, &e))?;
        let (config, state) = (&info.config, &info.state);
        let text = format!(
            "{} messages, {} of {} bytes, {} copies",
            state.messages, state.bytes, config.max_bytes, config.num_replicas
        );
        let Some(cluster) = &info.cluster else {
            return Ok(text);
        };
        let behind = cluster
            .replicas
            .iter()
            .filter(|peer| peer.offline || !peer.current);
        let behind: Vec<_> = behind.map(|peer| peer.name.as_str()).collect();
        let leader = cluster.leader.as_deref().unwrap_or("nobody");
        if !behind.is_empty() || cluster.leader.is_none() {
            let text = format!(
                "{text}; led by {leader}; not up to date: {}",
                behind.join(", ")
            );
            return Err(Fault::new(Code::BrokerUnreachable, text));
        }
        Ok(format!("{text}, led by {leader}"))
    }

    async fn check_takers(&self, stream: &str) -> Result<String, Fault> {
        let Some(info) = consumer_info(&self.broker, stream).await? else {
            return Ok("nobody has taken from it yet".into());
        };
        let text = format!(
            "{} waiting, {} in hand or put off, {} delivered again",
            info.num_pending, info.num_ack_pending, info.num_redelivered
        );
        if i64::try_from(info.num_ack_pending).unwrap_or(i64::MAX) < PENDING_MAX {
            return Ok(text);
        }
        let text = format!("{text}: nothing more is delivered before some are settled");
        Err(Fault::new(Code::IntakeOverloaded, text))
    }

    fn measured(&self) -> std::sync::MutexGuard<'_, Option<Duration>> {
        self.round_trip
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
