//! A seat: a fork of the helper that sits in one control group and makes the sandboxes
//! there, one at a time. Moving a process between groups can cost more than everything
//! else; so a seat is moved once, and what it makes is born where it belongs.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use seccompiler::BpfProgram;

use super::filter;
use super::ids::Ids;
use super::init::REPORT_BYTES;
use super::probe::Machine;
use super::run::{self, Born, Parcel, Parts};
use crate::cgroup::{Events, Group};
use crate::clock::BootInstant;
use crate::error::SpawnError;
use crate::exit::Hit;
use crate::feature::Feature;
use crate::frame;
use crate::policy::{Policy, Resources};
use crate::sys::{self, Forked, OneThread};
use crate::wire::{self, Ended, NEWS_BYTES_MAX, News, ORDER_BYTES, Order, Why};

/// Compiled policies that a seat keeps.
const POLICIES_MAX: usize = 8;
/// How many processes of a group are ours: the seat and the sandbox's first process.
pub(super) const OWN_PROCESSES: u32 = 2;

/// A seat, seen from the helper.
pub(super) struct Seat {
    pub(super) socket: OwnedFd,
    pub(super) pid: Pid,
    pub(super) limits: Resources,
    pub(super) group: Option<Group>,
    /// The news socket of the run that it is busy with, for when it dies over it.
    pub(super) busy: Option<OwnedFd>,
}

impl Seat {
    /// Forks one and puts it into its group.
    pub(super) fn make(
        proof: OneThread,
        machine: &Machine,
        limits: Resources,
        group: Option<Group>,
    ) -> Result<Self, SpawnError> {
        let failed = |errno| SpawnError::setup("make a seat", errno);
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
        let helper = rustix::process::getpid();
        match sys::clone3(proof, 0).map_err(failed)? {
            Forked::Child => {
                sys::close_all_but(&[0, 1, 2, theirs.as_raw_fd()]);
                sit(proof, machine, limits, group.as_ref(), &theirs, helper)
            }
            Forked::Parent { pid, .. } => {
                // It does nothing before its first order, so it is there in time.
                let admitted = group.as_ref().map_or(Ok(()), |group| group.admit(pid));
                if let Err(error) = admitted {
                    drop(socket);
                    super::serve::wait_for(pid);
                    let _ = group.map(Group::remove);
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return Err(SpawnError::setup("enter the control group", errno));
                }
                Ok(Self {
                    socket,
                    pid,
                    limits,
                    group,
                    busy: None,
                })
            }
        }
    }

    /// Hands an order over.
    pub(super) fn order(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), Errno> {
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        wire::send(self.socket.as_fd(), bytes, &borrowed)?;
        self.busy = fds.into_iter().next();
        Ok(())
    }
}

/// The life of a seat.
fn sit(
    proof: OneThread,
    machine: &Machine,
    limits: Resources,
    group: Option<&Group>,
    socket: &OwnedFd,
    helper: Pid,
) -> ! {
    let followed = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if followed.is_err() || rustix::process::getppid() != Some(helper) {
        sys::exit_now(1)
    }
    // Only who may do it without a user namespace; the others make one for each run.
    let apart = machine.ids == Ids::Apart && sys::leave_network().is_ok();
    let mut place = Place {
        apart,
        proof,
        machine,
        limits,
        group,
        compiled: Vec::new(),
    };
    loop {
        let mut order = [0; ORDER_BYTES];
        let fds = match wire::receive(socket, &mut order, RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            Ok((bytes, fds)) if bytes == ORDER_BYTES => fds,
            _ => sys::exit_now(0),
        };
        let unpacked = Parcel::unpack(Order::read(order).parts, fds);
        let served = unpacked.map(|mut parcel| (place.serve(&mut parcel), parcel));
        // Before the caller hears of it: when it orders again, the helper knows that this
        // seat is free.
        let told = rustix::net::send(socket, b"d", SendFlags::NOSIGNAL);
        if let Some((news, parcel)) = served {
            tell(parcel.news.as_fd(), &news);
        }
        if told.is_err() {
            sys::exit_now(0)
        }
    }
}

struct Place<'a> {
    /// Whether this process is in a network namespace with nothing in it.
    apart: bool,
    proof: OneThread,
    machine: &'a Machine,
    limits: Resources,
    group: Option<&'a Group>,
    compiled: Vec<(Policy, Vec<BpfProgram>)>,
}

impl Place<'_> {
    /// One run, to the death of all that was in it.
    fn serve(&mut self, parcel: &mut Parcel) -> News {
        let before = self.events();
        let run = match self.begin(parcel) {
            Ok(run) => run,
            Err(error) => return News::Failed(error),
        };
        let news = run.see_through(|| (before, self.events()));
        if let Some(group) = self.group {
            let me = rustix::process::getpid();
            if group.empty_but(me).is_err() {
                // The helper finds the seat dead and clears the group away by itself.
                sys::exit_now(1)
            }
        }
        news
    }

    fn events(&self) -> Events {
        self.group.map(Group::events).unwrap_or_default()
    }

    fn begin(&mut self, parcel: &mut Parcel) -> Result<Running, SpawnError> {
        let request = parcel.request()?;
        if request.policy.resources != self.limits {
            return Err(SpawnError::InvalidSpec {
                reason: "the order asks for other limits than its policy".to_owned(),
            });
        }
        self.machine.table.require(&request.policy.allow_degraded)?;
        self.check_network(&request.policy)?;
        let news = parcel.news.try_clone().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::MFILE);
            SpawnError::setup("keep the socket", errno)
        })?;
        let at = self.compile(&request.policy)?;
        let parts = Parts {
            machine: self.machine,
            request: &request,
            filters: &self.compiled[at].1,
            apart: self.apart,
        };
        let born = run::give_birth(self.proof, &parts, parcel)?;
        Ok(Running {
            news,
            born,
            errors: Vec::new(),
            executed: false,
            killed: false,
        })
    }

    /// An allow-list that could be walked around is no allow-list.
    fn check_network(&self, policy: &Policy) -> Result<(), SpawnError> {
        if !policy.has_network() {
            return Ok(());
        }
        let network = Feature::NetworkNamespace;
        let others: Vec<_> = Feature::ALL.into_iter().filter(|f| *f != network).collect();
        self.machine.table.require(&others)
    }

    /// Where the compiled policy stands.
    fn compile(&mut self, policy: &Policy) -> Result<usize, SpawnError> {
        if let Some(at) = self.compiled.iter().position(|(known, _)| known == policy) {
            return Ok(at);
        }
        // Without a network namespace the network is closed here.
        let inet = self.machine.table.has(Feature::NetworkNamespace);
        let filters = filter::filters(policy, inet)?;
        if self.compiled.len() == POLICIES_MAX {
            self.compiled.remove(0);
        }
        self.compiled.push((policy.clone(), filters));
        Ok(self.compiled.len() - 1)
    }
}

