//! A model that lies, invents, truncates, chatters or is not there: the goal ends with
//! the code of that, no tool outside a sound plan runs, and nothing counts as done that
//! was not. The endpoint is a real HTTP server.

mod attacks;
mod scene;

use super::support::{Bed, code, result, show, submit};
use detent_node::Node;
use detent_protocol::result::GoalResult;
use detent_tool_executor::FnKind;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// How the model behaves, and what becomes of a goal that has no other planner.
const BEHAVIOURS: [(&str, &str, Option<&str>); 11] = [
    ("good", "good:1", None),
    ("prose", "prose", None),
    ("busy", "429:2", None),
    ("truncated", "truncated", Some("MODEL_MALFORMED")),
    ("empty", "empty", Some("MODEL_MALFORMED")),
    ("wrong-json", "wrong-json", Some("MODEL_MALFORMED")),
    (
        "invented-tool",
        "invented-tool",
        Some("MODEL_HALLUCINATION"),
    ),
    ("claims-done", "claims-done", Some("MODEL_FALSE_CLAIM")),
    ("half", "half", Some("MODEL_UNAVAILABLE")),
    ("down", "503", Some("MODEL_UNAVAILABLE")),
    ("unknown", "no-such-model", Some("MODEL_UNAVAILABLE")),
];

/// The plan of a good model.
fn plan() -> Value {
    json!({
        "steps": [{"id": "fetch", "tool": "rows", "args": {"product": {"$goal": "/product"}}}],
        "result": {"rows": {"$step": "fetch", "at": "/rows"}}
    })
}

struct ModelServer {
    child: Child,
    port: u64,
}

