//! Programs that mean well: what they see, what they get, how they end.

use detent_sandbox::{Cause, Confine, End, KillSwitch, SpawnError};

use crate::support::{confine, run, scratch, sh, text};

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
    assert_eq!(table.lines().count(), 13, "{table}");
    println!("{table}");
}
