//! Looks by a program of the user's.
//!
//! Parameters `{command: [PROGRAM, ARG…], input?}`; an argument that begins with
//! `config:`, `data:` or `work:` is a path below that base. The program gets `input` as
//! JSON on its standard input, the goal's work directory as its own, and the environment
//! `PATH`, `DETENT_CONFIG_DIR`, `DETENT_DATA_DIR` and nothing else. Sees
//! `{exit_code, output}`: what it printed as JSON, or `null`.
//!
//! A program that can't be started, runs out of time, is killed or prints too much is no
//! look. A non-zero status, or an output that is not JSON, leaves a doubt: it proves
//! nothing unless the expectation says what it means.

use crate::place;
use crate::probe::{Look, Probe, ProbeContext, read_params, unavailable};
use async_trait::async_trait;
use detent_protocol::Fault;
use detent_sandbox::{Cause, Confine, Exit, KillSwitch, Limits, ProcessSpec, RunTag};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Standard output that is read, bytes; one more ends the program.
const STDOUT_BYTES_MAX: u64 = 1024 * 1024;
/// The end of standard error that is told, bytes.
const STDERR_BYTES_MAX: u64 = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    command: Vec<String>,
    #[serde(default = "empty_object")]
    input: Value,
}

fn empty_object() -> Value {
    json!({})
}

/// Settings of the probe `process`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessProbeOptions {
    /// Marks every process with its owner, so that leftovers of a killed node are found:
    /// one name for each data directory, the same after a restart. It must not be the
    /// owner of runs that somebody sweeps while a probe may run.
    pub owner: String,
    /// `PATH` in which programs are looked up.
    pub path: String,
}

impl ProcessProbeOptions {
    /// The usual directories for programs.
    pub fn new(owner: impl Into<String>) -> Self {
        Self {
            owner: owner.into(),
            path: "/usr/local/bin:/usr/bin:/bin".into(),
        }
    }
}

/// Probe `process`.
pub struct ProcessProbe {
    confine: Arc<dyn Confine>,
    options: ProcessProbeOptions,
    runs: AtomicU64,
}

impl std::fmt::Debug for ProcessProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessProbe")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl ProcessProbe {
    /// A probe that runs its programs by `confine`.
    pub fn new(confine: Arc<dyn Confine>, options: ProcessProbeOptions) -> Self {
        Self {
            confine,
            options,
            runs: AtomicU64::new(0),
        }
    }

    fn spec(&self, params: &Params, cx: &ProbeContext) -> Result<ProcessSpec, Fault> {
        let command = params.command.iter();
        let command: Result<Vec<_>, _> = command
            .map(|arg| place::resolve_argument(arg, cx))
            .collect();
        let mut args = command?;
        if args.is_empty() {
            return Err(unavailable("the command is empty").at("/params/command"));
        }
        let program = args.remove(0);
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        Ok(ProcessSpec {
            program,
            args,
            env: self.environment(cx)?,
            cwd: cx.work_dir.clone(),
            stdin: params.input.to_string().into_bytes(),
            limits: Limits {
                wall_ms: cx.timeout_ms,
                stdout_bytes_max: STDOUT_BYTES_MAX,
                stderr_bytes_max: STDERR_BYTES_MAX,
            },
            tag: RunTag {
                owner: self.options.owner.clone(),
                run: format!("observe-{}-{run}", cx.goal),
            },
            start_deadline: None,
        })
    }

    fn environment(&self, cx: &ProbeContext) -> Result<BTreeMap<String, String>, Fault> {
        let text = |dir: &Path| {
            let text = dir.to_str().map(str::to_owned);
            text.ok_or_else(|| unavailable("a directory's name is not UTF-8"))
        };
        Ok(BTreeMap::from([
            ("PATH".to_owned(), self.options.path.clone()),
            ("DETENT_CONFIG_DIR".to_owned(), text(&cx.config_dir)?),
            ("DETENT_DATA_DIR".to_owned(), text(&cx.data_dir)?),
        ]))
    }
}

#[async_trait]
impl Probe for ProcessProbe {
    fn kind(&self) -> &str {
        "process"
    }

    async fn look(&self, params: &Value, cx: &ProbeContext) -> Result<Look, Fault> {
        let params: Params = read_params(params)?;
        let spec = self.spec(&params, cx)?;
        // Made with the goal's first tool otherwise; a program needs a directory to be in.
        tokio::fs::create_dir_all(&cx.work_dir).await.map_err(|e| {
            unavailable(format!("no work directory {}: {e}", cx.work_dir.display()))
        })?;
        let exit = self.confine.run(spec, KillSwitch::new()).await;
        let exit = exit.map_err(|e| unavailable(e.to_string()))?;
        let code = exit_code(&exit, cx)?;
        let parsed = serde_json::from_slice(&exit.stdout).ok();
        let doubt = doubt(code, parsed.is_some(), &exit);
        let seen = json!({"exit_code": code, "output": parsed.unwrap_or(Value::Null)});
        Ok(Look {
            what: params.command.join(" "),
            seen,
            doubt,
        })
    }
}

fn exit_code(exit: &Exit, cx: &ProbeContext) -> Result<i32, Fault> {
    let why = match exit.cause {
        Cause::Exited(code) => return Ok(code),
        Cause::Signaled(signal) => format!("was ended by signal {signal}"),
        Cause::Deadline => format!("did not end within {} ms", cx.timeout_ms),
        Cause::OutputLimit => format!("printed more than {STDOUT_BYTES_MAX} bytes"),
        Cause::Killed => "was stopped".into(),
    };
    let message = format!("the probe's program {why}{}", last_words(exit));
    Err(unavailable(message))
}

fn doubt(code: i32, is_json: bool, exit: &Exit) -> Option<Fault> {
    let why = match code {
        0 if is_json || exit.stdout.trim_ascii().is_empty() => return None,
        0 => "printed something that is not JSON".into(),
        code => format!("ended with status {code}"),
    };
    let message = format!("the probe's program {why}{}", last_words(exit));
    Some(unavailable(message))
}

fn last_words(exit: &Exit) -> String {
    let words = String::from_utf8_lossy(&exit.stderr_tail);
    match words.trim() {
        "" => String::new(),
        words => format!("; its last words: {words}"),
    }
}
