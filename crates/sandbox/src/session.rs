//! The caller's side of one keeper: hand over the specification, hear the
//! reports, close the control pipe to kill, and clean up when the keeper itself
//! was lost.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use crate::confine::Started;
use crate::error::{SpawnError, SweepError};
use crate::exit::{Exit, Level};
use crate::frame::{self, Report};
use crate::keeper::NOTHING_TO_DO;
use crate::kill::KillSwitch;
use crate::spec::{ENV_RUN_ID, ENV_RUN_OWNER, ProcessSpec, RunTag};
use crate::sweep::{self, ENV_KEEPER, Target};
use crate::tree::KeeperCommand;

/// One keeper. Dropping it closes the control pipe, which kills the tree.
pub(crate) struct Session {
    keeper: Child,
    control: Option<ChildStdin>,
    reports: ChildStdout,
    report_bytes_max: usize,
    patience: Duration,
    grace: Duration,
    tag: RunTag,
    started: bool,
}

impl Session {
    /// Starts a keeper for `spec`, without giving it anything to do.
    /// It may be silent for `grace` past its deadline or a kill.
    pub(crate) fn open(
        keeper: &KeeperCommand,
        spec: &ProcessSpec,
        grace: Duration,
    ) -> Result<Self, SpawnError> {
        // No pre_exec and no uid here, so that the standard library spawns
        // without copying this process's page tables.
        let mut keeper = Command::new(&keeper.program)
            .args(&keeper.args)
            .env_clear()
            .env(ENV_RUN_OWNER, &spec.tag.owner)
            .env(ENV_RUN_ID, &spec.tag.run)
            .env(ENV_KEEPER, "1")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| unavailable(&error))?;
        let control = keeper.stdin.take();
        let reports = keeper.stdout.take();
        let reports = reports.ok_or(SpawnError::KeeperUnavailable { errno: 0 })?;
        let wall = Duration::from_millis(spec.limits.wall_ms);
        Ok(Self {
            keeper,
            control,
            reports,
            report_bytes_max: frame::report_frame_bytes_max(spec),
            patience: wall.saturating_add(grace),
            grace,
            tag: spec.tag.clone(),
            started: false,
        })
    }

    /// Has the keeper carry out `request`; returns when its tree is dead and
    /// the keeper itself is reaped.
    pub(crate) async fn conduct(
        mut self,
        request: Vec<u8>,
        kill: &KillSwitch,
        started: Option<oneshot::Sender<Started>>,
    ) -> Result<Exit, SpawnError> {
        let (patience, grace) = (self.patience, self.grace);
        let outcome = tokio::select! {
            outcome = self.converse(request, kill, started) => outcome,
            () = out_of_patience(patience, grace, kill) => Err(io::ErrorKind::TimedOut.into()),
        };
        match outcome {
            Ok(outcome) => {
                // Its report is the last thing a keeper does.
                let _ = self.keeper.wait().await;
                outcome
            }
            Err(error) => self.lost(&error, kill).await,
        }
    }

    /// The outer error is a keeper that does not keep to the protocol.
    async fn converse(
        &mut self,
        request: Vec<u8>,
        kill: &KillSwitch,
        started: Option<oneshot::Sender<Started>>,
    ) -> io::Result<Result<Exit, SpawnError>> {
        self.send(request, kill).await?;
        let mut started = started;
        loop {
            match self.hear(kill).await? {
                Report::Started { pid, at } => {
                    self.started = true;
                    if let Some(started) = started.take() {
                        // Who no longer listens does not mind.
                        let _ = started.send(Started { pid, at });
                    }
                }
                Report::Finished(exit) => return Ok(Ok(exit)),
                Report::Failed(error) => return Ok(Err(error)),
            }
        }
    }

    /// Sends the specification; cut short by a kill.
    async fn send(&mut self, request: Vec<u8>, kill: &KillSwitch) -> io::Result<()> {
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        tokio::select! {
            sent = control.write_all(&request) => sent,
            () = kill.killed() => {
                self.control = None;
                Ok(())
            }
        }
    }

    /// The next report. A kill closes the control pipe and listening goes on.
    async fn hear(&mut self, kill: &KillSwitch) -> io::Result<Report> {
        let report = frame::read_async(&mut self.reports, self.report_bytes_max);
        tokio::pin!(report);
        loop {
            tokio::select! {
                report = &mut report => return report,
                () = kill.killed(), if self.control.is_some() => self.control = None,
            }
        }
    }

    /// The keeper is gone or may no longer be believed: make sure that nothing
    /// of the run is alive, by the run's marker.
    async fn lost(mut self, error: &io::Error, kill: &KillSwitch) -> Result<Exit, SpawnError> {
        self.control = None;
        let ended = self.keeper.try_wait().ok().flatten();
        let leftover = self.sweep().await;
        let _ = self.keeper.start_kill();
        let status = self.keeper.wait().await.ok();
        let idle = status.and_then(|status| status.code()) == Some(NOTHING_TO_DO);
        if idle && kill.is_killed() && !self.started {
            return Ok(Exit::killed_before_start(Level::tree()));
        }
        let seen = ended.map_or_else(|| error.to_string(), |status| status.to_string());
        tracing::warn!(
            owner = self.tag.owner,
            run = self.tag.run,
            seen,
            "keeper lost"
        );
        Err(SpawnError::KeeperLost {
            started: self.started,
            reason: seen,
            leftover,
        })
    }

    async fn sweep(&self) -> Vec<u32> {
        let target = Target::run(&self.tag);
        let swept = tokio::task::spawn_blocking(move || sweep::sweep(&target)).await;
        match swept {
            Ok(Err(SweepError::StillAlive { pids, .. })) => pids,
            Ok(Err(error)) => {
                tracing::warn!(%error, run = self.tag.run, "a lost run cannot be swept");
                Vec::new()
            }
            Ok(Ok(_)) | Err(_) => Vec::new(),
        }
    }
}

async fn out_of_patience(patience: Duration, grace: Duration, kill: &KillSwitch) {
    let killed_long_ago = async {
        kill.killed().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        () = tokio::time::sleep(patience) => {}
        () = killed_long_ago => {}
    }
}

fn unavailable(error: &io::Error) -> SpawnError {
    SpawnError::KeeperUnavailable {
        errno: error.raw_os_error().unwrap_or(0),
    }
}
