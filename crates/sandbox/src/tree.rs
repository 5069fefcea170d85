//! The tree level as a [`Confine`].

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::confine::{Confine, Started};
use crate::error::{SpawnError, SweepError};
use crate::exit::{Exit, Level};
use crate::frame;
use crate::kill::KillSwitch;
use crate::session::Session;
use crate::spec::ProcessSpec;
use crate::sweep::{self, SweepReport};

/// Far above what a loaded machine needs: giving up a keeper costs the knowledge
/// of how its run ended.
const KEEPER_GRACE: Duration = Duration::from_secs(30);

/// How a keeper is started: a program whose `main` calls
/// [`crate::keeper_main`] when it is given these arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeeperCommand {
    /// The program, an absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl KeeperCommand {
    /// The very program that is running, with these arguments: still the same
    /// version after its file was replaced or deleted. Needs `/proc`.
    #[must_use]
    pub fn this_program(args: &[&str]) -> Self {
        Self {
            // Resolved in the new process, which at that moment still executes
            // the same file.
            program: PathBuf::from("/proc/self/exe"),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        }
    }
}

/// Runs every program under a keeper of its own. See the crate's
/// documentation for what that promises and what it does not.
///
/// Needs Linux 5.11 or later, `/proc`, and a tokio runtime with I/O and time
/// enabled, whose clock is not paused.
#[derive(Debug, Clone)]
pub struct TreeConfine {
    keeper: KeeperCommand,
    keeper_grace: Duration,
}

impl TreeConfine {
    /// Confines with keepers started by `keeper`. Starts nothing yet.
    #[must_use]
    pub fn new(keeper: KeeperCommand) -> Self {
        Self {
            keeper,
            keeper_grace: KEEPER_GRACE,
        }
    }

    /// How long past its deadline, or past a kill, a keeper may stay silent
    /// before it counts as lost and is killed with its tree; 30 s by default.
    #[must_use]
    pub fn keeper_grace(mut self, grace: Duration) -> Self {
        self.keeper_grace = grace;
        self
    }
}

#[async_trait]
impl Confine for TreeConfine {
    async fn run_observed(
        &self,
        spec: ProcessSpec,
        kill: KillSwitch,
        started: Option<oneshot::Sender<Started>>,
    ) -> Result<Exit, SpawnError> {
        spec.check()?;
        if kill.is_killed() {
            return Ok(Exit::killed_before_start(Level::tree()));
        }
        let request = frame::encode(&spec).map_err(|error| SpawnError::InvalidSpec {
            reason: error.to_string(),
        })?;
        let session = Session::open(&self.keeper, &spec, self.keeper_grace)?;
        // The frame holds everything; the input need not be kept twice.
        drop(spec);
        session.conduct(request, &kill, started).await
    }

    fn level(&self) -> Level {
        Level::tree()
    }

    async fn sweep(&self, owner: &str) -> Result<SweepReport, SweepError> {
        let owner = owner.to_owned();
        let swept = tokio::task::spawn_blocking(move || sweep::sweep_owner(&owner)).await;
        swept.unwrap_or_else(|error| {
            Err(SweepError::Unsearchable {
                reason: error.to_string(),
            })
        })
    }
}
