//! One run, from the order to its first process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use seccompiler::BpfProgram;

use super::init::{self, Plan};
use super::probe::Machine;
use super::root::{self, WorkDirectory};
use crate::clock::BootInstant;
use crate::error::SpawnError;
use crate::feature::Feature;
use crate::frame;
use crate::policy::Work;
use crate::sys::{self, Forked, OneThread};
use crate::wire::{ORDER_EGRESS, ORDER_WORK, REQUEST_BYTES_MAX, Request};

/// What came with an order.
pub(super) struct Parcel {
    pub(super) news: OwnedFd,
    streams: Option<[OwnedFd; 3]>,
    request: File,
    work: Option<OwnedFd>,
    egress: Option<OwnedFd>,
}

impl Parcel {
    /// The descriptors in their places; `None` when they do not fit the order.
    pub(super) fn unpack(order: u8, fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let news = fds.next()?;
        let streams = [fds.next()?, fds.next()?, fds.next()?];
        let request = File::from(fds.next()?);
        let work = if order & ORDER_WORK != 0 {
            Some(fds.next()?)
        } else {
            None
        };
        let egress = if order & ORDER_EGRESS != 0 {
            Some(fds.next()?)
        } else {
            None
        };
        fds.next().is_none().then_some(Self {
            news,
            streams: Some(streams),
            request,
            work,
            egress,
        })
    }

    /// The specification and the policy.
    pub(super) fn request(&mut self) -> Result<Request, SpawnError> {
        let wrong = |error: io::Error| SpawnError::InvalidSpec {
            reason: error.to_string(),
        };
        let request: Request = frame::read(&mut self.request, REQUEST_BYTES_MAX).map_err(wrong)?;
        request.spec.check()?;
        Ok(request)
    }
}

/// A first process that lives.
pub(super) struct Born {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    /// At its end when the helper's child has been executed; else an error.
    pub(super) errors: File,
    pub(super) report: File,
    /// Held open so that the first process can tell whether the helper lives.
    _gate: OwnedFd,
    pub(super) began_at: BootInstant,
}

/// What a run is built from.
pub(super) struct Parts<'a> {
    pub(super) machine: &'a Machine,
    pub(super) request: &'a Request,
    pub(super) filters: &'a [BpfProgram],
    /// Whether the maker itself has no network, so that a run without one needs none of
    /// its own.
    pub(super) apart: bool,
}

/// Makes the first process; it builds the rest by itself.
pub(super) fn give_birth(
    proof: OneThread,
    parts: &Parts<'_>,
    parcel: &mut Parcel,
) -> Result<Born, SpawnError> {
    let began_at = BootInstant::now();
    let machine = parts.machine;
    let pipes = || Ok::<_, Errno>((pipe(false)?, pipe(true)?, pipe(true)?));
    let ((gate, open), (errors, tell_errors), (report, tell_report)) =
        pipes().map_err(|errno| SpawnError::setup("make pipes", errno))?;
    let wall = Duration::from_millis(parts.request.spec.limits.wall_ms);
    let plan = Plan {
        request: parts.request,
        table: &machine.table,
        ids: machine.ids,
        filters: parts.filters,
        work: work(parts, parcel.work.take())?,
        streams: parcel
            .streams
            .take()
            .ok_or(SpawnError::setup("take the streams", Errno::BADF))?,
        egress: parcel.egress.take(),
        gate,
        errors: File::from(tell_errors),
        report: File::from(tell_report),
        deadline: began_at.plus(wall),
    };
    let born = sys::clone3(proof, namespaces(parts))
        .map_err(|errno| SpawnError::setup("make the namespaces", errno))?;
    let Forked::Parent { pid, pidfd } = born else {
        drop(open);
        init::live(plan, proof)
    };
    drop(plan);
    if machine.table.has(Feature::UserNamespace)
        && let Err(error) = machine.ids.write_maps(pid)
    {
        // Its gate closes, so it ends by itself, and is reaped here.
        drop(open);
        wait_for(pid, &pidfd);
        return Err(SpawnError::setup("map the users", errno_of(&error)));
    }
    let _ = rustix::io::write(&open, b"x");
    Ok(Born {
        pid,
        pidfd,
        errors: File::from(errors),
        report: File::from(report),
        _gate: open,
        began_at,
    })
}

fn wait_for(pid: Pid, pidfd: &OwnedFd) {
    while let Ok(None) = sys::reap(pid) {
        let mut fds = [rustix::event::PollFd::new(
            pidfd,
            rustix::event::PollFlags::IN,
        )];
        let _ = rustix::event::poll(&mut fds, None);
    }
}

fn pipe(without_waiting: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    if without_waiting {
        rustix::io::ioctl_fionbio(&read, true)?;
    }
    Ok((read, write))
}

/// The namespaces of a run. Making one for the network is the dearest of all, so a run that
/// has no network shares its maker's empty one: it is alone in there, and belongs to users
/// who may change nothing of it.
fn namespaces(parts: &Parts<'_>) -> u64 {
    let machine = parts.machine;
    let shared = parts.apart && !parts.request.policy.has_network();
    let flags = [
        (Feature::UserNamespace, libc::CLONE_NEWUSER),
        (Feature::MountNamespace, libc::CLONE_NEWNS),
        (Feature::PidNamespace, libc::CLONE_NEWPID),
        (Feature::NetworkNamespace, libc::CLONE_NEWNET),
        (Feature::IpcNamespace, libc::CLONE_NEWIPC),
        (Feature::UtsNamespace, libc::CLONE_NEWUTS),
    ];
    let works = flags.into_iter().filter(|(feature, _)| {
        let needed = *feature != Feature::NetworkNamespace || !shared;
        needed && machine.table.has(*feature)
    });
    works.fold(0, |all, (_, flag)| all | u64::from(flag.cast_unsigned()))
}

/// Makes the working directory ready to be mounted, and the program's own where the caller
/// gives it away.
fn work(parts: &Parts<'_>, opened: Option<OwnedFd>) -> Result<Option<WorkDirectory>, SpawnError> {
    let Some(opened) = opened else {
        return Ok(None);
    };
    let privileged = matches!(parts.machine.ids, super::ids::Ids::Apart);
    let read_write = parts.request.policy.files.work == Work::ReadWrite;
    if privileged && read_write && parts.request.give_work {
        let (uid, gid) = parts.machine.ids.outside();
        let flags = rustix::fs::AtFlags::EMPTY_PATH;
        rustix::fs::chownat(&opened, "", Some(uid), Some(gid), flags)
            .map_err(|errno| SpawnError::setup("own the work directory", errno))?;
    }
    let tree = if privileged {
        root::clone_tree(opened.as_fd()).ok()
    } else {
        None
    };
    Ok(Some(WorkDirectory {
        opened,
        tree,
        path: parts.request.spec.cwd.clone(),
    }))
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
