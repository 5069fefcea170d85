//! Seals of attempts and goals.

use crate::support::*;
use detent_protocol::Code;
use detent_protocol::effect::SlotMark;
use detent_protocol::record::{Seal, ToolOutcome};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// Leaves a process that left its parent and its session, and waits.
const DOUBLE_FORK: &str =
    "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > pid; sleep 1000' &) ; sleep 1000";

#[tokio::test]
async fn a_seal_kills_the_whole_tree_before_it_is_answered() {
    for effect in ["once", "read"] {
        let world = World::new().await;
        let tool = world.sh(effect, DOUBLE_FORK);
        let answer = world.sent(world.message(&tool, 1));
        let pid = world.file("pid").await;
        assert!(is_alive(&pid));

        let seal = world.seal(1).await.unwrap();

        assert!(!is_alive(&pid), "{effect}");
        assert_eq!(seal, Seal::Ended { outcome: None });
        let (_, started) = failed(answer.await.unwrap().unwrap(), Code::OwnerFenced);
        assert!(started);
        let again = world.seal(1).await.unwrap();
        match effect {
            "once" => assert_eq!(again, Seal::Ended { outcome: None }),
            // A read leaves nothing to know.
            _ => assert_eq!(again, Seal::NeverStarted),
        }
    }
}

#[tokio::test]
async fn a_sealed_attempt_never_starts_and_the_next_one_does() {
    for effect in ["once", "read"] {
        let world = World::new().await;
        let tool = world.sh(effect, "echo ran >> ran; echo {}");
        assert_eq!(world.seal(1).await.unwrap(), Seal::NeverStarted);
        assert_eq!(world.seal(1).await.unwrap(), Seal::NeverStarted);
        let (_, started) = failed(world.call(&tool).await, Code::OwnerFenced);
        assert!(!started);
        assert_eq!(world.lines("ran"), 0, "{effect}");
        done(world.send(&world.message(&tool, 2)).await.unwrap());
        assert_eq!(world.lines("ran"), 1, "{effect}");
    }
}

#[tokio::test]
async fn a_seal_after_the_end_gives_the_outcome_also_after_a_restart() {
    let world = World::new().await;
    let tool = world.sh("once", "echo '{\"n\": 1}'");
    let outcome = world.call(&tool).await;
    let sealed = Seal::Ended {
        outcome: Some(outcome),
    };
    assert_eq!(world.seal(1).await.unwrap(), sealed);
    let world = world.restart().await;
    assert_eq!(world.seal(1).await.unwrap(), sealed);
}

#[tokio::test]
async fn what_an_earlier_life_started_has_ended_with_an_unknown_outcome() {
    let world = World::new().await;
    let started = SlotMark::Started {
        node: node("n1"),
        nonce: 77,
    };
    let key = world.slot_key(1);
    world.bus.slots.win(&key, started).await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.seal(1).await.unwrap(), Seal::Ended { outcome: None });
    let tool = world.sh("once", "echo ran >> ran; echo {}");
    let fault = world.send(&world.message(&tool, 1)).await.unwrap_err();
    assert_eq!(fault.code, Code::OwnerFenced);
    assert_eq!(world.lines("ran"), 0);
}

#[tokio::test]
async fn what_an_earlier_life_left_running_is_killed_before_anything_is_served() {
    let world = World::new().await;
    let mut leftover = std::process::Command::new("sleep")
        .arg("1000")
        .env("DETENT_RUN_OWNER", &world.options.owner_tag)
        .env("DETENT_RUN_ID", "of-an-earlier-life")
        .spawn()
        .unwrap();
    // Reaped as soon as it dies, as init does with orphans: a sweep waits for that.
    let reaper = std::thread::spawn(move || leftover.wait().unwrap());
    let _world = world.restart().await;
    assert_eq!(reaper.join().unwrap().signal(), Some(9));
}

#[tokio::test]
async fn another_nodes_attempt_is_sealed_there() {
    let world = World::new().await;
    let theirs = SlotMark::Started {
        node: node("n2"),
        nonce: 5,
    };
    world
        .bus
        .slots
        .win(&world.slot_key(1), theirs)
        .await
        .unwrap();
    let fault = world.seal(1).await.unwrap_err();
    assert_eq!(fault.code, Code::NodeUnreachable);
    assert_eq!(fault.at.as_deref(), Some("n2"));
}

#[tokio::test]
async fn a_goal_seal_ends_its_runs_and_refuses_it_for_ever() {
    let mut world = World::new().await;
    let tool = world.sh("once", DOUBLE_FORK);
    let answer = world.sent(world.message(&tool, 1));
    let pid = world.file("pid").await;

    let sealed = world.seal_goal().await;

    assert_eq!((sealed.node, sealed.ended), (node("n1"), 1));
    assert!(!is_alive(&pid));
    failed(answer.await.unwrap().unwrap(), Code::UserCancelled);
    assert_eq!(world.seal_goal().await.ended, 0);

    for round in ["now", "after a restart"] {
        for effect in ["once", "read"] {
            let tool = world.sh(effect, "echo ran >> ran; echo {}");
            let outcome = world.send(&world.message(&tool, 2)).await.unwrap();
            let (_, started) = failed(outcome, Code::UserCancelled);
            assert!(!started, "{round}");
        }
        world = world.restart().await;
    }
    assert_eq!(world.lines("ran"), 0);

    world.goal = goal(2);
    done(world.call(&world.sh("once", "echo {}")).await);
}

#[tokio::test]
async fn a_goal_seal_does_not_change_what_is_said_about_what_ran() {
    let world = World::new().await;
    let tool = world.sh("once", "echo '{\"n\": 1}'");
    let outcome = world.call(&tool).await;
    world.seal_goal().await;
    assert_eq!(world.call(&tool).await, outcome);
}

#[tokio::test]
async fn stopping_lets_runs_end_and_kills_what_does_not() {
    let world = World::new().await;
    let slow = world.sh(
        "once",
        "echo ran >> ran; while ! [ -e go ]; do sleep 0.01; done; echo {}",
    );
    let answer = world.sent(world.message(&slow, 1));
    world.file("ran").await;
    let stop = tokio::spawn({
        let handle = world.handle.clone();
        async move { handle.stop(PATIENCE).await }
    });
    std::fs::write(world.work_dir().join("go"), "").unwrap();
    done(answer.await.unwrap().unwrap());
    stop.await.unwrap();

    let world = world.restart().await;
    let endless = world.sh("once", DOUBLE_FORK);
    let answer = world.sent(world.message(&endless, 2));
    let pid = world.file("pid").await;
    world.handle.stop(Duration::ZERO).await;
    assert!(!is_alive(&pid));
    assert_eq!(world.handle.running(), 0);
    let outcome = answer.await.unwrap().unwrap();
    assert!(matches!(outcome, ToolOutcome::Failed { started: true, .. }));
    failed(outcome, Code::Draining);
    let refused = world.send(&world.message(&endless, 3)).await.unwrap_err();
    assert_eq!(refused.code, Code::NodeUnreachable);
}
