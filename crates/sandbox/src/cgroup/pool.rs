//! Groups that are used again: making and removing one costs more than a whole sandbox,
//! so an empty one waits for the next run with the same limits.

use std::collections::BTreeMap;

use super::{Base, Controller, Group, sweep};
use crate::error::SpawnError;
use crate::policy::Resources;

/// How many empty groups are kept.
const IDLE_MAX: usize = 64;

/// The groups of one helper, all below one group that names it.
#[derive(Debug)]
pub(crate) struct Pool {
    base: Base,
    name: String,
    made: u64,
    idle: BTreeMap<Resources, Vec<Group>>,
}

impl Pool {
    /// A pool below `base`, for this process; makes nothing yet. Controllers that do not
    /// work here are left out by the caller.
    pub(crate) fn new(mut base: Base, controllers: &[Controller]) -> Self {
        base.directories.retain(|(c, _)| controllers.contains(c));
        Self {
            base,
            name: sweep::own_name(),
            made: 0,
            idle: BTreeMap::new(),
        }
    }

    /// An empty group with these limits.
    pub(crate) fn take(&mut self, limits: Resources) -> Result<Group, SpawnError> {
        if let Some(group) = self.idle.get_mut(&limits).and_then(Vec::pop) {
            return Ok(group);
        }
        self.made += 1;
        if self.made == 1 {
            self.make_parent()?;
        }
        let name = format!("{}/{}", self.name, self.made);
        Group::create(&self.base, &name, limits)
    }

    /// The parent carries a name and no limits of its own.
    fn make_parent(&self) -> Result<(), SpawnError> {
        for (_, directory) in &self.base.directories {
            if self.base.version == super::Version::V2 {
                let _ = std::fs::write(
                    directory.join("cgroup.subtree_control"),
                    "+memory +pids +cpu",
                );
            }
            match std::fs::create_dir(directory.join(&self.name)) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    let errno = rustix::io::Errno::from_io_error(&error);
                    let errno = errno.unwrap_or(rustix::io::Errno::IO);
                    return Err(SpawnError::setup("make the control group", errno));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes an empty group back.
    pub(crate) fn put(&mut self, limits: Resources, group: Group) {
        let idle: usize = self.idle.values().map(Vec::len).sum();
        if idle < IDLE_MAX {
            self.idle.entry(limits).or_default().push(group);
        } else {
            self.discard(group);
        }
    }

    /// Removes a group that is not to be used again.
    pub(crate) fn discard(&self, group: Group) {
        // What stays is found by the sweep of the next start.
        let _ = group.remove();
    }

    /// Removes all idle groups and the parent.
    pub(crate) fn close(&mut self) {
        for group in std::mem::take(&mut self.idle).into_values().flatten() {
            self.discard(group);
        }
        for (_, directory) in &self.base.directories {
            let _ = super::group::remove_directory(&directory.join(&self.name));
        }
    }
}
