//! Other processes: one that is killed while it commits, one that finds the store locked, one
//! that runs out of space. The child is this test binary itself, started with one test.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{OTHER, ROWS, contents, open, open_small, seeded};
use detent_store::{Store, StoreError, StoreOptions, Txn};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
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

/// What commit `n` of a writer does: the row it puts, how large, and the row it deletes. Small
/// ones mostly, some that fill a large part of the witness, some that do not fit into it.
fn step(seed: u64, writer: u32, n: u32) -> (Vec<u8>, Vec<u8>, Option<Vec<u8>>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ u64::from(writer) << 32 ^ u64::from(n));
    let most = match random.random_range(0..40) {
        0..30 => 600,
        30..37 => 6_000,
        37..39 => 15_000,
        _ => 60_000,
    };
    let key = |n: u32| format!("{writer}/{n:08}").into_bytes();
    let gone = (n % 3 == 2).then(|| key(n - 1));
    (key(n), vec![n as u8; random.random_range(0..most)], gone)
}

/// Four writers; each commit that returned is printed.
#[tokio::test]
#[ignore = "child process of the tests below"]
async fn child_commits_all_sizes_until_it_is_killed() {
    let seed = std::env::var("DETENT_STORE_TEST_SEED").unwrap();
    let seed: u64 = seed.parse().unwrap();
    let store = open_small(&given_dir());
    let mut tasks = JoinSet::new();
    for writer in 0..4 {
        let store = store.clone();
        let from = next_step(&contents(&store, ROWS), writer);
        tasks.spawn(async move {
            for n in from.. {
                let (key, value, gone) = step(seed, writer, n);
                let txn = Txn::new().put(ROWS, key, value);
                let txn = gone
                    .into_iter()
                    .fold(txn, |txn, gone| txn.delete(ROWS, gone));
                store.commit(txn).await.unwrap();
                println!("\nACK {writer} {n:08}");
            }
        });
    }
    tasks.join_all().await;
}

/// The first step of a writer that is not in the store. The last one that is, always has its row.
fn next_step(rows: &common::Rows, writer: u32) -> u32 {
    let prefix = format!("{writer}/").into_bytes();
    let mine = rows.keys().filter(|key| key.starts_with(&prefix));
    let last = mine.max().map(|key| {
        let digits = std::str::from_utf8(&key[prefix.len()..]).unwrap();
        digits.parse::<u32>().unwrap()
    });
    last.map_or(0, |last| last + 1)
}

/// Around the witness many times, killed in the middle: all that was answered is there, byte by
/// byte, and of each writer at most the one commit more that was under way.
#[tokio::test]
async fn kills_amid_commits_of_all_sizes_lose_nothing() {
    let mut random = seeded();
    let seed: u64 = random.random();
    let dir = tempfile::tempdir().unwrap();
    let mut acked = [0; 4];
    for round in 0..15 {
        let mut child = command("child_commits_all_sizes_until_it_is_killed", dir.path())
            .env("DETENT_STORE_TEST_SEED", seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // One reader for all: what it has read ahead counts too.
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut acks = output
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| Some(line.strip_prefix("ACK ")?.to_owned()));
        let wanted = random.random_range(1..250);
        let mut note = |line: String| {
            // The last line may be cut in half by the kill.
            let Some((writer, n)) = line.split_once(' ').filter(|(_, n)| n.len() == 8) else {
                return;
            };
            let writer: usize = writer.parse().unwrap();
            acked[writer] = n.parse::<u32>().unwrap() + 1;
        };
        acks.by_ref().take(wanted).for_each(&mut note);
        child.kill().unwrap();
        acks.for_each(&mut note);
        child.wait().unwrap();

        let store = open_small(dir.path());
        let rows = contents(&store, ROWS);
        let mut expected = common::Rows::new();
        let mut commits = 0;
        for writer in 0..4 {
            let done = next_step(&rows, writer);
            let confirmed = acked[writer as usize];
            let says = format!("round {round}, writer {writer}: {done} done, {confirmed} acked");
            assert!((confirmed..=confirmed + 1).contains(&done), "{says}");
            // What was there and not confirmed is there from now on.
            acked[writer as usize] = done;
            commits += u64::from(done);
            for n in 0..done {
                let (key, value, gone) = step(seed, writer, n);
                expected.insert(key, value);
                gone.into_iter()
                    .for_each(|gone| drop(expected.remove(&gone)));
            }
        }
        assert!(rows == expected, "round {round}: other rows than committed");
        assert_eq!(store.status().unwrap().commits, commits);
        store.close().await.unwrap();
    }
    println!("{acked:?} commits");
    assert!(acked.iter().sum::<u32>() > 100);
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

#[tokio::test]
async fn a_full_disk_is_said_and_what_was_acknowledged_stays() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().await.unwrap();
    fill_up(dir.path(), 6000).await;
}

/// With little space the witness is smaller; the rest is the same.
#[tokio::test]
async fn a_store_that_is_made_on_a_small_disk_does_not_spend_it_on_its_witness() {
    let dir = tempfile::tempdir().unwrap();
    fill_up(dir.path(), 800).await;
    let witness = std::fs::metadata(dir.path().join("WITNESS")).unwrap();
    assert_eq!(witness.len(), 256 << 10);
}

/// Commits until files of so many blocks of 512 bytes are full, and opens the store without that
/// limit. `ulimit` bounds the size of a file; the shell hands the ignored signal on to the child.
async fn fill_up(dir: &Path, blocks_max: u32) {
    let child = command("child_commits_until_it_is_killed", dir);
    let script = format!("trap '' XFSZ; ulimit -f {blocks_max}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(child.get_program())
        .args(child.get_args())
        .env(DIR, dir)
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
    // A checkpoint met the limit, or a commit did; whoever comes later is told why.
    let typed = |error: &&str| error.starts_with("Full") || error.starts_with("Failed");
    assert!(errors.iter().all(typed), "{errors:?}");
    let says_why = |error: &&str| error.contains("FileTooLarge");
    assert!(errors.iter().all(says_why), "{errors:?}");

    let store = open(dir);
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
