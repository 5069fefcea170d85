//! The keeper: the process that owns one tree. Synchronous and single-threaded.
//!
//! Standard input is the control pipe: one frame with the
//! [`ProcessSpec`], after which its closing means "kill". Standard output
//! carries [`Report`] frames. It promises that when it exits by itself nothing
//! of the tree is alive. It must not know who its caller is.

mod child;
mod pumps;
mod reaper;
mod watch;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::error::{SpawnError, Stage};
use crate::exit::{Exit, Level};
use crate::frame::{self, Report, SPEC_FRAME_BYTES_MAX};
use crate::helper;
use crate::spec::ProcessSpec;
use crate::sys;

pub(crate) use child::{candidates, find_program};
pub(crate) use reaper::Reaper;

/// The report was written.
const DONE: i32 = 0;
/// The control pipe closed before there was anything to run.
pub(crate) const NOTHING_TO_DO: i32 = 3;
/// What came over the control pipe is not a specification.
const BAD_REQUEST: i32 = 64;
/// The standard streams cannot be used.
const NO_STREAMS: i32 = 71;

/// Runs one program as its keeper and returns the status to exit with.
///
/// To be called from `main` of the program named by
/// [`crate::KeeperCommand`], before that program starts a thread or opens a
/// file, and to be followed by [`std::process::exit`]. Changes the signal
/// dispositions and the session of the whole process.
///
/// Started by a [`crate::SandboxConfine`] it becomes the helper that builds sandboxes
/// instead.
///
/// Exit statuses: 0 the outcome was reported (or nobody was left to read it);
/// 3 the control pipe closed before a specification came; 64 what came is no
/// specification; 71 the standard streams are unusable.
#[must_use]
pub fn keeper_main() -> i32 {
    if std::env::var_os(helper::ENV_HELPER).is_some() {
        return helper::main();
    }
    let prepared = prepare();
    let Ok((mut control, mut reports)) = streams() else {
        return NO_STREAMS;
    };
    let mut spec: ProcessSpec = match frame::read(&mut control, SPEC_FRAME_BYTES_MAX) {
        Ok(spec) => spec,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return NOTHING_TO_DO,
        Err(_) => return BAD_REQUEST,
    };
    let outcome = prepared
        .map_err(|errno| SpawnError::os(Stage::Prepare, errno))
        .and_then(|()| keep(&mut spec, &control, &mut reports));
    let report = outcome.map_or_else(Report::Failed, Report::Finished);
    // A caller that died does not read this; the tree is dead all the same.
    let _ = frame::write(&mut reports, &report);
    DONE
}

/// The two pipes as plain files: no buffer in between that could hide from
/// poll what has been read already.
fn streams() -> io::Result<(File, File)> {
    let control = rustix::stdio::stdin().try_clone_to_owned()?;
    let reports = rustix::stdio::stdout().try_clone_to_owned()?;
    Ok((File::from(control), File::from(reports)))
}

/// Makes this process the owner of whatever it will start.
fn prepare() -> Result<(), Errno> {
    ignore_signals();
    // Files the caller left open without close-on-exec stop here.
    sys::close_on_exec_from(3)?;
    // Fails only for a process-group leader, such as one started by hand in a
    // shell, which has its own group already.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
}

/// A signal sent to a whole terminal or service must not end the keeper before
/// its tree; the caller's death is told by the control pipe.
pub(crate) fn ignore_signals() {
    let ignored = [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ];
    for signal in ignored {
        // SAFETY: SIG_IGN installs no handler; valid signal numbers.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // An inherited SIG_IGN would make the kernel reap the tree without us.
    // SAFETY: SIG_DFL installs no handler; a valid signal number.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Starts the program, watches it to its end, kills what is left.
fn keep(spec: &mut ProcessSpec, control: &File, reports: &mut File) -> Result<Exit, SpawnError> {
    spec.check()?;
    if watch::is_closed(control.as_fd()) {
        return Ok(Exit::killed_before_start(Level::tree()));
    }
    let mut tree = watch::Tree::start(spec)?;
    let started = Report::Started {
        pid: tree.pid(),
        at: tree.started_at(),
    };
    // A caller that is gone has closed the control pipe too: seen next.
    let _ = frame::write(reports, &started);
    let ending = tree.watch(control.as_fd());
    tree.finish(ending, Level::tree())
}
