//! What the workloads share: a node in a fresh folder, lanes, figures.

pub(crate) mod broker;
pub(crate) mod crash;
pub(crate) mod floor;
pub(crate) mod held;
pub(crate) mod report;

use detent_bus::{Bus, Messages, call};
use detent_node::{Config, Flags, Node, NodeParts};
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::{Fault, GoalId, subject};
use detent_sandbox::KeeperCommand;
use detent_tool_executor::{FnKind, ToolKind};
use report::Figures;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A hidden first argument: this process is a child of the bench.
pub(crate) fn hidden(args: &[String]) -> Option<i32> {
    match args.first().map(String::as_str) {
        Some("__keeper") => Some(detent_sandbox::keeper_main()),
        Some("__worker") => Some(crash::worker(Path::new(&args[1]))),
        Some("__node") => Some(broker::node(&args[1..])),
        Some("__audited") => {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let lanes = args[1].parse().expect("lanes");
            let figures = runtime.block_on(Lanes::run(&Setup::w1(), lanes, 2));
            println!("{}", figures.goals);
            Some(0)
        }
        _ => None,
    }
}

/// The number after `name`.
pub(crate) fn option(args: &[String], name: &str) -> Option<u64> {
    let at = args.iter().position(|a| a == name)?;
    args.get(at + 1)?.parse().ok()
}

