//! What every source file has and has not: a head that says what it is for, and no
//! leftovers of work in progress.

use super::Violation;
use super::lex::Source;

/// Macros that stand for work that was not done.
const LEFTOVERS: [(&str, &str); 3] = [
    ("todo", "write the code, or take the path out"),
    (
        "unimplemented",
        "write the code, or refuse the case with a Fault",
    ),
    ("dbg", "take it out, or use tracing"),
];

/// Checks one file.
pub(super) fn check(file: &str, text: &str, source: &Source) -> Vec<Violation> {
    let mut found: Vec<_> = head(file, text).into_iter().collect();
    for (i, line) in source.code.lines().enumerate() {
        for (name, todo) in LEFTOVERS {
            if calls(line, name) {
                let what = format!("{name}! is left over");
                found.push(Violation::new((file, i + 1), "leftovers", what, todo));
            }
        }
    }
    found
}

fn head(file: &str, text: &str) -> Option<Violation> {
    let first = text.lines().next().unwrap_or_default();
    let says = first.strip_prefix("//!").map(str::trim);
    if says.is_some_and(|s| !s.is_empty()) {
        return None;
    }
    let what = "the file does not say what it is for";
    let todo = "begin it with `//!`: what it is for, what it promises, what it must not know";
    Some(Violation::new((file, 1), "heads", what, todo))
}

/// Does `line` call the macro `name`?
fn calls(line: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(i, _)| {
        let before = line[..i].chars().next_back();
        let rest = line[i + name.len()..].trim_start();
        // `x.todo != y` is a comparison, not a call.
        let call = rest.starts_with('!') && !rest.starts_with("!=");
        call && !before.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        let found = check("a.rs", text, &Source::parse(text));
        found.iter().map(|v| v.rule).collect()
    }

    #[test]
    fn a_file_begins_with_what_it_is_for() {
        assert!(rules("//! Says it.\n").is_empty());
        for bad in [
            "",
            "use std::fmt;\n",
            "// Not this.\n",
            "//!\n",
            "\n//! Late.\n",
        ] {
            assert_eq!(rules(bad), ["heads"], "{bad:?}");
        }
    }

    #[test]
    fn leftovers_are_found_in_code_only() {
        for bad in ["todo!()", "unimplemented! ()", "let a = dbg!(b);"] {
            assert_eq!(rules(&format!("//! X.\n{bad}")), ["leftovers"], "{bad}");
        }
        let fine = "//! X.\n// todo!()\nlet s = \"dbg!\"; my_todo!(); if todo != 1 {}";
        assert!(rules(fine).is_empty());
    }
}
