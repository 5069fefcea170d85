//! What a sandbox costs: `/bin/true` in one, beside bubblewrap with equal isolation in the
//! same run, with a small and a large heap in the caller, and with four callers.
//! `cargo xtask bench sandbox [--calls N]`. Ratios are what counts; machines differ.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use detent_sandbox::{
    Cause, Confine, KeeperCommand, KillSwitch, Limits, Policy, ProcessSpec, RunTag, SandboxConfine,
    SandboxOptions, TreeConfine, Work, keeper_main,
};

const KEEPER: &str = "__keeper";
const BALLAST_BYTES: usize = 1 << 30;
const WARM_UP: usize = 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == KEEPER) {
        return ExitCode::from(u8::try_from(keeper_main()).unwrap_or(1));
    }
    let asked = args
        .iter()
        .position(|arg| arg == "--calls")
        .and_then(|at| args.get(at + 1));
    let calls = asked.and_then(|n| n.parse().ok()).unwrap_or(200);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(bench(calls));
    ExitCode::SUCCESS
}

async fn bench(calls: usize) {
    let mut policy = Policy::builtin("default").expect("the default policy");
    policy.files.work = Work::Scratch;
    let options = SandboxOptions {
        helper: KeeperCommand::this_program(&[KEEPER]),
        helpers: 2,
        policy,
        give_work: false,
        egress_log: None,
    };
    let confine = SandboxConfine::start(options).await.expect("a sandbox");
    let tree = TreeConfine::new(KeeperCommand::this_program(&[KEEPER]));
    let bwrap = find("bwrap");
    let before = leftovers();

    let small = compare(&confine, &tree, bwrap.as_deref(), calls).await;
    println!("median of {calls} calls of /bin/true, taken in turn:");
    println!("  plain spawn            {:>7.2} ms", ms(small.plain));
    println!("  tree level             {:>7.2} ms", ms(small.tree));
    println!("  sandbox level          {:>7.2} ms", ms(small.sandbox));
    match small.bwrap {
        Some(bwrap) => {
            println!("  bubblewrap             {:>7.2} ms", ms(bwrap));
            let ratio = small.sandbox.as_secs_f64() / bwrap.as_secs_f64();
            println!("sandbox / bubblewrap: {ratio:.2} (gate 0.70, aim 0.50)");
        }
        None => println!("SKIP bubblewrap: there is no bwrap on the path"),
    }

    let ballast = vec![1_u8; BALLAST_BYTES];
    let large = compare(&confine, &tree, None, calls).await;
    let ratio = large.sandbox.as_secs_f64() / small.sandbox.as_secs_f64();
    println!(
        "with {} MiB of heap in the caller: {:.2} ms, {ratio:.2} of before (gate 1.20)",
        ballast.len() >> 20,
        ms(large.sandbox)
    );
    drop(ballast);

    let one = rate(&confine, 1, calls).await;
    let four = rate(&confine, 4, calls).await;
    println!(
        "one caller {one:.0}/s, four callers {four:.0}/s: {:.2} (gate 1.80 on 2 cores)",
        four / one
    );
    let after = leftovers();
    println!("descriptors, children before: {before:?}, after: {after:?}");
}

struct Medians {
    plain: Duration,
    tree: Duration,
    sandbox: Duration,
    bwrap: Option<Duration>,
}

async fn compare(
    confine: &SandboxConfine,
    tree: &TreeConfine,
    bwrap: Option<&Path>,
    calls: usize,
) -> Medians {
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..calls + WARM_UP {
        times[0].push(timed(command(tokio::process::Command::new("/bin/true"))).await);
        times[1].push(timed(call(tree)).await);
        times[2].push(timed(call(confine)).await);
        if let Some(bwrap) = bwrap {
            times[3].push(timed(command(wrapped(bwrap))).await);
        }
    }
    let median = |times: &mut Vec<Duration>| {
        let mut kept = times.split_off(WARM_UP.min(times.len()));
        kept.sort();
        kept.get(kept.len() / 2).copied()
    };
    let [mut plain, mut level, mut sandbox, mut other] = times;
    Medians {
        plain: median(&mut plain).unwrap_or_default(),
        tree: median(&mut level).unwrap_or_default(),
        sandbox: median(&mut sandbox).unwrap_or_default(),
        bwrap: median(&mut other),
    }
}

async fn timed(work: impl Future<Output = ()>) -> Duration {
    let begin = Instant::now();
    work.await;
    begin.elapsed()
}

async fn call(confine: &impl Confine) {
    let exit = confine.run(spec(), KillSwitch::new()).await.expect("a run");
    assert_eq!(exit.cause, Cause::Exited(0));
}

async fn command(mut command: tokio::process::Command) {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = command
        .spawn()
        .expect("spawn")
        .wait_with_output()
        .await
        .expect("wait");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
}

/// The same tree, users and namespaces as the default policy; bubblewrap has no groups,
/// no landlock, and its seccomp filter is the caller's affair.
fn wrapped(bwrap: &Path) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(bwrap);
    command.args([
        "--unshare-all",
        "--new-session",
        "--die-with-parent",
        "--clearenv",
    ]);
    command.args(["--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]);
    command.args(["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]);
    for link in ["bin", "sbin", "lib", "lib64"] {
        command.args(["--symlink", &format!("usr/{link}"), &format!("/{link}")]);
    }
    for path in [
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/alternatives",
        "/etc/ssl/certs",
    ] {
        command.args(["--ro-bind-try", path, path]);
    }
    for device in ["null", "zero", "full", "random", "urandom"] {
        let path = format!("/dev/{device}");
        command.args(["--dev-bind", &path, &path]);
    }
    command.args(["--size", "67108864", "--tmpfs", "/tmp"]);
    command.args(["--size", "16777216", "--tmpfs", "/dev/shm"]);
    command.args(["--size", "67108864", "--tmpfs", "/job", "--chdir", "/job"]);
    command.args(["--proc", "/proc", "--remount-ro", "/", "--", "/bin/true"]);
    command
}

/// Calls per second of so many callers.
async fn rate(confine: &SandboxConfine, callers: usize, calls: usize) -> f64 {
    let begin = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let confine = Arc::new(confine.clone());
    for _ in 0..callers {
        let confine = Arc::clone(&confine);
        tasks.spawn(async move {
            for _ in 0..calls {
                call(confine.as_ref()).await;
            }
        });
    }
    tasks.join_all().await;
    (callers * calls) as f64 / begin.elapsed().as_secs_f64()
}

fn spec() -> ProcessSpec {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    ProcessSpec {
        program: "/bin/true".into(),
        args: vec![],
        env: BTreeMap::new(),
        cwd: "/".into(),
        stdin: vec![],
        limits: Limits::default(),
        tag: RunTag {
            owner: format!("bench-{}", std::process::id()),
            run: COUNT.fetch_add(1, Ordering::Relaxed).to_string(),
        },
        start_deadline: None,
    }
}

/// Open descriptors and children of this process.
fn leftovers() -> (usize, usize) {
    let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
    let mut children = 0;
    for task in std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children += list.split_whitespace().count();
    }
    (count("/proc/self/fd"), children)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
