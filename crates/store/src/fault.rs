//! Faults that tests put between sled's flush and the sync of the data file.

use std::sync::{Mutex, mpsc};

use crate::StoreError;

/// What happens to the next group commit.
pub(crate) enum Fault {
    /// The committer panics.
    Panic,
    /// The system refuses the sync.
    Io,
    /// The committer says that it arrived and waits until it is let go.
    Hold {
        arrived: mpsc::Sender<()>,
        go: mpsc::Receiver<()>,
    },
}

/// Lets a waiting fault happen, once.
pub(crate) fn strike(fault: &Mutex<Option<Fault>>) -> Result<(), StoreError> {
    let fault = fault.lock().unwrap().take();
    match fault {
        None => Ok(()),
        Some(Fault::Panic) => panic!("injected"),
        Some(Fault::Io) => Err(StoreError::io(
            "syncing the data file",
            std::io::Error::from_raw_os_error(5),
        )),
        Some(Fault::Hold { arrived, go }) => {
            let _ = arrived.send(());
            let _ = go.recv();
            Ok(())
        }
    }
}
