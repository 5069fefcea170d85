//! What a plan has to pass before anything of it runs (I11).
#![allow(missing_docs)]

use detent_protocol::agent::{Compiled, Definition};
use detent_protocol::plan::{self, DELAY_SECONDS_MAX, Plan, PlanContext};
use detent_protocol::{Code, Fault};
use serde_json::{Value, json};

fn definition(policy: Value) -> Compiled {
    let tool = |name: &str, effect: &str| {
        json!({"name": name, "effect": effect, "kind": "process", "input_schema":
            {"properties": {"path": {"type": "string"}}, "required": ["path"]}})
    };
    let definition: Definition = serde_json::from_value(json!({
        "agent": {"name": "a", "input_schema": true, "result_schema": true, "tools": ["get", "mail"], "policy": policy},
        "tools": {"get": tool("get", "read"), "mail": tool("mail", "once"), "hidden": tool("hidden", "read")}}))
    .unwrap();
    Compiled::compile(definition).unwrap()
}

fn check_with(definition: &Compiled, value: &Value, trusted: bool) -> Result<Plan, Vec<Fault>> {
    let plan = plan::parse(value).map_err(|f| vec![f])?;
    // Revisions before this one had `old`, which ended well, and `bad`, which did not.
    let faults = plan.violations(&PlanContext {
        definition,
        used: &|id| ["old", "bad"].contains(&id.as_str()),
        done: &|id| id.as_str() == "old",
        trusted,
    });
    if faults.is_empty() {
        Ok(plan)
    } else {
        Err(faults)
    }
}

/// Code and place of the first thing that is wrong with a model's plan.
fn first(value: Value) -> (Code, String) {
    let faults = check_with(&definition(json!({})), &value, false).unwrap_err();
    (faults[0].code, faults[0].at.clone().unwrap_or_default())
}

/// The same of a plan that a person wrote.
fn first_trusted(value: Value) -> (Code, String) {
    let faults = check_with(&definition(json!({})), &value, true).unwrap_err();
    (faults[0].code, faults[0].at.clone().unwrap_or_default())
}

fn get(id: &str) -> Value {
    json!({"id": id, "tool": "get", "args": {"path": "x"}})
}
fn with(mut step: Value, key: &str, value: Value) -> Value {
    step[key] = value;
    step
}
fn of(steps: Value) -> Value {
    json!({"steps": steps, "result": {"$step": "a"}})
}

#[test]
fn a_plan_that_is_fine_has_no_violations() {
    let b = with(
        get("b"),
        "args",
        json!({"path": {"$step": "a", "at": "/where"}}),
    );
    let plan = json!({"steps": [get("a"), b], "result": {"x": {"$step": "old"}, "y": {"$step": "b"}, "z": {"$goal": "/p"}, "none": null}});
    let plan = check_with(&definition(json!({})), &plan, false).unwrap();
    let edges = plan.edges();
    let (id, needs) = edges.last_key_value().unwrap();
    assert_eq!((id.as_str(), needs.first().unwrap().as_str()), ("b", "a"));
}

#[test]
fn cycles_are_found_however_they_are_made() {
    let after = |id: &str, of: &str| with(get(id), "after", json!([of]));
    let refers = |id: &str, of: &str| {
        with(
            get(id),
            "args",
            json!({"path": {"$concat": [{"$step": of}]}}),
        )
    };
    let expects = |id: &str, of: &str| {
        let e = json!({"probe": "file", "params": {"path": {"$step": of}},
            "schema": {"properties": {"exists": {"const": true}}, "required": ["exists"]}});
        with(get(id), "expect", json!([e]))
    };
    for steps in [
        json!([after("a", "a")]),
        json!([after("a", "b"), after("b", "a")]),
        json!([refers("a", "b"), after("b", "a")]),
        json!([expects("a", "b"), refers("b", "a")]),
        json!([after("a", "c"), after("b", "a"), after("c", "b"), get("d")]),
    ] {
        assert_eq!(
            first_trusted(of(steps.clone())),
            (Code::PlanInvalid, "/steps".into()),
            "{steps}"
        );
    }
}

