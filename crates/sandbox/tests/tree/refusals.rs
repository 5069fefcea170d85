//! Runs that never start, each with an error of its own.

use std::time::Duration;

use detent_sandbox::{
    BootInstant, Cause, Confine, KeeperCommand, KillSwitch, SpawnError, Stage, TreeConfine,
};

use crate::support::{run, run_clean, sh, spec};

/// The error of a run that must not have started.
async fn refusal(spec: detent_sandbox::ProcessSpec) -> SpawnError {
    let error = run(spec).await.unwrap_err();
    assert!(!error.may_have_started(), "{error}");
    error
}

#[tokio::test]
async fn a_missing_program_is_not_found() {
    for program in ["no-such-program", "/no/such/program", "./no-such-program"] {
        let expected = SpawnError::NotFound {
            program: program.into(),
        };
        assert_eq!(refusal(spec(program, &[])).await, expected);
    }
}

#[tokio::test]
async fn what_cannot_be_executed_is_denied() {
    for program in ["/etc/passwd", "/etc"] {
        let expected = SpawnError::PermissionDenied {
            program: program.into(),
        };
        assert_eq!(refusal(spec(program, &[])).await, expected);
    }
}

#[tokio::test]
async fn a_script_without_its_interpreter_is_an_error_of_exec() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let expected = SpawnError::Os {
        stage: Stage::Exec,
        errno: libc::ENOENT,
    };
    assert_eq!(refusal(spec(script.to_str().unwrap(), &[])).await, expected);
}

#[tokio::test]
async fn an_unusable_working_directory_is_named() {
    for (cwd, errno) in [
        ("/no/such/dir", libc::ENOENT),
        ("/etc/passwd", libc::ENOTDIR),
    ] {
        let mut lost = sh("true");
        lost.cwd = cwd.into();
        let expected = SpawnError::Cwd {
            cwd: cwd.into(),
            errno,
        };
        assert_eq!(refusal(lost).await, expected);
    }
}

#[tokio::test]
async fn after_the_start_deadline_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let proof = dir.path().join("started");
    let mut late = sh(&format!("touch {}", proof.display()));
    late.start_deadline = Some(BootInstant::now());
    assert_eq!(refusal(late).await, SpawnError::StartDeadlinePassed);
    assert!(!proof.exists());
}

#[tokio::test]
async fn before_the_start_deadline_it_runs() {
    let mut early = sh("true");
    early.start_deadline = Some(BootInstant::now().plus(Duration::from_secs(600)));
    assert_eq!(run_clean(early).await.cause, Cause::Exited(0));
}

#[tokio::test]
async fn arguments_over_the_kernels_bound_are_refused_and_the_largest_pass() {
    let longest = "x".repeat(detent_sandbox::STRING_BYTES_MAX - 1);
    assert_eq!(
        run_clean(spec("true", &[&longest])).await.cause,
        Cause::Exited(0)
    );
    let error = refusal(spec("true", &[&format!("{longest}x")])).await;
    assert!(matches!(error, SpawnError::TooLarge { .. }), "{error}");

    // Seven of the longest come close to the bound on all of them together.
    let many = vec![longest.as_str(); 7];
    assert_eq!(run_clean(spec("true", &many)).await.cause, Cause::Exited(0));
    let error = refusal(spec("true", &[many, vec![&longest]].concat())).await;
    assert!(matches!(error, SpawnError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn a_missing_keeper_is_unavailable() {
    let confine = TreeConfine::new(KeeperCommand {
        program: "/no/such/keeper".into(),
        args: vec![],
    });
    let error = confine
        .run(sh("true"), KillSwitch::new())
        .await
        .unwrap_err();
    let errno = libc::ENOENT;
    assert_eq!(error, SpawnError::KeeperUnavailable { errno });
}

#[tokio::test]
async fn a_killed_switch_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let proof = dir.path().join("started");
    let kill = KillSwitch::new();
    kill.kill();
    let touch = sh(&format!("touch {}", proof.display()));
    let exit = crate::support::confine().run(touch, kill).await.unwrap();
    assert_eq!(exit.cause, Cause::Killed);
    assert!(!proof.exists());
}
