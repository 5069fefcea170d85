//! The attack suite of the sandbox: runs it and counts what it contained.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::{Failure, run};

/// How many cases the list has.
const CASES: u32 = 66;
/// Cases that a user other than root cannot be tried with.
const ROOT_ONLY: usize = 2;

const HELP: &str = "\
Runs the attack suite and ends with how many of its cases the sandbox contained.

Usage: cargo xtask attack [--skips N] [FILTER]

  --skips N   how many cases this machine may skip: more or fewer is a failure
              (default: 0 as root, 2 otherwise)
  FILTER      only the cases whose name has this text; then nothing is asserted of the count
";

/// Runs the suite.
pub(crate) fn attack(args: &[String]) -> Result<(), Failure> {
    let Some(options) = options(args)? else {
        return crate::help(HELP);
    };
    let target = run::root().join("target");
    let verdicts = target.join("attack-verdicts");
    let prepared = fs::create_dir_all(&target).and_then(|()| fs::write(&verdicts, ""));
    prepared.map_err(|e| Failure::Failed(format!("{}: {e}", verdicts.display())))?;
    let suite = [
        "test",
        "--package",
        "detent-sandbox",
        "--test",
        "attack",
        "--no-fail-fast",
        "--",
    ];
    let mut command = run::cargo_command(&suite);
    command.args(["--nocapture"]);
    command.args(&options.filter);
    command.env("DETENT_ATTACK_VERDICTS", &verdicts);
    let passed = run::check(command);
    let text = fs::read_to_string(&verdicts).unwrap_or_default();
    let count = Count::of(&text);
    for (case, reason) in &count.skipped {
        println!("SKIP case {case}: {reason}");
    }
    println!("{}", count.summary());
    passed.map_err(Failure::Failed)?;
    if options.filter.is_some() {
        return Ok(());
    }
    count.judge(options.skips).map_err(Failure::Failed)
}

struct Options {
    skips: usize,
    filter: Option<String>,
}

fn options(args: &[String]) -> Result<Option<Options>, Failure> {
    let root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let mut options = Options {
        skips: if root { 0 } else { ROOT_ONLY },
        filter: None,
    };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--skips" => {
                let n = rest.next().and_then(|n| n.parse().ok());
                options.skips = n.ok_or_else(|| Failure::Usage("--skips takes a number".into()))?;
            }
            other if !other.starts_with('-') && options.filter.is_none() => {
                options.filter = Some(other.to_owned());
            }
            other => return Err(Failure::Usage(format!("unexpected argument {other:?}"))),
        }
    }
    Ok(Some(options))
}

/// What the cases noted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    contained: BTreeSet<u32>,
    skipped: BTreeMap<u32, String>,
}

impl Count {
    fn of(text: &str) -> Self {
        let mut count = Self::default();
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            let case = words.next().and_then(|n| n.parse().ok());
            match (case, words.next()) {
                (Some(case), Some("contained")) => {
                    count.contained.insert(case);
                }
                (Some(case), Some("skipped")) => {
                    let reason = words.next().unwrap_or("no reason given");
                    count.skipped.insert(case, reason.to_owned());
                }
                _ => {}
            }
        }
        // Part of it could not be tried.
        count
            .contained
            .retain(|case| !count.skipped.contains_key(case));
        count
    }

    fn summary(&self) -> String {
        let (contained, skipped) = (self.contained.len(), self.skipped.len());
        format!("contained {contained} of {CASES}, skipped {skipped}")
    }

    fn judge(&self, skips: usize) -> Result<(), String> {
        let seen = |case: &u32| self.contained.contains(case) || self.skipped.contains_key(case);
        let open: Vec<_> = (1..=CASES).filter(|case| !seen(case)).collect();
        if !open.is_empty() {
            return Err(format!("not contained: {open:?}"));
        }
        if self.skipped.len() != skips {
            let skipped = self.skipped.len();
            return Err(format!("{skipped} cases were skipped where {skips} may be"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_but(missing: u32) -> String {
        (1..=CASES)
            .filter(|case| *case != missing)
            .map(|case| format!("{case} contained\n"))
            .collect()
    }

    #[test]
    fn every_case_has_to_be_accounted_for() {
        assert_eq!(Count::of(&all_but(0)).judge(0), Ok(()));
        let open = Count::of(&all_but(17)).judge(0).unwrap_err();
        assert!(open.contains("[17]"), "{open}");
        let skipped = Count::of(&(all_but(17) + "17 skipped no such call\n"));
        assert!(skipped.judge(0).is_err());
        assert_eq!(skipped.judge(1), Ok(()));
        assert_eq!(skipped.summary(), "contained 65 of 66, skipped 1");
    }

    #[test]
    fn a_case_that_was_skipped_in_part_is_skipped() {
        let count = Count::of("5 contained\n5 skipped half\n5 contained\n");
        assert_eq!((count.contained.len(), count.skipped.len()), (0, 1));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for args in [
            &["--skips"][..],
            &["--skips", "x"],
            &["--what"],
            &["a", "b"],
        ] {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            assert!(matches!(attack(&args), Err(Failure::Usage(_))), "{args:?}");
        }
    }
}
