//! What a dead caller and a dead keeper left behind is found, and nothing else.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use detent_sandbox::Confine;
use rustix::process::Signal;

use crate::support::{
    KEEPER, confine, eventually, fresh_owner, is_alive, keeper_of, marked, pids_in, signal,
};

/// A caller in a process of its own. Its program leaves one process with the
/// marker in another session, and below that one without; both ids go to
/// `file`.
fn caller(owner: &str, file: &Path) -> Child {
    let file = file.display();
    let inner = format!("env -i sleep 100000 & echo $! >> {file}; echo $$ >> {file}; wait");
    Command::new(KEEPER)
        .args(["run", owner, "3600000", "/bin/sh", "-c"])
        .arg(format!("setsid sh -c '{inner}' & wait"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills keeper and caller so that neither can clean up.
async fn kill_both(owner: &str, caller: &mut Child) {
    signal(i32::try_from(caller.id()).unwrap(), Signal::STOP);
    let keeper = keeper_of(owner);
    signal(keeper, Signal::KILL);
    eventually("the keeper is dead", || !is_alive(keeper)).await;
    caller.kill().unwrap();
    caller.wait().unwrap();
}

#[tokio::test]
async fn orphans_of_this_owner_are_killed_and_those_of_another_live() {
    let dir = tempfile::tempdir().unwrap();
    let (mine, theirs) = (dir.path().join("mine"), dir.path().join("theirs"));
    let owner = fresh_owner();
    // A longer name with ours as its beginning.
    let neighbour = format!("{owner}0");
    let mut dead = caller(&owner, &mine);
    let mut living = caller(&neighbour, &theirs);
    let orphans = pids_in(&mine, 2).await;
    let bystanders = pids_in(&theirs, 2).await;

    kill_both(&owner, &mut dead).await;
    assert!(orphans.iter().all(|pid| is_alive(*pid)), "no orphans made");

    let report = confine().sweep(&owner).await.unwrap();
    assert!(!orphans.iter().any(|pid| is_alive(*pid)));
    assert_eq!(marked(&owner), []);
    assert!(report.killed >= 2, "{report:?}");
    assert_eq!(report.keepers, 0);

    assert!(bystanders.iter().all(|pid| is_alive(*pid)));
    assert!(is_alive(keeper_of(&neighbour)));
    living.kill().unwrap();
    living.wait().unwrap();
    eventually("the other run is over", || marked(&neighbour).is_empty()).await;
}

#[tokio::test]
async fn a_stopped_keeper_with_its_tree_is_swept_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let owner = fresh_owner();
    let mut dead = caller(&owner, &file);
    let pids = pids_in(&file, 2).await;
    signal(keeper_of(&owner), Signal::STOP);
    dead.kill().unwrap();
    dead.wait().unwrap();

    let report = confine().sweep(&owner).await.unwrap();
    assert_eq!(report.keepers, 1);
    assert_eq!(marked(&owner), []);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
}

#[tokio::test]
async fn a_clean_machine_gives_an_empty_report() {
    let report = confine().sweep(&fresh_owner()).await.unwrap();
    assert_eq!((report.killed, report.keepers), (0, 0));
}
