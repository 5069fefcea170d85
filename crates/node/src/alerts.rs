//! Alerts on the bus, for operators who listen.

use detent_bus::Messages;
use detent_protocol::envelope::seal;
use detent_protocol::messages::Alert;
use detent_protocol::{NodeId, subject};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// Alerts on their way at one time. More are only in the log and in the metric: a node in
/// such trouble has said enough.
const ON_THE_WAY_MAX: usize = 64;

/// Tells alerts on the bus.
pub(crate) struct Told {
    node: NodeId,
    messages: Arc<dyn Messages>,
    places: Arc<Semaphore>,
}

impl Told {
    pub(crate) fn new(node: &NodeId, messages: Arc<dyn Messages>) -> Self {
        Self {
            node: node.clone(),
            messages,
            places: Arc::new(Semaphore::new(ON_THE_WAY_MAX)),
        }
    }

    /// Tells one; does not wait for it.
    pub(crate) fn alert(&self, kind: &str, text: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let alert = Alert {
            node: self.node.clone(),
            kind: kind.to_owned(),
            text: text.to_owned(),
            at_ms: now.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        };
        let Ok(payload) = seal(&alert) else { return };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return;
        };
        let (messages, subject) = (self.messages.clone(), subject::alert(kind));
        tokio::spawn(async move {
            // The log has it in any case.
            let _ = messages.publish(&subject, payload).await;
            drop(place);
        });
    }
}
