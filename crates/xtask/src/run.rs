//! Children: started in the repository's root, their output never captured.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for what it runs; the built-in value serves a program
    // that was started by hand.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = here.ancestors().nth(2).map(PathBuf::from);
    root.unwrap_or(here)
}

/// Where `setup` installs tools.
pub(crate) fn tools_dir() -> PathBuf {
    root().join("target/tools")
}

/// The cargo that started this chore.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// What cargo tells a program about its own package. A child cargo must not see it:
/// build scripts that watch these variables would run again and again.
fn is_ours_alone(name: &str) -> bool {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
    let names = ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"];
    prefixes.iter().any(|p| name.starts_with(p)) || names.contains(&name)
}

/// A command in the repository's root, with the installed tools on its path.
pub(crate) fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_ours_alone) {
            command.env_remove(name);
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([tools_dir().join("bin")]);
    // Joining fails only on a path that holds the separator itself; then the path
    // stays as it was.
    if let Ok(joined) = std::env::join_paths(dirs) {
        command.env("PATH", joined);
    }
    command
}

/// A cargo command.
pub(crate) fn cargo_command(args: &[&str]) -> Command {
    let mut command = command(cargo());
    command.args(args);
    command
}

/// Says what is run, runs it, and fails when it does.
pub(crate) fn check(mut command: Command) -> Result<(), String> {
    let line = shown(&command);
    println!("$ {line}");
    let status = command
        .status()
        .map_err(|e| format!("can't start `{line}`: {e}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`{line}` ended with {status}"))
}

/// First line of what a quick command prints, if it ends well.
pub(crate) fn answer(mut command: Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().next().unwrap_or_default().to_owned())
}

fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    // A full path says nothing that the name does not.
    let name = program.file_name().unwrap_or(program.as_os_str());
    let args = command.get_args();
    let words = std::iter::once(name).chain(args);
    let words: Vec<_> = words.map(|w| w.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(text.contains("[workspace]"));
    }

    #[test]
    fn a_failing_child_fails_and_is_named() {
        let why = check(cargo_command(&["no-such-subcommand"])).unwrap_err();
        assert!(why.contains("cargo no-such-subcommand"), "{why}");
        assert_eq!(answer(cargo_command(&["no-such-subcommand"])), None);
        let missing = check(command("no-such-program-anywhere")).unwrap_err();
        assert!(missing.contains("can't start"), "{missing}");
    }

    #[test]
    fn a_child_cargo_does_not_see_our_own_package() {
        assert!(is_ours_alone("CARGO_PKG_NAME") && is_ours_alone("CARGO_MANIFEST_DIR"));
        assert!(!is_ours_alone("CARGO_HOME") && !is_ours_alone("CARGO_TARGET_DIR"));
    }
}
