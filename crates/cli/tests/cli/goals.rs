//! Steering goals on a running node.

use super::support::{Bed, NOTHING, ONE_STEP, Up, eventually, is_alive, pid_in, tool};
use detent_protocol::GoalId;
use serde_json::{Value, json};

/// Works until the file `go` is in the data directory.
const HELD: &str = tool!(
    "read",
    "while [ ! -e \"$DETENT_DATA_DIR/go\" ]; do sleep 0.05; done; echo '{\"went\": true}'"
);

fn submit(bed: &Bed) -> String {
    let accepted = bed.json(["submit", "goal.json"]).exits(0).last();
    assert_eq!(accepted["type"], "accepted");
    accepted["goal"].as_str().unwrap().to_owned()
}

fn waits_for<'a>(what: &'a str, step: Option<&'a str>) -> impl Fn(&Value) -> bool + 'a {
    move |view| {
        let waiting = view["waiting"].as_array().unwrap();
        waiting
            .iter()
            .any(|w| w["what"] == what && step.is_none_or(|s| w["step"] == s))
    }
}

#[test]
fn submit_waits_lists_shows_and_follows() {
    let bed = Bed::new(NOTHING, ONE_STEP);
    let node = Up::start(&bed, &[]);
    let out = bed
        .json(["submit", "goal.json", "--wait", "--key", "k"])
        .exits(0);
    assert_eq!(out.result()["status"], "succeeded");
    let goal = out.last()["goal"].as_str().unwrap().to_owned();
    // The same key: the result at once.
    let again = bed
        .json(["submit", "goal.json", "--key", "k"])
        .exits(0)
        .lines();
    assert_eq!(again[0]["duplicate"], true);
    assert_eq!(again[1]["result"], out.result());

    let listed = bed.json(["goals", "list"]).exits(0).lines();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0]["goal"], &listed[0]["status"]),
        (&json!(goal), &json!("succeeded"))
    );
    let none = bed.detent(["goals", "list", "--open"]).exits(0);
    assert!(
        none.stdout.is_empty() && none.stderr.contains("no goals"),
        "{none:#?}"
    );
    let text = bed.detent(["goals", "show", &goal]).exits(0).stdout;
    for told in [
        "state    succeeded",
        "agent    a",
        "step     s ",
        "evidence:",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }

    let all = bed.json(["goals", "watch", &goal]).exits(0);
    let rest = bed.json(["goals", "watch", &goal, "--from", "5"]).exits(0);
    let of = |out: &super::support::Out| -> Vec<Value> {
        let lines = out.lines();
        lines.into_iter().filter(|l| l["type"] == "event").collect()
    };
    assert_eq!(of(&all)[4..], of(&rest)[..]);
    assert_eq!(rest.result(), out.result());

    let unknown = GoalId::from_bytes([7; 16]).to_string();
    for args in [
        &["goals", "show", &unknown][..],
        &["goals", "watch", &unknown],
        &["goals", "cancel", &unknown],
        &["goals", "export", &unknown],
    ] {
        bed.json(args).refused(3, "GOAL_UNKNOWN");
    }
    let fault = bed
        .json(["goals", "cancel", &goal])
        .refused(3, "INPUT_INVALID");
    assert!(
        fault["message"]
            .as_str()
            .unwrap()
            .contains("has ended: succeeded"),
        "{fault}"
    );
    let fault = bed
        .json(["goals", "answer", &goal, "q-1", "fail"])
        .refused(3, "INPUT_INVALID");
    assert!(
        fault["message"].as_str().unwrap().contains("has ended"),
        "{fault}"
    );
    node.stop();
}

#[test]
fn a_list_longer_than_a_page_is_whole() {
    let bed = Bed::new(NOTHING, "[playbook]\nsteps = 5\n");
    let node = Up::start(&bed, &[]);
    for _ in 0..4 {
        bed.json(["submit", "goal.json", "--wait"])
            .failed("PLAN_INVALID");
    }
    let out = bed.json(["goals", "list", "--limit", "3"]).exits(0);
    assert_eq!(out.lines().len(), 3);
    assert!(out.stderr.contains("--limit gives more"), "{out:#?}");
    let ids: Vec<_> = bed
        .json(["goals", "list"])
        .lines()
        .iter()
        .map(|g| g["goal"].to_string())
        .collect();
    assert!(ids.len() == 4 && ids.is_sorted(), "{ids:?}");
    node.stop();
}

