//! What happened in a run, line by line: hashed always, kept only where it is wanted.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The trace of one run.
pub struct Trace {
    began: Instant,
    state: Mutex<State>,
}

struct State {
    // With fixed keys, unlike `RandomState`: equal lines give equal hashes everywhere.
    hash: DefaultHasher,
    events: u64,
    /// `None`: lines are not kept.
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that begins now; `keep` says whether its lines are kept.
    pub fn new(keep: bool) -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::new(State {
                hash: DefaultHasher::new(),
                events: 0,
                lines: keep.then(Vec::new),
            }),
        }
    }

    /// Adds a line; it is stamped with the simulated time, microseconds.
    pub fn say(&self, line: impl AsRef<str>) {
        let at_us = self.elapsed_us();
        let line = line.as_ref();
        let mut state = self.state();
        at_us.hash(&mut state.hash);
        line.hash(&mut state.hash);
        state.events += 1;
        if let Some(lines) = &mut state.lines {
            lines.push(format!("{:>12.6} {line}", at_us as f64 / 1e6));
        }
    }

    /// Simulated time since the run began, microseconds.
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Hash of all lines so far, and how many there were.
    pub fn hash(&self) -> (u64, u64) {
        let state = self.state();
        (state.hash.finish(), state.events)
    }

    /// Takes the lines out.
    pub fn take_lines(&self) -> Vec<String> {
        self.state().lines.take().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
