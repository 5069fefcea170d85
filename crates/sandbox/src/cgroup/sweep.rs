//! Groups that a helper left behind when it was killed: found by their names, which say
//! who made them, emptied and removed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::group::{members, remove_directory};
use super::{Base, Controller};

const PREFIX: &str = "detent-";
/// How long one orphaned group may take to become empty.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

/// The name of this process's groups: unique for the time the machine is up.
pub(super) fn own_name() -> String {
    let pid = rustix::process::getpid();
    format!(
        "{PREFIX}{}-{}",
        pid.as_raw_pid(),
        start_time(pid).unwrap_or(0)
    )
}

/// When a process started, in ticks since boot; `None` when it is dead, reaped or not.
fn start_time(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The second field is in parentheses and may have spaces; after it the state, and as
    // the 22nd of all the time.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let lives = !matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| lives)?.parse().ok()
}

/// Empties and removes the groups below `base` whose maker is dead; returns how many.
pub(crate) fn sweep(base: &Base) -> u64 {
    let mut swept = 0;
    let mut seen: Vec<&Path> = Vec::new();
    for (controller, directory) in &base.directories {
        if seen.contains(&directory.as_path()) {
            continue;
        }
        seen.push(directory);
        let removed = sweep_directory(directory);
        // The same groups stand in each hierarchy of v1.
        if *controller == Controller::Memory || seen.len() == 1 {
            swept = swept.max(removed);
        }
    }
    swept
}

fn sweep_directory(directory: &Path) -> u64 {
    let mut swept = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let orphan = name
            .to_str()
            .and_then(maker)
            .is_some_and(|(pid, start)| start_time(pid) != Some(start));
        if orphan && clear(&entry.path()) {
            swept += 1;
        }
    }
    swept
}

/// The process that a name says made the group.
fn maker(name: &str) -> Option<(Pid, u64)> {
    let (pid, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((Pid::from_raw(pid.parse().ok()?)?, start.parse().ok()?))
}

fn clear(directory: &Path) -> bool {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            empty(&entry.path());
            let _ = remove_directory(&entry.path());
        }
    }
    empty(directory);
    remove_directory(directory).is_ok()
}

fn empty(directory: &Path) {
    let begin = Instant::now();
    loop {
        let left = members(directory);
        if left.is_empty() || begin.elapsed() > EMPTY_WITHIN {
            return;
        }
        for pid in left {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_who_made_the_group_and_that_one_lives() {
        let (pid, start) = maker(&own_name()).unwrap();
        assert_eq!(pid, rustix::process::getpid());
        assert_eq!(start_time(pid), Some(start));
        for foreign in [
            "detent-",
            "detent-x-1",
            "detent-1",
            "system.slice",
            "detent-0-1",
        ] {
            assert_eq!(maker(foreign), None, "{foreign}");
        }
    }
}
