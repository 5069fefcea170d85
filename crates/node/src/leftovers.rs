//! What a node holds of a goal beside its journal: the executor's ledger rows and the
//! goal's work folder. Both go when the goal has been forgotten.

use detent_bus::GoalKey;
use detent_bus::env::SharedEnv;
use detent_protocol::Fault;
use detent_tool_executor::Ledger;
use std::io;
use std::path::PathBuf;

/// Takes out what a node holds of forgotten goals.
pub(crate) struct Leftovers {
    ledger: Ledger,
    work_root: PathBuf,
    env: SharedEnv,
}

impl Leftovers {
    pub(crate) fn new(ledger: Ledger, work_root: PathBuf, env: SharedEnv) -> Self {
        Self {
            ledger,
            work_root,
            env,
        }
    }

    /// Takes out what there is of a goal; asked again, it finds nothing to do.
    ///
    /// # Errors
    /// `JOURNAL_STORAGE` or `JOURNAL_CORRUPT` from the ledger. A folder that can't be
    /// removed is only logged: what is in it belongs to the goal's tools.
    pub(crate) async fn remove(&self, key: &GoalKey) -> Result<(), Fault> {
        let folder = self.work_root.join(key.goal.to_string());
        let is_there = tokio::fs::symlink_metadata(&folder).await.is_ok();
        if !is_there && !self.ledger.knows(&key.goal)? {
            return Ok(());
        }
        // First: from then on the executor refuses the goal and makes no folder for it.
        self.ledger.forget(&key.goal, self.env.now_ms()).await?;
        match tokio::fs::remove_dir_all(&folder).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "the work folder of a forgotten goal stays");
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_bus::env::SystemEnv;
    use detent_protocol::{GoalId, StepId, TenantId};
    use detent_store::{Store, StoreOptions};
    use detent_tool_executor::{Attempt, Entry};
    use std::sync::Arc;

    #[tokio::test]
    async fn folder_and_rows_of_a_goal_go_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::journal(dir.path().join("store"))).unwrap();
        let (ledger, work) = (Ledger::new(store), dir.path().join("work"));
        let left = Leftovers::new(ledger.clone(), work.clone(), Arc::new(SystemEnv));
        let key = |id| GoalKey {
            tenant: TenantId::default(),
            goal: GoalId::from_bytes([id; 16]),
        };
        let attempt = |id| Attempt {
            goal: key(id).goal,
            step: StepId::new("s").unwrap(),
            attempt: 1,
        };
        let entry = Entry {
            nonce: 1,
            outcome: None,
            at_ms: 1,
        };
        for id in [1, 2] {
            let folder = work.join(key(id).goal.to_string()).join("deep");
            std::fs::create_dir_all(folder).unwrap();
            ledger.record(&attempt(id), &entry).await.unwrap();
        }
        for _ in 0..2 {
            left.remove(&key(1)).await.unwrap();
        }
        left.remove(&key(3)).await.unwrap();
        let folders = std::fs::read_dir(&work).unwrap();
        let folders: Vec<_> = folders.map(|f| f.unwrap().file_name()).collect();
        assert_eq!(folders, [std::ffi::OsString::from(key(2).goal.to_string())]);
        assert_eq!(ledger.entry(&attempt(1)).unwrap(), None);
        assert_eq!(ledger.entry(&attempt(2)).unwrap(), Some(entry));
        assert!(ledger.is_sealed(&key(1).goal).unwrap());
        assert!(!ledger.knows(&key(3).goal).unwrap());
    }
}
