//! Whether the journal takes entries: what `/readyz` says about the disk.

use detent_protocol::Fault;
use detent_store::Store;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a refusal keeps the node from being ready if nothing follows it. Goals in
/// flight try again more often than that; without any, only a new goal can show that
/// the disk is well, and none comes to a node that is not ready.
const HOLDS: Duration = Duration::from_secs(30);

/// The last trouble with the journal, until an append is confirmed. A store that has
/// stopped for good stays in trouble.
pub(crate) struct Storage {
    store: Store,
    refusal: Mutex<Option<(String, Instant)>>,
}

impl Storage {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            refusal: Mutex::default(),
        }
    }

    /// An append was refused.
    pub(crate) fn refused(&self, fault: &Fault) {
        *self.refusal() = Some((fault.to_string(), Instant::now()));
    }

    /// An append was confirmed: maybe before the refusal, where the store has stopped.
    pub(crate) fn took_one(&self) {
        let mut refusal = self.refusal();
        if refusal.is_some() && !self.has_stopped() {
            *refusal = None;
        }
    }

    /// Why no goals can be taken, if they can't.
    pub(crate) fn trouble(&self) -> Option<String> {
        let (why, at) = self.refusal().clone()?;
        (at.elapsed() < HOLDS || self.has_stopped()).then_some(why)
    }

    /// Only asked after a refusal: the answer may have to wait for the disk.
    fn has_stopped(&self) -> bool {
        self.store.status().map_or(true, |s| s.failed.is_some())
    }

    fn refusal(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::Code;
    use detent_store::StoreOptions;

    fn storage(dir: &tempfile::TempDir) -> Storage {
        let options = StoreOptions::journal(dir.path().join("store"));
        Storage::new(Store::open(options).unwrap())
    }

    fn full() -> Fault {
        Fault::new(Code::JournalStorage, "the disk is full")
    }

    #[test]
    fn a_confirmed_append_ends_the_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let storage = storage(&dir);
        assert_eq!(storage.trouble(), None);
        storage.refused(&full());
        assert_eq!(storage.trouble(), Some(full().to_string()));
        storage.took_one();
        assert_eq!(storage.trouble(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_node_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let storage = storage(&dir);
        storage.refused(&full());
        tokio::time::advance(HOLDS).await;
        assert_eq!(storage.trouble(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_gone_stays_in_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let storage = storage(&dir);
        storage.store.clone().close().await.unwrap();
        storage.refused(&full());
        storage.took_one();
        assert_eq!(storage.trouble(), Some(full().to_string()));
        tokio::time::advance(HOLDS).await;
        assert_eq!(storage.trouble(), Some(full().to_string()));
    }
}
