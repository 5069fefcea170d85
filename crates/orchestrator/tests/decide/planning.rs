//! Plans: asked for, refused, asked for again, given up; and what they may cost.

use crate::support::*;
use detent_protocol::{Code, Fault};
use expect_test::expect;
use serde_json::{Value, json};

/// An agent whose planners are a model, another model and the playbook.
fn models() -> Driver {
    let mut d = Driver::submitted(shop(json!({"reasoners": ["big", "small", "playbook"]})));
    d.log();
    d
}

/// An agent with one model.
fn one_model(more: Value) -> Driver {
    let mut agent = json!({"reasoners": ["big"]});
    detent_protocol::goal::merge_patch(&mut agent, &more);
    let mut d = Driver::submitted(shop(agent));
    d.log();
    d
}

#[test]
fn a_malformed_plan_is_asked_for_again_twice_then_the_next_planner_is_asked() {
    let mut d = models();
    for _ in 0..3 {
        d.answer_plan(json!("Sure! Here is your plan:"), false, 100);
    }
    for _ in 0..3 {
        d.answer_plan(json!({"steps": "none"}), false, 100);
    }
    d.answer_plan(json!({}), true, 0);
    expect![[r#"
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then ask_again
          plan_requested r1 of big (again) tokens=32768
          > plan r1 of big
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then ask_again
          plan_requested r1 of big (again) tokens=32768
          > plan r1 of big
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then next_provider
          plan_requested r1 of small (unavailable) tokens=32768
          > plan r1 of small
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then ask_again
          plan_requested r1 of small (again) tokens=32768
          > plan r1 of small
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then ask_again
          plan_requested r1 of small (again) tokens=32768
          > plan r1 of small
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then next_provider
          plan_requested r1 of playbook (unavailable) tokens=0
          > plan r1 of playbook
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then give_up
          closing MODEL_MALFORMED at /
          ended failed MODEL_MALFORMED "not a plan: missing field `steps`" []
    "#]]
    .assert_eq(&d.log());
    assert_eq!(d.state.budget.committed.tokens, 600);
}

#[test]
fn an_absent_model_is_waited_for_as_long_as_it_says_and_not_for_ever() {
    let mut d = one_model(json!({}));
    d.no_plan(fault(Code::ModelUnavailable).retry_after_ms(60_000));
    d.wake();
    d.no_plan(fault(Code::ModelUnavailable));
    d.wake();
    d.no_plan(fault(Code::ModelUnavailable).retry_after_ms(u64::MAX));
    d.wake();
    d.no_plan(fault(Code::ModelUnavailable));
    expect![[r#"
        plan_failed
          plan_refused r1 [MODEL_UNAVAILABLE] then wait +66470
        time_came
          plan_requested r1 of big (unavailable) tokens=32768
          > plan r1 of big
        plan_failed
          plan_refused r1 [MODEL_UNAVAILABLE] then wait +2068
        time_came
          plan_requested r1 of big (unavailable) tokens=32768
          > plan r1 of big
        plan_failed
          plan_refused r1 [MODEL_UNAVAILABLE] then wait +607647
        time_came
          plan_requested r1 of big (unavailable) tokens=32768
          > plan r1 of big
        plan_failed
          plan_refused r1 [MODEL_UNAVAILABLE] then give_up
          closing MODEL_UNAVAILABLE
          ended failed MODEL_UNAVAILABLE "MODEL_UNAVAILABLE as the test says" []
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_paused_goal_does_not_ask_until_it_is_resumed() {
    let mut d = one_model(json!({}));
    d.no_plan(fault(Code::ModelUnavailable));
    d.pause();
    assert_eq!(d.state.next_wake_ms(), Some(T0 + 3_600_000));
    d.after(60_000);
    d.resume();
    expect![[r#"
        plan_failed
          plan_refused r1 [MODEL_UNAVAILABLE] then wait +1107
        pause
          paused by ann
        time_came
        resume
          resumed by ann
          plan_requested r1 of big (unavailable) tokens=32768
          > plan r1 of big
    "#]]
    .assert_eq(&d.log());
}

/// Why `plan` is refused when a model says it.
fn refusal(plan: Value) -> String {
    let mut d = one_model(json!({}));
    d.answer_plan(plan, false, 1);
    let log = d.log();
    let refused = log.lines().find(|l| l.contains("plan_refused"));
    refused.unwrap_or("taken").trim().to_owned()
}

#[test]
fn what_a_model_can_not_talk_itself_into() {
    let from_a = json!({"$step": "a"});
    let with = |result: Value| json!({"steps": [step("a", "get", "1")], "result": result});
    let one = |step: Value| json!({"steps": [step], "result": from_a});
    let expects =
        |schema: Value| json!({"probe": "file", "params": {"path": "/p"}, "schema": schema});
    let mailing = |e: Value| json!({"id": "a", "tool": "mail", "args": {}, "expect": [e]});
    let loops = json!({"steps": [step_after("a", "get", "1", &["b"]), step_after("b", "get", "1", &["a"])], "result": from_a});
    let mut timed = step("a", "get", "1");
    timed["run_at"] = json!("2026-01-01T00:00:00Z");
    let cases = [
        (
            "says it is done",
            json!({"done": true, "result": {"paid": true}}),
        ),
        ("has no steps", json!({"steps": [], "result": {}})),
        (
            "a result of its own",
            with(json!({"out": from_a, "paid": 500})),
        ),
        (
            "a claim beside it",
            with(json!({"out": from_a, "paid": true})),
        ),
        (
            "a claim around it",
            with(json!({"$concat": ["paid to ", {"$step": "a", "at": "/who"}]})),
        ),
        ("a tool there is not", one(step("a", "teleport", "1"))),
        (
            "a step there is not",
            one(step_after("a", "get", "1", &["z"])),
        ),
        ("a cycle", loops),
        ("an absolute time", one(timed)),
        ("an effect, nothing expected", one(step("a", "mail", "1"))),
        (
            "an expectation always met",
            one(mailing(expects(json!({})))),
        ),
        (
            "its own word for an effect",
            one(mailing(
                json!({"probe": "output", "schema": {"type": "object", "required": ["ok"]}}),
            )),
        ),
        (
            "a repeat",
            one(json!({"id": "a", "tool": "pay", "args": {"path": "/p"}, "repeat": true})),
        ),
        ("a fine plan", with(from_a.clone())),
    ];
    let mut table = String::new();
    for (name, plan) in cases {
        table += &format!("{name:<28} {}\n", refusal(plan));
    }
    expect![[r#"
        says it is done              plan_refused r1 [MODEL_FALSE_CLAIM at /done] then ask_again
        has no steps                 plan_refused r1 [MODEL_FALSE_CLAIM at /result] then ask_again
        a result of its own          plan_refused r1 [MODEL_FALSE_CLAIM at /result/paid] then ask_again
        a claim beside it            plan_refused r1 [MODEL_FALSE_CLAIM at /result/paid] then ask_again
        a claim around it            plan_refused r1 [MODEL_FALSE_CLAIM at /result/0] then ask_again
        a tool there is not          plan_refused r1 [MODEL_HALLUCINATION at /steps/0/tool] then ask_again
        a step there is not          plan_refused r1 [MODEL_HALLUCINATION at /steps/0] then ask_again
        a cycle                      plan_refused r1 [PLAN_INVALID at /steps] then ask_again
        an absolute time             plan_refused r1 [PLAN_INVALID at /steps/0/run_at] then ask_again
        an effect, nothing expected  plan_refused r1 [POLICY_DENIED at /steps/0/tool] then ask_again
        an expectation always met    plan_refused r1 [EXPECTATION_TRIVIAL at /steps/0/expect/0/schema, POLICY_DENIED at /steps/0/expect/0/params/path, POLICY_DENIED at /steps/0/tool] then ask_again
        its own word for an effect   plan_refused r1 [EXPECTATION_TRIVIAL at /steps/0/expect/0/probe, POLICY_DENIED at /steps/0/tool] then ask_again
        a repeat                     plan_refused r1 [POLICY_DENIED at /steps/0/repeat] then ask_again
        a fine plan                  taken
    "#]].assert_eq(&table);
}

#[test]
fn a_step_id_is_never_used_twice_over_all_plans() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "1")]));
    d.failed("a", Code::ToolOutputInvalid, true);
    d.log();
    d.plan(plan(&[step("a", "get", "1")]));
    expect![[r#"
        plan_received
          plan_refused r2 [PLAN_INVALID at /steps/0/id] then give_up
          closing PLAN_INVALID at /steps/0/id
          ended failed PLAN_INVALID "step id a was used before" [a=failed]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_new_plan_may_use_what_the_earlier_one_has_done() {
    let mut d = Driver::planned(
        shop(json!({})),
        plan(&[step("a", "get", "1"), step("b", "get", "2")]),
    );
    d.done("a", json!({"rows": 3}));
    d.failed("b", Code::ToolOutputInvalid, true);
    d.log();
    d.plan(json!({"steps": [], "result": {"rows": {"$step": "a", "at": "/rows"}}}));
    expect![[r#"
        plan_received
          planned r2 []
          ended succeeded {"rows":3} evidence=1
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn the_same_failure_three_times_over_all_plans_ends_the_goal() {
    let many = shop(json!({"policy": {"replans_max": 9}}));
    let mut d = Driver::planned(many, plan(&[step("a", "get", "1")]));
    d.log();
    for next in ["b", "c", "d"] {
        let running = d.state.steps.keys().next_back().unwrap().clone();
        d.failed(running.as_str(), Code::ToolOutputInvalid, true);
        if d.state.ended.is_none() {
            d.plan(plan(&[step(next, "get", "1")]));
        }
    }
    expect![[r#"
        tool_failed
          outcome a#1 failed TOOL_OUTPUT_INVALID (started)
          step_ended a failed TOOL_OUTPUT_INVALID
          plan_requested r2 of playbook (a TOOL_OUTPUT_INVALID) tokens=0
          > plan r2 of playbook
        plan_received
          planned r2 [b]
          intended b#1 get
          > call b#1 get {"path":"1"}
        tool_failed
          outcome b#1 failed TOOL_OUTPUT_INVALID (started)
          step_ended b failed TOOL_OUTPUT_INVALID
          plan_requested r3 of playbook (b TOOL_OUTPUT_INVALID) tokens=0
          > plan r3 of playbook
        plan_received
          planned r3 [c]
          intended c#1 get
          > call c#1 get {"path":"1"}
        tool_failed
          outcome c#1 failed TOOL_OUTPUT_INVALID (started)
          step_ended c failed TOOL_OUTPUT_INVALID
          closing LOOP_NO_PROGRESS at c
          ended failed LOOP_NO_PROGRESS "3 times the same: TOOL_OUTPUT_INVALID as the test says" [a=failed b=failed c=failed]
    "#]].assert_eq(&d.log());
}

#[test]
fn after_the_allowed_number_of_new_plans_the_goal_ends_with_the_steps_own_code() {
    let mut d = Driver::planned(
        shop(json!({"policy": {"replans_max": 1}})),
        plan(&[step("a", "get", "1")]),
    );
    d.failed("a", Code::ToolOutputInvalid, true);
    d.plan(plan(&[step("b", "get", "2")]));
    d.log();
    d.failed("b", Code::ResponseTooLarge, true);
    expect![[r#"
        tool_failed
          outcome b#1 failed RESPONSE_TOO_LARGE (started)
          step_ended b failed RESPONSE_TOO_LARGE
          closing RESPONSE_TOO_LARGE at b
          ended failed RESPONSE_TOO_LARGE "RESPONSE_TOO_LARGE as the test says" [a=failed b=failed]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_late_plan_for_an_earlier_revision_is_ignored() {
    let mut d = models();
    d.amend(json!({"product": "coffee"}));
    d.log();
    let answer = detent_protocol::messages::PlanAnswer {
        plan: plan(&[step("a", "get", "1")]),
        tokens: 5,
        trusted: false,
    };
    d.on(detent_orchestrator::Event::PlanReceived {
        revision: 1,
        answer,
    });
    d.on(detent_orchestrator::Event::PlanFailed {
        revision: 1,
        fault: fault(Code::ModelUnavailable),
    });
    expect![[r#"
        plan_received
        plan_failed
    "#]]
    .assert_eq(&d.log());
}

// ---- budgets (I9) ----------------------------------------------------------

#[test]
fn tokens_are_reserved_before_a_model_is_asked_and_settled_with_what_it_took() {
    let mut d = one_model(json!({"budget": {"tokens": 50_000}}));
    assert_eq!(d.state.budget.committed.tokens, 32_768);
    d.answer_plan(json!("?"), false, 40_000);
    assert_eq!(
        d.state.budget.committed.tokens, 50_000,
        "40,000 used, the rest reserved"
    );
    d.answer_plan(json!("?"), false, 10_000);
    expect![[r#"
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then ask_again
          plan_requested r1 of big (again) tokens=10000
          > plan r1 of big
        plan_received
          plan_refused r1 [MODEL_MALFORMED at /] then ask_again
          closing BUDGET_EXHAUSTED
          ended failed BUDGET_EXHAUSTED "tokens is used up; no plan can be asked for" []
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_takeover_asks_again_and_keeps_what_the_lost_request_may_have_cost() {
    let mut d = one_model(json!({"budget": {"tokens": 50_000, "plan_calls": 2}}));
    d.takeover();
    assert_eq!(d.state.budget.committed.tokens, 50_000);
    d.takeover();
    expect![[r#"
        owner_changed
          owned n2
          plan_requested r1 of big (takeover) tokens=17232
          > plan r1 of big
        owner_changed
          owned n3
          closing BUDGET_EXHAUSTED
          ended failed BUDGET_EXHAUSTED "plan_calls is used up; no plan can be asked for" []
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn no_tool_is_called_past_the_limit() {
    let two = shop(json!({"budget": {"tool_calls": 2}}));
    let mut d = Driver::planned(
        two,
        plan(&[
            step("a", "get", "1"),
            step("b", "get", "2"),
            step("c", "get", "3"),
        ]),
    );
    d.log();
    d.done("a", json!({}));
    d.done("b", json!({}));
    expect![[r#"
        tool_completed
          outcome a#1 done
          step_ended a done
        tool_completed
          outcome b#1 done
          step_ended b done
          ended failed BUDGET_EXHAUSTED "tool_calls is used up before step c" [a=done b=done c=skipped]
    "#]].assert_eq(&d.log());
}

#[test]
fn money_is_reserved_for_each_attempt_also_after_a_takeover() {
    let dear = tool("dear", "read", json!({"cost_micros": 40}));
    let mut d = Driver::planned(
        define(vec![dear], json!({"budget": {"money_micros": 100}})),
        plan(&[step("a", "dear", "1")]),
    );
    d.takeover();
    d.log();
    d.sealed("a", detent_protocol::record::Seal::Ended { outcome: None });
    assert_eq!(d.state.budget.committed.money_micros, 80);
    d.failed("a", Code::ToolFailed, true);
    d.wake();
    expect![[r#"
        attempt_sealed
          sealed a#1 ended, outcome lost
          waiting a backoff +0
          intended a#2 dear
          > call a#2 dear {"path":"1"}
        tool_failed
          outcome a#2 failed TOOL_FAILED (started)
          waiting a backoff +210
        time_came
          closing BUDGET_EXHAUSTED
          step_ended a skipped
          ended failed BUDGET_EXHAUSTED "money_micros is used up before step a" [a=skipped]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_new_plan_that_can_not_be_paid_for_ends_the_goal() {
    let one = shop(json!({"budget": {"plan_calls": 1}}));
    let mut d = Driver::planned(one, plan(&[step("a", "get", "1")]));
    d.log();
    d.failed("a", Code::ToolOutputInvalid, true);
    expect![[r#"
        tool_failed
          outcome a#1 failed TOOL_OUTPUT_INVALID (started)
          step_ended a failed TOOL_OUTPUT_INVALID
          closing BUDGET_EXHAUSTED
          ended failed BUDGET_EXHAUSTED "plan_calls is used up; no plan can be asked for" [a=failed]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_planners_words_are_bounded_in_the_journal() {
    let many: Vec<_> = (0..100)
        .map(|i| step(&format!("s{i}"), "teleport", "1"))
        .collect();
    let mut d = one_model(json!({}));
    d.answer_plan(plan(&many), false, 1);
    let kept: &[Fault] = &d.state.violations;
    assert_eq!(kept.len(), 16);
}
