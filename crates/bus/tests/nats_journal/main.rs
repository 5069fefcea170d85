//! The journal and the effect slots on JetStream: three copies, servers that die, and what
//! the broker's own ways ask for.

#[path = "../support/mod.rs"]
mod support;

mod conforms;
mod faults;
mod forget;
mod goals;
mod listing;
mod refusals;
mod streams;

use bytes::Bytes;
use detent_bus::nats::{JOURNAL, NatsBus, NatsOptions};
use detent_bus::{Append, AppendError, Bus, GoalKey, Stored};
use detent_protocol::{AgentName, GoalId, NodeId, TenantId};

async fn connect(options: NatsOptions) -> Bus {
    NatsBus::connect(options).await.expect("a bus").bus
}

/// JetStream without Detent in between.
async fn jetstream(options: &NatsOptions) -> async_nats::jetstream::Context {
    let servers: Vec<_> = options.url.split(',').map(String::from).collect();
    let client = async_nats::connect(servers).await.expect("a connection");
    async_nats::jetstream::new(client)
}

fn goal(name: &str) -> GoalKey {
    let tenant = TenantId::default();
    let goal = GoalId::from_key(&tenant, &AgentName::new("a").unwrap(), name);
    GoalKey { tenant, goal }
}

fn append_of(key: &GoalKey, after: u64, entry: impl Into<Bytes>, ends: bool) -> Append {
    Append {
        key: key.clone(),
        after,
        entry: entry.into(),
        by: NodeId::new("n1").unwrap(),
        ends,
    }
}

async fn append(
    bus: &Bus,
    key: &GoalKey,
    after: u64,
    entry: impl Into<Bytes>,
) -> Result<u64, AppendError> {
    bus.journal
        .append(append_of(key, after, entry, false))
        .await
}

/// All entries of a goal, page by page.
async fn read_all(bus: &Bus, key: &GoalKey, page_bytes: usize) -> Vec<Stored> {
    let mut all: Vec<Stored> = Vec::new();
    loop {
        let after = all.last().map_or(0, |last| last.seq);
        let page = bus.journal.read(key, after, page_bytes).await;
        let page = page.expect("a page");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}
