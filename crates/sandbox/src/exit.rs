//! How a run ended and how well it was confined.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::feature::Feature;

/// Why a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The program exited with this status, 0 to 255.
    Exited(i32),
    /// The program was ended by this signal, which the keeper did not send.
    Signaled(i32),
    /// The wall-clock limit passed and the tree was killed.
    Deadline,
    /// Standard output grew past its limit and the tree was killed.
    OutputLimit,
    /// The caller asked for it: the kill switch was used or the future dropped.
    Killed,
}

/// A limit that a run ran into and that explains its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hit {
    /// The kernel killed a process of it for memory.
    Memory,
    /// It was refused more processes.
    Processes,
    /// It made a system call that ends the process.
    Seccomp,
}

/// Why a run came to its end, in one word: [`Cause`] and [`Hit`] together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The program exited with this status.
    Exit(i32),
    /// The program was ended by this signal.
    Signal(i32),
    /// It used more memory than it may.
    Oom,
    /// It wanted more processes than it may have, and failed.
    Pids,
    /// Its time was over.
    Timeout,
    /// It wrote more than it may.
    OutputLimit,
    /// It made a system call that ends the process.
    Seccomp,
    /// The caller asked for it.
    Cancelled,
}

/// What a run was confined by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Name of the level, such as `tree`.
    pub name: String,
    /// Protections this level lacks, in lower case, sorted.
    pub missing: Vec<String>,
}

impl Level {
    /// The level where a keeper owns the tree and nothing else is confined.
    #[must_use]
    pub fn tree() -> Self {
        let missing = ["cgroup", "landlock", "namespaces", "network", "seccomp"];
        Self {
            name: "tree".to_owned(),
            missing: missing.map(str::to_owned).to_vec(),
        }
    }

    /// The level `sandbox`, without the protections that are `missing` on the machine.
    #[must_use]
    pub fn sandbox(missing: &[Feature]) -> Self {
        let mut missing: Vec<_> = missing.iter().map(|f| f.name().to_owned()).collect();
        missing.sort();
        Self {
            name: "sandbox".to_owned(),
            missing,
        }
    }
}

/// The outcome of a run whose process tree is dead and reaped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Why it ended.
    pub cause: Cause,
    /// What the tree wrote to standard output, cut at
    /// [`crate::Limits::stdout_bytes_max`].
    #[serde(with = "serde_bytes")]
    pub stdout: Vec<u8>,
    /// The last [`crate::Limits::stderr_bytes_max`] bytes of standard error.
    #[serde(with = "serde_bytes")]
    pub stderr_tail: Vec<u8>,
    /// From just before the program was started to the death of the last
    /// process, in ms.
    pub wall_ms: u64,
    /// User and system time of all reaped processes of the tree, in ms. A
    /// process whose parent has the kernel discard its children is not counted.
    pub cpu_ms: u64,
    /// The largest resident size that any one process of the tree had, in
    /// bytes; never below the keeper's own few MiB, from which it is forked.
    pub max_rss_bytes: u64,
    /// What it was confined by.
    pub level: Level,
    /// The limit that explains its end, where one does and the level can tell.
    #[serde(default)]
    pub hit: Option<Hit>,
}

impl Exit {
    /// Why the run came to its end, with the limit that it ran into.
    #[must_use]
    pub fn end(&self) -> End {
        match (self.cause, self.hit) {
            (Cause::Deadline, _) => End::Timeout,
            (Cause::OutputLimit, _) => End::OutputLimit,
            (Cause::Killed, _) => End::Cancelled,
            (_, Some(Hit::Memory)) => End::Oom,
            (_, Some(Hit::Processes)) => End::Pids,
            (_, Some(Hit::Seccomp)) => End::Seccomp,
            (Cause::Exited(status), None) => End::Exit(status),
            (Cause::Signaled(signal), None) => End::Signal(signal),
        }
    }

    /// The outcome of a run that was killed before its program started.
    pub(crate) fn killed_before_start(level: Level) -> Self {
        Self {
            cause: Cause::Killed,
            stdout: Vec::new(),
            stderr_tail: Vec::new(),
            wall_ms: 0,
            cpu_ms: 0,
            max_rss_bytes: 0,
            level,
            hit: None,
        }
    }
}

impl fmt::Debug for Exit {
    /// Leaves the output out: it may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exit")
            .field("cause", &self.cause)
            .field("stdout_bytes", &self.stdout.len())
            .field("stderr_tail_bytes", &self.stderr_tail.len())
            .field("wall_ms", &self.wall_ms)
            .field("cpu_ms", &self.cpu_ms)
            .field("max_rss_bytes", &self.max_rss_bytes)
            .field("level", &self.level.name)
            .field("hit", &self.hit)
            .finish()
    }
}
