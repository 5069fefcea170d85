//! The publisher, the intake, and what becomes of a goal that has ended.

use crate::action::{Action, Answer};
use crate::fold::{End, Fold};
use crate::invariant::Invariant;
use crate::model::Protocol;
use crate::mutation::Mutation;
use crate::state::{Backup, Entry, Node, Outcome, Phase, Run, Slot, State};

pub(crate) fn actions(m: &Protocol, s: &State, into: &mut Vec<Action>) {
    submissions(m, s, into);
    let (f, p, left) = (&s.journal, &s.publisher, &s.budget);
    if p.unwritten {
        into.push(Action::WriteAcceptance);
        if left.crash > 0 {
            into.push(Action::IntakeDies);
        }
    }
    if f.is_open() && left.cancel > 0 {
        into.push(Action::SendCancel);
    }
    if f.is_open() && left.amend > 0 {
        into.push(Action::SendAmend);
    }
    if s.wake && left.lose > 0 {
        into.push(Action::LoseWake);
    }
    if f.end.is_some() && p.result.is_none() {
        into.push(Action::TellResult);
    }
    let told = f.end.is_some() && p.result == f.end;
    if told && !f.tombstone {
        into.push(Action::RollUp);
    }
    if left.restore > 0 {
        match &s.backup {
            None => into.push(Action::BackUp),
            Some(b) if b.fold != *f && !m.bug(Mutation::SuffixLost) => into.push(Action::SetBack),
            Some(_) => {}
        }
    }
    if can_go_wrong(m, s) {
        into.push(Action::Mishap);
    }
}

fn submissions(m: &Protocol, s: &State, into: &mut Vec<Action>) {
    let p = &s.publisher;
    if s.journal.epoch > 0 {
        // The same key again: it is told the goal that it made.
        if !p.accepted {
            into.push(Action::Submit(Answer::Confirmed));
        }
        return;
    }
    let asks = !p.accepted || s.budget.dup > 0 || s.set_back;
    if !asks || s.late.is_some() || p.unwritten {
        return;
    }
    into.push(Action::Submit(Answer::Confirmed));
    if s.budget.lie > 0 && !m.bug(Mutation::AckEarly) {
        let answers = Answer::FALSE.into_iter().filter(|a| *a != Answer::Lost);
        into.extend(answers.map(Action::Submit));
    }
}

pub(crate) fn step(m: &Protocol, s: &mut State, action: Action) {
    match action {
        Action::Submit(answer) => submit(m, s, answer),
        Action::WriteAcceptance => {
            s.publisher.unwritten = false;
            accept(m, s);
            s.wake = true;
        }
        Action::IntakeDies => {
            s.budget.crash -= 1;
            s.publisher.unwritten = false;
        }
        Action::SendCancel => {
            s.budget.cancel -= 1;
            s.publisher.cancelled = true;
            s.publisher.cancel = true;
        }
        Action::SendAmend => {
            s.budget.amend -= 1;
            s.publisher.amend = true;
        }
        Action::LoseWake => {
            s.budget.lose -= 1;
            s.wake = false;
        }
        Action::TellResult => s.publisher.result = s.journal.end,
        Action::RollUp => roll_up(s),
        Action::BackUp => {
            s.backup = Some(Backup {
                fold: s.journal,
                slots: s.runs.map(|r| r.slot),
            });
        }
        Action::SetBack => set_back(m, s),
        Action::Mishap => mishap(m, s),
        _ => {}
    }
}

fn first_entry(m: &Protocol, s: &State) -> Fold {
    Fold {
        epoch: 1,
        planning: true,
        // A key that was issued before the journal was set back may have made a goal
        // that the back-up does not know.
        restored: s.set_back && !m.bug(Mutation::OldKeyTakenAnew),
        ..Fold::default()
    }
}

fn accept(m: &Protocol, s: &mut State) {
    s.journal = first_entry(m, s);
    note_goal(s);
}

/// Notes that the key has made a goal.
pub(crate) fn note_goal(s: &mut State) {
    if s.publisher.goals > 0 && !s.set_back {
        s.broken.add(Invariant::I14);
    }
    s.publisher.goals = 1;
}

