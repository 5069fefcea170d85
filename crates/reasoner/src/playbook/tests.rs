//! Tables of playbooks and the plans they give.

use super::*;
use detent_protocol::budget::Amount;
use detent_protocol::goal::Amendment;
use detent_protocol::messages::StepView;
use detent_protocol::{AgentName, StepId, ToolName, plan};
use serde_json::json;

fn snapshot(playbook: Value, input: Value) -> Snapshot {
    Snapshot {
        agent: AgentName::new("report").unwrap(),
        description: String::new(),
        input: input.clone(),
        amendments: vec![],
        effective_input: input,
        result_schema: json!(true),
        tools: vec![],
        steps: vec![],
        violations: vec![],
        playbook: Some(playbook),
        budget_left: Amount::default(),
        pruned: 0,
    }
}

fn view(id: &str, tool: &str, state: &str) -> StepView {
    StepView {
        id: StepId::new(id).unwrap(),
        tool: ToolName::new(tool).unwrap(),
        state: state.into(),
        output: json!({}),
        fault: None,
    }
}

/// Instantiates, and holds the promise that the protocol reads what comes out.
fn made(snapshot: &Snapshot, revision: u32) -> Result<Value, Fault> {
    let plan = instantiate(snapshot, revision)?;
    plan::parse(&plan).unwrap();
    let again = instantiate(snapshot, revision).unwrap();
    assert_eq!(plan.to_string(), again.to_string(), "deterministic");
    Ok(plan)
}

fn plan_of(playbook: Value, input: Value) -> Value {
    made(&snapshot(playbook, input), 1).unwrap()
}

fn fault_of(playbook: Value, input: Value) -> Fault {
    made(&snapshot(playbook, input), 1).unwrap_err()
}

fn ids(plan: &Value) -> Vec<&str> {
    let steps = plan["steps"].as_array().unwrap();
    steps.iter().map(|s| s["id"].as_str().unwrap()).collect()
}

#[test]
fn an_effective_input_that_is_null_is_the_input_only_where_nothing_was_amended() {
    let playbook = json!({
        "steps": [{"id": "fetch", "tool": "rows", "for_each": {"goal": "/products", "as": "p"},
            "args": {"product": {"$item": ""}}}],
        "result": {"rows": {"$step": "fetch"}}
    });
    let mut same = snapshot(playbook, json!({"products": ["tea", "milk"]}));
    same.effective_input = Value::Null;
    assert_eq!(ids(&made(&same, 1).unwrap()), ["fetch-0", "fetch-1"]);
    same.amendments = vec![Amendment {
        patch: Value::Null,
        by: "ann".into(),
    }];
    let fault = made(&same, 1).unwrap_err();
    assert_eq!(fault.code, Code::PlanInvalid, "{fault}");
}

#[test]
fn parameters_are_replaced_and_references_stay() {
    let plan = plan_of(
        json!({
            "parameters": {"from": {"$goal": "/range/from"}, "dir": {"$concat": ["out/", {"$meta": "goal_id"}]}},
            "steps": [
                {"id": "fetch", "tool": "rows", "args": {"from": {"$param": "from"}, "n": 3}},
                {"id": "write", "tool": "file", "after": ["fetch"], "delay_seconds": 5, "repeat": true,
                 "args": {"path": {"$param": "dir"}, "rows": {"$step": "fetch", "at": "/rows"}},
                 "expect": [{"probe": "file", "params": {"path": {"$param": "dir"}},
                             "schema": {"properties": {"exists": {"const": true}}, "required": ["exists"]}}]}],
            "result": {"rows": {"$step": "fetch", "at": "/rows"}, "dir": {"$param": "dir"}}
        }),
        json!({"range": {"from": "2026-01-01"}}),
    );
    let dir = json!({"$concat": ["out/", {"$meta": "goal_id"}]});
    assert_eq!(
        plan,
        json!({
            "steps": [
                {"id": "fetch", "tool": "rows", "args": {"from": {"$goal": "/range/from"}, "n": 3}},
                {"id": "write", "tool": "file", "after": ["fetch"], "delay_seconds": 5, "repeat": true,
                 "args": {"path": dir, "rows": {"$step": "fetch", "at": "/rows"}},
                 "expect": [{"probe": "file", "params": {"path": dir},
                             "schema": {"properties": {"exists": {"const": true}}, "required": ["exists"]}}]}],
            "result": {"rows": {"$step": "fetch", "at": "/rows"}, "dir": dir}
        })
    );
}

