//! What this crate reads from `/proc`. Every answer may be out of date when it
//! arrives; who acts on one pins the process first.

use std::fs;
use std::io::{self, Read};

use rustix::process::Pid;

/// More of an environment than any run of ours can have.
const ENVIRON_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// All processes, in the order of their ids.
pub(crate) fn pids() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let raw = name.to_str().and_then(|name| name.parse().ok());
        pids.extend(raw.and_then(Pid::from_raw));
    }
    Ok(pids)
}

/// The parent of a process; `None` when the process is gone.
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    parent_in_stat(&stat)
}

/// The parent's id stands second after the command, which is in parentheses
/// and may itself contain spaces and parentheses.
fn parent_in_stat(stat: &[u8]) -> Option<Pid> {
    let after_command = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after_command..]).ok()?;
    Pid::from_raw(rest.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

/// Children of this single-threaded process. One that is born or dies
/// meanwhile may be missing.
pub(crate) fn own_children() -> io::Result<Vec<Pid>> {
    match fs::read_to_string("/proc/thread-self/children") {
        Ok(list) => Ok(list
            .split_ascii_whitespace()
            .filter_map(|raw| Pid::from_raw(raw.parse().ok()?))
            .collect()),
        // A kernel built without this list.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let me = rustix::process::getpid();
            let mut all = pids()?;
            all.retain(|pid| parent(*pid) == Some(me));
            Ok(all)
        }
        Err(error) => Err(error),
    }
}

/// The environment a process was executed with, entries ended by NUL; `None`
/// when the process is gone or not ours to look at, empty for a zombie.
pub(crate) fn environ(pid: Pid) -> Option<Vec<u8>> {
    let file = fs::File::open(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
    let mut environ = Vec::new();
    file.take(ENVIRON_BYTES_MAX)
        .read_to_end(&mut environ)
        .ok()?;
    Some(environ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_parentheses_does_not_confuse_the_parent() {
        let stat = b"42 (a) b) 7 (c) S 17 42 42 0 -1";
        assert_eq!(parent_in_stat(stat), Pid::from_raw(17));
        assert_eq!(parent_in_stat(b"42 (x) R 0 0"), None);
        assert_eq!(parent_in_stat(b"nonsense"), None);
    }

    #[test]
    fn this_process_is_listed_under_its_parent() {
        let me = rustix::process::getpid();
        assert!(pids().unwrap().contains(&me));
        assert_eq!(parent(me), rustix::process::getppid());
    }
}