#[test]
fn what_is_referred_to_must_be_there() {
    let missing = (Code::ModelHallucination, "/steps/0".to_owned());
    assert_eq!(
        first(of(json!([with(get("a"), "after", json!(["z"]))]))),
        missing
    );
    assert_eq!(
        first(of(json!([with(
            get("a"),
            "args",
            json!({"path": {"$step": "z"}})
        )]))),
        missing
    );
    // A step that failed in an earlier plan has no output to refer to.
    assert_eq!(
        first(of(json!([with(get("a"), "after", json!(["bad"]))]))),
        missing
    );
    let result = json!({"steps": [get("a")], "result": {"x": [{"$step": "z"}]}});
    assert_eq!(
        first(result),
        (Code::ModelHallucination, "/result/x/0".into())
    );
}

#[test]
fn absolute_times_are_refused_in_every_form() {
    for key in [
        "at",
        "run_at",
        "start_at",
        "not_before",
        "when",
        "until",
        "deadline",
        "time",
        "schedule",
    ] {
        let timed = with(get("a"), key, json!("2026-01-01T00:00:00Z"));
        assert_eq!(
            first(of(json!([timed]))),
            (Code::PlanInvalid, format!("/steps/0/{key}"))
        );
    }
    for delay in [
        json!("2026-01-01T00:00:00Z"),
        json!("60"),
        json!(1.5),
        json!(-1),
        json!(null),
        json!({"s": 1}),
    ] {
        let delayed = with(get("a"), "delay_seconds", delay.clone());
        assert_eq!(
            first(of(json!([delayed]))),
            (Code::PlanInvalid, "/steps/0/delay_seconds".into()),
            "{delay}"
        );
    }
    let longest = |s| of(json!([with(get("a"), "delay_seconds", json!(s))]));
    assert!(check_with(&definition(json!({})), &longest(DELAY_SECONDS_MAX), false).is_ok());
    assert_eq!(
        first(longest(DELAY_SECONDS_MAX + 1)),
        (Code::PlanInvalid, "/steps/0/delay_seconds".into())
    );
}

#[test]
fn step_ids_are_used_once_over_all_plans() {
    assert_eq!(
        first(of(json!([get("a"), get("a")]))),
        (Code::PlanInvalid, "/steps/1/id".into())
    );
    assert_eq!(
        first(of(json!([get("a"), get("old")]))),
        (Code::PlanInvalid, "/steps/1/id".into())
    );
    assert_eq!(
        first(of(json!([get("a"), get("bad")]))),
        (Code::PlanInvalid, "/steps/1/id".into())
    );
}

#[test]
fn a_plan_has_at_most_as_many_steps_as_the_agent_allows() {
    let steps = |n: usize| {
        let all: Vec<_> = (0..n)
            .map(|i| get(&if i == 0 { "a".into() } else { format!("s{i}") }))
            .collect();
        of(json!(all))
    };
    let thousand = definition(json!({"steps_max": 1000}));
    assert!(check_with(&thousand, &steps(1000), false).is_ok());
    let faults = check_with(&thousand, &steps(1001), false).unwrap_err();
    assert_eq!(
        (faults[0].code, faults[0].at.as_deref()),
        (Code::PlanInvalid, Some("/steps"))
    );
}

#[test]
fn a_models_result_holds_no_values_of_its_own_and_a_persons_may() {
    for own in [
        json!({"x": {"$step": "a"}, "paid": 500}),
        json!({"x": {"$step": "a"}, "ok": true}),
        json!({"x": {"$step": "a"}, "list": [["said"]]}),
        json!({"x": {"$concat": ["paid ", {"$step": "a"}]}}),
    ] {
        let plan = json!({"steps": [get("a")], "result": own});
        assert_eq!(first(plan.clone()).0, Code::ModelFalseClaim, "{own}");
        assert!(
            check_with(&definition(json!({})), &plan, true).is_ok(),
            "{own}"
        );
    }
}

#[test]
fn a_result_rests_on_at_least_one_step_also_when_a_person_wrote_it() {
    for nothing in [
        json!({}),
        json!({"x": {"$goal": "/p"}}),
        json!("done"),
        json!(null),
    ] {
        let plan = json!({"steps": [get("a")], "result": nothing});
        for trusted in [true, false] {
            let faults = check_with(&definition(json!({})), &plan, trusted).unwrap_err();
            assert_eq!(faults[0].code, Code::ModelFalseClaim, "{nothing}");
        }
    }
    assert_eq!(
        first(json!({"done": true})),
        (Code::ModelFalseClaim, "/done".into())
    );
}