/// A run whose first process has not been reaped.
struct Running {
    news: OwnedFd,
    born: Born,
    errors: Vec<u8>,
    executed: bool,
    killed: bool,
}

impl Running {
    fn see_through(mut self, events: impl FnOnce() -> (Events, Events)) -> News {
        let (end, used) = loop {
            self.wait();
            match sys::reap(self.born.pid) {
                Ok(Some(reaped)) => break reaped,
                Ok(None) => {}
                Err(errno) => {
                    return News::Failed(SpawnError::os(crate::error::Stage::Watch, errno));
                }
            }
        };
        self.hear_errors();
        if let Some(error) = self.failure() {
            return News::Failed(error);
        }
        let wall = BootInstant::now().since(self.born.began_at);
        let why = self.why(end);
        News::Ended(Ended {
            hit: hit(why, events()),
            why,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            cpu_ms: used.cpu_ms,
            max_rss_bytes: used.max_rss_bytes,
        })
    }

    /// Waits for the end of the first process, and hears what comes before it.
    fn wait(&mut self) {
        // Only what is wanted is looked at: a descriptor whose other end is closed is
        // always ready, whatever is asked of it.
        let mut fds = vec![PollFd::new(&self.born.pidfd, PollFlags::IN)];
        if !self.executed {
            fds.push(PollFd::new(&self.born.errors, PollFlags::IN));
        }
        if !self.killed {
            fds.push(PollFd::new(&self.news, PollFlags::IN));
        }
        if poll(&mut fds, None).is_err() {
            return;
        }
        let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let errors = !self.executed && ready(1);
        let closed = !self.killed && ready(if self.executed { 1 } else { 2 });
        if errors {
            self.hear_errors();
        }
        if closed {
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        // ESRCH: it has ended by itself.
        let _ = pidfd_send_signal(&self.born.pidfd, Signal::KILL);
    }

    /// Reads from the pipe that executing the program closes. Its death closes it too:
    /// then it is said to have started, because it may have.
    fn hear_errors(&mut self) {
        let mut chunk = [0; 4096];
        while self.errors.len() < NEWS_BYTES_MAX && !self.executed {
            match self.born.errors.read(&mut chunk) {
                Ok(0) => {
                    self.executed = true;
                    if self.errors.is_empty() {
                        let pid = self.born.pid.as_raw_pid().unsigned_abs();
                        let at = BootInstant::now();
                        tell(self.news.as_fd(), &News::Started { pid, at });
                    }
                }
                Ok(bytes) => self.errors.extend(&chunk[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// What the first process or the program's said instead of executing it.
    fn failure(&self) -> Option<SpawnError> {
        if self.errors.is_empty() {
            return None;
        }
        let told = frame::read(&mut self.errors.as_slice(), NEWS_BYTES_MAX);
        Some(told.unwrap_or_else(|_| SpawnError::setup("hear of a failure", Errno::BADMSG)))
    }

    fn why(&mut self, end: sys::End) -> Why {
        let mut bytes = [0; REPORT_BYTES];
        let reported = read_report(&mut self.born.report, &mut bytes);
        let word = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        match (reported, end) {
            (true, _) if bytes[4] != 0 => Why::Deadline,
            (true, _) => match sys::End::from_raw(word) {
                sys::End::Exited(status) => Why::Exited(status),
                sys::End::Signaled(signal) => Why::Signaled(signal),
            },
            (false, _) if self.killed => Why::Killed,
            (false, sys::End::Signaled(signal)) => Why::Signaled(signal),
            (false, sys::End::Exited(status)) => Why::Exited(status),
        }
    }
}

fn read_report(report: &mut File, bytes: &mut [u8; REPORT_BYTES]) -> bool {
    report.read_exact(bytes).is_ok()
}

/// Which limit explains this end.
pub(super) fn hit(why: Why, (before, after): (Events, Events)) -> Option<Hit> {
    match why {
        Why::Exited(0) | Why::Deadline | Why::Killed => None,
        Why::Signaled(libc::SIGSYS) => Some(Hit::Seccomp),
        _ if after.oom_kills > before.oom_kills => Some(Hit::Memory),
        _ if after.forks_refused > before.forks_refused => Some(Hit::Processes),
        _ => None,
    }
}

/// A caller that is gone does not read it; what runs for it is killed all the same.
pub(super) fn tell(socket: BorrowedFd<'_>, news: &News) {
    let frame = frame::encode(news).unwrap_or_default();
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(socket, rest, flags) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            // News are small and few: they fit the socket's buffer, or nobody reads.
            Err(_) => return,
        }
    }
}