/// A folder for one run, on the disk that the build lies on.
pub(crate) fn fresh(name: &str) -> PathBuf {
    let target = std::env::current_exe().expect("own path");
    let target = target
        .ancestors()
        .nth(3)
        .expect("target folder")
        .join("bench");
    let dir = target.join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// A workload: its agent and its tools, as configuration files.
pub(crate) struct Setup {
    pub(crate) agent: String,
    pub(crate) tools: String,
    pub(crate) kinds: Vec<Arc<dyn ToolKind>>,
}

const AGENT: &str = "name = \"bench\"\nreasoners = [\"playbook\"]\ndeadline_ms = 600_000\n\
[policy]\nparallel_max = 64\n[input_schema]\ntype = \"object\"\n[result_schema]\ntype = \"object\"\nrequired = [\"valid\"]\n";

/// 200 bytes of JSON, as every no-op tool of the workload returns.
fn noop(args: &Value) -> Value {
    let mut answer = json!({"ok": true, "tool": "noop", "i": args["i"], "pad": ""});
    let left = 200usize.saturating_sub(answer.to_string().len());
    answer["pad"] = Value::String("x".repeat(left));
    answer
}

fn validate(args: &Value) -> Result<Value, Fault> {
    let all = args["results"].as_array().cloned().unwrap_or_default();
    let good = all.iter().all(|r| r["ok"] == true);
    if good {
        Ok(json!({"valid": true, "n": all.len()}))
    } else {
        Err(Fault::new(detent_protocol::Code::ToolFailed, "not ok"))
    }
}

fn kinds() -> Vec<Arc<dyn ToolKind>> {
    vec![
        Arc::new(FnKind::new(
            "noop",
            |call| async move { Ok(noop(&call.args)) },
        )),
        Arc::new(FnKind::new("validate", |call| async move {
            validate(&call.args)
        })),
    ]
}

fn tool(name: &str, kind: &str) -> String {
    format!("[[tool]]\nname = \"{name}\"\neffect = \"read\"\nkind = \"{kind}\"\n")
}

impl Setup {
    /// `n` no-op steps one after the other; the result holds all their outputs, and its
    /// contract is the validation: it is journaled with the goal's end.
    fn in_a_row(n: usize) -> Self {
        let mut agent = format!("tools = [\"noop\"]\n{AGENT}");
        agent = agent.replace("required = [\"valid\"]", "required = [\"results\"]");
        agent += "[result_schema.properties.results]\ntype = \"array\"\nminItems = 3\n\
            items = { type = \"object\", required = [\"ok\"], properties.ok = { const = true } }\n";
        for i in 0..n {
            agent += &format!(
                "[[playbook.steps]]\nid = \"s{i}\"\ntool = \"noop\"\nargs = {{ i = {i} }}\n"
            );
            if i > 0 {
                agent += &format!("after = [\"s{}\"]\n", i - 1);
            }
        }
        let results: Vec<_> = (0..n)
            .map(|i| format!("{{ \"$step\" = \"s{i}\" }}"))
            .collect();
        agent += &format!("[playbook.result]\nresults = [{}]\n", results.join(", "));
        Self {
            agent,
            tools: tool("noop", "noop"),
            kinds: kinds(),
        }
    }

    /// `n` no-op steps, then validate.
    fn side_by_side(n: usize) -> Self {
        let mut agent = format!("tools = [\"noop\", \"validate\"]\n{AGENT}");
        for i in 0..n {
            agent += &format!(
                "[[playbook.steps]]\nid = \"s{i}\"\ntool = \"noop\"\nargs = {{ i = {i} }}\n"
            );
        }
        let results: Vec<_> = (0..n)
            .map(|i| format!("{{ \"$step\" = \"s{i}\" }}"))
            .collect();
        let results = results.join(", ");
        agent += &format!(
            "[[playbook.steps]]\nid = \"v\"\ntool = \"validate\"\nargs = {{ results = [{results}] }}\n"
        );
        agent += "[playbook.result]\nvalid = { \"$step\" = \"v\", at = \"/valid\" }\n";
        Self {
            agent,
            tools: tool("noop", "noop") + &tool("validate", "validate"),
            kinds: kinds(),
        }
    }
    pub(crate) fn w1() -> Self {
        Self::in_a_row(3)
    }
    pub(crate) fn w2() -> Self {
        Self::side_by_side(16)
    }

    /// A node that runs it.
    pub(crate) async fn start(&self, dir: &Path, socket: bool) -> Node {
        self.start_with(dir, socket, &[]).await
    }

    /// The same with further settings.
    pub(crate) async fn start_with(&self, dir: &Path, socket: bool, more: &[String]) -> Node {
        let file = dir.join("detent.toml");
        std::fs::write(
            &file,
            "agents = [\"agent.toml\"]\ntools = [\"tools.toml\"]\n",
        )
        .expect("file");
        std::fs::write(dir.join("agent.toml"), &self.agent).expect("file");
        std::fs::write(dir.join("tools.toml"), &self.tools).expect("file");
        let set = [
            "node.http_listen=",
            "node.tools_in_flight_max=4096",
            "node.drain_ms=0",
        ];
        let flags = Flags {
            file: Some(file),
            set: set
                .map(str::to_owned)
                .into_iter()
                .chain(more.iter().cloned())
                .collect(),
        };
        let config = Config::load(&flags, &|_| None).unwrap_or_else(|f| panic!("{f}"));
        let parts = NodeParts {
            config,
            data_dir: dir.join("data"),
            keeper: KeeperCommand::this_program(&["__keeper"]),
            kinds: self.kinds.clone(),
            socket,
        };
        Node::start(parts).await.unwrap_or_else(|f| panic!("{f}"))
    }
}

/// The submission of goal number `n`.
pub(crate) fn goal(n: u64) -> Submit {
    serde_json::from_value(json!({"agent": "bench", "input": {"n": n}})).expect("a goal")
}

pub(crate) async fn submit(bus: &Bus, submit: &Submit) -> Result<Accepted, Fault> {
    let to = subject::submit(&submit.tenant, &submit.agent);
    call(&*bus.messages, &to, submit, Duration::from_secs(30)).await
}

/// Results as they are published, handed to whoever waits for them.
pub(crate) struct Results {
    waiting: Mutex<HashMap<GoalId, Slot>>,
}

enum Slot {
    Waits(oneshot::Sender<bool>),
    Came(bool),
}

impl Results {
    /// Listens before any goal is submitted, so that no result is missed.
    pub(crate) async fn listen(bus: &Bus) -> Arc<Self> {
        Self::listen_on(&*bus.messages).await
    }

    /// The same over any connection.
    pub(crate) async fn listen_on(messages: &dyn Messages) -> Arc<Self> {
        let results = Arc::new(Self {
            waiting: Mutex::default(),
        });
        let mut events = messages
            .subscribe("detent.*.result.>", 65_536)
            .await
            .expect("a subscription");
        let me = results.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let detent_bus::Event::Message { payload, .. } = event else {
                    panic!("the bench's own subscription was too slow");
                };
                let message: detent_protocol::result::ResultMessage =
                    detent_protocol::envelope::expect(&payload).expect("a result");
                me.came(message.goal, message.result.status() == "succeeded");
            }
        });
        results
    }

    fn came(&self, goal: GoalId, good: bool) {
        let mut waiting = self.waiting.lock().expect("no panic under the lock");
        if let Some(Slot::Waits(tell)) = waiting.insert(goal, Slot::Came(good)) {
            waiting.remove(&goal);
            let _ = tell.send(good);
        }
    }

    /// Waits for the result of a goal; whether it succeeded.
    pub(crate) async fn of(&self, goal: GoalId) -> bool {
        let came = {
            let mut waiting = self.waiting.lock().expect("no panic under the lock");
            match waiting.remove(&goal) {
                Some(Slot::Came(good)) => return good,
                _ => {
                    let (tell, came) = oneshot::channel();
                    waiting.insert(goal, Slot::Waits(tell));
                    came
                }
            }
        };
        came.await.expect("the listener lives")
    }
}

