//! Settings of an observer.

use crate::error::ObserverError;
use detent_protocol::NodeId;
use detent_protocol::redact::Redactor;
use std::path::PathBuf;

/// Longest time that one look may be given, milliseconds.
pub const TIMEOUT_MS_MAX: u64 = 60_000;

/// Settings of an observer.
#[derive(Debug, Clone)]
pub struct ObserverOptions {
    /// Holds one work directory for each goal, named by the goal's id; the same
    /// directory in which the goal's tools work. Made if it is missing, because only
    /// under a directory that is there a missing file is known to be missing.
    pub work_root: PathBuf,
    /// Base of paths that begin with `config:`.
    pub config_dir: PathBuf,
    /// Base of paths that begin with `data:`.
    pub data_dir: PathBuf,
    /// Time for one look where its parameters name none (`timeout_ms`), milliseconds,
    /// 1 to [`TIMEOUT_MS_MAX`].
    pub timeout_ms: u64,
    /// Looks at the same time, at least 1.
    pub concurrency_max: usize,
    /// Requests that wait beyond these.
    pub queue_max: usize,
    /// The node whose goals' folders are here; it alone is looked for.
    pub node: NodeId,
    /// Masks secrets in what is answered.
    pub redactor: Redactor,
}

impl ObserverOptions {
    /// 10 s a look, 32 at a time, 1,024 waiting, and a redactor that
    /// knows only the shapes of secrets.
    pub fn new(
        node: NodeId,
        work_root: impl Into<PathBuf>,
        config_dir: impl Into<PathBuf>,
        data_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            work_root: work_root.into(),
            config_dir: config_dir.into(),
            data_dir: data_dir.into(),
            timeout_ms: 10_000,
            concurrency_max: 32,
            queue_max: 1_024,
            node,
            redactor: Redactor::default(),
        }
    }

    /// Checks the bounds, makes the directories absolute and the work root exist.
    pub(crate) fn prepared(mut self) -> Result<Self, ObserverError> {
        if !(1..=TIMEOUT_MS_MAX).contains(&self.timeout_ms) {
            let what = format!("timeout_ms must be 1 to {TIMEOUT_MS_MAX}");
            return Err(ObserverError::Options { what });
        }
        if self.concurrency_max == 0 {
            let what = "concurrency_max must be at least 1".into();
            return Err(ObserverError::Options { what });
        }
        for dir in [
            &mut self.work_root,
            &mut self.config_dir,
            &mut self.data_dir,
        ] {
            *dir = std::path::absolute(&*dir).map_err(|e| ObserverError::directory(dir, &e))?;
        }
        std::fs::create_dir_all(&self.work_root)
            .map_err(|e| ObserverError::directory(&self.work_root, &e))?;
        Ok(self)
    }
}
