//! *Seal, observe, decide*: what follows for each kind of effect, each way in which an
//! attempt can end, and each thing that the world can then show.

use crate::support::*;
use detent_orchestrator::Event;
use detent_orchestrator::state::Status;
use detent_protocol::expect::Verdict;
use detent_protocol::record::{CHOICE_ABSENT, CHOICE_FAIL, CHOICE_HAPPENED, Seal, WaitWhy};
use detent_protocol::{Code, QuestionId};
use expect_test::expect;
use serde_json::json;
use std::fmt::Write as _;

// ---- the matrix ------------------------------------------------------------

/// What ends an attempt.
type Ending = fn(&mut Driver);

/// How an attempt ends. Each leaves the goal to decide.
const ENDINGS: [(&str, Ending); 9] = [
    ("done", |d| d.done("a", json!({}))),
    ("failed, not started", |d| {
        d.failed("a", Code::ToolUnavailable, false)
    }),
    ("failed, started", |d| d.failed("a", Code::ToolFailed, true)),
    ("failed for good", |d| {
        d.failed("a", Code::SandboxViolation, true)
    }),
    ("silent, never started", |d| {
        d.silent("a");
        d.sealed("a", Seal::NeverStarted);
    }),
    ("silent, ended", |d| {
        d.silent("a");
        d.sealed("a", Seal::Ended { outcome: None });
    }),
    ("silent, ended well", |d| {
        d.silent("a");
        d.sealed("a", ended_done(json!({})));
    }),
    ("silent, not sealed", |d| {
        d.silent("a");
        d.seal_failed("a");
    }),
    ("takeover, ended", |d| {
        d.takeover();
        d.sealed("a", Seal::Ended { outcome: None });
    }),
];

/// Lets time pass and answers every look with `verdict`, until something else happens.
pub(crate) fn settle(d: &mut Driver, verdict: &Verdict) -> String {
    let mut looks = 0;
    let what = loop {
        assert!(looks < 20, "it looks for ever");
        let Some(result) = &d.state.ended else {
            match d.status("a") {
                Status::Looking => {
                    looks += 1;
                    d.saw("a", std::slice::from_ref(verdict));
                }
                Status::Running if d.attempt("a") == 2 => break "again".to_owned(),
                Status::Waiting { .. } => d.wake(),
                Status::Asking { .. } => break "ask".to_owned(),
                other => panic!("stands still as {other:?}"),
            }
            continue;
        };
        break match result.as_ref() {
            detent_protocol::result::GoalResult::Failed { error_code, .. } => {
                error_code.to_string()
            }
            other => other.status().to_owned(),
        };
    };
    if looks == 0 {
        what
    } else {
        format!("{what} ({looks})")
    }
}

