//! Goals that have ended are forgotten, and answer as before.

use super::support::{Bed, PATIENCE, code, events, result, show};
use detent_bus::call;
use detent_node::{Node, open_offline};
use detent_orchestrator::GoalState;
use detent_protocol::envelope::Message;
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::messages::{Answer, Ask, Control, Controlled, Query, Verb};
use detent_protocol::{Code, Fault, GoalId, TenantId, subject};
use detent_tool_executor::{FnKind, Invocation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TOOLS: &str = r#"
[[tool]]
name = "post"
effect = "idempotent"
kind = "fn"
identity = ["/reference"]
[tool.probe]
probe = "file"
output_at = "/json"
[tool.probe.params]
path = { "$concat" = ["data:posted-", { "$args" = "/reference" }] }
parse = "json"
[tool.probe.schema]
required = ["exists", "json"]
properties.exists = { const = true }
"#;

const AGENT: &str = r#"
name = "a"
tools = ["post"]
input_schema = true
result_schema = true
[[playbook.steps]]
id = "post"
tool = "post"
args = { reference = { "$meta" = "goal_id" } }
[playbook.result]
number = { "$step" = "post", at = "/number" }
"#;

const AT_ONCE: &[&str] = &["retention.journal_ms=0"];
const NEVER: &[&str] = &["retention.on=false"];

fn bed() -> Bed {
    let config = "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n";
    Bed::new(&[
        ("detent.toml", config.into()),
        ("a.toml", AGENT.into()),
        ("t.toml", TOOLS.into()),
    ])
}

/// The effect is a file beside the store; a file in the work folder is left too.
async fn start(bed: &Bed, set: &[&str]) -> Node {
    let data = bed.path("data");
    let post = move |call: Invocation| {
        let data = data.clone();
        async move {
            std::fs::create_dir_all(&call.work_dir).unwrap();
            std::fs::write(call.work_dir.join("left"), "behind").unwrap();
            let reference = call.args["reference"].as_str().unwrap().to_owned();
            std::fs::write(data.join(format!("posted-{reference}")), r#"{"number": 7}"#).unwrap();
            Ok(json!({"number": 7}))
        }
    };
    let kind = FnKind::new("fn", post);
    bed.node(set, Arc::new(kind)).await
}

async fn ask<Q: Message, A: serde::de::DeserializeOwned>(
    node: &Node,
    subject: &str,
    question: &Q,
) -> Result<A, Fault> {
    call(&*node.bus().messages, subject, question, PATIENCE).await
}

fn order(key: &str, input: Value) -> Submit {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let key = json!({"key": key, "issued_at_ms": now.as_millis() as u64});
    let submit = json!({"agent": "a", "input": input, "key": key});
    serde_json::from_value(submit).unwrap()
}

async fn submit(node: &Node, order: &Submit) -> Result<Accepted, Fault> {
    let subject = subject::submit(&order.tenant, &order.agent);
    ask(node, &subject, order).await
}

async fn query(node: &Node, ask_for: Ask) -> Result<Answer, Fault> {
    let tenant = TenantId::default();
    let subject = subject::query(&tenant);
    let query = Query {
        tenant,
        ask: ask_for,
    };
    ask(node, &subject, &query).await
}

/// Waits until its work folder, the last of it, is gone.
async fn forgotten(bed: &Bed, node: &Node, goal: GoalId) {
    let (begin, work) = (Instant::now(), bed.path("data/work"));
    let work = work.join(goal.to_string());
    while work.exists() || show(node, goal).await.archive.is_none() {
        assert!(begin.elapsed() < PATIENCE, "{goal} was not forgotten");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Rows of the tables that have something of goals.
async fn rows(bed: &Bed) -> BTreeMap<String, u64> {
    let (store, _bus) = open_offline(&bed.path("data")).unwrap();
    let rows = store.status().unwrap().rows_by_table;
    // The next node needs it.
    store.close().await.unwrap();
    let of_goals = |table: &String| {
        let prefixes = ["journal.", "slot", "executor."];
        prefixes.iter().any(|prefix| table.starts_with(prefix))
    };
    rows.into_iter()
        .filter(|(table, _)| of_goals(table))
        .collect()
}

async fn export(node: &Node, goal: GoalId) -> Vec<Vec<u8>> {
    let mut entries: Vec<Vec<u8>> = Vec::new();
    loop {
        let from = entries.len() as u64 + 1;
        let page = query(node, Ask::Export { goal, from }).await.unwrap();
        let Answer::Entries { entries: page } = page else {
            panic!("{page:?}");
        };
        if page.is_empty() {
            return entries;
        }
        entries.extend(page.into_iter().map(|entry| entry.into_vec()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_goal_answers_as_before() {
    let bed = bed();
    let node = start(&bed, AT_ONCE).await;
    let first = order("one", json!({"n": 1}));
    let goal = submit(&node, &first).await.unwrap().goal;
    let ended = result(&node, goal).await;
    assert_eq!(code(&ended), None);
    forgotten(&bed, &node, goal).await;

    for _ in 0..100 {
        let again = submit(&node, &first).await.unwrap();
        assert!(again.duplicate);
        assert_eq!((again.goal, again.result.as_ref()), (goal, Some(&ended)));
    }
    let other = submit(&node, &order("one", json!({"n": 2}))).await;
    assert_eq!(other.unwrap_err().code, Code::IdempotencyConflict);

    let view = show(&node, goal).await;
    assert_eq!(view.result.as_ref(), Some(&ended));
    assert_eq!((view.line.steps_done, view.line.steps), (1, 1));
    let list = Ask::List {
        open_only: false,
        after: None,
        limit: 10,
    };
    let Answer::Goals { goals } = query(&node, list).await.unwrap() else {
        panic!("no list");
    };
    assert_eq!(goals, [view.line]);

    // From the first to the last, without a gap, and none after that.
    let (kinds, over) = events(&node, goal, 1).await;
    assert!(over && kinds.first().is_some_and(|kind| kind == "accepted"));
    assert!(kinds.last().is_some_and(|kind| kind == "ended"));
    for from in 1..=kinds.len() as u64 + 2 {
        let (rest, over) = events(&node, goal, from).await;
        assert!(over);
        assert_eq!(rest, kinds[kinds.len().min(from as usize - 1)..], "{from}");
    }

    let control = Control {
        tenant: TenantId::default(),
        goal,
        by: "ann".into(),
        verb: Verb::Pause,
    };
    let subject = subject::steer(&control.tenant, &goal);
    let refused = ask::<_, Controlled>(&node, &subject, &control).await;
    assert!(refused.unwrap_err().message.contains("has ended"));

    let mut state = GoalState::new(TenantId::default(), goal);
    let mut hash = GENESIS;
    for bytes in export(&node, goal).await {
        let (entry, next) = Entry::decode(&bytes, &hash).unwrap();
        (hash, _) = (next, state.fold_entry(&entry));
    }
    assert_eq!(state.ended.as_deref(), Some(&ended));
    assert!(state.forgotten.is_none());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_kept_is_forgotten_when_it_may_be() {
    const GOALS: u64 = 5;
    let bed = bed();
    let node = start(&bed, NEVER).await;
    let mut before = Vec::new();
    for n in 0..GOALS {
        let order = order(&format!("key-{n}"), json!({"n": n}));
        let goal = submit(&node, &order).await.unwrap().goal;
        let ended = result(&node, goal).await;
        let exported = export(&node, goal).await;
        before.push((order, goal, ended, exported));
    }
    node.stop().await;
    let kept = rows(&bed).await;
    let entries: usize = before.iter().map(|(.., entries)| entries.len()).sum();
    assert_eq!(kept["journal.entry"], entries as u64);
    assert_eq!((kept["slot"], kept["executor.run"]), (GOALS, GOALS));

    let node = start(&bed, AT_ONCE).await;
    for (order, goal, ended, exported) in &before {
        forgotten(&bed, &node, *goal).await;
        let again = submit(&node, order).await.unwrap();
        assert_eq!((again.goal, again.result.as_ref()), (*goal, Some(ended)));
        assert_eq!(&export(&node, *goal).await, exported, "byte by byte");
    }
    node.stop().await;
    let now = rows(&bed).await;
    for table in [
        "journal.entry",
        "journal.head",
        "journal.floor",
        "journal.kept",
    ] {
        assert_eq!(now[table], GOALS, "{table}");
    }
    for table in ["journal.left", "journal.open", "slot", "executor.run"] {
        assert_eq!(now.get(table), None, "{table}");
    }

    // A node that keeps everything still knows what is gone.
    let node = start(&bed, NEVER).await;
    for (order, goal, ended, exported) in &before {
        let again = submit(&node, order).await.unwrap();
        assert_eq!((again.goal, again.result.as_ref()), (*goal, Some(ended)));
        assert_eq!(&export(&node, *goal).await, exported);
    }
    node.stop().await;
}
