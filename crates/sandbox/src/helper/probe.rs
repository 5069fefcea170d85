//! Trying each protection by using it, in a process that is thrown away. It promises that
//! what it reports as present has worked a moment ago, for this user, in this place.

use std::io::Write;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};

use super::ids::Ids;
use crate::cgroup::{Base, Controller, Group, Version};
use crate::error::SpawnError;
use crate::feature::{Feature, FeatureTable, Finding};
use crate::policy::Resources;
use crate::sys::{self, Forked, OneThread};

const USER: u64 = libc::CLONE_NEWUSER as u64;

/// What was found, and how the sandbox is to be built from it.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) table: FeatureTable,
    pub(super) ids: Ids,
    pub(super) groups: Option<(Base, Vec<Controller>)>,
}

/// Tries everything.
pub(super) fn probe(proof: OneThread) -> Machine {
    let mut table = FeatureTable::default();
    let ids = user_namespace(proof, &mut table);
    let namespaces = [
        (
            Feature::MountNamespace,
            libc::CLONE_NEWNS,
            "a mount namespace",
        ),
        (Feature::PidNamespace, libc::CLONE_NEWPID, "a pid namespace"),
        (
            Feature::NetworkNamespace,
            libc::CLONE_NEWNET,
            "a network namespace",
        ),
        (
            Feature::IpcNamespace,
            libc::CLONE_NEWIPC,
            "an ipc namespace",
        ),
        (Feature::UtsNamespace, libc::CLONE_NEWUTS, "a uts namespace"),
    ];
    for (feature, flag, what) in namespaces {
        let flags = USER | u64::from(flag.cast_unsigned());
        let tried = in_child(proof, flags, ids, || Ok(()));
        table.put(feature, finding(tried, "", &format!("clone3 with {what}")));
    }
    table.put(
        Feature::Proc,
        finding(new_proc(proof, ids), "", "mount a new /proc"),
    );
    table.put(
        Feature::NoNewPrivileges,
        finding(
            in_child(proof, 0, ids, || rustix::thread::set_no_new_privs(true)),
            "",
            "prctl",
        ),
    );
    table.put(
        Feature::Seccomp,
        finding(
            sys::seccomp_filters(),
            "",
            "seccomp(SECCOMP_GET_ACTION_AVAIL)",
        ),
    );
    let landlock = match sys::landlock_abi() {
        Ok(abi) => Finding::Present(landlock(abi)),
        Err(errno) => missing("landlock_create_ruleset", errno),
    };
    table.put(Feature::Landlock, landlock);
    let groups = control_groups(proof, &mut table);
    Machine { table, ids, groups }
}

/// What a version of landlock can do; what it cannot is held by namespaces and seccomp.
fn landlock(abi: u32) -> String {
    let later = [
        (2, "renames across folders"),
        (3, "truncating files"),
        (4, "ports"),
        (5, "device commands"),
        (6, "signals and abstract sockets"),
    ];
    let lacking: Vec<_> = later
        .into_iter()
        .filter(|(since, _)| abi < *since)
        .collect();
    let names: Vec<_> = lacking.into_iter().map(|(_, what)| what).collect();
    if names.is_empty() {
        return format!("version {abi}");
    }
    format!("version {abi}, without rules about {}", names.join(", "))
}

/// Prefers users of the sandbox's own; a root that is itself in a container may have none
/// to give.
fn user_namespace(proof: OneThread, table: &mut FeatureTable) -> Ids {
    let ids = Ids::preferred();
    let mut tried = in_child(proof, USER, ids, || ids.become_first());
    let mut used = ids;
    if tried.is_err() && ids != Ids::own() {
        used = Ids::own();
        tried = in_child(proof, USER, used, || Ok(()));
    }
    let how = match used {
        Ids::Apart => "users of its own",
        Ids::Own { .. } => "mapped to this user",
    };
    table.put(
        Feature::UserNamespace,
        finding(tried, how, "clone3 with a user namespace"),
    );
    used
}

fn new_proc(proof: OneThread, ids: Ids) -> Result<(), Errno> {
    let flags = USER | (libc::CLONE_NEWNS | libc::CLONE_NEWPID) as u64;
    in_child(proof, flags, ids, || {
        ids.become_first()?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("proc", "/proc", "proc", flags, Some(c"subset=pid"))
    })
}

/// Runs `step` in a child made with `flags`, whose users are mapped when it has its own.
fn in_child(
    proof: OneThread,
    flags: u64,
    ids: Ids,
    step: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (gate, open) = pipe_with(PipeFlags::CLOEXEC)?;
    match sys::clone3(proof, flags)? {
        Forked::Child => {
            drop(open);
            let passed = rustix::io::read(&gate, &mut [0; 1]);
            let done = if passed == Ok(1) {
                step()
            } else {
                Err(Errno::PIPE)
            };
            sys::exit_now(done.map_or_else(Errno::raw_os_error, |()| 0))
        }
        Forked::Parent { pid, pidfd } => {
            let mapped = if flags & USER == 0 {
                Ok(())
            } else {
                ids.write_maps(pid)
            };
            if mapped.is_ok() {
                rustix::io::write(&open, b"x")?;
            }
            drop(open);
            let end = wait(pid, pidfd.as_fd());
            mapped.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            end
        }
    }
}

