//! Owners: claiming, turns, unclear answers, seals, looks.

mod possible;
pub(crate) use possible::actions;

use crate::action::{Action, Answer};
use crate::decide::{Event, decide};
use crate::fold::{Closing, Effect, Fold};
use crate::invariant::Invariant;
use crate::model::Protocol;
use crate::mutation::Mutation;
use crate::publisher::{note_goal, tell_early};
use crate::state::{Entry, Node, Outcome, Phase, Slot, State};

pub(crate) fn step(m: &Protocol, s: &mut State, action: Action) {
    match action {
        Action::Wake(node, answer) | Action::Scan(node, answer) => claim(m, s, node, answer),
        Action::Load(node) => {
            let n = s.nodes[usize::from(node)];
            *s.node_mut(node) = Node {
                phase: Phase::Loaded,
                view: s.journal,
                ..n
            };
        }
        Action::Turn {
            node,
            event,
            answer,
        } => turn(m, s, node, event, answer),
        Action::ReadTail(node) => read_tail(m, s, node),
        Action::LateArrives => late_arrives(m, s),
        Action::StepDown(node) => *s.node_mut(node) = Node::default(),
        Action::RefreshFence(_) => s.broken.add(Invariant::I2),
        Action::Look(node) => look(m, s, node),
        Action::Revoke(node) => {
            let attempt = s.node(node).view.attempt;
            s.run_mut(attempt).slot = Slot::Revoked;
        }
        Action::Kill(node) => {
            let attempt = s.node(node).view.attempt;
            kill(s, attempt);
        }
        Action::SealGoal { executor, .. } => {
            s.sealed |= 1 << executor;
            kill_on(s, 1 << executor);
        }
        _ => {}
    }
}

fn kill(s: &mut State, attempt: u8) {
    let run = s.run_mut(attempt);
    if run.live != 0 {
        run.live = 0;
        run.outcome = Outcome::Killed;
    }
}

/// Ends what lives on these executors.
pub(crate) fn kill_on(s: &mut State, executors: u8) {
    for run in &mut s.runs {
        if run.live & executors != 0 {
            run.live &= !executors;
            if run.live == 0 && run.outcome == Outcome::None {
                run.outcome = Outcome::Killed;
            }
        }
    }
}

/// Reads the journal and appends the ownership: one step here, since whatever comes in
/// between makes the fence refuse it, and then it is read again.
fn claim(m: &Protocol, s: &mut State, node: u8, answer: Answer) {
    if s.has_live_owner() {
        s.budget.zombie -= 1;
    }
    let base = match s.node(node).phase {
        Phase::Loaded => s.node(node).view,
        _ => s.journal,
    };
    let decision = decide(&m.rules, &base, Event::OwnerChanged(node));
    let entry = Entry {
        base,
        next: decision.next,
        call: decision.call,
        amends: false,
    };
    s.node_mut(node).view = base;
    append(m, s, node, entry, answer);
}

fn turn(m: &Protocol, s: &mut State, node: u8, event: Event, answer: Answer) {
    let base = s.node(node).view;
    take(m, s, event);
    let decision = decide(&m.rules, &base, event);
    let entry = Entry {
        base,
        next: decision.next,
        call: decision.call,
        amends: event == Event::Amend,
    };
    if m.bug(Mutation::DispatchBeforeIntent) && entry.call {
        s.run_mut(entry.next.attempt).called = true;
    }
    if m.bug(Mutation::CancelAckedEarly) && event == Event::Cancel {
        s.publisher.cancel = false;
    }
    tell_early(m, s, entry.next.end);
    s.node_mut(node).phase = Phase::Owner;
    if entry.next == base {
        return;
    }
    append(m, s, node, entry, answer);
}

