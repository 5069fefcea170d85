//! Outputs that are kept as bodies: what is decided without them, and what is fetched.

use crate::support::*;
use detent_orchestrator::{Command, Event};
use detent_protocol::claim::{Claimed, Part};
use detent_protocol::expect::Evidence;
use detent_protocol::json::Digest;
use detent_protocol::messages::{Observe, ToolCall};
use detent_protocol::result::GoalResult;
use detent_protocol::{Code, expect::Observation};
use serde_json::{Value, json};

fn from(at: &str) -> Value {
    json!({"$step": "a", "at": at})
}

/// Step `a` gives a large output; what comes next is `step`.
fn after_a(step: Value, result: Value) -> Driver {
    let steps = [
        json!({"id": "a", "tool": "get", "args": {"path": "x"}}),
        step,
    ];
    let mut d = Driver::planned(
        shop(json!({})),
        json!({"steps": steps, "result": {"n": result}}),
    );
    let output = claim(&d.state.goal).to_output();
    d.done("a", output);
    d
}

fn called(d: &Driver) -> &ToolCall {
    let mut calls = d.out.iter().rev().filter_map(|c| match c {
        Command::Call { call, .. } => Some(call.as_ref()),
        _ => None,
    });
    calls.next().expect("a call is out")
}

fn looks(d: &Driver) -> &[Observe] {
    let mut looks = d.out.iter().rev().filter_map(|c| match c {
        Command::Look { checks, .. } => Some(checks.as_slice()),
        _ => None,
    });
    looks.next().expect("a look is out")
}

fn fetch(d: &Driver) -> (Value, Vec<Claimed>) {
    let fetches = d.out.iter().filter_map(|c| match c {
        Command::FetchResult { data, claims, .. } => Some((data.clone(), claims.clone())),
        _ => None,
    });
    let fetches: Vec<_> = fetches.collect();
    assert_eq!(fetches.len(), 1, "one at a time");
    fetches[0].clone()
}

fn came(d: &mut Driver, data: Result<Value, detent_protocol::Fault>) {
    let of = Digest::of_json(&fetch(d).0);
    d.out.retain(|c| !matches!(c, Command::FetchResult { .. }));
    d.on(Event::ResultFetched { of, data });
}

fn code(d: &Driver) -> Code {
    match d.result() {
        GoalResult::Failed { error_code, .. } => error_code,
        other => panic!("{other:?}"),
    }
}

fn pay(args: Value) -> Value {
    json!({"id": "b", "tool": "pay", "args": args})
}

#[test]
fn small_members_are_values_and_the_rest_is_named() {
    let args = json!({"path": from("/count"), "rows": from("/rows"), "one": from("/rows/7")});
    let d = after_a(
        json!({"id": "b", "tool": "get", "args": args}),
        from("/count"),
    );
    let call = called(&d);
    assert_eq!(call.args["path"], 400);
    let kept = claim(&d.state.goal);
    let part = |pointer: &str, value| Part {
        digest: kept.digest,
        bytes: kept.bytes,
        pointer: pointer.into(),
        value,
    };
    let rows = Some(Digest::of_json(&large()["rows"]));
    let at = |at: &str, part| Claimed {
        at: at.into(),
        part,
    };
    let expected = [
        at("/one", part("/rows/7", None)),
        at("/rows", part("/rows", rows)),
    ];
    assert_eq!(call.claims, expected);
}

#[test]
fn the_input_schema_is_checked_by_who_fetches() {
    let schema = json!({"input_schema": {"properties": {"rows": {"type": "array"}}}});
    let tools = vec![tool("get", "read", schema)];
    let steps = |at: &str| {
        let a = json!({"id": "a", "tool": "get"});
        json!({"steps": [a, {"id": "b", "tool": "get", "args": {"rows": from(at)}}], "result": from("/count")})
    };
    for (at, checked_here) in [("/rows", false), ("/count", true)] {
        let mut d = Driver::planned(define(tools.clone(), json!({})), steps(at));
        let output = claim(&d.state.goal).to_output();
        d.done("a", output);
        let out = d.out.iter().any(|c| matches!(c, Command::Call { .. }));
        assert_eq!(out, !checked_here, "{at}");
    }
}

