//! What people, programs and the clock may do at any time: cancel, amend, pause,
//! resume, the deadline, a takeover; and what comes late or twice.

use crate::support::*;
use detent_orchestrator::Event;
use detent_orchestrator::state::Status;
use detent_protocol::expect::Verdict;
use detent_protocol::messages::Phase;
use detent_protocol::record::{RunFacts, Seal, WaitWhy};
use detent_protocol::result::{GoalResult, StepState};
use detent_protocol::{Code, NodeId};
use expect_test::expect;
use serde_json::json;

// ---- every place that a step can be in -------------------------------------

/// A goal with step `a` (effect `once`) in each state, and step `z` after it.
fn places() -> Vec<(&'static str, Driver)> {
    let new = || {
        let agent = shop(json!({"deadline_ms": 7_200_000}));
        Driver::planned(
            agent,
            plan(&[step("a", "pay", "/p"), step_after("z", "get", "1", &["a"])]),
        )
    };
    let with = |f: &dyn Fn(&mut Driver)| {
        let mut d = new();
        f(&mut d);
        d
    };
    let delayed = json!({"id": "a", "tool": "pay", "args": {"path": "/p"}, "delay_seconds": 60});
    let agent = shop(json!({"reasoners": ["big"]}));
    let mut waits_for_model = Driver::submitted(agent.clone());
    waits_for_model.no_plan(fault(Code::ModelUnavailable));
    vec![
        ("planning", Driver::submitted(agent)),
        ("waiting for a planner", waits_for_model),
        (
            "delayed",
            Driver::planned(shop(json!({})), plan(&[delayed])),
        ),
        ("running", new()),
        ("sealing", with(&|d| d.silent("a"))),
        (
            "backing off",
            with(&|d| d.failed("a", Code::ToolUnavailable, false)),
        ),
        ("looking", with(&|d| d.done("a", json!({})))),
        (
            "settling",
            with(&|d| {
                d.failed("a", Code::ToolFailed, true);
                d.saw("a", &[Verdict::Absent]);
            }),
        ),
        (
            "waiting for a probe",
            with(&|d| {
                d.done("a", json!({}));
                d.saw("a", &[unavailable()]);
            }),
        ),
        (
            "asking",
            with(&|d| {
                d.silent("a");
                d.seal_failed("a");
            }),
        ),
        ("next step running", with(&|d| d.succeeds("a", json!({})))),
        (
            "paused",
            with(&|d| {
                d.pause();
                d.succeeds("a", json!({}));
            }),
        ),
    ]
}

/// Answers whatever is out (attempts have ended, outcomes lost; the world shows the
/// effect) until the goal has ended.
fn come_to_an_end(d: &mut Driver) {
    for _ in 0..50 {
        if d.state.ended.is_some() {
            return;
        }
        let sealing =
            |s: &detent_orchestrator::state::StepState| matches!(s.status, Status::Sealing { .. });
        let find = |f: &dyn Fn(&detent_orchestrator::state::StepState) -> bool| {
            d.state
                .steps
                .iter()
                .find(|(_, s)| f(s))
                .map(|(id, _)| id.to_string())
        };
        if let Some(id) = find(&sealing) {
            d.sealed(&id, Seal::Ended { outcome: None });
        } else if let Some(id) = find(&|s| s.status == Status::Looking) {
            d.saw(&id, &[met()]);
        } else if d
            .out
            .iter()
            .any(|c| matches!(c, detent_orchestrator::Command::SealGoal(_)))
        {
            d.goal_sealed();
        } else {
            d.wake();
        }
    }
    panic!("it does not end: {:?}", d.state.waiting());
}

