//! Steps that go well, wait, run side by side, fail, are tried again and fall back.

use crate::support::*;
use detent_orchestrator::state::Status;
use detent_protocol::Code;
use detent_protocol::expect::Verdict;
use expect_test::{Expect, expect};
use serde_json::json;

fn check(d: &mut Driver, expected: &Expect) {
    expected.assert_eq(&d.log());
}

#[test]
fn a_goal_with_a_read_and_an_effect_succeeds_with_evidence() {
    let mut d = Driver::submitted(shop(json!({})));
    d.plan(plan(&[
        step("a", "get", "/in"),
        json!({"id": "b", "tool": "put", "args": {"path": {"$step": "a", "at": "/where"}}}),
    ]));
    d.done("a", json!({"where": "/out"}));
    d.done("b", json!({"ok": true}));
    d.saw("b", &[met()]);
    check(
        &mut d,
        &expect![[r#"
        new_goal
          accepted shop deadline=+3600000
          owned n1
          plan_requested r1 of playbook (new_goal) tokens=0
          > plan r1 of playbook
        plan_received
          planned r1 [a b]
          intended a#1 get
          > call a#1 get {"path":"/in"}
        tool_completed
          outcome a#1 done
          step_ended a done
          intended b#1 put
          > call b#1 put {"path":"/out"}
        tool_completed
          outcome b#1 done
          looking b#1
          > look b#1 file{"path":"/out"}
        observation_validated
          observed b#1 [met]
          step_ended b done
          ended succeeded {"out":{"ok":true}} evidence=2
    "#]],
    );
}

#[test]
fn steps_without_a_need_for_one_another_run_side_by_side_up_to_the_limit() {
    let two = shop(json!({"policy": {"parallel_max": 2}}));
    let mut d = Driver::planned(
        two,
        plan(&[
            step("a", "get", "1"),
            step("b", "get", "2"),
            step("c", "get", "3"),
        ]),
    );
    d.done("b", json!({}));
    d.done("a", json!({}));
    check(
        &mut d,
        &expect![[r#"
        new_goal
          accepted shop deadline=+3600000
          owned n1
          plan_requested r1 of playbook (new_goal) tokens=0
          > plan r1 of playbook
        plan_received
          planned r1 [a b c]
          intended a#1 get
          intended b#1 get
          > call a#1 get {"path":"1"}
          > call b#1 get {"path":"2"}
        tool_completed
          outcome b#1 done
          step_ended b done
          intended c#1 get
          > call c#1 get {"path":"3"}
        tool_completed
          outcome a#1 done
          step_ended a done
    "#]],
    );
}

#[test]
fn a_delay_counts_from_the_moment_the_predecessors_are_done() {
    let late = json!({"id": "b", "tool": "get", "args": {"path": "2"}, "after": ["a"], "delay_seconds": 60});
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "1"), late]));
    d.log();
    d.now_ms += 5_000;
    d.done("a", json!({}));
    d.after(59_999);
    d.after(1);
    check(
        &mut d,
        &expect![[r#"
        tool_completed
          outcome a#1 done
          step_ended a done
          waiting b delay +60000
        time_came
        time_came
          intended b#1 get
          > call b#1 get {"path":"2"}
    "#]],
    );
}

#[test]
fn a_due_step_without_room_does_not_hide_the_deadline() {
    let one = shop(json!({"policy": {"parallel_max": 1}, "deadline_ms": 100_000}));
    let late = json!({"id": "a", "tool": "get", "args": {"path": "1"}, "delay_seconds": 60});
    let mut d = Driver::planned(one, plan(&[late, step("b", "get", "2")]));
    assert_eq!(d.status("b"), Status::Running);
    d.log();
    d.wake();
    assert_eq!(
        d.state.next_wake_ms(),
        Some(T0 + 100_000),
        "the deadline comes next"
    );
    d.done("b", json!({}));
    check(
        &mut d,
        &expect![[r#"
        time_came
          waiting a delay +0
        tool_completed
          outcome b#1 done
          step_ended b done
          intended a#1 get
          > call a#1 get {"path":"1"}
    "#]],
    );
}

#[test]
fn what_was_due_stays_due_on_a_node_whose_clock_is_behind() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "1")]));
    d.failed("a", Code::ToolFailed, true);
    d.now_ms += 10_000;
    d.pause();
    d.now_ms -= 10_000;
    d.log();
    d.takeover();
    d.resume();
    check(
        &mut d,
        &expect![[r#"
        owner_changed
          owned n2
        resume
          resumed by ann
          intended a#2 get
          > call a#2 get {"path":"1"}
    "#]],
    );
}

#[test]
fn a_failing_tool_is_tried_again_after_a_growing_wait_then_the_step_fails() {
    let once = shop(json!({"policy": {"replans_max": 0}}));
    let mut d = Driver::planned(once, plan(&[step("a", "get", "1")]));
    for _ in 0..2 {
        d.failed("a", Code::ToolFailed, true);
        d.wake();
    }
    d.failed("a", Code::ToolFailed, true);
    check(
        &mut d,
        &expect![[r#"
        new_goal
          accepted shop deadline=+3600000
          owned n1
          plan_requested r1 of playbook (new_goal) tokens=0
          > plan r1 of playbook
        plan_received
          planned r1 [a]
          intended a#1 get
          > call a#1 get {"path":"1"}
        tool_failed
          outcome a#1 failed TOOL_FAILED (started)
          waiting a backoff +221
        time_came
          intended a#2 get
          > call a#2 get {"path":"1"}
        tool_failed
          outcome a#2 failed TOOL_FAILED (started)
          waiting a backoff +405
        time_came
          intended a#3 get
          > call a#3 get {"path":"1"}
        tool_failed
          outcome a#3 failed TOOL_FAILED (started)
          step_ended a failed TOOL_FAILED
          closing TOOL_FAILED at a
          ended failed TOOL_FAILED "TOOL_FAILED as the test says" [a=failed]
    "#]],
    );
}

#[test]
fn a_fault_that_would_only_come_again_is_not_retried() {
    let once = shop(json!({"policy": {"replans_max": 0}}));
    let mut d = Driver::planned(once, plan(&[step("a", "get", "1")]));
    d.log();
    d.failed("a", Code::ToolOutputInvalid, true);
    check(
        &mut d,
        &expect![[r#"
        tool_failed
          outcome a#1 failed TOOL_OUTPUT_INVALID (started)
          step_ended a failed TOOL_OUTPUT_INVALID
          closing TOOL_OUTPUT_INVALID at a
          ended failed TOOL_OUTPUT_INVALID "TOOL_OUTPUT_INVALID as the test says" [a=failed]
    "#]],
    );
}

#[test]
fn a_second_best_source_marks_the_result_as_stale() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get-or-old", "1")]));
    d.log();
    d.failed("a", Code::ResponseTooLarge, true);
    d.done("a", json!({"n": 1}));
    check(
        &mut d,
        &expect![[r#"
        tool_failed
          outcome a#1 failed RESPONSE_TOO_LARGE (started)
          fell_back a to get-old after RESPONSE_TOO_LARGE
          intended a#2 get-old
          > call a#2 get-old {"path":"1"}
        tool_completed
          outcome a#2 done
          step_ended a done stale
          ended succeeded {"out":{"n":1}} evidence=1 stale
    "#]],
    );
}

#[test]
fn fallbacks_that_name_one_another_are_each_tried_once() {
    let tools = vec![
        tool("x", "read", json!({"fallback": "y"})),
        tool("y", "read", json!({"fallback": "x"})),
    ];
    let policy = json!({"policy": {"replans_max": 0}});
    let mut d = Driver::planned(define(tools, policy), plan(&[step("a", "x", "1")]));
    d.log();
    d.failed("a", Code::ResponseTooLarge, true);
    d.failed("a", Code::ResponseTooLarge, true);
    check(
        &mut d,
        &expect![[r#"
        tool_failed
          outcome a#1 failed RESPONSE_TOO_LARGE (started)
          fell_back a to y after RESPONSE_TOO_LARGE
          intended a#2 y
          > call a#2 y {"path":"1"}
        tool_failed
          outcome a#2 failed RESPONSE_TOO_LARGE (started)
          step_ended a failed RESPONSE_TOO_LARGE
          closing RESPONSE_TOO_LARGE at a
          ended failed RESPONSE_TOO_LARGE "RESPONSE_TOO_LARGE as the test says" [a=failed]
    "#]],
    );
}

#[test]
fn an_effect_moves_to_its_fallback_only_when_it_is_proven_absent() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "pay-or-wire", "/p")]));
    d.log();
    d.failed("a", Code::SandboxViolation, true);
    d.after(5_000);
    d.saw("a", &[Verdict::Absent]);
    d.saw("a", &[Verdict::Absent]);
    check(
        &mut d,
        &expect![[r#"
        tool_failed
          outcome a#1 failed SANDBOX_VIOLATION (started)
          looking a#1
          > look a#1 file{"path":"/p"}
        time_came
        observation_rejected
          observed a#1 [absent]
          looking a#1
          > look a#1 file{"path":"/p"}
        observation_rejected
          observed a#1 [absent] proven absent
          fell_back a to wire after SANDBOX_VIOLATION
          intended a#2 wire
          > call a#2 wire {"path":"/p"}
    "#]],
    );
}

#[test]
fn a_step_that_refers_to_what_the_output_does_not_have_fails_by_that_name() {
    let policy = shop(json!({"policy": {"replans_max": 0}}));
    let lost = json!({"id": "b", "tool": "get", "args": {"path": {"$step": "a", "at": "/nope"}}});
    let mut d = Driver::planned(policy, plan(&[step("a", "get", "1"), lost]));
    d.log();
    d.done("a", json!({"rows": []}));
    check(
        &mut d,
        &expect![[r#"
        tool_completed
          outcome a#1 done
          step_ended a done
          step_ended b failed REFERENCE_MISSING
          closing REFERENCE_MISSING at b
          ended failed REFERENCE_MISSING "output "/nope" of step a is not there" [a=done b=failed]
    "#]],
    );
}

#[test]
fn arguments_that_break_the_tools_contract_once_resolved_fail_the_step() {
    let strict = tool(
        "strict",
        "read",
        json!({"input_schema": {"properties": {"path": {"type": "string"}}}}),
    );
    let tools = vec![tool("get", "read", json!({})), strict];
    let lost = json!({"id": "b", "tool": "strict", "args": {"path": {"$step": "a"}}});
    let policy = json!({"policy": {"replans_max": 0}});
    let mut d = Driver::planned(define(tools, policy), plan(&[step("a", "get", "1"), lost]));
    d.log();
    d.done("a", json!(7));
    check(
        &mut d,
        &expect![[r#"
        tool_completed
          outcome a#1 done
          step_ended a done
          step_ended b failed INPUT_INVALID
          closing INPUT_INVALID at b
          ended failed INPUT_INVALID "/path: breaks type "string", found integer" [a=done b=failed]
    "#]],
    );
}

#[test]
fn a_result_that_breaks_the_agents_contract_is_an_internal_error() {
    let strict = shop(json!({"result_schema": {"properties": {"out": {"type": "string"}}}}));
    let mut d = Driver::planned(strict, plan(&[step("a", "get", "1")]));
    d.log();
    d.done("a", json!({"not": "a string"}));
    check(
        &mut d,
        &expect![[r#"
        tool_completed
          outcome a#1 done
          step_ended a done
          closing INTERNAL_LOGIC_ERROR at /out
          ended failed INTERNAL_LOGIC_ERROR "/out: breaks type "string", found object" [a=done]
    "#]],
    );
}

#[test]
fn an_expectation_on_the_output_of_a_read_is_checked() {
    let rows = json!({"probe": "output", "schema": {"type": "object", "required": ["rows"]}});
    let asked = json!({"id": "a", "tool": "get", "args": {"path": "1"}, "expect": [rows]});
    let mut d = Driver::planned(shop(json!({})), plan(&[asked]));
    d.log();
    d.done("a", json!({}));
    d.wake();
    d.done("a", json!({"rows": 1}));
    check(
        &mut d,
        &expect![[r#"
        tool_completed
          outcome a#1 done
          waiting a backoff +221
        time_came
          intended a#2 get
          > call a#2 get {"path":"1"}
        tool_completed
          outcome a#2 done
          step_ended a done
          ended succeeded {"out":{"rows":1}} evidence=1
    "#]],
    );
}
