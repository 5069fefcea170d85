//! The keeper as a program of its own.
//!
//! Without arguments it is the keeper that [`detent_sandbox::TreeConfine`]
//! starts. `detent-keeper run OWNER WALL_MS PROGRAM [ARG...]` confines a program
//! from a shell: its output is written when it has ended, and the whole tree
//! dies with it, or with this command, or at the limit. Exit statuses: the
//! program's own; 128 + the signal that ended it; 124 at the time limit; 125 at
//! the output limit; 126 when it could not be run; 2 for wrong usage.
//!
//! `detent-keeper sandbox OWNER WALL_MS POLICY PROGRAM [ARG...]` does the same in a
//! sandbox; POLICY is the name of a built-in one or a file. `detent-keeper features` shows
//! what this machine offers, and exits with 1 when something is missing.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use detent_sandbox::{
    Cause, Confine, Exit, Feature, KeeperCommand, KillSwitch, Limits, Policy, ProcessSpec, RunTag,
    SandboxConfine, SandboxOptions, SpawnError, TreeConfine, keeper_main,
};

const USAGE: u8 = 2;
const TIME_LIMIT: u8 = 124;
const OUTPUT_LIMIT: u8 = 125;
const NOT_RUN: u8 = 126;
const SIGNAL_BASE: i32 = 128;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    if args.is_empty() {
        return status(keeper_main());
    }
    if args == ["features"] {
        return features().unwrap_or_else(|error| not_run(&error));
    }
    let (policy, spec) = match args.split_first() {
        Some((command, rest)) if command == "run" => (None, spec_from(rest)),
        Some((command, [owner, wall_ms, policy, rest @ ..])) if command == "sandbox" => {
            let all = [&[owner.clone(), wall_ms.clone()], rest].concat();
            (Some(policy), spec_from(&all))
        }
        _ => (None, None),
    };
    let Some(spec) = spec else {
        eprintln!(
            "usage: detent-keeper run OWNER WALL_MS PROGRAM [ARG...]\n\
             \x20      detent-keeper sandbox OWNER WALL_MS POLICY PROGRAM [ARG...]\n\
             \x20      detent-keeper features"
        );
        return ExitCode::from(USAGE);
    };
    let ended = match policy {
        None => run(spec),
        Some(policy) => run_sandboxed(policy, spec),
    };
    match ended {
        Ok(exit) => report(&exit),
        Err(error) => not_run(&error),
    }
}

fn not_run(error: &SpawnError) -> ExitCode {
    eprintln!("detent-keeper: {error}");
    ExitCode::from(NOT_RUN)
}

fn features() -> Result<ExitCode, SpawnError> {
    let mut policy = Policy::builtin("default")?;
    policy.allow_degraded = Feature::ALL.to_vec();
    let confine = runtime()?.block_on(SandboxConfine::start(options(policy)))?;
    print!("{}", confine.features());
    Ok(ExitCode::from(u8::from(
        !confine.features().missing().is_empty(),
    )))
}

/// Runs in a sandbox with a built-in policy, or one from a file.
fn run_sandboxed(policy: &str, spec: ProcessSpec) -> Result<Exit, SpawnError> {
    let policy = match std::fs::read_to_string(policy) {
        Ok(text) => Policy::from_toml(policy, &text)?,
        Err(_) => Policy::builtin(policy)?,
    };
    runtime()?.block_on(async {
        let confine = SandboxConfine::start(options(policy)).await?;
        confine.run(spec, KillSwitch::new()).await
    })
}

fn options(policy: Policy) -> SandboxOptions {
    SandboxOptions {
        helper: KeeperCommand::this_program(&[]),
        helpers: 1,
        policy,
        give_work: false,
        egress_log: None,
    }
}

fn spec_from(args: &[String]) -> Option<ProcessSpec> {
    let [owner, wall_ms, program, rest @ ..] = args else {
        return None;
    };
    Some(ProcessSpec {
        program: program.clone(),
        args: rest.to_vec(),
        env: environment(),
        cwd: std::env::current_dir().ok()?,
        stdin: Vec::new(),
        limits: Limits {
            wall_ms: wall_ms.parse().ok()?,
            ..Limits::default()
        },
        tag: RunTag {
            owner: owner.clone(),
            run: std::process::id().to_string(),
        },
        start_deadline: None,
    })
}

/// What of this program's environment can be passed on as text.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn run(spec: ProcessSpec) -> Result<Exit, SpawnError> {
    let confine = TreeConfine::new(KeeperCommand::this_program(&[]));
    runtime()?.block_on(confine.run(spec, KillSwitch::new()))
}

fn runtime() -> Result<tokio::runtime::Runtime, SpawnError> {
    let builder = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    builder.map_err(|error| SpawnError::KeeperUnavailable {
        errno: error.raw_os_error().unwrap_or(0),
    })
}

fn report(exit: &Exit) -> ExitCode {
    // A reader that left early loses the output, not the exit status.
    let _ = std::io::stdout().write_all(&exit.stdout);
    let _ = std::io::stderr().write_all(&exit.stderr_tail);
    match exit.cause {
        Cause::Exited(code) => status(code),
        Cause::Signaled(signal) => status(SIGNAL_BASE + signal),
        Cause::Deadline => ExitCode::from(TIME_LIMIT),
        Cause::OutputLimit => ExitCode::from(OUTPUT_LIMIT),
        Cause::Killed => status(SIGNAL_BASE + 9),
    }
}

fn status(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