/// A tool whose child has left its session and its parent.
#[test]
fn after_a_cancel_nothing_of_the_goal_is_alive() {
    let daemon = tool!(
        "read",
        "( setsid sh -c 'echo $$ > \"$DETENT_DATA_DIR/child.pid\"; exec sleep 600' </dev/null >/dev/null 2>&1 & ); echo $$ > \"$DETENT_DATA_DIR/tool.pid\"; exec sleep 600"
    )
    .replace("10_000", "600_000");
    let bed = Bed::new(&daemon, ONE_STEP);
    let node = Up::start(&bed, &[]);
    let goal = submit(&bed);
    let pids = [
        pid_in(&bed.data("tool.pid")),
        pid_in(&bed.data("child.pid")),
    ];
    assert!(pids.iter().all(|p| is_alive(*p)));
    let out = bed
        .json(["goals", "cancel", &goal, "--reason", "changed my mind"])
        .exits(0);
    assert!(!pids.iter().any(|p| is_alive(*p)), "{out:#?}");
    let receipt = &out.result()["receipt"];
    assert_eq!(receipt["reason"], "changed my mind");
    assert_eq!(receipt["confirmed"], json!(["local"]));
    assert_eq!(receipt["unconfirmed"], json!([]));
    assert_eq!(receipt["steps"][0]["state"], "skipped");
    // Whoever waits for a cancelled goal is told by the exit code.
    let text = bed.detent(["goals", "watch", &goal]).exits(5).stdout;
    assert!(text.contains("confirmed by: local"), "{text}");
    bed.json(["goals", "cancel", &goal])
        .refused(3, "INPUT_INVALID");
    node.stop();
}

const TWO_STEPS: &str = r#"
[[playbook.steps]]
id = "first"
tool = "t"
[[playbook.steps]]
id = "second"
tool = "t"
after = ["first"]
args = { name = { "$goal" = "/name" } }
[playbook.result]
name = { "$goal" = "/name" }
out = { "$step" = "second" }
"#;