impl ModelServer {
    fn start(plan: &Value) -> Self {
        let script = "../reasoner/tests/support/model_server.py";
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
        let mut command = Command::new("python3");
        command.args(["-I", "-S", "-B"]).arg(script);
        command
            .env("MODEL_PLAN", plan.to_string())
            .stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed");
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let port = said["port"].as_u64().unwrap();
        Self { child, port }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PLAYBOOK: &str = r#"
[[playbook.steps]]
id = "own"
tool = "rows"
args = { product = { "$goal" = "/product" } }
[playbook.result]
rows = { "$step" = "own", at = "/rows" }
"#;

/// Two agents for each behaviour: with the model alone, and with the playbook after it.
fn bed(server: &ModelServer) -> Bed {
    let mut config = String::from("tools = [\"t.toml\"]\nagents = [");
    let mut reasoners = String::new();
    let mut files = Vec::new();
    for (name, model, _) in BEHAVIOURS {
        for (agent, planners) in [
            (format!("{name}-alone"), format!("[\"{name}\"]")),
            (
                format!("{name}-then-book"),
                format!("[\"{name}\", \"playbook\"]"),
            ),
        ] {
            let text = format!(
                "name = \"{agent}\"\ntools = [\"rows\"]\nreasoners = {planners}\n\
                 input_schema = {{ type = \"object\", required = [\"product\"] }}\n\
                 result_schema = {{ type = \"object\", required = [\"rows\"] }}\n{PLAYBOOK}"
            );
            config.push_str(&format!("\"{agent}.toml\", "));
            files.push((format!("{agent}.toml"), text));
        }
        let port = server.port;
        reasoners.push_str(&format!(
            "[reasoners.{name}]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"{model}\"\n"
        ));
    }
    let tools = "[[tool]]\nname = \"rows\"\neffect = \"read\"\nkind = \"fn\"\n\
         input_schema = { type = \"object\", required = [\"product\"], additionalProperties = false, properties.product = true }\n\
         [[tool]]\nname = \"wipe\"\neffect = \"read\"\nkind = \"fn\"\n";
    files.push(("t.toml".into(), tools.into()));
    files.push(("detent.toml".into(), format!("{config}]\n{reasoners}")));
    let files: Vec<_> = files.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    Bed::new(&files)
}

/// Names of tools that ran, with the step that wanted it.
type Ran = Arc<Mutex<Vec<(String, String)>>>;

async fn start(bed: &Bed) -> (Node, Ran) {
    let ran = Ran::default();
    let seen = ran.clone();
    let kind = FnKind::new("fn", move |call| {
        let names = (call.tool.def.name.to_string(), call.step.to_string());
        seen.lock().unwrap().push(names);
        async move { Ok(json!({"rows": [call.args["product"]]})) }
    });
    (bed.node(&[], Arc::new(kind)).await, ran)
}

/// One goal for each behaviour, all at once; the tools that ran.
async fn ends(suffix: &str, plan: &Value) -> (Vec<(&'static str, GoalResult, String)>, Ran) {
    let server = ModelServer::start(plan);
    let bed = bed(&server);
    let (node, ran) = start(&bed).await;
    let mut goals = Vec::new();
    for (name, _, _) in BEHAVIOURS {
        let agent = format!("{name}-{suffix}");
        let accepted = submit(&node, &agent, json!({"product": name}))
            .await
            .unwrap();
        goals.push((name, accepted.goal));
    }
    let mut all = Vec::new();
    for (name, goal) in goals {
        let result = result(&node, goal).await;
        all.push((name, result, format!("{:#?}", show(&node, goal).await)));
    }
    node.stop().await;
    (all, ran)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_alone_ends_its_goal_as_it_behaves_and_never_by_a_false_success() {
    let (ends, ran) = ends("alone", &plan()).await;
    let mut sound = 0;
    for ((name, result, view), (_, _, expected)) in ends.iter().zip(BEHAVIOURS) {
        assert_eq!(code(result), expected, "{name}: {view}");
        if let GoalResult::Succeeded { data, evidence, .. } = result {
            sound += 1;
            assert_eq!(data["rows"], json!([name]));
            assert_eq!(evidence.len(), 1);
        }
    }
    // A sound plan runs its one step once; of the others nothing runs at all.
    let ran = ran.lock().unwrap();
    assert_eq!(ran.len(), sound, "{ran:?}");
    assert!(
        ran.iter()
            .all(|(tool, step)| tool == "rows" && step == "fetch"),
        "{ran:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_playbook_behind_it_every_goal_succeeds() {
    let (ends, ran) = ends("then-book", &plan()).await;
    for (name, result, view) in &ends {
        assert_eq!(code(result), None, "{name}: {view}");
        let GoalResult::Succeeded { data, .. } = result else {
            unreachable!()
        };
        assert_eq!(data["rows"], json!([name]));
    }
    let ran = ran.lock().unwrap();
    assert_eq!(ran.len(), BEHAVIOURS.len(), "{ran:?}");
    let by_book = ran.iter().filter(|(_, step)| step == "own").count();
    let bad = BEHAVIOURS
        .iter()
        .filter(|(_, _, code)| code.is_some())
        .count();
    assert_eq!(by_book, bad, "{ran:?}");
}

/// Plans that are well-formed and wrong: refused as a whole, nothing of them runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_breaks_a_rule_is_refused_as_a_whole() {
    let fetch = json!({"id": "fetch", "tool": "rows", "args": {"product": "x"}});
    let rows = json!({"rows": {"$step": "fetch", "at": "/rows"}});
    let with = |extra: Value| json!({"steps": [fetch, extra], "result": rows});
    for (wrong, expected) in [
        // Registered on the node, but not this agent's to use.
        (
            with(json!({"id": "b", "tool": "wipe"})),
            "MODEL_HALLUCINATION",
        ),
        (
            with(json!({"id": "b", "tool": "rows", "args": {"pruduct": "x"}})),
            "MODEL_HALLUCINATION",
        ),
        (
            with(json!({"id": "b", "tool": "rows", "args": {"product": {"$step": "zz"}}})),
            "MODEL_HALLUCINATION",
        ),
        (
            with(json!({"id": "b", "tool": "rows", "args": {"product": "x"}, "after": ["b"]})),
            "PLAN_INVALID",
        ),
        (
            with(json!({"id": "fetch", "tool": "rows", "args": {"product": "x"}})),
            "PLAN_INVALID",
        ),
        (
            with(json!({"id": "b", "tool": "rows", "args": {"product": "x"}, "at": "18:00"})),
            "PLAN_INVALID",
        ),
        // A result that rests on nothing that was done.
        (
            json!({"steps": [fetch], "result": {"rows": ["made up"]}}),
            "MODEL_FALSE_CLAIM",
        ),
        (
            json!({"steps": [], "result": {"rows": []}}),
            "MODEL_FALSE_CLAIM",
        ),
    ] {
        let server = ModelServer::start(&wrong);
        let bed = bed(&server);
        let (node, ran) = start(&bed).await;
        let accepted = submit(&node, "good-alone", json!({"product": "x"}))
            .await
            .unwrap();
        let result = result(&node, accepted.goal).await;
        let view = show(&node, accepted.goal).await;
        assert_eq!(code(&result), Some(expected), "{wrong}: {view:#?}");
        assert!(ran.lock().unwrap().is_empty(), "{wrong}");
        node.stop().await;
    }
}
