//! Nothing is left: no process, descriptor, group, after many runs and after violent ends.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use detent_sandbox::{Cause, Confine, KillSwitch, SandboxConfine};
use rustix::process::{Pid, Signal};
use tokio::task::JoinSet;

use crate::support::{KEEPER, confine, eventually, fresh_owner, groups_of, marked, scratch, sh};

async fn helper(confine: &SandboxConfine) -> u32 {
    confine.helper_pids().await[0]
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn groups_are_used_again_and_go_with_the_helper() {
    let confine = confine(scratch()).await;
    let helper = helper(&confine).await;
    for _ in 0..5 {
        let exit = confine.run(sh("true"), KillSwitch::new()).await.unwrap();
        assert_eq!(exit.cause, Cause::Exited(0));
    }
    if rustix::process::geteuid().is_root() {
        // One of its own and one for the runs, in each hierarchy.
        let groups = groups_of(helper);
        assert!(!groups.is_empty());
        assert!(groups.iter().all(|g| children(g) == 1), "{groups:?}");
    }
    drop(confine);
    eventually("its groups are gone", || groups_of(helper).is_empty()).await;
}

fn children(group: &Path) -> usize {
    let entries = std::fs::read_dir(group).unwrap().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

#[tokio::test]
async fn the_groups_of_a_killed_helper_are_swept_by_the_next() {
    let first = confine(scratch()).await;
    let pid = helper(&first).await;
    let owner = fresh_owner();
    let mut spec = sh("sleep 1000");
    spec.tag.owner.clone_from(&owner);
    let run = {
        let first = first.clone();
        tokio::spawn(async move { first.run(spec, KillSwitch::new()).await })
    };
    eventually("it runs", || !marked(&owner).is_empty()).await;
    signal(pid, Signal::KILL);
    assert!(run.await.unwrap().is_err());
    assert_eq!(marked(&owner), Vec::<i32>::new());
    let _second = confine(scratch()).await;
    assert_eq!(groups_of(pid), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn the_deadline_is_kept_while_the_caller_is_stopped() {
    let owner = fresh_owner();
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Command::new(KEEPER)
        .args(["sandbox", &owner, "2000", "native", "sleep", "1000"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it runs", || !marked(&owner).is_empty()).await;
    signal(caller.id(), Signal::STOP);
    eventually("its time is over", || marked(&owner).is_empty()).await;
    signal(caller.id(), Signal::CONT);
    // 124: the time limit, which the caller learns of afterwards.
    assert_eq!(caller.wait().unwrap().code(), Some(124));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_at_once_leave_nothing_behind() {
    let confine = Arc::new(confine(scratch()).await);
    confine.run(sh("true"), KillSwitch::new()).await.unwrap();
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let helper = helper(&confine).await;
    let helper_files =
        || std::fs::read_dir(format!("/proc/{helper}/fd")).map_or(0, Iterator::count);
    let (before, owner) = (files(), fresh_owner());
    let mut runs = JoinSet::new();
    for number in 0..100 {
        let (confine, owner) = (Arc::clone(&confine), owner.clone());
        runs.spawn(async move {
            let mut spec = sh("cat; sleep 100000 & exit 0");
            spec.tag.owner = owner;
            spec.tag.run = number.to_string();
            spec.stdin = number.to_string().into_bytes();
            let exit = confine.run(spec, KillSwitch::new()).await.unwrap();
            assert_eq!(exit.cause, Cause::Exited(0));
            assert_eq!(exit.stdout, number.to_string().into_bytes());
        });
        if number % 10 == 9 {
            while runs.join_next().await.transpose().unwrap().is_some() {}
        }
    }
    assert_eq!(marked(&owner), Vec::<i32>::new());
    eventually("all files are closed again", || files() <= before).await;
    // Three for each of the ten pooled groups, and a handful of its own.
    let bound = 3 * 10 + 12;
    eventually("the helper has closed its own", || helper_files() <= bound).await;
}

#[tokio::test]
async fn dropping_the_future_kills_the_run() {
    let confine = confine(scratch()).await;
    let mut spec = sh("sleep 1000");
    let owner = fresh_owner();
    spec.tag.owner.clone_from(&owner);
    let run = {
        let confine = confine.clone();
        tokio::spawn(async move { confine.run(spec, KillSwitch::new()).await })
    };
    eventually("it runs", || !marked(&owner).is_empty()).await;
    run.abort();
    eventually("it is dead", || marked(&owner).is_empty()).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
}
