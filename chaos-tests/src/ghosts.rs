//! Processes that outlive their node, as `/proc` shows them and as their own logs tell.

use crate::site::Site;
use crate::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A process, also after its id was given to another one: id and start, in clock ticks
/// since the machine's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Process id.
    pub id: u32,
    /// Start, clock ticks.
    pub start: u64,
}

/// Finds the processes of one data directory by the marks in their environment.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    owners: BTreeSet<Vec<u8>>,
}

impl Watch {
    /// All processes that belong to the site's data directory and have not ended: tools,
    /// probes, and the keepers that hold them. Not the node.
    ///
    /// The mark of the owner is learned from tools: they have the data directory beside
    /// it in their environment, and one of them writes it down.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn alive(&mut self, site: &Site) -> Result<BTreeSet<Process>> {
        let data = format!("DETENT_DATA_DIR={}", site.data.display()).into_bytes();
        let told = std::fs::read(site.home.join("owner")).unwrap_or_default();
        if !told.is_empty() {
            self.owners.insert(told);
        }
        let mut marked = Vec::new();
        for id in process_ids()? {
            // Gone in the meantime, or another user's.
            let Ok(environ) = std::fs::read(format!("/proc/{id}/environ")) else {
                continue;
            };
            let entries: Vec<_> = environ.split(|b| *b == 0).collect();
            let owner = entries
                .iter()
                .find_map(|e| e.strip_prefix(b"DETENT_RUN_OWNER="));
            let Some(owner) = owner else { continue };
            if entries.iter().any(|e| *e == data) {
                self.owners.insert(base(owner).to_vec());
            }
            marked.push((id, base(owner).to_vec()));
        }
        let ours = marked
            .into_iter()
            .filter(|(_, owner)| self.owners.contains(owner));
        Ok(ours.filter_map(|(id, _)| living(id)).collect())
    }
}

/// Probes have the owner's mark with an ending.
fn base(owner: &[u8]) -> &[u8] {
    owner.strip_suffix(b"-probe").unwrap_or(owner)
}

fn process_ids() -> Result<Vec<u32>> {
    let dir = std::fs::read_dir("/proc").context("/proc")?;
    let names = dir.filter_map(|e| e.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// The process of this id, unless it has ended.
pub fn living(id: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the state comes after it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split(' ').collect();
    let start = fields.get(19)?.parse().ok()?;
    let has_ended = matches!(fields.first(), Some(&"Z" | &"X"));
    (!has_ended).then_some(Process { id, start })
}

/// Those of `now` that come from before: seen `before` the node was started, or started
/// earlier than it.
pub fn left_over(
    now: &BTreeSet<Process>,
    before: &BTreeSet<Process>,
    node: Option<Process>,
) -> usize {
    let earlier = |p: &&Process| before.contains(p) || node.is_some_and(|n| p.start < n.start);
    now.iter().filter(earlier).count()
}

/// How many of the processes that tools left behind lived on past a takeover: each has
/// written the times at which it was alive.
///
/// # Errors
/// A log can't be read.
pub fn lived_past(home: &Path, takeovers_ms: &BTreeSet<u64>) -> Result<usize> {
    let times = ghost_times(home)?;
    // One that gave a single sign of life has lived past nothing.
    let past = |&(first, last): &(u64, u64)| {
        let mut takeovers = takeovers_ms.iter();
        takeovers.any(|at| first < *at && *at < last)
    };
    Ok(times.values().filter(|t| past(t)).count())
}

/// First and last sign of life of each, Unix milliseconds, by name.
fn ghost_times(home: &Path) -> Result<BTreeMap<String, (u64, u64)>> {
    let mut found = BTreeMap::new();
    // No tool left anything behind.
    let Ok(dir) = std::fs::read_dir(home.join("ghosts")) else {
        return Ok(found);
    };
    for entry in dir {
        let entry = entry.context("ghosts")?;
        let text = std::fs::read_to_string(entry.path()).context("ghosts")?;
        // The last line may have been cut by the kill.
        let times: Vec<u64> = text.lines().filter_map(|l| l.parse().ok()).collect();
        if let (Some(first), Some(last)) = (times.first(), times.iter().max()) {
            found.insert(entry.file_name().to_string_lossy().into(), (*first, *last));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_from_before_is_told_from_a_new_one() {
        let at = |id, start| Process { id, start };
        let now = BTreeSet::from([at(10, 100), at(11, 300), at(12, 300)]);
        let before = BTreeSet::from([at(12, 300)]);
        assert_eq!(left_over(&now, &before, Some(at(1, 200))), 2);
        assert_eq!(left_over(&now, &BTreeSet::new(), None), 0);
    }

    #[test]
    fn a_ghost_that_writes_after_a_takeover_is_seen() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("ghosts")).unwrap();
        std::fs::write(home.path().join("ghosts/a"), "100\n120\n140\n").unwrap();
        let past = |ms| lived_past(home.path(), &BTreeSet::from([ms])).unwrap();
        assert_eq!((past(90), past(130), past(150)), (0, 1, 0));
        // One that was killed after its first sign of life.
        std::fs::write(home.path().join("ghosts/b"), "120\n").unwrap();
        assert_eq!((past(119), past(120), past(121)), (1, 1, 1));
    }

    #[test]
    fn this_process_lives() {
        let me = living(std::process::id()).unwrap();
        assert!(me.start > 0);
        assert!(living(u32::MAX).is_none());
    }
}
