//! A model that turns what it may write against the node: probes that would act with
//! the node's rights, and templates that would grow beyond all bounds. Its goal ends with
//! a code, nothing of its plan runs, and nothing outside the goal is touched.

use super::super::support::{Bed, PATIENCE, code, events, result, show, submit};
use super::ModelServer;
use detent_connect::http::{HttpClient, HttpMethod, HttpOptions, HttpRequest};
use detent_node::{Config, Flags, Node, NodeParts};
use detent_protocol::GOAL_BYTES_MAX;
use detent_protocol::result::GoalResult;
use detent_sandbox::KeeperCommand;
use detent_tool_executor::{FnKind, Invocation};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TOOLS: &str = r#"
[[tool]]
name = "rows"
effect = "read"
kind = "fn"

[[tool]]
name = "report"
effect = "once"
kind = "fn"
settles_within_ms = 1
[tool.probe]
probe = "file"
params = { path = "report.csv" }
schema = { required = ["exists"], properties = { exists = { const = true } } }

# Nobody has said what proves this one.
[[tool]]
name = "mail"
effect = "once"
kind = "fn"
"#;

fn agent(name: &str, planner: &str) -> String {
    format!(
        "name = \"{name}\"\ntools = [\"rows\", \"report\", \"mail\"]\nreasoners = [\"{planner}\"]\n\
         policy.replans_max = 0\nbudget.tokens = 100000000\n\
         input_schema = {{ type = \"object\" }}\n\
         result_schema = {{ type = \"object\", required = [\"rows\"] }}\n"
    )
}

impl ModelServer {
    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    async fn send(&self, request: HttpRequest) -> Value {
        let http = HttpClient::new(HttpOptions::default()).unwrap();
        let answer = http.send(request).await.unwrap();
        assert_eq!(answer.status, 200);
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The next `times` answers are this plan, well-formed and in good manners.
    async fn answers(&self, plan: &Value, times: usize) {
        let script = json!(vec![json!({"behaviour": "good", "plan": plan}); times]);
        let mut request = HttpRequest::new(HttpMethod::Post, self.url("/_script"));
        request.headers = vec![("content-type".into(), "application/json".into())];
        request.body = Some(script.to_string().into());
        self.send(request).await;
    }

    /// What the model was told so far, oldest first.
    async fn told(&self) -> Vec<String> {
        let request = HttpRequest::new(HttpMethod::Get, self.url("/_requests"));
        let all = self.send(request).await;
        let content = |r: &Value| r["body"]["messages"][1]["content"].as_str().unwrap().into();
        all.as_array().unwrap().iter().map(content).collect()
    }
}

/// An address that counts who asks it.
struct Canary {
    port: u16,
    hits: Arc<AtomicUsize>,
}

impl Canary {
    async fn listen() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hits = Arc::new(AtomicUsize::new(0));
        let seen = hits.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                seen.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { port, hits }
    }
}

/// A node with one model, where every process that is started and every address that is
/// asked leaves a trace.
struct Scene {
    bed: Bed,
    node: Node,
    model: ModelServer,
    canary: Canary,
    /// Names of the tools that ran.
    ran: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    async fn new() -> Self {
        let model = ModelServer::start(&json!({"steps": []}));
        let canary = Canary::listen().await;
        let port = model.port;
        let config = format!(
            "tools = [\"t.toml\"]\nagents = [\"model.toml\", \"person.toml\"]\n[reasoners.big]\n\
             kind = \"openai\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"good\"\n"
        );
        let bed = Bed::new(&[
            ("detent.toml", config),
            ("t.toml", TOOLS.into()),
            ("model.toml", agent("model", "big")),
            (
                "person.toml",
                format!("{}{}", agent("person", "playbook"), book(canary.port)),
            ),
        ]);
        let ran = Arc::<Mutex<Vec<String>>>::default();
        let seen = ran.clone();
        let kind = FnKind::new("fn", move |call: Invocation| {
            seen.lock().unwrap().push(call.tool.def.name.to_string());
            async move { Ok(run(&call)) }
        });
        let node = start(&bed, kind).await;
        Self {
            bed,
            node,
            model,
            canary,
            ran,
        }
    }

    /// Made as soon as the node starts any process: its keeper comes first.
    fn marker(&self) -> PathBuf {
        marker(&self.bed)
    }

    async fn goal(&self, agent: &str, input: Value) -> (GoalResult, String) {
        let accepted = submit(&self.node, agent, input).await.unwrap();
        let result = result(&self.node, accepted.goal).await;
        let view = format!("{:?}", show(&self.node, accepted.goal).await);
        (result, view.chars().take(4_000).collect())
    }
}

fn run(call: &Invocation) -> Value {
    if call.tool.def.name.as_str() == "report" {
        std::fs::create_dir_all(&call.work_dir).unwrap();
        std::fs::write(call.work_dir.join("report.csv"), "a,b\n").unwrap();
    }
    json!({"rows": [1]})
}

