//! Why an observer does not start.

use detent_bus::BusError;
use std::path::{Path, PathBuf};

/// Why an observer does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObserverError {
    /// A setting is outside its range, or two probes have the same kind.
    #[error("{what}")]
    Options {
        /// Which and why.
        what: String,
    },
    /// A directory can't be used.
    #[error("the directory {} can't be used: {what}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's words.
        what: String,
    },
    /// The bus does not let it serve.
    #[error("can't serve on the bus: {0}")]
    Bus(#[from] BusError),
    /// The actor can't be started, for instance because its supervisor has stopped.
    #[error("the actor can't be started: {what}")]
    Start {
        /// Why.
        what: String,
    },
}

impl ObserverError {
    pub(crate) fn directory(path: &Path, error: &std::io::Error) -> Self {
        Self::Directory {
            path: path.to_owned(),
            what: error.to_string(),
        }
    }
}
