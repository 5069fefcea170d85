//! The `detent` binary: the faces of a node on the command line.
//!
//! Data goes to stdout, everything else to stderr; `-o json` gives data that programs
//! can read; exit codes are documented in [`exit`]. Must never know how anything is
//! done: it asks a node, or starts one.

mod args;
mod client;
mod commands;
mod exit;
mod output;

use clap::Parser;
use std::process::ExitCode;

/// A journal entry is many small pieces of JSON: this allocator halves what they cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Hidden first argument under which the node starts the keeper of a process tree.
const KEEPER: &str = "__keeper";

fn main() -> ExitCode {
    // Before anything else: the keeper is a small single-threaded program.
    if std::env::args_os().nth(1).is_some_and(|a| a == KEEPER) {
        return ExitCode::from(u8::try_from(detent_sandbox::keeper_main()).unwrap_or(1));
    }
    let args = args::Args::parse();
    output::init(args.global.output, args.global.verbose);
    if let Err(error) = detent_bus::failpoint::arm_from_env() {
        output::note(format!("detent: {error}"));
        return ExitCode::from(exit::USAGE);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(format!("detent: can't start: {error}"));
            return ExitCode::from(exit::INTERNAL);
        }
    };
    let code = match runtime.block_on(commands::run(args)) {
        Ok(code) => code,
        Err(fault) => output::fault(&fault),
    };
    // A tool that ignores its end must not keep the program from ending.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    ExitCode::from(code)
}
