//! The broker goes away in the middle of 500 goals, and comes back.
//!
//! `DETENT_OUTAGE_SECS` says for how long (default 4).

use super::support::{Bed, PATIENCE};
use detent_bus::nats::server::{PrivateServer, ServerOptions, find_server};
use detent_bus::{Messages, call};
use detent_node::Node;
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::{Answer, Ask, GoalLine, Query};
use detent_protocol::{Fault, TenantId, subject};
use detent_tool_executor::{FnKind, Invocation};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const GOALS: u64 = 500;
/// Steps of a goal, each an effect that shows in a file.
const STEPS: usize = 3;

/// A file that must not be there, and then is: what writes it twice shows.
const TOOLS: &str = r#"
[[tool]]
name = "post"
effect = "once"
kind = "fn"
timeout_ms = 3_000
identity = ["/reference"]
settles_within_ms = 0
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

fn agent() -> String {
    let mut agent = String::from(
        "name = \"a\"\ntools = [\"post\"]\ninput_schema = true\nresult_schema = true\n\
         deadline_ms = 600_000\n",
    );
    for n in 0..STEPS {
        agent += &format!(
            "[[playbook.steps]]\nid = \"s{n}\"\ntool = \"post\"\n\
             args = {{ reference = {{ \"$concat\" = [{{ \"$meta\" = \"goal_id\" }}, \"-{n}\"] }} }}\n"
        );
        if n > 0 {
            agent += &format!("after = [\"s{}\"]\n", n - 1);
        }
    }
    agent += "[playbook.result]\nnumber = { \"$step\" = \"s2\", at = \"/number\" }\n";
    agent
}

struct World {
    bed: Bed,
    server: PrivateServer,
    node: Node,
    effects: Arc<AtomicUsize>,
    twice: Arc<AtomicUsize>,
}

impl World {
    async fn start() -> Self {
        let config = "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n";
        let bed = Bed::new(&[
            ("detent.toml", config.into()),
            ("a.toml", agent()),
            ("t.toml", TOOLS.into()),
        ]);
        let program = find_server(None).unwrap();
        let options = ServerOptions::new(program, bed.path("nats"));
        let server = PrivateServer::start(options).await.unwrap();
        let (effects, twice) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (data, counts) = (bed.path("data"), (effects.clone(), twice.clone()));
        let post = move |call: Invocation| {
            let (data, counts) = (data.clone(), counts.clone());
            async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let reference = call.args["reference"].as_str().unwrap().to_owned();
                let file = data.join(format!("posted-{reference}"));
                // Once it is there it is whole: a probe never sees half of it.
                let half = file.with_extension(call.attempt.to_string());
                std::fs::write(&half, r#"{"number": 7}"#).unwrap();
                let new = std::fs::hard_link(&half, file);
                counts.0.fetch_add(1, Ordering::SeqCst);
                counts
                    .1
                    .fetch_add(usize::from(new.is_err()), Ordering::SeqCst);
                Ok(json!({"number": 7}))
            }
        };
        let url = format!("nats.url={}", server.url());
        let node = bed.node(&[&url], Arc::new(FnKind::new("fn", post))).await;
        Self {
            bed,
            server,
            node,
            effects,
            twice,
        }
    }

    fn messages(&self) -> Arc<dyn Messages> {
        self.node.bus().messages.clone()
    }

    async fn list(&self) -> Result<Vec<GoalLine>, Fault> {
        let tenant = TenantId::default();
        let subject = subject::query(&tenant);
        let ask = Ask::List {
            open_only: false,
            after: None,
            limit: 1000,
        };
        let query = Query { tenant, ask };
        match call(&*self.messages(), &subject, &query, PATIENCE).await? {
            Answer::Goals { goals } => Ok(goals),
            other => panic!("{other:?}"),
        }
    }
}

async fn submit(messages: Arc<dyn Messages>, n: u64, wait: Duration) -> Result<Accepted, Fault> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let key = json!({"key": format!("order-{n}"), "issued_at_ms": now.unwrap().as_millis() as u64});
    let submit = json!({"agent": "a", "input": {"n": n}, "key": key});
    let submit: Submit = serde_json::from_value(submit).unwrap();
    let subject = subject::submit(&submit.tenant, &submit.agent);
    call(&*messages, &subject, &submit, wait).await
}

fn outage() -> Duration {
    let secs = std::env::var("DETENT_OUTAGE_SECS").ok();
    let secs = secs.map_or(4, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(secs)
}

async fn the_broker_goes_and_comes_back(kill: bool) {
    let mut world = World::start().await;
    let all = (0..GOALS).map(|n| submit(world.messages(), n, PATIENCE));
    let accepted = futures_join(all).await;
    let first = accepted.iter().flatten().next().unwrap().goal;
    for accepted in accepted {
        accepted.unwrap();
    }
    let begin = Instant::now();
    while world.effects.load(Ordering::SeqCst) < GOALS as usize / 2 {
        let done = world.effects.load(Ordering::SeqCst);
        let first = super::support::show(&world.node, first).await;
        assert!(begin.elapsed() < PATIENCE, "{done} effects, {first:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    match kill {
        true => world.server.kill().await,
        false => world.server.stop().await,
    }
    let gone = Instant::now();
    // Admission says no, and says so in time; the node shows that it is not ready.
    let late = submit(world.messages(), GOALS, Duration::from_secs(2)).await;
    assert!(late.is_err_and(|fault| fault.code.retryable()));
    assert_eq!(
        world.node.not_ready().as_deref(),
        Some("BROKER_UNREACHABLE")
    );
    tokio::time::sleep(outage().saturating_sub(gone.elapsed())).await;
    world.server.restart().await.unwrap();

    let back = Instant::now();
    let ended = loop {
        // A node that has just got the connection back may still say that it has none.
        let list = world.list().await.unwrap_or_default();
        let ended = list.iter().filter(|l| l.status.is_some()).count();
        if ended >= GOALS as usize && ended == list.len() {
            break list;
        }
        assert!(
            back.elapsed() < 3 * PATIENCE,
            "{ended} of {GOALS} have ended"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let took = back.elapsed();
    println!(
        "{} for {:?}: all {GOALS} goals ended {took:?} after its return",
        if kill { "killed" } else { "stopped" },
        outage()
    );
    let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
    for line in &ended {
        *statuses
            .entry(line.status.clone().unwrap_or_default())
            .or_default() += 1;
    }
    // What was asked for while the broker was going may have arrived when it was back: its
    // publisher was told to ask again, and has a key for it.
    let succeeded = statuses.get("succeeded").copied().unwrap_or_default();
    assert_eq!(statuses.len(), 1, "{statuses:?}");
    assert!(succeeded - GOALS as usize <= 1, "{statuses:?}");
    assert_eq!(world.twice.load(Ordering::SeqCst), 0);
    assert_eq!(world.effects.load(Ordering::SeqCst), succeeded * STEPS);
    world.node.stop().await;
    drop(world.bed);
}

async fn futures_join<F: Future + Send + 'static>(all: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F::Output: Send,
{
    let mut tasks = tokio::task::JoinSet::new();
    all.for_each(|work| drop(tasks.spawn(work)));
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_in_the_middle_costs_no_goal() {
    the_broker_goes_and_comes_back(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_stopped_in_the_middle_costs_no_goal() {
    the_broker_goes_and_comes_back(false).await;
}
