//! The helper's loop: it gives each order to a free seat with the right limits, makes one
//! where there is none, and clears away seats that died or are too many.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::Signal;

use super::probe::Machine;
use super::seat::{OWN_PROCESSES, Seat, hit, tell};
use crate::cgroup::{Events, Pool};
use crate::error::SpawnError;
use crate::policy::Resources;
use crate::sys::{self, OneThread};
use crate::wire::{self, Ended, News, ORDER_BYTES, Order, Why};

/// Seats at the same time; an order that needs one more is refused.
const SEATS_MAX: usize = 512;
/// Free seats that are kept.
const FREE_MAX: usize = 16;

/// The helper's state.
pub(super) struct Server {
    control: OwnedFd,
    machine: Machine,
    proof: OneThread,
    pool: Option<Pool>,
    seats: BTreeMap<u64, Seat>,
    made: u64,
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
            seats: BTreeMap::new(),
            made: 0,
        }
    }

    /// Until the caller is gone; then everything that runs is killed.
    pub(super) fn serve(&mut self) {
        while self.turn() {}
        for seat in self.seats.values() {
            // Its sandbox dies with it.
            let _ = rustix::process::kill_process(seat.pid, Signal::KILL);
        }
        for seat in std::mem::take(&mut self.seats).into_values() {
            self.bury(seat);
        }
        if let Some(pool) = &mut self.pool {
            pool.close();
        }
    }

    /// One round; false when the control socket is closed.
    fn turn(&mut self) -> bool {
        let (order, seats) = self.wait();
        for id in seats {
            self.hear(id);
        }
        !order || self.take_order()
    }

    /// Waits for an order, or for seats that have something to say.
    fn wait(&self) -> (bool, Vec<u64>) {
        let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
        fds.extend(
            self.seats
                .values()
                .map(|seat| PollFd::new(&seat.socket, PollFlags::IN)),
        );
        if poll(&mut fds, None).is_err() {
            return (false, Vec::new());
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let seats = fds[1..]
            .iter()
            .zip(self.seats.keys())
            .filter(|(fd, _)| ready(fd));
        (ready(&fds[0]), seats.map(|(_, id)| *id).collect())
    }

    /// A seat is done with its run, or dead.
    fn hear(&mut self, id: u64) {
        let Some(seat) = self.seats.get_mut(&id) else {
            return;
        };
        match wire::receive(&seat.socket, &mut [0; 1], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((1, _)) => {
                seat.busy = None;
                let free = self
                    .seats
                    .values()
                    .filter(|seat| seat.busy.is_none())
                    .count();
                if free <= FREE_MAX {
                    return;
                }
            }
            _ => {}
        }
        if let Some(seat) = self.seats.remove(&id) {
            self.bury(seat);
        }
    }

    /// Ends a seat, tells the run that it was busy with, and removes its group.
    fn bury(&mut self, seat: Seat) {
        let Seat {
            socket,
            pid,
            group,
            busy,
            ..
        } = seat;
        drop(socket);
        if busy.is_some() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let end = wait_for(pid);
        let events = group
            .as_ref()
            .map(|group| group.events())
            .unwrap_or_default();
        let emptied = group.as_ref().is_none_or(|group| group.empty().is_ok());
        if let (Some(pool), Some(group), true) = (&self.pool, group, emptied) {
            pool.discard(group);
        }
        if let Some(news) = busy {
            tell(news.as_fd(), &obituary(end, events));
        }
    }

    /// Receives one order and passes it on; false when there will be no more.
    fn take_order(&mut self) -> bool {
        let mut order = [0; ORDER_BYTES];
        let (bytes, fds) = match wire::receive(&self.control, &mut order, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
            Ok(received) => received,
        };
        if bytes == 0 {
            return false;
        }
        // Of a packet that is none the caller sees its end of the news close.
        if bytes == ORDER_BYTES {
            self.pass_on(order, fds);
        }
        true
    }

    fn pass_on(&mut self, order: [u8; ORDER_BYTES], fds: Vec<OwnedFd>) {
        let limits = Order::read(order).limits;
        let placed = self.free_seat(limits);
        let news = fds.first().and_then(|news| news.try_clone().ok());
        let failed = match placed {
            Ok(id) => match self.seats.get_mut(&id).map(|seat| seat.order(&order, fds)) {
                Some(Ok(())) => return,
                Some(Err(errno)) => {
                    if let Some(seat) = self.seats.remove(&id) {
                        self.bury(seat);
                    }
                    SpawnError::setup("reach the seat", errno)
                }
                None => SpawnError::setup("find a seat", Errno::SRCH),
            },
            Err(error) => error,
        };
        if let Some(news) = news {
            tell(news.as_fd(), &News::Failed(failed));
        }
    }

    fn free_seat(&mut self, limits: Resources) -> Result<u64, SpawnError> {
        let fits = |seat: &Seat| seat.busy.is_none() && seat.limits == limits;
        if let Some((id, _)) = self.seats.iter().find(|(_, seat)| fits(seat)) {
            return Ok(*id);
        }
        if self.seats.len() >= SEATS_MAX {
            return Err(SpawnError::setup("take one more run", Errno::AGAIN));
        }
        let with_own = Resources {
            processes_max: limits.processes_max.saturating_add(OWN_PROCESSES),
            ..limits
        };
        let group = match &mut self.pool {
            Some(pool) => Some(pool.make(with_own)?),
            None => None,
        };
        let seat = Seat::make(self.proof, &self.machine, limits, group)?;
        self.made += 1;
        self.seats.insert(self.made, seat);
        Ok(self.made)
    }
}

/// Waits for a child that is about to end.
pub(super) fn wait_for(pid: rustix::process::Pid) -> sys::End {
    loop {
        match sys::reap(pid) {
            Ok(Some((end, _))) => return end,
            Ok(None) => {
                let flags = rustix::process::PidfdFlags::empty();
                if let Ok(pidfd) = rustix::process::pidfd_open(pid, flags) {
                    let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None);
                }
            }
            Err(_) => return sys::End::Exited(0),
        }
    }
}

/// What is said of a run whose seat died over it: the kernel may have chosen it when the
/// group was out of memory.
fn obituary(end: sys::End, events: Events) -> News {
    let why = match end {
        sys::End::Exited(status) => Why::Exited(status),
        sys::End::Signaled(signal) => Why::Signaled(signal),
    };
    match hit(why, (Events::default(), events)) {
        Some(hit) => News::Ended(Ended {
            why,
            hit: Some(hit),
            wall_ms: 0,
            cpu_ms: 0,
            max_rss_bytes: 0,
        }),
        None => News::Failed(SpawnError::os(crate::error::Stage::Watch, Errno::CHILD)),
    }
}
