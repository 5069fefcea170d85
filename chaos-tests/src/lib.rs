//! Real nodes under real faults.
//!
//! For proving, on the binary that users run, that a goal that was accepted ends once
//! and with the right result, whatever happens to the node. Drives only what a user
//! has: the `detent` program, configuration files, its output and exit codes, and
//! `/proc`. From the code it takes the JSON types of the protocol, nothing else: it
//! must not know how the runtime works inside.
//!
//! - [`broker`] is a NATS server that nodes share.
//! - [`binary`] builds the program once; [`site`] is one data directory with the
//!   commands that a user would type; [`process`] is a node that runs there.
//! - [`plan`] draws from a seed what is killed where; [`round`] carries it out;
//!   [`check`] looks at what is left; [`table`] adds up.

pub mod binary;
pub mod broker;
pub mod chance;
pub mod check;
pub mod ghosts;
pub mod plan;
pub mod process;
pub mod round;
pub mod site;
pub mod table;

/// What went wrong with the experiment itself, or with the node in a way that leaves
/// nothing to check: a sentence for people.
pub type Result<T> = std::result::Result<T, String>;

/// Says what was being done when something failed.
pub trait Context<T> {
    /// Puts `what` before the error's text.
    ///
    /// # Errors
    /// The same error, as a sentence.
    fn context(self, what: impl std::fmt::Display) -> Result<T>;
}

impl<T, E: std::fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl std::fmt::Display) -> Result<T> {
        self.map_err(|e| format!("{what}: {e}"))
    }
}
