//! The helper: a small single-threaded process that builds sandboxes for its caller, who
//! is too large and has too many threads to fork.
//!
//! Standard input is the control socket. It promises that when it ends, by itself or by
//! SIGKILL, every sandbox it built dies with it. It must not know who its caller is.

mod filter;
mod ids;
mod init;
mod probe;
mod root;
mod run;
mod search;
mod seat;
mod serve;
mod tool;

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::SendFlags;

use crate::cgroup;
use crate::frame;
use crate::sys::OneThread;

/// The environment variable that makes a keeper program a helper.
pub(crate) const ENV_HELPER: &str = "DETENT_SANDBOX_HELPER";

/// The control socket closed.
const DONE: i32 = 0;
/// The process cannot be a helper.
const UNFIT: i32 = 71;

/// Serves the caller until it closes the control socket; returns the status to exit with.
pub(crate) fn main() -> i32 {
    let Ok(proof) = OneThread::prove() else {
        return UNFIT;
    };
    let Ok(control) = take_control() else {
        return UNFIT;
    };
    // A signal meant for the caller's terminal or service must not end the sandboxes
    // before their caller does.
    crate::keeper::ignore_signals();
    let _ = rustix::process::setsid();
    if crate::sys::close_on_exec_from(3).is_err() {
        return UNFIT;
    }
    if let Ok(base) = cgroup::Base::find() {
        cgroup::sweep(&base);
    }
    let machine = probe::probe(proof);
    let Ok(greeting) = frame::encode(&machine.table) else {
        return UNFIT;
    };
    if rustix::net::send(&control, &greeting, SendFlags::NOSIGNAL).is_err() {
        return DONE;
    }
    serve::Server::new(control, machine, proof).serve();
    DONE
}

/// The control socket, away from where the sandboxes' own streams will be.
fn take_control() -> std::io::Result<OwnedFd> {
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin().as_fd(), 3)?;
    let nothing = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(control)
}
