//! The trait every level of confinement implements.

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::error::{SpawnError, SweepError};
use crate::exit::{Exit, Level};
use crate::kill::KillSwitch;
use crate::spec::ProcessSpec;
use crate::sweep::SweepReport;

/// News that the program's first process has been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Process id of the program as its keeper sees it.
    pub pid: u32,
    /// When it was executed.
    pub at: BootInstant,
}

/// Runs programs confined.
///
/// Implementations put no bound on how many runs go on at once: each costs two
/// processes and, in the caller, its input and output within their limits. The
/// caller holds the semaphore.
#[async_trait]
pub trait Confine: Send + Sync {
    /// Runs one program to its end and returns when its whole process tree is
    /// dead and reaped. A program that fails, is killed or overruns a limit is
    /// an [`Exit`], not an error.
    ///
    /// Dropping the future kills the tree too, but then nobody is told when it
    /// is dead: to wait for that use `kill` and keep awaiting.
    ///
    /// # Errors
    /// [`SpawnError`]: the program was not started, or (see
    /// [`SpawnError::may_have_started`]) its end was not seen.
    async fn run(&self, spec: ProcessSpec, kill: KillSwitch) -> Result<Exit, SpawnError> {
        self.run_observed(spec, kill, None).await
    }

    /// [`Confine::run`], telling `started` once the program is executing. The
    /// sender is dropped unused when the program never starts.
    ///
    /// # Errors
    /// As [`Confine::run`].
    async fn run_observed(
        &self,
        spec: ProcessSpec,
        kill: KillSwitch,
        started: Option<oneshot::Sender<Started>>,
    ) -> Result<Exit, SpawnError>;

    /// What every run of this instance is confined by, and what is missing.
    fn level(&self) -> Level;

    /// Kills every process left over from runs whose tag has this `owner` and
    /// returns when all are gone. Meant for the start of a node, before its
    /// first run: it does not spare runs that are going on.
    ///
    /// # Errors
    /// [`SweepError`] when some survive the bound of ten seconds, or when the
    /// process table cannot be read.
    async fn sweep(&self, owner: &str) -> Result<SweepReport, SweepError>;
}
