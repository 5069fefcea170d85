//! The file tree of a sandbox: an empty read-only root with what the policy names. It
//! promises that nothing else of the host is reachable when it is done. It must not know
//! what will run there.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};

use crate::error::SpawnError;
use crate::policy::{Policy, Work};
use crate::sys;

/// Room for directories, links and the small files of a policy.
const ROOT_OPTIONS: [(&str, &str); 3] = [("size", "1m"), ("nr_inodes", "1024"), ("mode", "755")];
/// Where the new root is put for a moment. On top of the old one it hides nothing: paths
/// still begin below it.
const FOOTHOLD: &str = "/";

const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;

/// The caller's working directory.
pub(super) struct WorkDirectory {
    /// As the caller opened it.
    pub(super) opened: OwnedFd,
    /// A detached mount of it, where the helper was privileged to make one.
    pub(super) tree: Option<OwnedFd>,
    /// Its path, for a helper that was not.
    pub(super) path: PathBuf,
}

/// Makes the tree and enters it, and nothing of the old one is left.
pub(super) fn enter(policy: &Policy, work: Option<&WorkDirectory>) -> Result<(), SpawnError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    step(
        "make mounts private",
        rustix::mount::mount_change("/", private),
    )?;
    let builder = Builder::new()?;
    builder.place(policy, work)?;
    builder.become_root()
}

struct Builder {
    root: OwnedFd,
    made: std::cell::RefCell<BTreeSet<PathBuf>>,
}

impl Builder {
    fn new() -> Result<Self, SpawnError> {
        let root = step(
            "make the root",
            tmpfs(&ROOT_OPTIONS, MountAttrFlags::empty()),
        )?;
        let put = attach(root.as_fd(), rustix::fs::CWD, Path::new(FOOTHOLD));
        step("place the root", put)?;
        Ok(Self {
            root,
            made: std::cell::RefCell::default(),
        })
    }

    fn place(&self, policy: &Policy, work: Option<&WorkDirectory>) -> Result<(), SpawnError> {
        let files = &policy.files;
        for path in &files.read_only {
            self.host_path(path)?;
        }
        for (path, content) in &files.written {
            self.written(path, content)?;
        }
        for device in &files.devices {
            self.device(device)?;
        }
        for (link, target) in [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
        ] {
            step(
                "link a device",
                rustix::fs::symlinkat(target, &self.root, inner(Path::new(link))),
            )?;
        }
        let size = |mib: u32| format!("{mib}m");
        let inodes = files.tmp_files_max.to_string();
        let no_exec = MountAttrFlags::MOUNT_ATTR_NOEXEC;
        self.memory(
            "/tmp",
            &size(files.tmp_mib_max),
            &inodes,
            MountAttrFlags::empty(),
        )?;
        self.memory("/dev/shm", &size(files.shm_mib_max), "1024", no_exec)?;
        self.work(policy, work)?;
        self.proc()
    }

    /// A path of the host at the same place, read-only; skipped where the host lacks it.
    fn host_path(&self, path: &Path) -> Result<(), SpawnError> {
        let Ok(found) = rustix::fs::lstat(path) else {
            return Ok(());
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => self.same_link(path),
            FileType::Directory => self.bind(path, path, READ_ONLY | NO_SUID | NO_DEVICES, true),
            FileType::RegularFile => self.bind(path, path, READ_ONLY | NO_SUID | NO_DEVICES, false),
            _ => Err(SpawnError::Policy {
                policy: path.display().to_string(),
                reason: "neither a file nor a directory nor a link".to_owned(),
            }),
        }
    }

    fn same_link(&self, path: &Path) -> Result<(), SpawnError> {
        let target = step("read a link", rustix::fs::readlink(path, Vec::new()))?;
        self.directories(path.parent().unwrap_or(path))?;
        step(
            "make a link",
            rustix::fs::symlinkat(target, &self.root, inner(path)),
        )
    }

