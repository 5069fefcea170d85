//! A node that runs, and its death.

use crate::site::Site;
use crate::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest wait for anything, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often is looked whether something that gives no sign has happened.
pub const POLL: Duration = Duration::from_millis(50);

/// Where a node is to die.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Armed {
    /// The failpoint.
    pub point: &'static str,
    /// At which pass, from 1.
    pub count: u64,
}

/// A `detent up` or `detent run`. Killed when dropped.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    lines: Receiver<Value>,
}

/// What came first.
#[derive(Debug)]
pub enum Start {
    /// The line that was waited for.
    Line(Value),
    /// The process ended; the fault it printed, if it printed one.
    Ended(ExitStatus, Option<Value>),
}

impl NodeProcess {
    /// Starts `detent ARGS`, to die where `armed` says; each pass of a failpoint is
    /// written to `failpoints.log` of the site.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(site: &Site, args: &[&str], armed: Option<&Armed>) -> Result<Self> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(site.root.join("node.log"))
            .context("node.log")?;
        let mut command = site.command(args)?;
        command
            .env("DETENT_FAILPOINT_LOG", site.root.join("failpoints.log"))
            .stdout(Stdio::piped())
            .stderr(log);
        if let Some(Armed { point, count }) = armed {
            command.env("DETENT_FAILPOINT", format!("{point}:{count}"));
        }
        let mut child = command.spawn().context("starting a node")?;
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(out).lines().map_while(std::io::Result::ok);
                for line in lines {
                    let sent = serde_json::from_str(&line).map(|value| send.send(value));
                    if matches!(sent, Ok(Err(_))) {
                        break;
                    }
                }
            });
        }
        Ok(Self { child, lines })
    }

    /// Starts `detent up`.
    ///
    /// # Errors
    /// It can't be started.
    pub fn up(site: &Site, armed: Option<&Armed>) -> Result<Self> {
        Self::start(site, &["up"], armed)
    }

    /// Starts `detent up` and waits until it is ready.
    ///
    /// # Errors
    /// It ended instead.
    pub fn up_ready(site: &Site) -> Result<Self> {
        let mut node = Self::up(site, None)?;
        match node.wait_line("ready")? {
            Start::Line(_) => Ok(node),
            Start::Ended(status, fault) => Err(format!("the node ended: {status}, {fault:?}")),
        }
    }

    /// Waits for a line of this `type` on stdout, or the end.
    ///
    /// # Errors
    /// Neither came in time.
    pub fn wait_line(&mut self, kind: &str) -> Result<Start> {
        let until = Instant::now() + PATIENCE;
        let mut fault = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line["type"] == kind => return Ok(Start::Line(line)),
                Ok(line) if line["type"] == "fault" => fault = Some(line),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Start::Ended(self.wait_end()?, fault));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("no {kind} within {PATIENCE:?}"));
                }
            }
        }
    }

    /// Its end, if it has ended.
    ///
    /// # Errors
    /// The system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("waiting for a node")
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It did not come in time.
    pub fn wait_end(&mut self) -> Result<ExitStatus> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > until {
                return Err(format!("the node did not end within {PATIENCE:?}"));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it alone.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("no such process")?;
        kill_process(pid, signal).context("signalling a node")
    }

    /// Kills it with SIGKILL and waits.
    ///
    /// # Errors
    /// It did not end in time.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait_end()
    }

    /// Asks it to end with SIGTERM and waits.
    ///
    /// # Errors
    /// It did not end in time.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait_end()
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Was it SIGKILL?
pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

/// Waits until `happened` gives something, or the node ends (`None`).
///
/// # Errors
/// Neither came in time; `what` says what was waited for. An error of `happened` alone
/// is none: it is asked again.
pub fn wait_for<T>(
    node: &mut NodeProcess,
    what: &str,
    mut happened: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let until = Instant::now() + PATIENCE;
    loop {
        if node.ended()?.is_some() {
            return Ok(None);
        }
        // A node that dies gives no answer a moment before the system says that it died.
        let refused = match happened() {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => String::new(),
            Err(error) => error,
        };
        if Instant::now() > until {
            return Err(format!(
                "{what} did not happen within {PATIENCE:?} {refused}"
            ));
        }
        std::thread::sleep(POLL);
    }
}
