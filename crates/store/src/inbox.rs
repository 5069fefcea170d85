//! Waiting for the next job, but not longer than a while.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// The queue as its one reader sees it.
pub(crate) struct Inbox<T> {
    queue: mpsc::Receiver<T>,
}

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited<T> {
    Got(T),
    /// Nothing came in time.
    Quiet,
    /// Nothing will come any more.
    Ended,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T> Inbox<T> {
    pub(crate) fn new(queue: mpsc::Receiver<T>) -> Inbox<T> {
        Inbox { queue }
    }

    /// Blocks until something comes, at most for `limit` when there is one.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> Waited<T> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match self.queue.poll_recv(&mut context) {
                Poll::Ready(Some(job)) => return Waited::Got(job),
                Poll::Ready(None) => return Waited::Ended,
                Poll::Pending => {}
            }
            let Some(deadline) = deadline else {
                thread::park();
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::Quiet;
            }
            thread::park_timeout(left);
        }
    }

    /// What is there already.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.queue.try_recv().ok()
    }

    /// Lets nothing in any more; what is there stays.
    pub(crate) fn close(&mut self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_is_got_and_what_does_not_come_is_not_waited_for() {
        let (send, queue) = mpsc::channel(4);
        let mut inbox = Inbox::new(queue);
        assert_eq!(inbox.wait(Some(Duration::from_millis(5))), Waited::Quiet);
        let sender = thread::spawn(move || {
            for n in 0..1000 {
                if n % 100 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                send.blocking_send(n).unwrap();
            }
        });
        let mut got = 0;
        while got < 1000 {
            let limit = (got % 2 == 0).then_some(Duration::from_micros(300));
            match inbox.wait(limit) {
                Waited::Got(n) => {
                    assert_eq!(n, got);
                    got += 1;
                }
                Waited::Quiet => {}
                Waited::Ended => panic!("ended at {got}"),
            }
        }
        assert_eq!(inbox.wait(None), Waited::Ended);
        sender.join().unwrap();
    }
}
