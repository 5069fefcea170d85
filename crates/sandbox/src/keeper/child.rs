//! Executing the program: looked up first so that each failure has a name,
//! then forked and executed with nothing of the keeper left on it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::clock::BootInstant;
use crate::error::{SpawnError, Stage};
use crate::spec::ProcessSpec;
use crate::sys;

/// Where a program without a slash is looked for when the run has no `PATH`.
const DEFAULT_PATH: &str = "/usr/bin:/bin";

/// How the forked child tells that the start deadline has passed. exec(2) has
/// no such error.
const TOO_LATE: Errno = Errno::TIME;

/// Executes the program. On an error nothing was executed.
pub(super) fn spawn(spec: &ProcessSpec) -> Result<Child, SpawnError> {
    check_cwd(&spec.cwd)?;
    let path = spec.env.get("PATH").map(String::as_str);
    let program = find_program(&spec.program, candidates(&spec.program, path, &spec.cwd))?;
    let mut command = Command::new(program);
    command
        .arg0(&spec.program)
        .args(&spec.args)
        .env_clear()
        .envs(spec.full_env())
        .current_dir(&spec.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let keeper = rustix::process::getpid();
    let start_deadline = spec.start_deadline;
    // SAFETY: between fork and exec in a single-threaded process; the closure
    // makes only system calls, takes no lock and no memory.
    unsafe { command.pre_exec(move || become_program(keeper, start_deadline)) };
    command.spawn().map_err(|error| failure(spec, &error))
}

/// The last steps in the forked child.
fn become_program(keeper: Pid, start_deadline: Option<BootInstant>) -> io::Result<()> {
    sys::default_signals();
    rustix::process::setsid()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The keeper may have died before that took effect.
    if rustix::process::getppid() != Some(keeper) {
        return Err(Errno::SRCH.into());
    }
    // A set-user-ID program could otherwise become one we may not kill.
    rustix::thread::set_no_new_privs(true)?;
    match start_deadline {
        Some(deadline) if BootInstant::now() >= deadline => Err(TOO_LATE.into()),
        _ => Ok(()),
    }
}

fn failure(spec: &ProcessSpec, error: &io::Error) -> SpawnError {
    match Errno::from_io_error(error) {
        Some(TOO_LATE) => SpawnError::StartDeadlinePassed,
        Some(Errno::ACCESS) => denied(spec),
        Some(errno) => SpawnError::os(Stage::Exec, errno),
        None => SpawnError::InvalidSpec {
            reason: "an argument or environment entry cannot be passed on".to_owned(),
        },
    }
}

fn check_cwd(cwd: &Path) -> Result<(), SpawnError> {
    let usable = match fs::metadata(cwd) {
        Ok(found) if found.is_dir() => rustix::fs::access(cwd, Access::EXEC_OK),
        Ok(_) => Err(Errno::NOTDIR),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    };
    usable.map_err(|errno| SpawnError::Cwd {
        cwd: cwd.to_owned(),
        errno: errno.raw_os_error(),
    })
}

/// The file to execute. Like the shell: the first executable one wins, and one
/// that is there but not executable is remembered as the better error.
pub(crate) fn find_program(program: &str, candidates: Vec<PathBuf>) -> Result<PathBuf, SpawnError> {
    let mut seen = false;
    for candidate in candidates {
        match fs::metadata(&candidate) {
            Ok(found) if found.is_file() => {
                if rustix::fs::access(&candidate, Access::EXEC_OK).is_ok() {
                    return Ok(candidate);
                }
                seen = true;
            }
            Ok(_) => seen |= program.contains('/'),
            Err(error) => seen |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
    let program = program.to_owned();
    if seen {
        return Err(SpawnError::PermissionDenied { program });
    }
    Err(SpawnError::NotFound { program })
}

/// Where the program may be, for this `PATH` and working directory.
pub(crate) fn candidates(program: &str, path: Option<&str>, cwd: &Path) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![cwd.join(program)];
    }
    let path = path.unwrap_or(DEFAULT_PATH);
    path.split(':')
        .map(|directory| cwd.join(directory).join(program))
        .collect()
}

fn denied(spec: &ProcessSpec) -> SpawnError {
    SpawnError::PermissionDenied {
        program: spec.program.clone(),
    }
}
