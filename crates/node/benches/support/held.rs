//! Goals that are held in flight: what one costs in memory and time.

use super::{Setup, fresh, goal, report, submit, tool};
use detent_tool_executor::FnKind;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

pub(crate) async fn run(goals: u64) {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let hold = FnKind::new("hold", move |_| {
        let held = held.clone();
        async move {
            let _ = held.acquire().await;
            Ok(json!({"valid": true}))
        }
    });
    let setup = Setup {
        agent: format!(
            "tools = [\"hold\"]\n{}[[playbook.steps]]\nid = \"h\"\ntool = \"hold\"\n[playbook.result]\nvalid = {{ \"$step\" = \"h\", at = \"/valid\" }}\n",
            super::AGENT
        ),
        tools: tool("hold", "hold"),
        kinds: vec![Arc::new(hold)],
    };
    let dir = fresh("held");
    let node = setup.start(&dir, false).await;
    let results = super::Results::listen(node.bus()).await;
    let before = report::memory();
    let begin = Instant::now();
    let mut taken = Vec::new();
    for n in 0..goals {
        taken.push(
            submit(node.bus(), &goal(n))
                .await
                .unwrap_or_else(|f| panic!("{f}"))
                .goal,
        );
    }
    let took = begin.elapsed();
    let after = report::memory();
    println!(
        "memory   {goals} goals in flight: {:.1} KiB a goal, taken in {:.2} ms each, one after the other",
        after.saturating_sub(before) as f64 / 1024.0 / goals as f64,
        took.as_secs_f64() * 1000.0 / goals as f64
    );
    gate.add_permits(usize::try_from(goals).expect("fits"));
    for goal in taken {
        assert!(results.of(goal).await);
    }
    node.stop().await;
    let _ = std::fs::remove_dir_all(dir);
}
