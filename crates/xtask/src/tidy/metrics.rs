//! Each metric that is defined is in the book, and the book names no other.

use super::lex::Source;
use super::{Tree, Violation};
use std::collections::BTreeMap;

const RULE: &str = "metrics";
const PAGE: &str = "docs/reference/metrics.md";
const PREFIX: &str = "detent_";

/// Where each metric was first named: file and line.
type Names = BTreeMap<String, (String, usize)>;

fn is_name(word: &str) -> bool {
    let tail = word.strip_prefix(PREFIX);
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    tail.is_some_and(|t| !t.is_empty() && t.chars().all(fits))
}

/// Metric names among the texts of a source file, its tests left out.
fn defined(file: &str, text: &str, names: &mut Names) {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    for (line, text) in Source::parse(code).texts {
        if is_name(&text) {
            names.entry(text).or_insert((file.to_owned(), line));
        }
    }
}

/// Metric names between backticks of the page; labels (`{…}`) left off.
fn written(page: &str) -> Names {
    let mut names = Names::new();
    for (i, line) in page.lines().enumerate() {
        for span in line.split('`').skip(1).step_by(2) {
            let name = span.split('{').next().unwrap_or_default();
            if is_name(name) {
                names.entry(name.into()).or_insert((PAGE.into(), i + 1));
            }
        }
    }
    names
}

/// A counter is registered without the `_total` that the exposition adds.
fn has(names: &Names, name: &str) -> bool {
    let total = format!("{name}_total");
    let bare = name.strip_suffix("_total");
    names.contains_key(name)
        || names.contains_key(&total)
        || bare.is_some_and(|b| names.contains_key(b))
}

fn compare(defined: &Names, written: &Names) -> Vec<Violation> {
    let undocumented = defined.iter().filter(|(name, _)| !has(written, name));
    let undocumented = undocumented.map(|(name, (file, line))| {
        let what = format!("the metric {name} is not in {PAGE}");
        Violation::new(
            (file, *line),
            RULE,
            what,
            "describe it there: type, unit, labels",
        )
    });
    let stale = written.iter().filter(|(name, _)| !has(defined, name));
    let stale = stale.map(|(name, (file, line))| {
        let what = format!("there is no metric {name}");
        Violation::new(
            (file, *line),
            RULE,
            what,
            "take it out, or define it in crates/node",
        )
    });
    undocumented.chain(stale).collect()
}

/// Compares the node's metrics with their page. Holds as soon as there are metrics.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let sources = tree.below("crates/node/src/metrics", ".rs");
    let sources: Vec<_> = sources.filter(|f| !f.contains("/tests")).collect();
    let Some(first) = sources.first() else {
        return Vec::new();
    };
    let mut names = Names::new();
    for file in &sources {
        defined(file, &tree.text(file).unwrap_or_default(), &mut names);
    }
    if names.is_empty() {
        let what = format!("no metric name was found (a text that begins with {PREFIX})");
        let todo = "write metric names in full, so that they can be searched for";
        return vec![Violation::new((first, 1), RULE, what, todo)];
    }
    let Some(page) = tree.text(PAGE) else {
        let what = format!("metrics are defined, but {PAGE} is missing");
        return vec![Violation::new((first, 1), RULE, what, "write the page")];
    };
    compare(&names, &written(&page))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "const A: &str = \"detent_goals_open\";\nr.register(\"detent_turns\", \"detent_ not one\");\n#[cfg(test)]\nmod t { const B: &str = \"detent_test_only\"; }";

    fn names() -> Names {
        let mut names = Names::new();
        defined("m.rs", CODE, &mut names);
        names
    }

    #[test]
    fn definitions_and_pages_are_read() {
        let found: Vec<_> = names().into_iter().collect();
        assert_eq!(found[0], ("detent_goals_open".into(), ("m.rs".into(), 1)));
        assert_eq!(found[1], ("detent_turns".into(), ("m.rs".into(), 2)));
        assert_eq!(found.len(), 2);
        let page = written("| `detent_a{x=\"1\"}` | detent_no |\n`detent_b` and `detent_c`");
        assert_eq!(
            page.keys().collect::<Vec<_>>(),
            ["detent_a", "detent_b", "detent_c"]
        );
    }

    #[test]
    fn both_directions_are_compared() {
        let good = written("`detent_goals_open`, `detent_turns_total`");
        assert!(compare(&names(), &good).is_empty());
        let bad = written("`detent_turns_total`\n\n`detent_gone`");
        let found = compare(&names(), &bad);
        let places: Vec<_> = found.iter().map(|v| (v.file.as_str(), v.line)).collect();
        assert_eq!(places, [("m.rs", 1), (PAGE, 3)]);
    }
}
