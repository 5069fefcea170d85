//! Tools that are programs: JSON on standard input, one JSON object on standard output.

mod config;
mod env;
mod verdict;

use crate::kind::{Invocation, Kill, KindOutcome, ToolKind};
use crate::options::ExecutorOptions;
use async_trait::async_trait;
use config::RunConfig;
use detent_protocol::agent::ToolDef;
use detent_protocol::record::RunFacts;
use detent_protocol::{Code, Fault};
use detent_sandbox::{Confine, Limits, ProcessSpec, RunTag, SpawnError};
use env::Environment;
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use verdict::Verdict;

/// The name of the kind in a tool's entry.
pub const PROCESS_KIND: &str = "process";

/// How much of the end of standard error is kept of a run, bytes.
const STDERR_BYTES_MAX: u64 = 16 * 1024;

/// How often processes that outlast SIGKILL are looked for.
const LEFTOVER_POLL: Duration = Duration::from_millis(100);

/// Runs `run.command` of a tool's entry, confined, in the goal's directory.
///
/// `run` takes:
/// - `command`: the program and its arguments; what starts with `config:` is a path in
///   the configuration's directory;
/// - `env`: further environment variables;
/// - `env_from`: names of variables that are taken from the node's environment. They
///   count as secrets: their values are masked in all that the tool says (from six
///   bytes on; shorter ones would mask ordinary words).
///
/// The program sees `PATH`, `LANG`, `HOME` and `TMPDIR` (the goal's directory),
/// `DETENT_TENANT`, `DETENT_GOAL`, `DETENT_STEP`, `DETENT_ATTEMPT`,
/// `DETENT_CONFIG_DIR`, `DETENT_DATA_DIR`, `DETENT_IDEMPOTENCY_KEY` where the effect has
/// an identity, `DETENT_FENCING_TOKEN` for `fenced` tools, the two markers of the
/// sandbox, and nothing else.
pub struct ProcessKind {
    confine: Arc<dyn Confine>,
    config_dir: PathBuf,
    data_dir: PathBuf,
    owner_tag: String,
    node_env: BTreeMap<String, String>,
}

impl ProcessKind {
    /// Runs programs under `confine`, with the directories and the owner's tag of
    /// `options` and the environment of this process as it is now.
    pub fn new(confine: Arc<dyn Confine>, options: &ExecutorOptions) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        Self {
            confine,
            config_dir: absolute(&options.config_dir),
            data_dir: absolute(&options.data_dir),
            owner_tag: options.owner_tag.clone(),
            node_env: std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
        }
    }

    /// Takes `PATH` and what `env_from` names from here instead.
    #[must_use]
    pub fn node_env(mut self, env: BTreeMap<String, String>) -> Self {
        self.node_env = env;
        self
    }

    fn environment(&self) -> Environment<'_> {
        Environment {
            config_dir: &self.config_dir,
            data_dir: &self.data_dir,
            node: &self.node_env,
        }
    }

    /// Everything that can be refused before a process is started is refused here.
    fn spec(&self, call: &Invocation, run: &RunConfig) -> Result<ProcessSpec, Fault> {
        let (program, args) = run.resolve(&self.config_dir)?;
        let work_dir = std::path::absolute(&call.work_dir).map_err(|e| no_work_dir(call, &e))?;
        make_dir(&work_dir).map_err(|e| no_work_dir(call, &e))?;
        Ok(ProcessSpec {
            program,
            args,
            env: self.environment().of(call, run, &work_dir)?,
            cwd: work_dir,
            stdin: call.args.to_string().into_bytes(),
            limits: Limits {
                wall_ms: call.tool.def.timeout_ms,
                stdout_bytes_max: call.tool.def.output_bytes_max,
                stderr_bytes_max: STDERR_BYTES_MAX,
            },
            tag: RunTag {
                owner: self.owner_tag.clone(),
                run: format!(
                    "{}/{}/{}/{:x}",
                    call.goal, call.step, call.attempt, call.nonce
                ),
            },
            start_deadline: Some(call.start_deadline),
        })
    }
}

#[async_trait]
impl ToolKind for ProcessKind {
    fn kind(&self) -> &str {
        PROCESS_KIND
    }

    fn check(&self, def: &ToolDef) -> Result<(), Fault> {
        let run = RunConfig::read(def)?;
        run.resolve(&self.config_dir)?;
        self.environment().secrets(&run)?;
        let path = self.environment().path(&run);
        config::find_program(&run.program(&self.config_dir), &path)
    }

    async fn prepare(&self) -> Result<(), Fault> {
        let swept = self.confine.sweep(&self.owner_tag).await;
        let report = swept.map_err(|error| {
            let message = format!("processes of an earlier life can't be ended: {error}");
            Fault::new(Code::ToolUnavailable, message)
        })?;
        if report.killed > 0 {
            tracing::warn!(killed = report.killed, "ended processes of an earlier life");
        }
        Ok(())
    }

    async fn run(&self, call: &Invocation, kill: Kill) -> KindOutcome {
        let prepared = RunConfig::read(&call.tool.def)
            .and_then(|run| Ok((self.spec(call, &run)?, self.environment().secrets(&run)?)));
        let (spec, secrets) = match prepared {
            Ok(prepared) => prepared,
            Err(fault) => return refused(fault),
        };
        let (told, hears) = oneshot::channel();
        let run = self.confine.run_observed(spec, kill, Some(told));
        // The sender is dropped unused where the program never starts.
        let watch = async {
            if hears.await.is_ok() {
                call.mark_started();
            }
        };
        let (ended, ()) = tokio::join!(run, watch);
        if let Err(SpawnError::KeeperLost { leftover, .. }) = &ended {
            gone(leftover).await;
        }
        Verdict::new(call, secrets).of(ended)
    }
}

/// Names of the variables whose values a tool's entry takes from the node's environment
/// (`run.env_from`): they are secrets. Empty for tools of other kinds and for an entry
/// that can't be read.
pub fn secret_variables(def: &ToolDef) -> Vec<String> {
    if def.kind != PROCESS_KIND {
        return Vec::new();
    }
    RunConfig::read(def).map_or_else(|_| Vec::new(), |run| run.env_from)
}

/// Waits for processes that outlast SIGKILL, such as one in an uninterruptible system
/// call: a run that is said to be over has nothing alive, however long that takes. Who
/// waits for a seal runs into its own timeout and knows that it is not confirmed.
async fn gone(pids: &[u32]) {
    for pid in pids {
        let process = PathBuf::from(format!("/proc/{pid}"));
        while process.exists() {
            tokio::time::sleep(LEFTOVER_POLL).await;
        }
    }
}

fn make_dir(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn no_work_dir(call: &Invocation, error: &std::io::Error) -> Fault {
    let message = format!("the goal's directory can't be made: {error}");
    Fault::new(Code::ToolUnavailable, message).at(call.work_dir.display().to_string())
}

fn refused(fault: Fault) -> KindOutcome {
    KindOutcome::Failed {
        fault,
        started: false,
        facts: RunFacts::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[tokio::test]
    async fn a_run_is_not_over_while_a_leftover_is_alive() {
        let mut leftover = Command::new("sleep").arg("1000").spawn().unwrap();
        let pids = [leftover.id()];
        let mut over = std::pin::pin!(gone(&pids));
        tokio::select! {
            biased;
            () = &mut over => panic!("it is alive"),
            () = tokio::task::yield_now() => {}
        }
        leftover.kill().unwrap();
        leftover.wait().unwrap();
        over.await;
    }
}
