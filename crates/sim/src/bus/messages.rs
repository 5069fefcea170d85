//! Requests and events, lost, late, doubled and out of order.

use super::subscription::{Queue, SimSubscription};
use super::{Fabric, Port, lock};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{BusError, Handler, Messages, ServeOptions, Served, Subscription};
use detent_protocol::MESSAGE_BYTES_MAX;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

fn check_size(payload: &Bytes) -> Result<(), BusError> {
    let (bytes, max) = (payload.len(), MESSAGE_BYTES_MAX);
    if bytes > max {
        return Err(BusError::TooLarge { bytes, max });
    }
    Ok(())
}

#[async_trait]
impl Messages for Port {
    async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        check_size(&payload)?;
        self.point("request").await;
        let (sender, answer) = oneshot::channel();
        let route = Route::drawn(&self.fabric, subject, payload, sender);
        if route.is_instant() {
            // Without faults: in the order of asking, as on a local bus.
            let asked = self.fabric.dispatch(subject, &route.payload)?;
            tokio::spawn(route.finish(asked));
        } else {
            tokio::spawn(route.go());
        }
        let told = async {
            match answer.await {
                Ok(told) => told,
                // It was lost on the way.
                Err(_) => std::future::pending().await,
            }
        };
        let told = tokio::time::timeout(timeout, told).await;
        self.point("answered").await;
        let answer = told.map_err(|_| BusError::Timeout {
            subject: subject.to_owned(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        })??;
        check_size(&answer)?;
        Ok(answer)
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        check_size(&payload)?;
        self.point("publish").await;
        let queues = lock(&self.fabric.routes).listeners(subject);
        for queue in queues {
            self.tell(queue, subject, &payload);
        }
        Ok(())
    }

    async fn serve(
        &self,
        pattern: &str,
        options: ServeOptions,
        handler: Arc<dyn Handler>,
    ) -> Result<Served, BusError> {
        self.point("serve").await;
        let life = self.life.clone();
        let id = lock(&self.fabric.routes).serve(pattern, options, handler, life);
        // Weakly: a guard inside a handler must not keep the fabric alive for ever.
        let fabric = Arc::downgrade(&self.fabric);
        Ok(Served::new(move || {
            let removed = fabric.upgrade().map(|f| lock(&f.routes).unserve(id));
            drop(removed);
        }))
    }

    async fn subscribe(
        &self,
        pattern: &str,
        queue_max: usize,
    ) -> Result<Box<dyn Subscription>, BusError> {
        self.life.alive().await;
        let queue = Arc::new(Queue::new(queue_max));
        let life = self.life.clone();
        let id = lock(&self.fabric.routes).subscribe(pattern, life, queue.clone());
        Ok(Box::new(SimSubscription {
            port: self.clone(),
            id,
            queue,
        }))
    }
}

impl Port {
    fn tell(&self, queue: Arc<Queue>, subject: &str, payload: &Bytes) {
        let chance = self.chance();
        if chance.fault(|f| f.message_lost) {
            return;
        }
        let copies = 1 + u32::from(chance.fault(|f| f.message_twice));
        for _ in 0..copies {
            let wait = self.fabric.latency();
            if wait.is_zero() {
                queue.push(subject, payload);
                continue;
            }
            let (queue, subject, payload) = (queue.clone(), subject.to_owned(), payload.clone());
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                queue.push(&subject, &payload);
            });
        }
    }
}

impl Fabric {
    /// One way over the network.
    fn latency(&self) -> Duration {
        if !self.chance.has_delays() {
            return Duration::ZERO;
        }
        Duration::from_micros(self.chance.between(200, 6_000))
    }
}

type Answer = oneshot::Sender<Result<Bytes, BusError>>;

/// One request on its way; drawn when it is sent.
struct Route {
    fabric: Arc<Fabric>,
    subject: String,
    payload: Bytes,
    answer: Answer,
    there: Duration,
    back: Duration,
    lost: bool,
    answer_lost: bool,
    again_after: Option<Duration>,
}

impl Route {
    fn drawn(fabric: &Arc<Fabric>, subject: &str, payload: Bytes, answer: Answer) -> Self {
        let chance = &fabric.chance;
        let seconds = |from, to| Duration::from_millis(chance.between(from, to));
        let late = chance.fault(|f| f.message_late);
        let twice = chance.fault(|f| f.message_twice);
        let latency = fabric.latency();
        Self {
            there: if late {
                seconds(1_000, 32_000)
            } else {
                latency
            },
            back: fabric.latency(),
            lost: chance.fault(|f| f.message_lost),
            answer_lost: chance.fault(|f| f.message_lost),
            again_after: twice.then(|| seconds(0, 8_000)),
            fabric: fabric.clone(),
            subject: subject.to_owned(),
            payload,
            answer,
        }
    }

    fn is_instant(&self) -> bool {
        self.there.is_zero() && !self.lost
    }

    async fn go(self) {
        if self.lost {
            return self.fabric.trace.say(format!("lost {}", self.subject));
        }
        tokio::time::sleep(self.there).await;
        match self.fabric.dispatch(&self.subject, &self.payload) {
            Ok(asked) => self.finish(asked).await,
            Err(refused) => {
                tokio::time::sleep(self.back).await;
                // The asker may have gone.
                let _ = self.answer.send(Err(refused));
            }
        }
    }

    async fn finish(self, mut asked: super::services::Asked) {
        // Only what was delivered is delivered again: whoever was told that nobody
        // serves may rely on it.
        if let Some(wait) = self.again_after {
            let (fabric, subject) = (self.fabric.clone(), self.subject.clone());
            let payload = self.payload.clone();
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                fabric.trace.say(format!("again {subject}"));
                let _ = fabric.dispatch(&subject, &payload);
            });
        }
        let answer = asked.answer().await;
        if self.answer_lost {
            return self
                .fabric
                .trace
                .say(format!("answer lost {}", self.subject));
        }
        if !self.back.is_zero() {
            tokio::time::sleep(self.back).await;
        }
        let _ = self.answer.send(answer.ok_or(BusError::Closed));
    }
}
