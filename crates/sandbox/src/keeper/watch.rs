//! From the start of the program to the report of its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::child;
use super::pumps::Pumps;
use super::reaper::Reaper;
use crate::clock::BootInstant;
use crate::error::{SpawnError, Stage};
use crate::exit::{Cause, Exit, Level};
use crate::spec::ProcessSpec;
use crate::sys;

/// The longest sleep: orphans are reaped this often, and poll's own clock,
/// which stands still while the machine is suspended, is corrected.
const TICK: Duration = Duration::from_millis(250);

/// Why the watch is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    ProgramEnded,
    Deadline,
    OutputLimit,
    ControlClosed,
    Failed(Errno),
}

/// A program that is executing, with all its descendants.
pub(super) struct Tree {
    pid: Pid,
    /// Becomes readable when the program ends, whoever holds its pipes.
    pidfd: OwnedFd,
    reaper: Reaper,
    pumps: Pumps,
    began_at: BootInstant,
    started_at: BootInstant,
    deadline: BootInstant,
}

impl Tree {
    /// Executes the program of `spec` and takes the input out of it.
    pub(super) fn start(spec: &mut ProcessSpec) -> Result<Self, SpawnError> {
        let began_at = BootInstant::now();
        let mut child = child::spawn(spec)?;
        let started_at = BootInstant::now();
        let pid = Pid::from_child(&child);
        let mut reaper = Reaper::new(pid);
        let watched = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
            let pumps = Pumps::new(&mut child, std::mem::take(&mut spec.stdin), spec.limits)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            Ok((pidfd, pumps))
        });
        let (pidfd, pumps) = watched.map_err(|errno| {
            reaper.kill_all();
            SpawnError::os(Stage::Watch, errno)
        })?;
        Ok(Self {
            pid,
            pidfd,
            reaper,
            pumps,
            began_at,
            started_at,
            deadline: started_at.plus(Duration::from_millis(spec.limits.wall_ms)),
        })
    }

    /// Process id of the program.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// When it was executed.
    pub(super) fn started_at(&self) -> BootInstant {
        self.started_at
    }

    /// Moves bytes until there is a reason to end the run.
    pub(super) fn watch(&mut self, control: BorrowedFd<'_>) -> Ending {
        loop {
            let ready = match self.wait(control) {
                Ok(ready) => ready,
                Err(errno) => return Ending::Failed(errno),
            };
            self.pump(ready);
            if let Some(ending) = self.ending(ready) {
                return ending;
            }
            self.reaper.collect();
        }
    }

    fn ending(&self, ready: Ready) -> Option<Ending> {
        if self.pumps.overflow() {
            Some(Ending::OutputLimit)
        } else if ready.ended || self.reaper.status().is_some() {
            Some(Ending::ProgramEnded)
        } else if ready.control {
            // Nothing more is ever sent, so this is its end, or nonsense.
            Some(Ending::ControlClosed)
        } else if BootInstant::now() >= self.deadline {
            Some(Ending::Deadline)
        } else {
            None
        }
    }

    fn pump(&mut self, ready: Ready) {
        if ready.stdin {
            self.pumps.feed();
        }
        if ready.stdout {
            self.pumps.pull_stdout();
        }
        if ready.stderr {
            self.pumps.pull_stderr();
        }
    }

    fn wait(&self, control: BorrowedFd<'_>) -> Result<Ready, Errno> {
        let pipes = [self.pumps.stdin(), self.pumps.stdout(), self.pumps.stderr()];
        let interest = [PollFlags::OUT, PollFlags::IN, PollFlags::IN];
        let mut fds = vec![
            PollFd::from_borrowed_fd(control, PollFlags::IN),
            PollFd::new(&self.pidfd, PollFlags::IN),
        ];
        for (pipe, flags) in pipes.iter().zip(interest) {
            fds.extend(pipe.map(|pipe| PollFd::from_borrowed_fd(pipe, flags)));
        }
        let left = self.deadline.since(BootInstant::now()).min(TICK);
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut events = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || events.next().unwrap_or(false);
        Ok(Ready {
            control: next(),
            ended: next(),
            stdin: pipes[0].is_some() && next(),
            stdout: pipes[1].is_some() && next(),
            stderr: pipes[2].is_some() && next(),
        })
    }

    /// Kills what is left of the tree and reports how it went.
    pub(super) fn finish(mut self, ending: Ending, level: Level) -> Result<Exit, SpawnError> {
        self.reaper.kill_all();
        let wall = BootInstant::now().since(self.began_at);
        self.pumps.drain();
        let cause = self.cause(ending)?;
        let usage = sys::used_by_children();
        let (stdout, stderr_tail) = self.pumps.into_output();
        Ok(Exit {
            cause,
            stdout,
            stderr_tail,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            cpu_ms: usage.cpu_ms,
            max_rss_bytes: usage.max_rss_bytes,
            level,
            hit: None,
        })
    }

    fn cause(&self, ending: Ending) -> Result<Cause, SpawnError> {
        match ending {
            Ending::Failed(errno) => Err(SpawnError::os(Stage::Watch, errno)),
            // Also when the surplus was found only in a dead tree's pipe.
            _ if self.pumps.overflow() => Ok(Cause::OutputLimit),
            Ending::OutputLimit => Ok(Cause::OutputLimit),
            Ending::Deadline => Ok(Cause::Deadline),
            Ending::ControlClosed => Ok(Cause::Killed),
            Ending::ProgramEnded => self.own_end(),
        }
    }

    /// How the program ended by itself.
    fn own_end(&self) -> Result<Cause, SpawnError> {
        let status = self.reaper.status();
        let exited = status.and_then(|status| status.exit_status());
        let signaled = status.and_then(|status| status.terminating_signal());
        exited
            .map(Cause::Exited)
            .or(signaled.map(Cause::Signaled))
            .ok_or(SpawnError::os(Stage::Watch, Errno::CHILD))
    }
}

/// What poll found.
#[derive(Clone, Copy)]
struct Ready {
    control: bool,
    ended: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// Whether the other end of the control pipe is closed, without waiting.
pub(super) fn is_closed(control: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)];
    let polled = poll(&mut fds, Some(&timespec(Duration::ZERO)));
    polled.is_ok() && !fds[0].revents().is_empty()
}

fn timespec(duration: Duration) -> Timespec {
    // Never longer than a tick, so both parts fit.
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
