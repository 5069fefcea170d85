//! Failpoints: named places at which a process can be killed on purpose.
//!
//! Always compiled in, so that the binary that is tested is the binary that runs; a
//! place that is not armed costs one relaxed load. Armed from the environment:
//!
//! - `DETENT_FAILPOINT=journal.append.after:3` kills the process (SIGKILL, no
//!   destructors, like a power cut of the process) the third time it comes there;
//! - `DETENT_FAILPOINT_LOG=FILE` appends one line for each pass, for a table of how
//!   often each place was hit.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Every place, in the order in which a goal meets them.
pub const ALL: [&str; 17] = [
    "intake.append.before",
    "intake.append.after",
    "journal.append.before",
    "journal.append.after",
    "slot.before",
    "slot.after",
    "spawn.before",
    "spawn.after",
    "effect.after",
    "outcome.before",
    "observe.before",
    "observe.after",
    "end.append.before",
    "end.append.after",
    "archive.after",
    "forget.before",
    "forget.after",
];

static ARMED: AtomicBool = AtomicBool::new(false);
static PLAN: OnceLock<Plan> = OnceLock::new();

struct Plan {
    name: String,
    nth: u64,
    passes: AtomicU64,
    log: Option<Mutex<std::fs::File>>,
}

/// What is wrong with the environment's wish.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// There is no such place.
    #[error("no failpoint {name:?}; there are {known}", known = ALL.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The count is not a number from 1.
    #[error("{0:?} is not NAME:COUNT with a count from 1")]
    Count(String),
    /// The log can't be opened.
    #[error("can't open the failpoint log: {0}")]
    Log(std::io::Error),
}

/// Arms what the environment asks for; without it does nothing. Called once, at
/// start.
pub fn arm_from_env() -> Result<(), ArmError> {
    let wish = std::env::var("DETENT_FAILPOINT").unwrap_or_default();
    let log = std::env::var("DETENT_FAILPOINT_LOG").ok();
    if wish.is_empty() && log.is_none() {
        return Ok(());
    }
    let (name, nth) = parse(&wish)?;
    let open = |path: String| {
        let mut options = std::fs::OpenOptions::new();
        options.create(true).append(true).open(path)
    };
    let log = log
        .map(open)
        .transpose()
        .map_err(ArmError::Log)?
        .map(Mutex::new);
    let passes = AtomicU64::new(0);
    if PLAN
        .set(Plan {
            name,
            nth,
            passes,
            log,
        })
        .is_ok()
    {
        ARMED.store(true, Ordering::Release);
    }
    Ok(())
}

fn parse(wish: &str) -> Result<(String, u64), ArmError> {
    if wish.is_empty() {
        return Ok((String::new(), 0));
    }
    let (name, count) = wish.rsplit_once(':').unwrap_or((wish, "1"));
    if !ALL.contains(&name) {
        return Err(ArmError::Unknown {
            name: name.to_owned(),
        });
    }
    match count.parse() {
        Ok(n) if n > 0 => Ok((name.to_owned(), n)),
        _ => Err(ArmError::Count(wish.to_owned())),
    }
}

/// Passes a place; dies there if that was asked for.
#[inline]
pub fn hit(name: &'static str) {
    if ARMED.load(Ordering::Relaxed) {
        hit_armed(name);
    }
}

#[cold]
fn hit_armed(name: &'static str) {
    let Some(plan) = PLAN.get() else { return };
    if let Some(log) = &plan.log
        && let Ok(mut file) = log.lock()
    {
        // One write, so that lines of several processes don't mix. A full disk must
        // not change what is being tested.
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
    if plan.name == name && plan.passes.fetch_add(1, Ordering::SeqCst) + 1 == plan.nth {
        kill_self();
    }
}

fn kill_self() -> ! {
    // The signal ends every thread at once and can't be caught: no destructor, no
    // flush, as when the machine takes the process away.
    let me = rustix::process::getpid();
    let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_checked() {
        assert_eq!(parse("slot.after:2").unwrap(), ("slot.after".into(), 2));
        assert_eq!(parse("slot.after").unwrap(), ("slot.after".into(), 1));
        assert!(matches!(
            parse("slot.aftr:2"),
            Err(ArmError::Unknown { .. })
        ));
        assert!(matches!(parse("slot.after:0"), Err(ArmError::Count(_))));
    }
}
