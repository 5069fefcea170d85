//! Nodes on a broker of their own: one key is one goal whatever is restarted, two nodes
//! share the work and neither loses its own, followers see every number once.

use detent_chaos_tests::binary;
use detent_chaos_tests::broker::Broker;
use detent_chaos_tests::check;
use detent_chaos_tests::process::{NodeProcess, PATIENCE, Start, wait_for, was_killed};
use detent_chaos_tests::site::{Order, Site, goal_id};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn root() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("detent-nats-")
        .tempdir()
        .unwrap()
}

fn site(root: &Path, name: &str, broker: &Broker) -> Site {
    let mut site = Site::new(&root.join(name)).unwrap();
    site.nats = Some(broker.url());
    site
}

fn up(site: &Site, name: &str) -> NodeProcess {
    let name = format!("node.name={name}");
    let mut node = NodeProcess::start(site, &["up", "--set", &name], None).unwrap();
    match node.wait_line("ready").unwrap() {
        Start::Line(_) => node,
        Start::Ended(status, fault) => panic!("{status}, {fault:?}"),
    }
}

fn python(program: &Path, args: &[&str]) -> Child {
    let tools = binary::workspace().join("target/tools/python");
    Command::new("python3")
        .arg(program)
        .args(args)
        .env("PATH", binary::path())
        .env("PYTHONPATH", tools)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn lines(child: Child) -> Vec<Value> {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Keyed {
    program: PathBuf,
    broker: String,
    input: String,
    progress: PathBuf,
}

impl Keyed {
    fn submit(&self, times: u32) -> Child {
        let (times, progress) = (times.to_string(), self.progress.display().to_string());
        let args = [
            "--nats",
            &self.broker,
            "--input",
            &self.input,
            "--key",
            "the-one",
            "--times",
            &times,
            "--connections",
            "20",
            "--progress",
            &progress,
        ];
        python(&self.program, &args)
    }

    fn answers(&self) -> u64 {
        let text = std::fs::read_to_string(&self.progress).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

/// Goals that were named and how often, and the codes of refusals that stand.
fn named(child: Child) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let lines = lines(child);
    let answers = lines.iter().find(|l| l["type"] == "answers").unwrap();
    let map = |name: &str| serde_json::from_value(answers[name].clone()).unwrap();
    (map("goals"), map("codes"))
}

#[test]
fn one_key_is_one_goal_whatever_is_restarted() {
    let root = root();
    let mut broker = Broker::start(&root.path().join("broker")).unwrap();
    let mut site = site(root.path(), "site", &broker);
    // Forgotten as soon as it has ended, so the key is answered from a tombstone too.
    site.forgets = true;
    let input = |amount: u64| {
        serde_json::json!({"home": site.home, "amount": amount, "hold_ms": 2_000}).to_string()
    };
    let keyed = Keyed {
        program: binary::workspace().join("chaos-tests/clients/same_key.py"),
        broker: broker.url(),
        input: input(1_000),
        progress: root.path().join("progress"),
    };
    let mut node = up(&site, "one");
    let asking = keyed.submit(600);
    until("the first answers", || keyed.answers() >= 50);
    assert!(was_killed(node.kill().unwrap()));
    let mut node = up(&site, "one");
    let before = keyed.answers();
    until("answers after the node's restart", || {
        keyed.answers() >= (before + 20).min(600)
    });
    broker.kill().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    broker.restart().unwrap();
    let (goals, codes) = named(asking);
    assert_eq!(goals.len(), 1, "{goals:?}");
    let (goal, count) = goals.iter().next().unwrap();
    assert_eq!(*count, 600, "{codes:?}");

    // After its end, and after it was forgotten.
    let ended = wait_for(&mut node, "the goal to be forgotten", || {
        let list = site.list()?;
        Ok(list.iter().all(|l| l.archived).then_some(()))
    });
    assert!(ended.unwrap().is_some(), "the node ended");
    let (again, _) = named(keyed.submit(400));
    assert_eq!(again, BTreeMap::from([(goal.clone(), 400)]));
    // Another body under the same key.
    let other = Keyed {
        input: input(1_001),
        ..keyed
    };
    let (none, codes) = named(other.submit(20));
    assert!(none.is_empty());
    assert_eq!(codes, BTreeMap::from([("IDEMPOTENCY_CONFLICT".into(), 20)]));
    assert_eq!(site.list().unwrap().len(), 1);
    assert!(node.terminate().unwrap().success());
    let ledger = rusqlite::Connection::open(site.home.join("ledger.db")).unwrap();
    let rows = ledger.query_row("SELECT count(*) FROM ledger", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(rows.unwrap(), 1);
}

#[test]
fn two_nodes_share_the_work_and_each_ends_its_own_after_a_kill() {
    let root = root();
    let broker = Broker::start(&root.path().join("broker")).unwrap();
    let a = site(root.path(), "a", &broker);
    let b = Site {
        home: a.home.clone(),
        ..site(root.path(), "b", &broker)
    };
    let (mut first, mut second) = (up(&a, "a"), up(&b, "b"));
    let mut orders: Vec<Order> = (0..12)
        .map(|n| a.order("light", n, 1_500).unwrap())
        .collect();
    for order in &mut orders {
        let accepted = wait_for(&mut first, "an answer", || {
            Ok(a.submit(order)?.then_some(()))
        });
        assert!(accepted.unwrap().is_some());
    }
    let goals: Vec<_> = orders.iter().map(|o| o.goal.unwrap()).collect();
    let owners: BTreeMap<String, usize> = goals.iter().fold(BTreeMap::new(), |mut all, goal| {
        let owner = a.show(*goal).unwrap().owner.unwrap().to_string();
        *all.entry(owner).or_default() += 1;
        all
    });
    assert_eq!(owners.keys().collect::<Vec<_>>(), ["a", "b"], "{owners:?}");

    assert!(was_killed(first.kill().unwrap()));
    // What the other owns goes on; what the dead one owned waits for it, and says so.
    let ended = |site: &Site| {
        let list = site.list().unwrap();
        list.iter().filter(|l| l.status.is_some()).count()
    };
    until("the other node's goals", || ended(&b) >= owners["b"]);
    let mut first = up(&a, "a");
    until("all goals", || ended(&b) == orders.len());
    // A control message for a goal of the other node, whichever of the two gets it.
    let more = a.order("light", 100, 8_000).map(|mut order| {
        assert!(a.submit(&mut order).unwrap());
        order.goal.unwrap()
    });
    let more = more.unwrap().to_string();
    for site in [&a, &b, &a, &b] {
        site.ask(&["goals", "show", &more]).unwrap();
    }
    let cancelled = b.say(&["goals", "cancel", &more]).unwrap();
    assert_eq!(cancelled.code, Some(0), "{}", cancelled.errors);
    let status = a.show(goal_id(&more.clone().into()).unwrap()).unwrap();
    assert_eq!(status.line.status.as_deref(), Some("cancelled"));

    let rows = check::started(&a.home.join("starts.log")).unwrap();
    let mut once: Vec<_> = rows.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), rows.len(), "an attempt started twice");
    for goal in goals {
        let replayed = a.export_and_replay(goal).unwrap();
        assert_eq!(replayed.count("ended"), 1);
        assert!(replayed.result.is_some_and(|r| r.status() == "succeeded"));
    }
    assert!(second.terminate().unwrap().success());
    assert!(first.terminate().unwrap().success());
}

#[test]
fn a_second_node_of_the_same_name_is_refused() {
    let root = root();
    let broker = Broker::start(&root.path().join("broker")).unwrap();
    let (a, b) = (
        site(root.path(), "a", &broker),
        site(root.path(), "b", &broker),
    );
    let mut node = up(&a, "same");
    let args = ["up", "--set", "node.name=same"];
    let mut other = NodeProcess::start(&b, &args, None).unwrap();
    match other.wait_line("ready").unwrap() {
        Start::Ended(status, fault) => {
            assert_eq!(status.code(), Some(4), "{fault:?}");
            assert_eq!(fault.unwrap()["fault"]["code"], "NODE_NAME_TAKEN");
        }
        Start::Line(_) => panic!("two nodes of one name"),
    }
    // Its own name is its own also right after a kill.
    assert!(was_killed(node.kill().unwrap()));
    let mut node = up(&a, "same");
    assert!(node.terminate().unwrap().success());
}

/// The followers of the docs' examples check by themselves that numbers have no gaps.
#[test]
fn a_follower_sees_each_number_once_while_all_around_it_dies() {
    let root = root();
    let mut broker = Broker::start(&root.path().join("broker")).unwrap();
    let site = site(root.path(), "site", &broker);
    let mut node = up(&site, "one");
    let input = serde_json::json!({"home": site.home, "amount": 7, "hold_ms": 6_000});
    let args = [
        "--nats",
        &broker.url(),
        "--agent",
        "light",
        "--input",
        &input.to_string(),
        "--key",
        "followed",
    ];
    let example = binary::workspace().join("docs/examples/python/publish.py");
    let followers: Vec<_> = (0..3).map(|_| python(&example, &args)).collect();
    let log = site.home.join("starts.log");
    until("the tool", || !check::started(&log).unwrap().is_empty());
    assert!(was_killed(node.kill().unwrap()));
    let mut node = up(&site, "one");
    broker.terminate().unwrap();
    broker.restart().unwrap();
    for follower in followers {
        let said = lines(follower);
        let numbers: Vec<_> = said
            .iter()
            .filter(|l| l["type"] == "event")
            .map(|e| e["n"].as_u64().unwrap())
            .collect();
        assert!(
            numbers.iter().copied().eq(1..=numbers.len() as u64),
            "{numbers:?}"
        );
        let result = said.iter().find(|l| l["type"] == "result").unwrap();
        assert_eq!(result["status"], "succeeded", "{result}");
    }
    assert!(node.terminate().unwrap().success());
}
