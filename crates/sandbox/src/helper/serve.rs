//! The helper's loop: orders in, news out, children reaped, groups used again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Signal, pidfd_send_signal};
use seccompiler::BpfProgram;

use super::filter;
use super::init::REPORT_BYTES;
use super::probe::Machine;
use super::run::{self, Born, Parcel, Parts};
use crate::cgroup::{Events, Group, Pool};
use crate::clock::BootInstant;
use crate::error::SpawnError;
use crate::exit::Hit;
use crate::feature::Feature;
use crate::frame;
use crate::policy::{Policy, Resources};
use crate::sys::{self, OneThread};
use crate::wire::{self, Ended, NEWS_BYTES_MAX, News, Why};

/// Runs at the same time; more are refused.
const RUNS_MAX: usize = 512;
/// Compiled policies that are kept.
const POLICIES_MAX: usize = 32;

/// A group that a run has, and what had happened in it before.
struct Lease {
    group: Group,
    limits: Resources,
    before: Events,
}

/// A run whose first process has not been reaped.
struct Running {
    news: OwnedFd,
    born: Born,
    lease: Option<Lease>,
    errors: Vec<u8>,
    executed: bool,
    killed: bool,
}

/// Which of a run's descriptors has something to say.
#[derive(Clone, Copy)]
enum What {
    Errors,
    News,
    Ended,
}

/// The helper's state.
pub(super) struct Server {
    control: OwnedFd,
    machine: Machine,
    proof: OneThread,
    pool: Option<Pool>,
    compiled: Vec<(Policy, Rc<Vec<BpfProgram>>)>,
    running: BTreeMap<u64, Running>,
    orders: u64,
}

impl Server {
    pub(super) fn new(control: OwnedFd, machine: Machine, proof: OneThread) -> Self {
        let groups = machine.groups.as_ref();
        let pool = groups.map(|(base, works)| Pool::new(base.clone(), works));
        Self {
            control,
            machine,
            proof,
            pool,
            compiled: Vec::new(),
            running: BTreeMap::new(),
            orders: 0,
        }
    }

    /// Until the caller is gone; then kills what runs.
    pub(super) fn serve(&mut self) {
        while self.turn() {}
        for run in self.running.values_mut() {
            run.kill();
        }
        while !self.running.is_empty() {
            let all: Vec<u64> = self.running.keys().copied().collect();
            self.wait(false);
            for id in all {
                self.finish_if_ended(id);
            }
        }
        if let Some(pool) = &mut self.pool {
            pool.close();
        }
    }

    /// One round; false when the control socket is closed.
    fn turn(&mut self) -> bool {
        let (order, touched) = self.wait(true);
        for (id, what) in touched {
            self.look_at(id, what);
        }
        !order || self.take_order()
    }

