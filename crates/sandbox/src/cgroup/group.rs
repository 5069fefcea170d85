//! One group: made with its limits, given a process, asked what happened, emptied.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Controller as _, MaxValue};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::{Base, Controller, Version};
use crate::error::SpawnError;
use crate::policy::Resources;

const CPU_PERIOD_US: u64 = 100_000;
/// How long a group may take to become empty after its members were killed.
const EMPTY_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(300);

/// What ran into a limit in a group since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Events {
    /// Processes the kernel killed for memory.
    pub(crate) oom_kills: u64,
    /// Forks refused for the number of processes.
    pub(crate) forks_refused: u64,
}

/// A control group of ours: one directory on v2, one for each controller on v1.
#[derive(Debug)]
pub(crate) struct Group {
    version: Version,
    directories: Vec<(Controller, PathBuf)>,
}

impl Group {
    /// Makes the group `name` below `base` with these limits, each read back.
    pub(crate) fn create(base: &Base, name: &str, limits: Resources) -> Result<Self, SpawnError> {
        let mut group = Self {
            version: base.version,
            directories: Vec::new(),
        };
        for (controller, directory) in &base.directories {
            let directory = directory.join(name);
            group.make(*controller, &directory)?;
            group.directories.push((*controller, directory.clone()));
            group.limit(*controller, &directory, limits)?;
        }
        Ok(group)
    }

    fn make(&self, controller: Controller, directory: &Path) -> Result<(), SpawnError> {
        if directory.is_dir() {
            return Ok(());
        }
        if let Some(parent) = directory.parent().filter(|_| self.version == Version::V2) {
            // Fails where they are enabled already and not ours to change; the limits that
            // are read back show what holds.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory +pids +cpu");
        }
        let at = directory.to_owned();
        let v2 = self.version == Version::V2;
        let made = match controller {
            Controller::Memory => MemController::new(at.clone(), at, v2).create(),
            Controller::Pids => PidController::new(at.clone(), at, v2).create(),
            Controller::Cpu => CpuController::new(at.clone(), at, v2).create(),
        };
        made.map_err(|error| refused("make the control group", &error))?;
        // The crate reports success for some failures.
        fs::metadata(directory)
            .map(drop)
            .map_err(|e| failed("make the control group", &e))
    }

    fn limit(&self, of: Controller, at: &Path, limits: Resources) -> Result<(), SpawnError> {
        match of {
            Controller::Memory => self.limit_memory(at, limits),
            Controller::Pids => self.limit_pids(at, limits),
            Controller::Cpu => self.limit_cpu(at, limits),
        }
    }

    fn limit_memory(&self, at: &Path, limits: Resources) -> Result<(), SpawnError> {
        let bytes = i64::from(limits.memory_mib_max) << 20;
        let v2 = self.version == Version::V2;
        let memory = MemController::new(at.to_owned(), at.to_owned(), v2);
        memory
            .set_limit(bytes)
            .map_err(|e| refused("limit memory", &e))?;
        if v2 {
            read_back(at, "memory.max", &bytes.to_string())?;
            set(at, "memory.oom.group", "1")?;
            return set_if_there(at, "memory.swap.max", "0");
        }
        read_back(at, "memory.limit_in_bytes", &bytes.to_string())?;
        // Memory and swap together: so there is no swap. Absent without swap accounting.
        set_if_there(at, "memory.memsw.limit_in_bytes", &bytes.to_string())
    }

    fn limit_pids(&self, at: &Path, limits: Resources) -> Result<(), SpawnError> {
        let pids = PidController::new(at.to_owned(), at.to_owned(), self.version == Version::V2);
        let max = MaxValue::Value(limits.processes_max.into());
        pids.set_pid_max(max)
            .map_err(|e| refused("limit processes", &e))?;
        read_back(at, "pids.max", &limits.processes_max.to_string())
    }

    fn limit_cpu(&self, at: &Path, limits: Resources) -> Result<(), SpawnError> {
        let v2 = self.version == Version::V2;
        let quota = u64::from(limits.cpu_percent_max) * CPU_PERIOD_US / 100;
        let cpu = CpuController::new(at.to_owned(), at.to_owned(), v2);
        let signed = i64::try_from(quota).unwrap_or(i64::MAX);
        cpu.set_cfs_quota_and_period(Some(signed), Some(CPU_PERIOD_US))
            .map_err(|e| refused("limit processor time", &e))?;
        if v2 {
            return read_back(at, "cpu.max", &format!("{quota} {CPU_PERIOD_US}"));
        }
        read_back(at, "cpu.cfs_quota_us", &quota.to_string())?;
        read_back(at, "cpu.cfs_period_us", &CPU_PERIOD_US.to_string())
    }

