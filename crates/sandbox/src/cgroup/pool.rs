//! The groups of one helper: all below one group that names it, so that what it leaves
//! when it is killed is found.

use super::{Base, Controller, Group, Version, sweep};
use crate::error::SpawnError;
use crate::policy::Resources;

/// Where a helper's groups are.
#[derive(Debug)]
pub(crate) struct Pool {
    base: Base,
    name: String,
    made: u64,
}

impl Pool {
    /// Below `base`, for this process; makes nothing yet. Controllers that do not work
    /// here are left out by the caller.
    pub(crate) fn new(mut base: Base, controllers: &[Controller]) -> Self {
        base.directories.retain(|(c, _)| controllers.contains(c));
        Self {
            base,
            name: sweep::own_name(),
            made: 0,
        }
    }

    /// A new, empty group with these limits.
    pub(crate) fn make(&mut self, limits: Resources) -> Result<Group, SpawnError> {
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
            if self.base.version == Version::V2 {
                // Fails where they are enabled already; the limits are read back.
                let controllers = "+memory +pids +cpu";
                let _ = std::fs::write(directory.join("cgroup.subtree_control"), controllers);
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

    /// Removes a group that is not to be used again.
    pub(crate) fn discard(&self, group: Group) {
        // What stays is found by the sweep of the next start.
        let _ = group.remove();
    }

    /// Removes the parent, after its groups.
    pub(crate) fn close(&mut self) {
        for (_, directory) in &self.base.directories {
            let _ = super::group::remove_directory(&directory.join(&self.name));
        }
    }
}
