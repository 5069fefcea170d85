//! Cases 36 to 52: what a machine can run out of, and ends that do not come.

use std::process::{Command, Stdio};

use detent_sandbox::{Cause, Confine, End, Hit, KillSwitch, STRING_BYTES_MAX, SpawnError};
use serde_json::json;

use crate::arena::{
    Arena, KEEPER, Who, contained, default, eventually, everybody, everyone, marked, root_only,
    scratch, text,
};

#[tokio::test]
async fn case_36_bombs_of_processes_threads_and_zombies() {
    everyone(36, scratch(), async |arena| {
        for case in ["fork_bomb", "zombies", "threads"] {
            let seen = arena.ask(case, &[]).await;
            assert_eq!(seen[1], "EAGAIN", "{:?} {case}: {seen}", arena.who);
            assert!(
                seen[0].as_u64().unwrap() <= 64,
                "{:?} {case}: {seen}",
                arena.who
            );
        }
    })
    .await;
}

#[tokio::test]
async fn case_37_three_hundred_orphans_are_reaped() {
    everyone(37, scratch(), async |arena| {
        let seen = arena.ask("orphans", &[]).await;
        assert_eq!(seen["made"], 300, "{:?} {seen}", arena.who);
        assert!(
            seen["visible"].as_array().unwrap().len() <= 2,
            "{:?} {seen}",
            arena.who
        );
    })
    .await;
}

#[tokio::test]
async fn case_38_a_bomb_of_memory() {
    root_only(38, scratch(), async |arena| {
        let exit = arena.run(arena.attack("memory", &[])).await;
        assert_eq!(exit.end(), End::Oom, "{exit:?}");
        assert_eq!(exit.hit, Some(Hit::Memory));
        // Pages of shared libraries count for the process, and not for its group.
        assert!(exit.max_rss_bytes <= 300 << 20, "{exit:?}");
    })
    .await;
}

#[tokio::test]
async fn case_39_the_number_of_open_files_is_exact() {
    everyone(39, scratch(), async |arena| {
        let seen = arena.ask("many_files", &[]).await;
        let expected = json!({
            "limit": [256, 256], "highest": 255, "then": "EMFILE", "raise": "refused",
        });
        assert_eq!(seen, expected, "{:?}", arena.who);
    })
    .await;
}

#[tokio::test]
async fn case_40_floods_are_cut_at_the_cap() {
    everyone(40, scratch(), async |arena| {
        let mut flood = arena.attack("flood", &[]);
        flood.limits.stdout_bytes_max = 100_000;
        let exit = arena.run(flood).await;
        assert_eq!(exit.end(), End::OutputLimit);
        assert_eq!(text(&exit.stdout), "y".repeat(100_000));

        let exit = arena.run(arena.attack("flood_errors", &[])).await;
        assert_eq!(exit.cause, Cause::Exited(0));
        assert_eq!(exit.stderr_tail.len(), 16 * 1024);
        assert!(exit.stderr_tail.ends_with(b"the end"));
    })
    .await;
}

/// Runs against a short deadline, which has to be what ends it.
async fn until_time_is_up(arena: &Arena, case: &str) {
    let mut spec = arena.attack(case, &[]);
    spec.limits.wall_ms = 1_000;
    let exit = arena.run(spec).await;
    assert_eq!(exit.end(), End::Timeout, "{:?} {case}: {exit:?}", arena.who);
    assert!(exit.wall_ms >= 1_000, "{exit:?}");
}

#[tokio::test]
async fn case_41_a_slow_drip() {
    everyone(41, scratch(), async |arena| {
        until_time_is_up(arena, "drip").await
    })
    .await;
}

#[tokio::test]
async fn case_42_a_grandchild_that_holds_the_output() {
    everyone(42, scratch(), async |arena| {
        // The grandchild sleeps far beyond the deadline: an exit means nobody waited for it.
        assert_eq!(arena.ask("holder", &[]).await, "OK");
    })
    .await;
}

#[tokio::test]
async fn case_43_a_daemon_dies_with_its_run() {
    everyone(43, scratch(), async |arena| {
        assert_eq!(arena.ask("daemon", &[]).await, "OK");
    })
    .await;
}

#[tokio::test]
async fn case_44_a_program_that_stops_itself() {
    everyone(44, scratch(), async |arena| {
        until_time_is_up(arena, "stop").await
    })
    .await;
}

