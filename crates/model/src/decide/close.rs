//! Closing: what runs is brought to its end, what was done may be taken back, then the
//! one terminal record.

use super::{EVERYBODY, Turn};
use crate::fold::{Closing, End, Halt, Presence, Status};
use crate::mutation::Mutation;

impl Turn<'_> {
    pub(super) fn on_cancel(&mut self) {
        if self.bug(Mutation::CancelEndsAtOnce) {
            self.f.closing = Closing::Cancelled;
            self.f.status = Status::Skipped;
            self.f.confirmed = EVERYBODY;
            self.f.end = Some(End::Cancelled);
            return;
        }
        if self.f.closing != Closing::Cancelled {
            self.close(Closing::Cancelled);
        }
    }

    pub(super) fn close(&mut self, why: Closing) {
        self.f.closing = why;
        self.f.halt = Halt::No;
        self.f.planning = false;
        match self.f.status {
            // What is being taken back goes on being taken back.
            _ if self.f.undoing => {}
            Status::Running if why != Closing::Failed => self.f.status = Status::Sealing,
            Status::Asking => self.f.status = Status::Unknown,
            _ => {}
        }
    }

    pub(super) fn put_aside(&mut self) {
        if self.f.restored && self.rules.effect.has_slot() {
            return self.look_for_earlier();
        }
        if self.f.open && !self.bug(Mutation::CancelClaimsNothing) {
            self.f.settled = false;
            self.f.status = Status::Looking;
        } else {
            self.end_step(Status::Skipped);
        }
    }

    pub(super) fn advance_closing(&mut self) {
        match self.f.status {
            Status::Ready if !self.f.undoing => self.put_aside(),
            Status::None => self.f.status = Status::Skipped,
            _ => {}
        }
        if !self.f.status.is_end() {
            return;
        }
        if self.rules.undo && !self.f.undoing && self.f.status == Status::Done {
            self.unwind();
        }
        if !self.f.status.is_end() {
            return;
        }
        if self.f.restored && self.f.status != Status::Done {
            // Steps that the back-up does not know can't be looked at.
            self.f.status = Status::Unknown;
        }
        let unknown = [self.f.status, self.f.prior].contains(&Status::Unknown);
        match self.f.closing {
            Closing::Failed | Closing::Deadline if unknown => self.f.end = Some(End::Unknown),
            Closing::Failed | Closing::Deadline => self.f.end = Some(End::Failed),
            Closing::Cancelled | Closing::No => {}
        }
    }

    /// Takes the effect back: a step of its own, with its own identity.
    pub(super) fn unwind(&mut self) {
        let f = &mut self.f;
        f.undoing = true;
        f.prior = Status::Done;
        f.effect = Presence::Never;
        f.holds = false;
        (f.tries, f.open, f.open_before, f.settled) = (0, false, false, false);
        f.status = Status::Ready;
        self.start();
    }
}
