//! Relative links in Markdown lead somewhere: to a file, and to a heading in it.

use super::{Tree, Violation};
use std::collections::BTreeMap;

const RULE: &str = "links";

/// A link and its line, from 1.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

/// Lines that are prose, with their numbers; fenced code is left out.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|m| start.starts_with(m));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push((i + 1, line)),
            _ => {}
        }
    }
    lines
}

/// The line with what stands between backticks blanked out.
fn without_code(line: &str) -> String {
    let mut spans = line.split('`').enumerate();
    let odd_ticks = line.matches('`').count() % 2 == 1;
    if odd_ticks {
        return line.to_owned();
    }
    let keep = |(i, span): (usize, &str)| {
        if i % 2 == 0 {
            span.to_owned()
        } else {
            "x".into()
        }
    };
    spans.by_ref().map(keep).collect()
}

fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, raw) in prose(text) {
        let clean = without_code(raw);
        let inline = clean
            .match_indices("](")
            .filter_map(|(i, _)| target(&clean[i + 2..]));
        let definition = clean.trim_start().strip_prefix('[').and_then(|rest| {
            let (_, after) = rest.split_once("]: ")?;
            after.split_whitespace().next().map(str::to_owned)
        });
        let targets = inline.chain(definition);
        found.extend(targets.map(|target| Link { line, target }));
    }
    found
}

/// The address at the start of `rest`, which follows `](`.
fn target(rest: &str) -> Option<String> {
    if let Some(angled) = rest.strip_prefix('<') {
        return angled.split_once('>').map(|(t, _)| t.to_owned());
    }
    let (inside, _) = rest.split_once(')')?;
    // A title may follow the address.
    inside.split_whitespace().next().map(str::to_owned)
}

/// Anchors of a page: its headings as the usual renderers name them, and explicit ids.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, line) in prose(text) {
        let level = line.chars().take_while(|c| *c == '#').count();
        if (1..=6).contains(&level) && line[level..].starts_with(' ') {
            let slug = slug(&line[level..]);
            let count = seen.entry(slug.clone()).or_default();
            found.push(if *count == 0 {
                slug
            } else {
                format!("{slug}-{count}")
            });
            *count += 1;
        }
        for mark in ["id=\"", "name=\""] {
            let ids = line.split(mark).skip(1);
            found.extend(ids.filter_map(|r| r.split('"').next()).map(str::to_owned));
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let heading = heading.trim();
    let mut text = String::new();
    // Of a link only the text counts.
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, tail)| tail);
    }
    text += rest;
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// `base/../x` made plain; `None` where it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}

/// What is wrong with a link in `file`; `page` gives the text of a file, and an empty
/// text for a folder.
fn judge(file: &str, link: &Link, page: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let target = link.target.as_str();
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target
        .split_once('#')
        .map_or((target, None), |(p, a)| (p, Some(a)));
    let path = if path.is_empty() {
        Some(file.to_owned())
    } else if path.starts_with('/') {
        None
    } else {
        resolve(file, path)
    };
    let Some(path) = path else {
        return Some(format!("{target} leads out of the repository"));
    };
    let Some(text) = page(&path) else {
        return Some(format!("{target} leads to nothing: there is no {path}"));
    };
    let anchor = anchor.filter(|_| path.ends_with(".md"))?;
    let there = anchors(&text).iter().any(|a| a == anchor);
    (!there).then(|| format!("{path} has no heading #{anchor}"))
}

/// Checks the links of every Markdown file.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let page = |path: &str| {
        let is_folder = tree.below(&format!("{path}/"), "").next().is_some();
        if is_folder || path.is_empty() {
            return Some(String::new());
        }
        tree.files
            .contains(path)
            .then(|| tree.text(path).unwrap_or_default())
    };
    let mut found = Vec::new();
    for file in tree.below("", ".md") {
        for link in links(&tree.text(file).unwrap_or_default()) {
            if let Some(what) = judge(file, &link, &page) {
                let todo = "mend the link or the place it leads to";
                found.push(Violation::new((file, link.line), RULE, what, todo));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<usize> {
        let page = |path: &str| match path {
            "docs/a.md" => Some(text.to_owned()),
            "docs/b.md" => Some("# One & `two`\n## One\n## One\n<a id=\"own\">\n".to_owned()),
            "src/lib.rs" => Some(String::new()),
            _ => None,
        };
        let links = links(text);
        let broken = links
            .iter()
            .filter(|l| judge("docs/a.md", l, &page).is_some());
        broken.map(|l| l.line).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_kept() {
        let text = "# Top\n[b](b.md) [s](../src/lib.rs#L3) [w](https://example.org/x)\n\
                    [h](b.md#one--two) [h](b.md#one-1) [o](b.md#own) [t](#top)\n\
                    [t](b.md \"title\") [a](<b.md>)\n\n[ref]: b.md\n`[x](gone.md)`\n\
                    ```\n[x](gone.md)\n```\n";
        assert!(broken(text).is_empty(), "{:?}", broken(text));
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[x](gone.md)\n[x](b.md#three)\n[x](#none)\n[x](/b.md)\n\
                    [x](../../b.md)\n[ref]: gone.md\n[a](b.md) and [x](gone.md)\n";
        assert_eq!(broken(text), [1, 2, 3, 4, 5, 6, 7]);
    }
}
