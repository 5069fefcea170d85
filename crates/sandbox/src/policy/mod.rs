//! What a sandbox permits, as data: read from TOML, checked as a whole before anything
//! is run. It promises that a policy that loads can be carried out on a machine that has
//! all features. It must not know how.

mod file;
pub(crate) mod syscalls;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::SpawnError;
use crate::feature::Feature;

/// What the program's working directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// The caller's directory, which the program may change. Its size is bounded by the
    /// file system it lies on and [`Files::file_mib_max`] a file, not in sum.
    ReadWrite,
    /// The caller's directory, which the program may only read.
    ReadOnly,
    /// An empty one in memory, gone at the end, of at most [`Files::work_mib_max`].
    Scratch,
}

/// The file tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Paths of the host that the program sees at the same place, read-only. One that the
    /// host lacks is left out; a symbolic link is made again as a link.
    pub read_only: Vec<PathBuf>,
    /// Small files that exist only in the sandbox: path and content.
    pub written: BTreeMap<PathBuf, String>,
    /// Device files, by their names under `/dev`.
    pub devices: Vec<String>,
    /// Size of `/tmp` in MiB.
    pub tmp_mib_max: u32,
    /// Files and directories in `/tmp`, and in a scratch working directory.
    pub tmp_files_max: u32,
    /// Size of `/dev/shm` in MiB.
    pub shm_mib_max: u32,
    /// The largest single file the program may write, in MiB.
    pub file_mib_max: u32,
    /// What the working directory is.
    pub work: Work,
    /// Where the program sees it.
    pub work_at: PathBuf,
    /// Size of a scratch working directory in MiB.
    pub work_mib_max: u32,
    /// What in the working directory stays read-only when it is there already.
    pub work_protected: Vec<PathBuf>,
}

/// Bounds on what the whole tree may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    /// Memory of all processes, and of what they keep in `/tmp` and `/dev/shm`, in MiB.
    pub memory_mib_max: u32,
    /// Processes and threads.
    pub processes_max: u32,
    /// Processor time in percent of one processor.
    pub cpu_percent_max: u32,
    /// Open files of one process.
    pub open_files_max: u32,
}

/// What the program may reach over the network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Network {
    /// `host:port`, each reached through the egress proxy. Empty: no network at all.
    pub allow: Vec<String>,
    /// Allowed names that may resolve to private or loopback addresses.
    pub allow_private: Vec<String>,
}

/// What a sandbox permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Protections that may be absent. Everything else that the machine lacks refuses the
    /// run.
    pub allow_degraded: Vec<Feature>,
    /// The file tree.
    pub files: Files,
    /// Bounds on what the whole tree may use.
    pub resources: Resources,
    /// The network.
    pub network: Network,
    /// System calls that fail with EPERM, by name.
    pub denied_calls: Vec<String>,
    /// Address families of sockets; others fail with EPERM.
    pub socket_families: Vec<String>,
    /// Environment that every run has unless its specification says otherwise.
    pub environment: BTreeMap<String, String>,
}

impl Policy {
    /// Names of the policies that come with this crate.
    pub const BUILTIN: [&str; 6] = ["default", "python", "node", "java", "native", "network"];

    /// A policy that comes with this crate.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] when there is none of this name.
    pub fn builtin(name: &str) -> Result<Self, SpawnError> {
        let text = file::builtin(name).ok_or_else(|| wrong(name, "there is none of this name"))?;
        Self::from_toml(name, text)
    }

    /// A policy from the text of a file; `name` stands in errors.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] with the place and the reason.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, SpawnError> {
        let policy = file::parse(name, text)?;
        policy.check()?;
        Ok(policy)
    }

    /// All its values as a file would say them, without what it extends.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] when a path of it is no text.
    pub fn to_toml(&self) -> Result<String, SpawnError> {
        file::write(self).map_err(|reason| wrong(&self.name, &reason))
    }

    /// Whether the program has a way out through the egress proxy.
    #[must_use]
    pub fn has_network(&self) -> bool {
        !self.network.allow.is_empty()
    }

    fn check(&self) -> Result<(), SpawnError> {
        self.check_paths()?;
        self.check_bounds()?;
        for call in &self.denied_calls {
            if !syscalls::is_known(call) {
                return Err(wrong(&self.name, &format!("no system call {call:?}")));
            }
        }
        for family in &self.socket_families {
            if syscalls::socket_family(family).is_none() {
                return Err(wrong(&self.name, &format!("no socket family {family:?}")));
            }
        }
        crate::egress::Rules::new(&self.network)
            .map(drop)
            .map_err(|reason| wrong(&self.name, &reason))
    }

    fn check_paths(&self) -> Result<(), SpawnError> {
        let files = &self.files;
        let absolute = files.read_only.iter().chain(files.written.keys());
        for path in absolute.chain([&files.work_at]) {
            if !path.is_absolute() || !is_plain(path) || path.parent().is_none() {
                let reason = format!("{} is not a plain absolute path", path.display());
                return Err(wrong(&self.name, &reason));
            }
        }
        for path in &files.work_protected {
            if path.is_absolute() || !is_plain(path) {
                let reason = format!("{} is not a plain relative path", path.display());
                return Err(wrong(&self.name, &reason));
            }
        }
        let device = |name: &String| !name.is_empty() && !name.contains(['/', '.']);
        match files.devices.iter().find(|name| !device(name)) {
            Some(name) => Err(wrong(&self.name, &format!("no device name: {name:?}"))),
            None => Ok(()),
        }
    }

    fn check_bounds(&self) -> Result<(), SpawnError> {
        const MIB_MAX: u32 = 1 << 20;
        let (files, resources) = (&self.files, &self.resources);
        let bounds = [
            ("tmp_mib_max", files.tmp_mib_max, MIB_MAX),
            ("tmp_files_max", files.tmp_files_max, 10_000_000),
            ("shm_mib_max", files.shm_mib_max, MIB_MAX),
            ("file_mib_max", files.file_mib_max, MIB_MAX),
            ("work_mib_max", files.work_mib_max, MIB_MAX),
            ("memory_mib_max", resources.memory_mib_max, MIB_MAX),
            ("processes_max", resources.processes_max, 4_000_000),
            ("cpu_percent_max", resources.cpu_percent_max, 100_000),
            ("open_files_max", resources.open_files_max, 1_000_000),
        ];
        for (what, value, max) in bounds {
            if value == 0 || value > max {
                let reason = format!("{what} is {value}, not 1 to {max}");
                return Err(wrong(&self.name, &reason));
            }
        }
        Ok(())
    }
}

