//! Definitions that goals are pinned to, kept in the data directory: a goal goes on
//! with the version it started with, whatever the files say after a restart.

use detent_orchestrator::Definitions;
use detent_protocol::agent::{Compiled, Definition};
use detent_protocol::{Code, Fault};
use detent_store::{Scan, Store, Table, Txn};
use detent_tool_executor::Registry;

const TABLE: Table = Table::new("definition");
/// Versions read at start.
const VERSIONS_MAX: usize = 10_000;

/// Keeps today's definitions, and gives them with every earlier one.
pub(crate) async fn keep(
    store: &Store,
    current: &[Compiled],
) -> Result<(Definitions, Registry), Fault> {
    let failed = |e: detent_store::StoreError| Fault::new(Code::JournalStorage, e.to_string());
    for definition in current {
        let key = definition.digest().0;
        if store.get(TABLE, &key).map_err(failed)?.is_none() {
            let json = serde_json::to_vec(definition.definition());
            let json = json.map_err(|e| Fault::new(Code::InternalLogicError, e.to_string()))?;
            let txn = Txn::new().put(TABLE, key.to_vec(), json);
            store.commit(txn).await.map_err(failed)?;
        }
    }
    let rows = store
        .scan(TABLE, &Scan::prefix(b"", VERSIONS_MAX))
        .map_err(failed)?;
    let earlier: Vec<Compiled> = rows.iter().filter_map(|(_, v)| read(v)).collect();
    let registry = Registry::new();
    for tool in earlier
        .iter()
        .chain(current)
        .flat_map(|d| d.tools().cloned().collect::<Vec<_>>())
    {
        registry.insert(tool);
    }
    Ok((Definitions::new(current.iter().cloned(), earlier), registry))
}

/// One that this version can't read any more parks its goals, which say so; it must
/// not keep the node from starting.
fn read(json: &[u8]) -> Option<Compiled> {
    let read = serde_json::from_slice::<Definition>(json).map_err(|e| e.to_string());
    let compiled = read.and_then(|d| Compiled::compile(d).map_err(|f| f.to_string()));
    match compiled {
        Ok(compiled) => Some(compiled),
        Err(error) => {
            tracing::warn!(%error, "an earlier definition can't be read; its goals will be parked");
            None
        }
    }
}
