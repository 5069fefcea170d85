//! Programs that end by themselves, and what they see of their caller.

use std::collections::BTreeMap;

use detent_sandbox::{Cause, Confine, KillSwitch, Level};

use crate::support::{confine, python, run_clean, sh, spec, text};

#[tokio::test]
async fn json_goes_in_and_comes_out() {
    let mut echo = python(
        "import json,sys; call = json.load(sys.stdin); json.dump({'got': call['n'] + 1}, sys.stdout)",
    );
    echo.stdin = br#"{"n": 41}"#.to_vec();
    let exit = run_clean(echo).await;
    assert_eq!(exit.cause, Cause::Exited(0));
    assert_eq!(text(&exit.stdout), r#"{"got": 42}"#);
    assert_eq!(exit.stderr_tail, b"");
    assert_eq!(exit.level, Level::tree());
}

#[tokio::test]
async fn a_failing_program_is_an_exit_with_its_status_and_errors() {
    let exit = run_clean(sh("echo out; echo wrong >&2; exit 7")).await;
    assert_eq!(exit.cause, Cause::Exited(7));
    assert_eq!(text(&exit.stdout), "out\n");
    assert_eq!(text(&exit.stderr_tail), "wrong\n");
}

#[tokio::test]
async fn a_program_ended_by_a_signal_says_which() {
    let exit = run_clean(sh("kill -SEGV $$")).await;
    assert_eq!(exit.cause, Cause::Signaled(libc::SIGSEGV));
    let exit = run_clean(sh("kill -KILL $$")).await;
    assert_eq!(exit.cause, Cause::Signaled(libc::SIGKILL));
}

#[tokio::test]
async fn the_environment_is_the_one_given_and_the_two_markers() {
    let mut env = spec("env", &[]);
    env.env.insert("GREETING".into(), "hello world".into());
    let owner = env.tag.owner.clone();
    let exit = run_clean(env).await;
    let seen: BTreeMap<String, String> = text(&exit.stdout)
        .lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let expected = [
        ("DETENT_RUN_ID", "run-1"),
        ("DETENT_RUN_OWNER", owner.as_str()),
        ("GREETING", "hello world"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ];
    assert_eq!(
        seen,
        expected.map(|(n, v)| (n.to_owned(), v.to_owned())).into()
    );
}

#[tokio::test]
async fn files_that_the_caller_left_open_are_closed() {
    let file = tempfile::tempfile().unwrap();
    // dup clears close-on-exec: this one would be inherited.
    let leaky = rustix::io::dup(&file).unwrap();
    let list =
        "import os; print([f for f in range(3, 200) if os.path.exists(f'/proc/self/fd/{f}')])";
    let exit = run_clean(python(list)).await;
    assert_eq!(text(&exit.stdout), "[]\n");
    drop(leaky);
}

#[tokio::test]
async fn no_signal_is_blocked_or_ignored_and_no_privilege_can_be_gained() {
    let pattern = "^(SigBlk|SigIgn|NoNewPrivs):";
    let exit = run_clean(spec("grep", &["-E", pattern, "/proc/self/status"])).await;
    let lines = text(&exit.stdout);
    assert!(lines.contains("NoNewPrivs:\t1"), "{lines}");
    assert!(lines.contains("SigBlk:\t0000000000000000"), "{lines}");
    assert!(lines.contains("SigIgn:\t0000000000000000"), "{lines}");
}

#[tokio::test]
async fn the_program_leads_a_session_of_its_own() {
    let exit = run_clean(python("import os; print(os.getsid(0) == os.getpid())")).await;
    assert_eq!(text(&exit.stdout), "True\n");
}

#[tokio::test]
async fn it_runs_in_its_working_directory_and_finds_relative_programs_there() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("where");
    std::fs::write(&script, "#!/bin/sh\npwd -P\necho \"$1\"\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut relative = spec("./where", &["an argument"]);
    relative.cwd = dir.path().canonicalize().unwrap();
    let expected = format!("{}\nan argument\n", relative.cwd.display());
    assert_eq!(text(&run_clean(relative).await.stdout), expected);
}

#[tokio::test]
async fn without_a_path_the_standard_directories_are_searched() {
    let mut no_path = spec("true", &[]);
    no_path.env.clear();
    assert_eq!(run_clean(no_path).await.cause, Cause::Exited(0));
}

#[tokio::test]
async fn processor_time_and_memory_of_the_whole_tree_are_counted() {
    let work = "import subprocess,sys\n\
        burn = 'import time; m = b\"x\" * (96 << 20)\\nwhile time.process_time() < 0.4: pass'\n\
        subprocess.run([sys.executable, '-I', '-S', '-c', burn], check=True)";
    let exit = run_clean(python(work)).await;
    assert_eq!(exit.cause, Cause::Exited(0), "{}", text(&exit.stderr_tail));
    assert!(exit.cpu_ms >= 400, "{exit:?}");
    assert!(exit.max_rss_bytes >= 96 << 20, "{exit:?}");
}

#[tokio::test]
async fn the_caller_is_told_when_the_program_started() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let confine = confine();
    let run = confine.run_observed(sh("echo $$"), KillSwitch::new(), Some(tell));
    let exit = run.await.unwrap();
    let started = told.await.unwrap();
    assert_eq!(text(&exit.stdout), format!("{}\n", started.pid));
    assert!(started.at <= detent_sandbox::BootInstant::now());
}
