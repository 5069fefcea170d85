//! W3: the node is killed -9 in the middle, and started again at once.
//!
//! The effect of a step is a line `e` in a file of its own, written 50 ms after a line
//! `s`; a step whose file holds two `e` was done twice. The tool is `once`: nothing
//! but a look at the file tells a new life of the node whether it was done. The output of
//! such a step died with the node, so the result takes what the probe saw instead.

use super::{Setup, fresh};
use detent_bus::Messages;
use detent_bus::local::socket::SocketClient;
use detent_protocol::goal::{Accepted, IdempotencyKey, Submit};
use detent_protocol::messages::{Answer, Ask, GoalLine, Query};
use detent_protocol::{TenantId, subject};
use detent_tool_executor::FnKind;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs the workload; whether nothing was lost and nothing done twice.
pub(crate) async fn run(goals: u64, steps: usize) -> bool {
    let dir = fresh("crash");
    std::fs::create_dir_all(dir.join("effects")).expect("a folder");
    let mut worker = start(&dir);
    let client = connect(&dir).await;
    for n in 0..goals {
        let to = subject::submit(&TenantId::default(), &goal(n).agent);
        let accepted: Result<Accepted, _> =
            detent_bus::call(&client, &to, &goal(n), Duration::from_secs(30)).await;
        accepted.unwrap_or_else(|f| panic!("{f}"));
    }
    let half = goals as usize * steps / 2;
    wait_until(|| effects(&dir).done >= half).await;
    worker.kill().expect("kill -9");
    worker.wait().expect("its end");
    let at_kill = effects(&dir);
    let killed = Instant::now();
    let mut worker = start(&dir);
    wait_until(|| effects(&dir).done > at_kill.done).await;
    let first = killed.elapsed();
    let client = connect(&dir).await;
    let ended = wait_ended(&client, goals).await;
    let all = killed.elapsed();
    let lost = goals - ended;
    if lost > 0 {
        tell_lost(&client).await;
    }
    worker.kill().expect("kill -9");
    worker.wait().expect("its end");
    let seen = effects(&dir);
    println!(
        "w3       {goals} goals x {steps} steps, killed -9 after {} effects with {} in flight: lost {lost}, \
         effects done twice {}, repeated starts {}, first new effect {:.2} s, all done {:.2} s",
        at_kill.done,
        at_kill.begun - at_kill.done,
        seen.twice,
        seen.begun - goals as usize * steps,
        first.as_secs_f64(),
        all.as_secs_f64()
    );
    let _ = std::fs::remove_dir_all(dir);
    lost == 0 && seen.twice == 0 && seen.done == goals as usize * steps
}

struct Effects {
    begun: usize,
    done: usize,
    twice: usize,
}

fn effects(dir: &Path) -> Effects {
    let mut all = Effects {
        begun: 0,
        done: 0,
        twice: 0,
    };
    for file in std::fs::read_dir(dir.join("effects"))
        .expect("the folder")
        .flatten()
    {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let done = text.matches('e').count();
        all.begun += text.matches('s').count();
        all.done += done;
        all.twice += done.saturating_sub(1);
    }
    all
}

async fn wait_until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "nothing happens"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn goal(n: u64) -> Submit {
    let mut goal = super::goal(n);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    goal.key = Some(IdempotencyKey {
        key: format!("c{n}"),
        issued_at_ms: now.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0)),
    });
    goal
}

fn start(dir: &Path) -> Child {
    let me = std::env::current_exe().expect("own path");
    let child = Command::new(me).arg("__worker").arg(dir).spawn();
    child.expect("the worker")
}

async fn connect(dir: &Path) -> SocketClient {
    let path = dir.join("data").join(detent_node::SOCKET);
    let begin = Instant::now();
    loop {
        match SocketClient::connect(&path).await {
            Ok(client) => return client,
            Err(e) if begin.elapsed() > Duration::from_secs(60) => panic!("{e}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// How many goals succeeded, once none is open any more.
async fn wait_ended(client: &dyn Messages, goals: u64) -> u64 {
    let begin = Instant::now();
    loop {
        let lines = lines(client).await;
        let open = lines.iter().filter(|l| l.status.is_none()).count();
        let good = lines
            .iter()
            .filter(|l| l.status.as_deref() == Some("succeeded"));
        let good = good.count() as u64;
        if (open == 0 && lines.len() as u64 == goals) || begin.elapsed() > Duration::from_secs(60) {
            return good;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn lines(client: &dyn Messages) -> Vec<GoalLine> {
    let tenant = TenantId::default();
    let ask = Ask::List {
        open_only: false,
        after: None,
        limit: 1000,
    };
    let to = subject::query(&tenant);
    let query = Query { tenant, ask };
    match detent_bus::call(client, &to, &query, Duration::from_secs(30)).await {
        Ok(Answer::Goals { goals }) => goals,
        other => panic!("{other:?}"),
    }
}

/// Says how the goals ended that did not succeed.
async fn tell_lost(client: &dyn Messages) {
    for line in lines(client).await {
        if line.status.as_deref() != Some("succeeded") {
            let tenant = TenantId::default();
            let to = subject::query(&tenant);
            let ask = Ask::Show { goal: line.goal };
            let query = Query { tenant, ask };
            let shown: Result<Answer, _> =
                detent_bus::call(client, &to, &query, Duration::from_secs(30)).await;
            println!("w3 lost  {shown:?}");
        }
    }
}

/// The node that is killed.
pub(crate) fn worker(dir: &Path) -> i32 {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let _node = setup(dir).start(dir, true).await;
        std::future::pending::<()>().await;
    });
    0
}

fn setup(dir: &Path) -> Setup {
    let effects: PathBuf = dir.join("effects");
    let step = FnKind::new("step", move |call| {
        let path = effects.join(format!("{}-{}", call.goal, call.args["i"]));
        async move {
            let line = |text: &str| {
                let mut options = std::fs::OpenOptions::new();
                let file = options.create(true).append(true).open(&path);
                file.and_then(|mut f| f.write_all(text.as_bytes()))
                    .expect("the effect's file");
            };
            line("s\n");
            tokio::time::sleep(Duration::from_millis(50)).await;
            line("e\n");
            Ok(json!({"ok": true, "i": call.args["i"]}))
        }
    });
    let mut agent = format!("tools = [\"step\"]\n{}", super::AGENT);
    for i in 0..5 {
        agent += &format!(
            "[[playbook.steps]]\nid = \"s{i}\"\ntool = \"step\"\nargs = {{ i = {i}, goal = {{ \"$meta\" = \"goal_id\" }} }}\n"
        );
        if i > 0 {
            agent += &format!("after = [\"s{}\"]\n", i - 1);
        }
    }
    agent += "[playbook.result]\nvalid = { \"$step\" = \"s4\" }\n";
    let tools = format!(
        r#"
[[tool]]
name = "step"
effect = "once"
kind = "step"
settles_within_ms = 0
identity = ["/i"]
[tool.probe]
probe = "file"
output_at = ""
[tool.probe.params]
path = {{ "$concat" = ["{}/effects/", {{ "$args" = "/goal" }}, "-", {{ "$args" = "/i" }}] }}
parse = "text"
[tool.probe.schema]
required = ["text"]
properties.text = {{ pattern = "e" }}
[tool.probe.absent]
anyOf = [
    {{ required = ["exists"], properties.exists = {{ const = false }} }},
    {{ required = ["text"], properties.text = {{ pattern = "^[s\n]*$" }} }},
]
"#,
        dir.display()
    );
    Setup {
        agent,
        tools,
        kinds: vec![Arc::new(step)],
    }
}
