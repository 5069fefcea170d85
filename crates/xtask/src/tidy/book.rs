//! Each error code has its page in the book, and each page its code.

use super::{Tree, Violation};
use std::collections::BTreeMap;

const RULE: &str = "error-pages";
const TABLE: &str = "crates/protocol/src/error.rs";
const PAGES: &str = "docs/reference/errors/";

/// Codes of the table with their lines: `Variant = "TEXT", retry …`.
fn codes(table: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (i, line) in table.lines().enumerate() {
        let Some((variant, rest)) = line.trim().split_once(" = \"") else {
            continue;
        };
        let is_variant = variant.chars().all(char::is_alphanumeric);
        if let Some((code, after)) = rest.split_once('"')
            && is_variant
            && after.starts_with(", retry ")
        {
            found.insert(code.to_owned(), i + 1);
        }
    }
    found
}

fn compare(codes: &BTreeMap<String, usize>, pages: &[&str]) -> Vec<Violation> {
    let todo = "cargo xtask docs";
    if codes.is_empty() {
        let what = "the table of codes was not found";
        let todo = "let crates/xtask/src/tidy/book.rs know its new form";
        return vec![Violation::new((TABLE, 1), RULE, what, todo)];
    }
    let missing = codes.iter().filter(|(c, _)| !pages.contains(&c.as_str()));
    let missing = missing.map(|(code, line)| {
        let what = format!("{code} has no page {PAGES}{code}.md");
        Violation::new((TABLE, *line), RULE, what, todo)
    });
    let stale = pages
        .iter()
        .filter(|p| !codes.contains_key(**p) && **p != "README");
    let stale = stale.map(|page| {
        let file = format!("{PAGES}{page}.md");
        Violation::new((&file, 1), RULE, format!("there is no code {page}"), todo)
    });
    missing.chain(stale).collect()
}

/// Compares the table with the pages.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let table = tree.text(TABLE).unwrap_or_default();
    let names = tree.below(PAGES, ".md");
    let pages: Vec<_> = names
        .map(|f| f.trim_start_matches(PAGES).trim_end_matches(".md"))
        .collect();
    compare(&codes(&table), &pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "codes! {\n    ToolFailed = \"TOOL_FAILED\", retry true,\n        what \"x\",\n    Other = \"OTHER\", retry false,\n";

    #[test]
    fn the_table_is_read() {
        let found = codes(SAMPLE);
        assert_eq!(found.get("TOOL_FAILED"), Some(&2));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn missing_and_stale_pages_are_found() {
        let codes = codes(SAMPLE);
        assert!(compare(&codes, &["OTHER", "README", "TOOL_FAILED"]).is_empty());
        let found = compare(&codes, &["OTHER", "GONE"]);
        let places: Vec<_> = found.iter().map(|v| (v.file.as_str(), v.line)).collect();
        assert_eq!(places, [(TABLE, 2), ("docs/reference/errors/GONE.md", 1)]);
        assert_eq!(compare(&BTreeMap::new(), &[]).len(), 1);
    }
}