    /// Waits for something to do: an order, or runs and which of their descriptors.
    fn wait(&self, orders: bool) -> (bool, Vec<(u64, What)>) {
        // Only what is wanted is looked at: a descriptor whose other end is closed is
        // always ready, whatever is asked of it.
        let mut fds = Vec::new();
        let mut whats = Vec::new();
        if orders {
            fds.push(PollFd::new(&self.control, PollFlags::IN));
        }
        let head = fds.len();
        for (id, run) in &self.running {
            let errors = (!run.executed).then_some(run.born.errors.as_fd());
            let news = (!run.killed).then_some(run.news.as_fd());
            let all = [
                (errors, What::Errors),
                (news, What::News),
                (Some(run.born.pidfd.as_fd()), What::Ended),
            ];
            for (fd, what) in all {
                if let Some(fd) = fd {
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    whats.push((*id, what));
                }
            }
        }
        if poll(&mut fds, None).is_err() {
            return (false, Vec::new());
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let order = fds[..head].iter().any(ready);
        let touched = fds[head..].iter().zip(whats).filter(|(fd, _)| ready(fd));
        (order, touched.map(|(_, what)| what).collect())
    }

    fn look_at(&mut self, id: u64, what: What) {
        match (self.running.get_mut(&id), what) {
            (Some(run), What::Errors) => run.hear_errors(),
            (Some(run), What::News) => run.kill(),
            (Some(_), What::Ended) => self.finish_if_ended(id),
            (None, _) => {}
        }
    }

    /// Receives one order and carries it out; false when there will be no more.
    fn take_order(&mut self) -> bool {
        let mut order = [0; 1];
        let received = wire::receive(&self.control, &mut order, RecvFlags::DONTWAIT);
        let (bytes, fds) = match received {
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
            Ok(received) => received,
        };
        if bytes == 0 {
            return false;
        }
        let Some(mut parcel) = Parcel::unpack(order[0], fds) else {
            // The caller sees its end of the news close.
            return true;
        };
        if let Err(error) = self.begin(&mut parcel) {
            tell(parcel.news.as_fd(), &News::Failed(error));
        }
        true
    }

    fn begin(&mut self, parcel: &mut Parcel) -> Result<(), SpawnError> {
        if self.running.len() >= RUNS_MAX {
            return Err(SpawnError::setup("take one more run", Errno::AGAIN));
        }
        let request = parcel.request()?;
        self.machine.table.require(&request.policy.allow_degraded)?;
        self.check_network(&request.policy)?;
        let filters = self.compiled(&request.policy)?;
        let news = parcel.news.try_clone().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::MFILE);
            SpawnError::setup("keep the socket", errno)
        })?;
        let lease = self.lease(request.policy.resources)?;
        let parts = Parts {
            machine: &self.machine,
            request: &request,
            filters: &filters,
            group: lease.as_ref().map(|lease| &lease.group),
        };
        match run::give_birth(self.proof, &parts, parcel) {
            Ok(born) => {
                self.orders += 1;
                let run = Running {
                    news,
                    born,
                    lease,
                    errors: Vec::new(),
                    executed: false,
                    killed: false,
                };
                self.running.insert(self.orders, run);
                Ok(())
            }
            Err(error) => {
                self.give_back(lease);
                Err(error)
            }
        }
    }

    /// An allow-list that could be walked around is no allow-list.
    fn check_network(&self, policy: &Policy) -> Result<(), SpawnError> {
        if policy.has_network() {
            let network = [Feature::NetworkNamespace];
            let others: Vec<_> = Feature::ALL
                .into_iter()
                .filter(|f| !network.contains(f))
                .collect();
            return self.machine.table.require(&others);
        }
        Ok(())
    }

    fn compiled(&mut self, policy: &Policy) -> Result<Rc<Vec<BpfProgram>>, SpawnError> {
        if let Some((_, filters)) = self.compiled.iter().find(|(known, _)| known == policy) {
            return Ok(Rc::clone(filters));
        }
        // Without a network namespace the network is closed here.
        let inet = self.machine.table.has(Feature::NetworkNamespace);
        let filters = Rc::new(filter::filters(policy, inet)?);
        if self.compiled.len() == POLICIES_MAX {
            self.compiled.remove(0);
        }
        self.compiled.push((policy.clone(), Rc::clone(&filters)));
        Ok(filters)
    }

    fn lease(&mut self, limits: Resources) -> Result<Option<Lease>, SpawnError> {
        let Some(pool) = &mut self.pool else {
            return Ok(None);
        };
        let group = pool.take(limits)?;
        let before = group.events();
        Ok(Some(Lease {
            group,
            limits,
            before,
        }))
    }

    fn give_back(&mut self, lease: Option<Lease>) {
        let (Some(pool), Some(lease)) = (&mut self.pool, lease) else {
            return;
        };
        if lease.group.empty().is_ok() {
            pool.put(lease.limits, lease.group);
        }
    }

    fn finish_if_ended(&mut self, id: u64) {
        let Some(run) = self.running.get(&id) else {
            return;
        };
        let Ok(Some((end, used))) = sys::reap(run.born.pid) else {
            return;
        };
        let Some(mut run) = self.running.remove(&id) else {
            return;
        };
        run.hear_errors();
        let events = run
            .lease
            .as_ref()
            .map_or((Events::default(), Events::default()), |lease| {
                (lease.before, lease.group.events())
            });
        let wall = BootInstant::now().since(run.born.began_at);
        let news = match run.failure() {
            Some(error) => News::Failed(error),
            None => {
                let why = run.why(end);
                News::Ended(Ended {
                    hit: hit(why, events),
                    why,
                    wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
                    cpu_ms: used.cpu_ms,
                    max_rss_bytes: used.max_rss_bytes,
                })
            }
        };
        let lease = run.lease.take();
        self.give_back(lease);
        tell(run.news.as_fd(), &news);
    }
}

impl Running {
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
fn hit(why: Why, (before, after): (Events, Events)) -> Option<Hit> {
    match why {
        Why::Exited(0) | Why::Deadline | Why::Killed => None,
        Why::Signaled(libc::SIGSYS) => Some(Hit::Seccomp),
        _ if after.oom_kills > before.oom_kills => Some(Hit::Memory),
        _ if after.forks_refused > before.forks_refused => Some(Hit::Processes),
        _ => None,
    }
}

/// A caller that is gone does not read it; what runs for it is killed all the same.
fn tell(socket: BorrowedFd<'_>, news: &News) {
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
