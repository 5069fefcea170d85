//! What a goal may grow to, and whose word stands in its evidence.

use crate::support::*;
use detent_orchestrator::Event;
use detent_protocol::expect::PROBE_PERSON;
use detent_protocol::record::CHOICE_HAPPENED;
use detent_protocol::result::GoalResult;
use detent_protocol::{Code, GOAL_BYTES_MAX};
use serde_json::{Value, json};

#[test]
fn a_persons_answer_is_the_evidence_and_not_what_a_probe_did_not_see() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "wire", "x")]));
    d.failed("a", Code::ToolFailed, true);
    // Not there, and without a settling time that proves nothing.
    while d.state.questions.is_empty() {
        d.saw("a", &[detent_protocol::expect::Verdict::Absent]);
        if d.state.questions.is_empty() {
            d.wake();
        }
    }
    d.answer(CHOICE_HAPPENED);
    let evidence = d.state.step(&id("a")).unwrap().evidence.clone();
    assert_eq!(evidence.len(), 1);
    assert_eq!(evidence[0].probe, PROBE_PERSON);
    assert!(evidence[0].what.starts_with("bob answered"), "{evidence:?}");
}

#[test]
fn amendments_do_not_make_a_goal_larger_than_a_goal_may_be() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "x")]));
    let big = "x".repeat(GOAL_BYTES_MAX / 2);
    assert_eq!(d.amend(json!({"one": big.clone()})), None);
    let refused = d.amend(json!({"two": big})).unwrap();
    assert_eq!(refused.code, Code::InputTooLarge);
}

#[test]
fn a_goal_can_not_be_paused_for_ever_and_ever() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "x")]));
    for _ in 0..64 {
        d.pause();
        d.resume();
    }
    let decision = d.on(Event::Pause { by: "bob".into() });
    assert_eq!(decision.refused.unwrap().code, Code::InputTooLarge);
    assert!(decision.records.is_empty());
}

#[test]
fn what_can_not_be_journaled_ends_the_goal_by_what_can() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "x")]));
    let fault = fault(Code::InputTooLarge);
    d.on(Event::AppendRefused { fault });
    d.sealed("a", detent_protocol::record::Seal::Ended { outcome: None });
    let GoalResult::Failed { error_code, .. } = d.result() else {
        panic!("{:?}", d.result());
    };
    assert_eq!(error_code, Code::InputTooLarge);
}

#[test]
fn a_result_that_names_a_long_output_many_times_ends_the_goal() {
    let mut plan = plan(&[step("a", "get", "x")]);
    plan["result"] = Value::Array(vec![json!({"$step": "a"}); 20]);
    let mut d = Driver::planned(shop(json!({})), plan);
    d.done("a", json!({"text": "x".repeat(100_000)}));
    let GoalResult::Failed { error_code, .. } = d.result() else {
        panic!("it succeeded");
    };
    assert_eq!(error_code, Code::InputTooLarge);
}
