//! One run, on the caller's side: order it, move its bytes, hear how it ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::SandboxConfine;
use super::handle::Helper;
use super::pump::{Ends, Pump, feed};
use crate::confine::Started;
use crate::egress::{Proxy, SystemResolver};
use crate::error::{SpawnError, SweepError};
use crate::exit::{Cause, Exit, Level};
use crate::frame;
use crate::kill::KillSwitch;
use crate::policy::Resources;
use crate::spec::{ProcessSpec, RunTag};
use crate::sweep::{self, Target};
use crate::wire::{
    self, Ended, NEWS_BYTES_MAX, News, ORDER_EGRESS, ORDER_WORK, Order, Request, Why,
};

/// How long after the deadline that the sandbox itself keeps the caller steps in.
const DEADLINE_SLACK: Duration = Duration::from_secs(1);

/// One ordered run. Dropping it closes its socket, which kills everything in the sandbox.
pub(super) struct Session {
    helper: Arc<Helper>,
    hear: OwnedReadHalf,
    /// Closing it asks for the end.
    hold: Option<OwnedWriteHalf>,
    pump: Pump,
    /// Lives as long as the run.
    proxy: Option<Proxy>,
    deadline: Instant,
    grace: Duration,
    tag: RunTag,
    level: Level,
    started: bool,
}

impl Session {
    /// Orders the run.
    pub(super) async fn open(
        confine: &SandboxConfine,
        helper: &Arc<Helper>,
        spec: ProcessSpec,
        work: Option<OwnedFd>,
        grace: Duration,
    ) -> Result<Self, SpawnError> {
        let wall = Duration::from_millis(spec.limits.wall_ms);
        let (limits, tag) = (spec.limits, spec.tag.clone());
        let (pump, ends) = Pump::open(limits).map_err(|e| failed("make pipes", &e))?;
        let (news, theirs) = stream_pair().map_err(|e| failed("make a socket", &e))?;
        let (egress, proxy) = match confine.policy.has_network() {
            true => {
                let (offer, proxy) = start_proxy(confine, &tag)?;
                (Some(offer), Some(proxy))
            }
            false => (None, None),
        };
        let request = Request {
            policy: confine.policy.as_ref().clone(),
            give_work: confine.give_work,
            spec,
        };
        let body = frame::encode(&request).and_then(|bytes| wire::in_memory(&bytes));
        let body = body.map_err(|e| failed("write the request", &e))?;
        send_order(
            helper,
            confine.policy.resources,
            &theirs,
            &ends,
            &body,
            work.as_ref(),
            egress.as_ref(),
        )
        .await?;
        let (hear, hold) = news.into_split();
        Ok(Self {
            helper: Arc::clone(helper),
            hear,
            hold: Some(hold),
            pump,
            proxy,
            deadline: deadline(wall),
            grace,
            tag,
            level: confine.level.clone(),
            started: false,
        })
    }

    /// Sees the run through; returns when everything in the sandbox is dead.
    pub(super) async fn conduct(
        mut self,
        stdin: Vec<u8>,
        kill: &KillSwitch,
        started: Option<oneshot::Sender<Started>>,
    ) -> Result<Exit, SpawnError> {
        let outcome = self.converse(&stdin, kill, started).await;
        drop(self.proxy.take());
        match outcome {
            Ok(Ok((ended, over))) => Ok(self.exit(&ended, over)),
            Ok(Err(error)) => Err(error),
            Err(error) => self.lost(&error).await,
        }
    }

    /// The outer error is a helper that does not keep to the protocol.
    async fn converse(
        &mut self,
        stdin: &[u8],
        kill: &KillSwitch,
        mut started: Option<oneshot::Sender<Started>>,
    ) -> io::Result<Result<(Ended, Option<Cause>), SpawnError>> {
        let feeding = feed(self.pump.take_stdin(), stdin);
        tokio::pin!(feeding);
        let (mut fed, mut over) = (false, None);
        let mut silent_until: Option<Instant> = None;
        loop {
            let news = frame::read_async::<News>(&mut self.hear, NEWS_BYTES_MAX);
            tokio::pin!(news);
            let news = loop {
                let asked = over.is_some();
                let cause = tokio::select! {
                    news = &mut news => break news?,
                    () = &mut feeding, if !fed => {
                        fed = true;
                        continue;
                    }
                    () = self.pump.run_to_overflow(), if !asked => Cause::OutputLimit,
                    () = kill.killed(), if !asked => Cause::Killed,
                    () = tokio::time::sleep_until(self.deadline), if !asked => Cause::Deadline,
                    () = silence(silent_until) => return Err(io::ErrorKind::TimedOut.into()),
                };
                over = Some(cause);
                self.hold = None;
                silent_until = Some(Instant::now() + self.grace);
            };
            match news {
                News::Started { pid, at } => {
                    self.started = true;
                    if let Some(started) = started.take() {
                        // Who no longer listens does not mind.
                        let _ = started.send(Started { pid, at });
                    }
                }
                News::Ended(ended) => return Ok(Ok((ended, over))),
                News::Failed(error) => return Ok(Err(error)),
            }
        }
    }

