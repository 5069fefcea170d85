//! The page about the model names, for each action and event of it, the code that it
//! stands for: every one has its row, and every function that is named is there.

use super::{Tree, Violation};
use std::collections::BTreeSet;

const RULE: &str = "model";
const PAGE: &str = "docs/explanation/model.md";
/// The enums whose variants have a row each.
const ENUMS: [(&str, &str); 2] = [
    ("crates/model/src/action.rs", "Action"),
    ("crates/model/src/decide/mod.rs", "Event"),
];

/// A row: what it is about, and the functions that it names with the file of each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    line: usize,
    names: Vec<String>,
    functions: Vec<(String, String)>,
}

/// The words in backquotes.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Rows whose first cell has a name in backquotes.
fn rows(page: &str) -> Vec<Row> {
    let lines = page.lines().enumerate();
    let rows = lines.filter_map(|(i, line)| {
        let cells: Vec<_> = line.strip_prefix('|')?.split('|').collect();
        let names: Vec<_> = spans(cells[0]).map(str::to_owned).collect();
        let is_variant = |n: &String| n.starts_with(char::is_uppercase);
        (!names.is_empty() && names.iter().all(is_variant)).then(|| Row {
            line: i + 1,
            names,
            functions: cells.get(2).map_or(Vec::new(), |cell| functions(cell)),
        })
    });
    rows.collect()
}

/// `[file.rs](path) `f`, `g`; …`: each function with the last file before it.
fn functions(cell: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in cell.split("](").skip(1) {
        let Some((path, after)) = part.split_once(')') else {
            continue;
        };
        let file = path.trim_start_matches("../");
        // What follows up to the next link's text belongs to this file.
        let own = after.rsplit_once('[').map_or(after, |(own, _)| own);
        found.extend(spans(own).map(|f| (file.to_owned(), f.to_owned())));
    }
    found
}

/// Variants of `pub enum NAME`.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let head = format!("pub enum {name} {{");
    let body = source.split_once(&head).map_or("", |(_, rest)| rest);
    let lines = body.lines().take_while(|l| *l != "}");
    // Variants stand four spaces deep; their fields and comments do not look so.
    let variants = lines.filter_map(|l| {
        let word = l.strip_prefix("    ")?;
        let end = word.find(|c: char| !c.is_alphanumeric())?;
        word.starts_with(char::is_uppercase)
            .then(|| word[..end].to_owned())
    });
    variants.collect()
}

fn defines(source: &str, function: &str) -> bool {
    let head = format!("fn {function}");
    source.match_indices(&head).any(|(i, _)| {
        let next = source[i + head.len()..].chars().next();
        next.is_some_and(|c| c == '(' || c == '<')
    })
}

/// What is wrong with the page, where `text` gives the text of a file.
fn judge(page: &str, text: &dyn Fn(&str) -> Option<String>) -> Vec<Violation> {
    let rows = rows(page);
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for (file, name) in ENUMS {
        let variants = variants(&text(file).unwrap_or_default(), name);
        if variants.is_empty() {
            let todo = "let crates/xtask/src/tidy/model.rs know its new form";
            let what = format!("the enum {name} was not found");
            found.push(Violation::new((file, 1), RULE, what, todo));
        }
        for variant in &variants {
            if !rows.iter().any(|r| r.names.contains(variant)) {
                let what = format!("{name}::{variant} has no row");
                found.push(Violation::new(
                    (PAGE, 1),
                    RULE,
                    what,
                    "say which code it stands for",
                ));
            }
        }
        known.extend(variants);
    }
    for row in &rows {
        for name in row.names.iter().filter(|n| !known.contains(*n)) {
            let what = format!("the model has no {name}");
            found.push(Violation::new(
                (PAGE, row.line),
                RULE,
                what,
                "take the row out",
            ));
        }
        for (file, function) in &row.functions {
            if !text(file).is_some_and(|source| defines(&source, function)) {
                let what = format!("{file} has no function {function}");
                let todo = "name the code that does it now, and look whether the model still fits";
                found.push(Violation::new((PAGE, row.line), RULE, what, todo));
            }
        }
    }
    found
}

/// Checks the page.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let page = tree.text(PAGE).unwrap_or_default();
    judge(&page, &|file| tree.text(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(page: &str) -> Vec<String> {
        let text = |file: &str| {
            match file {
            "crates/model/src/action.rs" => Some(
                "pub enum Other {\n    No,\n}\npub enum Action {\n    /// It.\n    Submit(Answer),\n    \
                 Turn {\n        /// Who.\n        node: u8,\n    },\n}\n"
                    .to_owned(),
            ),
            "crates/model/src/decide/mod.rs" => Some("pub enum Event {\n    Cancel,\n}\n".to_owned()),
            "crates/a/src/x.rs" => Some("pub(crate) async fn submit(a: u8) {}\n".to_owned()),
            "crates/a/src/y.rs" => Some("fn turn<T>() {}\nfn on_cancel() {}\n".to_owned()),
            _ => None,
        }
        };
        let found = judge(page, &text);
        found
            .into_iter()
            .map(|v| format!("{}: {}", v.line, v.what))
            .collect()
    }

    const GOOD: &str = "| a | b | c |\n|---|---|---|\n\
        | `Submit` | x | [x.rs](../../crates/a/src/x.rs) `submit` |\n\
        | `Turn`, `Cancel` | x | [y.rs](../../crates/a/src/y.rs) `turn`, `on_cancel`; [x.rs](../../crates/a/src/x.rs) `submit` |\n\
        | `read` | no action | |\n";

    #[test]
    fn a_page_that_names_what_is_there_is_kept() {
        assert_eq!(wrong(GOOD), [""; 0]);
    }

    #[test]
    fn missing_rows_and_functions_are_found() {
        let page = GOOD
            .replace("`Submit`", "`Gone`")
            .replace("on_cancel", "on_cance");
        assert_eq!(
            wrong(&page),
            [
                "1: Action::Submit has no row",
                "3: the model has no Gone",
                "4: crates/a/src/y.rs has no function on_cance",
            ]
        );
    }
}