/// Waits for a child whose exit status is an error number.
fn wait(pid: Pid, pidfd: std::os::fd::BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match sys::reap(pid)? {
            Some((sys::End::Exited(0), _)) => return Ok(()),
            Some((sys::End::Exited(errno), _)) => return Err(Errno::from_raw_os_error(errno)),
            Some((sys::End::Signaled(_), _)) => return Err(Errno::INTR),
            None => {
                let mut fds = [rustix::event::PollFd::new(
                    &pidfd,
                    rustix::event::PollFlags::IN,
                )];
                let _ = rustix::event::poll(&mut fds, None);
            }
        }
    }
}

/// Each controller by making a group with a limit and putting a process into it: outside
/// of what is delegated, everything works but the last.
fn control_groups(proof: OneThread, table: &mut FeatureTable) -> Option<(Base, Vec<Controller>)> {
    let base = Base::find().ok();
    let mut works = Vec::new();
    for controller in Controller::ALL {
        let feature = match controller {
            Controller::Memory => Feature::CgroupMemory,
            Controller::Pids => Feature::CgroupPids,
            Controller::Cpu => Feature::CgroupCpu,
        };
        let tried = match &base {
            Some(base) => place(proof, base, controller),
            None => Err(SpawnError::setup("find the control groups", Errno::NOENT)),
        };
        let found = match tried {
            Ok(version) => {
                works.push(controller);
                Finding::Present(match version {
                    Version::V1 => "cgroup v1".to_owned(),
                    Version::V2 => "cgroup v2".to_owned(),
                })
            }
            Err(error) => {
                let (tried, errno) = match error {
                    SpawnError::Setup { stage, errno } => (stage, errno),
                    other => (other.to_string(), 0),
                };
                Finding::Missing { tried, errno }
            }
        };
        table.put(feature, found);
    }
    base.filter(|_| !works.is_empty()).map(|base| (base, works))
}

fn place(proof: OneThread, base: &Base, controller: Controller) -> Result<Version, SpawnError> {
    let only = Base {
        version: base.version,
        directories: base
            .directories
            .iter()
            .filter(|(c, _)| *c == controller)
            .cloned()
            .collect(),
    };
    if only.directories.is_empty() {
        return Err(SpawnError::setup("find the controller", Errno::NOENT));
    }
    let limits = Resources {
        memory_mib_max: 64,
        processes_max: 8,
        cpu_percent_max: 50,
        open_files_max: 8,
    };
    let name = format!("detent-probe-{}", rustix::process::getpid().as_raw_pid());
    let group = match Group::create(&only, &name, limits) {
        Ok(group) => group,
        Err(error) => {
            for (_, directory) in &only.directories {
                let _ = std::fs::remove_dir(directory.join(&name));
            }
            return Err(error);
        }
    };
    let placed = place_child(proof, &group);
    let emptied = group.empty();
    let removed = group.remove();
    placed.map_err(|errno| SpawnError::setup("place a process in a control group", errno))?;
    emptied.map_err(|_| SpawnError::setup("empty a control group", Errno::BUSY))?;
    removed
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
        .map_err(|errno| SpawnError::setup("remove a control group", errno))?;
    Ok(base.version)
}

fn place_child(proof: OneThread, group: &Group) -> Result<(), Errno> {
    let (gate, open) = pipe_with(PipeFlags::CLOEXEC)?;
    let Forked::Parent { pid, pidfd } = sys::clone3(proof, 0)? else {
        drop(open);
        let _ = rustix::io::read(&gate, &mut [0; 1]);
        sys::exit_now(0)
    };
    let admitted = group.admit(pid);
    let seen = group.members().contains(&pid);
    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
    let _ = std::fs::File::from(open).write(b"x");
    let _ = wait(pid, pidfd.as_fd());
    admitted.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    if seen { Ok(()) } else { Err(Errno::SRCH) }
}

fn finding(tried: Result<(), Errno>, how: &str, what: &str) -> Finding {
    match tried {
        Ok(()) => Finding::Present(how.to_owned()),
        Err(errno) => missing(what, errno),
    }
}

fn missing(what: &str, errno: Errno) -> Finding {
    Finding::Missing {
        tried: what.to_owned(),
        errno: errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_old_landlock_lacks_is_said() {
        assert_eq!(landlock(7), "version 7");
        let old = landlock(3);
        assert!(
            old.contains("ports") && !old.contains("truncating"),
            "{old}"
        );
    }
}
