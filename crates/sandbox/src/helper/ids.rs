//! Which users a sandbox has, and who they are outside. It promises that the program is
//! never the host's root, nor root of its own namespace.

use std::fs;
use std::io;

use rustix::process::{Gid, Pid, Uid};

/// The first of the ids outside that sandboxes of a privileged helper use: above what
/// distributions hand out to users, containers and services.
const FIRST_OUTSIDE: u32 = 1_900_000_000;
/// The program's user and group inside.
pub(crate) const TOOL: u32 = 1000;

/// How users inside map to users outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// Two users that own nothing outside: the sandbox's first process and the program.
    Apart,
    /// One user: the helper's own. All that an unprivileged helper may map.
    Own {
        /// Outside.
        uid: u32,
        /// Outside.
        gid: u32,
    },
}

impl Ids {
    /// What to try first for this process's user.
    pub(crate) fn preferred() -> Self {
        if rustix::process::geteuid().is_root() {
            return Self::Apart;
        }
        Self::own()
    }

    /// The helper's own user.
    pub(crate) fn own() -> Self {
        Self::Own {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Writes the maps of the user namespace that `pid` is in.
    pub(crate) fn write_maps(self, pid: Pid) -> io::Result<()> {
        let pid = pid.as_raw_pid();
        let (uids, gids) = match self {
            Self::Apart => {
                let both = format!("0 {FIRST_OUTSIDE} 1\n{TOOL} {} 1\n", FIRST_OUTSIDE + TOOL);
                (both.clone(), both)
            }
            Self::Own { uid, gid } => {
                // Without this an unprivileged process may not map groups.
                fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
                (format!("{TOOL} {uid} 1\n"), format!("{TOOL} {gid} 1\n"))
            }
        };
        fs::write(format!("/proc/{pid}/uid_map"), uids)?;
        fs::write(format!("/proc/{pid}/gid_map"), gids)
    }

    /// The program's user and group outside, for files it should own.
    pub(crate) fn outside(self) -> (Uid, Gid) {
        match self {
            Self::Apart => {
                let id = FIRST_OUTSIDE + TOOL;
                (Uid::from_raw(id), Gid::from_raw(id))
            }
            Self::Own { uid, gid } => (Uid::from_raw(uid), Gid::from_raw(gid)),
        }
    }

    /// Becomes the first user inside; before any mount, which would be owned by nobody.
    pub(super) fn become_first(self) -> rustix::io::Result<()> {
        match self {
            Self::Apart => become_user(0),
            Self::Own { .. } => Ok(()),
        }
    }

    /// Becomes the program's user.
    pub(super) fn become_tool(self) -> rustix::io::Result<()> {
        match self {
            Self::Apart => become_user(TOOL),
            Self::Own { .. } => Ok(()),
        }
    }
}

fn become_user(id: u32) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}
