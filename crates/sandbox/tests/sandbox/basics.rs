//! Programs that mean well: what they see, what they get, how they end.

use detent_sandbox::{
    BootInstant, Cause, Confine, End, Feature, KillSwitch, Policy, SpawnError, Work,
};

use crate::support::{confine, run, scratch, sh, spec, text};

#[tokio::test]
async fn a_program_runs_and_its_output_comes_back() {
    let mut spec = sh("cat; echo err >&2; exit 7");
    spec.stdin = b"hello".to_vec();
    let exit = run(scratch(), spec).await;
    assert_eq!(exit.cause, Cause::Exited(7), "{}", text(&exit.stderr_tail));
    assert_eq!(exit.end(), End::Exit(7));
    assert_eq!(text(&exit.stdout), "hello");
    assert_eq!(text(&exit.stderr_tail), "err\n");
    assert_eq!(exit.level.name, "sandbox");
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let mut spec = sh("");
    spec.program = "no-such-program".into();
    let ended = confine(scratch()).await.run(spec, KillSwitch::new()).await;
    let program = "no-such-program".to_owned();
    assert_eq!(ended, Err(SpawnError::NotFound { program }));
}

#[tokio::test]
async fn the_table_shows_every_feature() {
    let confine = confine(scratch()).await;
    let table = confine.features().to_string();
    assert_eq!(table.lines().count(), Feature::ALL.len(), "{table}");
    assert_eq!(
        confine.level().missing.len(),
        confine.features().missing().len()
    );
}

#[tokio::test]
async fn the_environment_is_the_policy_s_and_the_specification_s() {
    let mut spec = sh("");
    (spec.program, spec.args) = ("env".into(), vec![]);
    spec.env.insert("TOKEN".into(), "t".into());
    spec.env.insert("HOME".into(), "/job".into());
    let (owner, run_id) = (spec.tag.owner.clone(), spec.tag.run.clone());
    let seen = text(&run(scratch(), spec).await.stdout);
    let expected = format!(
        "DETENT_RUN_ID={run_id}\nDETENT_RUN_OWNER={owner}\nHOME=/job\nLANG=C.UTF-8\n\
         PATH=/usr/local/bin:/usr/bin:/bin\nTMPDIR=/tmp\nTOKEN=t"
    );
    let mut lines: Vec<_> = seen.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.join("\n"), expected);
}

#[tokio::test]
async fn a_run_that_is_cancelled_was_started_and_is_dead() {
    let confine = confine(scratch()).await;
    let (switch, (tell, told)) = (KillSwitch::new(), tokio::sync::oneshot::channel());
    let kill = switch.clone();
    let run = tokio::spawn(async move {
        confine
            .run_observed(sh("echo up; sleep 1000"), kill, Some(tell))
            .await
    });
    assert!(told.await.unwrap().pid > 0);
    switch.kill();
    let exit = run.await.unwrap().unwrap();
    assert_eq!(exit.end(), End::Cancelled);
}

#[tokio::test]
async fn nothing_starts_after_its_last_moment() {
    let confine = confine(scratch()).await;
    let mut spec = sh("true");
    spec.start_deadline = Some(BootInstant::now());
    let (tell, told) = tokio::sync::oneshot::channel();
    let ended = confine
        .run_observed(spec, KillSwitch::new(), Some(tell))
        .await;
    assert_eq!(ended, Err(SpawnError::StartDeadlinePassed));
    assert!(told.await.is_err(), "nothing was said to have started");
}

#[tokio::test]
async fn too_many_processes_are_the_reason_of_a_failure() {
    let mut policy = scratch();
    policy.resources.processes_max = 4;
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; exit 5";
    let exit = run(policy, sh(script)).await;
    if rustix::process::geteuid().is_root() {
        assert_eq!(exit.end(), End::Pids, "{exit:?}");
    }
}

#[tokio::test]
async fn too_much_memory_is_the_reason_of_an_end() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: needs control groups");
        return;
    }
    let mut policy = scratch();
    policy.resources.memory_mib_max = 32;
    let confine = confine(policy).await;
    // It keeps as much as it is asked for, to show the end of it.
    let hoard = "echo before; head -c 300000000 /dev/zero | tail -c 200000000 >/dev/null; exit $?";
    // Twice: what makes the sandboxes may have been killed along.
    for _ in 0..2 {
        let exit = confine.run(sh(hoard), KillSwitch::new()).await.unwrap();
        assert_eq!(exit.end(), End::Oom, "{exit:?}");
        assert_eq!(text(&exit.stdout), "before\n");
    }
}

#[tokio::test]
async fn half_a_processor_is_half_a_processor() {
    let mut policy = scratch();
    policy.resources.cpu_percent_max = 20;
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: needs control groups");
        return;
    }
    let mut spec = sh("while :; do :; done");
    spec.limits.wall_ms = 3_000;
    let exit = run(policy, spec).await;
    assert_eq!(exit.end(), End::Timeout);
    // One period more than its share at the most.
    assert!(exit.cpu_ms <= 3_000 / 5 + 200, "{exit:?}");
}

#[tokio::test]
async fn the_programs_of_the_runtimes_run() {
    let cases = [
        ("python", "python3", ["-I", "-c", "print(6 * 7)"]),
        ("node", "node", ["-p", "6 * 7", ""]),
        ("java", "java", ["-version", "", ""]),
        ("native", "expr", ["6", "*", "7"]),
    ];
    for (policy, program, args) in cases {
        if !std::path::Path::new("/usr/bin").join(program).exists() {
            println!("SKIP {program}: not installed");
            continue;
        }
        let args: Vec<_> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        let mut policy = Policy::builtin(policy).unwrap();
        policy.files.work = Work::Scratch;
        let exit = run(policy, spec(std::path::Path::new("/"), program, &args)).await;
        let said = format!("{}{}", text(&exit.stdout), text(&exit.stderr_tail));
        assert_eq!(exit.cause, Cause::Exited(0), "{program}: {said}");
        assert!(program == "java" || said == "42\n", "{program}: {said}");
    }
}
