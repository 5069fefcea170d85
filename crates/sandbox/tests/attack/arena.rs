//! Where attacks are carried out, and how their outcomes are judged.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use detent_sandbox::{
    Confine, EgressLog, Exit, Feature, KeeperCommand, KillSwitch, Limits, Policy, ProcessSpec,
    RunTag, SandboxConfine, SandboxOptions, SpawnError, Work,
};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const KEEPER: &str = env!("CARGO_BIN_EXE_detent-keeper");
const ATTACKER: &str = include_str!("attacker.py");
/// An interpreter that every policy's file tree has.
const PYTHON: &str = "/usr/bin/python3";
/// Where `cargo xtask attack` collects the verdicts.
const ENV_VERDICTS: &str = "DETENT_ATTACK_VERDICTS";
const NOBODY: u32 = 65534;

/// Whose helper builds the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    Nobody,
}

/// The users that this test program can be.
pub(crate) fn everybody() -> Vec<Who> {
    if rustix::process::geteuid().is_root() {
        vec![Who::Root, Who::Nobody]
    } else {
        vec![Who::Nobody]
    }
}

/// One user's sandbox and a work directory that it may use.
pub(crate) struct Arena {
    pub(crate) who: Who,
    pub(crate) confine: SandboxConfine,
    work: TempDir,
}

impl Arena {
    pub(crate) async fn new(who: Who, policy: Policy) -> Self {
        Self::with_log(who, policy, None).await
    }

    pub(crate) async fn with_log(
        who: Who,
        mut policy: Policy,
        log: Option<Arc<dyn EgressLog>>,
    ) -> Self {
        if who == Who::Nobody {
            // Nobody is given no control groups here; the rest has to hold all the same.
            let groups = [
                Feature::CgroupMemory,
                Feature::CgroupPids,
                Feature::CgroupCpu,
            ];
            policy.allow_degraded.extend(groups);
        }
        let options = SandboxOptions {
            helper: helper(who),
            helpers: 1,
            policy,
            give_work: true,
            egress_log: log,
        };
        let work = tempfile::tempdir().unwrap();
        if who == Who::Nobody && rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(work.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Self {
            who,
            confine: SandboxConfine::start(options).await.unwrap(),
            work,
        }
    }

    /// The caller's work directory, on disk.
    pub(crate) fn work(&self) -> &Path {
        self.work.path()
    }

    /// An attack with its arguments.
    pub(crate) fn attack(&self, case: &str, args: &[&str]) -> ProcessSpec {
        let mut all = vec!["-I", "-S", "-B", "-c", ATTACKER, case];
        all.extend(args);
        self.spec(PYTHON, &all)
    }

    pub(crate) fn spec(&self, program: &str, args: &[&str]) -> ProcessSpec {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        ProcessSpec {
            program: program.into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            cwd: self.work.path().to_owned(),
            stdin: vec![],
            limits: Limits {
                wall_ms: 120_000,
                ..Limits::default()
            },
            tag: RunTag {
                owner: format!("attack-{}-{count}", std::process::id()),
                run: "run-1".into(),
            },
            start_deadline: None,
        }
    }

    pub(crate) async fn try_run(&self, spec: ProcessSpec) -> Result<Exit, SpawnError> {
        self.confine.run(spec, KillSwitch::new()).await
    }

    /// Runs to the end and checks that nothing of it is alive.
    pub(crate) async fn run(&self, spec: ProcessSpec) -> Exit {
        let owner = spec.tag.owner.clone();
        let exit = self.try_run(spec).await.unwrap();
        assert_eq!(
            marked(&owner),
            Vec::<i32>::new(),
            "survivors after {exit:?}"
        );
        exit
    }

    /// What an attack that ends by itself reports.
    pub(crate) async fn ask(&self, case: &str, args: &[&str]) -> Value {
        let exit = self.run(self.attack(case, args)).await;
        let (stdout, stderr) = (text(&exit.stdout), text(&exit.stderr_tail));
        serde_json::from_str(&stdout)
            .unwrap_or_else(|e| panic!("{:?} {case}: {e}: {exit:?} {stdout} {stderr}", self.who))
    }

    /// Every outcome of the attack has to be one of these errors.
    pub(crate) async fn all_fail_with(&self, case: &str, args: &[&str], errors: &[&str]) {
        let outcomes = self.ask(case, args).await;
        let outcomes = outcomes.as_object().unwrap();
        assert!(!outcomes.is_empty());
        for (what, outcome) in outcomes {
            let fails = errors.contains(&outcome.as_str().unwrap());
            assert!(fails, "{:?} {case} {what}: {outcome}", self.who);
        }
    }
}

fn helper(who: Who) -> KeeperCommand {
    if who == Who::Nobody && rustix::process::geteuid().is_root() {
        let id = NOBODY.to_string();
        let args = [
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            "--",
            KEEPER,
        ];
        return KeeperCommand {
            program: PathBuf::from("/usr/bin/setpriv"),
            args: args.map(str::to_owned).to_vec(),
        };
    }
    KeeperCommand {
        program: KEEPER.into(),
        args: vec![],
    }
}

/// The default policy.
pub(crate) fn default() -> Policy {
    Policy::builtin("default").unwrap()
}

/// The default policy with a work directory in memory.
pub(crate) fn scratch() -> Policy {
    let mut policy = default();
    policy.files.work = Work::Scratch;
    policy
}

/// The case for everybody, under one policy.
pub(crate) async fn everyone(number: u32, policy: Policy, attack: impl AsyncFn(&Arena)) {
    for who in everybody() {
        attack(&Arena::new(who, policy.clone()).await).await;
    }
    contained(number);
}

/// The case for root alone: it needs limits that nobody cannot set here.
pub(crate) async fn root_only(number: u32, policy: Policy, attack: impl AsyncFn(&Arena)) {
    if !everybody().contains(&Who::Root) {
        skip(number, "needs control groups, which only root has here");
        return;
    }
    attack(&Arena::new(Who::Root, policy).await).await;
    contained(number);
}

/// Notes that a case came out as expected.
pub(crate) fn contained(number: u32) {
    note(&format!("{number} contained"));
}

/// Notes that this machine cannot run a case.
pub(crate) fn skip(number: u32, reason: &str) {
    println!("SKIP case {number}: {reason}");
    note(&format!("{number} skipped {reason}"));
}

fn note(line: &str) {
    if let Some(file) = std::env::var_os(ENV_VERDICTS) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
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

/// Waits until the condition holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed().as_secs() < 60, "never came true: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
