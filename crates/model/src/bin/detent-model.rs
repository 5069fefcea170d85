//! Checks the model: every configuration whole, every mistake caught.

use clap::Parser;
use detent_model::check::Counterexample;
use detent_model::model::GOALS;
use detent_model::{Configuration, Mutation, Report, check, config};
use std::process::ExitCode;
use std::time::Instant;

/// Checks the protocol's model and says in one line what came out.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Check these configurations alone; a part of a name is enough.
    #[arg(long)]
    only: Option<String>,
    /// Plant this mistake alone, and print how it shows.
    #[arg(long)]
    mutation: Option<String>,
    /// Leave the mistakes out.
    #[arg(long)]
    no_mutations: bool,
    /// Set how many faults of a kind there are, e.g. `--with crash=2`. What the number of
    /// states then is, nobody knows.
    #[arg(long, value_name = "KIND=N")]
    with: Vec<String>,
    /// Threads; 0 is one for each processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// List configurations and mistakes.
    #[arg(long)]
    list: bool,
}

/// What all checks together came to.
#[derive(Default)]
struct Sum {
    configurations: usize,
    states: usize,
    caught: usize,
    planted: usize,
    wrong: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        return list();
    }
    let mutations: Vec<_> = match &args.mutation {
        Some(name) => Mutation::ALL.iter().filter(|m| m.name() == name).collect(),
        None => Mutation::ALL.iter().collect(),
    };
    let wanted = |c: &&Configuration| {
        let part = args.only.as_deref().unwrap_or_default();
        args.mutation.is_none() && c.name.contains(part)
    };
    let configurations: Vec<_> = config::ALL.iter().filter(wanted).collect();
    if mutations.is_empty() || (configurations.is_empty() && args.mutation.is_none()) {
        eprintln!("detent-model: nothing has that name; --list shows all");
        return ExitCode::from(2);
    }
    let began = Instant::now();
    let mut sum = Sum::default();
    for configuration in configurations {
        match changed(configuration, &args.with) {
            Ok(c) => sum.configuration(&c, threads(&args)),
            Err(why) => {
                eprintln!("detent-model: {why}");
                return ExitCode::from(2);
            }
        }
    }
    if !args.no_mutations && args.only.is_none() && args.with.is_empty() {
        for mutation in mutations {
            sum.mutation(*mutation, args.mutation.is_some());
        }
    }
    sum.print(began)
}

/// The configuration with other numbers of faults.
fn changed(c: &Configuration, with: &[String]) -> Result<Configuration, String> {
    let mut c = *c;
    for change in with {
        let (kind, number) = change.split_once('=').unwrap_or((change, ""));
        let number: Option<u8> = number.parse().ok();
        let set = number.is_some_and(|n| c.setting.budget.set(kind, n));
        if !set {
            return Err(format!(
                "--with takes a kind of fault and 0 to 3, not {change:?}"
            ));
        }
        (c.states, c.reaches) = (0, &[]);
    }
    Ok(c)
}

fn threads(args: &Args) -> usize {
    match args.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

fn list() -> ExitCode {
    for c in config::ALL {
        println!("{:<26} {:?}", c.name, c.setting.budget);
    }
    for m in Mutation::ALL {
        println!("{:<26} {}", m.name(), m.about());
    }
    ExitCode::SUCCESS
}

impl Sum {
    fn configuration(&mut self, c: &Configuration, threads: usize) {
        let report = check(&c.setting, threads);
        let wrong = wrong_with(c, &report);
        let verdict = if wrong.is_empty() { "holds" } else { "WRONG" };
        println!(
            "{:<26} {:>9} states {:>2} deep {:>6.1} s  {verdict}",
            c.name,
            report.states,
            report.depth,
            report.took.as_secs_f64(),
        );
        wrong.iter().for_each(|w| println!("  {w}"));
        self.configurations += 1;
        self.states += report.states;
        self.wrong += usize::from(!wrong.is_empty());
    }

    fn mutation(&mut self, mutation: Mutation, tell: bool) {
        // One thread: the first that is found is then the shortest.
        let report = check(&mutation.setting(), 1);
        let first = report.broken.first();
        let caught = first.is_some_and(|b| b.invariant == mutation.breaks());
        let by = first.map_or("NOT CAUGHT".to_owned(), said);
        println!("{:<26} {by}", mutation.name());
        if let (true, Some(first)) = (tell || !caught, first) {
            println!("{}\n{}", mutation.about(), first.text());
        }
        if !caught {
            println!("  expected: {}", mutation.breaks().name());
        }
        self.planted += 1;
        self.caught += usize::from(caught);
    }

    fn print(&self, began: Instant) -> ExitCode {
        let well = self.wrong == 0 && self.caught == self.planted;
        println!(
            "model: {} configurations, {} states, {} wrong; {} of {} mistakes caught; {:.0} s: {}",
            self.configurations,
            self.states,
            self.wrong,
            self.caught,
            self.planted,
            began.elapsed().as_secs_f64(),
            if well { "ok" } else { "FAILED" },
        );
        match well {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

fn said(b: &Counterexample) -> String {
    format!(
        "caught by {}, {} actions deep",
        b.invariant.name(),
        b.depth()
    )
}

fn wrong_with(c: &Configuration, report: &Report) -> Vec<String> {
    let mut wrong: Vec<_> = report.broken.iter().map(Counterexample::text).collect();
    if report.complete && c.states != 0 && report.states != c.states {
        wrong.push(format!(
            "{} states were known; a rule has changed: look whether that was meant, then write \
             the new number into crates/model/src/config.rs",
            c.states
        ));
    }
    let missing = c.reaches.iter().filter(|g| !report.reached.contains(g));
    if report.complete {
        wrong.extend(missing.map(|g| format!("no state in which it {}", GOALS[*g])));
    }
    wrong
}
