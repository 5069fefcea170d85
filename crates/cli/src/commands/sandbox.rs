//! `detent sandbox run|check|policy`: the sandbox without a node.

use crate::args::{SandboxCommand, SandboxRun};
use crate::{KEEPER, exit, output};
use detent_protocol::{Code, Fault};
use detent_sandbox::{
    Confine, End, Exit, Feature, Finding, KeeperCommand, KillSwitch, Limits, Policy, ProcessSpec,
    RunTag, SandboxConfine, SandboxOptions, SpawnError,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// Statuses of `sandbox run` that are not the program's own, as other such commands have.
const TIME_LIMIT: u8 = 124;
const OUTPUT_LIMIT: u8 = 125;
const NOT_RUN: u8 = 126;
const SIGNAL_BASE: i32 = 128;
/// How much of standard input is handed on.
const STDIN_BYTES_MAX: u64 = detent_sandbox::STDIN_BYTES_MAX as u64;

pub(crate) async fn run(command: SandboxCommand) -> Result<u8, Fault> {
    match command {
        SandboxCommand::Run(run) => Ok(run_one(run).await.unwrap_or_else(|error| not_run(&error))),
        SandboxCommand::Check => check().await,
        SandboxCommand::Policy { name } => policy(&name),
    }
}

fn not_run(error: &SpawnError) -> u8 {
    output::note(format!("detent: {error}"));
    NOT_RUN
}

async fn start(policy: Policy, give_work: bool) -> Result<SandboxConfine, SpawnError> {
    let options = SandboxOptions {
        helper: KeeperCommand::this_program(&[KEEPER]),
        helpers: 1,
        policy,
        give_work,
        egress_log: None,
    };
    SandboxConfine::start(options).await
}

async fn run_one(run: SandboxRun) -> Result<u8, SpawnError> {
    let mut policy = load(&run.policy)?;
    policy.network.allow.extend(run.allow.iter().cloned());
    for name in &run.allow_degraded {
        let feature = Feature::ALL
            .into_iter()
            .find(|feature| feature.name() == name);
        policy
            .allow_degraded
            .push(feature.ok_or_else(|| SpawnError::Policy {
                policy: run.policy.clone(),
                reason: format!("no protection is called {name:?}"),
            })?);
    }
    let give_work = run.give_work;
    let spec = specification(run)?;
    let confine = start(policy, give_work).await?;
    let ended = confine.run(spec, KillSwitch::new()).await?;
    report(&ended);
    Ok(status(ended.end()))
}

fn load(policy: &str) -> Result<Policy, SpawnError> {
    match std::fs::read_to_string(policy) {
        Ok(text) => Policy::from_toml(policy, &text),
        Err(_) => Policy::builtin(policy),
    }
}

fn specification(run: SandboxRun) -> Result<ProcessSpec, SpawnError> {
    let cwd = run.work.canonicalize().map_err(|error| SpawnError::Cwd {
        cwd: run.work.clone(),
        errno: error.raw_os_error().unwrap_or(0),
    })?;
    let mut command = run.command.into_iter();
    Ok(ProcessSpec {
        program: command.next().unwrap_or_default(),
        args: command.collect(),
        env: BTreeMap::new(),
        cwd,
        stdin: piped_input(),
        limits: Limits {
            wall_ms: run.timeout_ms,
            ..Limits::default()
        },
        tag: RunTag {
            owner: format!("sandbox-run-{}", std::process::id()),
            run: "1".into(),
        },
        start_deadline: None,
    })
}

/// What is piped in; a terminal is not read.
fn piped_input() -> Vec<u8> {
    let mut input = Vec::new();
    let stdin = std::io::stdin();
    if !std::io::IsTerminal::is_terminal(&stdin) {
        // One byte more shows that it is too much, which is then refused as such.
        let _ = stdin
            .lock()
            .take(STDIN_BYTES_MAX + 1)
            .read_to_end(&mut input);
    }
    input
}

fn report(ended: &Exit) {
    // A reader that left early loses the output, not the exit status.
    let _ = std::io::stdout().write_all(&ended.stdout);
    let _ = std::io::stderr().write_all(&ended.stderr_tail);
    if !ended.level.missing.is_empty() {
        let missing = ended.level.missing.join(", ");
        output::note(format!("detent: not confined by: {missing}"));
    }
    let why = match ended.end() {
        End::Exit(_) | End::Signal(_) => return,
        End::Oom => "it used more memory than it may",
        End::Pids => "it wanted more processes than it may have",
        End::Timeout => "its time was over",
        End::OutputLimit => "it wrote more than it may",
        End::Seccomp => "it made a system call that ends the process",
        End::Cancelled => "it was cancelled",
    };
    output::note(format!("detent: {why}"));
}

fn status(end: End) -> u8 {
    let code = match end {
        End::Exit(code) => code,
        End::Signal(signal) => SIGNAL_BASE + signal,
        End::Oom | End::Pids | End::Cancelled => SIGNAL_BASE + 9,
        End::Seccomp => SIGNAL_BASE + 31,
        End::Timeout => TIME_LIMIT.into(),
        End::OutputLimit => OUTPUT_LIMIT.into(),
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

async fn check() -> Result<u8, Fault> {
    let mut policy = load("default").map_err(|e| refused(&e))?;
    policy.allow_degraded = Feature::ALL.to_vec();
    let confine = start(policy, false).await.map_err(|e| refused(&e))?;
    let table = confine.features();
    if output::is_json() {
        for (feature, finding) in table.rows() {
            let missing = match finding {
                Finding::Present(_) => None,
                Finding::Missing { tried, errno } => Some((tried, errno, feature.remedy())),
            };
            output::json(&(feature.name(), missing));
        }
    } else {
        output::line(table.to_string().trim_end());
    }
    let missing = table.missing().len();
    output::note(format!(
        "detent: {} protections, {missing} missing",
        Feature::ALL.len()
    ));
    Ok(if missing == 0 {
        exit::OK
    } else {
        exit::REFUSED
    })
}

fn policy(name: &str) -> Result<u8, Fault> {
    let policy = Policy::builtin(name).map_err(|e| refused(&e))?;
    let text = policy.to_toml().map_err(|e| refused(&e))?;
    output::line(text.trim_end());
    Ok(exit::OK)
}

fn refused(error: &SpawnError) -> Fault {
    Fault::new(Code::ToolUnavailable, error.to_string())
}
