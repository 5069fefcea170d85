//! What the tests share.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use detent_sandbox::{
    Confine, Exit, KeeperCommand, KillSwitch, Limits, Policy, ProcessSpec, RunTag, SandboxConfine,
    SandboxOptions, SpawnError, Work,
};

pub(crate) const KEEPER: &str = env!("CARGO_BIN_EXE_detent-keeper");

pub(crate) fn policy() -> Policy {
    Policy::builtin("default").unwrap()
}

/// The default policy with a work directory of its own in memory.
pub(crate) fn scratch() -> Policy {
    let mut policy = policy();
    policy.files.work = Work::Scratch;
    policy
}

pub(crate) async fn confine(policy: Policy) -> SandboxConfine {
    try_confine(policy).await.unwrap()
}

pub(crate) async fn try_confine(policy: Policy) -> Result<SandboxConfine, SpawnError> {
    let options = SandboxOptions {
        helper: KeeperCommand {
            program: KEEPER.into(),
            args: vec![],
        },
        helpers: 1,
        policy,
        egress_log: None,
    };
    SandboxConfine::start(options).await
}

/// An owner that no other test has.
pub(crate) fn fresh_owner() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("sandbox-test-{}-{count}", std::process::id())
}

pub(crate) fn spec(cwd: &Path, program: &str, args: &[&str]) -> ProcessSpec {
    ProcessSpec {
        program: program.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: cwd.to_owned(),
        stdin: vec![],
        limits: Limits {
            wall_ms: 60_000,
            ..Limits::default()
        },
        tag: RunTag {
            owner: fresh_owner(),
            run: "run-1".into(),
        },
        start_deadline: None,
    }
}

pub(crate) fn sh(script: &str) -> ProcessSpec {
    spec(Path::new("/"), "/bin/sh", &["-c", script])
}

pub(crate) async fn run(policy: Policy, spec: ProcessSpec) -> Exit {
    confine(policy)
        .await
        .run(spec, KillSwitch::new())
        .await
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
