//! The program under test, built once as a user would build it.

use crate::{Context, Result};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

static BUILT: OnceLock<Result<PathBuf>> = OnceLock::new();

/// Path of `detent`. `DETENT_CHAOS_BINARY` names one that is there already; otherwise
/// `cargo build --bin detent` makes it, in the profile and target directory of the
/// test.
///
/// # Errors
/// It can't be built.
pub fn detent() -> Result<PathBuf> {
    BUILT.get_or_init(build).clone()
}

fn build() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("DETENT_CHAOS_BINARY") {
        return Ok(path.into());
    }
    let manifest = workspace().join("Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--bin",
            "detent",
            "--message-format=json-render-diagnostics",
        ])
        .arg("--manifest-path")
        .arg(manifest);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output().context("cargo build")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo build --bin detent: {said}"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_ours = message["target"]["name"] == "detent" && message["executable"].is_string();
        is_ours.then(|| PathBuf::from(message["executable"].as_str().unwrap_or_default()))
    });
    executable.ok_or_else(|| "cargo build named no executable".to_owned())
}

/// The workspace's directory.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// `PATH` for nodes, with the real Python first: a version manager's stand-in for it
/// costs more than the tools themselves.
pub fn path() -> OsString {
    static PATH: OnceLock<OsString> = OnceLock::new();
    PATH.get_or_init(|| {
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let say = "import sys; print(sys.executable)";
        let python = Command::new("python3")
            .args(["-I", "-S", "-c", say])
            .output();
        let found = python.ok().and_then(|o| String::from_utf8(o.stdout).ok());
        let dir = found.and_then(|p| Some(Path::new(p.trim()).parent()?.to_path_buf()));
        let dirs = dir.into_iter().chain(std::env::split_paths(&usual));
        std::env::join_paths(dirs).unwrap_or(usual.clone())
    })
    .clone()
}
