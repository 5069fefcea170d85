//! Owners: claiming, turns, unclear answers, seals, looks.

use crate::action::{Action, Answer};
use crate::decide::{EVERYBODY, Event, decide};
use crate::fold::{Closing, Effect, Fold, Status};
use crate::invariant::Invariant;
use crate::model::{Protocol, waits_for_goal_seal};
use crate::mutation::Mutation;
use crate::publisher::{note_goal, tell_early};
use crate::state::{Entry, NODES, Node, Outcome, Phase, Slot, State};

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
