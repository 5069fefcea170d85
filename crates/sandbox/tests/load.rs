//! Many runs at once leave nothing behind in the caller. A file of its own, so
//! that no other test shares the process whose descriptors are counted.

use std::sync::Arc;

use detent_sandbox::{Cause, Confine, KillSwitch};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

#[allow(dead_code, reason = "shared with the other test program")]
#[path = "tree/support.rs"]
mod support;

use support::{confine, eventually, marked, sh, text};

const RUNS: usize = 200;
const AT_ONCE: usize = 16;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Children of any thread, zombies included.
fn children() -> String {
    let mut children = String::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        // A thread that just ended has none.
        children += &std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    }
    children
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_runs_leave_no_zombie_and_no_open_file() {
    let confine = Arc::new(confine());
    // The runtime opens its own files at the first child.
    let warm_up = confine.run(sh("true"), KillSwitch::new()).await.unwrap();
    assert_eq!(warm_up.cause, Cause::Exited(0));
    let before = open_files();

    let owner = support::fresh_owner();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut runs = JoinSet::new();
    for number in 0..RUNS {
        let (confine, slots) = (Arc::clone(&confine), Arc::clone(&slots));
        let mut spec = sh("cat; sleep 100000 & exit 0");
        spec.tag.owner.clone_from(&owner);
        spec.tag.run = number.to_string();
        spec.stdin = number.to_string().into_bytes();
        runs.spawn(async move {
            let _slot = slots.acquire().await.unwrap();
            let exit = confine.run(spec, KillSwitch::new()).await.unwrap();
            assert_eq!(exit.cause, Cause::Exited(0));
            assert_eq!(text(&exit.stdout), number.to_string());
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }

    assert_eq!(marked(&owner), []);
    assert_eq!(children(), "");
    eventually("all files are closed again", || open_files() <= before).await;
}
