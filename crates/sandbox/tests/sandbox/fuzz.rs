//! Arbitrary specifications, policies and kill times: whatever comes, the run ends, nothing
//! of it is left, and the instance serves the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use detent_sandbox::{
    Cause, Confine, KillSwitch, Limits, Policy, ProcessSpec, RunTag, SandboxConfine,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{confine, fresh_owner, marked, scratch};

/// Enough to meet each kind of input, few enough for every change.
const CASES: u32 = 96;

#[derive(Debug, Clone)]
struct Case {
    program: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    stdin: Vec<u8>,
    stdout_bytes_max: u64,
    wall_ms: u64,
    kill_after_us: Option<u64>,
    memory_mib_max: u32,
    processes_max: u32,
}

fn case() -> impl Strategy<Value = Case> {
    let programs = [
        "cat", "sh", "true", "yes", "head", "env", "no-such", "/", "./x", "/usr",
    ];
    let words = prop_oneof![
        3 => "[ -~]{0,12}",
        1 => "\\PC{0,8}",
        1 => Just("-c".to_owned()),
        1 => Just("kill -STOP $$".to_owned()),
        1 => Just("sleep 1000 & sleep 1000".to_owned()),
        1 => Just("while :; do sleep 1000 & done".to_owned()),
        1 => Just("a\0b".to_owned()),
    ];
    let program = prop_oneof![
        6 => proptest::sample::select(programs.to_vec()).prop_map(str::to_owned),
        1 => "[ -~]{0,10}",
    ];
    let first = (
        program,
        proptest::collection::vec(words, 0..4),
        proptest::collection::btree_map("[A-Z=]{0,4}", "\\PC{0,8}", 0..4),
        proptest::collection::vec(any::<u8>(), 0..300_000),
    );
    let second = (
        prop_oneof![Just(0), 1..100_000_u64],
        prop_oneof![Just(0), 1..300_u64],
        proptest::option::of(0..50_000_u64),
        1..64_u32,
        1..16_u32,
    );
    (first, second).prop_map(|((program, args, env, stdin), limits)| {
        let (stdout_bytes_max, wall_ms, kill_after_us, memory_mib_max, processes_max) = limits;
        Case {
            program,
            args,
            env,
            stdin,
            stdout_bytes_max,
            wall_ms,
            kill_after_us,
            memory_mib_max,
            processes_max,
        }
    })
}

async fn carry_out(confine: &SandboxConfine, case: Case) -> Result<(), TestCaseError> {
    let mut policy: Policy = scratch();
    policy.resources.memory_mib_max = case.memory_mib_max;
    policy.resources.processes_max = case.processes_max;
    let confine = confine.with_policy(policy).unwrap();
    let owner = fresh_owner();
    let spec = ProcessSpec {
        program: case.program,
        args: case.args,
        env: case.env,
        cwd: "/".into(),
        stdin: case.stdin,
        limits: Limits {
            wall_ms: case.wall_ms,
            stdout_bytes_max: case.stdout_bytes_max,
            ..Limits::default()
        },
        tag: RunTag {
            owner: owner.clone(),
            run: "1".into(),
        },
        start_deadline: None,
    };
    let switch = KillSwitch::new();
    if let Some(after) = case.kill_after_us {
        let switch = switch.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(after)).await;
            switch.kill();
        });
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), confine.run(spec, switch)).await;
    let ended = ended.map_err(|_| TestCaseError::fail("it hangs"))?;
    if let Ok(exit) = ended {
        prop_assert!(exit.stdout.len() as u64 <= case.stdout_bytes_max);
        prop_assert!(
            case.kill_after_us.is_some() || exit.cause != Cause::Killed,
            "{exit:?}"
        );
    }
    prop_assert_eq!(marked(&owner), Vec::<i32>::new());
    Ok(())
}

#[test]
fn whatever_is_asked_ends_and_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let confine = runtime.block_on(confine(scratch()));
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let tried =
        TestRunner::new(config).run(&case(), |case| runtime.block_on(carry_out(&confine, case)));
    tried.unwrap();
    // The helper has lived through all of it.
    let exit = runtime.block_on(async {
        let spec = crate::support::sh("echo fine");
        confine.run(spec, KillSwitch::new()).await.unwrap()
    });
    assert_eq!(exit.stdout, b"fine\n");
    runtime.block_on(async { assert_eq!(confine.helper_pids().await.len(), 1) });
}
