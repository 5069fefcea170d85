//! One effect is one effect (I16): whatever plans, amendments and fallbacks call it.

use super::effects::{paying, settle};
use crate::support::*;
use detent_orchestrator::state::Presence;
use detent_protocol::Code;
use detent_protocol::expect::Verdict;
use detent_protocol::record::{CHOICE_FAIL, Seal};
use expect_test::expect;
use serde_json::json;

/// Steps `a` (with `tool`) and `b` (a read) side by side; `b` fails for good after
/// `first` was done to `a`, so a new plan is asked for.
fn replanning(
    definition: detent_protocol::agent::Compiled,
    tool: &str,
    first: impl Fn(&mut Driver),
) -> Driver {
    let mut d = Driver::planned(
        definition,
        plan(&[step("b", "get", "1"), step("a", tool, "/p")]),
    );
    first(&mut d);
    d.failed("b", Code::ToolOutputInvalid, true);
    d.log();
    d
}

#[test]
fn a_new_plan_that_wants_the_same_effect_is_bound_to_it() {
    let mut d = replanning(shop(json!({})), "pay", |d| {
        d.succeeds("a", json!({"receipt": 4}))
    });
    d.plan(plan(&[step("a2", "pay", "/p")]));
    expect![[r#"
        plan_received
          planned r2 [a2]
          bound a2 to a
          step_ended a2 done
          ended succeeded {"out":{"receipt":4}} evidence=2
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_new_plan_is_bound_also_to_what_a_fallback_has_done() {
    let mut d = replanning(shop(json!({})), "pay-or-wire", |d| {
        d.failed("a", Code::SandboxViolation, false);
        d.succeeds("a", json!({"receipt": 4}));
    });
    d.plan(plan(&[step("a2", "pay-or-wire", "/p")]));
    expect![[r#"
        plan_received
          planned r2 [a2]
          bound a2 to a
          step_ended a2 done
          ended succeeded {"out":{"receipt":4}} evidence=2
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn the_same_effect_with_other_arguments_is_a_conflict() {
    let no_more = shop(json!({"policy": {"replans_max": 1}}));
    let mut d = replanning(no_more, "pay", |d| d.succeeds("a", json!({})));
    let dearer = json!({"id": "a2", "tool": "pay", "args": {"path": "/p", "amount": 9}});
    d.plan(plan(&[dearer]));
    expect![[r#"
        plan_received
          planned r2 [a2]
          step_ended a2 failed EFFECT_CONFLICT
          closing EFFECT_CONFLICT at a2
          ended failed EFFECT_CONFLICT "step a did it with other arguments" [b=failed a=done a2=failed]
    "#]].assert_eq(&d.log());
}

#[test]
fn a_deliberate_repeat_needs_permission_and_is_a_new_effect() {
    let again = json!({"id": "a2", "tool": "pay", "args": {"path": "/p"}, "repeat": true});
    for (allowed, expected) in [(false, "PLAN_REFUSED"), (true, "called")] {
        let policy = shop(json!({"policy": {"allow_repeat": allowed}}));
        let mut d = replanning(policy, "pay", |d| d.succeeds("a", json!({})));
        d.plan(plan(std::slice::from_ref(&again)));
        let called = d.log().contains("> call a2#1 pay");
        assert_eq!(if called { "called" } else { "PLAN_REFUSED" }, expected);
    }
}

#[test]
fn two_steps_of_one_plan_with_one_effect_call_once() {
    let mut d = Driver::planned(
        shop(json!({})),
        plan(&[step("a", "pay", "/p"), step("b", "pay", "/p")]),
    );
    d.log();
    d.succeeds("a", json!({"receipt": 4}));
    expect![[r#"
        tool_completed
          outcome a#1 done
          looking a#1
          > look a#1 file{"path":"/p"}
        observation_validated
          observed a#1 [met]
          step_ended a done
          bound b to a
          step_ended b done
          ended succeeded {"out":{"receipt":4}} evidence=2
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_effect_left_open_is_looked_for_before_the_step_that_a_new_plan_gives_it() {
    // The amendment comes while the outcome is being asked for.
    let mut d = paying();
    d.silent("a");
    d.sealed("a", Seal::Ended { outcome: None });
    assert_eq!(settle(&mut d, &unavailable()), "ask (5)");
    d.amend(json!({"product": "coffee"}));
    d.answer(CHOICE_FAIL);
    d.log();
    d.plan(plan(&[step("a2", "pay", "/p")]));
    d.saw("a2", &[Verdict::Absent]);
    d.wake();
    d.saw("a2", &[Verdict::Absent]);
    expect![[r#"
        plan_received
          planned r2 [a2]
          inherited a2 from a
          looking a2#0
          > look a2#0 file{"path":"/p"}
        observation_rejected
          observed a2#0 [absent]
          waiting a2 settle +5000
        time_came
          looking a2#0
          > look a2#0 file{"path":"/p"}
        observation_rejected
          observed a2#0 [absent] proven absent
          waiting a2 backoff +0
          intended a2#1 pay
          > call a2#1 pay {"path":"/p"}
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_open_effect_is_not_closed_by_a_later_attempt_that_never_started() {
    let put = tool(
        "put",
        "idempotent",
        json!({"probe": probe(), "retry": {"attempts_max": 1}}),
    );
    let mut d = Driver::planned(
        define(vec![put], json!({})),
        plan(&[step("a", "put", "/p")]),
    );
    d.failed("a", Code::ToolFailed, true);
    assert_eq!(settle(&mut d, &unavailable()), "ask (5)");
    d.amend(json!({"product": "coffee"}));
    d.answer(CHOICE_FAIL);
    d.plan(plan(&[step("a2", "put", "/p")]));
    d.log();
    d.silent("a2");
    d.sealed("a2", Seal::NeverStarted);
    let effect = d.state.effects.values().next().unwrap();
    assert_eq!(effect.is, Presence::Open);
    assert!(d.state.step(&id("a2")).unwrap().effect_open);
}

#[test]
fn an_amendment_does_not_move_the_place_where_an_effect_is_looked_for() {
    let asked = json!({"id": "a", "tool": "pay", "args": {"path": {"$goal": "/product"}}});
    let mut d = Driver::planned(shop(json!({})), plan(&[asked]));
    d.amend(json!({"product": "coffee"}));
    d.log();
    d.done("a", json!({}));
    expect![[r#"
        tool_completed
          outcome a#1 done
          looking a#1
          > look a#1 file{"path":"tea"}
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_open_effect_is_looked_for_before_a_new_plan_is_asked_for() {
    let mut d = Driver::planned(
        shop(json!({})),
        plan(&[step("a", "put", "/p"), step("b", "get", "1")]),
    );
    d.failed("a", Code::ToolFailed, true);
    d.log();
    d.failed("b", Code::ToolOutputInvalid, true);
    d.saw("a", &[met()]);
    expect![[r#"
        tool_failed
          outcome b#1 failed TOOL_OUTPUT_INVALID (started)
          step_ended b failed TOOL_OUTPUT_INVALID
          looking a#1
          > look a#1 file{"path":"/p"}
        observation_validated
          observed a#1 [met]
          step_ended a done
          plan_requested r2 of playbook (b TOOL_OUTPUT_INVALID) tokens=0
          > plan r2 of playbook
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_effect_that_nobody_knows_of_outranks_another_failure() {
    let mut d = replanning(shop(json!({})), "pay", |d| {
        d.silent("a");
        d.sealed("a", Seal::Ended { outcome: None });
        assert_eq!(settle(d, &unavailable()), "ask (5)");
    });
    d.answer(CHOICE_FAIL);
    expect![[r#"
        answer
          answered fail by bob
          step_ended a unknown OUTCOME_UNKNOWN
          closing OUTCOME_UNKNOWN at a
          ended failed OUTCOME_UNKNOWN "bob chose to leave it" [b=failed a=unknown]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn the_key_is_the_same_for_every_attempt_and_the_token_rises() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "set", "/p")]));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let call = d.out.iter().find_map(|c| match c {
            detent_orchestrator::Command::Call { call, .. } => Some(call.clone()),
            _ => None,
        });
        let call = call.unwrap();
        assert_eq!(
            Some(call.fencing_token),
            d.state.step(&id("a")).map(|s| s.intent_n)
        );
        seen.push((call.identity, call.fencing_token));
        d.failed("a", Code::ToolFailed, true);
        if seen.len() < 3 {
            d.wake();
        }
    }
    assert!(seen.windows(2).all(|w| w[0].0 == w[1].0 && w[0].1 < w[1].1));
}