#[test]
fn a_cancel_in_every_place_ends_with_a_receipt_that_tells_the_truth() {
    let mut table = String::new();
    for (name, mut d) in places() {
        d.log();
        d.cancel();
        let second = d.on(Event::Cancel {
            by: "eve".into(),
            reason: "me too".into(),
        });
        assert_eq!(
            second.refused, None,
            "{name}: a second cancel is answered like the first"
        );
        assert!(
            second.records.is_empty(),
            "{name}: a second cancel changes nothing"
        );
        come_to_an_end(&mut d);
        let log = d.log();
        let sealed = log.find("  goal_sealed").expect("the goal is sealed");
        assert!(
            sealed < log.find("  ended").unwrap(),
            "{name}: sealed before the end"
        );
        let end = log
            .lines()
            .last()
            .unwrap()
            .trim()
            .trim_start_matches("ended ");
        table += &format!("{name:<22} {end}\n");
        let GoalResult::Cancelled { receipt } = d.result() else {
            panic!("{name}: not cancelled");
        };
        assert_eq!(
            (receipt.by.as_str(), receipt.reason.as_str()),
            ("ann", "changed my mind")
        );
    }
    expect![[r#"
        planning               cancelled by ann [] confirmed=1 unconfirmed=0
        waiting for a planner  cancelled by ann [] confirmed=1 unconfirmed=0
        delayed                cancelled by ann [a=skipped] confirmed=1 unconfirmed=0
        running                cancelled by ann [a=done z=skipped] confirmed=1 unconfirmed=0
        sealing                cancelled by ann [a=done z=skipped] confirmed=1 unconfirmed=0
        backing off            cancelled by ann [a=skipped z=skipped] confirmed=1 unconfirmed=0
        looking                cancelled by ann [a=done z=skipped] confirmed=1 unconfirmed=0
        settling               cancelled by ann [a=done z=skipped] confirmed=1 unconfirmed=0
        waiting for a probe    cancelled by ann [a=done z=skipped] confirmed=1 unconfirmed=0
        asking                 cancelled by ann [a=unknown z=skipped] confirmed=1 unconfirmed=0
        next step running      cancelled by ann [a=done z=skipped] confirmed=1 unconfirmed=0
        paused                 cancelled by ann [a=done z=skipped] confirmed=1 unconfirmed=0
    "#]]
    .assert_eq(&table);
}

#[test]
fn the_deadline_in_every_place_ends_the_goal() {
    let mut table = String::new();
    for (name, mut d) in places() {
        d.log();
        d.now_ms = d.state.deadline_ms;
        d.on(Event::TimeCame);
        come_to_an_end(&mut d);
        let log = d.log();
        let end = log
            .lines()
            .last()
            .unwrap()
            .trim()
            .trim_start_matches("ended ");
        table += &format!("{name:<22} {end}\n");
    }
    expect![[r#"
        planning               failed DEADLINE_EXCEEDED "the deadline passed" []
        waiting for a planner  failed DEADLINE_EXCEEDED "the deadline passed" []
        delayed                failed DEADLINE_EXCEEDED "the deadline passed" [a=skipped]
        running                failed DEADLINE_EXCEEDED "the deadline passed" [a=done z=skipped]
        sealing                failed DEADLINE_EXCEEDED "the deadline passed" [a=done z=skipped]
        backing off            failed DEADLINE_EXCEEDED "the deadline passed" [a=skipped z=skipped]
        looking                failed DEADLINE_EXCEEDED "the deadline passed" [a=done z=skipped]
        settling               failed DEADLINE_EXCEEDED "the deadline passed" [a=done z=skipped]
        waiting for a probe    failed DEADLINE_EXCEEDED "the deadline passed" [a=done z=skipped]
        asking                 failed OUTCOME_UNKNOWN "nobody answered in time" [a=unknown z=skipped]
        next step running      failed DEADLINE_EXCEEDED "the deadline passed" [a=done z=skipped]
        paused                 failed DEADLINE_EXCEEDED "the deadline passed" [a=done z=skipped]
    "#]].assert_eq(&table);
}

#[test]
fn a_takeover_in_every_place_assumes_nothing() {
    let mut table = String::new();
    for (name, mut d) in places() {
        d.log();
        d.takeover();
        let log = d.log();
        let lines = log.lines().skip(2).map(str::trim);
        let lines: Vec<_> = lines.filter(|l| !l.starts_with('>')).collect();
        table += &format!("{name:<22} {}\n", lines.join("; "));
    }
    expect![[r#"
        planning               plan_requested r1 of big (takeover) tokens=32768
        waiting for a planner  
        delayed                
        running                sealing a#1 (takeover)
        sealing                sealing a#1 (timeout)
        backing off            
        looking                looking a#1
        settling               
        waiting for a probe    
        asking                 
        next step running      sealing z#1 (takeover)
        paused                 
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_pause_in_every_place_starts_nothing_and_a_resume_goes_on() {
    for (name, mut d) in places() {
        d.pause();
        d.log();
        // Whatever time brings is settled, but nothing is called and nothing asked for.
        for _ in 0..5 {
            d.after(10_000);
        }
        let log = d.log();
        assert!(
            !log.contains("> call") && !log.contains("> plan"),
            "{name}: {log}"
        );
        let waits = d.state.waiting();
        assert!(
            waits.iter().any(|w| w.what == "resume"),
            "{name}: {waits:?}"
        );
        d.resume();
        assert_eq!(d.state.paused, None);
    }
}

// ---- cancelling ------------------------------------------------------------

#[test]
fn a_cancel_seals_what_runs_looks_and_names_who_could_not_be_reached() {
    let steps = plan(&[
        step("a", "pay", "/p"),
        step("b", "get", "1"),
        step_after("c", "get", "2", &["b"]),
    ]);
    let mut d = Driver::planned(shop(json!({})), steps);
    d.log();
    d.cancel();
    d.done("b", json!({}));
    d.sealed("b", Seal::NeverStarted);
    d.sealed("a", Seal::Ended { outcome: None });
    d.saw("a", &[met()]);
    let lost = vec![NodeId::new("n9").unwrap()];
    d.on(Event::GoalSealed {
        confirmed: vec![],
        unconfirmed: lost,
    });
    expect![[r#"
        cancel
          closing cancelled by ann
          sealing a#1 (closing)
          sealing b#1 (closing)
          step_ended c skipped
          > seal a#1
          > seal b#1
        tool_completed
        attempt_sealed
          sealed b#1 never started
          step_ended b skipped
        attempt_sealed
          sealed a#1 ended, outcome lost
          looking a#1
          > look a#1 file{"path":"/p"}
        observation_validated
          observed a#1 [met]
          step_ended a done
          > seal goal
        goal_sealed
          goal_sealed confirmed=0 unconfirmed=1
          ended cancelled by ann [a=done b=skipped c=skipped] confirmed=0 unconfirmed=1
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_cancel_turns_a_failing_goal_into_a_cancelled_one() {
    let mut d = Driver::planned(
        shop(json!({"policy": {"replans_max": 0}})),
        plan(&[step("a", "pay", "/p"), step("b", "get", "1")]),
    );
    d.failed("b", Code::ToolOutputInvalid, true);
    d.log();
    d.cancel();
    d.sealed("a", Seal::NeverStarted);
    d.goal_sealed();
    expect![[r#"
        cancel
          closing cancelled by ann
          sealing a#1 (closing)
          > seal a#1
        attempt_sealed
          sealed a#1 never started
          step_ended a skipped
          > seal goal
        goal_sealed
          goal_sealed confirmed=1 unconfirmed=0
          ended cancelled by ann [a=skipped b=failed] confirmed=1 unconfirmed=0
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn the_seal_of_the_goal_is_asked_for_again_after_a_takeover() {
    let mut d = Driver::submitted(shop(json!({})));
    d.cancel();
    d.takeover();
    d.goal_sealed();
    assert_eq!(d.result().status(), "cancelled");
}

#[test]
fn an_effect_that_may_be_there_is_looked_for_before_the_receipt() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "put", "/p")]));
    d.failed("a", Code::ToolFailed, true);
    assert!(matches!(
        d.status("a"),
        Status::Waiting {
            why: WaitWhy::Backoff,
            ..
        }
    ));
    d.cancel();
    come_to_an_end(&mut d);
    let GoalResult::Cancelled { receipt } = d.result() else {
        panic!()
    };
    assert_eq!(receipt.steps[0].state, StepState::Done);
}

#[test]
fn a_failing_goal_lets_what_runs_end_but_not_past_its_deadline() {
    let steps = plan(&[step("a", "pay", "/p"), step("b", "get", "1")]);
    let agent = shop(json!({"policy": {"replans_max": 0}}));
    let mut d = Driver::planned(agent, steps);
    d.log();
    d.failed("b", Code::ToolOutputInvalid, true);
    d.wake();
    d.sealed("a", Seal::NeverStarted);
    expect![[r#"
        tool_failed
          outcome b#1 failed TOOL_OUTPUT_INVALID (started)
          step_ended b failed TOOL_OUTPUT_INVALID
        time_came
          closing deadline
          sealing a#1 (closing)
          > seal a#1
        attempt_sealed
          sealed a#1 never started
          step_ended a skipped
          ended failed DEADLINE_EXCEEDED "the deadline passed" [a=skipped b=failed]
    "#]]
    .assert_eq(&d.log());
}

// ---- amending --------------------------------------------------------------

#[test]
fn an_amendment_lets_what_runs_end_then_asks_for_a_new_plan_with_the_new_input() {
    let steps = plan(&[step("a", "get", "1"), step_after("b", "get", "2", &["a"])]);
    let mut d = Driver::planned(shop(json!({})), steps);
    d.log();
    d.amend(json!({"product": "coffee"}));
    d.done("a", json!({}));
    let asked = d.out.iter().find_map(|c| match c {
        detent_orchestrator::Command::Plan { request, .. } => Some(request.snapshot.clone()),
        _ => None,
    });
    let asked = asked.unwrap();
    assert_eq!(asked.input, json!({"product": "tea"}));
    assert_eq!(asked.effective_input, json!({"product": "coffee"}));
    assert_eq!(asked.amendments.len(), 1);
    expect![[r#"
        amend
          amended {"product":"coffee"} by ann
        tool_completed
          outcome a#1 done
          step_ended a done
          step_ended b skipped
          plan_requested r2 of playbook (amended) tokens=0
          > plan r2 of playbook
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_amendment_that_breaks_the_contract_is_refused_and_changes_nothing() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "1")]));
    let before = d.state.clone();
    let refused = d.amend(json!({"product": 7})).unwrap();
    assert_eq!(
        (refused.code, refused.at.as_deref()),
        (Code::InputInvalid, Some("/product"))
    );
    assert_eq!(d.state, before);
}

#[test]
fn amendments_are_bounded() {
    let mut d = Driver::submitted(shop(json!({"budget": {"plan_calls": 1000}})));
    let refused = (0..100).filter_map(|i| d.amend(json!({"note": i}))).next();
    assert_eq!(refused.unwrap().code, Code::InputTooLarge);
    assert_eq!(d.state.amendments.len(), 64);
}

#[test]
fn a_goal_that_is_being_closed_takes_no_amendment() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "1")]));
    d.cancel();
    assert_eq!(
        d.amend(json!({"product": "x"})).unwrap().code,
        Code::InputInvalid
    );
}

// ---- late, twice, unknown --------------------------------------------------

#[test]
fn what_comes_late_or_twice_changes_nothing() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "1")]));
    d.failed("a", Code::ToolFailed, true);
    d.wake();
    let before = d.state.clone();
    let (step, run) = (id("a"), RunFacts::default());
    let ghost = id("ghost");
    let late = vec![
        Event::ToolFailed {
            step: step.clone(),
            attempt: 1,
            fault: fault(Code::ToolFailed),
            started: true,
            run: run.clone(),
        },
        Event::ToolCompleted {
            step: step.clone(),
            attempt: 1,
            output: json!({}),
            run: run.clone(),
        },
        Event::ToolCompleted {
            step: step.clone(),
            attempt: 3,
            output: json!({}),
            run: run.clone(),
        },
        Event::ToolCompleted {
            step: ghost.clone(),
            attempt: 1,
            output: json!({}),
            run,
        },
        Event::ToolSilent {
            step: step.clone(),
            attempt: 1,
        },
        Event::AttemptSealed {
            step: step.clone(),
            attempt: 2,
            seal: Seal::NeverStarted,
        },
        Event::SealFailed {
            step: step.clone(),
            attempt: 2,
            fault: fault(Code::NodeUnreachable),
        },
        Event::Observed {
            step,
            attempt: 2,
            observations: vec![],
        },
        Event::Observed {
            step: ghost,
            attempt: 0,
            observations: vec![],
        },
        Event::GoalSealed {
            confirmed: vec![],
            unconfirmed: vec![],
        },
    ];
    for event in late {
        let decision = d.on(event.clone());
        assert!(
            decision.records.is_empty() && decision.commands.is_empty(),
            "{event:?}"
        );
        assert_eq!(d.state, before, "{event:?}");
    }
}

#[test]
fn a_goal_that_has_ended_refuses_control_and_ignores_the_rest() {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "get", "1")]));
    d.succeeds("a", json!({}));
    assert_eq!(d.state.phase(), Phase::Ended);
    d.log();
    d.cancel();
    d.pause();
    d.resume();
    d.amend(json!({"product": "x"}));
    d.after(99_999_999);
    d.on(Event::OwnerChanged { node: node("n2") });
    expect![[r#"
        cancel
          refused INPUT_INVALID: the goal has ended: succeeded (at /goal)
        pause
          refused INPUT_INVALID: the goal has ended: succeeded (at /goal)
        resume
          refused INPUT_INVALID: the goal has ended: succeeded (at /goal)
        amend
          refused INPUT_INVALID: the goal has ended: succeeded (at /goal)
        time_came
        owner_changed
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_goal_that_nobody_submitted_is_unknown() {
    let mut d = Driver::fresh(shop(json!({})));
    d.cancel();
    d.on(Event::TimeCame);
    expect![[r#"
        cancel
          refused GOAL_UNKNOWN: no such goal
        time_came
    "#]]
    .assert_eq(&d.log());
}
