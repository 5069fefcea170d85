//! What the tests share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
        give_work: true,
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

/// Living processes, in whatever namespace, whose environment has this owner's marker.
pub(crate) fn marked(owner: &str) -> Vec<i32> {
    let wanted = format!("DETENT_RUN_OWNER={owner}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
        {
            found.push(pid);
        }
    }
    found
}

/// The control groups that a helper made below where this process sits.
pub(crate) fn groups_of(helper: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (names, path) = (fields.next().unwrap(), fields.next().unwrap());
        let base = format!("/sys/fs/cgroup/{names}{path}");
        for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("detent-{helper}-")) {
                found.push(entry.path());
            }
        }
    }
    found
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed().as_secs() < 60, "never came true: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
