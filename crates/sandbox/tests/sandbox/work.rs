//! The working directory: the caller's, for reading or for writing too.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use detent_sandbox::{Cause, Confine, KillSwitch, SpawnError, Work};

use crate::support::{confine, policy, run, spec, text};

#[tokio::test]
async fn what_a_program_writes_is_there_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), "given").unwrap();
    let script = "pwd; cat in; echo made > out; mkdir sub; echo deep > sub/file";
    let exit = run(policy(), spec(dir.path(), "/bin/sh", &["-c", script])).await;
    assert_eq!(exit.cause, Cause::Exited(0), "{}", text(&exit.stderr_tail));
    assert_eq!(text(&exit.stdout), "/job\ngiven");
    assert_eq!(
        fs::read_to_string(dir.path().join("out")).unwrap(),
        "made\n"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("sub/file")).unwrap(),
        "deep\n"
    );
}

#[tokio::test]
async fn a_script_in_the_directory_is_run_by_its_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("tool.py");
    fs::write(
        &script,
        "#!/usr/bin/python3 -I\nimport sys; print(sys.argv[1:])\n",
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let exit = run(policy(), spec(dir.path(), "./tool.py", &["a", "b c"])).await;
    assert_eq!(
        text(&exit.stdout),
        "['a', 'b c']\n",
        "{}",
        text(&exit.stderr_tail)
    );
}

#[tokio::test]
async fn a_read_only_directory_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), "given").unwrap();
    let mut policy = policy();
    policy.files.work = Work::ReadOnly;
    let script = "cat in; echo x > in; echo x > new; rm in; touch /tmp/fine && echo fine";
    let exit = run(policy, spec(dir.path(), "/bin/sh", &["-c", script])).await;
    assert_eq!(text(&exit.stdout), "givenfine\n");
    assert_eq!(fs::read_to_string(dir.path().join("in")).unwrap(), "given");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_directory_below_closed_ones_can_be_worked_in() {
    let closed = tempfile::tempdir().unwrap();
    let dir = closed.path().join("a/b");
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let exit = run(policy(), spec(&dir, "/bin/sh", &["-c", "echo made > out"])).await;
    assert_eq!(exit.cause, Cause::Exited(0), "{}", text(&exit.stderr_tail));
    assert_eq!(fs::read_to_string(dir.join("out")).unwrap(), "made\n");
}

#[tokio::test]
async fn a_directory_that_is_none_is_named() {
    let missing = std::path::Path::new("/no/such/directory");
    let ended = confine(policy())
        .await
        .run(spec(missing, "true", &[]), KillSwitch::new())
        .await;
    assert!(matches!(ended, Err(SpawnError::Cwd { .. })), "{ended:?}");
}

#[tokio::test]
async fn the_machine_itself_is_no_place_to_work_in() {
    let confine = confine(policy()).await;
    for place in ["/", "/proc/self", "/sys", "/dev/shm", "/proc/self/root"] {
        let spec = spec(std::path::Path::new(place), "true", &[]);
        let refused = confine.run(spec, KillSwitch::new()).await;
        assert!(
            matches!(refused, Err(SpawnError::InvalidSpec { .. })),
            "{place}: {refused:?}"
        );
    }
}
