//! What happens to the connection, for those who need to know.

use async_nats::{Event, ServerError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a denial explains what went wrong.
const DENIED_FOR: std::time::Duration = std::time::Duration::from_secs(15);
/// Denials that are remembered; more come at once only where nothing works anyhow.
const DENIALS_MAX: usize = 32;

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

type Listeners = Vec<Weak<dyn Gaps>>;

struct Inner {
    link: watch::Sender<Link>,
    /// What the server denied lately and when, the oldest first.
    denials: watch::Sender<VecDeque<(Instant, String)>>,
    /// Who wants to know of gaps; those that are gone are removed on the way.
    listeners: Mutex<Listeners>,
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
            denials: watch::Sender::default(),
            listeners: Mutex::default(),
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
        let denials = self.0.denials.borrow();
        let told = denials.iter().rev();
        let mut lately = told.take_while(|(at, _)| at.elapsed() < DENIED_FOR);
        let (_, text) = lately.find(|(_, text)| text.contains(subject))?;
        Some(text.clone())
    }

    /// Waits until the server denies `subject`, and nothing but it, or has done so since
    /// `since`; gives its words.
    pub(crate) async fn denial(&self, subject: &str, since: Instant) -> String {
        let quoted = format!("\"{subject}\"");
        let mut denials = self.0.denials.subscribe();
        loop {
            let words = {
                let told = denials.borrow_and_update();
                let mut new = told.iter().filter(|(at, _)| *at >= since);
                new.find(|(_, text)| text.contains(&quoted))
                    .map(|(_, text)| text.clone())
            };
            if let Some(words) = words {
                return words;
            }
            if denials.changed().await.is_err() {
                // Nobody is left who could tell.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Tells `listener` of gaps for as long as it lives.
    pub(crate) fn listen(&self, listener: Weak<dyn Gaps>) {
        let mut listeners = self.listeners();
        listeners.retain(|l| l.strong_count() > 0);
        listeners.push(listener);
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
            self.0.denials.send_modify(|denials| {
                if denials.len() == DENIALS_MAX {
                    denials.pop_front();
                }
                denials.push_back((Instant::now(), text));
            });
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
            let mut listeners = self.listeners();
            listeners.retain(|l| l.strong_count() > 0);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        listeners.iter().for_each(|listener| listener.gap());
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // Each change is one push or one pass.
        let listeners = self.0.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner)
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

    #[tokio::test]
    async fn whoever_asks_is_told_of_its_denial_and_of_no_other() {
        let links = Links::default();
        let since = Instant::now();
        let deny = |subject: &str| {
            let text = format!("Permissions Violation for Publish to \"{subject}\"");
            links.heard(&Event::ServerError(ServerError::Other(text)));
        };
        let waiting = tokio::spawn({
            let links = links.clone();
            async move { links.denial("x.y", since).await }
        });
        deny("x.y.z");
        deny("x");
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        deny("x.y");
        for n in 0..DENIALS_MAX - 1 {
            deny(&n.to_string());
        }
        assert!(waiting.await.unwrap().contains("\"x.y\""));
        // Also one that came before it was waited for, while it is remembered.
        links.denial("x.y", since).await;
        deny("one more");
        assert_eq!(links.denied("x.y"), None);
    }
}
