//! A model that turns what it may write against the node: probes that would act with
//! the node's rights, and templates that would grow beyond all bounds. Its goal ends with
//! a code, nothing of its plan runs, and nothing outside the goal is touched.

use super::super::support::{PATIENCE, code, events, submit};
use super::scene::Scene;
use detent_protocol::GOAL_BYTES_MAX;
use detent_protocol::result::GoalResult;
use serde_json::{Value, json};
use std::time::Instant;

fn process() -> Value {
    json!({"probe": "process", "params": {"command": ["/bin/sh", "-c", "id"]},
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
        scene.model.answers(&plan.to_string(), 3).await;
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
    assert_eq!(scene.canary.hits(), 0);
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
    while !scene.marker().exists() || scene.canary.hits() == 0 {
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
        (
            plan_of("report", json!([elsewhere])),
            Some("OBSERVATION_REJECTED"),
        ),
    ] {
        scene.model.answers(&plan.to_string(), 1).await;
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

/// A plan of half a megabyte, in which `MANY` are 35,000 references to the whole goal. As
/// text: what the test itself holds is not to be measured.
fn bomb(args: &str, expect: &str, result: &str) -> String {
    let many = vec![r#"{"$goal":""}"#; 35_000].join(",");
    let plan = format!(
        r#"{{"steps": [{{"id": "fetch", "tool": "rows", "args": {args}, "expect": [{expect}]}}],
            "result": {{"rows": {{"$step": "fetch", "at": "/rows"}} {result}}}}}"#
    );
    plan.replace("MANY", &format!("[{many}]"))
}

/// Over a goal of 88 KB: three gigabytes, if they were replaced before anybody counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_plan_can_not_become_a_huge_value() {
    const MEMORY_GROWTH_BYTES_MAX: u64 = 512 << 20;
    let scene = Scene::new().await;
    let before = memory_peak_bytes();
    let padded = r#"{"probe": "file", "params": {"path": "x", "more": MANY},
        "schema": {"required": ["exists"], "properties": {"exists": {"const": true}}}}"#;
    for (what, plan) in [
        ("arguments", bomb(r#"{"a": MANY}"#, "", "")),
        ("one text", bomb(r#"{"a": {"$concat": MANY}}"#, "", "")),
        ("an expectation", bomb("{}", padded, "")),
        ("the result", bomb("{}", "", r#", "more": MANY"#)),
    ] {
        scene.model.answers(&plan, 1).await;
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
    let plan = plan_of("rows", json!([]));
    scene.model.answers(&plan.to_string(), 1).await;
    // What is submitted holds the goal's envelope, too.
    let text = "x".repeat(GOAL_BYTES_MAX - 1024);
    let (result, view) = scene.goal("model", json!({"text": text})).await;
    assert_eq!(code(&result), None, "{view}");
    let told = scene.model.told().await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].matches(&text).count(), 1, "whole, and once");
    scene.node.stop().await;
}
