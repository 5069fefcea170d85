//! Admission: a node that is full says so, and loses nothing that it took.

use super::support::{Bed, code, result, submit};
use detent_protocol::Code;
use detent_tool_executor::FnKind;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;

const AGENT: &str = r#"
name = "a"
tools = ["slow"]
input_schema = true
result_schema = true
[[playbook.steps]]
id = "s"
tool = "slow"
[playbook.result]
out = { "$step" = "s" }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_goal_more_than_the_limit_is_refused_with_a_time_to_come_back() {
    let tools = "[[tool]]\nname = \"slow\"\neffect = \"read\"\nkind = \"fn\"\n";
    let bed = Bed::new(&[
        (
            "detent.toml",
            "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n".into(),
        ),
        ("a.toml", AGENT.into()),
        ("t.toml", tools.into()),
    ]);
    let go = Arc::new(Semaphore::new(0));
    let held = go.clone();
    let kind = FnKind::new("fn", move |_| {
        let held = held.clone();
        async move {
            held.acquire().await.unwrap().forget();
            Ok(json!({"done": true}))
        }
    });
    let node = bed
        .node(&["node.goals_in_flight_max=5"], Arc::new(kind))
        .await;
    let mut accepted = Vec::new();
    for i in 0..5 {
        accepted.push(submit(&node, "a", json!({"i": i})).await.unwrap().goal);
    }
    for _ in 0..3 {
        let fault = submit(&node, "a", json!({"i": 5})).await.unwrap_err();
        assert_eq!(fault.code, Code::IntakeOverloaded);
        assert!(fault.retry_after_ms.is_some_and(|ms| ms > 0), "{fault:?}");
    }
    assert_eq!(node.in_flight(), 5);
    go.add_permits(5);
    for goal in accepted {
        assert_eq!(code(&result(&node, goal).await), None);
    }
    // There is room again; a publisher that waited as told is taken.
    go.add_permits(1);
    let begin = std::time::Instant::now();
    let late = loop {
        match submit(&node, "a", json!({"i": 5})).await {
            Ok(accepted) => break accepted.goal,
            Err(fault) => {
                assert_eq!(fault.code, Code::IntakeOverloaded);
                assert!(begin.elapsed() < super::support::PATIENCE);
                let wait = fault.retry_after_ms.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
            }
        }
    };
    assert_eq!(code(&result(&node, late).await), None);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_without_any_budget_ends_and_gives_its_place_back() {
    let tools = "[[tool]]\nname = \"slow\"\neffect = \"read\"\nkind = \"fn\"\n";
    let bed = Bed::new(&[
        (
            "detent.toml",
            "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n".into(),
        ),
        ("a.toml", format!("{AGENT}[budget]\nplan_calls = 0\n")),
        ("t.toml", tools.into()),
    ]);
    let kind = FnKind::new("fn", |_| async { Ok(json!({})) });
    let node = bed
        .node(&["node.goals_in_flight_max=1"], Arc::new(kind))
        .await;
    let goal = submit(&node, "a", json!({})).await.unwrap().goal;
    let ended = result(&node, goal).await;
    assert_eq!(code(&ended), Some("BUDGET_EXHAUSTED"));
    let begin = std::time::Instant::now();
    while node.in_flight() > 0 {
        assert!(
            begin.elapsed() < super::support::PATIENCE,
            "its place is lost"
        );
        tokio::task::yield_now().await;
    }
    // The acceptance is in the audit log like every other transition.
    node.stop().await;
    let audit = std::fs::read_to_string(bed.path("data/audit.log")).unwrap();
    assert!(audit.contains("\"new_goal\""), "{audit}");
}
