//! The rules of the house, held by a program: who may import whom, who may name
//! what, what each file and each page of the book has to have.
//!
//! Promises: reads only; builds nothing; says for each violation the place, the rule
//! and what to do. What a file holds is judged from its text alone, so each rule is
//! tested with samples that keep it and samples that break it.

mod arrows;
mod book;
mod lex;
mod links;
mod metrics;
mod model;
mod names;
mod sources;
mod words;

use crate::run;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// One thing that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    file: String,
    line: usize,
    rule: &'static str,
    what: String,
    todo: String,
}

impl Violation {
    fn new(
        (file, line): (&str, usize),
        rule: &'static str,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self {
            file: file.to_owned(),
            line: line.max(1),
            rule,
            what: what.into(),
            todo: todo.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            rule,
            what,
            todo,
        } = self;
        write!(f, "{file}:{line}: {rule}: {what}\n    do: {todo}")
    }
}

/// The files of the repository: all that git tracks or would take in.
struct Tree {
    root: PathBuf,
    files: BTreeSet<String>,
}

impl Tree {
    fn open(root: PathBuf) -> Result<Self, String> {
        let mut files = listed_by_git(&root).unwrap_or_default();
        if files.is_empty() {
            walk(&root, &root, &mut files)
                .map_err(|e| format!("can't read {}: {e}", root.display()))?;
        }
        files.retain(|f| root.join(f).is_file());
        Ok(Self { root, files })
    }

    /// Names of the files below `folder` that end in `ending`.
    fn below<'a>(&'a self, folder: &'a str, ending: &'a str) -> impl Iterator<Item = &'a str> {
        let files = self.files.iter().map(String::as_str);
        files.filter(move |f| f.starts_with(folder) && f.ends_with(ending))
    }

    /// The text of a file; `None` where it is not there or no text.
    fn text(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(file)).ok()
    }
}

fn listed_by_git(root: &Path) -> Option<BTreeSet<String>> {
    let mut git = run::command("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let output = git.current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let names = text.split('\0').filter(|f| !f.is_empty());
    output
        .status
        .success()
        .then(|| names.map(str::to_owned).collect())
}

/// Where git can't be asked (an unpacked archive): all but hidden and built folders.
fn walk(root: &Path, folder: &Path, files: &mut BTreeSet<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let skipped = [".git", ".detent", "target", "__pycache__"];
        if entry.file_type()?.is_dir() {
            if !skipped.iter().any(|s| name.to_str() == Some(s)) {
                walk(root, &path, files)?;
            }
        } else if let Some(relative) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            files.insert(relative.to_owned());
        }
    }
    Ok(())
}

/// Every violation in the repository.
fn violations(root: PathBuf) -> Result<Vec<Violation>, String> {
    let tree = Tree::open(root)?;
    let mut found = arrows::check(&tree)?;
    for file in tree.below("", ".rs") {
        let text = tree.text(file).unwrap_or_default();
        let source = lex::Source::parse(&text);
        found.extend(names::check(file, &source));
        found.extend(sources::check(file, &text, &source));
    }
    found.extend(book::check(&tree));
    found.extend(metrics::check(&tree));
    found.extend(model::check(&tree));
    found.extend(links::check(&tree));
    found.extend(words::check(&tree));
    found.sort();
    Ok(found)
}

/// Prints every violation; fails when there is one.
pub(crate) fn tidy() -> Result<(), String> {
    let found = violations(run::root())?;
    for violation in &found {
        println!("{violation}");
    }
    match found.len() {
        0 => {
            println!("tidy: every rule is kept");
            Ok(())
        }
        n => Err(format!("{n} violations of the rules of the house")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_keeps_the_rules() {
        let found = violations(run::root()).unwrap();
        let lines: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn the_tree_is_found_with_and_without_git() {
        let with = Tree::open(run::root()).unwrap();
        let mut without = BTreeSet::new();
        walk(&run::root(), &run::root(), &mut without).unwrap();
        for file in ["Cargo.toml", "crates/xtask/src/main.rs"] {
            assert!(
                with.files.contains(file) && without.contains(file),
                "{file}"
            );
        }
        assert!(!without.iter().any(|f| f.starts_with("target/")));
    }

    #[test]
    fn a_violation_says_place_rule_and_remedy() {
        let v = Violation::new(("a.rs", 0), "rule", "is wrong", "mend it");
        assert_eq!(v.to_string(), "a.rs:1: rule: is wrong\n    do: mend it");
    }
}
