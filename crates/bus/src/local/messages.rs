//! Requests and events within one process.

use super::LocalOptions;
use super::routes::Routes;
use super::service::{Service, dispatch};
use super::subscription::LocalSubscription;
use crate::event_queue::EventQueue;
use crate::{BusError, Handler, Messages, ServeOptions, Served, Subscription};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

/// Messages of one process. Services and subscriptions end with it.
pub(crate) struct LocalMessages {
    message_bytes_max: usize,
    services_max: usize,
    subscriptions_max: usize,
    subscription_bytes_max: usize,
    // Guards and subscribers hold these weakly: a forgotten guard must not keep a bus
    // alive.
    services: Arc<RwLock<Routes<Arc<Service>>>>,
    subscribers: Arc<RwLock<Routes<Arc<EventQueue>>>>,
}

impl LocalMessages {
    pub(crate) fn new(options: &LocalOptions) -> Self {
        Self {
            message_bytes_max: options.message_bytes_max,
            services_max: options.services_max,
            subscriptions_max: options.subscriptions_max,
            subscription_bytes_max: options.subscription_bytes_max,
            services: Arc::default(),
            subscribers: Arc::default(),
        }
    }

    fn check_size(&self, payload: &Bytes) -> Result<(), BusError> {
        let (bytes, max) = (payload.len(), self.message_bytes_max);
        if bytes > max {
            return Err(BusError::TooLarge { bytes, max });
        }
        Ok(())
    }
}

impl Drop for LocalMessages {
    fn drop(&mut self) {
        let subscribers = read(&self.subscribers);
        subscribers.all().for_each(|queue| queue.close());
    }
}

#[async_trait]
impl Messages for LocalMessages {
    async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        self.check_size(&payload)?;
        let services = read(&self.services).matching(subject).cloned().collect();
        let mut heard = dispatch(services, subject, &payload)?;
        let answer = tokio::time::timeout(timeout, heard.recv())
            .await
            .map_err(|_| BusError::Timeout {
                subject: subject.to_owned(),
                timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            })?
            .ok_or(BusError::Closed)?;
        self.check_size(&answer)?;
        Ok(answer)
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.check_size(&payload)?;
        for queue in read(&self.subscribers).matching(subject) {
            queue.push(subject, &payload);
        }
        Ok(())
    }

    async fn serve(
        &self,
        pattern: &str,
        options: ServeOptions,
        handler: Arc<dyn Handler>,
    ) -> Result<Served, BusError> {
        let mut services = write(&self.services);
        if services.len() >= self.services_max {
            return Err(BusError::Busy(pattern.to_owned()));
        }
        let turn = services
            .of_pattern(pattern)
            .find_map(|service| service.turn_of(&options.group))
            .unwrap_or_default();
        let service = Arc::new(Service::new(options, turn, handler));
        let id = services.add(pattern, service);
        Ok(Served::new(remover(&self.services, pattern, id)))
    }

    async fn subscribe(
        &self,
        pattern: &str,
        queue_max: usize,
    ) -> Result<Box<dyn Subscription>, BusError> {
        let queue = Arc::new(EventQueue::new(queue_max, self.subscription_bytes_max));
        let mut subscribers = write(&self.subscribers);
        if subscribers.len() >= self.subscriptions_max {
            return Err(BusError::Busy(pattern.to_owned()));
        }
        let id = subscribers.add(pattern, Arc::clone(&queue));
        let stop = remover(&self.subscribers, pattern, id);
        Ok(Box::new(LocalSubscription::new(queue, stop)))
    }
}

/// Takes the entry out, if the bus still lives.
fn remover<T: Send + Sync + 'static>(
    routes: &Arc<RwLock<Routes<T>>>,
    pattern: &str,
    id: u64,
) -> impl FnOnce() + Send + Sync + use<T> {
    let (routes, pattern) = (Arc::downgrade(routes), pattern.to_owned());
    move || {
        let removed = Weak::upgrade(&routes).and_then(|r| write(&r).remove(&pattern, id));
        // Dropped after the lock is: a handler may hold guards of other services.
        drop(removed);
    }
}

// A panic in here can only be one of the allocator; the routes are whole all the same.
fn read<T>(routes: &RwLock<Routes<T>>) -> RwLockReadGuard<'_, Routes<T>> {
    routes.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(routes: &RwLock<Routes<T>>) -> RwLockWriteGuard<'_, Routes<T>> {
    routes.write().unwrap_or_else(PoisonError::into_inner)
}
