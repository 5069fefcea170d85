//! What the handlers of calls and of seals share.

use crate::kind::ToolKind;
use crate::ledger::Ledger;
use crate::options::{ExecutorError, ExecutorOptions};
use crate::registry::{Registry, ToolHealth};
use crate::runs::Runs;
use crate::sealed::SealedAttempts;
use detent_bus::Bus;
use detent_bus::claim::ClaimCheck;
use detent_bus::env::SharedEnv;
use detent_protocol::agent::ToolDef;
use detent_protocol::{Code, Fault};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

pub(crate) type Kinds = BTreeMap<String, Arc<dyn ToolKind>>;

pub(crate) struct Core {
    pub(crate) options: ExecutorOptions,
    pub(crate) bus: Bus,
    pub(crate) claims: ClaimCheck,
    pub(crate) ledger: Ledger,
    pub(crate) registry: Registry,
    pub(crate) kinds: Kinds,
    pub(crate) env: SharedEnv,
    pub(crate) runs: Arc<Runs>,
    pub(crate) sealed: Arc<SealedAttempts>,
}

impl Core {
    /// The kind that a tool's entry names.
    pub(crate) fn kind_of(&self, def: &ToolDef) -> Result<&Arc<dyn ToolKind>, Fault> {
        self.kinds.get(&def.kind).ok_or_else(|| {
            let message = format!(
                "tool {} is of kind {:?}; this node has {:?}",
                def.name,
                def.kind,
                self.kinds.keys().collect::<Vec<_>>()
            );
            Fault::new(Code::ToolUnavailable, message)
        })
    }

    pub(crate) fn health(&self) -> Vec<ToolHealth> {
        let tools = self.registry.tools().into_iter();
        let health = tools.map(|tool| ToolHealth {
            tool: tool.def.name.clone(),
            digest: tool.digest,
            fault: self
                .kind_of(&tool.def)
                .and_then(|kind| kind.check(&tool.def))
                .err(),
        });
        health.collect()
    }
}

/// The kinds by name; two of one name are a mistake of the embedding program.
pub(crate) fn by_name(kinds: Vec<Arc<dyn ToolKind>>) -> Result<Kinds, ExecutorError> {
    let mut named = Kinds::new();
    for kind in kinds {
        match named.entry(kind.kind().to_owned()) {
            Entry::Occupied(there) => return Err(ExecutorError::KindTwice(there.key().clone())),
            Entry::Vacant(free) => free.insert(kind),
        };
    }
    Ok(named)
}
