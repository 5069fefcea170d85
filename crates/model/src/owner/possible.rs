//! What an owner, or a node that takes itself for one, can do in a state.

use crate::action::{Action, Answer};
use crate::decide::{EVERYBODY, Event};
use crate::fold::{Closing, Effect, Status};
use crate::model::{Protocol, waits_for_goal_seal};
use crate::mutation::Mutation;
use crate::state::{NODES, Outcome, Phase, Slot, State};

pub(crate) fn actions(m: &Protocol, s: &State, into: &mut Vec<Action>) {
    if s.late.is_some() {
        into.push(Action::LateArrives);
    }
    for node in 0..NODES {
        match s.node(node).phase {
            Phase::Idle | Phase::Loaded => claims(m, s, node, into),
            Phase::Unclear => into.push(Action::ReadTail(node)),
            Phase::Owner | Phase::Saw(_) => {
                seals(m, s, node, into);
                if s.owns(node) {
                    turns(m, s, node, into);
                } else if m.bug(Mutation::RefreshedFence) && s.journal.epoch > 0 {
                    into.push(Action::RefreshFence(node));
                } else {
                    // Whatever it does next ends in an append, and that is refused. What
                    // it does without one, it does in `seals`.
                    into.push(Action::StepDown(node));
                }
            }
        }
    }
}

/// Answers that an append can get now.
fn answers(s: &State) -> impl Iterator<Item = Answer> {
    let lies = s.budget.lie > 0;
    let late = s.late.is_none();
    let possible = move |a: &Answer| lies && (late || *a != Answer::Late);
    std::iter::once(Answer::Confirmed).chain(Answer::FALSE.into_iter().filter(possible))
}

fn claims(m: &Protocol, s: &State, node: u8, into: &mut Vec<Action>) {
    if !s.journal.is_open() {
        return;
    }
    if s.has_live_owner() && s.budget.zombie == 0 {
        return;
    }
    let barrier = !m.bug(Mutation::ClaimWithoutBarrier);
    if !barrier && s.node(node).phase == Phase::Idle {
        return into.push(Action::Load(node));
    }
    if s.wake {
        into.extend(answers(s).map(|a| Action::Wake(node, a)));
    } else if !m.bug(Mutation::WakeUpOnly) {
        into.extend(answers(s).map(|a| Action::Scan(node, a)));
    }
}

/// What an owner does to the slot and the processes of an attempt that it gives up, and
/// to the executors of a goal that is cancelled. None of it needs an append, so a node
/// that was superseded does it as well.
fn seals(m: &Protocol, s: &State, node: u8, into: &mut Vec<Action>) {
    let view = &s.node(node).view;
    if view.status == Status::Sealing && m.rules.effect.has_slot() {
        let run = s.run(view.attempt);
        match run.slot {
            Slot::Free | Slot::Coming(_) => into.push(Action::Revoke(node)),
            Slot::Started(_) if run.live != 0 => into.push(Action::Kill(node)),
            _ => {}
        }
    }
    if waits_for_goal_seal(view) {
        for executor in (0..NODES).filter(|e| s.sealed & (1 << e) == 0) {
            into.push(Action::SealGoal { node, executor });
        }
    }
}

fn turns(m: &Protocol, s: &State, node: u8, into: &mut Vec<Action>) {
    let mut events = Vec::with_capacity(8);
    match s.node(node).phase {
        Phase::Saw(present) if may_decide(m, s) => events.push(match present {
            true => Event::SeenPresent,
            false => Event::SeenAbsent,
        }),
        Phase::Owner => {
            if looks(m, s) {
                into.push(Action::Look(node));
            }
            waited_for(m, s, &mut events);
            controls(s, &mut events);
        }
        _ => {}
    }
    for event in events {
        into.extend(answers(s).map(|answer| Action::Turn {
            node,
            event,
            answer,
        }));
    }
}

