//! What the executors of one process remember between them.

use crate::runs::Runs;
use crate::sealed::SealedAttempts;
use std::sync::Arc;

/// The attempts in hand and the sealed ones. Clones share one memory: an executor that
/// is started again in the same process has to get its predecessor's, because calls
/// that one took up may still run, and what it sealed must stay sealed. Bounded by
/// [`ExecutorOptions`](crate::ExecutorOptions).
#[derive(Clone, Default)]
pub struct ExecutorMemory {
    pub(crate) runs: Arc<Runs>,
    pub(crate) sealed: Arc<SealedAttempts>,
}

impl std::fmt::Debug for ExecutorMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} attempts in hand", self.runs.len())
    }
}
