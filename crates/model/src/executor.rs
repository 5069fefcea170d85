//! Executors, their slots and processes, and the world.

use crate::action::{Action, Dies};
use crate::decide::ATTEMPTS;
use crate::fold::{Effect, Status};
use crate::invariant::Invariant;
use crate::model::Protocol;
use crate::mutation::Mutation;
use crate::owner::kill_on;
use crate::state::{NODES, Node, Outcome, Phase, Run, Slot, State};

pub(crate) fn actions(m: &Protocol, s: &State, into: &mut Vec<Action>) {
    for attempt in 1..=ATTEMPTS {
        let run = s.run(attempt);
        if run.called {
            deliveries(m, s, attempt, into);
        }
        if run.answered && s.budget.lose > 0 && s.journal.runs(attempt) {
            into.push(Action::LoseAnswer(attempt));
        }
        if matches!(run.slot, Slot::Coming(_)) {
            into.push(Action::SlotLands(attempt));
        }
        if run.live != 0 {
            of_process(m, s, attempt, into);
        }
        if run.sent {
            into.push(Action::Land(attempt));
        }
    }
    if s.world.stray {
        into.push(Action::StrayLands);
    }
    if s.budget.crash > 0 {
        crashes(s, into);
    }
}

fn deliveries(m: &Protocol, s: &State, attempt: u8, into: &mut Vec<Action>) {
    let lies = s.budget.lie > 0 && m.rules.effect.has_slot();
    for executor in 0..NODES {
        for again in [false, true] {
            if again && s.budget.dup == 0 {
                continue;
            }
            for unclear in [false, true] {
                if unclear && !lies {
                    continue;
                }
                into.push(Action::Deliver {
                    attempt,
                    executor,
                    again,
                    unclear,
                });
            }
        }
    }
    if s.budget.lose > 0 {
        into.push(Action::LoseCall(attempt));
    }
}

fn of_process(m: &Protocol, s: &State, attempt: u8, into: &mut Vec<Action>) {
    let run = s.run(attempt);
    if !m.rules.effect.has_slot() {
        let lives = |e: &u8| run.live & (1 << e) != 0;
        into.extend(
            (0..NODES)
                .filter(lives)
                .map(|executor| Action::Finish { attempt, executor }),
        );
    } else if !run.acted {
        into.push(Action::Act(attempt));
        if s.budget.tool > 0 {
            into.push(Action::ToolLies(attempt));
        }
    } else if !run.sent {
        let executor = if run.live & 1 != 0 { 0 } else { 1 };
        into.push(Action::Finish { attempt, executor });
    }
    if s.budget.tool > 0 {
        into.push(Action::ToolFails(attempt));
    }
}

fn crashes(s: &State, into: &mut Vec<Action>) {
    for node in 0..NODES {
        let works = s.node(node).phase != Phase::Idle;
        let runs = s
            .runs
            .iter()
            .any(|r| r.live & (1 << node) != 0 || (r.answered && r.slot == Slot::Started(node)));
        if works {
            into.push(Action::Crash(node, Dies::Owner));
            into.push(Action::Crash(node, Dies::Node));
        }
        if runs {
            into.push(Action::Crash(node, Dies::Executor));
        }
    }
}

pub(crate) fn step(m: &Protocol, s: &mut State, action: Action) {
    match action {
        Action::Deliver {
            attempt,
            executor,
            again,
            unclear,
        } => {
            match again {
                true => s.budget.dup -= 1,
                false => s.run_mut(attempt).called = false,
            }
            deliver(m, s, attempt, executor, unclear);
        }
        Action::LoseCall(attempt) => {
            s.budget.lose -= 1;
            s.run_mut(attempt).called = false;
        }
        Action::LoseAnswer(attempt) => {
            s.budget.lose -= 1;
            s.run_mut(attempt).answered = false;
        }
        Action::SlotLands(attempt) => {
            let run = s.run_mut(attempt);
            if let Slot::Coming(executor) = run.slot {
                run.slot = Slot::Started(executor);
            }
        }
        Action::Act(attempt) => {
            let run = s.run_mut(attempt);
            (run.acted, run.sent) = (true, true);
        }
        Action::Land(attempt) => land(m, s, attempt),
        Action::StrayLands => stray_lands(m, s),
        Action::Finish { attempt, executor } => finish(m, s, attempt, executor),
        Action::ToolFails(attempt) => {
            s.budget.tool -= 1;
            end(s, attempt, Outcome::Failed);
        }
        Action::ToolLies(attempt) => {
            s.budget.tool -= 1;
            end(s, attempt, Outcome::Done);
        }
        Action::Crash(node, dies) => crash(s, node, dies),
        _ => {}
    }
}