#[test]
fn tools_and_arguments_must_exist() {
    let tool = |name: &str| of(json!([with(get("a"), "tool", json!(name))]));
    assert_eq!(
        first(tool("teleport")),
        (Code::ModelHallucination, "/steps/0/tool".into())
    );
    assert_eq!(
        first(tool("hidden")),
        (Code::ModelHallucination, "/steps/0/tool".into()),
        "only as a fallback"
    );
    let args = |args: Value| of(json!([with(get("a"), "args", args)]));
    assert_eq!(
        first(args(json!({}))),
        (Code::ModelHallucination, "/steps/0/args".into())
    );
    assert_eq!(
        first(args(json!({"path": 7}))),
        (Code::ModelHallucination, "/steps/0/args/path".into())
    );
    assert_eq!(
        first(args(json!({"path": {"$output": "/x"}}))),
        (Code::PlanInvalid, "/steps/0/args".into())
    );
    assert_eq!(
        first(args(json!({"path": {"$gaol": "/x"}}))),
        (Code::PlanInvalid, "/steps/0/args/path".into())
    );
}

#[test]
fn an_effect_needs_an_expectation_that_can_fail() {
    let mail = |expect: Value| {
        of(json!([{"id": "a", "tool": "mail", "args": {"path": "x"}, "expect": expect}]))
    };
    let trivial = |at: &str| (Code::ExpectationTrivial, format!("/steps/0/expect{at}"));
    let real = json!({"properties": {"exists": {"const": true}}, "required": ["exists"]});
    assert_eq!(first_trusted(mail(json!([]))), trivial(""));
    assert_eq!(
        first_trusted(mail(json!([{"probe": "file", "schema": true}]))),
        trivial("/0/schema")
    );
    assert_eq!(
        first_trusted(mail(json!([{"probe": "output", "schema": real}]))),
        trivial("/0/probe")
    );
    assert_eq!(
        first_trusted(mail(json!([{"probe": "guess", "schema": real}]))),
        (Code::PlanInvalid, "/steps/0/expect/0/probe".into())
    );
    assert!(
        check_with(
            &definition(json!({})),
            &mail(json!([{"probe": "file", "schema": real}])),
            true
        )
        .is_ok()
    );
    // A model may not say what proves an effect.
    assert_eq!(
        first(mail(
            json!([{"probe": "file", "params": {"path": "x"}, "schema": real}])
        )),
        (Code::PolicyDenied, "/steps/0/tool".into())
    );
}

#[test]
fn a_repeat_needs_permission() {
    let again = of(json!([with(get("a"), "repeat", json!(true))]));
    assert_eq!(
        first(again.clone()),
        (Code::PolicyDenied, "/steps/0/repeat".into())
    );
    assert!(check_with(&definition(json!({"allow_repeat": true})), &again, false).is_ok());
}

#[test]
fn what_is_not_a_plan_is_malformed() {
    for junk in [
        json!(null),
        json!("prose"),
        json!([]),
        json!({"steps": 3}),
        json!({"steps": [3], "result": 1}),
        json!({"steps": [], "result": {}, "more": 1}),
        json!({"steps": [{"id": "a.b", "tool": "get"}], "result": {}}),
    ] {
        assert_eq!(first(junk.clone()).0, Code::ModelMalformed, "{junk}");
    }
}

#[test]
fn a_fallback_without_a_probe_is_no_way_round_for_a_model() {
    let file = json!({"probe": "file", "params": {"path": "x"},
        "schema": {"properties": {"exists": {"const": true}}, "required": ["exists"]}});
    let post = json!({"name": "post", "effect": "once", "kind": "process", "probe": file,
        "fallback": "mail"});
    let mail = json!({"name": "mail", "effect": "once", "kind": "process", "fallback": "post"});
    let definition: Definition = serde_json::from_value(json!({
        "agent": {"name": "a", "input_schema": true, "result_schema": true, "tools": ["post"]},
        "tools": {"post": post, "mail": mail}}))
    .unwrap();
    let definition = Compiled::compile(definition).unwrap();
    let plan = json!({"steps": [{"id": "a", "tool": "post", "expect": [file]}],
        "result": {"out": {"$step": "a"}}});
    let faults = check_with(&definition, &plan, false).unwrap_err();
    assert_eq!(faults[0].code, Code::PolicyDenied);
    assert!(faults[0].message.contains("mail"), "{}", faults[0]);
    assert!(check_with(&definition, &plan, true).is_ok());
}
