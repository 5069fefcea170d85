//! From how a process ended to what its tool said.

use super::STDERR_BYTES_MAX;
use super::config::missing_program;
use crate::answer::fits;
use crate::call::start_deadline_passed;
use crate::fn_kind::timed_out;
use crate::kind::{Invocation, KindOutcome};
use crate::refused;
use detent_protocol::record::RunFacts;
use detent_protocol::redact::Redactor;
use detent_protocol::{Code, Fault, json};
use detent_sandbox::{Cause, Exit, SpawnError};
use serde_json::Value;
use std::collections::BTreeMap;

/// How much of the end of standard error is told, bytes.
const LAST_WORDS_BYTES_MAX: usize = 1024;

/// Judges one run.
pub(super) struct Verdict<'a> {
    call: &'a Invocation,
    redactor: Redactor,
    secret_bytes_max: usize,
}

impl<'a> Verdict<'a> {
    pub(super) fn new(call: &'a Invocation, secrets: BTreeMap<String, String>) -> Self {
        Self {
            call,
            secret_bytes_max: secrets.values().map(String::len).max().unwrap_or(0),
            redactor: Redactor::new(secrets.into_values()),
        }
    }

    pub(super) fn of(&self, ended: Result<Exit, SpawnError>) -> KindOutcome {
        let exit = match ended {
            Ok(exit) => exit,
            Err(error) => {
                return KindOutcome::Failed {
                    started: error.may_have_started(),
                    fault: self.not_run(&error),
                    facts: RunFacts::default(),
                };
            }
        };
        let facts = facts(&exit);
        let started = true;
        let said = match exit.cause {
            Cause::Killed => {
                return KindOutcome::Killed {
                    started: self.call.is_started(),
                    facts,
                };
            }
            Cause::Exited(0) => self.output(&exit.stdout),
            Cause::Exited(status) => Err(self.with_last_words(
                Code::ToolFailed,
                &format!("it ended with exit code {status}"),
                &exit,
            )),
            Cause::Signaled(signal) => Err(self.with_last_words(
                Code::ToolCrashed,
                &format!("it was ended by signal {signal} ({})", signal_name(signal)),
                &exit,
            )),
            Cause::Deadline => {
                let timeout = timed_out(self.call);
                Err(self.with_last_words(timeout.code, &timeout.message, &exit))
            }
            Cause::OutputLimit => Err(self.too_much(&exit.stdout)),
        };
        match said {
            Ok(output) => KindOutcome::Done { output, facts },
            Err(fault) => KindOutcome::Failed {
                fault,
                started,
                facts,
            },
        }
    }

    fn not_run(&self, error: &SpawnError) -> Fault {
        let code = match error {
            SpawnError::NotFound { program } | SpawnError::PermissionDenied { program } => {
                return missing_program(program);
            }
            SpawnError::StartDeadlinePassed => return start_deadline_passed(),
            SpawnError::TooLarge { .. } => Code::InputTooLarge,
            error if error.may_have_started() => Code::ToolCrashed,
            _ => Code::ToolUnavailable,
        };
        Fault::new(code, self.redactor.text(&error.to_string()))
    }

    fn too_much(&self, stdout: &[u8]) -> Fault {
        let max = self.call.tool.def.output_bytes_max;
        let message = format!("it printed more than {max} bytes and was killed");
        refused::kept(
            self.call,
            Fault::new(Code::ResponseTooLarge, message),
            stdout,
        )
    }

    /// The output, if it is what it should be; else it is kept as a file.
    fn output(&self, stdout: &[u8]) -> Result<Value, Fault> {
        let checked = parse(stdout).and_then(|mut output| {
            fits(self.call, &output)?;
            self.redactor.json(&mut output);
            let contract = &self.call.tool.output;
            contract.check_as(Code::ToolOutputInvalid, &output)?;
            Ok(output)
        });
        checked.map_err(|fault| refused::kept(self.call, fault, stdout))
    }

    fn with_last_words(&self, code: Code, what: &str, exit: &Exit) -> Fault {
        let words = self.last_words(&exit.stderr_tail);
        if words.is_empty() {
            return Fault::new(code, what);
        }
        Fault::new(code, format!("{what}: {words}"))
    }

    /// Masked first and cut afterwards, so that no half of a secret is told.
    fn last_words(&self, stderr: &[u8]) -> String {
        // Where the front is cut off it may hold the rest of a secret.
        let is_cut = stderr.len() as u64 >= STDERR_BYTES_MAX;
        let skip = if is_cut { self.secret_bytes_max } else { 0 };
        let whole = String::from_utf8_lossy(&stderr[skip.min(stderr.len())..]);
        let masked = self.redactor.text(&whole);
        let from = masked.len().saturating_sub(LAST_WORDS_BYTES_MAX);
        let last = &masked[masked.ceil_char_boundary(from)..];
        let printable = |c: char| !c.is_control() || c == '\n' || c == '\t';
        let text: String = last.chars().filter(|c| printable(*c)).collect();
        text.trim().to_owned()
    }
}

/// Exactly one JSON object; what is wrong is said without what stands there.
fn parse(stdout: &[u8]) -> Result<Value, Fault> {
    let wrong =
        |at: String, message: String| Err(Fault::new(Code::ToolOutputInvalid, message).at(at));
    let text = match std::str::from_utf8(stdout) {
        Ok(text) => text,
        Err(e) => {
            let at = format!("byte {}", e.valid_up_to());
            return wrong(at, "it printed bytes that are not UTF-8".to_owned());
        }
    };
    if text.trim().is_empty() {
        let message = "it printed nothing; it has to print one JSON object";
        return wrong("byte 0".to_owned(), message.to_owned());
    }
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(other) => {
            let found = json::type_name(&other);
            wrong(
                "/".to_owned(),
                format!("it printed a JSON {found}, not an object"),
            )
        }
        Err(e) => {
            let at = format!("line {} column {}", e.line(), e.column());
            wrong(at, format!("it did not print one JSON object: {e}"))
        }
    }
}

fn facts(exit: &Exit) -> RunFacts {
    RunFacts {
        wall_ms: exit.wall_ms,
        cpu_ms: exit.cpu_ms,
        memory_bytes_max: exit.max_rss_bytes,
        sandbox: exit.level.name.clone(),
        sandbox_missing: exit.level.missing.clone(),
        node: String::new(),
    }
}

/// Names of the signals that end programs, on Linux's common architectures.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => "see `kill -l`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_json_object_is_taken_and_the_place_is_named() {
        assert!(parse(b" {\"a\": 1}\n").is_ok());
        let cases: [(&[u8], &str); 7] = [
            (b"", "byte 0"),
            (b" \n", "byte 0"),
            (b"{\"a\": \"\xff\"}", "byte 7"),
            (b"[1]", "/"),
            (b"{\"a\": 1} {}", "line 1 column 10"),
            (b"hello", "line 1 column 1"),
            (b"{\"a\":\n1", "line 2 column 1"),
        ];
        for (stdout, at) in cases {
            let fault = parse(stdout).unwrap_err();
            assert_eq!(fault.code, Code::ToolOutputInvalid);
            assert_eq!(fault.at.as_deref(), Some(at), "{stdout:?}: {fault}");
        }
    }
}
