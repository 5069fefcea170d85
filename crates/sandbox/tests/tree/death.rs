//! When a run is over, by whatever cause, its whole tree is dead.

use std::process::{Command, Stdio};
use std::time::Duration;

use detent_sandbox::{Cause, Confine, KillSwitch, ProcessSpec};
use rustix::process::Signal;

use crate::support::{
    KEEPER, confine, eventually, fresh_owner, is_alive, keeper_of, marked, pids_in, python, run,
    run_clean, sh, signal, text,
};

#[tokio::test]
async fn a_grandchild_that_holds_the_output_does_not_hold_up_the_run() {
    let mut holder = sh("echo before; sleep 100000 & echo $!");
    holder.limits.wall_ms = 3_600_000;
    let exit = run_clean(holder).await;
    assert_eq!(exit.cause, Cause::Exited(0));
    let out = text(&exit.stdout);
    let pid = out.strip_prefix("before\n").unwrap().trim();
    assert!(!is_alive(pid.parse().unwrap()));
}

/// Detaches twice, wipes its environment, and says its process id.
const DAEMON: &str = "\
import os
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.set_inheritable(w, False)
        os.write(w, str(os.getpid()).encode())
        os.execve('/bin/sleep', ['sleep', '100000'], {})
    os._exit(0)
os.close(w)
print(os.read(r, 100).decode(), flush=True)
assert os.read(r, 1) == b''  # it has executed
";

#[tokio::test]
async fn a_daemon_with_its_own_session_and_no_marker_is_dead_at_the_return() {
    let exit = run(python(DAEMON)).await.unwrap();
    assert_eq!(exit.cause, Cause::Exited(0), "{}", text(&exit.stderr_tail));
    let daemon: i32 = text(&exit.stdout).trim().parse().unwrap();
    // Reaped, even: not there as a zombie.
    assert!(!std::path::Path::new(&format!("/proc/{daemon}")).exists());
}

#[tokio::test]
async fn processes_that_hop_from_fork_to_fork_are_caught() {
    // Each one leaves its session and its parent behind.
    let hop = "import os\nwhile True:\n  if os.fork(): os._exit(0)\n  os.setsid()";
    let exit = run_clean(python(hop)).await;
    assert_eq!(exit.cause, Cause::Exited(0));
}

#[tokio::test]
async fn a_loop_that_keeps_forking_is_killed_at_the_deadline() {
    let mut forks = python(
        "import os,time\nwhile True:\n  if os.fork() == 0:\n    os.setsid(); time.sleep(100000)\n  time.sleep(0.002)",
    );
    forks.limits.wall_ms = 1_000;
    assert_eq!(run_clean(forks).await.cause, Cause::Deadline);
}

#[tokio::test]
async fn a_group_that_ignores_signals_dies_with_its_parent() {
    let deaf =
        "trap '' TERM HUP INT; for i in 1 2 3 4 5; do sh -c 'sleep 100000; :' & done; exit 4";
    assert_eq!(run_clean(sh(deaf)).await.cause, Cause::Exited(4));
}

/// A run that has said, in `file`, who its two processes are.
fn pair(file: &std::path::Path) -> ProcessSpec {
    let file = file.display();
    sh(&format!(
        "setsid sleep 100000 & echo $! >> {file}; echo $$ >> {file}; wait"
    ))
}

#[tokio::test]
async fn the_kill_switch_ends_the_run_when_the_tree_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let kill = KillSwitch::new();
    let killed = kill.clone();
    let spec = pair(&file);
    let owner = spec.tag.owner.clone();
    let run = tokio::spawn(async move { confine().run(spec, killed).await });
    let pids = pids_in(&file, 2).await;
    kill.kill();
    let exit = run.await.unwrap().unwrap();
    assert_eq!(exit.cause, Cause::Killed);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(marked(&owner), []);
}

#[tokio::test]
async fn a_kill_at_any_moment_gives_the_same_answer() {
    for step in 0..24_u64 {
        let kill = KillSwitch::new();
        let killed = kill.clone();
        let mut spec = sh("sleep 100000");
        spec.stdin = vec![b'x'; 2 << 20];
        let owner = spec.tag.owner.clone();
        let run = tokio::spawn(async move { confine().run(spec, killed).await });
        // Spreads the kills over the start of the run.
        tokio::time::sleep(Duration::from_micros(step * step * 40)).await;
        kill.kill();
        let exit = run.await.unwrap().unwrap();
        assert_eq!(exit.cause, Cause::Killed, "step {step}");
        assert_eq!(marked(&owner), [], "step {step}");
    }
}

#[tokio::test]
async fn dropping_the_future_kills_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let spec = pair(&file);
    let owner = spec.tag.owner.clone();
    let run = tokio::spawn(async move { confine().run(spec, KillSwitch::new()).await });
    let pids = pids_in(&file, 2).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    eventually("the tree and its keeper are gone", || {
        marked(&owner).is_empty() && !pids.iter().any(|pid| is_alive(*pid))
    })
    .await;
}

#[tokio::test]
async fn the_tree_dies_with_a_caller_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let owner = fresh_owner();
    let mut caller = Command::new(KEEPER)
        .args(["run", &owner, "3600000"])
        .arg("/bin/sh")
        .args(pair(&file).args)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pids = pids_in(&file, 2).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    caller.kill().unwrap();
    caller.wait().unwrap();
    eventually("the tree and its keeper are gone", || {
        marked(&owner).is_empty() && !pids.iter().any(|pid| is_alive(*pid))
    })
    .await;
}

#[tokio::test]
async fn a_stopped_caller_has_its_deadline_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let owner = fresh_owner();
    let mut caller = Command::new(KEEPER)
        .args(["run", &owner, "3000"])
        .arg("/bin/sh")
        .args(pair(&file).args)
        .spawn()
        .unwrap();
    let pids = pids_in(&file, 2).await;
    let caller_pid = i32::try_from(caller.id()).unwrap();
    signal(caller_pid, Signal::STOP);
    eventually("the tree is dead while its caller is stopped", || {
        !pids.iter().any(|pid| is_alive(*pid))
    })
    .await;
    signal(caller_pid, Signal::CONT);
    assert_eq!(caller.wait().unwrap().code(), Some(124));
}

#[tokio::test]
async fn a_keeper_outlives_the_signals_of_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let (file, go) = (dir.path().join("pids"), dir.path().join("go"));
    let spec = sh(&format!(
        "echo $$ >> {}; until [ -e {} ]; do sleep 0.02; done; exit 5",
        file.display(),
        go.display()
    ));
    let owner = spec.tag.owner.clone();
    let run = tokio::spawn(run(spec));
    pids_in(&file, 1).await;
    for terminal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        signal(keeper_of(&owner), terminal);
    }
    std::fs::write(&go, "").unwrap();
    assert_eq!(run.await.unwrap().unwrap().cause, Cause::Exited(5));
}

#[tokio::test]
async fn orphans_are_reaped_while_the_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (file, go) = (dir.path().join("pids"), dir.path().join("go"));
    let spec = sh(&format!(
        "for i in $(seq 30); do (true & echo $! >> {}); done; until [ -e {} ]; do sleep 0.02; done",
        file.display(),
        go.display()
    ));
    let run = tokio::spawn(run(spec));
    let orphans = pids_in(&file, 30).await;
    eventually("no orphan is left as a zombie", || {
        let there = |pid: &i32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        !orphans.iter().any(there)
    })
    .await;
    assert!(!run.is_finished());
    std::fs::write(&go, "").unwrap();
    assert_eq!(run.await.unwrap().unwrap().cause, Cause::Exited(0));
}
