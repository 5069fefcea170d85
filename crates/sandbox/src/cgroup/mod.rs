//! Control groups: found, created below where this process sits, limited, read back,
//! emptied and removed. It promises that a limit which did not take is an error, and that
//! it touches no group it did not make. It must not know whose processes are in them.

mod group;
mod pool;
mod sweep;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

pub(crate) use group::{Events, Group};
pub(crate) use pool::Pool;
pub(crate) use sweep::sweep;

/// What a group can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// Which of the kernel's two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// The directories below which groups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) version: Version,
    /// One for each controller on v1; the same one for all on v2.
    pub(crate) directories: Vec<(Controller, PathBuf)>,
}

impl Base {
    /// Where this process may make groups: on v1 below its own, in each hierarchy; on v2
    /// beside its own, because a group with members gives its children no controllers.
    pub(crate) fn find() -> io::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let v1 = Self::v1(&own, &mounts);
        if !v1.directories.is_empty() {
            return Ok(v1);
        }
        Self::v2(&own, &mounts).ok_or_else(|| io::Error::from(Errno::NOENT))
    }

    fn v1(own: &str, mounts: &str) -> Self {
        let directory = |controller: Controller| {
            let path = own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let names = fields.next()?;
                let path = fields.next()?;
                names
                    .split(',')
                    .any(|n| n == controller.name())
                    .then_some(path)
            })?;
            let mount = Mount::find(mounts, "cgroup", Some(controller.name()))?;
            Some((controller, mount.place(path)?))
        };
        Self {
            version: Version::V1,
            directories: Controller::ALL.into_iter().filter_map(directory).collect(),
        }
    }

    fn v2(own: &str, mounts: &str) -> Option<Self> {
        let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let mount = Mount::find(mounts, "cgroup2", None)?;
        let own = mount.place(path)?;
        let base = if own == mount.point {
            own
        } else {
            own.parent()?.to_owned()
        };
        Some(Self {
            version: Version::V2,
            directories: Controller::ALL.map(|c| (c, base.clone())).to_vec(),
        })
    }
}

/// One line of mountinfo.
struct Mount {
    point: PathBuf,
    root: String,
}

impl Mount {
    fn find(mounts: &str, kind: &str, option: Option<&str>) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut back = back.split(' ');
            let fits = back.next()? == kind
                && option.is_none_or(|option| {
                    back.nth(1)
                        .is_some_and(|all| all.split(',').any(|o| o == option))
                });
            let mut front = front.split(' ').skip(3);
            let root = front.next()?.to_owned();
            let point = PathBuf::from(front.next()?);
            fits.then_some(Self { point, root })
        })
    }

    /// Where the group with this path is seen through the mount.
    fn place(&self, path: &str) -> Option<PathBuf> {
        let below = if self.root == "/" {
            path
        } else {
            path.strip_prefix(self.root.as_str())?
        };
        Some(self.point.join(below.trim_start_matches('/')))
            .map(|path| path.components().collect::<PathBuf>())
            .filter(|path| !path.ends_with(Path::new("..")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 25 0:28 /kube/p /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn on_a_hybrid_machine_each_hierarchy_has_its_own_place() {
        let own = "4:memory:/a/b\n3:pids:/kube/p/q\n1:cpu,cpuacct:/\n0::/x\n";
        let base = Base::v1(own, HYBRID);
        let expected = [
            (
                Controller::Memory,
                PathBuf::from("/sys/fs/cgroup/memory/a/b"),
            ),
            (Controller::Pids, PathBuf::from("/sys/fs/cgroup/pids/q")),
            (Controller::Cpu, PathBuf::from("/sys/fs/cgroup/cpu")),
        ];
        assert_eq!(base.directories, expected);
    }

    #[test]
    fn on_v2_groups_are_made_beside_the_own_one() {
        let mounts = "33 25 0:29 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw";
        let place = |own: &str| Base::v2(own, mounts).unwrap().directories[0].1.clone();
        let unit = "0::/system.slice/detent.service/supervisor\n";
        assert_eq!(
            place(unit),
            PathBuf::from("/sys/fs/cgroup/system.slice/detent.service")
        );
        assert_eq!(place("0::/\n"), PathBuf::from("/sys/fs/cgroup"));
        assert!(Base::v1(unit, mounts).directories.is_empty());
    }
}
