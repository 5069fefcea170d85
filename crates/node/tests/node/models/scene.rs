//! A node with one model, where every process that is started and every address that is
//! asked leaves a trace.

use super::super::support::{Bed, result, show, submit};
use super::ModelServer;
use detent_connect::http::{HttpClient, HttpMethod, HttpOptions, HttpRequest};
use detent_node::{Config, Flags, Node, NodeParts};
use detent_protocol::result::GoalResult;
use detent_sandbox::KeeperCommand;
use detent_tool_executor::{FnKind, Invocation};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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

    /// The next `times` answers are this plan, JSON, well-formed and in good manners.
    pub async fn answers(&self, plan: &str, times: usize) {
        let entry = format!(r#"{{"behaviour": "good", "plan": {plan}}}"#);
        let script = format!("[{}]", vec![entry; times].join(","));
        let mut request = HttpRequest::new(HttpMethod::Post, self.url("/_script"));
        request.headers = vec![("content-type".into(), "application/json".into())];
        request.body = Some(script.into());
        self.send(request).await;
    }

    /// What the model was told so far, oldest first.
    pub async fn told(&self) -> Vec<String> {
        let request = HttpRequest::new(HttpMethod::Get, self.url("/_requests"));
        let all = self.send(request).await;
        let content = |r: &Value| r["body"]["messages"][1]["content"].as_str().unwrap().into();
        all.as_array().unwrap().iter().map(content).collect()
    }
}

/// An address that counts who asks it.
pub struct Canary {
    pub port: u16,
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

    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

/// A node with one model, where every process that is started and every address that is
/// asked leaves a trace.
pub struct Scene {
    bed: Bed,
    pub node: Node,
    pub model: ModelServer,
    pub canary: Canary,
    /// Names of the tools that ran.
    pub ran: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    pub async fn new() -> Self {
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
    pub fn marker(&self) -> PathBuf {
        marker(&self.bed)
    }

    pub async fn goal(&self, agent: &str, input: Value) -> (GoalResult, String) {
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
