//! A node's life: ready, looked at, drained, offline, started again.

use super::support::{
    Bed, NOTHING, ONE_STEP, Up, eventually, finish, lines_of, pid_in, tool, wait,
};
use detent_protocol::audit::AuditRecord;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

const HELD: &str = tool!(
    "read",
    "echo $$ > \"$DETENT_DATA_DIR/tool.pid\"; while [ ! -e \"$DETENT_DATA_DIR/go\" ]; do sleep 0.05; done; echo '{}'"
);

#[test]
fn a_drain_lets_tools_end_and_is_seen_on_readyz() {
    let bed = Bed::new(HELD, ONE_STEP);
    let node = Up::start(&bed, &["node.drain_ms=60000"]);
    assert_eq!(node.page("/healthz"), (200, "ok\n".into()));
    assert_eq!(node.page("/readyz"), (200, "ready\n".into()));
    let goal = bed.json(["submit", "goal.json"]).exits(0).last()["goal"]
        .as_str()
        .unwrap()
        .to_owned();
    pid_in(&bed.data("tool.pid"));
    node.terminate();
    eventually("not ready", || {
        (node.page("/readyz").0 == 503).then_some(())
    });
    assert_eq!(node.page("/healthz").0, 200);
    bed.json(["submit", "goal.json"]).refused(4, "DRAINING");
    bed.write("data/go", "");
    let (status, said) = node.ended();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("every running tool ended"), "{said}");

    // The tool's end is in the journal; the rest is done by the next life.
    let node = Up::start(&bed, &[]);
    let out = bed.json(["goals", "watch", &goal]).exits(0);
    let attempts = out
        .lines()
        .iter()
        .filter(|l| l["event"]["kind"] == "intended")
        .count();
    assert_eq!(attempts, 1, "{out:#?}");
    node.stop();
}

#[test]
fn a_drain_without_patience_stops_tools_and_loses_no_goal() {
    let bed = Bed::new(HELD, ONE_STEP);
    let node = Up::start(&bed, &["node.drain_ms=0"]);
    let goal = bed.json(["submit", "goal.json"]).exits(0).last()["goal"]
        .as_str()
        .unwrap()
        .to_owned();
    let pid = pid_in(&bed.data("tool.pid"));
    let said = node.stop();
    assert!(said.contains("some tools were stopped"), "{said}");
    assert!(!super::support::is_alive(pid));

    // Offline: everything can be looked at, nothing steered.
    assert_eq!(
        bed.json(["goals", "list", "--open"]).exits(0).last()["goal"],
        *goal
    );
    assert_eq!(bed.show(&goal)["line"]["phase"], "EXECUTING");
    let out = bed.json(["goals", "watch", &goal]).exits(4);
    assert!(out.stderr.contains("no node works on it"), "{out:#?}");
    bed.json(["goals", "export", &goal, "--to", "open.detent"])
        .exits(0);
    bed.json(["replay", "open.detent"]).exits(0);
    bed.json(["goals", "pause", &goal])
        .refused(4, "NODE_UNREACHABLE");

    bed.write("data/go", "");
    let node = Up::start(&bed, &[]);
    bed.json(["goals", "watch", &goal]).exits(0);
    node.stop();
}

#[test]
fn a_second_signal_stops_at_once_and_loses_no_goal() {
    let bed = Bed::new(HELD, ONE_STEP);
    let node = Up::start(&bed, &["node.drain_ms=3600000"]);
    let accepted = bed.json(["submit", "goal.json"]).exits(0).last();
    let pid = pid_in(&bed.data("tool.pid"));
    node.terminate();
    eventually("the drain", || {
        (node.page("/readyz").0 == 503).then_some(())
    });
    node.terminate();
    let (status, said) = node.ended();
    assert_eq!(status.code(), Some(130), "{said}");
    // Its keeper ends the tool when it sees that the node is gone.
    eventually("the tool's end", || {
        (!super::support::is_alive(pid)).then_some(())
    });
    bed.write("data/go", "");
    let node = Up::start(&bed, &[]);
    let goal = accepted["goal"].as_str().unwrap();
    bed.json(["goals", "watch", goal]).exits(0);
    node.stop();
}

