//! The first process of a sandbox: it builds the place, starts the program, reaps, keeps
//! the deadline by its own timer, and takes everything with it when it ends. It promises
//! to hold none of the run's pipes. It must not know what the program is.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;

use super::ids::Ids;
use super::root::{self, WorkDirectory};
use super::tool;
use crate::clock::BootInstant;
use crate::egress::PROXY_PORT;
use crate::error::SpawnError;
use crate::feature::{Feature, FeatureTable};
use crate::frame;
use crate::keeper::Reaper;
use crate::sys::{self, End, Forked, OneThread};
use crate::wire::{self, Request};

/// The longest sleep, for a clock that stood still meanwhile.
const TICK: Duration = Duration::from_secs(1);
/// The exit status of a first process that could not build its sandbox.
pub(super) const NOT_BUILT: i32 = 125;

/// What the first process tells when it is over: a status word, and whether time was up.
pub(super) const REPORT_BYTES: usize = 5;

/// Everything a run needs, made by the helper and used by the first process and by the
/// program's before it is executed.
pub(super) struct Plan<'a> {
    pub(super) request: &'a Request,
    pub(super) table: &'a FeatureTable,
    pub(super) ids: Ids,
    pub(super) filters: &'a [BpfProgram],
    pub(super) work: Option<WorkDirectory>,
    pub(super) streams: [OwnedFd; 3],
    /// Where the listening socket of the egress proxy goes.
    pub(super) egress: Option<OwnedFd>,
    /// Tells that the users are mapped; at its end when the helper is dead.
    pub(super) gate: OwnedFd,
    /// Closed by executing the program; an error goes here.
    pub(super) errors: File,
    /// How it ended goes here.
    pub(super) report: File,
    pub(super) deadline: BootInstant,
}

impl Plan<'_> {
    pub(super) fn has(&self, feature: Feature) -> bool {
        self.table.has(feature)
    }
}

/// The life of the first process.
pub(super) fn live(plan: Plan<'_>, proof: OneThread) -> ! {
    let mut errors = match plan.errors.try_clone() {
        Ok(errors) => errors,
        Err(_) => sys::exit_now(NOT_BUILT),
    };
    match build(&plan).and_then(|()| start(plan, proof)) {
        Ok(watch) => {
            drop(errors);
            keep(watch)
        }
        Err(error) => tell(&mut errors, &error),
    }
}

/// Says what went wrong, and ends.
pub(super) fn tell(errors: &mut File, error: &SpawnError) -> ! {
    if let Ok(frame) = frame::encode(error) {
        let _ = errors.write_all(&frame);
    }
    sys::exit_now(NOT_BUILT)
}

fn build(plan: &Plan<'_>) -> Result<(), SpawnError> {
    match rustix::io::read(&plan.gate, &mut [0; 1]) {
        Ok(1) => {}
        _ => sys::exit_now(NOT_BUILT),
    }
    if plan.has(Feature::UserNamespace) {
        step("become the first user", plan.ids.become_first())?;
    }
    die_with_helper(plan)?;
    if plan.has(Feature::MountNamespace) {
        root::enter(&plan.request.policy, plan.work.as_ref())?;
    }
    if plan.has(Feature::UtsNamespace) {
        step("name the host", rustix::system::sethostname(b"sandbox"))?;
    }
    if let Some(to) = plan
        .egress
        .as_ref()
        .filter(|_| plan.has(Feature::NetworkNamespace))
    {
        step("open the way to the egress proxy", offer_listener(to))?;
    }
    step(
        "hide from the program",
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable),
    )
}

fn die_with_helper(plan: &Plan<'_>) -> Result<(), SpawnError> {
    let kill = Some(Signal::KILL);
    step(
        "follow the helper",
        rustix::process::set_parent_process_death_signal(kill),
    )?;
    // The helper may have died before that took effect.
    let mut gate = [rustix::event::PollFd::new(
        &plan.gate,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let _ = rustix::event::poll(&mut gate, Some(&now));
    if gate[0].revents().contains(rustix::event::PollFlags::HUP) {
        sys::exit_now(NOT_BUILT)
    }
    Ok(())
}

/// A socket that listens in here, for a proxy that lives out there.
fn offer_listener(to: &OwnedFd) -> Result<(), Errno> {
    let udp = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    sys::loopback_up(udp.as_fd())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    let address = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, PROXY_PORT);
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, 64)?;
    wire::send(to.as_fd(), b"L", &[listener.as_fd()])
}

/// Forks the program's process; in there it does not return.
fn start(plan: Plan<'_>, proof: OneThread) -> Result<Watch, SpawnError> {
    sys::block_child_signal();
    let alone = plan.has(Feature::PidNamespace);
    if !alone {
        let me = Some(rustix::process::getpid());
        step(
            "become the reaper",
            rustix::process::set_child_subreaper(me),
        )?;
    }
    match step("start the program's process", sys::clone3(proof, 0))? {
        Forked::Child => {
            let mut errors = match plan.errors.try_clone() {
                Ok(errors) => errors,
                Err(_) => sys::exit_now(NOT_BUILT),
            };
            let error = tool::become_program(&plan);
            tell(&mut errors, &error)
        }
        Forked::Parent { pid, pidfd } => {
            let keep = if alone { Keep::Namespace } else { Keep::Tree };
            drop(pidfd);
            Ok(Watch {
                program: pid,
                keep,
                report: plan.report,
                deadline: plan.deadline,
            })
        }
    }
}

/// What ends with the program.
enum Keep {
    /// All processes of the namespace, by the kernel.
    Namespace,
    /// All descendants, killed one by one.
    Tree,
}

/// What the first process still has to do.
struct Watch {
    program: Pid,
    keep: Keep,
    report: File,
    deadline: BootInstant,
}

fn keep(watch: Watch) -> ! {
    let Watch {
        program,
        keep,
        mut report,
        deadline,
    } = watch;
    sys::close_all_but(&[report.as_raw_fd()]);
    // Whoever got in here would find nothing to use.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let _ = rustix::thread::set_capabilities(None, none);
    let (status, late) = wait(program, deadline);
    if let Keep::Tree = keep {
        Reaper::new(program).kill_all();
    }
    let mut bytes = [0; REPORT_BYTES];
    let word = match status {
        Some(End::Exited(code)) => code << 8,
        Some(End::Signaled(signal)) => signal,
        None => 0,
    };
    bytes[..4].copy_from_slice(&word.to_ne_bytes());
    bytes[4] = u8::from(late);
    let _ = report.write_all(&bytes);
    // The kernel kills what is left in the namespace, and this process ends after it.
    sys::exit_now(0)
}

/// Reaps until the program has ended or its time is up.
fn wait(program: Pid, deadline: BootInstant) -> (Option<End>, bool) {
    loop {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == program => {
                    return (Some(End::from_raw(status.as_raw())), false);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return (None, false),
            }
        }
        let left = deadline.since(BootInstant::now());
        if left.is_zero() {
            return (None, true);
        }
        sys::wait_for_child_signal(left.min(TICK));
    }
}

pub(super) fn step<T>(stage: &str, done: Result<T, Errno>) -> Result<T, SpawnError> {
    done.map_err(|errno| SpawnError::setup(stage, errno))
}
