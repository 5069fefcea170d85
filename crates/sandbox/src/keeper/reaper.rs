//! Killing and reaping everything below this process.
//!
//! Only direct children are signalled, one by one and by process group. A
//! direct child that has not been reaped keeps its process id and its group's
//! id from being used again, so no stranger is ever hit; and since the keeper
//! is the subreaper, the children of whoever dies become direct children. So
//! the rounds come to an end when, and only when, nothing is left.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::proc;

/// Bounds on the pause after a round in which nothing could be reaped.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Reaps the descendants of this process and remembers how one of them ended.
pub(crate) struct Reaper {
    child: Pid,
    status: Option<WaitStatus>,
}

/// What one round of reaping found.
#[derive(PartialEq, Eq)]
enum Round {
    NothingLeft,
    SomeReaped,
    NoneReaped,
}

impl Reaper {
    /// Owns the tree whose first process is `child`, a session leader.
    pub(crate) fn new(child: Pid) -> Self {
        Self {
            child,
            status: None,
        }
    }

    /// How the first process ended; `None` until it was reaped.
    pub(super) fn status(&self) -> Option<WaitStatus> {
        self.status
    }

    /// Reaps what has ended already, so that a run that makes many orphans does
    /// not pile up zombies.
    pub(super) fn collect(&mut self) {
        self.reap();
    }

    /// Kills everything and returns when everything is reaped.
    pub(crate) fn kill_all(&mut self) {
        // While the first process is unreaped its group id is its own. The
        // kernel signals a group atomically: no member forks its way out.
        if self.status.is_none() {
            let _ = rustix::process::kill_process_group(self.child, Signal::KILL);
        }
        let mut pause = PAUSE_MIN;
        loop {
            match self.reap() {
                Round::NothingLeft => return,
                Round::SomeReaped => pause = PAUSE_MIN,
                Round::NoneReaped => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            kill_children();
        }
    }

    fn reap(&mut self) -> Round {
        let mut round = Round::NoneReaped;
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    round = Round::SomeReaped;
                    if pid == self.child {
                        self.status = Some(status);
                    }
                }
                Ok(None) => return round,
                Err(Errno::INTR) => {}
                // ECHILD; no other error is possible.
                Err(_) => return Round::NothingLeft,
            }
        }
    }
}

fn kill_children() {
    // Unreadable only without /proc; then what the groups did not hold must
    // end by itself, and the pause keeps the loop from spinning.
    for child in proc::own_children().unwrap_or_default() {
        kill_with_group(child);
    }
}

fn kill_with_group(child: Pid) {
    let own = rustix::process::getpgrp();
    if let Ok(group) = rustix::process::getpgid(Some(child))
        && group != own
    {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let _ = rustix::process::kill_process(child, Signal::KILL);
}
