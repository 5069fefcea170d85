//! The handle that ends a run from outside.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Ends the runs it was given to. Clones are the same switch; it cannot be
/// switched back.
///
/// [`KillSwitch::kill`] only asks. That the tree is dead is known when the
/// run itself returns.
#[derive(Clone)]
pub struct KillSwitch {
    state: Arc<watch::Sender<bool>>,
}

impl KillSwitch {
    /// A switch that has not been used.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Asks every run that holds this switch to end with
    /// [`crate::Cause::Killed`]. A run that has not started yet never will.
    pub fn kill(&self) {
        self.state.send_replace(true);
    }

    /// Whether [`KillSwitch::kill`] was called.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        *self.state.borrow()
    }

    /// Waits until [`KillSwitch::kill`] is called; at once if it already was.
    pub async fn killed(&self) {
        let mut seen = self.state.subscribe();
        // The sender lives in `self`, so the channel cannot close meanwhile.
        let _ = seen.wait_for(|killed| *killed).await;
    }
}

impl Default for KillSwitch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KillSwitch")
            .field("killed", &self.is_killed())
            .finish()
    }
}