/// One call from its delivery to its start, in the order of the executor: what the
/// ledger says, then the seals, then the slot.
fn deliver(m: &Protocol, s: &mut State, attempt: u8, executor: u8, unclear: bool) {
    let refuses = s.sealed & (1 << executor) != 0;
    if !m.rules.effect.has_slot() {
        match refuses {
            true => s.run_mut(attempt).answered = true,
            false => s.run_mut(attempt).live |= 1 << executor,
        }
        return;
    }
    let run = *s.run(attempt);
    let in_ledger = matches!(run.outcome, Outcome::Done | Outcome::Failed);
    if in_ledger && run.slot == Slot::Started(executor) {
        s.run_mut(attempt).answered = true;
        return;
    }
    if m.bug(Mutation::NoSlot) {
        return start(s, attempt, executor);
    }
    let forgotten = s.journal.tombstone && !m.bug(Mutation::SlotIgnoresTombstone);
    match run.slot {
        Slot::Revoked => s.run_mut(attempt).answered = true,
        Slot::Free | Slot::Coming(_) if refuses => {
            let run = s.run_mut(attempt);
            (run.slot, run.answered) = (Slot::Revoked, true);
        }
        // Won, but the journal is looked at afterwards.
        Slot::Free | Slot::Coming(_) if forgotten => {}
        Slot::Free | Slot::Coming(_) if unclear => {
            s.budget.lie -= 1;
            s.run_mut(attempt).slot = Slot::Coming(executor);
            if m.bug(Mutation::StartOnUnclearSlot) {
                start(s, attempt, executor);
            }
        }
        Slot::Free | Slot::Coming(_) => {
            s.run_mut(attempt).slot = Slot::Started(executor);
            start(s, attempt, executor);
        }
        // This node's, but not of this try: the nonce is another.
        Slot::Started(e) if e == executor && m.bug(Mutation::SlotWithoutNonce) => {
            if run.live == 0 {
                start(s, attempt, executor);
            }
        }
        Slot::Started(_) => {}
    }
}

fn start(s: &mut State, attempt: u8, executor: u8) {
    let run = s.run_mut(attempt);
    let twice = run.has_started() || run.slot == Slot::Revoked;
    run.live |= 1 << executor;
    (run.acted, run.outcome) = (false, Outcome::None);
    if twice {
        s.broken.add(Invariant::I4);
    }
}

fn end(s: &mut State, attempt: u8, outcome: Outcome) {
    let run = s.run_mut(attempt);
    run.live = 0;
    run.outcome = outcome;
    run.answered = true;
}

fn finish(m: &Protocol, s: &mut State, attempt: u8, executor: u8) {
    let refused = m.rules.effect == Effect::Fenced && s.world.token > attempt;
    let outcome = if refused {
        Outcome::Failed
    } else {
        Outcome::Done
    };
    let run = s.run_mut(attempt);
    run.live &= !(1 << executor);
    run.outcome = outcome;
    run.answered = true;
}

/// What a tool sent arrives: the world does it, or knows better.
fn land(m: &Protocol, s: &mut State, attempt: u8) {
    let run: Run = *s.run(attempt);
    s.run_mut(attempt).sent = false;
    let key = match (run.undo, run.other_key) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) if m.bug(Mutation::KeyPerAttempt) => 2 + attempt,
        (false, false) => 0,
    };
    let takes = match m.rules.effect {
        Effect::Read => false,
        Effect::Once => true,
        Effect::Idempotent => s.world.keys & (1 << key) == 0,
        Effect::Fenced => attempt >= s.world.token,
    };
    if !takes {
        return;
    }
    let w = &mut s.world;
    let sets = m.rules.effect == Effect::Fenced && !m.adds();
    if m.rules.effect == Effect::Idempotent {
        w.keys |= 1 << key;
    }
    if m.rules.effect == Effect::Fenced {
        if attempt < w.token_max {
            s.broken.add(Invariant::I16);
        }
        w.token = attempt;
        w.token_max = w.token_max.max(attempt);
    }
    let count = if run.undo { &mut w.undone } else { &mut w.done };
    *count = if sets { 1 } else { (*count + 1).min(2) };
}

/// What a lost history had sent arrives: with the effect's key, or with the token of an
/// older incarnation.
fn stray_lands(m: &Protocol, s: &mut State) {
    let w = &mut s.world;
    w.stray = false;
    let takes = match m.rules.effect {
        Effect::Read => false,
        Effect::Once => true,
        Effect::Idempotent => w.keys & 1 == 0,
        Effect::Fenced => w.token == 0,
    };
    if takes {
        w.keys |= u8::from(m.rules.effect == Effect::Idempotent);
        w.done = match m.rules.effect {
            Effect::Fenced => 1,
            _ => (w.done + 1).min(2),
        };
    }
}

fn crash(s: &mut State, node: u8, dies: Dies) {
    s.budget.crash -= 1;
    if dies != Dies::Executor {
        let view = s.node(node).view;
        if dies == Dies::Node && view.status == Status::Running {
            s.run_mut(view.attempt).called = false;
        }
        *s.node_mut(node) = Node::default();
    }
    if dies != Dies::Owner {
        for run in &mut s.runs {
            run.answered &= run.slot != Slot::Started(node);
        }
        kill_on(s, 1 << node);
    }
}
