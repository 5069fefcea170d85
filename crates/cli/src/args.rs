//! The command line.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use detent_protocol::{GoalId, QuestionId, TenantId};
use std::path::PathBuf;

/// A distributed runtime for AI agents: goals in, verified results out.
#[derive(Debug, Parser)]
#[command(name = "detent", version, propagate_version = true, after_help = AFTER)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "Exit codes: 0 done, 1 goal failed, 2 usage, 3 refused, 4 not now, \
5 cancelled, 6 damage or bug, 130 interrupted.\n\
First try: detent run config/quickstart/goal.json";

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Global {
    /// Configuration file. `run` and `submit` look for `detent.toml` beside the goal's
    /// file and above it, the others in the current folder.
    #[arg(long, global = true, value_name = "FILE", env = "DETENT_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Data directory.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = ".detent",
        env = "DETENT_DATA"
    )]
    pub(crate) data: PathBuf,
    /// NATS servers: short for `--set nats.url=URL`. Commands that speak to a node then
    /// speak to any node there, not to the one on the data directory.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Whose goals, for commands that ask and steer.
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub(crate) tenant: TenantId,
    /// Overrides one setting, e.g. `node.drain_ms=1000`. Repeatable.
    #[arg(long, global = true, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Form of what is printed on stdout.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Text)]
    pub(crate) output: Format,
    /// More of what happens, on stderr. Twice: everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// JSON, one object a line where there are several.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs one goal in this process, start to verified result; nothing else needed.
    Run(Run),
    /// Starts a node and keeps it running until SIGTERM or Ctrl-C.
    Up(Up),
    /// Submits a goal to the node that runs on the data directory.
    Submit(Submit),
    /// Looks at goals and steers them.
    #[command(subcommand)]
    Goals(Goals),
    /// Looks at messages that nobody could deal with.
    #[command(subcommand)]
    Dlq(Dlq),
    /// Sets the broker up.
    #[command(subcommand)]
    Nats(Nats),
    /// Folds an exported journal and shows each state. Needs no node.
    Replay {
        /// File that `goals export` wrote.
        file: PathBuf,
    },
    /// Looks at the registry of tools.
    #[command(subcommand)]
    Tools(Tools),
    /// Looks at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Explains error codes.
    #[command(subcommand)]
    Errors(Errors),
    /// Runs programs in a sandbox, without a node.
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Checks whether everything that is needed is there.
    Doctor,
    /// Prints completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Up {
    /// Starts a NATS server of its own on loopback, with its data in the data directory,
    /// and stops it at the end: a path to `nats-server`, or `auto` to look for one.
    #[arg(long, value_name = "PATH|auto", conflicts_with = "nats")]
    pub(crate) nats_server: Option<String>,
    /// Port of that server on loopback; 0 is any free one.
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        requires = "nats_server"
    )]
    pub(crate) nats_port: u16,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// Lists them, oldest first.
    List {
        /// At most so many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Shows one: where it came from, why it is here, and what it says.
    Show {
        /// Its number, as `dlq list` gives it.
        number: u64,
    },
    /// Puts one back into its queue, as new.
    Redrive {
        /// Its number, as `dlq list` gives it.
        number: u64,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Nats {
    /// Makes the streams that are missing and mends what can be changed in place.
    Setup,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Run {
    /// The goal: JSON with `agent` and `input`. `-` reads it from stdin.
    pub(crate) file: PathBuf,
    /// Idempotency key: the same key gives the same goal and result.
    #[arg(long)]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Runs one program; its output is printed when it has ended. Ends with the program's
    /// own status; 124 at the time limit, 125 at the output limit, 126 when it could not be
    /// run, 128 and the signal that ended it.
    Run(SandboxRun),
    /// Shows which protections this machine offers, and what to do about the others.
    Check,
    /// Prints a built-in policy with all its values as they are after what it extends.
    Policy {
        /// default, python, node, java, native or network.
        name: String,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SandboxRun {
    /// A built-in policy, or a file.
    #[arg(long, default_value = "default")]
    pub(crate) policy: String,
    /// The folder that the program works in, and may change if the policy says so.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) work: PathBuf,
    /// As root: make that folder the sandbox user's own first.
    #[arg(long)]
    pub(crate) give_work: bool,
    /// How long it may take.
    #[arg(long, default_value_t = 30_000, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_ms: u64,
    /// A host with a port that it may reach through the egress proxy. Repeatable.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) allow: Vec<String>,
    /// A protection that may be absent, by its name in `sandbox check`. Repeatable.
    #[arg(long, value_name = "FEATURE")]
    pub(crate) allow_degraded: Vec<String>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Submit {
    /// The goal: JSON with `agent` and `input`. `-` reads it from stdin.
    pub(crate) file: PathBuf,
    /// Idempotency key: the same key gives the same goal and result.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Waits for the result.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Goals {
    /// Lists goals, oldest first.
    List {
        /// Only those that have not ended.
        #[arg(long)]
        open: bool,
        /// At most so many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Shows one goal: state, steps, what it waits for, result.
    Show {
        /// The goal.
        goal: GoalId,
    },
    /// Follows a goal's events until it ends; its result decides the exit code.
    #[command(visible_alias = "follow")]
    Watch {
        /// The goal.
        goal: GoalId,
        /// From this event on.
        #[arg(long, default_value_t = 1)]
        from: u64,
    },
    /// Cancels a goal; the receipt in its result says what had been done.
    Cancel {
        /// The goal.
        goal: GoalId,
        /// Why.
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
    },
    /// Answers a question of a goal.
    Answer {
        /// The goal.
        goal: GoalId,
        /// The question; `goals show` lists the open ones.
        question: QuestionId,
        /// One of its choices.
        choice: String,
    },
    /// Starts nothing new for a goal until it is resumed.
    Pause {
        /// The goal.
        goal: GoalId,
    },
    /// Lets a paused goal go on.
    Resume {
        /// The goal.
        goal: GoalId,
    },
    /// Changes a running goal's input by a JSON merge patch.
    Amend {
        /// The goal.
        goal: GoalId,
        /// The patch, as JSON.
        patch: String,
    },
    /// Writes a goal's journal to a file, for `replay` and for bug reports.
    Export {
        /// The goal.
        goal: GoalId,
        /// The file; must not exist.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    /// Lists the tools with their effects.
    List,
    /// Checks tools and playbooks.
    Lint,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Shows every setting with its value and where it comes from.
    Show,
    /// Checks the configuration without starting anything.
    Validate,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Errors {
    /// Lists all codes.
    List,
    /// Explains one.
    Show {
        /// The code, e.g. TOOL_TIMEOUT.
        code: String,
    },
}
