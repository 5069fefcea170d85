//! What a probe is.

use crate::place::{self, Base, Place};
use async_trait::async_trait;
use detent_protocol::{Code, Fault, GoalId, StepId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;

/// For whom, where and how long a probe looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeContext {
    /// The goal.
    pub goal: GoalId,
    /// The step.
    pub step: StepId,
    /// The goal's work directory, an absolute path. May not exist yet; its parent does.
    pub work_dir: PathBuf,
    /// Directory of the configuration, an absolute path.
    pub config_dir: PathBuf,
    /// Directory of the node's data, an absolute path.
    pub data_dir: PathBuf,
    /// Time for the look, milliseconds, 1 to [`crate::TIMEOUT_MS_MAX`]. A probe that
    /// takes notably longer is dropped.
    pub timeout_ms: u64,
}

impl ProbeContext {
    /// Where `path` is: absolute, below the base that it names (`work:`, `data:`,
    /// `config:`), or below `default`.
    pub(crate) fn place(&self, path: &str, default: Base) -> Result<Place, Fault> {
        place::resolve(path, default, self)
    }
}

/// What a probe saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// What was looked at, for people.
    pub what: String,
    /// What was seen, for the expectation.
    pub seen: Value,
    /// Why what was seen says nothing about the thing itself, as with a status 503 or a
    /// program that failed. Where neither the expectation nor its form of *absent* is
    /// met, this is the answer instead of a mismatch.
    pub doubt: Option<Fault>,
}

impl Look {
    /// A look without a doubt.
    pub fn new(what: impl Into<String>, seen: Value) -> Self {
        Self {
            what: what.into(),
            seen,
            doubt: None,
        }
    }
}

/// Looks at one kind of thing.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// Its name in expectations, one token of a subject.
    fn kind(&self) -> &str;

    /// Looks once. Changes nothing. Dropping the future ends the look.
    ///
    /// # Errors
    /// A fault where it could not look: never where it looked and found nothing.
    async fn look(&self, params: &Value, cx: &ProbeContext) -> Result<Look, Fault>;
}

/// A probe that could not look.
pub(crate) fn unavailable(message: impl Into<String>) -> Fault {
    Fault::new(Code::ObservationUnavailable, message)
}

/// Reads a probe's parameters.
pub(crate) fn read_params<T: DeserializeOwned>(params: &Value) -> Result<T, Fault> {
    T::deserialize(params)
        .map_err(|e| unavailable(format!("unusable parameters: {e}")).at("/params"))
}
