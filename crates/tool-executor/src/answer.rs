//! From what a kind says to what is answered: bounded, redacted, checked, and put aside
//! where it is large.

use crate::core::Core;
use crate::kind::{Invocation, KindOutcome};
use crate::runs::{EndingKind, KillWhy};
use detent_protocol::record::{RunFacts, ToolOutcome};
use detent_protocol::{Code, Fault, claim, json};
use serde_json::Value;

/// Deepest nesting of an output. The envelope's reader refuses at 128 levels, and an
/// output travels inside records that nest it further.
pub(crate) const OUTPUT_DEPTH_MAX: usize = 64;

impl Core {
    /// The outcome of a run, and what a seal may make of it.
    pub(crate) async fn word(
        &self,
        call: &Invocation,
        ended: KindOutcome,
        why: KillWhy,
    ) -> (ToolOutcome, EndingKind) {
        match ended {
            KindOutcome::Done { output, facts } => {
                (self.done(call, output, facts).await, EndingKind::Over)
            }
            KindOutcome::Failed {
                fault,
                started,
                facts,
            } => (self.failed(fault, started, facts), EndingKind::Over),
            KindOutcome::Killed { started, facts } => {
                let kind = if started {
                    EndingKind::Killed
                } else {
                    EndingKind::Over
                };
                (self.failed(why.fault(), started, facts), kind)
            }
        }
    }

    /// A large output is kept before it is told. Where that can't be done the tool has run
    /// and its output is lost.
    async fn done(&self, call: &Invocation, output: Value, facts: RunFacts) -> ToolOutcome {
        let kept = match self.checked(call, output) {
            Ok(output) => self.claims.keep(&call.goal, output).await,
            Err(fault) => Err(fault),
        };
        match kept {
            Ok(output) => ToolOutcome::Done {
                output,
                run: self.signed(facts),
            },
            Err(fault) => self.failed(fault, true, facts),
        }
    }

    fn failed(&self, fault: Fault, started: bool, facts: RunFacts) -> ToolOutcome {
        let redactor = &self.options.redactor;
        let fault = Fault {
            message: redactor.text(&fault.message),
            at: fault.at.map(|at| redactor.text(&at)),
            ..fault
        };
        ToolOutcome::Failed {
            fault,
            started,
            run: self.signed(facts),
        }
    }

    fn signed(&self, facts: RunFacts) -> RunFacts {
        RunFacts {
            node: self.options.node.to_string(),
            ..facts
        }
    }

    fn checked(&self, call: &Invocation, mut output: Value) -> Result<Value, Fault> {
        fits(call, &output)?;
        self.options.redactor.json(&mut output);
        call.tool
            .output
            .check_as(Code::ToolOutputInvalid, &output)?;
        Ok(output)
    }
}

/// Is the output within the bounds of its tool, and legible to every reader?
pub(crate) fn fits(call: &Invocation, output: &Value) -> Result<(), Fault> {
    if is_deeper_than(output, OUTPUT_DEPTH_MAX) {
        let message = format!("the output is nested deeper than {OUTPUT_DEPTH_MAX} levels");
        return Err(Fault::new(Code::ToolOutputInvalid, message).at("/"));
    }
    if claim::is_reserved(output) {
        let message = format!("an output may not use the key {:?} at its top", claim::KEY);
        return Err(Fault::new(Code::ToolOutputInvalid, message).at("/"));
    }
    let bytes = json::size_bytes(output);
    let max = call.tool.def.output_bytes_max;
    if bytes as u64 > max {
        return Err(too_large(bytes, max));
    }
    Ok(())
}

fn too_large(bytes: usize, max: u64) -> Fault {
    let message = format!("the output takes {bytes} bytes; at most {max} are allowed");
    Fault::new(Code::ResponseTooLarge, message)
}

fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Array(items) => items.iter().any(|v| is_deeper_than(v, left)),
        Value::Object(map) => map.values().any(|v| is_deeper_than(v, left)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn depth_counts_the_value_itself() {
        assert!(!is_deeper_than(&json!(1), 1));
        assert!(!is_deeper_than(&json!([1]), 2));
        assert!(is_deeper_than(&json!([1]), 1));
        assert!(is_deeper_than(&json!({"a": [[]]}), 2));
    }
}
