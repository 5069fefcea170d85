//! Runs seeds and says which invariants they break.

use clap::{Parser, ValueEnum};
use detent_orchestrator::Bug;
use detent_sim::{Options, Report, run};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Runs whole clusters under seeds and judges the invariants.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// How many seeds are run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, env = "DETENT_SEED", default_value_t = 0)]
    from: u64,
    /// Run each seed twice and compare everything that happened.
    #[arg(long)]
    twice: bool,
    /// Plant a mistake; the first seed that finds it ends the run.
    #[arg(long)]
    bug: Option<Planted>,
    /// Print what happened.
    #[arg(long)]
    trace: bool,
    /// Goals of one run.
    #[arg(long, default_value_t = Options::default().goals)]
    goals: u64,
    /// Seeds that are run at the same time; 0 is one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Print how often each kind of record was journaled.
    #[arg(long)]
    kinds: bool,
    /// Go on after the first seed that breaks an invariant.
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Planted {
    AckEarly,
    DispatchBeforeIntent,
    RetryOnOwnTimeout,
    KeyPerAttempt,
    ObserveBeforeSeal,
    ReplanNewIdentity,
}

impl From<Planted> for Bug {
    fn from(planted: Planted) -> Bug {
        match planted {
            Planted::AckEarly => Bug::AckEarly,
            Planted::DispatchBeforeIntent => Bug::DispatchBeforeIntent,
            Planted::RetryOnOwnTimeout => Bug::RetryOnOwnTimeout,
            Planted::KeyPerAttempt => Bug::KeyPerAttempt,
            Planted::ObserveBeforeSeal => Bug::ObserveBeforeSeal,
            Planted::ReplanNewIdentity => Bug::ReplanNewIdentity,
        }
    }
}

/// What all seeds together came to.
#[derive(Default)]
struct Sum {
    runs: u64,
    events: u64,
    starts: u64,
    lives: u64,
    simulated_ms: u64,
    ended: BTreeMap<String, u64>,
    kinds: BTreeMap<&'static str, u64>,
    /// Folded over all seeds, in any order.
    digest: u64,
    failed: BTreeMap<u64, String>,
    different: Vec<u64>,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.events += report.events;
        self.starts += report.starts;
        self.lives += report.lives;
        self.simulated_ms += report.simulated_ms;
        for (status, goals) in &report.ended {
            *self.ended.entry(status.clone()).or_default() += goals;
        }
        for (kind, records) in report.facts.kinds() {
            *self.kinds.entry(kind).or_default() += records;
        }
        let turn = u32::try_from(report.seed % 64).unwrap_or_default();
        self.digest ^= report.trace_hash.rotate_left(turn);
        if !report.violations.is_empty() {
            let lines: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
            self.failed.insert(report.seed, lines.join("\n  "));
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    // Actors panic on purpose here, and the report says what matters.
    std::panic::set_hook(Box::new(|_| {}));
    let began = Instant::now();
    let sum = Mutex::new(Sum::default());
    let next = AtomicU64::new(args.from);
    let stop = AtomicBool::new(false);
    let jobs = match args.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| work(&args, &sum, &next, &stop));
        }
    });
    let sum = sum.into_inner().unwrap_or_else(|e| e.into_inner());
    print(&args, &sum, began)
}

fn work(args: &Args, sum: &Mutex<Sum>, next: &AtomicU64, stop: &AtomicBool) {
    let options = Options {
        bug: args.bug.map(Bug::from),
        goals: args.goals,
        keep_trace: args.trace,
        ..Options::default()
    };
    while !stop.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= args.from + args.seeds {
            return;
        }
        let report = match run(seed, &options) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("no runtime: {error}");
                return stop.store(true, Ordering::Relaxed);
            }
        };
        let again = args.twice.then(|| run(seed, &options));
        let mut sum = sum.lock().unwrap_or_else(|e| e.into_inner());
        for line in &report.trace {
            println!("{line}");
        }
        if args.trace {
            tell(&report);
        }
        sum.add(&report);
        if let Some(Ok(again)) = again
            && (again.trace_hash, again.events) != (report.trace_hash, report.events)
        {
            sum.different.push(seed);
        }
        let over = !(sum.failed.is_empty() && sum.different.is_empty());
        if over && !args.all {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Prints the journals of the goals for which something is wrong.
fn tell(report: &Report) {
    let goals: BTreeSet<_> = report.violations.iter().filter_map(|v| v.goal).collect();
    for goal in goals {
        println!("journal of {goal}:");
        for line in report.facts.story(goal) {
            println!("  {line}");
        }
    }
}

/// One line for all, and for each failed seed what is wrong and how to see it again.
fn print(args: &Args, sum: &Sum, began: Instant) -> ExitCode {
    let bug = args.bug.and_then(|b| b.to_possible_value());
    let bug = bug.map_or(String::new(), |b| format!(" --bug {}", b.get_name()));
    for (seed, text) in &sum.failed {
        println!("seed {seed}:\n  {text}");
        println!("  again: detent-sim --from {seed} --seeds 1 --trace{bug}");
    }
    for seed in &sum.different {
        println!("seed {seed}: two runs are not the same");
        println!("  again: detent-sim --from {seed} --seeds 1 --twice{bug}");
    }
    if args.kinds {
        println!("records {:?}", sum.kinds);
    }
    let (took, minutes) = (began.elapsed(), sum.simulated_ms as f64 / 60_000.0);
    let each_ms = took.as_secs_f64() * 1000.0 / sum.runs.max(1) as f64;
    println!(
        "{} seeds, {} events, {} goals {:?}, {} processes, {} lives, {minutes:.0} simulated \
         minutes in {:.1} s ({each_ms:.0} ms a seed), {} broken, {} not repeatable, digest {:016x}",
        sum.runs,
        sum.events,
        sum.ended.values().sum::<u64>(),
        sum.ended,
        sum.starts,
        sum.lives,
        took.as_secs_f64(),
        sum.failed.len(),
        sum.different.len(),
        sum.digest,
    );
    if sum.failed.is_empty() && sum.different.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
