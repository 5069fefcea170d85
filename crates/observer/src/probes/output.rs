//! The tool's own output, where it is too large for its goal's owner to look at itself.
//!
//! Parameters: `output`. Sees it as it is.

use crate::probe::{Look, Probe, ProbeContext, read_params};
use async_trait::async_trait;
use detent_protocol::Fault;
use detent_protocol::expect::PROBE_OUTPUT;
use serde::Deserialize;
use serde_json::Value;

/// Looks at an output.
#[derive(Debug, Default)]
pub struct OutputProbe;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    output: Value,
}

#[async_trait]
impl Probe for OutputProbe {
    fn kind(&self) -> &str {
        PROBE_OUTPUT
    }

    async fn look(&self, params: &Value, cx: &ProbeContext) -> Result<Look, Fault> {
        let params: Params = read_params(params)?;
        Ok(Look::new(
            format!("output of step {}", cx.step),
            params.output,
        ))
    }
}
