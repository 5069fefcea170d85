//! What to run, and the bounds it must keep. Everything that can be refused
//! without starting a process is refused here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::BootInstant;
use crate::error::SpawnError;

/// Name of the environment variable that marks every process with its owner.
pub const ENV_RUN_OWNER: &str = "DETENT_RUN_OWNER";
/// Name of the environment variable that marks every process with its run.
pub const ENV_RUN_ID: &str = "DETENT_RUN_ID";

/// The kernel's bound on one argument or `NAME=value`, its final NUL included.
pub const STRING_BYTES_MAX: usize = 128 * 1024;
/// Bound on all arguments and environment entries together, counting for each
/// its final NUL and an eight-byte pointer, as the kernel does.
pub const ARGS_BYTES_MAX: usize = 1024 * 1024;
/// Bound on what can be given to the program's standard input.
pub const STDIN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bound on either output limit a specification may ask for.
pub const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bound on the owner and on the run of a [`RunTag`].
pub const TAG_BYTES_MAX: usize = 256;

/// Bounds on one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Time from start to end in ms, at least 1. Counts suspended time.
    pub wall_ms: u64,
    /// Standard output in bytes; one more ends the run. At most
    /// [`OUTPUT_BYTES_MAX`].
    pub stdout_bytes_max: u64,
    /// How much of the end of standard error is kept, in bytes; more does not
    /// end the run. At most [`OUTPUT_BYTES_MAX`].
    pub stderr_bytes_max: u64,
}

impl Default for Limits {
    /// 30 s, 1 MiB of output, the last 16 KiB of errors.
    fn default() -> Self {
        Self {
            wall_ms: 30_000,
            stdout_bytes_max: 1024 * 1024,
            stderr_bytes_max: 16 * 1024,
        }
    }
}

/// Whose run this is. Put into the environment of every process of the run, so
/// that leftovers are found after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTag {
    /// Who starts runs: one id per data directory, the same after a restart,
    /// different from everybody else's. 1 to [`TAG_BYTES_MAX`] bytes.
    pub owner: String,
    /// Which run of that owner, unique among those going on. 1 to
    /// [`TAG_BYTES_MAX`] bytes.
    pub run: String,
}

/// One program to run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The program: a path if it has a slash (a relative one starts at `cwd`),
    /// otherwise looked up in the `PATH` of `env`, or in `/usr/bin:/bin` where
    /// `env` has none.
    pub program: String,
    /// Its arguments, without the program's own name.
    pub args: Vec<String>,
    /// Its complete environment; nothing is inherited. [`ENV_RUN_OWNER`] and
    /// [`ENV_RUN_ID`] are set from `tag`, whatever stands here.
    pub env: BTreeMap<String, String>,
    /// Its working directory, an absolute path.
    pub cwd: PathBuf,
    /// What it can read from standard input before the end of file, at most
    /// [`STDIN_BYTES_MAX`].
    #[serde(with = "serde_bytes")]
    pub stdin: Vec<u8>,
    /// Its bounds.
    pub limits: Limits,
    /// Whose run it is.
    pub tag: RunTag,
    /// The moment from which it may no longer start. Checked as the last thing
    /// before the program is executed.
    pub start_deadline: Option<BootInstant>,
}

impl ProcessSpec {
    /// The environment the program will see: `env` with the two markers.
    pub(crate) fn full_env(&self) -> BTreeMap<&str, &str> {
        let mut env: BTreeMap<&str, &str> = self
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        env.insert(ENV_RUN_OWNER, &self.tag.owner);
        env.insert(ENV_RUN_ID, &self.tag.run);
        env
    }

    /// Refuses what cannot run. Starts nothing and touches no file.
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        self.tag.check()?;
        self.check_shape()?;
        self.check_sizes()?;
        self.check_limits()
    }

    fn check_shape(&self) -> Result<(), SpawnError> {
        if self.program.is_empty() {
            return Err(SpawnError::NotFound {
                program: String::new(),
            });
        }
        let strings = self.args.iter().chain(self.env.values());
        if has_nul(&self.program) || strings.into_iter().any(|s| has_nul(s)) {
            return refuse("the program, an argument or an environment value has a NUL byte");
        }
        let bad_name = |name: &String| name.is_empty() || name.contains('=') || has_nul(name);
        if self.env.keys().any(bad_name) {
            return refuse("an environment name is empty or has '=' or a NUL byte");
        }
        match self.cwd.to_str() {
            Some(cwd) if self.cwd.is_absolute() && !has_nul(cwd) => Ok(()),
            _ => refuse("the working directory is not an absolute path in UTF-8"),
        }
    }

    fn check_sizes(&self) -> Result<(), SpawnError> {
        const POINTER: usize = 8;
        let mut total = 0;
        for arg in std::iter::once(&self.program).chain(&self.args) {
            let bytes = arg.len() + 1;
            at_most("argument", bytes, STRING_BYTES_MAX)?;
            total += bytes + POINTER;
        }
        for (name, value) in self.full_env() {
            let bytes = name.len() + value.len() + 2;
            at_most("environment entry", bytes, STRING_BYTES_MAX)?;
            total += bytes + POINTER;
        }
        at_most("arguments and environment", total, ARGS_BYTES_MAX)?;
        at_most("stdin", self.stdin.len(), STDIN_BYTES_MAX)
    }

    fn check_limits(&self) -> Result<(), SpawnError> {
        if self.limits.wall_ms == 0 {
            return refuse("the wall-clock limit is 0 ms");
        }
        let outputs = [
            ("stdout limit", self.limits.stdout_bytes_max),
            ("stderr limit", self.limits.stderr_bytes_max),
        ];
        for (what, bytes) in outputs {
            if bytes > OUTPUT_BYTES_MAX {
                return Err(too_large(what, bytes, OUTPUT_BYTES_MAX));
            }
        }
        Ok(())
    }
}

