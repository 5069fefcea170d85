//! The steps of the committer, and the faults that tests put between two of them.

#[cfg(test)]
pub(crate) use in_tests::{Fault, POINTS, Trap, strike};

/// Where the committer may be struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// A group is prepared; nothing of it is written.
    BeforeWitness,
    /// The witness has the group; readers do not see it.
    BeforePublish,
    /// Readers see it; nobody was answered.
    BeforeAnswer,
    /// A checkpoint begins.
    BeforeApply,
    /// sled has its groups in memory.
    BeforeFlush,
    /// sled has written; nothing is synced.
    BeforeSync,
    /// A checkpoint is over.
    AfterSync,
}

#[cfg(test)]
mod in_tests {
    use std::sync::{Mutex, mpsc};

    use super::Point;
    use crate::StoreError;

    pub(crate) const POINTS: [Point; 7] = [
        Point::BeforeWitness,
        Point::BeforePublish,
        Point::BeforeAnswer,
        Point::BeforeApply,
        Point::BeforeFlush,
        Point::BeforeSync,
        Point::AfterSync,
    ];

    /// What happens when the committer comes by next.
    pub(crate) enum Fault {
        /// The committer panics.
        Panic,
        /// The system refuses what comes next.
        Io,
        /// The committer says that it arrived and waits until it is let go.
        Hold {
            arrived: mpsc::Sender<()>,
            go: mpsc::Receiver<()>,
        },
    }

    /// What waits for the committer, and where.
    pub(crate) type Trap = Mutex<Option<(Point, Fault)>>;

    /// Lets a waiting fault happen, once.
    pub(crate) fn strike(trap: &Trap, point: Point) -> Result<(), StoreError> {
        let mut set = trap.lock().unwrap();
        let fault = match set.take() {
            Some((at, fault)) if at == point => fault,
            other => {
                *set = other;
                return Ok(());
            }
        };
        drop(set);
        match fault {
            Fault::Panic => panic!("injected"),
            Fault::Io => Err(StoreError::io(
                "testing",
                std::io::Error::from_raw_os_error(5),
            )),
            Fault::Hold { arrived, go } => {
                let _ = arrived.send(());
                let _ = go.recv();
                Ok(())
            }
        }
    }
}
