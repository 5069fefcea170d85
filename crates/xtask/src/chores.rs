//! Chores that hand their arguments on: the simulation, the model, the benchmarks, the
//! docs.

use crate::{Failure, run};

/// Runs the simulation with the arguments as they are.
pub(crate) fn sim(args: &[String]) -> Result<(), String> {
    program("detent-sim", args)
}

/// Checks the model with the arguments as they are.
pub(crate) fn model(args: &[String]) -> Result<(), String> {
    program("detent-model", args)
}

/// Runs the program that a package is named after.
fn program(name: &str, args: &[String]) -> Result<(), String> {
    let mut command = run::cargo_command(&["run", "--quiet", "--package", name, "--bin", name]);
    command.arg("--").args(args);
    run::check(command)
}

/// Rounds of the kill table where none are asked for, as in `test`.
const ROUNDS: u64 = 20;

/// Runs the kill table: `--rounds N`, and `DETENT_SEED` to run one again.
pub(crate) fn chaos(args: &[String]) -> Result<(), Failure> {
    let rounds = match args {
        [] => ROUNDS,
        [flag, n] if flag == "--rounds" => n
            .parse()
            .map_err(|_| Failure::Usage(format!("--rounds takes a number, not {n:?}")))?,
        _ => return Err(Failure::Usage("chaos takes --rounds N".into())),
    };
    let package = ["test", "--package", "detent-chaos-tests"];
    let mut command = run::cargo_command(&package);
    command.args(["--test", "kill_table", "--", "--nocapture"]);
    command.env("DETENT_CHAOS_ROUNDS", rounds.to_string());
    run::check(command).map_err(Failure::Failed)
}

/// Benchmarks by name, with the package that holds each.
const BENCHES: [(&str, &str); 5] = [
    ("loop", "detent-node"),
    ("nats", "detent-node"),
    ("local", "detent-bus"),
    ("commit", "detent-store"),
    ("sandbox", "detent-sandbox"),
];

/// Runs one benchmark; the first one, where none is named.
pub(crate) fn bench(args: &[String]) -> Result<(), Failure> {
    let ((name, package), rest) = chosen(args)?;
    let mut command = run::cargo_command(&["bench", "--package", package, "--bench", name, "--"]);
    command.args(rest);
    run::check(command).map_err(Failure::Failed)
}

type Bench = (&'static str, &'static str);

fn chosen(args: &[String]) -> Result<(Bench, &[String]), Failure> {
    match args.split_first() {
        Some((name, rest)) if !name.starts_with('-') => {
            let bench = BENCHES.into_iter().find(|(n, _)| n == name);
            let names = BENCHES.map(|(n, _)| n).join(", ");
            let missing = || Failure::Usage(format!("no benchmark {name:?}; there are {names}"));
            Ok((bench.ok_or_else(missing)?, rest))
        }
        _ => Ok((BENCHES[0], args)),
    }
}

/// Writes the pages about error codes and the machine-readable API. The tests that
/// compare them write them, so that there is one place which knows how they look.
pub(crate) fn docs() -> Result<(), String> {
    let mut command = run::cargo_command(&[
        "test",
        "--quiet",
        "--package",
        "detent-protocol",
        "--test",
        "error_pages",
        "--test",
        "api",
    ]);
    command.env("DETENT_UPDATE_DOCS", "1");
    run::check(command)?;
    println!("docs/reference/errors and docs/reference/api are up to date");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_benchmark_is_chosen_by_name_and_gets_the_rest() {
        let args = words("commit --quick");
        let ((name, package), rest) = chosen(&args).unwrap();
        assert_eq!((name, package), ("commit", "detent-store"));
        assert_eq!(rest, ["--quick"]);
        let flags = words("--goals 5");
        let ((name, _), rest) = chosen(&flags).unwrap();
        assert_eq!((name, rest.len()), ("loop", 2));
        assert!(chosen(&words("nothing")).is_err());
    }
}