fn submit(m: &Protocol, s: &mut State, answer: Answer) {
    if s.journal.epoch > 0 {
        s.publisher.accepted = true;
        return;
    }
    if s.publisher.accepted && !s.set_back {
        s.budget.dup -= 1;
    }
    if m.bug(Mutation::AckEarly) {
        s.publisher.accepted = true;
        s.publisher.unwritten = true;
        return;
    }
    if answer != Answer::Confirmed {
        s.budget.lie -= 1;
    }
    if answer == Answer::Late {
        s.late = Some(Entry {
            next: first_entry(m, s),
            ..Entry::default()
        });
        return;
    }
    accept(m, s);
    if answer == Answer::Confirmed {
        s.publisher.accepted = true;
        s.nodes[0] = Node {
            phase: Phase::Owner,
            view: s.journal,
            pending: Entry::default(),
        };
    } else {
        // Nobody works on it: its wake-up message is in the queue.
        s.wake = true;
    }
}

/// The journal becomes its tombstone, and the slots go with it.
fn roll_up(s: &mut State) {
    s.journal.tombstone = true;
    s.runs.iter_mut().for_each(|r| r.slot = Slot::Free);
}

/// Everything is stopped, what is under way between nodes is gone, and the journal and
/// the slots are as they were. The world is not, nor what was sent to it.
fn set_back(m: &Protocol, s: &mut State) {
    let Some(backup) = s.backup else { return };
    s.budget.restore -= 1;
    s.nodes = Default::default();
    s.late = None;
    s.wake = backup.fold.is_open();
    s.set_back = true;
    let going = m.bug(Mutation::RestoredGoesOn);
    s.journal = backup.fold;
    s.journal.restored = s.journal.is_open() && !going;
    s.world.stray |= s.runs[usize::from(s.journal.attempt)..]
        .iter()
        .any(|r| r.sent);
    for (i, run) in s.runs.iter_mut().enumerate() {
        if i >= usize::from(s.journal.attempt) {
            // Attempts of the lost history are not those that come.
            *run = Run::default();
            continue;
        }
        run.slot = backup.slots[i];
        (run.called, run.answered) = (false, false);
        if run.live != 0 {
            run.live = 0;
            run.outcome = Outcome::Killed;
        }
    }
}

/// Can the planted mistake do by itself what it does?
fn can_go_wrong(m: &Protocol, s: &State) -> bool {
    let f = &s.journal;
    match m.rules.bug {
        Some(Mutation::SlotDeleted) => f.is_open() && s.runs.iter().any(|r| r.slot != Slot::Free),
        Some(Mutation::GateForgets) => s.world.token > 0,
        Some(Mutation::PurgeAfterEnd) => f.end.is_some() && s.publisher.result == f.end,
        Some(Mutation::SuffixLost) => {
            s.budget.restore > 0 && s.backup.is_some_and(|b| b.fold != *f)
        }
        _ => false,
    }
}

fn mishap(m: &Protocol, s: &mut State) {
    match m.rules.bug {
        Some(Mutation::SlotDeleted) => s.runs.iter_mut().for_each(|r| r.slot = Slot::Free),
        Some(Mutation::GateForgets) => s.world.token = 0,
        Some(Mutation::PurgeAfterEnd) => {
            s.journal = Fold::default();
            s.runs = Default::default();
            // The publisher never had its answer, and asks again.
            (s.publisher.accepted, s.publisher.result) = (false, None);
        }
        Some(Mutation::SuffixLost) => {
            s.budget.restore -= 1;
            if let Some(backup) = s.backup {
                s.journal = backup.fold;
                for (run, slot) in s.runs.iter_mut().zip(backup.slots) {
                    run.slot = slot;
                }
            }
        }
        _ => {}
    }
}

/// What the publisher is told before the end is in the journal.
pub(crate) fn tell_early(m: &Protocol, s: &mut State, end: Option<End>) {
    if m.bug(Mutation::TellEarly) && s.publisher.result.is_none() {
        s.publisher.result = end;
    }
}
