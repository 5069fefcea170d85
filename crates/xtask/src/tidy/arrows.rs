//! Who may import whom, and which packages may use which outside crates; read from
//! `cargo metadata`.

use super::{Tree, Violation};
use crate::run;
use serde_json::Value;

const RULE: &str = "arrows";

/// Each room with the rooms it may know. An arrow never runs back.
const ROOMS: [(&str, &[&str]); 16] = [
    ("protocol", &[]),
    ("store", &[]),
    ("sandbox", &[]),
    ("connect", &[]),
    ("bus", &["protocol", "store"]),
    ("orchestrator", &["protocol", "bus"]),
    ("reasoner", &["protocol", "bus", "connect"]),
    (
        "tool-executor",
        &["protocol", "store", "bus", "sandbox", "connect"],
    ),
    (
        "observer",
        &["protocol", "store", "bus", "sandbox", "connect"],
    ),
    ("client", &["protocol", "bus"]),
    (
        "sim",
        &[
            "protocol",
            "bus",
            "orchestrator",
            "reasoner",
            "tool-executor",
            "observer",
        ],
    ),
    (
        "node",
        &[
            "protocol",
            "store",
            "bus",
            "sandbox",
            "connect",
            "orchestrator",
            "reasoner",
            "tool-executor",
            "observer",
        ],
    ),
    (
        "cli",
        &[
            "protocol",
            "store",
            "bus",
            "sandbox",
            "connect",
            "orchestrator",
            "reasoner",
            "tool-executor",
            "observer",
            "node",
            "client",
        ],
    ),
    ("chaos-tests", &["protocol", "sim"]),
    ("model", &[]),
    ("xtask", &[]),
];

/// Rooms that the tests of any room above them may use.
const FOR_TESTS: [&str; 2] = ["store", "bus"];
/// Rooms below those: their tests stand alone.
const ALONE: [&str; 7] = [
    "protocol",
    "store",
    "sandbox",
    "connect",
    "model",
    "xtask",
    "chaos-tests",
];

/// Outside crates that few may depend on: (crate, rooms, any room's tests too).
const OUTSIDE: [(&str, &[&str], bool); 11] = [
    ("sled", &["store"], false),
    ("cgroups-rs", &["sandbox"], false),
    ("seccompiler", &["sandbox"], false),
    ("landlock", &["sandbox"], false),
    ("reqwest", &["connect"], false),
    ("rusqlite", &["connect", "chaos-tests"], true),
    ("async-nats", &["bus"], false),
    ("ort", &["gpu-owner"], false),
    ("stateright", &["model"], false),
    (
        "ractor",
        &[
            "orchestrator",
            "reasoner",
            "tool-executor",
            "observer",
            "node",
            "sim",
        ],
        true,
    ),
    (
        "tokio",
        &[
            "store",
            "sandbox",
            "connect",
            "bus",
            "orchestrator",
            "reasoner",
            "tool-executor",
            "observer",
            "node",
            "cli",
            "client",
            "sim",
            "chaos-tests",
        ],
        false,
    ),
];

/// A dependency as a manifest declares it.
struct Dependency<'a> {
    name: &'a str,
    for_tests: bool,
}

fn room(package: &str) -> &str {
    package.strip_prefix("detent-").unwrap_or(package)
}

/// What is wrong with `package` depending on `dependency`, and what to do.
fn judge(package: &str, dependency: &Dependency<'_>) -> Option<(String, String)> {
    let from = room(package);
    let tests = if dependency.for_tests {
        "the tests of "
    } else {
        ""
    };
    let to = dependency.name;
    if let Some((_, rooms, any_tests)) = OUTSIDE.iter().find(|(c, ..)| *c == to) {
        if rooms.contains(&from) || (*any_tests && dependency.for_tests) {
            return None;
        }
        let todo = format!("go through one of: {}", rooms.join(", "));
        return Some((format!("{tests}{from} may not use {to}"), todo));
    }
    let to = to.strip_prefix("detent-").filter(|to| *to != from)?;
    let (_, may) = ROOMS.iter().find(|(name, _)| *name == from)?;
    let in_tests = dependency.for_tests && FOR_TESTS.contains(&to) && !ALONE.contains(&from);
    if may.contains(&to) || in_tests {
        return None;
    }
    let todo = if may.is_empty() {
        format!("take the dependency out: {from} knows no other room")
    } else {
        format!(
            "take the dependency out: {from} may know {}",
            may.join(", ")
        )
    };
    Some((format!("{tests}{from} may not know {to}"), todo))
}

