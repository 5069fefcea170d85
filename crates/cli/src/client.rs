//! Asking a node: over NATS, over its socket, or, for queries, from its data directory
//! when no node runs there.

use crate::args::Global;
use crate::commands::nats;
use detent_bus::local::socket::SocketClient;
use detent_bus::nats::NatsBus;
use detent_bus::{Bus, BusError, Messages};
use detent_client::Options;
use detent_orchestrator::answer_offline;
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::{Answer, Ask, Controlled, GoalEvent, Query, Verb};
use detent_protocol::{Code, Fault, GoalId, TenantId};
use detent_store::Store;
use std::sync::Arc;
use std::time::Duration;

/// How long a node is asked to wait for an event, milliseconds.
const EVENT_WAIT_MS: u64 = 20_000;

/// Where answers come from.
pub(crate) enum Client {
    /// A node.
    Node(detent_client::Client),
    /// A data directory that no node uses; the store keeps it locked.
    Offline {
        /// Its parts.
        bus: Bus,
        tenant: TenantId,
        _store: Store,
    },
}

impl Client {
    /// A node: on the broker that the settings name, or else on the data directory.
    pub(crate) async fn node(global: &Global) -> Result<Self, Fault> {
        match nats::options(global)? {
            Some(options) => {
                let messages = NatsBus::messages(options).await?;
                Ok(Client::Node(over(global, messages)))
            }
            None => Self::on_data(global).await,
        }
    }

    async fn on_data(global: &Global) -> Result<Self, Fault> {
        let path = global.data.join(detent_node::SOCKET);
        match SocketClient::connect(&path).await {
            Ok(client) => Ok(Client::Node(over(global, Arc::new(client)))),
            Err(error) => {
                let message = format!("no node on {}: {error}", global.data.display());
                Err(Fault::new(Code::NodeUnreachable, message))
            }
        }
    }

    /// A node, or the data directory itself where none runs on it.
    pub(crate) async fn any(global: &Global) -> Result<Self, Fault> {
        if nats::options(global)?.is_some() {
            return Self::node(global).await;
        }
        match Self::on_data(global).await {
            Ok(client) => Ok(client),
            Err(_) => {
                let (store, bus) = detent_node::open_offline(&global.data)?;
                Ok(Client::Offline {
                    bus,
                    tenant: global.tenant.clone(),
                    _store: store,
                })
            }
        }
    }

    pub(crate) async fn submit(&self, submit: &Submit) -> Result<Accepted, Fault> {
        self.live()?.submit(submit).await
    }

    pub(crate) async fn control(&self, goal: GoalId, verb: Verb) -> Result<Controlled, Fault> {
        self.live()?.control(goal, verb).await
    }

    pub(crate) async fn query(&self, ask: Ask) -> Result<Answer, Fault> {
        match self {
            Client::Node(client) => client.query(ask).await,
            Client::Offline { bus, tenant, .. } => {
                let tenant = tenant.clone();
                answer_offline(bus, &Query { tenant, ask }).await
            }
        }
    }

    /// Events from number `from`, waiting a while for the first; whether there are
    /// more to come.
    pub(crate) async fn events(
        &self,
        goal: GoalId,
        from: u64,
    ) -> Result<(Vec<GoalEvent>, bool), Fault> {
        let wait_ms = EVENT_WAIT_MS;
        let ask = Ask::Events {
            goal,
            from,
            wait_ms,
        };
        match self.query(ask).await? {
            Answer::Events { events, ended } => Ok((events, ended)),
            _ => {
                let message = "not an answer to events";
                Err(Fault::new(Code::InternalLogicError, message))
            }
        }
    }

    /// Is there somebody who works on goals?
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Client::Node(_))
    }

    fn live(&self) -> Result<&detent_client::Client, Fault> {
        match self {
            Client::Node(client) => Ok(client),
            Client::Offline { .. } => Err(BusError::Closed.into()),
        }
    }
}

/// Speaks to a node over `messages`.
pub(crate) fn over(global: &Global, messages: Arc<dyn Messages>) -> detent_client::Client {
    let by = std::env::var("USER").unwrap_or_else(|_| "command line".to_owned());
    let options = Options {
        tenant: global.tenant.clone(),
        by,
        // A person decides whether to try again.
        patience: Duration::ZERO,
        ..Options::default()
    };
    detent_client::Client::new(messages, options)
}