/// What an event uses up outside the journal.
fn take(m: &Protocol, s: &mut State, event: Event) {
    let attempt = s.journal.attempt;
    match event {
        Event::ToolCompleted | Event::ToolFailed | Event::ToolRefused => {
            s.run_mut(attempt).answered = false;
        }
        Event::ToolSilent => {
            let run = s.run(attempt);
            if run.called || run.answered || run.live != 0 {
                s.budget.early -= 1;
            }
        }
        // The executor can't be reached. Its start deadline, the tool's own and a margin
        // are waited out: the sandbox has ended it by then.
        Event::SealFailed => {
            s.budget.lose -= 1;
            if !m.bug(Mutation::AskBeforeWaitingOut) {
                kill(s, attempt);
            }
        }
        // It is named in the receipt, and nothing is promised of it.
        Event::GoalSealed { unconfirmed, .. } if unconfirmed != 0 => s.budget.lose -= 1,
        // Of a tool without an effect only the owner's own executor is asked.
        Event::SealedNeverStarted if m.rules.effect == Effect::Read => {
            let own = 1 << s.journal.owner;
            let run = s.run_mut(attempt);
            run.live &= !own;
        }
        Event::Deadline => s.budget.deadline -= 1,
        _ => {}
    }
}

fn append(m: &Protocol, s: &mut State, node: u8, entry: Entry, answer: Answer) {
    if answer != Answer::Confirmed {
        s.budget.lie -= 1;
    }
    if answer.is_applied() {
        apply(m, s, &entry);
    }
    if answer == Answer::Late {
        s.late = Some(entry);
    }
    if answer == Answer::Confirmed {
        return confirmed(s, node, entry);
    }
    let n = s.node_mut(node);
    n.phase = Phase::Unclear;
    n.pending = entry;
    if answer == Answer::FalselyFenced && m.bug(Mutation::RefreshedFence) {
        // It is appended once more, after itself.
        s.broken.add(Invariant::I10);
    }
}

/// The entry gets into the journal.
fn apply(m: &Protocol, s: &mut State, entry: &Entry) {
    let (before, next) = (s.journal, entry.next);
    if entry.base != before {
        return s.broken.add(Invariant::I10);
    }
    if next.epoch < before.epoch {
        s.broken.add(Invariant::I2);
    }
    if before.end.is_some() {
        s.broken.add(Invariant::I1);
    }
    if before.epoch == 0 {
        note_goal(s);
        s.wake = true;
    } else if next.epoch > before.epoch {
        s.wake = false;
    }
    if next.attempt > before.attempt {
        intend(m, s, &next);
    }
    if next.closing == Closing::Cancelled || next.end.is_some() {
        s.publisher.cancel = false;
    }
    if next.closing != Closing::No || next.end.is_some() {
        s.publisher.amend = false;
    }
    s.journal = next;
}

/// A new attempt is intended: of a `once` tool only where nothing is there, and nothing
/// can come.
fn intend(m: &Protocol, s: &mut State, next: &Fold) {
    let undo = next.undoing;
    if m.rules.effect == Effect::Once && (s.is_visible(undo) || s.may_still_act(undo)) {
        s.broken.add(Invariant::I5);
    }
    let other_key = m.bug(Mutation::ReplanNewIdentity) && next.revision > 1;
    let run = s.run_mut(next.attempt);
    run.undo = undo;
    run.other_key = other_key;
}

fn confirmed(s: &mut State, node: u8, entry: Entry) {
    if entry.call {
        s.run_mut(entry.next.attempt).called = true;
    }
    if entry.amends {
        s.publisher.amend = false;
    }
    let ended = entry.next.end.is_some();
    *s.node_mut(node) = match ended {
        true => Node::default(),
        false => Node {
            phase: Phase::Owner,
            view: entry.next,
            pending: Entry::default(),
        },
    };
}

/// The tail is read from the leader: ours, or nothing since our last entry, or another
/// owner's. In the second case the same is appended again; a copy of it that is still
/// under way is then refused.
fn read_tail(m: &Protocol, s: &mut State, node: u8) {
    let pending = s.node(node).pending;
    if s.journal == pending.next {
        confirmed(s, node, pending);
    } else if s.journal == pending.base {
        apply(m, s, &pending);
        confirmed(s, node, pending);
    } else {
        *s.node_mut(node) = Node::default();
    }
}

fn late_arrives(m: &Protocol, s: &mut State) {
    if let Some(late) = s.late.take()
        && late.base == s.journal
    {
        apply(m, s, &late);
    }
}

fn look(m: &Protocol, s: &mut State, node: u8) {
    let undo = s.node(node).view.undoing;
    let present = s.is_visible(undo) && !m.bug(Mutation::LookAtReplica);
    s.node_mut(node).phase = Phase::Saw(present);
}
