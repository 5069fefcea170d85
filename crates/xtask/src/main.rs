//! The repository's own chores: `cargo xtask setup|test|sim|model|chaos|attack|test-vm|bench|docs|tidy`.
//!
//! Promises: a chore says what it runs before it runs it, shows the output as it comes,
//! and ends with a non-zero exit code when anything failed. Depends on nothing of the
//! product, so that it builds in seconds.

mod attack;
mod chores;
mod run;
mod setup;
mod stages;
mod tidy;
mod vm;

use std::process::ExitCode;

const HELP: &str = "\
The repository's own chores.

Usage: cargo xtask CHORE [OPTIONS]

  setup                    check what the chores need; install what is missing into target/tools
  test [--fast] [--stage NAME]...
                           everything that has to hold before a change is taken
  sim [--seeds N] [--twice] ...
                           the simulation; arguments go to detent-sim as they are
  model [--only NAME] [--mutation NAME] ...
                           the protocol's model, whole; arguments go to detent-model
  chaos [--rounds N]       the kill table on the real binary (default 20 rounds; DETENT_SEED
                           runs the same kills again)
  attack [FILTER]          the attacks on the sandbox; ends with how many it contained
  test-vm                  the sandbox's tests on a kernel of their own, in an emulator
  bench [NAME] ...         one benchmark (default: loop); further arguments go to it
  docs                     write the pages about error codes and docs/reference/api from the code
  tidy                     the rules of the house, without building anything

cargo xtask CHORE --help says more about test; sim, model and bench pass it on.
Exit code: 0 all well, 1 something failed, 2 the arguments make no sense.
";

/// Why a chore did not end well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Something that had to hold does not.
    Failed(String),
    /// The arguments make no sense.
    Usage(String),
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(why)) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(why)) => {
            eprintln!("xtask: {why}\nTry: cargo xtask --help");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), Failure> {
    let Some((chore, rest)) = args.split_first() else {
        return Err(Failure::Usage("which chore?".into()));
    };
    match chore.as_str() {
        "-h" | "--help" | "help" => help(HELP),
        "test" => stages::test(rest),
        "sim" => chores::sim(rest).map_err(Failure::Failed),
        "model" => chores::model(rest).map_err(Failure::Failed),
        "attack" => attack::attack(rest),
        "test-vm" => vm::test_vm(rest),
        "bench" => chores::bench(rest),
        "chaos" => chores::chaos(rest),
        "setup" => bare(rest, setup::setup),
        "docs" => bare(rest, chores::docs),
        "tidy" => bare(rest, tidy::tidy),
        other => Err(Failure::Usage(format!("no chore {other:?}"))),
    }
}

/// Prints a help text.
pub(crate) fn help(text: &str) -> Result<(), Failure> {
    print!("{text}");
    Ok(())
}

/// Runs a chore that takes no arguments.
fn bare(args: &[String], chore: fn() -> Result<(), String>) -> Result<(), Failure> {
    match args.first().map(String::as_str) {
        None => chore().map_err(Failure::Failed),
        Some("-h" | "--help") => help(HELP),
        Some(other) => Err(Failure::Usage(format!("unexpected argument {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(args: &[&str]) -> bool {
        let args: Vec<_> = args.iter().map(ToString::to_string).collect();
        matches!(dispatch(&args), Err(Failure::Usage(_)))
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused_before_anything_runs() {
        assert!(usage(&[]));
        assert!(usage(&["no-such-chore"]));
        assert!(usage(&["tidy", "extra"]));
        assert!(usage(&["setup", "--fast"]));
        assert!(usage(&["test", "--no-such-flag"]));
        assert!(usage(&["test", "--stage", "no-such-stage"]));
        assert!(usage(&["test", "--stage"]));
        assert!(usage(&["bench", "no-such-bench"]));
    }
}
