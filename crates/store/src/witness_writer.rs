//! Writes the witness, where it may, beside the committer: on a thread of its own.
//!
//! A group that the witness keeps whole can be written to both at once: whichever of the two a
//! crash leaves behind, the group is there.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::SyncMode;
use crate::witness::{Testimony, Witness};

/// What the thread gets to write.
type Order = (Testimony, Vec<u8>);

/// The witness and its thread; dropping it waits for a write in flight.
pub(crate) struct WitnessWriter {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// What the committer and the thread share. At most one order is under way.
struct Desk {
    witness: Mutex<Witness>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    order: Option<Order>,
    done: Option<io::Result<u64>>,
    ended: bool,
}

impl WitnessWriter {
    /// Starts the thread, unless nothing is synced: then it would gain nothing.
    pub(crate) fn new(witness: Witness, sync: SyncMode) -> io::Result<WitnessWriter> {
        let desk = Arc::new(Desk {
            witness: Mutex::new(witness),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let thread = match sync {
            SyncMode::Fdatasync => Some(spawn(Arc::clone(&desk))?),
            SyncMode::Never => None,
        };
        Ok(WitnessWriter { desk, thread })
    }

    /// Whether [`WitnessWriter::begin`] may be called.
    pub(crate) fn can_begin(&self) -> bool {
        self.thread.is_some()
    }

    /// Writes while the caller waits. Gives the number of syncs.
    pub(crate) fn write(&self, says: Testimony) -> io::Result<u64> {
        self.desk.write((says, Vec::new()))
    }

    /// Begins a write that [`WitnessWriter::wait`] ends.
    pub(crate) fn begin(&self, says: Testimony, redo: Vec<u8>) {
        self.desk.state().order = Some((says, redo));
        self.desk.changed.notify_all();
    }

    /// Ends the write that was begun, and makes it when the thread has not come to it. Gives
    /// the number of syncs.
    pub(crate) fn wait(&self) -> io::Result<u64> {
        let mut state = self.desk.state();
        if let Some(order) = state.order.take() {
            drop(state);
            return self.desk.write(order);
        }
        loop {
            if let Some(done) = state.done.take() {
                return done;
            }
            if state.ended {
                return Err(io::Error::other("the witness' thread is gone"));
            }
            state = self.desk.wait(state);
        }
    }
}

impl Drop for WitnessWriter {
    fn drop(&mut self) {
        self.desk.end();
        if let Some(thread) = self.thread.take() {
            // A panic there was told by its hook already.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, (says, redo): Order) -> io::Result<u64> {
        let mut witness = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        witness.write(says, &redo)
    }

    /// The next order; `None` when there will be no more.
    fn take(&self) -> Option<Order> {
        let mut state = self.state();
        loop {
            if state.ended {
                return None;
            }
            if let Some(order) = state.order.take() {
                return Some(order);
            }
            state = self.wait(state);
        }
    }

    fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }
}

/// Ends the desk when the thread does, even by a panic: nobody may wait for it then.
struct EndOnDrop(Arc<Desk>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn spawn(desk: Arc<Desk>) -> io::Result<JoinHandle<()>> {
    let serve = move || {
        let EndOnDrop(desk) = &EndOnDrop(desk);
        while let Some(order) = desk.take() {
            let done = desk.write(order);
            desk.state().done = Some(done);
            desk.changed.notify_all();
        }
    };
    thread::Builder::new()
        .name("store-witness".to_owned())
        .spawn(serve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Head;

    fn says(seq: u64) -> Testimony {
        Testimony {
            store_id: 9,
            head: Head { seq, chain: 1 },
        }
    }

    /// Whoever gets to it, thread or committer, each order is written once and in order.
    #[test]
    fn what_was_begun_is_written_when_the_wait_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("WITNESS");
        let witness = Witness::create(&path, says(0), SyncMode::Fdatasync).unwrap();
        let writer = WitnessWriter::new(witness, SyncMode::Fdatasync).unwrap();
        for seq in 1..200 {
            let redo = vec![seq as u8; 5000];
            writer.begin(says(seq), redo.clone());
            if seq % 3 == 0 {
                thread::yield_now();
            }
            assert_eq!(writer.wait().unwrap(), 1);
            let (_, found) = Witness::open(&path, SyncMode::Fdatasync).unwrap().unwrap();
            assert_eq!((found.says, found.redo), (says(seq), redo));
        }
    }

    #[test]
    fn dropping_ends_the_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("WITNESS");
        let witness = Witness::create(&path, says(0), SyncMode::Fdatasync).unwrap();
        let writer = WitnessWriter::new(witness, SyncMode::Fdatasync).unwrap();
        let desk = Arc::downgrade(&writer.desk);
        writer.begin(says(1), Vec::new());
        drop(writer);
        assert!(desk.upgrade().is_none());
    }
}