fn named(bed: &Bed) {
    bed.write("goal.json", r#"{"agent": "a", "input": {"name": "old"}}"#);
}

#[test]
fn a_paused_goal_starts_nothing_until_it_is_resumed() {
    let bed = Bed::new(HELD, TWO_STEPS);
    named(&bed);
    let node = Up::start(&bed, &[]);
    let goal = submit(&bed);
    bed.until(&goal, "the first tool", waits_for("tool", Some("first")));
    bed.json(["goals", "pause", &goal]).exits(0);
    bed.write("data/go", "");
    let view = bed.until(&goal, "the first step's end", |v| {
        v["steps"][0]["state"] == "done"
    });
    assert!(waits_for("resume", None)(&view), "{view}");
    let text = bed.detent(["goals", "show", &goal]).exits(0).stdout;
    assert!(text.contains("waits    for resume"), "{text}");
    let watched = bed.json(["goals", "resume", &goal]).exits(0).last();
    assert_eq!(watched["type"], "controlled");
    bed.json(["goals", "watch", &goal]).exits(0);
    let events = bed.json(["goals", "watch", &goal]).lines();
    let at = |kind: &str, step: Option<&str>| {
        let found = events.iter().position(|l| {
            l["event"]["kind"] == kind && step.is_none_or(|s| l["event"]["step"] == s)
        });
        found.unwrap_or_else(|| panic!("no {kind} in {events:#?}"))
    };
    assert!(at("resumed", None) < at("intended", Some("second")));
    node.stop();
}

#[test]
fn an_amended_goal_ends_with_the_new_input() {
    let bed = Bed::new(HELD, TWO_STEPS);
    named(&bed);
    let node = Up::start(&bed, &[]);
    let goal = submit(&bed);
    bed.until(&goal, "the first tool", waits_for("tool", Some("first")));
    bed.json(["goals", "amend", &goal, "{oops"])
        .refused(3, "INPUT_INVALID");
    bed.json(["goals", "amend", &goal, "[]"])
        .refused(3, "INPUT_INVALID");
    bed.json(["goals", "amend", &goal, r#"{"name": "new"}"#])
        .exits(0);
    bed.write("data/go", "");
    let result = bed.json(["goals", "watch", &goal]).exits(0).result();
    assert_eq!(result["data"]["name"], "new");
    assert_eq!(bed.show(&goal)["input"]["name"], "new");
    node.stop();
}

/// What a `once` tool did is looked for in a file that only its output could name: when
/// the process dies there is nothing to look at, and a person is asked.
const POST: &str = r#"
[[playbook.steps]]
id = "post"
tool = "t"
[[playbook.steps.expect]]
probe = "file"
params = { path = { "$output" = "/path" } }
schema = { properties = { exists = { const = true } }, required = ["exists"] }
[[playbook.steps]]
id = "after"
tool = "look"
after = ["post"]
[playbook.result]
look = { "$step" = "after" }
"#;

fn asked() -> (Bed, Up, String, Value) {
    let once = tool!(
        "once",
        "echo $$ > \"$DETENT_DATA_DIR/tool.pid\"; exec sleep 600"
    )
    .replace("10_000", "600_000");
    let look = NOTHING.replace("name = \"t\"", "name = \"look\"");
    let bed = Bed::new(&format!("{once}{look}"), POST);
    let agent = std::fs::read_to_string(bed.path("a.toml")).unwrap();
    bed.write("a.toml", agent.replace("[\"t\"]", "[\"t\", \"look\"]"));
    let node = Up::start(&bed, &[]);
    let goal = submit(&bed);
    let pid = pid_in(&bed.data("tool.pid"));
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let view = bed.until(&goal, "a question", |v| {
        !v["questions"].as_array().unwrap().is_empty()
    });
    let question = view["questions"][0].clone();
    (bed, node, goal, question)
}

#[test]
fn a_question_is_asked_and_answered() {
    let (bed, node, goal, question) = asked();
    let id = question["id"].as_str().unwrap();
    assert!(
        question["what"].as_str().unwrap().contains("step post"),
        "{question}"
    );
    let text = bed.detent(["goals", "show", &goal]).exits(0).stdout;
    assert!(text.contains(&format!("asks     {id}: ")), "{text}");
    assert!(
        text.contains("it-happened | it-did-not-happen | fail"),
        "{text}"
    );

    let fault = bed
        .json(["goals", "answer", &goal, "q-none", "fail"])
        .refused(3, "INPUT_INVALID");
    assert_eq!(fault["at"], "/question");
    let fault = bed
        .json(["goals", "answer", &goal, id, "perhaps"])
        .refused(3, "INPUT_INVALID");
    assert!(
        fault["message"].as_str().unwrap().contains("it-happened"),
        "{fault}"
    );

    bed.json(["goals", "answer", &goal, id, "it-happened"])
        .exits(0);
    bed.json(["goals", "watch", &goal]).exits(0);
    let view = bed.show(&goal);
    let post = view["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["id"] == "post")
        .unwrap()
        .clone();
    assert_eq!(post["state"], "done", "{view}");
    node.stop();
}

#[test]
fn a_question_outlives_the_node_and_fail_ends_the_goal() {
    let (bed, node, goal, question) = asked();
    let id = question["id"].as_str().unwrap();
    node.stop();
    assert_eq!(bed.show(&goal)["questions"][0], question);
    bed.json(["goals", "answer", &goal, id, "fail"])
        .refused(4, "NODE_UNREACHABLE");
    let node = Up::start(&bed, &[]);
    assert_eq!(node.ready["goals_in_flight"], 1);
    eventually("the answer", || {
        let out = bed.json(["goals", "answer", &goal, id, "fail"]);
        (out.status.code() == Some(0)).then_some(())
    });
    let result = bed
        .json(["goals", "watch", &goal])
        .failed("OUTCOME_UNKNOWN");
    let steps = result["steps"].as_array().unwrap();
    let post = steps.iter().find(|s| s["step"] == "post").unwrap();
    assert_eq!(post["state"], "unknown", "{result}");
    node.stop();
}