fn line_of(manifest: &str, name: &str) -> usize {
    let is_it = |line: &str| {
        let rest = line.trim_start().strip_prefix(name);
        rest.is_some_and(|r| r.starts_with([' ', '.', '=']))
    };
    manifest.lines().position(is_it).map_or(1, |i| i + 1)
}

fn check_package(file: &str, manifest: &str, package: &Value) -> Vec<Violation> {
    let name = package["name"].as_str().unwrap_or_default();
    if !ROOMS.iter().any(|(known, _)| *known == room(name)) {
        let what = format!("no rule says whom {name} may know");
        let todo = "add it to ROOMS in crates/xtask/src/tidy/arrows.rs and to ARCHITECTURE.md";
        return vec![Violation::new((file, 1), RULE, what, todo)];
    }
    let dependencies = package["dependencies"].as_array();
    let mut found = Vec::new();
    for d in dependencies.into_iter().flatten() {
        let dependency = Dependency {
            name: d["name"].as_str().unwrap_or_default(),
            for_tests: d["kind"] == "dev",
        };
        if let Some((what, todo)) = judge(name, &dependency) {
            let line = line_of(manifest, dependency.name);
            found.push(Violation::new((file, line), RULE, what, todo));
        }
    }
    found
}

/// Checks every package of the workspace.
pub(super) fn check(tree: &Tree) -> Result<Vec<Violation>, String> {
    let mut metadata = run::cargo_command(&["metadata", "--format-version", "1", "--no-deps"]);
    let output = metadata.arg("--offline").output();
    let output = output.map_err(|e| format!("can't start cargo metadata: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("cargo metadata: {why}"));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("cargo metadata printed no JSON: {e}"))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    if packages.is_empty() {
        return Err("cargo metadata named no packages".into());
    }
    let checked = packages.iter().flat_map(|package| {
        let path = package["manifest_path"].as_str().unwrap_or_default();
        let relative = std::path::Path::new(path).strip_prefix(&tree.root);
        let file = relative.map_or(path, |r| r.to_str().unwrap_or(path));
        check_package(file, &tree.text(file).unwrap_or_default(), package)
    });
    Ok(checked.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn may(package: &str, name: &str, for_tests: bool) -> bool {
        judge(package, &Dependency { name, for_tests }).is_none()
    }

    #[test]
    fn arrows_run_one_way() {
        assert!(may("detent-bus", "detent-protocol", false));
        assert!(may("detent-cli", "detent-node", false));
        assert!(may("detent-chaos-tests", "detent-sim", false));
        for (from, to) in [
            ("detent-protocol", "detent-bus"),
            ("detent-store", "detent-protocol"),
            ("detent-orchestrator", "detent-observer"),
            ("detent-reasoner", "detent-tool-executor"),
            ("detent-node", "detent-cli"),
            ("detent-sim", "detent-node"),
            ("detent-chaos-tests", "detent-bus"),
            ("xtask", "detent-protocol"),
        ] {
            assert!(!may(from, to, false), "{from} -> {to}");
        }
    }

    #[test]
    fn tests_may_use_the_store_and_the_bus_but_no_sibling() {
        assert!(!may("detent-reasoner", "detent-store", false));
        assert!(may("detent-reasoner", "detent-store", true));
        assert!(!may("detent-reasoner", "detent-orchestrator", true));
        assert!(!may("detent-protocol", "detent-store", true));
        assert!(!may("detent-chaos-tests", "detent-bus", true));
    }

    #[test]
    fn outside_crates_have_their_rooms() {
        assert!(may("detent-store", "sled", false));
        assert!(!may("detent-node", "sled", false) && !may("detent-node", "sled", true));
        assert!(may("detent-node", "rusqlite", true) && !may("detent-node", "rusqlite", false));
        assert!(!may("detent-protocol", "tokio", false));
        assert!(!may("detent-cli", "ractor", false));
        assert!(may("detent-cli", "serde", false));
    }

    #[test]
    fn a_violation_names_the_line_of_the_manifest() {
        let manifest = "[dependencies]\nserde = \"1\"\ndetent-bus.workspace = true\n";
        let package = json!({
            "name": "detent-store",
            "dependencies": [{"name": "detent-bus", "kind": null}],
        });
        let found = check_package("crates/store/Cargo.toml", manifest, &package);
        assert_eq!((found.len(), found[0].line), (1, 3));
        let unknown = json!({"name": "detent-attic", "dependencies": []});
        assert_eq!(check_package("x/Cargo.toml", "", &unknown).len(), 1);
    }
}