#[test]
fn a_text_can_not_be_made_of_what_is_not_here() {
    let text = |at: &str| json!({"path": {"$concat": ["/", from(at)]}});
    let d = after_a(pay(text("/count")), from("/count"));
    assert_eq!(called(&d).args["path"], "/400");
    let mut d = after_a(pay(text("/rows/0/product")), from("/count"));
    let status = format!("{:?}", d.status("b"));
    assert!(
        status.contains("InputTooLarge") && status.contains("/path/1"),
        "{status}"
    );
    assert!(!d.log().contains("call b"));
}

#[test]
fn an_identity_is_made_of_values_and_never_of_where_they_lie() {
    // The whole member is known by its digest, wherever it comes from.
    let d = after_a(pay(json!({"path": from("/rows")})), from("/count"));
    let identity = called(&d).identity;
    let mut other = Driver::planned(
        shop(json!({})),
        json!({"steps": [{"id": "a", "tool": "get"}, pay(json!({"path": from("/rows")}))],
            "result": from("/count")}),
    );
    let mut output = large();
    output["fetched_at"] = json!(7);
    let (kept, _) = detent_protocol::claim::Claim::keep(&other.state.goal, &output);
    assert_ne!(kept.digest, claim(&other.state.goal).digest);
    other.done("a", kept.to_output());
    assert_eq!(called(&other).identity, identity);

    // A piece of it is not, so nothing is done with it.
    let d = after_a(
        pay(json!({"path": from("/rows/0/product")})),
        from("/count"),
    );
    let status = format!("{:?}", d.status("b"));
    assert!(
        status.contains("InputTooLarge") && status.contains("identity"),
        "{status}"
    );
    // Where it is no part of the identity it may be anything.
    let d = after_a(
        pay(json!({"path": "/p", "note": from("/rows/0/product")})),
        from("/count"),
    );
    assert_eq!(called(&d).claims.len(), 1);
}

#[test]
fn expectations_on_a_large_output_are_looked_at_by_an_observer() {
    let expect = json!([{"probe": "output", "schema": {"required": ["rows"]}}]);
    let step = json!({"id": "b", "tool": "get", "args": {"path": "x"}, "expect": expect});
    let mut d = after_a(step, from("/count"));
    let output = claim(&d.state.goal).to_output();
    d.done("b", output.clone());
    let asked = looks(&d)[0].clone();
    assert_eq!((asked.probe.as_str(), asked.claims.len()), ("output", 1));
    assert_eq!(asked.claims[0].at, "/output");

    // What is wrong with it will not change by another look: the tool is tried again.
    let mut wrong = observation(mismatch(), d.now_ms);
    wrong.evidence = wrong.evidence.map(|e| Evidence {
        probe: "output".into(),
        ..e
    });
    let seen = |d: &mut Driver, o: Observation| {
        d.out.clear();
        let (step, attempt) = (id("b"), d.attempt("b"));
        let observations = vec![o];
        d.on(Event::Observed {
            step,
            attempt,
            observations,
        });
    };
    seen(&mut d, wrong);
    d.wake();
    assert_eq!(d.attempt("b"), 2);
    d.done("b", output);
    let right = observation(met(), d.now_ms);
    seen(&mut d, right);
    assert!(matches!(d.result(), GoalResult::Succeeded { .. }));
}