#[test]
fn every_effect_every_ending_every_verdict() {
    // With the number of looks in brackets. `mail` has no probe of its own: its plan's
    // expectation may prove it done, never absent.
    let verdicts = [met(), Verdict::Absent, mismatch(), unavailable()];
    let mut table = format!("{:-24}", "");
    for verdict in &verdicts {
        let _ = write!(table, "| {:<16}", text::verdict(verdict));
    }
    for tool in ["get", "put", "set", "pay", "wire", "mail"] {
        let _ = write!(table, "\n{tool}");
        for (name, ending) in ENDINGS {
            let _ = write!(table, "\n  {name:<22}");
            for verdict in &verdicts {
                let no_replan = shop(json!({"policy": {"replans_max": 0}}));
                let expects =
                    json!({"probe": "file", "params": {"path": "/p"}, "schema": probe()["schema"]});
                let mut asked = step("a", tool, "/p");
                if ["get", "mail"].contains(&tool) {
                    asked["expect"] = json!([expects]);
                }
                let mut d = Driver::planned(no_replan, plan(&[asked, step("z", "get", "")]));
                d.done("z", json!({}));
                ending(&mut d);
                let _ = write!(table, "| {:<16}", settle(&mut d, verdict));
            }
        }
    }
    let table: Vec<_> = table.lines().map(str::trim_end).collect();
    expect![[r#"
                                | met             | absent          | mismatch        | unavailable
        get
          done                  | succeeded (1)   | again (5)       | again (5)       | again (5)
          failed, not started   | again           | again           | again           | again
          failed, started       | again           | again           | again           | again
          failed for good       | SANDBOX_VIOLATION| SANDBOX_VIOLATION| SANDBOX_VIOLATION| SANDBOX_VIOLATION
          silent, never started | again           | again           | again           | again
          silent, ended         | again           | again           | again           | again
          silent, ended well    | succeeded (1)   | again (5)       | again (5)       | again (5)
          silent, not sealed    | again           | again           | again           | again
          takeover, ended       | again           | again           | again           | again
        put
          done                  | succeeded (1)   | again (5)       | again (5)       | again (5)
          failed, not started   | again           | again           | again           | again
          failed, started       | again           | again           | again           | again
          failed for good       | succeeded (1)   | again (5)       | again (5)       | again (5)
          silent, never started | again           | again           | again           | again
          silent, ended         | again           | again           | again           | again
          silent, ended well    | succeeded (1)   | again (5)       | again (5)       | again (5)
          silent, not sealed    | ask             | ask             | ask             | ask
          takeover, ended       | again           | again           | again           | again
        set
          done                  | succeeded (1)   | again (5)       | again (5)       | again (5)
          failed, not started   | again           | again           | again           | again
          failed, started       | again           | again           | again           | again
          failed for good       | succeeded (1)   | again (5)       | again (5)       | again (5)
          silent, never started | again           | again           | again           | again
          silent, ended         | again           | again           | again           | again
          silent, ended well    | succeeded (1)   | again (5)       | again (5)       | again (5)
          silent, not sealed    | ask             | ask             | ask             | ask
          takeover, ended       | again           | again           | again           | again
        pay
          done                  | succeeded (1)   | again (2)       | ask (5)         | ask (5)
          failed, not started   | again           | again           | again           | again
          failed, started       | succeeded (1)   | again (2)       | ask (5)         | ask (5)
          failed for good       | succeeded (1)   | SANDBOX_VIOLATION (2)| ask (5)         | ask (5)
          silent, never started | again           | again           | again           | again
          silent, ended         | succeeded (1)   | again (2)       | ask (5)         | ask (5)
          silent, ended well    | succeeded (1)   | again (2)       | ask (5)         | ask (5)
          silent, not sealed    | ask             | ask             | ask             | ask
          takeover, ended       | succeeded (1)   | again (2)       | ask (5)         | ask (5)
        wire
          done                  | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          failed, not started   | again           | again           | again           | again
          failed, started       | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          failed for good       | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          silent, never started | again           | again           | again           | again
          silent, ended         | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          silent, ended well    | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          silent, not sealed    | ask             | ask             | ask             | ask
          takeover, ended       | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
        mail
          done                  | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          failed, not started   | again           | again           | again           | again
          failed, started       | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          failed for good       | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          silent, never started | again           | again           | again           | again
          silent, ended         | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          silent, ended well    | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
          silent, not sealed    | ask             | ask             | ask             | ask
          takeover, ended       | succeeded (1)   | ask (5)         | ask (5)         | ask (5)
    "#]].assert_eq(&(table.join("\n") + "\n"));
}

// ---- absent, and when that is proof ----------------------------------------

pub(crate) fn paying() -> Driver {
    let mut d = Driver::planned(shop(json!({})), plan(&[step("a", "pay", "/p")]));
    d.log();
    d
}

#[test]
fn absent_counts_only_when_the_settling_time_has_passed_since_the_seal() {
    let mut d = paying();
    d.silent("a");
    d.now_ms += 2_000;
    d.sealed("a", Seal::Ended { outcome: None });
    d.now_ms += 100;
    d.saw("a", &[Verdict::Absent]);
    d.wake();
    d.saw("a", &[Verdict::Absent]);
    d.wake();
    expect![[r#"
        tool_silent
          sealing a#1 (timeout)
          > seal a#1
        attempt_sealed
          sealed a#1 ended, outcome lost
          looking a#1
          > look a#1 file{"path":"/p"}
        observation_rejected
          observed a#1 [absent]
          waiting a settle +4900
        time_came
          looking a#1
          > look a#1 file{"path":"/p"}
        observation_rejected
          observed a#1 [absent] proven absent
          waiting a backoff +233
        time_came
          intended a#2 pay
          > call a#2 pay {"path":"/p"}
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_look_that_began_before_everything_had_settled_proves_nothing() {
    let mut d = paying();
    d.silent("a");
    d.sealed("a", Seal::Ended { outcome: None });
    d.now_ms += 6_000;
    d.saw("a", &[Verdict::Absent]);
    assert_eq!(d.status("a"), Status::Looking, "it looks again");
    d.saw("a", &[Verdict::Absent]);
    assert!(matches!(
        d.status("a"),
        Status::Waiting {
            why: WaitWhy::Backoff,
            ..
        }
    ));
}

#[test]
fn what_a_plan_expects_never_proves_that_an_effect_is_absent() {
    let wire = tool("mail", "once", json!({"settles_within_ms": 10}));
    let expects =
        json!({"probe": "file", "params": {"path": "/elsewhere"}, "schema": probe()["schema"]});
    let asked = json!({"id": "a", "tool": "mail", "args": {"path": "/p"}, "expect": [expects]});
    let mut d = Driver::planned(define(vec![wire], json!({})), plan(&[asked]));
    d.failed("a", Code::ToolFailed, true);
    assert_eq!(settle(&mut d, &Verdict::Absent), "ask (5)");
}

#[test]
fn an_effect_is_not_done_because_nothing_could_be_looked_at() {
    let wire = tool("mail", "once", json!({}));
    let expects = json!({"probe": "http", "params": {"url": {"$output": "/url"}},
        "schema": {"properties": {"status": {"const": 200}}, "required": ["status"]}});
    let asked = json!({"id": "a", "tool": "mail", "args": {}, "expect": [expects]});
    let mut d = Driver::planned(define(vec![wire], json!({})), plan(&[asked]));
    d.log();
    d.done("a", json!({"no": "url"}));
    expect![[r#"
        tool_completed
          outcome a#1 done
          asked about a until +3600000
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_effect_that_is_there_but_not_as_the_plan_expects_fails_and_is_not_repeated() {
    let mut asked = step("a", "pay", "/p");
    asked["expect"] = json!([{"probe": "http", "params": {"url": {"$output": "/url"}},
        "schema": {"properties": {"status": {"const": 200}}, "required": ["status"]}}]);
    let no_replan = shop(json!({"policy": {"replans_max": 0}}));
    let mut d = Driver::planned(no_replan, plan(&[asked]));
    d.log();
    d.done("a", json!({"no": "url"}));
    d.saw("a", &[met()]);
    expect![[r#"
        tool_completed
          outcome a#1 done
          looking a#1
          > look a#1 file{"path":"/p"}
        observation_validated
          observed a#1 [met]
          step_ended a failed REFERENCE_MISSING
          closing REFERENCE_MISSING at a
          ended failed REFERENCE_MISSING "its effect is there, but: what is expected refers to output that is not there" [a=failed]
    "#]].assert_eq(&d.log());
}

#[test]
fn an_output_that_the_probe_found_opens_the_expectations_that_rest_on_it() {
    let mut asked = step("a", "pay", "/p");
    asked["expect"] = json!([{"probe": "http", "params": {"url": {"$output": "/url"}},
        "schema": {"properties": {"status": {"const": 200}}, "required": ["status"]}}]);
    let mut d = Driver::planned(shop(json!({})), plan(&[asked]));
    d.silent("a");
    d.sealed("a", Seal::Ended { outcome: None });
    d.log();
    let mut found = observation(met(), d.now_ms);
    found.output = Some(json!({"url": "u"}));
    let (step, observations) = (id("a"), vec![found]);
    d.out.clear();
    d.on(Event::Observed {
        step,
        attempt: 1,
        observations,
    });
    d.wake();
    d.saw("a", &[met(), met()]);
    expect![[r#"
        observation_validated
          observed a#1 [met]
          waiting a probe +553
        time_came
          looking a#1
          > look a#1 file{"path":"/p"} http{"url":"u"}
        observation_validated
          observed a#1 [met met]
          step_ended a done
          ended succeeded {"out":{"url":"u"}} evidence=1
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_attempt_that_could_never_be_proven_is_not_made() {
    let tools = vec![
        tool("look", "read", json!({"fallback": "mail"})),
        tool("mail", "once", json!({})),
    ];
    let policy = json!({"policy": {"replans_max": 0}});
    let mut d = Driver::planned(define(tools, policy), plan(&[step("a", "look", "/p")]));
    d.log();
    d.failed("a", Code::ResponseTooLarge, true);
    expect![[r#"
        tool_failed
          outcome a#1 failed RESPONSE_TOO_LARGE (started)
          fell_back a to mail after RESPONSE_TOO_LARGE
          step_ended a failed EXPECTATION_TRIVIAL
          closing EXPECTATION_TRIVIAL at a
          ended failed EXPECTATION_TRIVIAL "mail changes the world, and nothing is expected of it" [a=failed]
    "#]].assert_eq(&d.log());
}

#[test]
fn a_key_that_the_world_has_forgotten_is_not_used_again() {
    let put = tool(
        "put",
        "idempotent",
        json!({"probe": probe(), "key_valid_for_ms": 60_000}),
    );
    let mut d = Driver::planned(
        define(vec![put], json!({})),
        plan(&[step("a", "put", "/p")]),
    );
    d.log();
    d.failed("a", Code::ToolFailed, true);
    d.pause();
    d.now_ms += 120_000;
    d.resume();
    expect![[r#"
        tool_failed
          outcome a#1 failed TOOL_FAILED (started)
          waiting a backoff +221
        pause
          paused by ann
        resume
          resumed by ann
          looking a#1
          > look a#1 file{"path":"/p"}
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn looks_go_on_where_a_takeover_found_them() {
    let mut d = paying();
    d.done("a", json!({"paid": 1}));
    for _ in 0..6 {
        d.takeover();
    }
    d.saw("a", &[unavailable()]);
    assert!(matches!(
        d.status("a"),
        Status::Waiting {
            why: WaitWhy::Probe,
            ..
        }
    ));
    d.wake();
    d.saw("a", &[met()]);
    assert_eq!(d.result().status(), "succeeded");
}

#[test]
fn a_failure_that_the_tool_told_counts_also_when_a_takeover_found_it() {
    let policy = shop(json!({"policy": {"replans_max": 0}}));
    let mut d = Driver::planned(policy, plan(&[step("a", "get", "/p")]));
    for _ in 0..3 {
        d.takeover();
        let outcome = detent_protocol::record::ToolOutcome::Failed {
            fault: fault(Code::ToolFailed),
            started: true,
            run: Default::default(),
        };
        d.sealed(
            "a",
            Seal::Ended {
                outcome: Some(outcome),
            },
        );
        if d.state.ended.is_none() {
            d.wake();
        }
    }
    assert_eq!(d.attempt("a"), 3);
    assert_eq!(d.result().status(), "failed");
}

// ---- asking ----------------------------------------------------------------

/// `mail` died in the middle, and nothing can tell.
fn asking() -> Driver {
    let expects = json!({"probe": "file", "params": {"path": "/p"}, "schema": probe()["schema"]});
    let mut asked = step("a", "mail", "/p");
    asked["expect"] = json!([expects]);
    let minute = shop(json!({"policy": {"ask_ms": 60_000}}));
    let mut d = Driver::planned(minute, plan(&[asked]));
    d.failed("a", Code::ToolFailed, true);
    assert_eq!(settle(&mut d, &unavailable()), "ask (5)");
    d.log();
    d
}

#[test]
fn a_person_says_that_it_happened() {
    let mut d = asking();
    d.answer(CHOICE_HAPPENED);
    expect![[r#"
        answer
          answered it-happened by bob
          step_ended a done
          closing REFERENCE_MISSING at /out
          ended failed REFERENCE_MISSING "output "" of step a is not there" [a=done]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_person_says_that_it_did_not_happen() {
    let mut d = asking();
    d.answer(CHOICE_ABSENT);
    expect![[r#"
        answer
          answered it-did-not-happen by bob
          waiting a backoff +0
          intended a#2 mail
          > call a#2 mail {"path":"/p"}
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn a_person_says_to_leave_it() {
    let mut d = asking();
    d.answer(CHOICE_FAIL);
    expect![[r#"
        answer
          answered fail by bob
          step_ended a unknown OUTCOME_UNKNOWN
          closing OUTCOME_UNKNOWN at a
          ended failed OUTCOME_UNKNOWN "bob chose to leave it" [a=unknown]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn nobody_answers() {
    let mut d = asking();
    d.wake();
    expect![[r#"
        time_came
          answered nothing by nobody
          step_ended a unknown OUTCOME_UNKNOWN
          closing OUTCOME_UNKNOWN at a
          ended failed OUTCOME_UNKNOWN "nobody answered in time" [a=unknown]
    "#]]
    .assert_eq(&d.log());
}

#[test]
fn an_answer_must_be_to_an_open_question_and_one_of_its_choices() {
    let mut d = asking();
    let refused = d.answer("perhaps").unwrap();
    assert_eq!(
        (refused.code, refused.at.as_deref()),
        (Code::InputInvalid, Some("/choice"))
    );
    let question = QuestionId::new("q-none").unwrap();
    let (choice, by) = (CHOICE_ABSENT.to_owned(), "bob".to_owned());
    let refused = d
        .on(Event::Answer {
            question,
            choice,
            by,
        })
        .refused
        .unwrap();
    assert_eq!(
        (refused.code, refused.at.as_deref()),
        (Code::InputInvalid, Some("/question"))
    );
    assert!(matches!(d.status("a"), Status::Asking { .. }));
}
