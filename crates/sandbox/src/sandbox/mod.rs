//! The sandbox level as a [`Confine`]: the caller's side of the helpers.

mod handle;
mod pump;
mod session;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::{Mutex, oneshot};

use crate::confine::{Confine, Started};
use crate::egress::{EgressLog, Rules};
use crate::error::{SpawnError, SweepError};
use crate::exit::{Exit, Level};
use crate::feature::FeatureTable;
use crate::kill::KillSwitch;
use crate::policy::{Policy, Work};
use crate::spec::ProcessSpec;
use crate::sweep::{self, SweepReport};
use crate::tree::KeeperCommand;

use handle::Helper;
use session::Session;

/// The most helpers of one instance.
pub const HELPERS_MAX: usize = 8;
/// How long past its deadline, or past a kill, a helper may stay silent about a run.
const HELPER_GRACE: Duration = Duration::from_secs(30);

/// How sandboxes are to be built.
#[derive(Clone)]
pub struct SandboxOptions {
    /// The program that becomes a helper; its `main` calls [`crate::keeper_main`].
    pub helper: KeeperCommand,
    /// Helpers to build with, 1 to [`HELPERS_MAX`]: each builds one sandbox at a time, so
    /// one for each processor that should be busy with building.
    pub helpers: usize,
    /// What every run is permitted.
    pub policy: Policy,
    /// Whether a helper that is root makes the working directory the program's own where
    /// the policy lets it write there (chown, without what is in it). For directories that
    /// were made for the run; without it the program writes what others may.
    pub give_work: bool,
    /// Who hears what the egress proxy decided.
    pub egress_log: Option<Arc<dyn EgressLog>>,
}

/// Runs every program in a sandbox of its own. See the crate's documentation for what
/// that promises and what it does not.
///
/// Needs Linux 5.14 or later, `/proc`, and a tokio runtime with I/O and time enabled.
/// Dropping the last clone ends the helpers, and with them every run.
#[derive(Clone)]
pub struct SandboxConfine {
    helpers: Arc<Helpers>,
    policy: Arc<Policy>,
    rules: Arc<Rules>,
    give_work: bool,
    egress_log: Option<Arc<dyn EgressLog>>,
    table: Arc<FeatureTable>,
    level: Level,
}

/// The helpers, each started again when it was lost.
struct Helpers {
    command: KeeperCommand,
    slots: Vec<Mutex<Arc<Helper>>>,
    next: AtomicUsize,
}

impl SandboxConfine {
    /// Starts the helpers, which find out what this machine offers, and clears away what
    /// dead ones left.
    ///
    /// # Errors
    /// [`SpawnError::KeeperUnavailable`] when a helper does not start;
    /// [`SpawnError::FeatureMissing`] when the machine lacks what the policy asks for.
    pub async fn start(options: SandboxOptions) -> Result<Self, SpawnError> {
        let count = options.helpers.clamp(1, HELPERS_MAX);
        let starting = (0..count).map(|_| Helper::start(&options.helper));
        let mut slots = Vec::new();
        for helper in join_all(starting).await {
            slots.push(Mutex::new(Arc::new(helper?)));
        }
        let table = slots[0].lock().await.table().clone();
        let helpers = Helpers {
            command: options.helper,
            slots,
            next: AtomicUsize::new(0),
        };
        let confine = Self {
            helpers: Arc::new(helpers),
            level: Level::sandbox(&table.missing()),
            table: Arc::new(table),
            rules: Arc::default(),
            policy: Arc::new(options.policy.clone()),
            give_work: options.give_work,
            egress_log: options.egress_log,
        };
        confine.with_policy(options.policy)
    }

    /// The same helpers with another policy.
    ///
    /// # Errors
    /// [`SpawnError::FeatureMissing`], [`SpawnError::Policy`].
    pub fn with_policy(&self, policy: Policy) -> Result<Self, SpawnError> {
        self.table.require(&policy.allow_degraded)?;
        let wrong = |reason| SpawnError::Policy {
            policy: policy.name.clone(),
            reason,
        };
        let rules = Rules::new(&policy.network).map_err(wrong)?;
        Ok(Self {
            rules: Arc::new(rules),
            policy: Arc::new(policy),
            ..self.clone()
        })
    }

    /// What this machine offers.
    #[must_use]
    pub fn features(&self) -> &FeatureTable {
        &self.table
    }

    /// The policy of every run.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Process ids of the helpers, for tests and diagnosis.
    pub async fn helper_pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for slot in &self.helpers.slots {
            pids.extend(slot.lock().await.pid());
        }
        pids
    }
}

impl Helpers {
    /// A helper that lives, the next one in turn.
    async fn take(&self) -> Result<Arc<Helper>, SpawnError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut slot = self.slots[turn % self.slots.len()].lock().await;
        if !slot.is_alive() {
            tracing::warn!("a sandbox helper was lost and is started again");
            *slot = Arc::new(Helper::start(&self.command).await?);
        }
        Ok(Arc::clone(&slot))
    }
}

#[async_trait]
impl Confine for SandboxConfine {
    async fn run_observed(
        &self,
        mut spec: ProcessSpec,
        kill: KillSwitch,
        started: Option<oneshot::Sender<Started>>,
    ) -> Result<Exit, SpawnError> {
        spec.check()?;
        if kill.is_killed() {
            return Ok(Exit::killed_before_start(self.level()));
        }
        let work = match self.policy.files.work {
            Work::Scratch => None,
            Work::ReadWrite | Work::ReadOnly => Some(open_work(&spec.cwd)?),
        };
        let helper = self.helpers.take().await?;
        let stdin = std::mem::take(&mut spec.stdin);
        let session = Session::open(self, &helper, spec, work, HELPER_GRACE).await?;
        session.conduct(stdin, &kill, started).await
    }

    fn level(&self) -> Level {
        self.level.clone()
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

/// The directory itself, so that what is mounted is what was looked at.
fn open_work(cwd: &Path) -> Result<OwnedFd, SpawnError> {
    let failed = |errno: Errno| SpawnError::Cwd {
        cwd: cwd.to_owned(),
        errno: errno.raw_os_error(),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(cwd, flags, Mode::empty()).map_err(failed)?;
    let itself = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let real = std::fs::read_link(itself)
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if is_the_system(&real) {
        return Err(SpawnError::InvalidSpec {
            reason: format!("{} is no place to work in", real.display()),
        });
    }
    Ok(opened)
}

/// Whether a directory shows the machine rather than somebody's work.
fn is_the_system(real: &Path) -> bool {
    let kernel = ["/proc", "/sys", "/dev"];
    real == Path::new("/") || kernel.iter().any(|top| real.starts_with(top))
}

/// All of them at the same time.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, done) in &mut pending {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *done = Some(value),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    pending.into_iter().filter_map(|(_, done)| done).collect()
}
