//! What the tests of this crate share: snapshots, a model server, a bus.
#![allow(dead_code, unreachable_pub, missing_docs)]

use detent_bus::Bus;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_connect::http::{HttpClient, HttpMethod, HttpOptions, HttpRequest};
use detent_protocol::budget::Amount;
use detent_protocol::effect::Effect;
use detent_protocol::messages::{PlanRequest, Snapshot, StepView, ToolView};
use detent_protocol::{AgentName, GoalId, StepId, TenantId, ToolName};
use detent_reasoner::{OpenaiConfig, Structured};
use detent_store::{Store, StoreOptions};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub const KEY: &str = "key-of-the-tests-0123456789";

/// The plan that the server's model makes when it behaves.
pub fn plan() -> Value {
    json!({
        "steps": [{"id": "fetch", "tool": "rows", "args": {"product": {"$goal": "/product"}}}],
        "result": {"rows": {"$step": "fetch", "at": "/rows"}}
    })
}

pub fn step(id: usize, output: Value) -> StepView {
    StepView {
        id: StepId::new(format!("step-{id}")).unwrap(),
        tool: ToolName::new("rows").unwrap(),
        state: "done".into(),
        output,
        fault: None,
    }
}

pub fn request() -> PlanRequest {
    let tenant = TenantId::default();
    let agent = AgentName::new("report").unwrap();
    let input = json!({"product": "widget"});
    PlanRequest {
        goal: GoalId::from_key(&tenant, &agent, "k"),
        tenant,
        revision: 1,
        tokens_max: 500,
        snapshot: Snapshot {
            agent,
            description: "writes reports".into(),
            input: input.clone(),
            amendments: vec![],
            effective_input: input,
            result_schema: json!({"type": "object"}),
            tools: vec![ToolView {
                name: ToolName::new("rows").unwrap(),
                description: "rows of a product".into(),
                effect: Effect::Read,
                input_schema: json!({"type": "object"}),
            }],
            steps: vec![],
            violations: vec![],
            playbook: Some(plan()),
            budget_left: Amount::default(),
            pruned: 0,
        },
    }
}

pub fn config(base_url: String, model: &str) -> OpenaiConfig {
    OpenaiConfig {
        base_url,
        model: model.into(),
        api_key_env: None,
        api_key_file: None,
        timeout_ms: 60_000,
        tokens_max: 4_000,
        temperature: 0.0,
        structured: Structured::Auto,
        system: None,
    }
}

pub fn key_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{KEY}").unwrap();
    let only_owner = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file.path(), only_owner).unwrap();
    file
}

/// The model server as a process of its own; ends with this value.
pub struct ModelServer {
    child: Child,
    port: u16,
    http: HttpClient,
}

impl ModelServer {
    pub fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/model_server.py");
        let mut child = Command::new("python3")
            .args(["-I", "-S", "-B"])
            .arg(script)
            .env("MODEL_PLAN", plan().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed");
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            port: said["port"].as_u64().unwrap().try_into().unwrap(),
            http: HttpClient::new(HttpOptions::default()).unwrap(),
        }
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The chat requests received, oldest first.
    pub async fn requests(&self) -> Vec<Value> {
        let url = format!("http://127.0.0.1:{}/_requests", self.port);
        let answer = self.http.send(HttpRequest::new(HttpMethod::Get, url)).await;
        serde_json::from_slice(&answer.unwrap().body).unwrap()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A local bus over a store of its own.
pub struct TestBus {
    pub bus: Bus,
    _dir: tempfile::TempDir,
}

pub fn bus() -> TestBus {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::cache(dir.path().join("store"))).unwrap();
    let options = LocalOptions::new(store, dir.path().join("blobs"));
    TestBus {
        bus: LocalBus::open(options).unwrap(),
        _dir: dir,
    }
}