    fn distinct(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> = self.directories.iter().map(|(_, d)| d.clone()).collect();
        all.dedup();
        all
    }

    /// Moves a process in, with all its threads.
    pub(crate) fn admit(&self, pid: Pid) -> io::Result<()> {
        for directory in self.distinct() {
            fs::write(directory.join("cgroup.procs"), pid.as_raw_pid().to_string())?;
        }
        Ok(())
    }

    /// Its members, in all hierarchies.
    pub(crate) fn members(&self) -> Vec<Pid> {
        let mut pids = Vec::new();
        for directory in self.distinct() {
            pids.extend(members(&directory));
        }
        pids.sort_unstable_by_key(|pid| pid.as_raw_pid());
        pids.dedup();
        pids
    }

    /// What happened in it.
    pub(crate) fn events(&self) -> Events {
        let mut events = Events::default();
        for (controller, at) in &self.directories {
            let of = |file: &str, key: &str| value_of(&at.join(file), key).unwrap_or(0);
            match (controller, self.version) {
                (Controller::Memory, Version::V1) => {
                    events.oom_kills = of("memory.oom_control", "oom_kill");
                }
                (Controller::Memory, Version::V2) => {
                    events.oom_kills = of("memory.events", "oom_kill");
                }
                (Controller::Pids, _) => events.forks_refused = of("pids.events", "max"),
                (Controller::Cpu, _) => {}
            }
        }
        events
    }

    /// Kills all members and waits until there are none.
    pub(crate) fn empty(&self) -> Result<(), Vec<Pid>> {
        if self.version == Version::V2
            && let Some((_, directory)) = self.directories.first()
        {
            // All at once; absent before 5.14, then one by one.
            let _ = fs::write(directory.join("cgroup.kill"), "1");
        }
        self.empty_of(|_| true)
    }

    /// Kills all members but one and waits until there are no others.
    pub(crate) fn empty_but(&self, spared: Pid) -> Result<(), Vec<Pid>> {
        self.empty_of(|pid| pid != spared)
    }

    fn empty_of(&self, wanted: impl Fn(Pid) -> bool) -> Result<(), Vec<Pid>> {
        let begin = Instant::now();
        loop {
            let mut left = self.members();
            left.retain(|pid| wanted(*pid));
            if left.is_empty() {
                return Ok(());
            }
            if begin.elapsed() > EMPTY_WITHIN {
                return Err(left);
            }
            for pid in left {
                // Gone by now, or killed.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Removes its directories, which have to be empty.
    pub(crate) fn remove(self) -> io::Result<()> {
        let directories = self.distinct();
        for directory in directories {
            remove_directory(&directory)?;
        }
        Ok(())
    }
}

/// The processes listed in one directory.
pub(super) fn members(directory: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let pid = |line: &str| Pid::from_raw(line.parse().ok()?);
    list.lines().filter_map(pid).collect()
}

/// Busy for a moment after the last member was killed.
pub(super) fn remove_directory(directory: &Path) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && begin.elapsed() < EMPTY_WITHIN =>
            {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

fn value_of(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut values = text.lines().filter_map(|line| line.split_once(' '));
    values.find(|(name, _)| *name == key)?.1.trim().parse().ok()
}

fn set_if_there(at: &Path, file: &str, value: &str) -> Result<(), SpawnError> {
    if at.join(file).exists() {
        return set(at, file, value);
    }
    Ok(())
}

fn set(at: &Path, file: &str, value: &str) -> Result<(), SpawnError> {
    fs::write(at.join(file), value).map_err(|e| failed(&format!("write {file}"), &e))?;
    read_back(at, file, value)
}

fn read_back(at: &Path, file: &str, wanted: &str) -> Result<(), SpawnError> {
    let found = fs::read_to_string(at.join(file))
        .map_err(|error| failed(&format!("read {file}"), &error))?;
    if found.trim() == wanted {
        return Ok(());
    }
    Err(SpawnError::LimitNotTaken {
        file: file.to_owned(),
        wanted: wanted.to_owned(),
        found: found.trim().to_owned(),
    })
}

fn failed(stage: &str, error: &io::Error) -> SpawnError {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    SpawnError::setup(stage, errno)
}

/// An error of the crate, whose cause is the system's.
fn refused(stage: &str, error: &cgroups_rs::fs::error::Error) -> SpawnError {
    let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref::<io::Error>());
    let errno = cause.and_then(Errno::from_io_error).unwrap_or(Errno::IO);
    SpawnError::setup(stage, errno)
}
