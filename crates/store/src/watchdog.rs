//! The watchdog: gives up on a committer that does not come back.
//!
//! When one of sled's I/O threads panics, a flush that waits for it waits for ever. The thread
//! cannot be freed, but its callers can be told.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::shared::Shared;

const LOOK_MS: u64 = 1000;

/// Starts the thread; it ends by itself within a second after the store is closed.
pub(crate) fn spawn(shared: &Arc<Shared>, stall_ms_max: u64) -> io::Result<()> {
    let shared = Arc::downgrade(shared);
    let pause = Duration::from_millis(LOOK_MS.min(stall_ms_max / 4));
    let watch = move || {
        while still_well(&shared, stall_ms_max) {
            thread::sleep(pause);
        }
    };
    thread::Builder::new()
        .name("store-watchdog".to_owned())
        .spawn(watch)
        .map(drop)
}

fn still_well(shared: &Weak<Shared>, stall_ms_max: u64) -> bool {
    let Some(shared) = shared.upgrade() else {
        return false;
    };
    let age_ms = shared.group_age_ms();
    if age_ms > stall_ms_max {
        shared.fail(&format!("a group commit has not come back for {age_ms} ms"));
        shared.stalled.send_replace(true);
        return false;
    }
    // A store being closed counts as in flight until sled let go.
    age_ms > 0 || !shared.is_closed()
}
