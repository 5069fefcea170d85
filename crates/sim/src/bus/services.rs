//! Who serves and who listens, and how a request gets to a service.

use super::subscription::Queue;
use super::{Fabric, lock};
use crate::life::Life;
use bytes::Bytes;
use detent_bus::{BusError, Handler, ServeOptions};
use detent_protocol::subject::matches;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Services and subscriptions by id, that is in the order of their making.
#[derive(Default)]
pub(super) struct Routes {
    next_id: u64,
    services: BTreeMap<u64, Arc<Service>>,
    listeners: BTreeMap<u64, Listener>,
    /// Whose turn it is in each group of a pattern.
    turns: BTreeMap<(String, String), usize>,
}

struct Listener {
    pattern: String,
    life: Arc<Life>,
    queue: Arc<Queue>,
}

/// One service.
pub(super) struct Service {
    pattern: String,
    group: String,
    handler: Arc<dyn Handler>,
    life: Arc<Life>,
    /// Handled or waiting.
    seats: Arc<Semaphore>,
    /// Handled.
    running: Arc<Semaphore>,
}

impl Routes {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn serve(
        &mut self,
        pattern: &str,
        options: ServeOptions,
        handler: Arc<dyn Handler>,
        life: Arc<Life>,
    ) -> u64 {
        let running = options.concurrency_max.clamp(1, Semaphore::MAX_PERMITS);
        let seats = running.saturating_add(options.queue_max);
        let service = Service {
            pattern: pattern.to_owned(),
            group: options.group,
            handler,
            life,
            seats: Arc::new(Semaphore::new(seats.min(Semaphore::MAX_PERMITS))),
            running: Arc::new(Semaphore::new(running)),
        };
        let id = self.id();
        self.services.insert(id, Arc::new(service));
        id
    }

    pub(super) fn unserve(&mut self, id: u64) -> Option<Arc<Service>> {
        self.services.remove(&id)
    }

    pub(super) fn subscribe(&mut self, pattern: &str, life: Arc<Life>, queue: Arc<Queue>) -> u64 {
        let id = self.id();
        let listener = Listener {
            pattern: pattern.to_owned(),
            life,
            queue,
        };
        self.listeners.insert(id, listener);
        id
    }

    pub(super) fn unsubscribe(&mut self, id: u64) {
        self.listeners.remove(&id);
    }

    pub(super) fn listeners(&mut self, subject: &str) -> Vec<Arc<Queue>> {
        self.listeners.retain(|_, l| !l.life.is_over());
        let listening = self.listeners.values();
        let listening = listening.filter(|l| matches(&l.pattern, subject));
        listening.map(|l| l.queue.clone()).collect()
    }

    /// One service with a free seat of each group, and those without a group.
    /// `Ok` and empty: there are services, and all are full.
    fn choose(&mut self, subject: &str) -> Option<Vec<(Arc<Service>, OwnedSemaphorePermit)>> {
        self.services.retain(|_, s| !s.life.is_over());
        let mut groups: BTreeMap<(String, u64), Vec<Arc<Service>>> = BTreeMap::new();
        for (id, service) in &self.services {
            if matches(&service.pattern, subject) {
                // A service without a group is a group of its own.
                let alone = if service.group.is_empty() { *id } else { 0 };
                let group = groups.entry((service.group.clone(), alone)).or_default();
                group.push(service.clone());
            }
        }
        if groups.is_empty() {
            return None;
        }
        let mut chosen = Vec::new();
        for members in groups.values() {
            let place = (members[0].pattern.clone(), members[0].group.clone());
            let turn = self.turns.entry(place).or_default();
            *turn = turn.wrapping_add(1);
            let turn = *turn;
            chosen.extend((0..members.len()).find_map(|i| {
                let service = &members[turn.wrapping_add(i) % members.len()];
                let seat = service.seats.clone().try_acquire_owned().ok()?;
                Some((service.clone(), seat))
            }));
        }
        Some(chosen)
    }
}

/// Where answers go, and whether silence is a crash.
pub(super) struct Asked {
    answers: mpsc::Receiver<Bytes>,
    lives: Vec<Arc<Life>>,
}

impl Asked {
    /// The first answer. `None`: the handler failed. A server that crashed says nothing
    /// at all, for ever.
    pub(super) async fn answer(&mut self) -> Option<Bytes> {
        let answer = self.answers.recv().await;
        if answer.is_none() && self.lives.iter().any(|life| life.is_over()) {
            std::future::pending::<()>().await;
        }
        answer
    }
}

impl Fabric {
    /// Hands a request to its services.
    pub(super) fn dispatch(&self, subject: &str, payload: &Bytes) -> Result<Asked, BusError> {
        let chosen = lock(&self.routes).choose(subject);
        let Some(chosen) = chosen else {
            return Err(BusError::NoResponders(subject.to_owned()));
        };
        if chosen.is_empty() {
            return Err(BusError::Busy(subject.to_owned()));
        }
        let (sender, answers) = mpsc::channel(chosen.len());
        let mut lives = Vec::new();
        for (service, seat) in chosen {
            lives.push(service.life.clone());
            service.start(seat, subject, payload, &sender);
        }
        Ok(Asked { answers, lives })
    }
}

impl Service {
    fn start(
        self: Arc<Self>,
        seat: OwnedSemaphorePermit,
        subject: &str,
        payload: &Bytes,
        answers: &mpsc::Sender<Bytes>,
    ) {
        let (subject, payload) = (subject.to_owned(), payload.clone());
        let answers = answers.clone();
        let service = self.clone();
        let task = tokio::spawn(async move {
            // Moved in: also a panic gives the seat back before it drops `answers`.
            let seat = seat;
            let running = service.running.clone().acquire_owned().await;
            let answer = service.handler.handle(&subject, payload).await;
            // Whoever has the answer may ask again at once and must find the place free.
            drop((running, seat));
            // The asker may have gone.
            let _ = answers.try_send(answer);
        });
        self.life.owns(task.abort_handle());
    }
}