fn marker(bed: &Bed) -> PathBuf {
    bed.path("a-process-was-started")
}

async fn start(bed: &Bed, kind: FnKind) -> Node {
    let flags = Flags {
        file: Some(bed.path("detent.toml")),
        set: vec!["node.http_listen=".into()],
    };
    // Stands in for the keeper, under which alone the node starts programs.
    let trace = format!(": > '{}'; exit 1", marker(bed).display());
    let parts = NodeParts {
        config: Config::load(&flags, &|_| None).unwrap(),
        data_dir: bed.path("data"),
        keeper: KeeperCommand {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), trace],
        },
        kinds: vec![Arc::new(kind)],
        socket: false,
    };
    Node::start(parts).await.unwrap()
}

fn process() -> Value {
    json!({"probe": "process", "params": {"command": ["/bin/sh", "-c", "touch /tmp/x; echo {}"]},
        "schema": {"required": ["exit_code"], "properties": {"exit_code": {"const": 0}}}})
}

fn http(port: u16) -> Value {
    json!({"probe": "http", "params": {"url": format!("http://127.0.0.1:{port}/admin?delete=all")},
        "schema": {"required": ["status"], "properties": {"status": {"const": 200}}}})
}

fn sql() -> Value {
    json!({"probe": "sql", "params": {"database": "store/journal.db", "query": "select 1 as n"},
        "schema": {"required": ["row_count"], "properties": {"row_count": {"const": 1}}}})
}

fn file(path: Value) -> Value {
    json!({"probe": "file", "params": {"path": path, "parse": "text"},
        "schema": {"required": ["exists"], "properties": {"exists": {"const": true}}}})
}

/// A person's playbook with the probes that a model may not have.
fn book(port: u16) -> String {
    let url = format!("http://127.0.0.1:{port}/");
    format!(
        r#"
[[playbook.steps]]
id = "fetch"
tool = "rows"
[[playbook.steps.expect]]
probe = "http"
params = {{ url = "{url}" }}
schema = {{ required = ["status"], properties = {{ status = {{ const = 200 }} }} }}
[[playbook.steps.expect]]
probe = "process"
params = {{ command = ["/bin/true"] }}
schema = {{ required = ["exit_code"], properties = {{ exit_code = {{ const = 0 }} }} }}
[playbook.result]
rows = {{ "$step" = "fetch", at = "/rows" }}
"#
    )
}

/// A plan of one step with `tool` and what is expected of it.
fn plan_of(tool: &str, expect: Value) -> Value {
    json!({
        "steps": [{"id": "fetch", "tool": tool, "args": {}, "expect": expect}],
        "result": {"rows": {"$step": "fetch", "at": "/rows"}}
    })
}

