//! Requests from outside: what is refused of them, and that what is taken can be kept.

use super::support::{Bed, PATIENCE, code, events, result, show, submit};
use bytes::Bytes;
use detent_bus::call;
use detent_node::Node;
use detent_protocol::envelope::seal;
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::{Answer, Ask, Control, Controlled, Query, Verb};
use detent_protocol::result::GoalResult;
use detent_protocol::{
    AgentName, Code, Fault, GoalId, MESSAGE_BYTES_MAX, QuestionId, TenantId, subject,
};
use detent_tool_executor::FnKind;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Both steps say as much as the goal's input wants; the last one fails as often as that
/// says, at length, and then waits to be let go.
const AGENT: &str = r#"
name = "a"
tools = ["say", "wait"]
input_schema = true
result_schema = true
policy.replans_max = 0
[[playbook.steps]]
id = "first"
tool = "say"
args = { bytes = { "$goal" = "/bytes" } }
[[playbook.steps]]
id = "second"
tool = "say"
after = ["first"]
args = { bytes = { "$goal" = "/bytes" } }
[[playbook.steps]]
id = "last"
tool = "wait"
after = ["second"]
args = { fails = { "$goal" = "/fails" } }
[playbook.result]
first = { "$step" = "first" }
second = { "$step" = "second" }
"#;

/// The result is four times what its step said: less than a goal's values may be as text,
/// more than an entry of the journal as it lies there.
const RECALLS: &str = r#"
name = "recalls"
tools = ["count"]
input_schema = true
result_schema = true
policy.replans_max = 0
[[playbook.steps]]
id = "first"
tool = "count"
[playbook.result]
a = { "$step" = "first" }
b = { "$step" = "first" }
c = { "$step" = "first" }
d = { "$step" = "first" }
"#;

/// The second step is given four times what the first one said: less than a goal's
/// values may be as text, more than a message as it travels.
const SWELLS: &str = r#"
name = "swells"
tools = ["count", "say"]
input_schema = true
result_schema = true
policy.replans_max = 0
[[playbook.steps]]
id = "first"
tool = "count"
[[playbook.steps]]
id = "second"
tool = "say"
args = { bytes = 1, a = { "$step" = "first" }, b = { "$step" = "first" }, c = { "$step" = "first" }, d = { "$step" = "first" } }
[playbook.result]
text = { "$step" = "second", at = "/text" }
"#;

/// A variable that the test runner sets for every test; it stands for a secret.
const VARIABLE: &str = "CARGO_PKG_NAME";
const SECRET: &str = env!("CARGO_PKG_NAME");

fn bed() -> Bed {
    let tool = |name| format!("[[tool]]\nname = \"{name}\"\neffect = \"read\"\nkind = \"fn\"\n");
    let secret = format!(
        "[[tool]]\nname = \"secret\"\neffect = \"read\"\nkind = \"process\"\nrun = {{ command = [\"true\"], env_from = [\"{VARIABLE}\", \"NO_SUCH_VARIABLE\"] }}\n"
    );
    // Its own agent: every tool that any agent can reach gives its secrets.
    let other = "name = \"b\"\ntools = [\"secret\"]\ninput_schema = true\nresult_schema = true\n\
                 [[playbook.steps]]\nid = \"s\"\ntool = \"secret\"\n\
                 [playbook.result]\nout = { \"$step\" = \"s\" }\n";
    Bed::new(&[
        (
            "detent.toml",
            "agents = [\"a.toml\", \"b.toml\", \"f.toml\", \"s.toml\"]\ntools = [\"t.toml\"]\n"
                .into(),
        ),
        ("a.toml", AGENT.into()),
        ("b.toml", other.into()),
        ("f.toml", RECALLS.into()),
        ("s.toml", SWELLS.into()),
        (
            "t.toml",
            tool("say")
                + &tool("count")
                + &tool("wait")
                + "retry = { attempts_max = 20, backoff_ms = 1, backoff_ms_max = 1 }\n"
                + &secret,
        ),
    ])
}

async fn start(bed: &Bed, go: &Arc<Semaphore>) -> Node {
    let go = go.clone();
    let kind = FnKind::new("fn", move |call| {
        let go = go.clone();
        async move {
            match call.tool.def.name.as_str() {
                // Four bytes each as text, nine as they travel.
                "count" => return Ok(json!({"n": vec![0.5; 32_000]})),
                "wait" => {
                    if u64::from(call.attempt) <= call.args["fails"].as_u64().unwrap() {
                        return Err(Fault::new(Code::ToolFailed, "x".repeat(4_000)));
                    }
                    go.acquire().await.unwrap().forget();
                    return Ok(json!({}));
                }
                _ => {}
            }
            let bytes = call.args["bytes"].as_u64().unwrap();
            Ok(json!({"text": "x".repeat(usize::try_from(bytes).unwrap())}))
        }
    });
    bed.node(&[], Arc::new(kind)).await
}

