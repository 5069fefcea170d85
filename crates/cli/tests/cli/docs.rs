//! The reference pages of the command line stay true.
//!
//! `DETENT_UPDATE_DOCS=1 cargo test -p detent-cli docs` writes the generated parts anew.

use super::support::Bed;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- generated: from --help -->\n";

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

fn help(path: &[String]) -> String {
    let bed = Bed::empty();
    let mut command = bed.command(path.iter().map(String::as_str).chain(["-h"]));
    // Help shows the variables' values and fits the terminal.
    command.env_remove("COLUMNS").env_remove("DETENT_DATA");
    super::support::finish(command).exits(0).stdout
}

/// Names under `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    let block = help.split("Commands:\n").nth(1).unwrap_or_default();
    let rows = block.lines().take_while(|l| l.starts_with("  "));
    let names = rows.filter_map(|l| l.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|n| !n.is_empty() && *n != "help")
        .map(str::to_owned)
        .collect()
}

/// Options that every command takes stand once, with the program itself.
fn without_global(help: &str) -> String {
    const GLOBAL: [&str; 9] = [
        "--nats <",
        "--tenant <",
        "--config",
        "--data",
        "--set",
        "-o, ",
        "-v, ",
        "-h, ",
        "-V, ",
    ];
    let mut kept: Vec<&str> = Vec::new();
    let mut skipping = false;
    for line in help.lines() {
        let entry = line.trim_start();
        if entry.starts_with('-') {
            skipping = GLOBAL.iter().any(|g| entry.starts_with(g));
        } else if !line.starts_with("   ") {
            skipping = false;
        }
        if !skipping {
            kept.push(line.trim_end());
        }
    }
    kept.join("\n")
        .replace("Options:\n\n", "")
        .trim_end()
        .trim_end_matches("Options:")
        .trim_end()
        .to_owned()
}

fn section(path: &[String], out: &mut String) {
    let text = help(path);
    let level = "#".repeat(path.len() + 2);
    let name = format!("detent {}", path.join(" "));
    let shown = if path.is_empty() {
        text.trim_end().to_owned()
    } else {
        without_global(&text)
    };
    writeln!(
        out,
        "{} `{}`\n\n```\n{shown}\n```\n",
        if path.is_empty() { "##" } else { &level[..] },
        name.trim_end()
    )
    .unwrap();
    for sub in subcommands(&text) {
        let mut path = path.to_vec();
        path.push(sub);
        section(&path, out);
    }
}

#[test]
fn the_page_of_commands_is_what_help_says() {
    let mut generated = String::new();
    section(&[], &mut generated);
    let file = page("reference/cli.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (head, is) = text.split_once(BEGIN).expect("the page has its mark");
    let should = generated.trim_end();
    if std::env::var_os("DETENT_UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{head}{BEGIN}\n{should}\n")).unwrap();
        return;
    }
    assert_eq!(is.trim(), should, "DETENT_UPDATE_DOCS=1 writes it anew");
    for command in [
        "run",
        "up",
        "submit",
        "goals answer",
        "tools lint",
        "config show",
        "errors show",
        "replay",
        "doctor",
    ] {
        assert!(should.contains(&format!("`detent {command}`")), "{command}");
    }
}

#[test]
fn the_page_of_exit_codes_is_the_table() {
    let source = include_str!("../../src/exit.rs");
    let rows: Vec<_> = source
        .lines()
        .filter_map(|l| l.strip_prefix("//! | "))
        .filter(|l| l.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert_eq!(rows.len(), 8);
    let text = std::fs::read_to_string(page("reference/exit-codes.md")).unwrap();
    for row in rows {
        assert!(text.contains(&format!("| {row}")), "{row}");
    }
}

/// Each command that a page of the how-to shows is one that the program takes.
#[test]
fn what_the_how_to_shows_can_be_typed() {
    let mut seen = 0;
    for entry in std::fs::read_dir(page("how-to")).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text
            .lines()
            .filter_map(|l| l.trim().strip_prefix("detent "))
        {
            let words: Vec<_> = line
                .split(' ')
                .take_while(|w| w.starts_with(|c: char| c.is_ascii_lowercase()))
                .take(2)
                .map(str::to_owned)
                .collect();
            let known = |path: &[String], name: &String| subcommands(&help(path)).contains(name);
            assert!(known(&[], &words[0]), "{}: detent {line}", file.display());
            if !subcommands(&help(&words[..1])).is_empty() {
                assert!(
                    words.len() == 2 && known(&words[..1], &words[1]),
                    "{}: detent {line}",
                    file.display()
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

/// Code blocks of one language on a page.
fn blocks(page_name: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page(page_name)).unwrap();
    let fence = format!("```{language}\n");
    let parts = text.split(&fence).skip(1);
    parts
        .map(|p| p.split("```").next().unwrap().to_owned())
        .collect()
}

const SEARCH: &str = r#"
[[tool]]
name = "search"
effect = "read"
kind = "process"
run.command = ["/bin/sh", "-c", "echo '{\"summary\": \"all of it\", \"hits\": 3}'"]
"#;

/// The tool and the agent that the how-to pages build, run for real.
#[test]
fn what_the_how_to_builds_runs() {
    let bed = Bed::empty();
    bed.write(
        "detent.toml",
        "agents = [\"notes.toml\"]\ntools = [\"tools.toml\"]\n",
    );
    std::fs::create_dir(bed.path("tools")).unwrap();
    bed.write(
        "tools/post_note.py",
        &blocks("how-to/write-a-tool.md", "python")[0],
    );
    let tool = &blocks("how-to/write-a-tool.md", "toml")[0];
    bed.write("tools.toml", format!("{tool}{SEARCH}"));
    bed.write("notes.toml", &blocks("how-to/write-an-agent.md", "toml")[0]);
    bed.json(["tools", "lint"]).exits(0);
    let input = r#"{"topic": "rust", "readers": ["ada", "bob"], "since": "2026-01-01"}"#;
    bed.write(
        "goal.json",
        format!(r#"{{"agent": "notes", "input": {input}}}"#),
    );
    let out = bed.run_goal().exits(0);
    assert_eq!(out.result()["data"]["hits"], 3);
    let goal = out.last()["goal"].as_str().unwrap().to_owned();
    for reader in ["ada", "bob"] {
        let note = std::fs::read_to_string(bed.data(&format!("note-{goal}-{reader}.json")));
        assert!(note.unwrap().contains("all of it"));
    }
}
