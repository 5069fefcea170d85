//! Asking a node: over its socket, or, for queries, from its data directory when no
//! node runs there.

use crate::args::Global;
use detent_bus::local::socket::SocketClient;
use detent_bus::{Bus, BusError, Messages, call};
use detent_orchestrator::answer_offline;
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::{Answer, Ask, Control, Controlled, GoalEvent, Query, Verb};
use detent_protocol::{Code, Fault, GoalId, TenantId, subject};
use detent_store::Store;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// Where answers come from.
pub(crate) enum Client {
    /// A node.
    Node(Arc<dyn Messages>),
    /// A data directory that no node uses; the store keeps it locked.
    Offline {
        /// Its parts.
        bus: Bus,
        _store: Store,
    },
}

impl Client {
    /// The node on the data directory.
    pub(crate) async fn node(global: &Global) -> Result<Self, Fault> {
        let path = global.data.join(detent_node::SOCKET);
        match SocketClient::connect(&path).await {
            Ok(client) => Ok(Client::Node(Arc::new(client))),
            Err(error) => {
                let message = format!("no node on {}: {error}", global.data.display());
                Err(Fault::new(Code::NodeUnreachable, message))
            }
        }
    }

    /// The node, or the data directory itself where none runs.
    pub(crate) async fn any(global: &Global) -> Result<Self, Fault> {
        match Self::node(global).await {
            Ok(client) => Ok(client),
            Err(_) => {
                let (store, bus) = detent_node::open_offline(&global.data)?;
                Ok(Client::Offline { bus, _store: store })
            }
        }
    }

    pub(crate) async fn submit(&self, submit: &Submit) -> Result<Accepted, Fault> {
        let subject = subject::submit(&submit.tenant, &submit.agent);
        call(self.messages()?, &subject, submit, WAIT).await
    }

    pub(crate) async fn control(&self, goal: GoalId, verb: Verb) -> Result<Controlled, Fault> {
        let tenant = TenantId::default();
        let subject = subject::steer(&tenant, &goal);
        let by = std::env::var("USER").unwrap_or_else(|_| "command line".to_owned());
        let control = Control {
            tenant,
            goal,
            by,
            verb,
        };
        call(self.messages()?, &subject, &control, WAIT).await
    }

    pub(crate) async fn query(&self, ask: Ask) -> Result<Answer, Fault> {
        let tenant = TenantId::default();
        let subject = subject::query(&tenant);
        let query = Query { tenant, ask };
        match self {
            Client::Node(messages) => call(&**messages, &subject, &query, WAIT).await,
            Client::Offline { bus, .. } => answer_offline(&*bus.journal, &query).await,
        }
    }

    /// Events from number `from`, waiting a while for the first; whether there are
    /// more to come.
    pub(crate) async fn events(
        &self,
        goal: GoalId,
        from: u64,
    ) -> Result<(Vec<GoalEvent>, bool), Fault> {
        let wait_ms = 20_000;
        match self
            .query(Ask::Events {
                goal,
                from,
                wait_ms,
            })
            .await?
        {
            Answer::Events { events, ended } => Ok((events, ended)),
            _ => Err(Fault::new(
                Code::InternalLogicError,
                "not an answer to events",
            )),
        }
    }

    /// Is there somebody who works on goals?
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Client::Node(_))
    }

    fn messages(&self) -> Result<&dyn Messages, Fault> {
        match self {
            Client::Node(messages) => Ok(&**messages),
            Client::Offline { .. } => Err(BusError::Closed.into()),
        }
    }
}
