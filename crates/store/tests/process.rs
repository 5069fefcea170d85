//! Other processes: one that is killed while it commits, one that finds the store locked, one
//! that runs out of space. The child is this test binary itself, started with one test.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{OTHER, ROWS, contents, open, seeded};
use detent_store::{Store, StoreError, StoreOptions, Txn};
use rand::RngExt;
use tokio::task::JoinSet;

const DIR: &str = "DETENT_STORE_TEST_DIR";

fn command(child_test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", child_test, "--nocapture"])
        .env(DIR, dir);
    command
}

fn given_dir() -> PathBuf {
    std::env::var_os(DIR)
        .expect("started by another test")
        .into()
}

/// Lines of the child that begin with `mark`, without it.
fn lines<'a>(child: &'a mut Child, mark: &'a str) -> impl Iterator<Item = String> + 'a {
    let output = BufReader::new(child.stdout.as_mut().unwrap());
    output
        .lines()
        .map_while(Result::ok)
        .filter_map(move |line| Some(line.strip_prefix(mark)?.to_owned()))
}

/// Eight writers, each with its own row counter; every commit that returned is printed.
#[tokio::test]
#[ignore = "child process of the tests below"]
async fn child_commits_until_it_is_killed() {
    let store = open(&given_dir());
    let first = store.status().unwrap().commits;
    let mut tasks = JoinSet::new();
    for writer in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            for n in 0.. {
                let key = format!("{first:08}/{writer}/{n:08}");
                let txn = Txn::new().expect_absent(ROWS, key.clone()).put(
                    ROWS,
                    key.clone(),
                    vec![7; 200],
                );
                let seq = match store.commit(txn.put(OTHER, key.clone(), "twin")).await {
                    Ok(seq) => seq,
                    Err(error) => return println!("\nERROR {error:?}"),
                };
                println!("\nACK {} {key}", seq.0);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_in_20_kills() {
    let mut random = seeded();
    let dir = tempfile::tempdir().unwrap();
    let db_bytes = || std::fs::metadata(dir.path().join("db")).unwrap().len();
    let (mut acked, mut with_room) = (Vec::new(), 0);
    for round in 0..20 {
        let mut child = command("child_commits_until_it_is_killed", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let wanted = random.random_range(1..300);
        acked.extend(lines(&mut child, "ACK ").take(wanted));
        child.kill().unwrap();
        acked.extend(lines(&mut child, "ACK "));
        child.wait().unwrap();
        let killed_bytes = db_bytes();
        let has_room = killed_bytes >= 2 << 20;
        with_room += usize::from(has_room);

        let store = open(dir.path());
        let (rows, twins) = (contents(&store, ROWS), contents(&store, OTHER));
        let commits = store.status().unwrap().commits;
        for ack in &acked {
            // The last line may be cut in half by the kill.
            let Some((seq, key)) = ack.split_once(' ').filter(|(_, key)| key.len() == 19) else {
                continue;
            };
            assert!(
                rows.contains_key(key.as_bytes()),
                "round {round}: {key} was acknowledged"
            );
            assert!(
                seq.parse::<u64>().unwrap() <= commits,
                "round {round}: commit {seq} is lost"
            );
        }
        assert!(
            rows.keys().eq(twins.keys()),
            "round {round}: half a transaction"
        );
        assert_eq!(
            commits,
            rows.len() as u64,
            "round {round}: commits are numbered without gaps"
        );
        store.close().await.unwrap();
        assert!(
            !has_room || db_bytes() < killed_bytes,
            "round {round}: the room is cut off"
        );
    }
    println!("{} acknowledged, {with_room} times with room", acked.len());
    assert!(with_room > 0);
    assert!(acked.len() >= 20);
}

#[tokio::test]
#[ignore = "child process of the tests below"]
async fn child_finds_the_store_locked() {
    match Store::open(StoreOptions::journal(given_dir())) {
        Err(StoreError::Locked { pid, .. }) => println!("\nLOCKED {}", pid.unwrap()),
        other => println!("\nOPENED {other:?}"),
    }
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let me = std::process::id();
    match Store::open(StoreOptions::journal(dir.path())) {
        Err(StoreError::Locked { pid, .. }) => assert_eq!(pid, Some(me)),
        other => panic!("{other:?}"),
    }
    let output = command("child_finds_the_store_locked", dir.path())
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains(&format!("\nLOCKED {me}\n")), "{output}");

    store.close().await.unwrap();
    for _ in 0..20 {
        open(dir.path()).close().await.unwrap();
    }
}

/// `ulimit` bounds the size of a file; the shell hands the ignored signal on to the child.
#[tokio::test]
async fn a_full_disk_is_said_and_what_was_acknowledged_stays() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().await.unwrap();
    let child = command("child_commits_until_it_is_killed", dir.path());
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 6000; exec \"$0\" \"$@\""])
        .arg(child.get_program())
        .args(child.get_args())
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let acked: Vec<_> = output
        .lines()
        .filter_map(|line| line.strip_prefix("ACK "))
        .collect();
    let errors: Vec<_> = output
        .lines()
        .filter_map(|line| line.strip_prefix("ERROR "))
        .collect();
    assert!(acked.len() > 100, "{output}");
    assert_eq!(errors.len(), 8, "{errors:?}");
    assert!(
        errors.iter().any(|error| error.starts_with("Full")),
        "{errors:?}"
    );
    let typed = |error: &&str| error.starts_with("Full") || error.starts_with("Failed");
    assert!(errors.iter().all(typed), "{errors:?}");

    let store = open(dir.path());
    let rows = contents(&store, ROWS);
    for ack in acked {
        let (_, key) = ack.split_once(' ').unwrap();
        assert!(rows.contains_key(key.as_bytes()), "{key} was acknowledged");
    }
    store
        .commit(Txn::new().put(ROWS, "after", "v"))
        .await
        .unwrap();
}
