//! What happens to the connection, for those who need to know.

use async_nats::{Event, ServerError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a denial explains what went wrong.
const DENIED_FOR: std::time::Duration = std::time::Duration::from_secs(15);

/// The state of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Is there one?
    pub connected: bool,
    /// Since when it is so.
    pub since: SystemTime,
    /// How often it was lost.
    pub losses: u64,
    /// Messages that were dropped because their receiver was too slow, at least.
    pub dropped: u64,
}

/// Wants to know where events may be missing.
pub(crate) trait Gaps: Send + Sync {
    /// At least one event may have been lost here.
    fn gap(&self);
}

/// Hears from the connection and tells others.
#[derive(Clone)]
pub(crate) struct Links(Arc<Inner>);

struct Inner {
    link: watch::Sender<Link>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who wants to know of gaps; those that are gone are removed on the way.
    listeners: Vec<Weak<dyn Gaps>>,
    denied: Option<(Instant, String)>,
}

impl Default for Links {
    fn default() -> Self {
        let link = Link {
            connected: false,
            since: SystemTime::now(),
            losses: 0,
            dropped: 0,
        };
        Self(Arc::new(Inner {
            link: watch::Sender::new(link),
            state: Mutex::default(),
        }))
    }
}

impl Links {
    /// The state now.
    pub(crate) fn now(&self) -> Link {
        *self.0.link.borrow()
    }

    /// The state, and its changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Link> {
        self.0.link.subscribe()
    }

    /// The server's words where it has denied `subject` in the last seconds. It tells that
    /// beside the request, which just gets no answer.
    pub(crate) fn denied(&self, subject: &str) -> Option<String> {
        let state = self.state();
        let (at, text) = state.denied.as_ref()?;
        (at.elapsed() < DENIED_FOR && text.contains(subject)).then(|| text.clone())
    }

    /// Tells `listener` of gaps for as long as it lives.
    pub(crate) fn listen(&self, listener: Weak<dyn Gaps>) {
        let mut state = self.state();
        state.listeners.retain(|l| l.strong_count() > 0);
        state.listeners.push(listener);
    }

    /// Takes in an event of the client.
    pub(crate) fn heard(&self, event: &Event) {
        match event {
            Event::Connected => self.connected(),
            Event::Disconnected => self.lost("the connection to the broker is lost"),
            // It is tried for ever, so only who no longer wants it closes it.
            Event::Closed => self.closed(),
            Event::SlowConsumer(_) => self.dropped(),
            Event::LameDuckMode => tracing::warn!("the broker's server is about to stop"),
            Event::Draining => tracing::info!("the connection to the broker drains"),
            Event::ServerError(error) => self.refused(error),
            Event::ClientError(error) => tracing::warn!(%error, "the broker's client"),
        }
    }

    fn connected(&self) {
        tracing::info!("connected to the broker");
        let link = self.change(|link| link.connected = true);
        if link.losses > 0 {
            // What was published in between reached nobody here.
            self.gap();
        }
    }

    fn closed(&self) {
        tracing::debug!("the connection to the broker is closed");
        self.change(|link| link.connected = false);
    }

    fn lost(&self, what: &str) {
        tracing::warn!("{what}");
        self.change(|link| {
            link.losses += u64::from(link.connected);
            link.connected = false;
        });
    }

    fn dropped(&self) {
        let link = self.change(|link| link.dropped += 1);
        if link.dropped.is_power_of_two() {
            let dropped = link.dropped;
            tracing::warn!(dropped, "messages are dropped: their receiver is too slow");
        }
        // The event has the number of a subscription that nobody outside the client
        // knows, so all are told.
        self.gap();
    }

    fn refused(&self, error: &ServerError) {
        tracing::error!(%error, "the broker says no");
        let text = error.to_string();
        if text.to_lowercase().contains("permissions violation") {
            self.state().denied = Some((Instant::now(), text));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Link)) -> Link {
        self.0.link.send_modify(|link| {
            let before = link.connected;
            change(link);
            if link.connected != before {
                link.since = SystemTime::now();
            }
        });
        self.now()
    }

    fn gap(&self) {
        let listeners: Vec<_> = {
            let mut state = self.state();
            state.listeners.retain(|l| l.strong_count() > 0);
            state.listeners.iter().filter_map(Weak::upgrade).collect()
        };
        listeners.iter().for_each(|listener| listener.gap());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment or push.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Gaps for Count {
        fn gap(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_loss_and_a_drop_are_gaps_and_the_first_connection_is_none() {
        let (links, count) = (Links::default(), Arc::new(Count::default()));
        let listener: Weak<dyn Gaps> = Arc::downgrade(&(Arc::clone(&count) as Arc<dyn Gaps>));
        links.listen(listener);
        let gaps = |event| {
            links.heard(&event);
            count.0.load(Ordering::SeqCst)
        };
        assert_eq!(gaps(Event::Connected), 0);
        assert!(links.now().connected);
        assert_eq!(gaps(Event::Disconnected), 0);
        assert!(!links.now().connected);
        assert_eq!(gaps(Event::Connected), 1);
        assert_eq!(gaps(Event::SlowConsumer(3)), 2);
        assert_eq!((links.now().losses, links.now().dropped), (1, 1));
    }

    #[test]
    fn a_denial_is_remembered_for_a_while() {
        let links = Links::default();
        assert_eq!(links.denied("x.y"), None);
        let text = "Permissions Violation for Publish to \"x.y\"";
        links.heard(&Event::ServerError(ServerError::Other(text.into())));
        assert!(links.denied("x.y").unwrap().contains("\"x.y\""));
        assert_eq!(links.denied("z"), None);
    }
}
