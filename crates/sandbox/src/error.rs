//! Why a run did not start, was lost, or could not be swept up.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::feature::Feature;

/// Where an operating-system error happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Making the keeper the owner of what it will start.
    Prepare,
    /// Forking and executing the program.
    Exec,
    /// Watching the program after it was started; the tree has been killed.
    Watch,
}

/// Why there is no [`crate::Exit`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum SpawnError {
    /// No such program, given as a path or looked up in the run's own `PATH`.
    #[error("program not found: {program}")]
    NotFound {
        /// The program as it was asked for.
        program: String,
    },
    /// The program is there, but is not a file this user may execute.
    #[error("program may not be executed: {program}")]
    PermissionDenied {
        /// The program as it was asked for.
        program: String,
    },
    /// The working directory is absent, no directory, or not accessible.
    #[error("working directory {} cannot be used (errno {errno})", cwd.display())]
    Cwd {
        /// The directory.
        cwd: PathBuf,
        /// The system's error number.
        errno: i32,
    },
    /// The last moment at which the program might start had passed. It did not
    /// start.
    #[error("the start deadline had passed; nothing was started")]
    StartDeadlinePassed,
    /// The specification cannot be carried out by any system.
    #[error("specification refused: {reason}")]
    InvalidSpec {
        /// What is wrong with it; holds no values of arguments or environment.
        reason: String,
    },
    /// A part of the specification is over its bound.
    #[error("{what} is too large: {bytes} bytes, at most {bytes_max}")]
    TooLarge {
        /// Which part: `argument`, `environment entry`, `arguments and
        /// environment`, `stdin`, `stdout limit`, `stderr limit`.
        what: String,
        /// Its size in bytes.
        bytes: u64,
        /// The bound in bytes.
        bytes_max: u64,
    },
    /// A system call failed.
    #[error("system error while in stage {stage:?} (errno {errno})")]
    Os {
        /// Where it failed.
        stage: Stage,
        /// The system's error number.
        errno: i32,
    },
    /// The machine lacks a protection that the policy asks for.
    #[error(
        "the sandbox needs {feature}, which this machine does not give: {tried} (errno {errno}); \
         {remedy}"
    )]
    FeatureMissing {
        /// The protection.
        feature: Feature,
        /// What was tried when it failed.
        tried: String,
        /// The system's error number.
        errno: i32,
        /// What an administrator can do.
        remedy: String,
    },
    /// A step of building the sandbox failed. The program was not executed.
    #[error("the sandbox could not be built: {stage} (errno {errno})")]
    Setup {
        /// Which step.
        stage: String,
        /// The system's error number.
        errno: i32,
    },
    /// A limit was set and reads back as something else.
    #[error("limit {file} did not take: set {wanted}, reads {found}")]
    LimitNotTaken {
        /// The file of the control group.
        file: String,
        /// What was written.
        wanted: String,
        /// What was read.
        found: String,
    },
    /// The policy cannot be read or asks for what no sandbox gives.
    #[error("policy {policy}: {reason}")]
    Policy {
        /// Its name or file.
        policy: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The keeper itself could not be started; so nothing was.
    #[error("the keeper could not be started (errno {errno})")]
    KeeperUnavailable {
        /// The system's error number; 0 when there is none.
        errno: i32,
    },
    /// The keeper ended or fell silent without a report. What carried the run's
    /// marker has been killed; what the program did before is unknown.
    #[error("the keeper was lost ({reason}); started: {started}; still alive: {leftover:?}")]
    KeeperLost {
        /// Whether the keeper had reported that the program is executing.
        started: bool,
        /// What the caller saw of it.
        reason: String,
        /// Processes of the run that could not be killed; usually empty.
        leftover: Vec<u32>,
    },
}

impl SpawnError {
    /// Whether the program may have executed in spite of this error. When
    /// false it certainly did not.
    #[must_use]
    pub fn may_have_started(&self) -> bool {
        matches!(
            self,
            Self::KeeperLost { .. }
                | Self::Os {
                    stage: Stage::Watch,
                    ..
                }
        )
    }

    pub(crate) fn setup(stage: &str, errno: rustix::io::Errno) -> Self {
        Self::Setup {
            stage: stage.to_owned(),
            errno: errno.raw_os_error(),
        }
    }

    pub(crate) fn os(stage: Stage, errno: rustix::io::Errno) -> Self {
        Self::Os {
            stage,
            errno: errno.raw_os_error(),
        }
    }
}

/// Why a sweep did not end with a clean machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// Processes of this owner outlived the bound in spite of SIGKILL, or may
    /// not be signalled by this user.
    #[error("processes are still alive after {waited_ms} ms: {pids:?}")]
    StillAlive {
        /// Their process ids, at most 256.
        pids: Vec<u32>,
        /// How long the sweep tried, in ms.
        waited_ms: u64,
    },
    /// The process table could not be read, or the owner is not a usable tag.
    #[error("the process table cannot be searched: {reason}")]
    Unsearchable {
        /// Why.
        reason: String,
    },
}