#[test]
fn a_step_left_out_leaves_the_others_after_too() {
    let book = json!({
        "steps": [
            {"id": "a", "tool": "rows"},
            {"id": "b", "tool": "mail", "when": {"goal": "/to", "exists": true}, "after": ["a"]},
            {"id": "c", "tool": "file", "after": ["a", "b"]}],
        "result": {"x": {"$step": "c"}}
    });
    let with = plan_of(book.clone(), json!({"to": "x"}));
    assert_eq!(ids(&with), ["a", "b", "c"]);
    let without = plan_of(book, json!({}));
    assert_eq!(ids(&without), ["a", "c"]);
    assert_eq!(without["steps"][1]["after"], json!(["a"]));
}

#[test]
fn a_reference_to_a_step_left_out_names_both() {
    let step = |args: Value| {
        json!({"steps": [
            {"id": "opt", "tool": "rows", "when": {"goal": "/on", "equals": true}},
            {"id": "use", "tool": "file", "args": args}], "result": {"x": {"$step": "use"}}})
    };
    let fault = fault_of(
        step(json!({"deep": [{"$step": "opt", "at": "/x"}]})),
        json!({}),
    );
    assert_eq!(fault.code, Code::PlanInvalid);
    assert!(
        fault.message.contains("opt") && fault.message.contains("use"),
        "{fault}"
    );
    assert_eq!(fault.at.as_deref(), Some("/steps/1/args/deep/0"));
    let book = json!({"steps": [{"id": "opt", "tool": "rows", "when": {"goal": "/on", "exists": true}}],
        "result": {"x": {"$step": "opt"}}});
    let fault = fault_of(book, json!({}));
    assert!(fault.message.contains("the result"), "{fault}");
}

fn each() -> Value {
    json!({
        "steps": [
            {"id": "fetch", "tool": "rows", "for_each": {"goal": "/products", "as": "product"},
             "args": {"sku": {"$item": "/sku"}, "whole": {"$item": ""}},
             "expect": [{"probe": "output", "schema": {"properties": {"sku": {"const": {"$item": "/sku"}},
                "who": {"const": {"$goal": "/who"}}}, "required": ["sku"]}}]},
            {"id": "chart", "tool": "file", "for_each": {"goal": "/products"}, "after": ["fetch"],
             "args": {"rows": {"$step": "fetch", "at": "/rows"}}},
            {"id": "sum", "tool": "mail", "after": ["chart"], "args": {"all": {"$step": "fetch", "at": "/rows"}}}],
        "result": {"all": {"$step": "chart"}}
    })
}

#[test]
fn for_each_makes_a_step_of_every_element_and_pairs_the_same_array() {
    let plan = plan_of(
        each(),
        json!({"who": "me", "products": [{"sku": "w"}, {"sku": "x"}]}),
    );
    assert_eq!(
        ids(&plan),
        ["fetch-0", "fetch-1", "chart-0", "chart-1", "sum"]
    );
    let steps = &plan["steps"];
    assert_eq!(steps[1]["args"], json!({"sku": "x", "whole": {"sku": "x"}}));
    let seen = &steps[1]["expect"][0]["schema"]["properties"];
    assert_eq!(
        seen,
        &json!({"sku": {"const": "x"}, "who": {"const": "me"}})
    );
    assert_eq!(
        steps[3]["args"]["rows"],
        json!({"$step": "fetch-1", "at": "/rows"})
    );
    assert_eq!(steps[3]["after"], json!(["fetch-1"]));
    assert_eq!(steps[4]["after"], json!(["chart-0", "chart-1"]));
    let all = json!([{"$step": "fetch-0", "at": "/rows"}, {"$step": "fetch-1", "at": "/rows"}]);
    assert_eq!(steps[4]["args"]["all"], all);
    assert_eq!(
        plan["result"]["all"],
        json!([{"$step": "chart-0"}, {"$step": "chart-1"}])
    );
}

#[test]
fn an_empty_array_gives_no_steps() {
    let plan = plan_of(each(), json!({"who": "me", "products": []}));
    assert_eq!(ids(&plan), ["sum"]);
    assert_eq!(plan["steps"][0]["args"]["all"], json!([]));
}

#[test]
fn for_each_is_bounded_and_needs_an_array() {
    let many = |n: usize| json!({"who": "me", "products": vec![json!({"sku": "w"}); n]});
    assert_eq!(
        ids(&plan_of(each(), many(ELEMENTS_MAX))).len(),
        2 * ELEMENTS_MAX + 1
    );
    for input in [many(ELEMENTS_MAX + 1), json!({"products": {}}), json!({})] {
        let fault = fault_of(each(), input);
        assert_eq!(fault.code, Code::PlanInvalid);
        assert_eq!(fault.at.as_deref(), Some("/steps/0/for_each/goal"));
    }
}

