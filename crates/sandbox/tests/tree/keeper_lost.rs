//! Programs that attack their keeper, and keepers that are none.

use std::time::Duration;

use detent_sandbox::{Confine, KeeperCommand, KillSwitch, ProcessSpec, SpawnError, TreeConfine};

use crate::support::{confine, is_alive, marked, pids_in, sh};

/// Leaves a process in another session, waits for the file, then sends its
/// keeper a signal.
fn attacker(dir: &std::path::Path, signal: &str) -> ProcessSpec {
    let dir = dir.display();
    sh(&format!(
        "setsid sleep 100000 & echo $! >> {dir}/pids; \
         until [ -e {dir}/go ]; do sleep 0.02; done; kill -{signal} $PPID; sleep 100000"
    ))
}

/// Attacks once the caller knows that the program started.
async fn attack(confine: TreeConfine, signal: &str) -> SpawnError {
    let dir = tempfile::tempdir().unwrap();
    let spec = attacker(dir.path(), signal);
    let owner = spec.tag.owner.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let run = tokio::spawn(async move {
        confine
            .run_observed(spec, KillSwitch::new(), Some(tell))
            .await
    });
    told.await.unwrap();
    let pids = pids_in(&dir.path().join("pids"), 1).await;
    std::fs::write(dir.path().join("go"), "").unwrap();
    let error = run.await.unwrap().unwrap_err();
    assert!(error.may_have_started());
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(marked(&owner), []);
    error
}

fn assert_lost(error: &SpawnError, expected_started: bool) {
    let SpawnError::KeeperLost {
        started, leftover, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(*started, expected_started);
    assert_eq!(*leftover, []);
}

#[tokio::test]
async fn a_killed_keeper_is_noticed_and_its_tree_swept() {
    assert_lost(&attack(confine(), "KILL").await, true);
}

#[tokio::test]
async fn a_stopped_keeper_is_given_up_and_its_tree_swept() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = attacker(dir.path(), "STOP");
    std::fs::write(dir.path().join("go"), "").unwrap();
    spec.limits.wall_ms = 5_000;
    let owner = spec.tag.owner.clone();
    let confine = confine().keeper_grace(Duration::from_millis(500));
    let error = confine.run(spec, KillSwitch::new()).await.unwrap_err();
    assert!(matches!(error, SpawnError::KeeperLost { .. }), "{error}");
    assert_eq!(marked(&owner), []);
}

#[tokio::test]
async fn a_program_that_is_no_keeper_is_lost_before_the_start() {
    // One ends at once, one sends the request back.
    for program in ["/bin/true", "/bin/cat"] {
        let confine = TreeConfine::new(KeeperCommand {
            program: program.into(),
            args: vec![],
        });
        let spec = sh("true");
        let owner = spec.tag.owner.clone();
        let error = confine.run(spec, KillSwitch::new()).await.unwrap_err();
        assert_lost(&error, false);
        assert_eq!(marked(&owner), []);
    }
}
