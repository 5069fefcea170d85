//! A goal whose definition is lost waits, says so, and can still be ended.

use super::support::{Bed, PATIENCE, result, show, submit};
use detent_bus::call;
use detent_node::Node;
use detent_protocol::messages::{Control, Controlled, Verb};
use detent_protocol::result::GoalResult;
use detent_protocol::{Code, Fault, GoalId, TenantId, subject};
use detent_store::{Scan, Store, StoreOptions, Table, Txn};
use detent_tool_executor::FnKind;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

const TOOLS: &str = "[[tool]]\nname = \"hold\"\neffect = \"read\"\nkind = \"fn\"\n";

/// The deadline is that of the agent, milliseconds.
fn bed(deadline_ms: u64) -> Bed {
    let agent = format!(
        "name = \"a\"\ntools = [\"hold\"]\ninput_schema = true\nresult_schema = true\n\
         deadline_ms = {deadline_ms}\n[[playbook.steps]]\nid = \"h\"\ntool = \"hold\"\n\
         [playbook.result]\nx = {{ \"$step\" = \"h\" }}\n"
    );
    Bed::new(&[
        (
            "detent.toml",
            "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n".into(),
        ),
        ("a.toml", agent),
        ("t.toml", TOOLS.into()),
    ])
}

async fn node(bed: &Bed) -> Node {
    let hold = FnKind::new("fn", |_| async { std::future::pending().await });
    bed.node(&["node.drain_ms=0"], Arc::new(hold)).await
}

/// A goal in flight, and its node stopped and started without the definition.
async fn orphaned(bed: &Bed) -> (Node, GoalId) {
    let first = node(bed).await;
    let goal = submit(&first, "a", json!({})).await.unwrap().goal;
    first.stop().await;
    forget_definitions(&bed.path("data")).await;
    // Today's file has another version: the old one is really gone.
    let agent = std::fs::read_to_string(bed.path("a.toml")).unwrap();
    std::fs::write(
        bed.path("a.toml"),
        format!("description = \"changed\"\n{agent}"),
    )
    .unwrap();
    (node(bed).await, goal)
}

async fn forget_definitions(data: &Path) {
    const DEFINITIONS: Table = Table::new("definition");
    let store = Store::open(StoreOptions::journal(data.join("store"))).unwrap();
    let rows = store.scan(DEFINITIONS, &Scan::prefix(b"", 100)).unwrap();
    assert!(!rows.is_empty());
    for (key, _) in rows {
        store
            .commit(Txn::new().delete(DEFINITIONS, key))
            .await
            .unwrap();
    }
    store.close().await.unwrap();
}

async fn control(node: &Node, goal: GoalId, verb: Verb) -> Result<Controlled, Fault> {
    let tenant = TenantId::default();
    let subject = subject::steer(&tenant, &goal);
    let by = "test".to_owned();
    let control = Control {
        tenant,
        goal,
        by,
        verb,
    };
    call(&*node.bus().messages, &subject, &control, PATIENCE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_says_so_and_can_be_cancelled() {
    let bed = bed(600_000);
    let (node, goal) = orphaned(&bed).await;
    let fault = control(&node, goal, Verb::Pause).await.unwrap_err();
    assert_eq!(fault.code, Code::ReplayMismatch);
    assert_eq!(show(&node, goal).await.result, None);
    let reason = "its definition is lost".to_owned();
    control(&node, goal, Verb::Cancel { reason }).await.unwrap();
    let GoalResult::Cancelled { receipt } = result(&node, goal).await else {
        panic!("not cancelled");
    };
    assert_eq!(receipt.confirmed.len(), 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_deadline_ends_it() {
    let bed = bed(3_000);
    let (node, goal) = orphaned(&bed).await;
    let GoalResult::Failed { error_code, .. } = result(&node, goal).await else {
        panic!("not failed");
    };
    assert_eq!(error_code, Code::DeadlineExceeded);
    node.stop().await;
}
