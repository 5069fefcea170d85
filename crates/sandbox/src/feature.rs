//! What the kernel and its administrator let us confine with: names, findings, remedies.
//! It must not know how a feature is tried.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::SpawnError;

/// One protection that a machine may or may not offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Users of the sandbox's own: no file, process or capability of the host's users.
    UserNamespace,
    /// A file tree of its own.
    MountNamespace,
    /// Processes of its own, all dead when the first one is.
    PidNamespace,
    /// Network devices of its own: none.
    NetworkNamespace,
    /// System V and POSIX message queues, semaphores and memory of its own.
    IpcNamespace,
    /// A host name of its own.
    UtsNamespace,
    /// A `/proc` that shows the sandbox's processes only.
    Proc,
    /// A hard limit on memory.
    CgroupMemory,
    /// A hard limit on the number of processes.
    CgroupPids,
    /// A limit on processor time per period.
    CgroupCpu,
    /// Rules about files and ports that hold whatever is mounted.
    Landlock,
    /// System calls that fail.
    Seccomp,
    /// Set-user-ID programs gain nothing.
    NoNewPrivileges,
}

impl Feature {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::PidNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::Proc,
        Self::CgroupMemory,
        Self::CgroupPids,
        Self::CgroupCpu,
        Self::Landlock,
        Self::Seccomp,
        Self::NoNewPrivileges,
    ];

    /// The name that policies and reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user-namespace",
            Self::MountNamespace => "mount-namespace",
            Self::PidNamespace => "pid-namespace",
            Self::NetworkNamespace => "network-namespace",
            Self::IpcNamespace => "ipc-namespace",
            Self::UtsNamespace => "uts-namespace",
            Self::Proc => "proc",
            Self::CgroupMemory => "cgroup-memory",
            Self::CgroupPids => "cgroup-pids",
            Self::CgroupCpu => "cgroup-cpu",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::NoNewPrivileges => "no-new-privileges",
        }
    }

    /// What an administrator can do about its absence.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::UserNamespace => {
                "allow user namespaces: sysctl user.max_user_namespaces above 0, \
                 kernel.unprivileged_userns_clone=1, and on Ubuntu an AppArmor profile with \
                 `userns,` for this program"
            }
            Self::MountNamespace
            | Self::PidNamespace
            | Self::NetworkNamespace
            | Self::IpcNamespace
            | Self::UtsNamespace => {
                "give the process user namespaces, or run it as root outside a container that \
                 filters clone(2); look at sysctl user.max_*_namespaces"
            }
            Self::Proc => {
                "a container that hides parts of /proc forbids a new one: run it with \
                 --security-opt systempaths=unconfined (Kubernetes: procMount: Unmasked)"
            }
            Self::CgroupMemory | Self::CgroupPids | Self::CgroupCpu => {
                "delegate the controllers: in the systemd unit Delegate=cpu memory pids and \
                 DelegateSubgroup=supervisor; in a container a writable cgroup namespace"
            }
            Self::Landlock => {
                "a kernel of 5.13 or later with `landlock` in its list of security modules \
                 (boot with lsm=landlock,…)"
            }
            Self::Seccomp => "a kernel with CONFIG_SECCOMP_FILTER",
            Self::NoNewPrivileges => "a kernel of 3.5 or later",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What trying a feature showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// It works; how, in a word.
    Present(String),
    /// It does not: what failed, and the system's error number.
    Missing {
        /// What was tried when it failed.
        tried: String,
        /// The system's error number, 0 where there is none.
        errno: i32,
    },
}

/// What was found for each feature on this machine, for this user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeatureTable {
    rows: Vec<(Feature, Finding)>,
}

impl FeatureTable {
    /// Puts a finding in place of an earlier one.
    pub(crate) fn put(&mut self, feature: Feature, finding: Finding) {
        self.rows.retain(|(known, _)| *known != feature);
        self.rows.push((feature, finding));
        self.rows.sort_by_key(|(feature, _)| *feature);
    }

    /// All findings, in the order of [`Feature::ALL`].
    #[must_use]
    pub fn rows(&self) -> &[(Feature, Finding)] {
        &self.rows
    }

    /// Whether the feature was tried and works.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        let present =
            |row: &(Feature, Finding)| row.0 == feature && matches!(row.1, Finding::Present(_));
        self.rows.iter().any(present)
    }

    /// The features that do not work.
    #[must_use]
    pub fn missing(&self) -> Vec<Feature> {
        Feature::ALL.into_iter().filter(|f| !self.has(*f)).collect()
    }

    /// Refuses when a feature is missing whose absence is not `allowed` by name.
    ///
    /// # Errors
    /// [`SpawnError::FeatureMissing`] for the first such feature.
    pub fn require(&self, allowed: &[Feature]) -> Result<(), SpawnError> {
        let refused = self.missing().into_iter().find(|f| !allowed.contains(f));
        let Some(feature) = refused else {
            return Ok(());
        };
        let found = self.rows.iter().find(|(known, _)| *known == feature);
        let (tried, errno) = match found {
            Some((_, Finding::Missing { tried, errno })) => (tried.clone(), *errno),
            _ => ("it was not tried".to_owned(), 0),
        };
        Err(SpawnError::FeatureMissing {
            feature,
            tried,
            errno,
            remedy: feature.remedy().to_owned(),
        })
    }
}

impl fmt::Display for FeatureTable {
    /// One line a feature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (feature, finding) in &self.rows {
            let name = feature.name();
            match finding {
                Finding::Present(how) => writeln!(f, "{name:<18} yes  {how}")?,
                Finding::Missing { tried, errno } => writeln!(
                    f,
                    "{name:<18} NO   {tried} (errno {errno}); {}",
                    feature.remedy()
                )?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(missing: &[Feature]) -> FeatureTable {
        let mut table = FeatureTable::default();
        for feature in Feature::ALL {
            let finding = if missing.contains(&feature) {
                Finding::Missing {
                    tried: "clone".into(),
                    errno: 28,
                }
            } else {
                Finding::Present(String::new())
            };
            table.put(feature, finding);
        }
        table
    }

    #[test]
    fn what_is_missing_is_refused_by_name_errno_and_remedy() {
        let refused = table(&[Feature::UserNamespace]).require(&[Feature::Landlock]);
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("user-namespace") && text.contains("28"),
            "{text}"
        );
        assert!(text.contains("max_user_namespaces"), "{text}");
    }

    #[test]
    fn what_may_be_missing_has_to_be_named() {
        let table = table(&[Feature::CgroupCpu, Feature::CgroupPids]);
        assert!(table.require(&[Feature::CgroupCpu]).is_err());
        let named = [Feature::CgroupCpu, Feature::CgroupPids];
        assert_eq!(table.require(&named), Ok(()));
        assert_eq!(table.missing(), [Feature::CgroupPids, Feature::CgroupCpu]);
    }

    #[test]
    fn what_was_never_tried_counts_as_missing() {
        assert_eq!(FeatureTable::default().missing().len(), Feature::ALL.len());
        assert!(FeatureTable::default().require(&[]).is_err());
    }

    #[test]
    fn names_in_files_are_the_names_in_reports() {
        for feature in Feature::ALL {
            #[derive(Deserialize)]
            struct File {
                f: Feature,
            }
            let file: File = toml::from_str(&format!("f = \"{feature}\"")).unwrap();
            assert_eq!(file.f, feature);
        }
    }
}
