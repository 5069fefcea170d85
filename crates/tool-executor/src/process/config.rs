//! The `run` of a `process` tool's entry, and what it needs of the machine.

use detent_protocol::agent::ToolDef;
use detent_protocol::{Code, Fault};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

/// What an argument starts with that is a path in the configuration's directory.
const CONFIG_PREFIX: &str = "config:";
/// Variables that only Detent sets.
const RESERVED: &str = "DETENT_";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunConfig {
    command: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) env_from: Vec<String>,
}

impl RunConfig {
    /// Reads and checks it; looks at nothing but the entry.
    pub(super) fn read(def: &ToolDef) -> Result<Self, Fault> {
        let run = Self::deserialize(&def.run).map_err(|e| wrong("run", e.to_string()))?;
        let program = run.command.first().map(String::as_str);
        match program {
            None | Some("") => {
                let message = "needs a program, e.g. [\"python3\", \"config:tools/x.py\"]";
                return Err(wrong("run.command", message));
            }
            Some(p) if p.contains('/') && !p.starts_with('/') && !p.starts_with(CONFIG_PREFIX) => {
                let message = "a program's path is absolute or starts with config:";
                return Err(wrong("run.command.0", message));
            }
            Some(_) => {}
        }
        run.check_config_paths()?;
        run.check_names()?;
        Ok(run)
    }

    fn check_config_paths(&self) -> Result<(), Fault> {
        let stays = |path: &str| {
            let mut parts = Path::new(path).components();
            !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        let paths = self.command.iter().enumerate();
        let mut paths = paths.filter_map(|(i, arg)| Some((i, arg.strip_prefix(CONFIG_PREFIX)?)));
        match paths.find(|(_, path)| !stays(path)) {
            Some((i, _)) => Err(wrong(
                &format!("run.command.{i}"),
                "config: takes a relative path without `.` and `..`",
            )),
            None => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), Fault> {
        let is_name = |n: &str| !n.is_empty() && !n.contains(['=', '\0']);
        let named = self.env.keys().map(|name| ("run.env", name));
        let mut named = named.chain(self.env_from.iter().map(|name| ("run.env_from", name)));
        match named.find(|(_, name)| name.starts_with(RESERVED) || !is_name(name)) {
            Some((at, name)) => Err(wrong(
                at,
                format!(
                    "{name:?} can't be set: names are not empty, hold no `=`, and don't start with {RESERVED}"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Program and arguments with their paths; fails where a file of the configuration
    /// is not there.
    pub(super) fn resolve(&self, config_dir: &Path) -> Result<(String, Vec<String>), Fault> {
        let mut words = self.command.iter().map(|word| resolve(word, config_dir));
        // `read` has refused an empty command.
        let program = words.next().unwrap_or_else(|| Ok(String::new()))?;
        Ok((program, words.collect::<Result<_, _>>()?))
    }

    /// The program with its path, whether it is there or not.
    pub(super) fn program(&self, config_dir: &Path) -> String {
        let program = self.command.first().map_or("", String::as_str);
        resolve(program, config_dir).unwrap_or_else(|_| program.to_owned())
    }
}

fn resolve(word: &str, config_dir: &Path) -> Result<String, Fault> {
    let Some(path) = word.strip_prefix(CONFIG_PREFIX) else {
        return Ok(word.to_owned());
    };
    let path = config_dir.join(path);
    if !path.exists() {
        let message = format!("the file {} is not there", path.display());
        return Err(Fault::new(Code::ToolUnavailable, message).at(path.display().to_string()));
    }
    path.into_os_string()
        .into_string()
        .map_err(|_| wrong("run.command", "the configuration's path is not UTF-8"))
}

/// Looks for the program as its start will, without starting it.
pub(super) fn find_program(program: &str, path: &str) -> Result<(), Fault> {
    let executable = |file: &Path| {
        fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let found = if program.contains('/') {
        executable(Path::new(program))
    } else {
        // An empty or relative entry means the goal's directory, which is not there yet.
        let dirs = path.split(':').map(Path::new).filter(|d| d.is_absolute());
        dirs.map(|dir| dir.join(program)).any(|f| executable(&f))
    };
    if found {
        return Ok(());
    }
    Err(missing_program(program))
}

/// The program is not there, or is none: what to do about it.
pub(super) fn missing_program(program: &str) -> Fault {
    let base = program.rsplit('/').next().unwrap_or(program);
    let advice = match base {
        "python3" | "python" => "install Python 3 (package `python3`)",
        "node" | "npx" => "install Node.js (package `nodejs`)",
        "bash" => "install bash (package `bash`)",
        "jq" | "curl" | "git" | "sqlite3" => "install the package of the same name",
        _ => "install it, or correct `run.command` of the tool",
    };
    let message = format!("program {program:?} is not there or is not executable: {advice}");
    Fault::new(Code::ToolUnavailable, message).at(program)
}

pub(super) fn wrong(at: &str, message: impl Into<String>) -> Fault {
    Fault::new(Code::ConfigInvalid, message).at(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(run: Value) -> Result<RunConfig, Fault> {
        let def = json!({"name": "t", "effect": "read", "kind": "process", "run": run});
        RunConfig::read(&serde_json::from_value(def).unwrap())
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        let cases = [
            (json!({}), "run"),
            (json!({"command": ["a"], "shell": true}), "run"),
            (json!({"command": []}), "run.command"),
            (json!({"command": [""]}), "run.command"),
            (json!({"command": ["bin/x"]}), "run.command.0"),
            (json!({"command": ["a", "config:../x"]}), "run.command.1"),
            (json!({"command": ["a", "config:/etc/x"]}), "run.command.1"),
            (json!({"command": ["a", "config:"]}), "run.command.1"),
            (
                json!({"command": ["a"], "env": {"DETENT_X": ""}}),
                "run.env",
            ),
            (json!({"command": ["a"], "env": {"A=B": ""}}), "run.env"),
            (json!({"command": ["a"], "env_from": [""]}), "run.env_from"),
        ];
        for (run, at) in cases {
            let fault = read(run.clone()).unwrap_err();
            assert_eq!(fault.code, Code::ConfigInvalid, "{run}");
            assert_eq!(fault.at.as_deref(), Some(at), "{run}");
        }
    }

    #[test]
    fn config_paths_are_resolved_and_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x.py"), "").unwrap();
        let run = read(json!({"command": ["python3", "-I", "config:x.py"]})).unwrap();
        let (program, args) = run.resolve(dir.path()).unwrap();
        assert_eq!(program, "python3");
        assert_eq!(args, ["-I", dir.path().join("x.py").to_str().unwrap()]);

        let run = read(json!({"command": ["python3", "config:gone.py"]})).unwrap();
        let fault = run.resolve(dir.path()).unwrap_err();
        assert_eq!(fault.code, Code::ToolUnavailable);
        assert!(fault.message.contains("gone.py"), "{fault}");
    }

    #[test]
    fn a_program_must_be_an_executable_file() {
        assert!(find_program("sh", "/nowhere:/bin").is_ok());
        assert!(find_program("/bin/sh", "").is_ok());
        for missing in ["no-such-program", "/etc/passwd", "/bin"] {
            let fault = find_program(missing, "/bin").unwrap_err();
            assert_eq!(fault.code, Code::ToolUnavailable, "{missing}");
        }
        let fault = find_program("python3", "/nowhere").unwrap_err();
        assert!(fault.message.contains("install Python 3"), "{fault}");
    }
}
