//! Why the reasoner did not start.

use detent_bus::BusError;
use detent_protocol::{Code, Fault};

/// Why the reasoner did not start. Faults of single requests go to whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum ReasonerError {
    /// A provider can't be used as it is configured.
    #[error("{0}")]
    Config(Fault),
    /// The bus does not let it serve.
    #[error("can't serve planner requests: {0}")]
    Bus(#[from] BusError),
    /// The actor did not start.
    #[error("the reasoner did not start: {0}")]
    Actor(String),
}

impl From<ReasonerError> for Fault {
    fn from(e: ReasonerError) -> Self {
        match e {
            ReasonerError::Config(fault) => fault,
            ReasonerError::Bus(e) => e.into(),
            ReasonerError::Actor(m) => Fault::new(Code::InternalLogicError, m),
        }
    }
}
