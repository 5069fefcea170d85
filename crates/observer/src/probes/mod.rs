//! The kinds of probes.
//!
//! Every kind takes `timeout_ms` beside its own parameters. A path may begin with
//! `work:` (the goal's work directory), `data:` (the node's data directory) or `config:`
//! (the configuration's directory); without one it is absolute or relative to the base
//! that its kind names.

mod file;
mod http;
mod output;
mod process;
mod sql;

pub use file::FileProbe;
pub use http::HttpProbe;
pub use output::OutputProbe;
pub use process::{ProcessProbe, ProcessProbeOptions};
pub use sql::SqlProbe;

use crate::probe::Probe;
use detent_connect::http::HttpSetupError;
use detent_sandbox::Confine;
use std::sync::Arc;

/// One probe of each kind.
///
/// # Errors
/// [`HttpSetupError`] where TLS can't be set up.
pub fn all(
    confine: Arc<dyn Confine>,
    process: ProcessProbeOptions,
) -> Result<Vec<Arc<dyn Probe>>, HttpSetupError> {
    Ok(vec![
        Arc::new(FileProbe::new()),
        Arc::new(SqlProbe::new()),
        Arc::new(HttpProbe::new()?),
        Arc::new(OutputProbe),
        Arc::new(ProcessProbe::new(confine, process)),
    ])
}