/// Plans that would make the node act, or look outside the goal, in a model's name.
fn attacks(port: u16) -> Vec<(&'static str, Value)> {
    let concat = json!({"$concat": ["/etc/", "passwd"]});
    vec![
        ("a program", plan_of("rows", json!([process()]))),
        (
            "a program, after an effect",
            plan_of("report", json!([process()])),
        ),
        ("an address", plan_of("rows", json!([http(port)]))),
        ("a database", plan_of("rows", json!([sql()]))),
        (
            "a file of the system",
            plan_of("rows", json!([file(json!("/etc/passwd"))])),
        ),
        (
            "a file of the node",
            plan_of("rows", json!([file(json!("data:store"))])),
        ),
        (
            "a file above",
            plan_of("rows", json!([file(json!("a/../../../detent.toml"))])),
        ),
        (
            "a file by its parts",
            plan_of("rows", json!([file(concat)])),
        ),
        (
            "a file that the goal names",
            plan_of("rows", json!([file(json!({"$goal": "/path"}))])),
        ),
        (
            "one of these behind one that is allowed",
            plan_of("rows", json!([file(json!("report.csv")), process()])),
        ),
        // An effect that only the model itself would vouch for.
        ("mail", plan_of("mail", json!([file(json!("report.csv"))]))),
        ("mail", plan_of("mail", json!([]))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_gets_none_of_the_nodes_rights_by_its_expectations() {
    let scene = Scene::new().await;
    let attacks = attacks(scene.canary.port);
    for (n, (what, plan)) in attacks.iter().enumerate() {
        scene.model.answers(plan, 3).await;
        let input = json!({"n": n, "path": "/etc/passwd"});
        let (result, view) = scene.goal("model", input).await;
        assert_eq!(code(&result), Some("POLICY_DENIED"), "{what}: {view}");
        if *what == "mail" {
            let GoalResult::Failed { message, .. } = &result else {
                unreachable!()
            };
            assert!(message.contains("mail"), "names the tool: {message}");
        }
        // It was told why, and had its two further tries.
        let told = scene.model.told().await;
        assert_eq!(told.len(), 3 * (n + 1), "{what}");
        for again in &told[told.len() - 2..] {
            let (_, why) = again.split_once("Your last answer was refused").unwrap();
            assert!(why.contains("POLICY_DENIED"), "{what}: {why}");
        }
    }
    assert!(scene.ran.lock().unwrap().is_empty(), "{:?}", scene.ran);
    assert!(!scene.marker().exists(), "a process was started");
    assert_eq!(scene.canary.hits.load(Ordering::SeqCst), 0);
    scene.node.stop().await;
}

/// The same probes in a playbook are looked at: the traces of the test above would be
/// there if the model had its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_may_have_these_probes() {
    let scene = Scene::new().await;
    let accepted = submit(&scene.node, "person", json!({})).await.unwrap();
    // The keeper of this test keeps nothing, so that the goal itself would look for long.
    let (mut from, begin) = (1, Instant::now());
    while !scene.marker().exists() || scene.canary.hits.load(Ordering::SeqCst) == 0 {
        let (seen, ended) = events(&scene.node, accepted.goal, from).await;
        from += seen.len() as u64;
        assert!(!ended && begin.elapsed() < PATIENCE, "{seen:?}");
    }
    scene.node.stop().await;
}

/// What is left to a model is enough: reading, effects with a probe of their own, its
/// step's output and the goal's own files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_model_may_expect_is_looked_at() {
    let scene = Scene::new().await;
    let output = json!({"probe": "output", "params": {}, "schema": {"required": ["rows"]}});
    let wrong = json!({"probe": "output", "params": {}, "schema": {"required": ["rates"]}});
    let there = file(json!("report.csv"));
    let elsewhere = file(json!("out/report.csv"));
    for (plan, expected) in [
        (plan_of("rows", json!([output])), None),
        (plan_of("report", json!([])), None),
        (plan_of("report", json!([there])), None),
        (
            plan_of("rows", json!([wrong])),
            Some("OBSERVATION_REJECTED"),
        ),
        (plan_of("report", json!([elsewhere])), Some("MISMATCH")),
    ] {
        scene.model.answers(&plan, 8).await;
        let (result, view) = scene.goal("model", json!({"plan": plan})).await;
        assert_eq!(code(&result), expected, "{plan}: {view}");
        if let GoalResult::Succeeded { data, evidence, .. } = result {
            assert_eq!(data["rows"], json!([1]));
            assert!(!evidence.is_empty());
        }
    }
    assert!(!scene.marker().exists());
    scene.node.stop().await;
}

/// Most memory that this process had so far, bytes.
fn memory_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}

/// Half a megabyte of references to a goal of 88 KB: three gigabytes, if they were
/// replaced before anybody counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_plan_can_not_become_a_huge_value() {
    const MEMORY_GROWTH_BYTES_MAX: u64 = 768 << 20;
    let scene = Scene::new().await;
    let before = memory_peak_bytes();
    let many = json!(vec![json!({"$goal": ""}); 35_000]);
    let rows = json!({"$step": "fetch", "at": "/rows"});
    let plan = |args: Value, expect: Value, result: Value| {
        json!({"steps": [{"id": "fetch", "tool": "rows", "args": args, "expect": expect}],
            "result": result})
    };
    let padded = json!({"probe": "file", "params": {"path": "x", "more": many},
        "schema": {"required": ["exists"], "properties": {"exists": {"const": true}}}});
    let result = json!({"rows": rows});
    let none = json!([]);
    for (what, plan) in [
        (
            "arguments",
            plan(json!({"a": many}), none.clone(), result.clone()),
        ),
        (
            "one text",
            plan(
                json!({"a": {"$concat": many}}),
                none.clone(),
                result.clone(),
            ),
        ),
        ("an expectation", plan(json!({}), json!([padded]), result)),
        (
            "the result",
            plan(json!({}), none, json!({"rows": rows, "more": many})),
        ),
    ] {
        scene.model.answers(&plan, 8).await;
        let input = json!({"what": what, "text": "x".repeat(88 * 1024)});
        let (result, view) = scene.goal("model", input).await;
        assert_eq!(code(&result), Some("INPUT_TOO_LARGE"), "{what}: {view}");
    }
    let grown = memory_peak_bytes().saturating_sub(before);
    assert!(grown < MEMORY_GROWTH_BYTES_MAX, "{grown} bytes more");
    scene.node.stop().await;
}

/// The largest goal that is taken in reaches the model whole, and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_goal_is_planned_by_a_model() {
    let scene = Scene::new().await;
    scene.model.answers(&plan_of("rows", json!([])), 1).await;
    // What is submitted holds the goal's envelope, too.
    let text = "x".repeat(GOAL_BYTES_MAX - 1024);
    let (result, view) = scene.goal("model", json!({"text": text})).await;
    assert_eq!(code(&result), None, "{view}");
    let told = scene.model.told().await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].matches(&text).count(), 1, "whole, and once");
    scene.node.stop().await;
}