    fn bind(&self, from: &Path, to: &Path, attributes: u64, whole: bool) -> Result<(), SpawnError> {
        let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        if whole {
            flags |= OpenTreeFlags::AT_RECURSIVE;
        }
        let tree = rustix::mount::open_tree(rustix::fs::CWD, from, flags);
        self.attach(
            step("open a host path", tree)?.as_fd(),
            to,
            attributes,
            whole,
        )
    }

    fn attach(
        &self,
        tree: BorrowedFd<'_>,
        to: &Path,
        attributes: u64,
        directory: bool,
    ) -> Result<(), SpawnError> {
        step(
            "restrict a mount",
            sys::mount_setattr(tree, attributes, directory),
        )?;
        if directory {
            self.directories(to)?;
        } else {
            self.directories(to.parent().unwrap_or(to))?;
            drop(self.file(to)?);
        }
        step("place a mount", attach(tree, self.root.as_fd(), inner(to)))
    }

    fn file(&self, at: &Path) -> Result<OwnedFd, SpawnError> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o644);
        step(
            "make a file",
            rustix::fs::openat(&self.root, inner(at), flags, mode),
        )
    }

    fn written(&self, at: &Path, content: &str) -> Result<(), SpawnError> {
        self.directories(at.parent().unwrap_or(at))?;
        let mut file = fs::File::from(self.file(at)?);
        let text = content.strip_prefix('\n').unwrap_or(content);
        file.write_all(text.as_bytes())
            .map_err(|error| errno_of(&error))
            .map_err(|errno| SpawnError::setup("write a file", errno))
    }

    fn device(&self, name: &str) -> Result<(), SpawnError> {
        let path = Path::new("/dev").join(name);
        // Not read-only: writing to the device is what it is for.
        self.bind(&path, &path, NO_SUID, false)
    }

    fn memory(
        &self,
        at: &str,
        size: &str,
        inodes: &str,
        more: MountAttrFlags,
    ) -> Result<(), SpawnError> {
        let at = Path::new(at);
        self.directories(at)?;
        let options = [("size", size), ("nr_inodes", inodes), ("mode", "1777")];
        let mount = step("make a file system in memory", tmpfs(&options, more))?;
        step(
            "place a file system",
            attach(mount.as_fd(), self.root.as_fd(), inner(at)),
        )
    }

    fn proc(&self) -> Result<(), SpawnError> {
        self.directories(Path::new("/proc"))?;
        step("enter the root", rustix::process::fchdir(&self.root))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let data = Some(c"subset=pid,hidepid=invisible");
        let mounted = rustix::mount::mount("proc", "proc", "proc", flags, data);
        step("mount /proc", mounted)
    }

    fn work(&self, policy: &Policy, work: Option<&WorkDirectory>) -> Result<(), SpawnError> {
        let files = &policy.files;
        let at = &files.work_at;
        let Some(work) = work.filter(|_| files.work != Work::Scratch) else {
            let size = format!("{}m", files.work_mib_max);
            let inodes = files.tmp_files_max.to_string();
            self.directories(at)?;
            let options = [("size", &*size), ("nr_inodes", &*inodes), ("mode", "1777")];
            let mount = step(
                "make a work directory",
                tmpfs(&options, MountAttrFlags::empty()),
            )?;
            let placed = attach(mount.as_fd(), self.root.as_fd(), inner(at));
            return step("place the work directory", placed);
        };
        let reopened;
        let tree = if let Some(tree) = &work.tree {
            tree.as_fd()
        } else {
            reopened = step("open the work directory", reopen(work))?;
            reopened.as_fd()
        };
        let read_only = files.work == Work::ReadOnly;
        let attributes = NO_SUID | NO_DEVICES | if read_only { READ_ONLY } else { 0 };
        self.attach(tree, at, attributes, true)?;
        if read_only {
            return Ok(());
        }
        let mut pinned = BTreeSet::new();
        for path in &files.work_protected {
            self.protect(at, path, &mut pinned)?;
        }
        Ok(())
    }

    /// Makes a path in the work directory read-only, and pins the directories on the way:
    /// a mount point cannot be renamed away to make room for another.
    fn protect(
        &self,
        work: &Path,
        path: &Path,
        pinned: &mut BTreeSet<PathBuf>,
    ) -> Result<(), SpawnError> {
        let mut at = work.to_owned();
        let names: Vec<_> = path.components().collect();
        for (index, name) in names.iter().enumerate() {
            let Component::Normal(name) = name else {
                continue;
            };
            at.push(name);
            // A link on the way, or put there meanwhile, is not followed: what another run
            // in the same directory may change must not lead elsewhere.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let opened = rustix::fs::openat2(&self.root, inner(&at), flags, Mode::empty(), strict);
            let Ok(place) = opened else { return Ok(()) };
            let found = step("look at a path", rustix::fs::fstat(&place))?;
            let kind = FileType::from_raw_mode(found.st_mode);
            if !matches!(kind, FileType::Directory | FileType::RegularFile) {
                return Ok(());
            }
            let last = index + 1 == names.len();
            if last || pinned.insert(at.clone()) {
                rebind(place.as_fd(), last, kind == FileType::Directory)?;
            }
        }
        Ok(())
    }

    /// Makes a directory and those above it.
    fn directories(&self, path: &Path) -> Result<(), SpawnError> {
        let mut at = PathBuf::from("/");
        for part in path.components() {
            let Component::Normal(name) = part else {
                continue;
            };
            at.push(name);
            if !self.made.borrow_mut().insert(at.clone()) {
                continue;
            }
            match rustix::fs::mkdirat(&self.root, inner(&at), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(SpawnError::setup("make a directory", errno)),
            }
        }
        Ok(())
    }

    /// The new root takes the place of the old one, which goes out of reach.
    fn become_root(self) -> Result<(), SpawnError> {
        step("enter the root", rustix::process::fchdir(&self.root))?;
        step("change the root", rustix::process::pivot_root(".", "."))?;
        step(
            "let go of the old root",
            rustix::mount::unmount(".", UnmountFlags::DETACH),
        )?;
        step("enter the root", rustix::process::chdir("/"))?;
        let attributes = READ_ONLY | NO_SUID | NO_DEVICES;
        let sealed = sys::mount_setattr(self.root.as_fd(), attributes, false);
        step("make the root read-only", sealed)
    }
}