/// A goal that runs until its tool is let go.
async fn running(node: &Node) -> GoalId {
    let goal = submit(node, "a", json!({"bytes": 1, "fails": 0}))
        .await
        .unwrap()
        .goal;
    let begin = std::time::Instant::now();
    while !show(node, goal)
        .await
        .waiting
        .iter()
        .any(|w| w.step.as_ref().is_some_and(|s| s.as_str() == "last"))
    {
        assert!(begin.elapsed() < PATIENCE);
        events(node, goal, 1).await;
    }
    goal
}

async fn control(node: &Node, goal: GoalId, by: &str, verb: Verb) -> Result<Controlled, Fault> {
    let tenant = TenantId::default();
    let subject = subject::steer(&tenant, &goal);
    let by = by.to_owned();
    let control = Control {
        tenant,
        goal,
        by,
        verb,
    };
    call(&*node.bus().messages, &subject, &control, PATIENCE).await
}

fn cancel(reason: &str) -> Verb {
    let reason = reason.to_owned();
    Verb::Cancel { reason }
}

fn nested(levels: usize) -> Value {
    (1..levels).fold(json!(1), |inner, _| json!([inner]))
}

/// Code and place of a refusal.
fn refusal<T: std::fmt::Debug>(answer: Result<T, Fault>) -> (Code, String) {
    let fault = answer.unwrap_err();
    (fault.code, fault.at.unwrap_or_default())
}

