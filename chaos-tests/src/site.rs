//! One data directory, and the commands that a user would type there.

use crate::{Context, Result, binary};
use detent_protocol::GoalId;
use detent_protocol::messages::{GoalEvent, GoalLine, GoalView};
use detent_protocol::result::GoalResult;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A data directory with all around it.
#[derive(Debug, Clone)]
pub struct Site {
    /// Folder of the experiment: goals' files, logs, exports.
    pub root: PathBuf,
    /// The node's data directory.
    pub data: PathBuf,
    /// Where the tools leave what they did; outside the data directory.
    pub home: PathBuf,
    /// The configuration file.
    pub config: PathBuf,
    /// The broker that its node uses; `None`: the bus of one process.
    pub nats: Option<String>,
    /// Goals are forgotten as soon as they have ended.
    pub forgets: bool,
    /// What every command line starts with, e.g. `nsenter …`; empty: nothing.
    pub prefix: Vec<OsString>,
}

/// What a command printed and how it ended.
#[derive(Debug, Clone)]
pub struct Said {
    /// Exit code; `None` for a signal.
    pub code: Option<i32>,
    /// The JSON objects on stdout.
    pub lines: Vec<Value>,
    /// What stood on stderr.
    pub errors: String,
}

impl Said {
    /// The first object of this `type`.
    pub fn of_type(&self, kind: &str) -> Option<&Value> {
        self.lines.iter().find(|l| l["type"] == kind)
    }

    /// The code of the fault that was printed, if any.
    pub fn fault_code(&self) -> Option<&str> {
        self.of_type("fault")?["fault"]["code"].as_str()
    }
}

/// A goal to be submitted, again and again, under one key.
#[derive(Debug, Clone)]
pub struct Order {
    /// Its idempotency key.
    pub key: String,
    /// Its file.
    pub file: PathBuf,
    /// The number that has to come back.
    pub amount: i64,
    /// The id under which it was accepted, once that was answered.
    pub goal: Option<GoalId>,
}

/// An exported journal, replayed without a node.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// All events.
    pub events: Vec<GoalEvent>,
    /// When each later life of the node took the goal over, Unix milliseconds.
    pub takeovers_ms: Vec<u64>,
    /// The result it ends with.
    pub result: Option<GoalResult>,
}

impl Replayed {
    /// How many events are of this kind.
    pub fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|e| e.kind == kind).count()
    }
}

impl Site {
    /// A site below `root`, with this crate's own agents.
    ///
    /// # Errors
    /// The folders can't be made.
    pub fn new(root: &Path) -> Result<Self> {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/detent.toml");
        Self::with_config(root, config)
    }

    /// A site below `root` with another configuration.
    ///
    /// # Errors
    /// The folders can't be made.
    pub fn with_config(root: &Path, config: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(root.join("home")).context("making the site")?;
        let root = root.canonicalize().context("making the site")?;
        Ok(Self {
            data: root.join("data"),
            home: root.join("home"),
            nats: None,
            forgets: false,
            prefix: Vec::new(),
            root,
            config,
        })
    }

