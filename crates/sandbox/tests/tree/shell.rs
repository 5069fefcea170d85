//! `detent-keeper` used from a shell.

use std::process::{Command, Output, Stdio};

use crate::support::{KEEPER, fresh_owner};

fn shell(wall_ms: &str, script: &str) -> Output {
    Command::new(KEEPER)
        .args(["run", &fresh_owner(), wall_ms, "sh", "-c", script])
        .output()
        .unwrap()
}

#[test]
fn output_and_status_are_passed_on() {
    let done = shell("60000", "echo out; echo err >&2; exit 9");
    assert_eq!(done.status.code(), Some(9));
    assert_eq!(
        (done.stdout, done.stderr),
        (b"out\n".to_vec(), b"err\n".to_vec())
    );
}

#[test]
fn each_end_has_its_status() {
    assert_eq!(shell("300", "sleep 100000").status.code(), Some(124));
    assert_eq!(shell("60000", "yes").status.code(), Some(125));
    assert_eq!(shell("60000", "kill -TERM $$").status.code(), Some(143));
}

#[test]
fn a_program_that_cannot_run_is_explained() {
    let done = Command::new(KEEPER)
        .args(["run", &fresh_owner(), "60000", "no-such-program"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(126));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        said.contains("program not found: no-such-program"),
        "{said}"
    );
}

#[test]
fn wrong_usage_is_refused() {
    for args in [
        &["walk"][..],
        &["run", "owner"],
        &["run", "o", "soon", "true"],
    ] {
        let done = Command::new(KEEPER).args(args).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_keeper_with_nothing_or_nonsense_to_do_says_so() {
    let keeper = |input: &[u8]| {
        let mut keeper = Command::new(KEEPER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut control = keeper.stdin.take().unwrap();
        std::io::Write::write_all(&mut control, input).unwrap();
        drop(control);
        keeper.wait_with_output().unwrap()
    };
    assert_eq!(keeper(b"").status.code(), Some(3));
    assert_eq!(keeper(&[0, 0, 0, 9, 1]).status.code(), Some(3));
    assert_eq!(keeper(&[0, 0, 0, 1, 0xc1]).status.code(), Some(64));
    assert_eq!(keeper(&[0xff; 8]).status.code(), Some(64));
}
