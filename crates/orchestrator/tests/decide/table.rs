//! The table of phases and events, whole.

use crate::support::*;
use detent_orchestrator::GoalState;
use detent_orchestrator::decide::{Legal, legal};
use detent_protocol::record::{Record, Said};
use expect_test::expect;
use serde_json::json;
use std::fmt::Write as _;

/// A state of each phase, and those that are in none.
fn states() -> Vec<(&'static str, GoalState)> {
    let definition = shop(json!({}));
    let planning = Driver::submitted(definition.clone());
    let executing = Driver::planned(definition.clone(), plan(&[step("a", "pay", "/p")]));
    let mut observing = executing.clone();
    observing.done("a", json!({}));
    let mut ended = observing.clone();
    ended.saw("a", &[met()]);
    let mut idle = planning.clone();
    idle.cancel();
    let mut parked = planning.state.clone();
    let said = Said::Unknown {
        kind: "teleported".into(),
        raw: vec![0x80],
    };
    let n = parked.n + 1;
    parked.fold(
        1,
        T0,
        &Record {
            n,
            cause: "test".into(),
            said,
        },
    );
    vec![
        ("fresh", Driver::fresh(definition).state),
        ("IDLE", idle.state),
        ("PLANNING", planning.state),
        ("EXECUTING", executing.state),
        ("OBSERVING", observing.state),
        ("ENDED", ended.state),
        ("parked", parked),
    ]
}

#[test]
fn every_phase_and_every_event() {
    let definition = shop(json!({}));
    let states = states();
    let mut table = format!("{:<22}", "");
    for (name, _) in &states {
        let _ = write!(table, "{name:<11}");
    }
    let events = events::one_of_each(&definition, &states[0].1, 0);
    for (i, event) in events.iter().enumerate() {
        let _ = write!(table, "\n{:<22}", event.name());
        for (_, state) in &states {
            let event = &events::one_of_each(&definition, state, 0)[i];
            let fresh = state.agent.is_none();
            let is = match legal(fresh, state.parked.is_some(), state.phase(), event) {
                Legal::Yes => "yes",
                Legal::Stale => "-",
                Legal::No => "refused",
            };
            let _ = write!(table, "{is:<11}");
        }
    }
    let table: Vec<_> = table.lines().map(str::trim_end).collect();
    expect![[r#"
                              fresh      IDLE       PLANNING   EXECUTING  OBSERVING  ENDED      parked
        new_goal              yes        -          -          -          -          -          -
        plan_received         -          -          yes        -          -          -          -
        plan_failed           -          -          yes        -          -          -          -
        tool_completed        -          -          -          yes        -          -          -
        tool_failed           -          -          -          yes        -          -          -
        tool_silent           -          -          -          yes        -          -          -
        attempt_sealed        -          -          -          yes        -          -          -
        seal_failed           -          -          -          yes        -          -          -
        observation_rejected  -          -          -          yes        yes        -          -
        time_came             -          yes        yes        yes        yes        -          -
        cancel                refused    yes        yes        yes        yes        refused    refused
        amend                 refused    yes        yes        yes        yes        refused    refused
        answer                refused    yes        yes        yes        yes        refused    refused
        pause                 refused    yes        yes        yes        yes        refused    refused
        resume                refused    yes        yes        yes        yes        refused    refused
        owner_changed         -          yes        yes        yes        yes        -          -
        result_fetched        -          yes        -          -          -          -          -
        goal_sealed           -          yes        -          yes        yes        -          -
    "#]].assert_eq(&(table.join("\n") + "\n"));
}

#[test]
fn what_the_table_does_not_let_through_has_no_consequence() {
    let definition = shop(json!({}));
    for (name, state) in states() {
        for event in events::one_of_each(&definition, &state, 0) {
            let fresh = state.agent.is_none();
            let is = legal(fresh, state.parked.is_some(), state.phase(), &event);
            let mut d = Driver::fresh(definition.clone());
            d.state = state.clone();
            let decision = d.on(event.clone());
            assert_eq!(
                decision.refused.is_some() && is != Legal::Yes,
                is == Legal::No,
                "{name} {event:?}"
            );
            if is != Legal::Yes {
                assert!(decision.records.is_empty() && decision.commands.is_empty());
                assert_eq!(decision.next, state, "{name} {event:?}");
            }
        }
    }
}
