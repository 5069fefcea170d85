//! State that the handles, the committer and the watchdog share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::watch;

use crate::StoreError;
use crate::counters::Counters;
use crate::view::View;

pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) counters: Counters,
    /// `None` once the store is closed.
    view: RwLock<Option<View>>,
    failure: Mutex<Option<Arc<str>>>,
    /// Turns true when the committer does not come back any more.
    pub(crate) stalled: watch::Sender<bool>,
    opened: Instant,
    /// Milliseconds after `opened` at which the group in flight began, plus one; 0 when idle.
    group_began_ms: AtomicU64,
    #[cfg(test)]
    pub(crate) fault: crate::fault::Trap,
}

impl Shared {
    pub(crate) fn new(dir: PathBuf, view: View) -> Shared {
        Shared {
            dir,
            counters: Counters::default(),
            view: RwLock::new(Some(view)),
            failure: Mutex::new(None),
            stalled: watch::Sender::new(false),
            opened: Instant::now(),
            group_began_ms: AtomicU64::new(0),
            #[cfg(test)]
            fault: Mutex::new(None),
        }
    }

    /// Reads under the view's lock. sled panics on some damaged pages; that becomes an error.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&View) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        let view = view.as_ref().ok_or(StoreError::Closed)?;
        catch_unwind(AssertUnwindSafe(|| read(view))).unwrap_or_else(|panic| {
            Err(StoreError::corrupt(
                &self.dir,
                format!("sled panicked: {}", panic_text(&*panic)),
            ))
        })
    }

    /// Changes what the readers see. Does nothing once the store is closed.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut View) -> T) -> Option<T> {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        view.as_mut().map(change)
    }

    /// Ends all reads; the tree goes with the view.
    pub(crate) fn close(&self) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.view
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    /// Refuses every later commit. The first cause stands.
    pub(crate) fn fail(&self, cause: &str) {
        let mut failure = self.failure_lock();
        if failure.is_none() {
            tracing::error!(dir = %self.dir.display(), cause, "store takes no more commits");
            *failure = Some(cause.into());
        }
    }

    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.failure_lock().clone()
    }

    /// The error for a commit that nobody will answer.
    pub(crate) fn refusal(&self) -> StoreError {
        self.failure()
            .map_or(StoreError::Closed, |cause| StoreError::Failed { cause })
    }

    fn failure_lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_group(&self) {
        self.group_began_ms
            .store(self.now_ms() + 1, Ordering::Release);
    }

    pub(crate) fn end_group(&self) {
        self.group_began_ms.store(0, Ordering::Release);
    }

    /// How long the group in flight has been so, in milliseconds from 1; 0 when there is none.
    pub(crate) fn group_age_ms(&self) -> u64 {
        match self.group_began_ms.load(Ordering::Acquire) {
            0 => 0,
            began => (self.now_ms() + 2).saturating_sub(began),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

/// What a caught panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
