//! What an executor is started with, and why it may not start.

use crate::memory::ExecutorMemory;
use detent_protocol::claim::FETCHED_BYTES_MAX;
use detent_protocol::redact::Redactor;
use detent_protocol::{Fault, NodeId};
use std::path::PathBuf;

/// Settings of one executor.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The node it runs on; stands in effect slots and in the facts of each run.
    pub node: NodeId,
    /// Where each goal gets its directory, `<work_root>/<goal>`.
    pub work_root: PathBuf,
    /// What `config:` in a command stands for.
    pub config_dir: PathBuf,
    /// The node's data directory; told to tools.
    pub data_dir: PathBuf,
    /// Marks every process, so that an earlier life's are found and killed at start.
    /// One for each data directory, the same after a restart; 1 to 256 bytes.
    pub owner_tag: String,
    /// Calls that run at the same time, at least 1.
    pub concurrency_max: usize,
    /// Calls that wait beyond these; one more is refused by the bus.
    pub queue_max: usize,
    /// Seals that are carried out at the same time, at least 1. Apart from the calls:
    /// a seal must get through when every place is taken.
    pub seals_max: usize,
    /// Sealed attempts that are remembered to refuse late deliveries of `read` tools;
    /// the oldest is forgotten first. Tools with an effect have their slot for that.
    pub sealed_attempts_max: usize,
    /// Arguments of one call with all that is fetched for them, bytes of JSON text, at
    /// least 1. All calls together hold at most `concurrency_max` times as much. A
    /// process takes at most 32 MiB.
    pub args_bytes_max: usize,
    /// Masks secrets in outputs and faults.
    pub redactor: Redactor,
    /// What earlier executors of this process remember; a fresh one for the first.
    pub memory: ExecutorMemory,
}

impl ExecutorOptions {
    /// 16 calls at a time, 1,024 waiting, 256 seals, 16,384 sealed attempts remembered,
    /// arguments of 16 MiB, goals' directories in `work` of the data directory.
    pub fn new(
        node: NodeId,
        config_dir: impl Into<PathBuf>,
        data_dir: impl Into<PathBuf>,
        owner_tag: impl Into<String>,
    ) -> Self {
        let data_dir = data_dir.into();
        Self {
            node,
            work_root: data_dir.join("work"),
            config_dir: config_dir.into(),
            data_dir,
            owner_tag: owner_tag.into(),
            concurrency_max: 16,
            queue_max: 1024,
            seals_max: 256,
            sealed_attempts_max: 16_384,
            args_bytes_max: FETCHED_BYTES_MAX,
            redactor: Redactor::default(),
            memory: ExecutorMemory::default(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ExecutorError> {
        let positive = [
            ("concurrency_max", self.concurrency_max),
            ("seals_max", self.seals_max),
            ("sealed_attempts_max", self.sealed_attempts_max),
            ("args_bytes_max", self.args_bytes_max),
        ];
        match positive.into_iter().find(|(_, n)| *n == 0) {
            Some((option, _)) => Err(ExecutorError::Options { option }),
            None => Ok(()),
        }
    }
}

/// Why an executor did not start.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// An option is outside its range.
    #[error("{option} must be at least 1")]
    Options {
        /// Its name.
        option: &'static str,
    },
    /// Two kinds have the same name.
    #[error("two kinds of tool are called {0:?}")]
    KindTwice(String),
    /// A kind could not make sure that nothing of an earlier life runs any more, so
    /// that no seal could be answered truthfully.
    #[error("tools of kind {kind:?} can't be run: {fault}")]
    Prepare {
        /// The kind.
        kind: String,
        /// Why.
        fault: Fault,
    },
    /// The actor did not start; the bus refused a subject or is closed.
    #[error("the executor did not start: {0}")]
    Start(String),
}
