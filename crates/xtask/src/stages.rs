//! `cargo xtask test`: all that has to hold before a change is taken, stage by stage.
//!
//! Promises: the first stage that fails ends it; what the stages print is shown as it
//! comes; the last thing printed is a table of the stages.

use crate::{Failure, chores, help, run, setup, tidy};
use std::io::Write as _;
use std::time::{Duration, Instant};

struct Stage {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<(), String>,
}

const STAGES: [Stage; 10] = [
    Stage {
        name: "setup",
        about: "what the other stages need is there",
        run: setup::setup,
    },
    Stage {
        name: "fmt",
        about: "the code is formatted",
        run: || cargo(&["fmt", "--all", "--check"]),
    },
    Stage {
        name: "clippy",
        about: "no lint has anything to say",
        run: || {
            cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])
        },
    },
    Stage {
        name: "tidy",
        about: "the rules of the house",
        run: tidy::tidy,
    },
    Stage {
        name: "build",
        about: "every program builds",
        run: || cargo(&["build", "--workspace"]),
    },
    Stage {
        name: "nextest",
        about: "unit and integration tests",
        run: || cargo(&["nextest", "run", "--workspace", "--profile", "ci"]),
    },
    Stage {
        name: "doctest",
        about: "examples in the documentation",
        run: || cargo(&["test", "--workspace", "--doc"]),
    },
    Stage {
        name: "python",
        about: "tests of the quickstart's tools",
        run: python,
    },
    Stage {
        name: "model",
        about: "the protocol's model holds, and catches every mistake",
        run: || chores::model(&[]),
    },
    Stage {
        name: "sim",
        about: "300 seeds of the simulation, each twice",
        run: || chores::sim(&["--seeds", "300", "--twice"].map(str::to_owned)),
    },
];

fn cargo(args: &[&str]) -> Result<(), String> {
    run::check(run::cargo_command(args))
}

fn python() -> Result<(), String> {
    let mut command = run::command("python3");
    command.args([
        "-m",
        "unittest",
        "discover",
        "-s",
        "config/quickstart/tests",
    ]);
    // Compiled bytecode would lie among the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    run::check(command)
}

/// Which stages are to run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    fast: bool,
    only: Vec<String>,
    help: bool,
}

fn parse(args: &[String]) -> Result<Wish, Failure> {
    let mut wish = Wish::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (flag, inline) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        match (flag, &inline) {
            ("--fast", None) => wish.fast = true,
            ("-h" | "--help", None) => wish.help = true,
            ("--stage", _) => {
                let name = inline.or_else(|| args.next().cloned());
                wish.only.push(known_stage(name)?);
            }
            _ => return Err(Failure::Usage(format!("unexpected argument {arg:?}"))),
        }
    }
    Ok(wish)
}

fn known_stage(name: Option<String>) -> Result<String, Failure> {
    let names = STAGES.map(|s| s.name);
    name.filter(|n| names.contains(&n.as_str()))
        .ok_or_else(|| Failure::Usage(format!("--stage takes one of {}", names.join(", "))))
}

impl Wish {
    fn wants(&self, stage: &str) -> bool {
        if self.only.is_empty() {
            return !(self.fast && ["model", "sim"].contains(&stage));
        }
        self.only.iter().any(|s| s == stage)
    }
}

fn help_text() -> String {
    let mut text = String::from(
        "Everything that has to hold before a change is taken. Stops at the first failure.\n\n\
         Usage: cargo xtask test [--fast] [--stage NAME]...\n\n  \
         --fast        leave the model and the simulation out\n  \
         --stage NAME  run this stage alone; may be given several times\n\nStages:\n",
    );
    for stage in &STAGES {
        text += &format!("  {:<10} {}\n", stage.name, stage.about);
    }
    text
}

/// How a stage came out; nothing where it was not run.
type Line = (&'static str, Option<(bool, Duration)>);

/// Runs the stages that are wanted.
pub(crate) fn test(args: &[String]) -> Result<(), Failure> {
    let wish = parse(args)?;
    if wish.help {
        return help(&help_text());
    }
    let mut lines: Vec<Line> = Vec::new();
    let mut failed = None;
    for stage in &STAGES {
        if failed.is_some() || !wish.wants(stage.name) {
            lines.push((stage.name, None));
            continue;
        }
        println!("\n== {}: {}", stage.name, stage.about);
        flush();
        let start = Instant::now();
        let result = (stage.run)();
        lines.push((stage.name, Some((result.is_ok(), start.elapsed()))));
        failed = result
            .err()
            .map(|why| format!("{} failed: {why}", stage.name));
    }
    print!("\n{}", table(&lines));
    flush();
    match failed {
        Some(why) => Err(Failure::Failed(why)),
        None => Ok(()),
    }
}

/// Keeps our own lines in their place among those of the children. Nobody is left to
/// be told when stdout is gone.
fn flush() {
    let _ = std::io::stdout().flush();
}

fn table(lines: &[Line]) -> String {
    let mut text = format!("{:<10} {:<8} {:>8}\n", "stage", "result", "seconds");
    let mut total = Duration::ZERO;
    let mut all_well = true;
    for (name, outcome) in lines {
        let (result, seconds) = match outcome {
            None => ("not run", "-".to_owned()),
            Some((well, took)) => {
                total += *took;
                all_well &= *well;
                let result = if *well { "ok" } else { "FAILED" };
                (result, format!("{:.1}", took.as_secs_f64()))
            }
        };
        text += &format!("{name:<10} {result:<8} {seconds:>8}\n");
    }
    let verdict = if all_well { "ok" } else { "FAILED" };
    text += &format!("{:<10} {verdict:<8} {:>8.1}\n", "all", total.as_secs_f64());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(args: &str) -> Wish {
        let args: Vec<_> = args.split_whitespace().map(str::to_owned).collect();
        parse(&args).unwrap()
    }

    #[test]
    fn fast_leaves_the_long_ones_out_and_stage_chooses() {
        assert!(STAGES.iter().all(|s| wish("").wants(s.name)));
        let fast = wish("--fast");
        assert!(!fast.wants("sim") && !fast.wants("model") && fast.wants("nextest"));
        let two = wish("--stage tidy --stage=python");
        assert!(two.wants("tidy") && two.wants("python") && !two.wants("setup"));
        assert!(wish("--fast --stage sim").wants("sim"));
        assert!(wish("--help").help);
    }

    #[test]
    fn the_table_names_what_failed_and_what_was_not_run() {
        let took = Duration::from_millis(1_250);
        let text = table(&[
            ("fmt", Some((true, took))),
            ("clippy", Some((false, took))),
            ("sim", None),
        ]);
        let lines: Vec<_> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(lines[1], ["fmt", "ok", "1.2"]);
        assert_eq!(lines[2], ["clippy", "FAILED", "1.2"]);
        assert_eq!(lines[3], ["sim", "not", "run", "-"]);
        assert_eq!(lines[4], ["all", "FAILED", "2.5"]);
        assert!(table(&[("fmt", Some((true, took)))]).ends_with("all        ok            1.2\n"));
    }

    #[test]
    fn the_help_names_every_stage() {
        let text = help_text();
        assert!(STAGES.iter().all(|s| text.contains(s.name)));
    }
}
