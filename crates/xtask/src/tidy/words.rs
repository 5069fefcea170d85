//! What no file may hold: the address of a package registry, or a path of one
//! machine. Both work on one desk and nowhere else.

use super::{Tree, Violation};

/// Hosts of package registries. Written in pieces, so that this file keeps its rule.
const HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("files.pythonhosted", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("static.rust-lang", ".org"),
];

/// How the lock file names cargo's own default registry: a name, not an address that
/// somebody chose.
const LOCK_SOURCE: &str = concat!(
    "registry+https://github.com/rust-lang/crates",
    ".io-index\""
);

/// Folders that only one machine has.
const FOLDERS: [&str; 3] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

/// Is the `/` at `i` the start of a path, not the middle of one?
fn starts_a_path(line: &str, i: usize) -> bool {
    let before = line[..i].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || "_.-~}/*".contains(c))
}

fn judge(line: &str) -> Option<(String, &'static str)> {
    let line = line.replace(LOCK_SOURCE, "");
    if let Some(host) = HOSTS.iter().find(|h| line.contains(**h)) {
        let todo = "take it out: which registry is used is a setting of the machine";
        return Some((format!("names the registry host {host}"), todo));
    }
    if line.trim_start().starts_with("source = \"") && line.contains("+http") {
        let what = "names a package source other than the default registry".to_owned();
        return Some((what, "lock the package from the default registry"));
    }
    let folder = FOLDERS.iter().find(|f| {
        let mut places = line.match_indices(**f);
        places.any(|(i, _)| starts_a_path(&line, i))
    })?;
    let todo = "use a path relative to the repository, or one that the config gives";
    Some((format!("holds a path of one machine ({folder})"), todo))
}

/// Checks every text file.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in &tree.files {
        let text = tree.text(file).unwrap_or_default();
        for (i, line) in text.lines().enumerate() {
            if let Some((what, todo)) = judge(line) {
                found.push(Violation::new((file, i + 1), "portable", what, todo));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_machine_paths_are_found() {
        for host in HOSTS {
            assert!(
                judge(&format!("url = \"https://{host}/x\"")).is_some(),
                "{host}"
            );
        }
        for folder in FOLDERS {
            for line in [
                format!("{folder}x"),
                format!("path = \"{folder}x\""),
                format!("see ({folder}x)"),
            ] {
                assert!(judge(&line).is_some(), "{line}");
            }
        }
        assert!(judge("source = \"git+https://example.org/x\"").is_some());
    }

    #[test]
    fn what_only_looks_alike_is_kept() {
        let lock = format!("source = \"{LOCK_SOURCE}");
        let relative = format!("target{}x", FOLDERS[0]);
        let variable = format!("${{HOME}}{}x", FOLDERS[0]);
        for line in [
            lock.as_str(),
            &relative,
            &variable,
            "https://example.org/a",
            "/var/lib",
        ] {
            assert!(judge(line).is_none(), "{line}");
        }
        let mirror = format!("source = \"registry+https://mirror.example{}\"", FOLDERS[0]);
        assert!(judge(&mirror).is_some());
    }
}