/// Without `..` and `.`, so that it names the place it seems to.
fn is_plain(path: &std::path::Path) -> bool {
    use std::path::Component;
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    path.components().all(plain) && path.to_str().is_some_and(|text| !text.contains('\0'))
}

fn wrong(policy: &str, reason: &str) -> SpawnError {
    SpawnError::Policy {
        policy: policy.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_that_comes_along_loads() {
        for name in Policy::BUILTIN {
            let policy = Policy::builtin(name).unwrap();
            assert_eq!(policy.name, name);
            assert_eq!(
                policy.allow_degraded,
                [],
                "{name} must not degrade by itself"
            );
            let ptrace = policy.denied_calls.iter().any(|call| call == "ptrace");
            assert!(ptrace, "{name} extends the default");
        }
        assert!(Policy::builtin("no-such").is_err());
    }

    #[test]
    fn only_the_network_policy_has_a_network() {
        for name in Policy::BUILTIN {
            let policy = Policy::builtin(name).unwrap();
            assert_eq!(policy.has_network(), name == "network", "{name}");
        }
    }

    #[test]
    fn a_policy_extends_another_and_says_only_what_differs() {
        let text = "extends = \"default\"\n[files]\nread_only = [\"/opt/x\"]\n\
                    [resources]\nprocesses_max = 7\n";
        let default = Policy::builtin("default").unwrap();
        let policy = Policy::from_toml("mine", text).unwrap();
        assert_eq!(policy.resources.processes_max, 7);
        assert_eq!(
            policy.resources.memory_mib_max,
            default.resources.memory_mib_max
        );
        let more = policy.files.read_only.len() - default.files.read_only.len();
        assert_eq!(more, 1);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_place() {
        let cases = [
            ("[files]\nread_only = [\"usr\"]", "usr"),
            ("[files]\nread_only = [\"/usr/../etc\"]", "/usr/../etc"),
            ("[files]\nread_only = [\"/\"]", "plain absolute"),
            ("[files]\nwork_protected = [\"../x\"]", "../x"),
            ("[files]\ndevices = [\"../mem\"]", "mem"),
            ("[files]\ntmp_mib_max = 0", "tmp_mib_max"),
            ("[resources]\nmemory_mib_max = 2000000", "memory_mib_max"),
            ("[seccomp]\ndeny = [\"frobnicate\"]", "frobnicate"),
            ("[seccomp]\nsocket_families = [\"ax25\"]", "ax25"),
            ("[network]\nallow = [\"example.test\"]", "example.test"),
            ("allow_degraded = [\"hope\"]", "hope"),
            ("surprise = 1", "surprise"),
            ("extends = \"no-such\"", "no-such"),
        ];
        for (text, place) in cases {
            let text = if text.starts_with("extends") {
                text.to_owned()
            } else {
                format!("extends = \"default\"\n{text}")
            };
            let refused = Policy::from_toml("mine", &text).unwrap_err().to_string();
            assert!(refused.contains(place), "{text}: {refused}");
        }
    }

    #[test]
    fn a_policy_that_is_written_reads_as_the_same() {
        for name in Policy::BUILTIN {
            let policy = Policy::builtin(name).unwrap();
            let text = policy.to_toml().unwrap();
            assert_eq!(Policy::from_toml(name, &text).unwrap(), policy);
        }
    }

    #[test]
    fn a_policy_that_extends_nothing_has_to_say_everything() {
        let refused = Policy::from_toml("bare", "").unwrap_err().to_string();
        assert!(refused.contains("extends"), "{refused}");
    }
}