/// Lanes in a closed loop.
pub(crate) struct Lanes;

impl Lanes {
    pub(crate) async fn run(setup: &Setup, lanes: usize, secs: u64) -> Figures {
        let dir = fresh("lanes");
        let node = setup.start(&dir, false).await;
        let results = Results::listen(node.bus()).await;
        // Warm: the code, the allocator, the store's first segments.
        Self::phase(&node, &results, lanes.min(8), Duration::from_secs(1), 0).await;
        let before = (report::cpu(), node.store_counters());
        let begin = Instant::now();
        let min = if lanes >= 64 { 2 * lanes as u64 } else { 0 };
        let latencies = Self::phase(&node, &results, lanes, Duration::from_secs(secs), min).await;
        let figures = Figures::new(lanes, begin.elapsed(), latencies, report::cpu() - before.0)
            .synced(node.store_counters().syncs - before.1.syncs);
        node.stop().await;
        let _ = std::fs::remove_dir_all(dir);
        figures
    }

    async fn phase(
        node: &Node,
        results: &Arc<Results>,
        lanes: usize,
        time: Duration,
        min: u64,
    ) -> Vec<Duration> {
        let begin = Instant::now();
        let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let lane = || {
            let (bus, results, count) = (node.bus().clone(), results.clone(), count.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if begin.elapsed() >= time && n >= min {
                        return latencies;
                    }
                    let start = Instant::now();
                    let accepted = submit(&bus, &goal(n))
                        .await
                        .unwrap_or_else(|f| panic!("{f}"));
                    assert!(results.of(accepted.goal).await, "goal {n} did not succeed");
                    latencies.push(start.elapsed());
                }
            })
        };
        let lanes: Vec<_> = (0..lanes).map(|_| lane()).collect();
        let mut all = Vec::new();
        for lane in lanes {
            all.extend(lane.await.expect("a lane"));
        }
        all
    }
}

/// W1 under strace: what the kernel was asked to sync.
pub(crate) fn audit() {
    for lanes in ["1", "16"] {
        let dir = fresh("audit");
        let log = dir.join("strace.txt");
        let me = std::env::current_exe().expect("own path");
        let calls = "trace=fsync,fdatasync,sync_file_range,msync,pwritev2,syncfs,sync";
        let run = Command::new("strace")
            .args(["-f", "-c", "-e", calls, "-o"])
            .arg(&log)
            .arg(me)
            .args(["__audited", lanes])
            .output();
        let Ok(run) = run else {
            println!("audit: strace is not installed; syncs were not counted");
            return;
        };
        let goals: f64 = String::from_utf8_lossy(&run.stdout)
            .trim()
            .parse()
            .unwrap_or(0.0);
        let table = std::fs::read_to_string(&log).unwrap_or_default();
        print!("audit: w1, {lanes} in flight, {goals} goals and a second of warming:");
        for line in table.lines() {
            let fields: Vec<_> = line.split_whitespace().collect();
            let name = fields.last().copied().unwrap_or_default();
            if calls.contains(name) && name.len() > 3 {
                let count: f64 = fields[3].parse().unwrap_or(0.0);
                print!("  {name} {count} ({:.1} a goal)", count / goals.max(1.0));
            }
        }
        println!();
        let _ = std::fs::remove_dir_all(dir);
    }
}
