//! One service: a handler, how many requests it handles and how many may wait.

use crate::{BusError, Handler, ServeOptions};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// A service of one pattern.
pub(crate) struct Service {
    group: String,
    /// Whose turn it is; shared by the group's services of the same pattern.
    turn: Arc<AtomicUsize>,
    handler: Arc<dyn Handler>,
    /// Handled or waiting.
    seats: Arc<Semaphore>,
    /// Handled.
    running: Arc<Semaphore>,
}

/// Where the answer goes: whoever answers first is heard. Has room for one answer of each
/// group that was asked.
pub(crate) type Answers = mpsc::Sender<Bytes>;

impl Service {
    pub(crate) fn new(
        options: ServeOptions,
        turn: Arc<AtomicUsize>,
        handler: Arc<dyn Handler>,
    ) -> Self {
        let running = options.concurrency_max.clamp(1, Semaphore::MAX_PERMITS);
        let seats = running.saturating_add(options.queue_max);
        Self {
            group: options.group,
            turn,
            handler,
            seats: Arc::new(Semaphore::new(seats.min(Semaphore::MAX_PERMITS))),
            running: Arc::new(Semaphore::new(running)),
        }
    }

    pub(crate) fn turn_of(&self, group: &str) -> Option<Arc<AtomicUsize>> {
        (self.group == group).then(|| Arc::clone(&self.turn))
    }

    fn seat(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.seats).try_acquire_owned().ok()
    }

    fn start(&self, seat: OwnedSemaphorePermit, subject: &str, payload: Bytes, answers: Answers) {
        let (handler, running) = (Arc::clone(&self.handler), Arc::clone(&self.running));
        let subject = subject.to_owned();
        // A task of its own: a panic of the handler ends it alone and drops `answers`,
        // which is how the asker hears of it at once.
        tokio::spawn(async move {
            // Local, so that a panic too gives the seat back before it drops `answers`.
            let seat = seat;
            // The semaphore is never closed.
            let running = running.acquire_owned().await;
            // Nobody waits any more. With several groups that means nothing: one of them
            // has answered, and the others get the request all the same.
            if answers.max_capacity() == 1 && answers.is_closed() {
                return;
            }
            let answer = handler.handle(&subject, payload).await;
            // Before the answer: who has it and asks again must find the place free.
            drop((running, seat));
            // The asker may have gone, or had an answer of another group.
            let _ = answers.try_send(answer);
        });
    }
}

/// Hands a request to one service of each group in `services`; services without a group
/// get it each.
///
/// # Errors
/// [`BusError::NoResponders`] without services, [`BusError::Busy`] when no group has a
/// free seat.
pub(crate) fn dispatch(
    mut services: Vec<Arc<Service>>,
    subject: &str,
    payload: &Bytes,
) -> Result<mpsc::Receiver<Bytes>, BusError> {
    if services.is_empty() {
        return Err(BusError::NoResponders(subject.to_owned()));
    }
    // Stable, so that the order within a group stays and turns go round.
    services.sort_by(|a, b| a.group.cmp(&b.group));
    let groups = services.chunk_by(|a, b| a.group == b.group && !a.group.is_empty());
    let groups: Vec<_> = groups.collect();
    let (answers, heard) = mpsc::channel(groups.len());
    let mut seated = false;
    for group in groups {
        if let Some((service, seat)) = choose(group) {
            service.start(seat, subject, payload.clone(), answers.clone());
            seated = true;
        }
    }
    if seated {
        Ok(heard)
    } else {
        Err(BusError::Busy(subject.to_owned()))
    }
}

/// The service whose turn it is, or the next one with a free seat.
fn choose(group: &[Arc<Service>]) -> Option<(&Arc<Service>, OwnedSemaphorePermit)> {
    let turn = group.first()?.turn.fetch_add(1, Ordering::Relaxed);
    (0..group.len()).find_map(|i| {
        let service = &group[turn.wrapping_add(i) % group.len()];
        Some((service, service.seat()?))
    })
}