fn invalid(at: &str) -> (Code, String) {
    (Code::InputInvalid, at.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_tools_are_not_kept() {
    let bed = bed();
    let go = Arc::new(Semaphore::new(0));
    let node = start(&bed, &go).await;
    let refused = submit(
        &node,
        "a",
        json!({"bytes": 1, "note": format!("x{SECRET}")}),
    )
    .await;
    assert_eq!(refusal(refused), invalid("/input/note"));

    let body = json!({"agent": "a", "input": {"bytes": 1},
        "key": {"key": format!("order-{SECRET}"), "issued_at_ms": 1}});
    let keyed: Submit = serde_json::from_value(body).unwrap();
    let subject = subject::submit(&keyed.tenant, &keyed.agent);
    let refused: Result<Accepted, _> =
        call(&*node.bus().messages, &subject, &keyed, PATIENCE).await;
    assert_eq!(refusal(refused), invalid("/key/key"));

    let goal = running(&node).await;
    let verb = cancel(&format!("because of {SECRET}"));
    control(&node, goal, &format!("me {SECRET}"), verb)
        .await
        .unwrap();
    let result = result(&node, goal).await;
    let GoalResult::Cancelled { receipt } = &result else {
        panic!("{result:?}")
    };
    assert_eq!(receipt.by, "me [redacted]");
    assert_eq!(receipt.reason, "because of [redacted]");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_has_a_bound() {
    let bed = bed();
    let go = Arc::new(Semaphore::new(0));
    let node = start(&bed, &go).await;
    for levels in [33, 124] {
        let refused = submit(&node, "a", nested(levels)).await;
        assert_eq!(refusal(refused), invalid("/input"), "{levels}");
    }
    let goal = running(&node).await;
    let long = "x".repeat(257);
    let refused = control(&node, goal, &long, Verb::Pause).await;
    assert_eq!(refusal(refused), invalid("/by"));
    let refused = control(&node, goal, "me", cancel(&long)).await;
    assert_eq!(refusal(refused), invalid("/verb/reason"));
    let question = QuestionId::new("q").unwrap();
    let choice = long.clone();
    let refused = control(&node, goal, "me", Verb::Answer { question, choice }).await;
    assert_eq!(refusal(refused), invalid("/verb/choice"));
    let patch = json!({"a": nested(32)});
    let refused = control(&node, goal, "me", Verb::Amend { patch }).await;
    assert_eq!(refusal(refused), invalid("/patch"));
    let patch = json!({"a": "x".repeat(64 * 1024)});
    let refused = control(&node, goal, "me", Verb::Amend { patch }).await;
    assert_eq!(refusal(refused), (Code::InputTooLarge, "/patch".into()));

    // What is just within the bounds is taken, and can be read back.
    let patch = json!({"a": nested(31), "text": "x".repeat(60 * 1024)});
    let most = "x".repeat(256);
    control(&node, goal, &most, Verb::Amend { patch })
        .await
        .unwrap();
    control(&node, goal, &most, cancel(&most)).await.unwrap();
    let result = result(&node, goal).await;
    assert!(
        matches!(&result, GoalResult::Cancelled { receipt } if receipt.reason == most),
        "{result:?}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_on_the_subject_of_another_is_refused() {
    let bed = bed();
    let go = Arc::new(Semaphore::new(0));
    let node = start(&bed, &go).await;
    let goal = running(&node).await;
    let messages = &*node.bus().messages;
    let (tenant, other) = (TenantId::default(), TenantId::new("other").unwrap());
    let agent = |name| AgentName::new(name).unwrap();

    let body = json!({"agent": "a", "input": {"bytes": 1, "fails": 0}});
    let body: Submit = serde_json::from_value(body).unwrap();
    for (subject, at) in [
        (subject::submit(&other, &agent("a")), "/tenant"),
        (subject::submit(&tenant, &agent("b")), "/agent"),
    ] {
        let refused: Result<Accepted, _> = call(messages, &subject, &body, PATIENCE).await;
        assert_eq!(refusal(refused), invalid(at), "{subject}");
    }
    let body = Control {
        tenant: tenant.clone(),
        goal,
        by: "me".into(),
        verb: cancel("no"),
    };
    for (subject, at) in [
        (subject::steer(&other, &goal), "/tenant"),
        (
            subject::steer(&tenant, &GoalId::from_bytes([9; 16])),
            "/goal",
        ),
    ] {
        let refused: Result<Controlled, _> = call(messages, &subject, &body, PATIENCE).await;
        assert_eq!(refusal(refused), invalid(at), "{subject}");
    }
    let ask = Ask::Show { goal };
    let body = Query { tenant, ask };
    let subject = subject::query(&other);
    let refused: Result<Answer, _> = call(messages, &subject, &body, PATIENCE).await;
    assert_eq!(refusal(refused), invalid("/tenant"));
    assert!(show(&node, goal).await.result.is_none());
    go.add_permits(1);
    assert_eq!(code(&result(&node, goal).await), None);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goal_whose_next_entry_does_not_fit_fails_and_says_why() {
    let bed = bed();
    let go = Arc::new(Semaphore::new(0));
    let node = start(&bed, &go).await;
    let goal = submit(&node, "recalls", json!({})).await;
    let goal = goal.unwrap().goal;
    let result = result(&node, goal).await;
    let GoalResult::Failed {
        error_code: Code::InputTooLarge,
        message,
        ..
    } = &result
    else {
        panic!("{result:?}: {:#?}", events(&node, goal, 1).await)
    };
    assert!(message.contains("the journal takes"), "{message}");
    assert!(node.not_ready().is_none());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_larger_than_a_message_is_refused_once() {
    let bed = bed();
    let node = start(&bed, &Arc::new(Semaphore::new(0))).await;
    let goal = submit(&node, "swells", json!({})).await.unwrap().goal;
    assert_eq!(code(&result(&node, goal).await), Some("INPUT_TOO_LARGE"));
    let (kinds, _) = events(&node, goal, 1).await;
    let attempts = kinds.iter().filter(|kind| *kind == "intended").count();
    assert_eq!(attempts, 2, "one of each step: {kinds:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_fits_into_a_message() {
    let bed = bed();
    let go = Arc::new(Semaphore::new(1));
    let node = start(&bed, &go).await;
    let goal = submit(&node, "a", json!({"bytes": 250_000, "fails": 19})).await;
    let goal = goal.unwrap().goal;
    assert_eq!(code(&result(&node, goal).await), None);
    let (mut from, mut pages) = (1, 0);
    loop {
        let ask = Ask::Export { goal, from };
        let Answer::Entries { entries } = page(&node, ask).await else {
            panic!("not entries");
        };
        if entries.is_empty() {
            break;
        }
        from += entries.len() as u64;
        pages += 1;
    }
    // Two outputs, and the result with both.
    assert!(pages >= 2, "{pages} pages");
    let wait_ms = 0;
    let (mut from, mut pages, mut ended) = (1, 0, false);
    while !ended {
        let ask = Ask::Events {
            goal,
            from,
            wait_ms,
        };
        let Answer::Events { events, ended: end } = page(&node, ask).await else {
            panic!("not events");
        };
        assert!(events.first().is_none_or(|e| e.n == from), "a gap");
        from += events.len() as u64;
        (pages, ended) = (pages + 1, end);
    }
    // The failures' words and the result, which are less than a message together.
    assert!(pages >= 2, "{pages} pages");
    node.stop().await;
}

/// Asks as a client does; checks that the answer fits.
async fn page(node: &Node, ask: Ask) -> Answer {
    let tenant = TenantId::default();
    let subject = subject::query(&tenant);
    let asked: Bytes = seal(&Query { tenant, ask }).unwrap();
    let answer = node
        .bus()
        .messages
        .request(&subject, asked, PATIENCE)
        .await
        .unwrap();
    assert!(answer.len() <= MESSAGE_BYTES_MAX);
    detent_protocol::envelope::read_reply(&answer).unwrap()
}