#[test]
fn probes_get_what_lies_in_arguments_and_output() {
    let params = json!({"query": "q", "all": {"$args": "/rows"}, "one": {"$args": "/rows/3"},
        "n": {"$output": "/count"}, "mine": {"$output": "/rows"}});
    let expect = json!([{"probe": "sql", "params": params,
        "schema": {"properties": {"row_count": {"const": 1}}, "required": ["row_count"]}}]);
    let args = json!({"path": "x", "rows": from("/rows")});
    let step = json!({"id": "b", "tool": "get", "args": args, "expect": expect});
    let mut d = after_a(step, from("/count"));
    let output = claim(&d.state.goal).to_output();
    d.done("b", output);
    let asked = &looks(&d)[0];
    assert_eq!(asked.params["n"], 400);
    let claims: Vec<_> = asked
        .claims
        .iter()
        .map(|c| (c.at.as_str(), c.part.pointer.as_str()))
        .collect();
    assert_eq!(
        claims,
        [("/all", "/rows"), ("/mine", "/rows"), ("/one", "/rows/3")]
    );
}

#[test]
fn a_result_is_fetched_and_meets_its_contract_as_a_whole() {
    let agent = json!({"result_schema": {"type": "object", "properties": {"last":
        {"type": "object", "required": ["product"]}}}});
    let plan = json!({"steps": [{"id": "a", "tool": "get"}],
        "result": {"n": from("/count"), "last": from("/rows/399")}});
    let done = || {
        let mut d = Driver::planned(shop(agent.clone()), plan.clone());
        let output = claim(&d.state.goal).to_output();
        d.done("a", output);
        d
    };
    let mut d = done();
    assert_eq!(d.state.waiting()[0].what, "result");
    // Whatever happens meanwhile, one fetch is out; a new owner asks again.
    d.on(Event::TimeCame);
    d.takeover();
    let (data, claims) = fetch(&d);
    assert_eq!(data["n"], 400);
    came(&mut d, Ok(fetched(data, &claims)));
    let GoalResult::Succeeded { data, .. } = d.result() else {
        panic!("{:?}", d.result());
    };
    assert_eq!(data, json!({"n": 400, "last": {"product": "tea"}}));

    let mut d = done();
    came(&mut d, Ok(json!({"n": 400, "last": {}})));
    assert_eq!(code(&d), Code::InternalLogicError);
    let mut d = done();
    came(&mut d, Err(fault(Code::ReferenceMissing)));
    assert_eq!(code(&d), Code::ReferenceMissing);
}

#[test]
fn what_was_fetched_for_another_result_counts_for_nothing() {
    let plan = json!({"steps": [{"id": "a", "tool": "get"}], "result": from("/rows")});
    let mut d = Driver::planned(shop(json!({})), plan);
    let output = claim(&d.state.goal).to_output();
    d.done("a", output);
    let of = Digest([3; 32]);
    d.on(Event::ResultFetched {
        of,
        data: Ok(json!({})),
    });
    assert!(d.state.ended.is_none());
    // Paused it does not end; resumed it asks again.
    d.pause();
    came(&mut d, Ok(json!({})));
    assert!(d.state.ended.is_none());
    d.resume();
    fetch(&d);
}

#[test]
fn a_planner_sees_the_small_members_and_what_else_there_is() {
    let mut d = after_a(
        json!({"id": "b", "tool": "get", "args": {"path": "x"}}),
        from("/count"),
    );
    d.failed("b", Code::ToolOutputInvalid, true);
    let snapshot = d.out.iter().find_map(|c| match c {
        Command::Plan { request, .. } => Some(request.snapshot.clone()),
        _ => None,
    });
    let snapshot = snapshot.expect("a new plan is asked for");
    let a = snapshot.steps.iter().find(|s| s.id == id("a")).unwrap();
    let kept = claim(&d.state.goal);
    let rows = json!({"rows": {"bytes": kept.large["rows"].bytes, "items": 400}});
    let shown = json!({"claimed_bytes": kept.bytes, "inline": {"count": 400}, "large": rows});
    assert_eq!(a.output, shown);
    assert_eq!(snapshot.pruned, 1);
    let view = d.state.view().unwrap();
    let a = view.steps.iter().find(|s| s.id == id("a")).unwrap();
    assert_eq!(a.output, shown);
}
