//! Finds and kills what dead callers left behind, by the marker in the
//! environment of every keeper and every program, and by descent from one that
//! has it.
//!
//! A process is pinned by a pidfd and looked at again before it is signalled,
//! so a process id that was given to somebody else in between hits nobody.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::SweepError;
use crate::proc;
use crate::spec::{ENV_RUN_ID, ENV_RUN_OWNER, RunTag, is_tag};

/// Marks a keeper, in its environment only.
pub(crate) const ENV_KEEPER: &str = "DETENT_RUN_KEEPER";

/// How long a sweep tries.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long keepers are spared while they still have a tree to own.
const KEEPERS_SPARED: Duration = Duration::from_secs(5);
/// How long one round waits for those it has killed.
const ROUND: Duration = Duration::from_secs(1);
/// How many processes one round takes on: each costs a file descriptor.
const ROUND_PROCESSES_MAX: usize = 256;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepReport {
    /// Processes killed, keepers included.
    pub killed: u64,
    /// Keepers among them.
    pub keepers: u64,
    /// How long it took, in ms.
    pub wall_ms: u64,
}

/// Whose processes are looked for.
pub(crate) struct Target {
    owner_entry: Vec<u8>,
    run_entry: Option<Vec<u8>>,
}

impl Target {
    /// All runs of an owner.
    pub(crate) fn owner(owner: &str) -> Self {
        Self {
            owner_entry: format!("{ENV_RUN_OWNER}={owner}").into_bytes(),
            run_entry: None,
        }
    }

    /// One run.
    pub(crate) fn run(tag: &RunTag) -> Self {
        let run_entry = format!("{ENV_RUN_ID}={}", tag.run).into_bytes();
        Self {
            run_entry: Some(run_entry),
            ..Self::owner(&tag.owner)
        }
    }

    fn matches(&self, environ: &[u8]) -> bool {
        let has = |entry: &Vec<u8>| environ.split(|byte| *byte == 0).any(|e| e == entry);
        has(&self.owner_entry) && self.run_entry.as_ref().is_none_or(has)
    }
}

/// A process that is to die.
struct Victim {
    pid: Pid,
    pidfd: OwnedFd,
    keeper: bool,
}

/// Kills all processes of an owner. Blocks for up to ten seconds.
pub(crate) fn sweep_owner(owner: &str) -> Result<SweepReport, SweepError> {
    if !is_tag(owner) {
        return Err(SweepError::Unsearchable {
            reason: "the owner is not a usable tag".to_owned(),
        });
    }
    sweep(&Target::owner(owner))
}

/// Kills until none is found. Blocks for up to ten seconds.
pub(crate) fn sweep(target: &Target) -> Result<SweepReport, SweepError> {
    let begin = Instant::now();
    let mut killed = BTreeSet::new();
    let mut keepers = BTreeSet::new();
    loop {
        let mut victims = find(target)?;
        if victims.is_empty() {
            return Ok(SweepReport {
                killed: killed.len() as u64,
                keepers: keepers.len() as u64,
                wall_ms: elapsed_ms(begin),
            });
        }
        if begin.elapsed() > PATIENCE {
            return Err(SweepError::StillAlive {
                pids: victims.iter().map(|v| raw(v.pid)).collect(),
                waited_ms: elapsed_ms(begin),
            });
        }
        spare_keepers(&mut victims, begin);
        for victim in &victims {
            // ESRCH: it went by itself. EPERM: found again in each round.
            if pidfd_send_signal(&victim.pidfd, Signal::KILL).is_ok() {
                killed.insert(raw(victim.pid));
                if victim.keeper {
                    keepers.insert(raw(victim.pid));
                }
            }
        }
        wait_for_end(&victims);
    }
}

/// A keeper that lives holds its tree together, and a process without the
/// marker is found through it; so keepers go last.
fn spare_keepers(victims: &mut Vec<Victim>, begin: Instant) {
    let others = victims.iter().any(|victim| !victim.keeper);
    if others && begin.elapsed() < KEEPERS_SPARED {
        victims.retain(|victim| !victim.keeper);
    }
}

fn wait_for_end(victims: &[Victim]) {
    let until = Instant::now() + ROUND;
    for victim in victims {
        while Instant::now() < until && !has_ended(victim, until) {}
    }
}

/// Waits until the process has ended or the time is up; may return early.
fn has_ended(victim: &Victim, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(&victim.pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&timeout)), Ok(ready) if ready > 0)
}