    fn exit(self, ended: &Ended, over: Option<Cause>) -> Exit {
        let (stdout, stderr_tail, overflow) = self.pump.finish();
        let cause = match (ended.why, over) {
            // Also when the surplus was found only in the pipe of a dead run.
            _ if overflow => Cause::OutputLimit,
            (Why::Killed, Some(asked)) => asked,
            (Why::Killed, None) => Cause::Killed,
            (Why::Deadline, _) => Cause::Deadline,
            (Why::Exited(status), _) => Cause::Exited(status),
            (Why::Signaled(signal), _) => Cause::Signaled(signal),
        };
        Exit {
            cause,
            stdout,
            stderr_tail,
            wall_ms: ended.wall_ms,
            cpu_ms: ended.cpu_ms,
            max_rss_bytes: ended.max_rss_bytes,
            level: self.level,
            hit: ended.hit,
        }
    }

    /// The helper is gone or may no longer be believed; its sandboxes die with it. Make
    /// sure by the run's marker.
    async fn lost(self, error: &io::Error) -> Result<Exit, SpawnError> {
        self.helper.give_up();
        drop(self.hold);
        let target = Target::run(&self.tag);
        let swept = tokio::task::spawn_blocking(move || sweep::sweep(&target)).await;
        let leftover = match swept {
            Ok(Err(SweepError::StillAlive { pids, .. })) => pids,
            _ => Vec::new(),
        };
        tracing::warn!(owner = self.tag.owner, run = self.tag.run, %error, "helper lost");
        Err(SpawnError::KeeperLost {
            started: self.started,
            reason: error.to_string(),
            leftover,
        })
    }
}

/// A socket over which the sandbox offers its listener, and who will serve it.
fn start_proxy(confine: &SandboxConfine, tag: &RunTag) -> Result<(OwnedFd, Proxy), SpawnError> {
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let (ours, theirs) = pair.map_err(|errno| SpawnError::setup("make a socket", errno))?;
    let rules = Arc::clone(&confine.rules);
    let log = confine.egress_log.clone();
    let proxy = Proxy::start(ours, rules, log, tag.clone(), SystemResolver)
        .map_err(|error| failed("start the egress proxy", &error))?;
    Ok((theirs, proxy))
}

async fn send_order(
    helper: &Helper,
    limits: Resources,
    news: &OwnedFd,
    ends: &Ends,
    body: &OwnedFd,
    work: Option<&OwnedFd>,
    egress: Option<&OwnedFd>,
) -> Result<(), SpawnError> {
    let mut fds = vec![
        news.as_fd(),
        ends.stdin.as_fd(),
        ends.stdout.as_fd(),
        ends.stderr.as_fd(),
        body.as_fd(),
    ];
    let mut parts = 0;
    if let Some(work) = work {
        fds.push(work.as_fd());
        parts |= ORDER_WORK;
    }
    if let Some(egress) = egress {
        fds.push(egress.as_fd());
        parts |= ORDER_EGRESS;
    }
    helper.order(Order { parts, limits }, &fds).await
}

fn stream_pair() -> io::Result<(UnixStream, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let ours = std::os::unix::net::UnixStream::from(ours);
    Ok((UnixStream::from_std(ours)?, theirs))
}

fn deadline(wall: Duration) -> Instant {
    let now = Instant::now();
    // A year is for ever.
    let bound = Duration::from_secs(365 * 24 * 3600);
    now + wall.min(bound) + DEADLINE_SLACK
}

async fn silence(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn failed(stage: &str, error: &io::Error) -> SpawnError {
    SpawnError::setup(stage, Errno::from_io_error(error).unwrap_or(Errno::IO))
}