impl RunTag {
    fn check(&self) -> Result<(), SpawnError> {
        if is_tag(&self.owner) && is_tag(&self.run) {
            return Ok(());
        }
        refuse("owner and run of the tag need 1 to 256 bytes without NUL")
    }
}

/// Whether `text` can stand in an environment and be found there again.
pub(crate) fn is_tag(text: &str) -> bool {
    !text.is_empty() && text.len() <= TAG_BYTES_MAX && !has_nul(text)
}

fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

fn refuse<T>(reason: &str) -> Result<T, SpawnError> {
    Err(SpawnError::InvalidSpec {
        reason: reason.to_owned(),
    })
}

fn at_most(what: &str, bytes: usize, bytes_max: usize) -> Result<(), SpawnError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(too_large(what, bytes as u64, bytes_max as u64))
}

fn too_large(what: &str, bytes: u64, bytes_max: u64) -> SpawnError {
    SpawnError::TooLarge {
        what: what.to_owned(),
        bytes,
        bytes_max,
    }
}

impl fmt::Debug for ProcessSpec {
    /// Leaves out arguments, environment values and input: they may hold
    /// secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSpec")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("stdin_bytes", &self.stdin.len())
            .field("limits", &self.limits)
            .field("tag", &self.tag)
            .field("start_deadline", &self.start_deadline)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ProcessSpec {
        ProcessSpec {
            program: "true".into(),
            args: vec![],
            env: BTreeMap::new(),
            cwd: "/".into(),
            stdin: vec![],
            limits: Limits::default(),
            tag: RunTag {
                owner: "owner".into(),
                run: "run".into(),
            },
            start_deadline: None,
        }
    }

    fn refused_as_too_large(spec: &ProcessSpec, part: &str) {
        match spec.check() {
            Err(SpawnError::TooLarge { what, .. }) => assert_eq!(what, part),
            other => panic!("{part}: {other:?}"),
        }
    }

    #[test]
    fn the_largest_permitted_argument_passes_and_one_byte_more_does_not() {
        let mut spec = spec();
        spec.args = vec!["x".repeat(STRING_BYTES_MAX - 1)];
        assert_eq!(spec.check(), Ok(()));
        spec.args[0].push('x');
        refused_as_too_large(&spec, "argument");
    }

    #[test]
    fn an_environment_entry_counts_with_name_and_equals_sign() {
        let mut spec = spec();
        let value = "x".repeat(STRING_BYTES_MAX - 3);
        spec.env.insert("A".into(), value.clone());
        assert_eq!(spec.check(), Ok(()));
        spec.env.insert("A".into(), value + "x");
        refused_as_too_large(&spec, "environment entry");
    }

    #[test]
    fn many_small_strings_are_bounded_together() {
        let mut spec = spec();
        spec.args = vec![String::new(); ARGS_BYTES_MAX / 9 + 1];
        refused_as_too_large(&spec, "arguments and environment");
    }

    #[test]
    fn input_and_output_limits_are_bounded() {
        let mut big_stdin = spec();
        big_stdin.stdin = vec![0; STDIN_BYTES_MAX + 1];
        refused_as_too_large(&big_stdin, "stdin");
        let mut big_stdout = spec();
        big_stdout.limits.stdout_bytes_max = OUTPUT_BYTES_MAX + 1;
        refused_as_too_large(&big_stdout, "stdout limit");
        let mut big_stderr = spec();
        big_stderr.limits.stderr_bytes_max = OUTPUT_BYTES_MAX + 1;
        refused_as_too_large(&big_stderr, "stderr limit");
    }

    #[test]
    fn what_no_system_can_run_is_refused() {
        let breakages: [fn(&mut ProcessSpec); 9] = [
            |s| s.args.push("a\0b".into()),
            |s| s.program = "a\0b".into(),
            |s| drop(s.env.insert("A=B".into(), String::new())),
            |s| drop(s.env.insert(String::new(), String::new())),
            |s| drop(s.env.insert("A".into(), "\0".into())),
            |s| s.cwd = "relative".into(),
            |s| s.limits.wall_ms = 0,
            |s| s.tag.owner = String::new(),
            |s| s.tag.run = "r".repeat(TAG_BYTES_MAX + 1),
        ];
        for (case, breakage) in breakages.iter().enumerate() {
            let mut spec = spec();
            breakage(&mut spec);
            let refused = matches!(spec.check(), Err(SpawnError::InvalidSpec { .. }));
            assert!(refused, "case {case}: {:?}", spec.check());
        }
    }

    #[test]
    fn the_tag_cannot_be_forged_by_the_environment() {
        let mut spec = spec();
        spec.env
            .insert(ENV_RUN_OWNER.into(), "somebody else".into());
        assert_eq!(spec.full_env()[ENV_RUN_OWNER], "owner");
    }

    #[test]
    fn debug_output_holds_no_secrets() {
        let mut spec = spec();
        spec.args.push("hunter2".into());
        spec.env.insert("TOKEN".into(), "hunter2".into());
        spec.stdin = b"hunter2".to_vec();
        let shown = format!("{spec:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"));
    }
}
