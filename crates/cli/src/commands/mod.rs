//! One file for each group of commands.

mod config;
mod dlq;
mod doctor;
mod errors;
mod goals;
pub(crate) mod nats;
mod replay;
mod run;
mod sandbox;
mod submit;
mod tools;
mod up;

use crate::args::{Args, Command, Global};
use crate::exit;
use detent_node::{Config, Flags};
use detent_protocol::Fault;
use std::path::{Path, PathBuf};

/// Runs a command; gives the exit code.
pub(crate) async fn run(args: Args) -> Result<u8, Fault> {
    let global = &args.global;
    match args.command {
        Command::Run(run) => run::run(global, &run).await,
        Command::Up(up) => up::up(global, &up).await,
        Command::Submit(submit) => submit::submit(global, &submit).await,
        Command::Goals(goals) => goals::run(global, goals).await,
        Command::Dlq(dlq) => dlq::run(global, dlq).await,
        Command::Nats(nats) => nats::run(global, nats).await,
        Command::Replay { file } => replay::replay(&file),
        Command::Tools(tools) => tools::run(global, &tools),
        Command::Config(command) => config::run(global, &command),
        Command::Errors(command) => errors::run(&command),
        Command::Sandbox(command) => sandbox::run(command).await,
        Command::Doctor => doctor::doctor(global).await,
        Command::Completions { shell } => Ok(completions(shell)),
    }
}

fn completions(shell: clap_complete::Shell) -> u8 {
    let mut command = <Args as clap::CommandFactory>::command();
    clap_complete::generate(shell, &mut command, "detent", &mut std::io::stdout());
    exit::OK
}

/// Reads the configuration. `near` is a file beside which it may lie.
fn load(global: &Global, near: Option<&Path>, set: &[&str]) -> Result<Config, Fault> {
    let file = global.config.clone().or_else(|| find(near));
    let mut all: Vec<String> = set.iter().map(ToString::to_string).collect();
    all.extend(global.nats.iter().map(|url| format!("nats.url={url}")));
    all.extend(global.set.iter().cloned());
    Config::load(&Flags { file, set: all }, &|name| std::env::var(name).ok())
}

/// `detent.toml` in the folder of `near` or the three above it, else in the current
/// folder.
fn find(near: Option<&Path>) -> Option<PathBuf> {
    let near = near.and_then(|p| p.canonicalize().ok());
    let above = near.iter().flat_map(|p| p.ancestors().skip(1).take(4));
    let here = std::env::current_dir().ok();
    let mut folders = above.map(Path::to_path_buf).chain(here);
    folders.find_map(|dir| Some(dir.join("detent.toml")).filter(|f| f.is_file()))
}