    /// A command line of `detent`, with configuration, data directory and JSON output.
    ///
    /// # Errors
    /// The program can't be built.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut words = self.prefix.clone();
        words.push(binary::detent()?.into_os_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(args);
        command
            .arg("--config")
            .arg(&self.config)
            .arg("--data")
            .arg(&self.data)
            .args(["-o", "json"])
            .current_dir(&self.root)
            .env("PATH", binary::path())
            .env_remove("DETENT_NATS_URL")
            .env_remove("DETENT_RETENTION_JOURNAL_MS")
            .env_remove("DETENT_FAILPOINT")
            .env_remove("DETENT_FAILPOINT_LOG")
            .env_remove("DETENT_SEED")
            .stdin(Stdio::null());
        if let Some(url) = &self.nats {
            command.env("DETENT_NATS_URL", url);
        }
        if self.forgets {
            command.env("DETENT_RETENTION_JOURNAL_MS", "0");
        }
        Ok(command)
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// It can't be started.
    pub fn say(&self, args: &[&str]) -> Result<Said> {
        let output = self.command(args)?.output().context(args.join(" "))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(Said {
            code: output.status.code(),
            lines: text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Like [`Site::say`], for what has to end with exit code 0.
    ///
    /// # Errors
    /// It ended otherwise.
    pub fn ask(&self, args: &[&str]) -> Result<Said> {
        let said = self.say(args)?;
        if said.code == Some(0) {
            return Ok(said);
        }
        let (words, code, errors) = (args.join(" "), said.code, said.errors.trim());
        Err(format!("detent {words}: exit code {code:?}: {errors}"))
    }

    /// Writes the file of a goal for one of this crate's agents.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn order(&self, agent: &str, number: u64, hold_ms: u64) -> Result<Order> {
        let amount = 1_000 + i64::try_from(number).unwrap_or_default();
        let input = json!({"home": self.home, "amount": amount, "hold_ms": hold_ms});
        let file = self.root.join(format!("goal-{number}.json"));
        let goal = json!({"agent": agent, "input": input});
        std::fs::write(&file, goal.to_string()).context(file.display())?;
        Ok(Order {
            key: format!("order-{number}"),
            file,
            amount,
            goal: None,
        })
    }

    /// Submits a goal to the running node. `Ok(false)`: no answer, e.g. because the
    /// node died; the same order may be submitted again.
    ///
    /// # Errors
    /// The node answered with another goal than before for the same key.
    pub fn submit(&self, order: &mut Order) -> Result<bool> {
        let file = order.file.display().to_string();
        let said = self.say(&["submit", &file, "--key", &order.key])?;
        let Some(accepted) = said.of_type("accepted") else {
            return Ok(false);
        };
        let goal = goal_id(&accepted["goal"])?;
        match order.goal {
            // Stays wrong however often it is asked.
            Some(before) if before != goal => {
                let key = &order.key;
                Err(format!("key {key} named goal {before}, and now {goal}"))
            }
            _ => {
                order.goal = Some(goal);
                Ok(true)
            }
        }
    }

    /// All goals.
    ///
    /// # Errors
    /// The command failed.
    pub fn list(&self) -> Result<Vec<GoalLine>> {
        let said = self.ask(&["goals", "list", "--limit", "1000"])?;
        let parse = |line| serde_json::from_value(line).context("a line of the list");
        said.lines.into_iter().map(parse).collect()
    }

    /// One goal.
    ///
    /// # Errors
    /// The command failed.
    pub fn show(&self, goal: GoalId) -> Result<GoalView> {
        let said = self.ask(&["goals", "show", &goal.to_string()])?;
        let line = said.lines.into_iter().next();
        serde_json::from_value(line.unwrap_or_default()).context("goals show")
    }

    /// Exports a goal's journal and replays the file.
    ///
    /// # Errors
    /// One of the commands failed.
    pub fn export_and_replay(&self, goal: GoalId) -> Result<Replayed> {
        let file = self.root.join(format!("{goal}.journal"));
        // A file of an earlier look at the same goal.
        let _ = std::fs::remove_file(&file);
        let file = file.display().to_string();
        self.ask(&["goals", "export", &goal.to_string(), "--to", &file])?;
        replayed(&self.ask(&["replay", &file])?)
    }
}

fn replayed(said: &Said) -> Result<Replayed> {
    let mut replayed = Replayed {
        events: Vec::new(),
        takeovers_ms: Vec::new(),
        result: None,
    };
    for line in &said.lines {
        match line["type"].as_str() {
            Some("event") => {
                let event: GoalEvent =
                    serde_json::from_value(line["event"].clone()).context("an event")?;
                replayed.events.push(event);
            }
            Some("state") => {
                let owned = replayed.events.last().is_some_and(|e| e.kind == "owned");
                if owned && line["epoch"].as_u64() > Some(1) {
                    replayed.takeovers_ms.extend(line["at_ms"].as_u64());
                }
            }
            Some("result") => {
                let result = serde_json::from_value(line["result"].clone());
                replayed.result = Some(result.context("a result")?);
            }
            _ => {}
        }
    }
    Ok(replayed)
}

/// Reads a goal's id.
///
/// # Errors
/// It is none.
pub fn goal_id(value: &Value) -> Result<GoalId> {
    serde_json::from_value(value.clone()).context("a goal's id")
}