/// Data of the goal is never taken for a template: a publisher would otherwise choose
/// what a step refers to.
#[test]
fn data_that_looks_like_a_reference_is_referred_to() {
    let evil = json!({"$step": "secrets", "at": "/key"});
    let plan = plan_of(
        json!({"steps": [{"id": "a", "tool": "rows", "for_each": {"goal": "/l"}, "args": {"v": {"$item": "/v"}}}],
               "result": {"x": {"$step": "a"}}}),
        json!({"l": [{"v": {"deep": [evil]}}, {"v": "plain"}]}),
    );
    assert_eq!(plan["steps"][0]["args"]["v"], json!({"$goal": "/l/0/v"}));
    assert_eq!(plan["steps"][1]["args"]["v"], json!("plain"));
}

fn chain() -> Value {
    json!({
        "steps": [
            {"id": "a", "tool": "rows"},
            {"id": "b", "tool": "file", "args": {"x": {"$step": "a", "at": "/x"}}},
            {"id": "c", "tool": "mail", "after": ["a", "b"], "args": {"y": {"$step": "b"}}}],
        "result": {"a": {"$step": "a"}, "c": {"$step": "c"}}
    })
}

#[test]
fn a_new_plan_redoes_only_what_did_not_end_well() {
    let mut s = snapshot(chain(), json!({}));
    s.steps = vec![
        view("a", "rows", "done"),
        view("b", "file", "failed"),
        view("c", "mail", "skipped"),
    ];
    let plan = made(&s, 2).unwrap();
    assert_eq!(ids(&plan), ["b-r2", "c-r2"]);
    assert_eq!(
        plan["steps"][0]["args"]["x"],
        json!({"$step": "a", "at": "/x"})
    );
    assert_eq!(plan["steps"][1]["after"], json!(["a", "b-r2"]));
    assert_eq!(
        plan["result"],
        json!({"a": {"$step": "a"}, "c": {"$step": "c-r2"}})
    );
    s.steps
        .extend([view("b-r2", "file", "done"), view("c-r2", "mail", "failed")]);
    let plan = made(&s, 3).unwrap();
    assert_eq!(ids(&plan), ["c-r3"]);
    assert_eq!(plan["steps"][0]["args"]["y"], json!({"$step": "b-r2"}));
    assert_eq!(
        plan["result"],
        json!({"a": {"$step": "a"}, "c": {"$step": "c-r3"}})
    );
    s.steps.push(view("c-r3", "mail", "done"));
    let plan = made(&s, 4).unwrap();
    assert_eq!(ids(&plan), Vec::<&str>::new());
    assert_eq!(
        plan["result"],
        json!({"a": {"$step": "a"}, "c": {"$step": "c-r3"}})
    );
}

#[test]
fn elements_are_redone_one_by_one() {
    let mut s = snapshot(
        each(),
        json!({"who": "me", "products": [{"sku": "w"}, {"sku": "x"}]}),
    );
    s.steps = vec![
        view("fetch-0", "rows", "done"),
        view("fetch-1", "rows", "failed"),
        view("chart-0", "file", "done"),
    ];
    let plan = made(&s, 2).unwrap();
    assert_eq!(ids(&plan), ["fetch-1-r2", "chart-1-r2", "sum-r2"]);
    let all = json!([{"$step": "chart-0"}, {"$step": "chart-1-r2"}]);
    assert_eq!(plan["result"]["all"], all);
}

/// What was done for another input, or by another planner under the same name, is
/// not what this plan needs.
#[test]
fn steps_of_an_amended_goal_or_another_planner_are_not_reused() {
    let done = vec![view("a", "rows", "done"), view("b", "file", "failed")];
    let mut amended = snapshot(chain(), json!({}));
    amended.steps = done.clone();
    amended.amendments = vec![Amendment {
        patch: json!({"x": 1}),
        by: "somebody".into(),
    }];
    assert_eq!(ids(&made(&amended, 2).unwrap()), ["a-r2", "b-r2", "c-r2"]);
    for foreign in [view("invented", "rows", "done"), view("b", "sql", "failed")] {
        let mut s = snapshot(chain(), json!({}));
        s.steps = vec![view("a", "rows", "done"), foreign];
        assert_eq!(ids(&made(&s, 2).unwrap()), ["a-r2", "b-r2", "c-r2"]);
    }
}

#[test]
fn an_agent_without_a_playbook_is_told_so() {
    let mut s = snapshot(json!({}), json!({}));
    s.playbook = None;
    let fault = instantiate(&s, 1).unwrap_err();
    assert_eq!(fault.code, Code::ModelUnavailable);
    assert_eq!(fault.message, "the agent has no playbook");
}

