//! The definitions that a node knows: today's by agent, and every version that a goal
//! in flight may be pinned to.

use detent_protocol::AgentName;
use detent_protocol::agent::Compiled;
use detent_protocol::json::Digest;
use std::collections::HashMap;
use std::sync::Arc;

/// Definitions by agent and by digest. Cheap to clone; fixed for the node's life.
#[derive(Clone, Default)]
pub struct Definitions(Arc<Inner>);

#[derive(Default)]
struct Inner {
    by_agent: HashMap<AgentName, Compiled>,
    by_digest: HashMap<Digest, Compiled>,
}

impl Definitions {
    /// `current` are offered to new goals; `earlier` only keep old goals going.
    pub fn new(
        current: impl IntoIterator<Item = Compiled>,
        earlier: impl IntoIterator<Item = Compiled>,
    ) -> Self {
        let mut inner = Inner::default();
        for d in earlier {
            inner.by_digest.insert(d.digest(), d);
        }
        for d in current {
            inner.by_digest.insert(d.digest(), d.clone());
            inner.by_agent.insert(d.agent().name.clone(), d);
        }
        Self(Arc::new(inner))
    }

    /// Today's definition of an agent.
    pub fn of_agent(&self, name: &AgentName) -> Option<&Compiled> {
        self.0.by_agent.get(name)
    }

    /// The version that a goal is pinned to.
    pub fn pinned(&self, digest: &Digest) -> Option<&Compiled> {
        self.0.by_digest.get(digest)
    }

    /// Names of the agents that new goals can go to, sorted.
    pub fn agents(&self) -> Vec<&AgentName> {
        let mut names: Vec<_> = self.0.by_agent.keys().collect();
        names.sort();
        names
    }
}