#[tokio::test]
async fn case_45_signals_to_the_first_process() {
    everyone(45, scratch(), async |arena| {
        let seen = arena.ask("kill_first", &[]).await;
        assert_eq!(seen["alive"], 1, "{:?} {seen}", arena.who);
    })
    .await;
}

#[tokio::test]
async fn case_46_ignored_signals_and_a_busy_loop() {
    everyone(46, scratch(), async |arena| {
        until_time_is_up(arena, "spin").await
    })
    .await;
}

#[tokio::test]
async fn case_47_closed_output_and_no_end() {
    everyone(47, scratch(), async |arena| {
        until_time_is_up(arena, "mute").await
    })
    .await;
}

#[tokio::test]
async fn case_48_the_caller_is_killed() {
    let owner = format!("killed-{}", std::process::id());
    let work = tempfile::tempdir().unwrap();
    let policy = work.path().join("policy.toml");
    // Who is not root has no control groups here.
    let degraded = r#"allow_degraded = ["cgroup-memory", "cgroup-pids", "cgroup-cpu"]"#;
    std::fs::write(&policy, format!("extends = \"native\"\n{degraded}\n")).unwrap();
    let mut caller = Command::new(KEEPER)
        .args([
            "sandbox",
            &owner,
            "120000",
            policy.to_str().unwrap(),
            "sleep",
            "1000",
        ])
        .current_dir(work.path())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    eventually("the program runs", || !marked(&owner).is_empty()).await;
    caller.kill().unwrap();
    caller.wait().unwrap();
    eventually("its tree is gone", || marked(&owner).is_empty()).await;

    // A helper that is killed takes its sandboxes along, and its groups are swept up by
    // the next one.
    for who in everybody() {
        let arena = Arena::new(who, scratch()).await;
        let spec = arena.attack("sleep", &[]);
        let owner = spec.tag.owner.clone();
        let confine = arena.confine.clone();
        let run = tokio::spawn(async move { confine.run(spec, KillSwitch::new()).await });
        eventually("the program runs", || !marked(&owner).is_empty()).await;
        for pid in arena.confine.helper_pids().await {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        let lost = run.await.unwrap();
        assert!(
            matches!(lost, Err(SpawnError::KeeperLost { .. })),
            "{lost:?}"
        );
        assert_eq!(marked(&owner), Vec::<i32>::new(), "{who:?}");
        // Started again by itself.
        assert_eq!(arena.ask("daemon", &[]).await, "OK");
    }
    contained(48);
}

#[tokio::test]
async fn case_49_huge_arguments_are_refused_before_anything_starts() {
    everyone(49, scratch(), async |arena| {
        let mut long = arena.spec("/bin/true", &[]);
        long.args = vec!["x".repeat(STRING_BYTES_MAX)];
        let mut many = arena.spec("/bin/true", &[]);
        many.args = vec!["x".repeat(1000); 2000];
        let mut environment = arena.spec("/bin/true", &[]);
        environment
            .env
            .insert("A".into(), "x".repeat(STRING_BYTES_MAX));
        for spec in [long, many, environment] {
            let refused = arena.try_run(spec).await;
            assert!(
                matches!(refused, Err(SpawnError::TooLarge { .. })),
                "{refused:?}"
            );
        }
        // What just fits does run.
        let mut fits = arena.spec("/bin/true", &[]);
        fits.args = vec!["x".repeat(STRING_BYTES_MAX - 1); 7];
        assert_eq!(arena.run(fits).await.cause, Cause::Exited(0));
    })
    .await;
}

#[tokio::test]
async fn case_50_priorities_locked_memory_and_queues() {
    everyone(50, scratch(), async |arena| {
        let errors = ["EPERM", "ENOMEM", "EACCES"];
        arena.all_fail_with("priorities", &[], &errors).await;
    })
    .await;
}

#[tokio::test]
async fn case_51_a_large_input_that_nobody_reads() {
    everyone(51, scratch(), async |arena| {
        let mut spec = arena.attack("never_reads", &[]);
        spec.stdin = vec![b'x'; 8 << 20];
        assert_eq!(arena.run(spec).await.cause, Cause::Exited(3));
    })
    .await;
}

#[tokio::test]
async fn case_52_out_of_memory_while_the_sandbox_is_built() {
    let mut policy = default();
    policy.resources.memory_mib_max = 1;
    root_only(52, policy, async |arena| {
        assert_eq!(arena.who, Who::Root);
        let exit = arena.run(arena.attack("sleep", &[])).await;
        assert_eq!(exit.end(), End::Oom, "{exit:?}");
    })
    .await;
}