#[test]
fn junk_is_refused_with_its_place() {
    let one = |step: Value| json!({"steps": [step], "result": {"x": {"$step": "a"}}});
    let with = |args: Value| one(json!({"id": "a", "tool": "t", "args": args}));
    let deep = (0..100).fold(json!(1), |v, _| json!([v]));
    for (book, at) in [
        (json!(null), "/"),
        (json!([]), "/"),
        (json!({"result": {}}), "/steps"),
        (json!({"steps": {}, "result": {}}), "/steps"),
        (json!({"steps": []}), "/result"),
        (json!({"steps": [], "result": {}, "step/s": 1}), "/step~1s"),
        (json!({"steps": [7], "result": {}}), "/steps/0"),
        (one(json!({"id": "a"})), "/steps/0"),
        (one(json!({"id": "a.b", "tool": "t"})), "/steps/0"),
        (one(json!({"id": "a-r2", "tool": "t"})), "/steps/0/id"),
        (
            one(json!({"id": "a", "tool": "t", "at": "noon"})),
            "/steps/0/at",
        ),
        (
            one(json!({"id": "a", "tool": "t", "delay_seconds": -1})),
            "/steps/0",
        ),
        (
            one(
                json!({"id": "a", "tool": "t", "expect": [{"probe": "file", "schema": {}, "soon": 1}]}),
            ),
            "/steps/0/expect/0/soon",
        ),
        (
            one(json!({"id": "a", "tool": "t", "when": {"goal": "/x"}})),
            "/steps/0/when",
        ),
        (
            one(json!({"id": "a", "tool": "t", "for_each": {"goal": "x"}})),
            "/steps/0/for_each/goal",
        ),
        (
            one(json!({"id": "a", "tool": "t", "for_each": {"goal": "/x", "by": 1}})),
            "/steps/0/for_each/by",
        ),
        (
            one(json!({"id": "a", "tool": "t", "after": ["ghost"]})),
            "/steps/0/after/0",
        ),
        (with(json!({"v": {"$step": "ghost"}})), "/steps/0/args/v"),
        (with(json!({"v": {"$param": "ghost"}})), "/steps/0/args/v"),
        (with(json!({"v": {"$param": 7}})), "/steps/0/args/v"),
        (
            with(json!({"v": {"$param": "p", "x": 1}})),
            "/steps/0/args/v",
        ),
        (with(json!({"v": {"$item": "/x"}})), "/steps/0/args/v"),
        (with(json!({"v": deep})).clone(), "/steps/0/args/v"),
        (
            json!({"parameters": 1, "steps": [], "result": {}}),
            "/parameters",
        ),
        (
            json!({"steps": [{"id": "a", "tool": "t"}, {"id": "a", "tool": "t"}], "result": {}}),
            "/steps/1/id",
        ),
        (
            json!({"parameters": {"p": {"$param": "p"}}, "steps": [], "result": {"$param": "p"}}),
            "/result",
        ),
    ] {
        let fault = fault_of(book.clone(), json!({}));
        assert_eq!(fault.code, Code::PlanInvalid, "{book}");
        let place = fault.at.unwrap();
        let deep_place = at == "/steps/0/args/v" && place.starts_with(at);
        assert!(place == at || deep_place, "{book}: {place}");
    }
}

#[test]
fn two_steps_never_get_one_id() {
    let book = json!({"steps": [
        {"id": "a", "tool": "t", "for_each": {"goal": "/l"}}, {"id": "a-0", "tool": "t"}], "result": {}});
    let fault = fault_of(book, json!({"l": [1]}));
    assert!(fault.message.contains("a-0"), "{fault}");
    let long = "x".repeat(64);
    let book =
        json!({"steps": [{"id": long, "tool": "t", "for_each": {"goal": "/l"}}], "result": {}});
    assert_eq!(
        fault_of(book, json!({"l": [1]})).at.as_deref(),
        Some("/steps/0/id")
    );
}

/// A small playbook must not become a plan that no message can carry.
#[test]
fn expansion_is_bounded() {
    let large = "x".repeat(100_000);
    let refs = vec![json!({"$param": "p"}); 1000];
    let book = json!({"parameters": {"p": large}, "steps": [{"id": "a", "tool": "t", "args": {"v": refs}}], "result": {}});
    let fault = fault_of(book, json!({}));
    assert!(fault.message.contains("larger"), "{fault}");
    let steps: Vec<_> = (0..5)
        .map(|i| json!({"id": format!("s{i}"), "tool": "t", "for_each": {"goal": "/l"}}))
        .collect();
    let book = json!({"steps": steps, "result": {}});
    let fault = fault_of(book, json!({"l": vec![1; 256]}));
    assert!(fault.message.contains("1280 steps"), "{fault}");
}