/// With the mistake of looking before the seal, what was seen is used after it.
fn may_decide(m: &Protocol, s: &State) -> bool {
    let run = s.run(s.journal.attempt);
    let is_sealed = run.slot == Slot::Revoked || run.live == 0 && run.slot != Slot::Free;
    let early = m.bug(Mutation::LookThenSeal) && s.journal.status == Status::Sealing;
    !early || (is_sealed && !s.is_anything_sent())
}

fn looks(m: &Protocol, s: &State) -> bool {
    match s.journal.status {
        Status::Looking => true,
        Status::Sealing => m.bug(Mutation::LookThenSeal),
        _ => false,
    }
}

/// Events that the fold waits for and that can come now.
fn waited_for(m: &Protocol, s: &State, into: &mut Vec<Event>) {
    let f = &s.journal;
    if f.planning {
        into.push(Event::PlanReceived { other_args: false });
        if m.other_args && f.revision > 0 {
            into.push(Event::PlanReceived { other_args: true });
        }
        return;
    }
    if waits_for_goal_seal(f) {
        return goal_seals(m, s, into);
    }
    match f.status {
        Status::Ready => into.push(Event::TimeCame),
        Status::Running => answers_of_the_tool(s, into),
        Status::Sealing => seals_of_the_attempt(m, s, into),
        Status::Settling if !s.is_anything_sent() => into.push(Event::Settled),
        Status::Asking if !m.bug(Mutation::NotEscalated) => {
            into.push(Event::AnswerNone);
            // A person looks well, but sees no process.
            if !s.is_anything_sent() {
                into.push(match s.is_visible(f.undoing) {
                    true => Event::AnswerHappened,
                    false => Event::AnswerAbsent,
                });
            }
        }
        _ => {}
    }
}

fn answers_of_the_tool(s: &State, into: &mut Vec<Event>) {
    let run = s.run(s.journal.attempt);
    if run.answered {
        into.push(match run.outcome {
            Outcome::Done => Event::ToolCompleted,
            Outcome::Failed => Event::ToolFailed,
            Outcome::None | Outcome::Killed => Event::ToolRefused,
        });
    }
    let nothing_comes = !run.called && !run.answered && run.live == 0;
    if nothing_comes || s.budget.early > 0 {
        into.push(Event::ToolSilent);
    }
}

fn seals_of_the_attempt(m: &Protocol, s: &State, into: &mut Vec<Event>) {
    let run = s.run(s.journal.attempt);
    if m.rules.effect == Effect::Read {
        return into.push(Event::SealedNeverStarted);
    }
    match run.slot {
        Slot::Revoked => into.push(Event::SealedNeverStarted),
        Slot::Started(_) if run.live == 0 || m.bug(Mutation::SealWithoutWaiting) => {
            into.push(Event::SealedEnded(match run.outcome {
                Outcome::Done => Some(true),
                Outcome::Failed => Some(false),
                Outcome::None | Outcome::Killed => None,
            }));
        }
        Slot::Started(_) if s.budget.lose > 0 => into.push(Event::SealFailed),
        _ => {}
    }
}

fn goal_seals(m: &Protocol, s: &State, into: &mut Vec<Event>) {
    let missing = EVERYBODY & !s.sealed;
    let too_early = m.bug(Mutation::ReceiptBeforeLast) && s.sealed != 0;
    if missing == 0 || too_early {
        into.push(Event::GoalSealed {
            confirmed: EVERYBODY,
            unconfirmed: 0,
        });
    } else if s.budget.lose > 0 {
        into.push(Event::GoalSealed {
            confirmed: s.sealed,
            unconfirmed: missing,
        });
    }
}

fn controls(s: &State, into: &mut Vec<Event>) {
    let f = &s.journal;
    if s.publisher.cancel && f.closing != Closing::Cancelled {
        into.push(Event::Cancel);
    }
    if s.publisher.amend && f.closing == Closing::No {
        into.push(Event::Amend);
    }
    if s.budget.deadline > 0 && f.closing == Closing::No {
        into.push(Event::Deadline);
    }
}
