//! A node on a folder of its own, and what a publisher does with it.

use detent_bus::{GoalKey, call};
use detent_node::{Config, Flags, Node, NodeParts};
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::{Answer, Ask, GoalView, Query};
use detent_protocol::result::GoalResult;
use detent_protocol::{AgentName, Fault, GoalId, TenantId, subject};
use detent_sandbox::KeeperCommand;
use detent_tool_executor::ToolKind;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything; far beyond what a loaded machine takes.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Files of a configuration, and a data directory.
pub struct Bed {
    dir: TempDir,
}

impl Bed {
    pub fn new(files: &[(&str, String)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a node with these settings and this kind of tools.
    pub async fn node(&self, set: &[&str], kind: Arc<dyn ToolKind>) -> Node {
        let mut all = vec!["node.http_listen=".to_owned()];
        all.extend(set.iter().map(ToString::to_string));
        let flags = Flags {
            file: Some(self.path("detent.toml")),
            set: all,
        };
        let config = Config::load(&flags, &|_| None).unwrap();
        let parts = NodeParts {
            config,
            data_dir: self.path("data"),
            // No tool here is a process: there is nobody to keep.
            keeper: KeeperCommand::this_program(&[]),
            kinds: vec![kind],
            socket: false,
        };
        Node::start(parts).await.unwrap()
    }
}

pub fn key(goal: GoalId) -> GoalKey {
    GoalKey {
        tenant: TenantId::default(),
        goal,
    }
}

pub async fn submit(node: &Node, agent: &str, input: Value) -> Result<Accepted, Fault> {
    let submit: Submit = serde_json::from_value(json!({"agent": agent, "input": input})).unwrap();
    let subject = subject::submit(&submit.tenant, &AgentName::new(agent).unwrap());
    call(&*node.bus().messages, &subject, &submit, PATIENCE).await
}

pub async fn show(node: &Node, goal: GoalId) -> GoalView {
    let tenant = TenantId::default();
    let subject = subject::query(&tenant);
    let ask = Ask::Show { goal };
    let query = Query { tenant, ask };
    match call(&*node.bus().messages, &subject, &query, PATIENCE)
        .await
        .unwrap()
    {
        Answer::Goal { goal } => *goal,
        other => panic!("{other:?}"),
    }
}

/// Kinds of a goal's events so far; waits a while where there is none from `from` on.
pub async fn events(node: &Node, goal: GoalId, from: u64) -> (Vec<String>, bool) {
    let tenant = TenantId::default();
    let subject = subject::query(&tenant);
    let wait_ms = 5_000;
    let ask = Ask::Events {
        goal,
        from,
        wait_ms,
    };
    let query = Query { tenant, ask };
    match call(&*node.bus().messages, &subject, &query, PATIENCE)
        .await
        .unwrap()
    {
        Answer::Events { events, ended } => (events.into_iter().map(|e| e.kind).collect(), ended),
        other => panic!("{other:?}"),
    }
}

/// Waits for a goal's result.
pub async fn result(node: &Node, goal: GoalId) -> GoalResult {
    let begin = Instant::now();
    let mut from = 1;
    loop {
        let (seen, ended) = events(node, goal, from).await;
        from += seen.len() as u64;
        if ended {
            return show(node, goal).await.result.unwrap();
        }
        assert!(begin.elapsed() < PATIENCE, "{:#?}", show(node, goal).await);
    }
}

/// The code of a goal that failed; `None` for one that succeeded.
pub fn code(result: &GoalResult) -> Option<&'static str> {
    match result {
        GoalResult::Succeeded { .. } => None,
        GoalResult::Failed { error_code, .. } => Some(error_code.as_str()),
        GoalResult::Cancelled { .. } => panic!("cancelled: {result:?}"),
    }
}
