//! An actor that fails is a restart: the goal goes on, and an effect stays one.

use super::support::{Bed, code, events, key, result, show, submit};
use detent_node::Node;
use detent_protocol::result::GoalResult;
use detent_tool_executor::{FnKind, Invocation};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

const TOOLS: &str = r#"
[[tool]]
name = "look"
effect = "read"
kind = "fn"

[[tool]]
name = "post"
effect = "once"
kind = "fn"
settles_within_ms = 1
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
tools = ["look", "post"]
input_schema = true
result_schema = { type = "object", required = ["number"] }
policy.replans_max = 0
[[playbook.steps]]
id = "first"
tool = "look"
[[playbook.steps]]
id = "post"
tool = "post"
after = ["first"]
args = { reference = { "$meta" = "goal_id" } }
[playbook.result]
number = { "$step" = "post", at = "/number" }
"#;

fn bed() -> Bed {
    Bed::new(&[
        (
            "detent.toml",
            "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n".into(),
        ),
        ("a.toml", AGENT.into()),
        ("t.toml", TOOLS.into()),
    ])
}

/// Tools that tell when they run and end when they are let go.
#[derive(Clone)]
struct Stage {
    data: PathBuf,
    running: mpsc::UnboundedSender<String>,
    go: Arc<Semaphore>,
}

impl Stage {
    /// The effect: one more line in a file, and one that the probe finds.
    fn post(&self, reference: &str) {
        let mut all = std::fs::OpenOptions::new();
        let mut all = all
            .create(true)
            .append(true)
            .open(self.data.join("posts"))
            .unwrap();
        writeln!(all, "{reference}").unwrap();
        let one = self.data.join(format!("posted-{reference}"));
        std::fs::write(one, r#"{"number": 7}"#).unwrap();
    }

    async fn run(self, call: Invocation) -> Result<serde_json::Value, detent_protocol::Fault> {
        if call.tool.def.name.as_str() == "post" {
            self.post(call.args["reference"].as_str().unwrap());
        }
        self.running.send(call.step.to_string()).unwrap();
        self.go.acquire().await.unwrap().forget();
        Ok(json!({"number": 7}))
    }
}

fn stage(data: &Path) -> (Stage, mpsc::UnboundedReceiver<String>) {
    let (running, seen) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let data = data.to_owned();
    (Stage { data, running, go }, seen)
}

async fn start(bed: &Bed, stage: &Stage) -> Node {
    let stage = stage.clone();
    let kind = FnKind::new("fn", move |call| stage.clone().run(call));
    bed.node(&[], Arc::new(kind)).await
}

fn posts(bed: &Bed) -> usize {
    std::fs::read_to_string(bed.path("data/posts"))
        .unwrap()
        .lines()
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_a_goals_actor_repeats_no_effect() {
    let bed = bed();
    let (stage, mut running) = stage(&bed.path("data"));
    let node = start(&bed, &stage).await;
    let goal = submit(&node, "a", json!({})).await.unwrap().goal;

    // While it reads: the look is done again.
    assert_eq!(running.recv().await.unwrap(), "first");
    assert!(node.fail_goal_actor(&key(goal)));
    assert_eq!(running.recv().await.unwrap(), "first");
    stage.go.add_permits(1);

    // In the middle of the effect, which is there already: it is found, not repeated.
    assert_eq!(running.recv().await.unwrap(), "post");
    assert!(node.fail_goal_actor(&key(goal)));
    let result = result(&node, goal).await;
    let GoalResult::Succeeded { data, evidence, .. } = &result else {
        panic!("{result:?}: {:#?}", show(&node, goal).await)
    };
    assert_eq!(data["number"], 7);
    assert_eq!(evidence.len(), 2);
    assert_eq!(posts(&bed), 1);
    let (kinds, _) = events(&node, goal, 1).await;
    assert_eq!(
        kinds.iter().filter(|k| *k == "owned").count(),
        3,
        "{kinds:?}"
    );
    assert!(node.not_ready().is_none());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_goes_on_where_it_was() {
    let bed = bed();
    let (stage, mut running) = stage(&bed.path("data"));
    let node = start(&bed, &stage).await;
    let goal = submit(&node, "a", json!({})).await.unwrap().goal;
    stage.go.add_permits(1);
    assert_eq!(running.recv().await.unwrap(), "first");
    assert_eq!(running.recv().await.unwrap(), "post");
    // The tool ends while the node drains: its outcome is in the journal.
    stage.go.add_permits(1);
    assert!(node.stop().await);

    let node = start(&bed, &stage).await;
    assert_eq!(code(&result(&node, goal).await), None);
    assert_eq!(posts(&bed), 1);
    assert!(running.try_recv().is_err(), "no tool ran again");
    node.stop().await;
}
