//! Starts the child and waits for its end, in a thread of its own.

use super::config::ServerOptions;
use detent_protocol::{Code, Fault};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// A running child. Dropping it kills the child and waits for its end.
#[derive(Debug)]
pub(super) struct Keeper {
    pid: u32,
    /// Signals go through it: the number alone may be another process's by then.
    process: OwnedFd,
    status: watch::Receiver<Option<ExitStatus>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn spawn(options: &ServerOptions) -> Result<Self, Fault> {
        let (told, status) = watch::channel(None);
        let (started, child) = std::sync::mpsc::sync_channel(1);
        let mut command = command(options).map_err(|e| cannot_start(options, &e))?;
        // A thread of its own that lives as long as the child: the kernel kills the child
        // when the *thread* that started it ends.
        let thread = std::thread::Builder::new().name("nats-server".into());
        let thread = thread.spawn(move || {
            let mut child = match start(&mut command) {
                Ok((child, process)) => {
                    // Received below, unless that panicked.
                    let _ = started.send(Ok((child.id(), process)));
                    child
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            if let Ok(status) = child.wait() {
                told.send_replace(Some(status));
            }
        });
        let thread = thread.map_err(|e| cannot_start(options, &e))?;
        let child = child.recv().map_err(io::Error::other).flatten();
        let (pid, process) = child.map_err(|e| cannot_start(options, &e))?;
        Ok(Self {
            pid,
            process,
            status,
            thread: Some(thread),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub(super) fn status(&self) -> Option<ExitStatus> {
        *self.status.borrow()
    }

    /// Waits for its end.
    pub(super) async fn ended(&mut self) -> ExitStatus {
        let ended = self.status.wait_for(Option::is_some).await;
        // The thread gives up without a status only where there is no child to wait for.
        ended.ok().and_then(|status| *status).unwrap_or_default()
    }

    pub(super) fn signal(&self, signal: Signal) {
        // Fails only where it has ended, which is what every caller wants.
        let _ = pidfd_send_signal(&self.process, signal);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(thread) = self.thread.take() {
            // A panic of it has nothing to tell that matters now.
            let _ = thread.join();
        }
    }
}

fn command(options: &ServerOptions) -> io::Result<Command> {
    let output = File::create(options.output_file())?;
    let mut command = Command::new(&options.program);
    command.arg("--config").arg(options.config_file());
    command.stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output);
    command.process_group(0);
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec, `dies_with` makes two system calls; it allocates
    // nothing, takes no lock and does not panic.
    unsafe {
        command.pre_exec(move || dies_with(parent));
    }
    Ok(command)
}

fn dies_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that took hold.
    if rustix::process::getppid() == Some(parent) {
        return Ok(());
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn start(command: &mut Command) -> io::Result<(Child, OwnedFd)> {
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process = pid.ok_or(rustix::io::Errno::SRCH);
    match process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Ok(process) => Ok((child, process)),
        Err(error) => {
            // Nobody could end it later.
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}

fn cannot_start(options: &ServerOptions, error: &io::Error) -> Fault {
    let program = options.program.display().to_string();
    let text = format!("nats-server can't be started: {error}");
    Fault::new(Code::ConfigInvalid, text).at(program)
}
