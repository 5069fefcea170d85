//! What the tests share: specifications, and looking for survivors in `/proc`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use detent_sandbox::{
    Confine, Exit, KeeperCommand, KillSwitch, Limits, ProcessSpec, RunTag, SpawnError, TreeConfine,
};

/// Far more than anything here takes, also on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const KEEPER: &str = env!("CARGO_BIN_EXE_detent-keeper");

pub(crate) fn confine() -> TreeConfine {
    TreeConfine::new(KeeperCommand {
        program: KEEPER.into(),
        args: vec![],
    })
}

/// An owner that no other test has.
pub(crate) fn fresh_owner() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{count}", std::process::id())
}

pub(crate) fn spec(program: &str, args: &[&str]) -> ProcessSpec {
    ProcessSpec {
        program: program.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]),
        cwd: "/".into(),
        stdin: vec![],
        limits: Limits {
            wall_ms: 120_000,
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
    spec("/bin/sh", &["-c", script])
}

pub(crate) fn python(script: &str) -> ProcessSpec {
    spec("python3", &["-I", "-S", "-c", script])
}

pub(crate) async fn run(spec: ProcessSpec) -> Result<Exit, SpawnError> {
    confine().run(spec, KillSwitch::new()).await
}

/// Runs to the end and checks that nothing with the run's marker is left.
pub(crate) async fn run_clean(spec: ProcessSpec) -> Exit {
    let owner = spec.tag.owner.clone();
    let exit = run(spec).await.unwrap();
    assert_eq!(marked(&owner), [], "survivors after {exit:?}");
    exit
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Living processes whose environment has the marker of this owner.
pub(crate) fn marked(owner: &str) -> Vec<i32> {
    with_environment(&[&format!("DETENT_RUN_OWNER={owner}")])
}

/// The keeper of the one run that this owner has.
pub(crate) fn keeper_of(owner: &str) -> i32 {
    let owner = format!("DETENT_RUN_OWNER={owner}");
    let keepers = with_environment(&[&owner, "DETENT_RUN_KEEPER=1"]);
    assert_eq!(keepers.len(), 1, "keepers: {keepers:?}");
    keepers[0]
}

fn with_environment(entries: &[&str]) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let has = |wanted: &&str| environ.split(|b| *b == 0).any(|e| e == wanted.as_bytes());
        if entries.iter().all(has) {
            found.push(pid);
        }
    }
    found
}

/// Whether the process runs: neither gone nor a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The process ids that a program wrote to `file`, one a line, once there are
/// `count` of them.
pub(crate) async fn pids_in(file: &Path, count: usize) -> Vec<i32> {
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    let complete = || read().matches('\n').count() >= count;
    eventually("process ids in a file", complete).await;
    read().lines().map(|line| line.parse().unwrap()).collect()
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