/// The working directory once more, seen from this namespace: the same one, or none.
fn reopen(work: &WorkDirectory) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let again = rustix::fs::open(&work.path, flags, Mode::empty())?;
    let same = |a: &Stat, b: &Stat| a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    if !same(
        &rustix::fs::fstat(&again)?,
        &rustix::fs::fstat(&work.opened)?,
    ) {
        return Err(Errno::STALE);
    }
    clone_tree(again.as_fd())
}

/// Mounts an open file or directory over itself.
fn rebind(place: BorrowedFd<'_>, read_only: bool, directory: bool) -> Result<(), SpawnError> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if directory {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let tree = step("protect a path", rustix::mount::open_tree(place, "", flags))?;
    let attributes = NO_SUID | NO_DEVICES | if read_only { READ_ONLY } else { 0 };
    step(
        "restrict a mount",
        sys::mount_setattr(tree.as_fd(), attributes, directory),
    )?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    step(
        "place a mount",
        rustix::mount::move_mount(&tree, "", place, "", both),
    )
}

/// A detached mount of an open directory.
pub(super) fn clone_tree(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(directory, "", flags)
}

fn tmpfs(options: &[(&str, &str)], more: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | more;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn attach(mount: BorrowedFd<'_>, root: BorrowedFd<'_>, to: &Path) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", root, to, flags)
}

/// A path of the sandbox, relative to its root.
fn inner(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn step<T>(stage: &str, done: Result<T, Errno>) -> Result<T, SpawnError> {
    done.map_err(|errno| SpawnError::setup(stage, errno))
}