#[test]
fn an_interrupted_run_goes_on_with_the_next() {
    let bed = Bed::new(HELD, ONE_STEP);
    let args = ["run", "goal.json", "--key", "k", "--set", "node.drain_ms=0"];
    let mut command = bed.command(args);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    pid_in(&bed.data("tool.pid"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let stderr = lines_of(child.stderr.take().unwrap());
    assert_eq!(wait(child).code(), Some(130));
    let said: Vec<_> = stderr.iter().collect();
    assert!(
        said.iter()
            .any(|l| l.contains("interrupted") && l.contains("detent up --data")),
        "{said:?}"
    );
    bed.write("data/go", "");
    let out = bed.json(["run", "goal.json", "--key", "k"]).exits(0);
    assert_eq!(out.lines()[0]["duplicate"], true);
    assert_eq!(out.result()["status"], "succeeded");
}

/// Names that the page documents, `_total` left off as in the table.
fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|l| l.strip_prefix("| `"));
    let names = rows.filter_map(|l| Some(l.split_once('`')?.0));
    let metrics = names.filter(|n| n.starts_with("detent_"));
    metrics.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_documented_and_counts() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let node = Up::start(&bed, &[]);
    bed.json(["submit", "goal.json", "--wait"]).exits(0);
    bed.write("bad.json", r#"{"agent": "nobody", "input": {}}"#);
    bed.json(["submit", "bad.json"]).refused(3, "AGENT_UNKNOWN");
    let (status, text) = node.page("/metrics");
    assert_eq!(status, 200);
    let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    let exposed: BTreeSet<_> = types
        .map(|l| l.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(exposed, documented());
    for line in [
        "detent_goals_accepted_total 1",
        "detent_goals_refused_total{what=\"AGENT_UNKNOWN\"} 1",
        "detent_goals_ended_total{what=\"succeeded\"} 1",
        "detent_goals_in_flight 0",
        "detent_goal_seconds_count 1",
        "detent_invariant_violations_total{invariant=\"unnamed\"} 0",
        "detent_ready 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert_eq!(node.page("/nowhere").0, 404);
    node.stop();
}

/// Failing attempts with long last words, so that the log passes its bound.
#[test]
fn the_audit_log_rotates_and_every_line_is_a_record() {
    let noisy = tool!("read", "head -c 1000 /dev/zero | tr '\\0' x >&2; exit 1").replace(
        "retry.attempts_max = 1",
        "retry = { attempts_max = 20, backoff_ms = 1, backoff_ms_max = 1 }",
    );
    let steps = "[[playbook.steps]]\nid = \"s\"\ntool = \"t\"\nfor_each = { goal = \"/list\" }\nargs = { i = { \"$item\" = \"\" } }\n[playbook.result]\nout = { \"$step\" = \"s\" }\n";
    let bed = Bed::new(&noisy, steps);
    bed.write(
        "goal.json",
        r#"{"agent": "a", "input": {"list": [1, 2, 3, 4]}}"#,
    );
    let args = [
        "run",
        "goal.json",
        "-o",
        "json",
        "--set",
        "audit.rotate_bytes=65536",
        "--set",
        "audit.files_max=2",
    ];
    let out = finish(bed.command(args));
    let goal = out.last()["goal"].as_str().unwrap().to_owned();
    out.failed("TOOL_FAILED");
    let mut numbers = Vec::new();
    for name in ["audit.log.2", "audit.log.1", "audit.log"] {
        let Ok(text) = std::fs::read_to_string(bed.data(name)) else {
            assert_eq!(name, "audit.log.2");
            continue;
        };
        assert!(text.len() <= 65_536 && text.ends_with('\n'), "{name}");
        for line in text.lines() {
            let record: AuditRecord = serde_json::from_str(line).unwrap();
            assert_eq!(record.goal.to_string(), goal);
            numbers.push(record.n);
        }
    }
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert!(!bed.data("audit.log.3").exists());
    // The last transition is the end.
    let view = bed.json(["goals", "watch", &goal]).lines();
    let last = view.iter().rev().find(|l| l["type"] == "event").unwrap();
    assert_eq!(numbers.last().copied(), last["event"]["n"].as_u64());
}
