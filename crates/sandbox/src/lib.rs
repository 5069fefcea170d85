//! Confines one process tree.
//!
//! A caller hands over a [`ProcessSpec`] and gets back an [`Exit`]: what the
//! program wrote, how it ended, what it used, and at which [`Level`] it was
//! confined. The trait is [`Confine`]; there are two levels, **tree** ([`TreeConfine`]) and
//! **sandbox** ([`SandboxConfine`]).
//!
//! # What the sandbox level promises
//!
//! Each run has namespaces, a file tree, users, limits and filters of its own, as its
//! [`Policy`] says, and nothing that the policy does not name.
//!
//! - [`Confine::run`] returns only when everything in the sandbox is dead. Everything dies
//!   with the caller, with the helper that built it, at the deadline (which the sandbox's
//!   first process keeps by itself), and with the program.
//! - A protection that the machine lacks refuses the run, unless the policy allows its
//!   absence by name; then [`Level::missing`] says so in every result.
//! - A limit that was set is read back; one that did not take is an error.
//! - The end is typed: [`Exit::end`].
//! - With an allow-list, every connection goes through a proxy outside that decides before
//!   it resolves; without one there is no network.
//!
//! `docs/explanation/sandbox.md` says in plain words what is not contained.
//!
//! # What the tree level promises
//!
//! Every run has a *keeper*: a small single-threaded process, started for this
//! run alone, that is the subreaper of everything the program starts.
//!
//! - [`Confine::run`] returns only when the whole tree is dead and reaped: also
//!   processes that double-forked, took their own session, ignore signals, hold
//!   the output pipes open, or keep forking.
//! - The tree dies when the caller does. The keeper watches one pipe; when that
//!   closes (the caller was killed with SIGKILL, dropped the future, or used its
//!   [`KillSwitch`]) it kills the tree. It keeps the wall-clock deadline by
//!   itself, so a caller that is stopped still has its deadline kept.
//! - Nothing is inherited: the environment is exactly the one given plus two
//!   markers, open files beyond the three standard ones are closed on exec,
//!   signal dispositions and mask are the defaults, the session is a new one,
//!   and set-user-ID programs gain nothing (`no_new_privs`).
//! - Output, input, arguments and environment are bounded; over a bound the run
//!   is refused before it starts, or ended with [`Cause::OutputLimit`].
//! - Leftovers of a caller that died together with its keepers are found by
//!   their marker and killed: [`Confine::sweep`].
//!
//! # What the tree level does not protect from
//!
//! The program runs with the caller's user, files and network. It can read and
//! write what the caller can, connect anywhere, and use any amount of memory,
//! processor time, processes and disk until its deadline. Being the same user it
//! can stop or kill its keeper: then the caller notices, kills what carries the
//! run's marker and what descends from it, and reports
//! [`SpawnError::KeeperLost`]; a process that has by then both wiped its
//! environment and left its parents gets away. It can ask a service outside
//! its tree (cron, systemd, a container engine) to start something for it. A
//! process in an uninterruptible system call outlasts SIGKILL, and the run then
//! lasts as long. [`Level::missing`] names what is absent and travels with every
//! result, so that nobody takes this level for more than it is.
//!
//! # What this crate must not know
//!
//! Goals, plans, tools, the bus, the journal. It can be used by itself, also
//! from a shell through the `detent-keeper` program.
//!
//! # Where things are
//!
//! `sandbox/` is the caller's side, `helper/` the processes that build (`probe`, `serve`,
//! `seat`, `run`, `init`, `root`, `tool`, `filter`), `cgroup/` the groups, `egress/` the
//! proxy, `policy/` the data, `wire` what is said between caller and helper, `sys` all
//! system calls that need `unsafe`; `keeper/` and `tree` are the tree level.

mod beneath;
mod cgroup;
mod clock;
mod confine;
mod egress;
mod error;
mod exit;
mod feature;
mod frame;
mod helper;
mod keeper;
mod kill;
mod policy;
mod proc;
mod sandbox;
mod session;
mod spec;
mod sweep;
mod sys;
mod tree;
mod wire;

pub use beneath::read_beneath;
pub use clock::BootInstant;
pub use confine::{Confine, Started};
pub use egress::{EgressLog, EgressVerdict, Rules};
pub use error::{SpawnError, Stage, SweepError};
pub use exit::{Cause, End, Exit, Hit, Level};
pub use feature::{Feature, FeatureTable, Finding};
pub use keeper::keeper_main;
pub use kill::KillSwitch;
pub use policy::{Files, Network, Policy, Resources, Work};
pub use sandbox::{HELPERS_MAX, SandboxConfine, SandboxOptions};
pub use spec::{
    ARGS_BYTES_MAX, ENV_RUN_ID, ENV_RUN_OWNER, Limits, OUTPUT_BYTES_MAX, ProcessSpec, RunTag,
    STDIN_BYTES_MAX, STRING_BYTES_MAX, TAG_BYTES_MAX,
};
pub use sweep::SweepReport;
pub use tree::{KeeperCommand, TreeConfine};