/// The marked processes and their descendants, without this process.
fn find(target: &Target) -> Result<Vec<Victim>, SweepError> {
    let me = rustix::process::getpid();
    let mut others = proc::pids().map_err(|error| unsearchable(&error))?;
    others.retain(|pid| *pid != me);
    let mut victims = Vec::new();
    for pid in &others {
        victims.extend(pin_marked(*pid, target)?);
        if victims.len() == ROUND_PROCESSES_MAX {
            return Ok(victims);
        }
    }
    if !victims.is_empty() {
        add_descendants(&mut victims, &others)?;
    }
    Ok(victims)
}

fn pin_marked(pid: Pid, target: &Target) -> Result<Option<Victim>, SweepError> {
    let marked = || proc::environ(pid).filter(|environ| target.matches(environ));
    if marked().is_none() {
        return Ok(None);
    }
    let Some(pidfd) = pin(pid)? else {
        return Ok(None);
    };
    // Whoever has the pid now is whom the pidfd holds, or the pidfd's is dead.
    Ok(marked().map(|environ| Victim {
        pid,
        pidfd,
        keeper: is_keeper(&environ),
    }))
}

fn is_keeper(environ: &[u8]) -> bool {
    environ
        .split(|byte| *byte == 0)
        .any(|entry| entry.starts_with(ENV_KEEPER.as_bytes()))
}

/// Adds children of victims until there are no more.
fn add_descendants(victims: &mut Vec<Victim>, others: &[Pid]) -> Result<(), SweepError> {
    let mut parents = 0;
    while parents < victims.len() {
        let parent = victims[parents].pid;
        for pid in others {
            let known = victims.iter().any(|victim| victim.pid == *pid);
            if known || proc::parent(*pid) != Some(parent) {
                continue;
            }
            if let Some(victim) = pin_child(*pid, &victims[parents])? {
                victims.push(victim);
            }
            if victims.len() == ROUND_PROCESSES_MAX {
                return Ok(());
            }
        }
        parents += 1;
    }
    Ok(())
}

fn pin_child(pid: Pid, parent: &Victim) -> Result<Option<Victim>, SweepError> {
    let Some(pidfd) = pin(pid)? else {
        return Ok(None);
    };
    let child = Victim {
        pid,
        pidfd,
        keeper: false,
    };
    // The parent's id still means the parent, since that has not ended.
    let is_child = proc::parent(pid) == Some(parent.pid) && !has_ended(parent, Instant::now());
    // A zombie under a stopped keeper stays one until the keeper dies.
    let is_zombie = has_ended(&child, Instant::now());
    Ok((is_child && !is_zombie).then_some(child))
}

/// A handle on the process, unless it is gone.
fn pin(pid: Pid) -> Result<Option<OwnedFd>, SweepError> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        // Gone, or (a thread's id was recycled) no process.
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(errno) => Err(unsearchable(&errno)),
    }
}

fn unsearchable(error: &dyn std::fmt::Display) -> SweepError {
    SweepError::Unsearchable {
        reason: error.to_string(),
    }
}

fn raw(pid: Pid) -> u32 {
    pid.as_raw_pid().unsigned_abs()
}

fn elapsed_ms(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_must_match_as_a_whole_entry() {
        let target = Target::owner("node-1");
        assert!(target.matches(b"A=b\0DETENT_RUN_OWNER=node-1\0C=d\0"));
        assert!(!target.matches(b"DETENT_RUN_OWNER=node-10\0"));
        assert!(!target.matches(b"X=DETENT_RUN_OWNER=node-1\0"));
        assert!(!target.matches(b""));
    }

    #[test]
    fn one_run_needs_both_markers() {
        let tag = RunTag {
            owner: "o".into(),
            run: "r".into(),
        };
        let target = Target::run(&tag);
        assert!(target.matches(b"DETENT_RUN_ID=r\0DETENT_RUN_OWNER=o\0"));
        assert!(!target.matches(b"DETENT_RUN_ID=r2\0DETENT_RUN_OWNER=o\0"));
        assert!(!target.matches(b"DETENT_RUN_OWNER=o\0"));
    }

    #[test]
    fn an_empty_owner_is_refused_rather_than_matched() {
        let refused = sweep_owner("");
        assert!(matches!(refused, Err(SweepError::Unsearchable { .. })));
    }
}
