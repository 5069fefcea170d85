//! Error codes and the fault that carries one.
//!
//! A code is public API: programs match on it, the book has a page for it, and
//! `detent errors show CODE` prints that page. Human text beside it is not API.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, retry $retry:literal,
        what $what:literal, cause $cause:literal, next $next:literal;)*) => {
        /// Every way in which Detent says no.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $what] #[serde(rename = $text)] $variant,)*
        }

        impl Code {
            /// All codes, in the order of the book.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The code as it stands in results and logs.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }
            /// May the same request succeed later without a change by its sender?
            pub fn retryable(self) -> bool {
                match self { $(Code::$variant => $retry,)* }
            }
            /// One sentence: what happened.
            pub fn what(self) -> &'static str {
                match self { $(Code::$variant => $what,)* }
            }
            /// The usual causes.
            pub fn cause(self) -> &'static str {
                match self { $(Code::$variant => $cause,)* }
            }
            /// What to do next.
            pub fn next(self) -> &'static str {
                match self { $(Code::$variant => $next,)* }
            }
        }
    };
}

codes! {
    InputInvalid = "INPUT_INVALID", retry false,
        what "The input breaks the contract that it has to meet.",
        cause "A field is missing, has the wrong type or a wrong format (for instance a date that is none), or the message is not valid msgpack or JSON.",
        next "Read the violation: it names the JSON pointer and the rule. `detent tools list` and the agent's `input_schema` show what is accepted.";
    InputTooLarge = "INPUT_TOO_LARGE", retry false,
        what "The goal (at most 256 KiB), or what is made of it, is larger than it may be.",
        cause "A document was put into the input, an output or a result instead of a reference to it; then a call no longer fits into a message (1 MiB) or a transition into an entry of the journal (900 KiB). Or a text, or the identity of an effect, is to be made of a piece deep in an output that is kept as a body; or what is to be fetched is more than 16 MiB.",
        next "Store the document where a tool can read it and pass its path or address. Refer to small members at the top of a large output, or let a step take the piece out.";
    AgentUnknown = "AGENT_UNKNOWN", retry false,
        what "No agent of this name is defined on the node.",
        cause "A typing mistake, or the node runs with another config.",
        next "`detent config show` lists the agents and the file each comes from.";
    GoalUnknown = "GOAL_UNKNOWN", retry false,
        what "No goal with this id is known.",
        cause "A mistyped id, another data directory, or another tenant.",
        next "`detent goals list` shows what this node holds.";
    IdempotencyConflict = "IDEMPOTENCY_CONFLICT", retry false,
        what "The idempotency key was used before with another body.",
        cause "A key was reused for a different goal.",
        next "Use a new key for a new goal; to see the first one, submit its own body again.";
    KeyExpired = "KEY_EXPIRED", retry false,
        what "The idempotency key was issued longer ago than keys are kept.",
        cause "An old message was delivered again. Taking it anew could repeat what it did the first time.",
        next "Check whether the goal was carried out; if it was not, submit it with a new key.";
    IntakeOverloaded = "INTAKE_OVERLOADED", retry true,
        what "The node has as many goals in flight as it may have.",
        cause "More goals arrive than end.",
        next "Submit again after `retry_after_ms`. The limit is `node.goals_in_flight_max`.";
    Draining = "DRAINING", retry true,
        what "The node is going down and takes no new goals.",
        cause "SIGTERM, or a rolling restart.",
        next "Submit again: another node, or this one after its restart, takes it.";
    ModelUnavailable = "MODEL_UNAVAILABLE", retry true,
        what "No planner answered.",
        cause "The model endpoint is down, slow, or answers 429 or 5xx, and every further provider in the agent's list failed too.",
        next "Check the endpoint in `reasoners.<name>`; add `playbook` as the last provider to have a plan without a model.";
    ModelMalformed = "MODEL_MALFORMED", retry false,
        what "The model's answer is not a plan, also after it was told so twice.",
        cause "Truncated JSON, prose around it, or a model too small for the task.",
        next "Raise the token limit of the reasoner or use a model that offers structured output.";
    ModelHallucination = "MODEL_HALLUCINATION", retry false,
        what "The plan names a tool, argument, step or reference that does not exist, also after it was told so twice.",
        cause "The model invents; or a playbook was written for other tools.",
        next "Read the violations in `detent goals show`. `detent tools lint` checks playbooks.";
    ModelFalseClaim = "MODEL_FALSE_CLAIM", retry false,
        what "The planner says that the goal is done, and nothing observed supports it.",
        cause "A plan without steps, or a result made of literals instead of what steps returned.",
        next "Only evidence ends a goal. Use another model, or a playbook.";
    PlanInvalid = "PLAN_INVALID", retry false,
        what "The plan can't be executed: a cycle, a reused step id, an absolute time, or too many steps.",
        cause "A mistake in a playbook or by a model.",
        next "Read the violation: it names the step and the rule. Delays are relative (`delay_seconds`).";
    ReferenceMissing = "REFERENCE_MISSING", retry false,
        what "A step refers to a value that the earlier output does not have.",
        cause "The JSON pointer is wrong, or the earlier step ended by observation and its output is not known.",
        next "Compare the pointer in the plan with the step's output in `detent goals show`.";
    LoopNoProgress = "LOOP_NO_PROGRESS", retry false,
        what "The same step failed in the same way after replanning; the loop was ended.",
        cause "The planner repeats itself.",
        next "Read the failing step's error; change the tool, the input or the planner.";
    BudgetExhausted = "BUDGET_EXHAUSTED", retry false,
        what "The goal's budget is used up.",
        cause "A limit on plan calls, tool calls, tokens or money was reached.",
        next "`steps` in the result shows what was reached. Raise the agent's `budget` if that is wanted.";
    DeadlineExceeded = "DEADLINE_EXCEEDED", retry false,
        what "The goal's deadline passed before it ended.",
        cause "A slow or hanging tool, a planner that does not answer, or a question nobody answered.",
        next "`steps` in the result shows what it was waiting for. Raise `deadline_ms` if that is wanted.";
    ReplayMismatch = "REPLAY_MISMATCH", retry false,
        what "The definition that the goal started with is not on this node.",
        cause "The data directory was copied without its definitions, or they were removed.",
        next "Restore the data directory as a whole, or cancel the goal.";
    PolicyDenied = "POLICY_DENIED", retry false,
        what "The agent is not allowed to do this.",
        cause "A deliberate repeat without permission; or a model's plan that looks at the world with the node's rights (a probe other than `output` or a plain `file`), or uses a tool with an effect whose registry entry, or whose fallback's, has no probe.",
        next "Declare a `probe` for the tool, write a playbook, or set `policy.allow_repeat`, as the message says.";
    EffectConflict = "EFFECT_CONFLICT", retry false,
        what "An effect with this identity exists with other arguments.",
        cause "A replan or an amended goal wants the same thing done differently.",
        next "Undo the first effect, or declare what makes the two different in the tool's `identity`.";
    UserCancelled = "USER_CANCELLED", retry false,
        what "The goal was cancelled.",
        cause "A cancel message.",
        next "The receipt says what had been done and what was stopped.";
    OwnerFenced = "OWNER_FENCED", retry true,
        what "Another owner has taken the goal over; this one steps down.",
        cause "The node was paused or cut off for longer than its lease.",
        next "Nothing: the new owner goes on.";
    ToolUnavailable = "TOOL_UNAVAILABLE", retry true,
        what "The tool can't be started.",
        cause "Its program or interpreter is not installed, or the machine is out of processes or memory.",
        next "`detent doctor` checks each tool; install what is missing or declare a `fallback`.";
    ToolFailed = "TOOL_FAILED", retry true,
        what "The tool ran and said that it failed.",
        cause "It ended with a non-zero exit code.",
        next "Its last words are in the message. Run it by hand with the same arguments.";
    ToolTimeout = "TOOL_TIMEOUT", retry true,
        what "The tool did not end within its time and was killed with all its children.",
        cause "It hangs, or `timeout_ms` is too short.",
        next "Raise the tool's `timeout_ms` or find what it waits for.";
    ToolCrashed = "TOOL_CRASHED", retry true,
        what "The tool was ended by a signal.",
        cause "A crash, or the machine's out-of-memory killer.",
        next "The message names the signal.";
    ToolOutputInvalid = "TOOL_OUTPUT_INVALID", retry false,
        what "The tool's output is not one JSON object that meets its output schema.",
        cause "It printed something else to stdout, nothing at all, or bytes that are not UTF-8.",
        next "Print logs to stderr and exactly one JSON object to stdout.";
    ResponseTooLarge = "RESPONSE_TOO_LARGE", retry false,
        what "The tool printed more than it may (1 MiB if not declared otherwise) and was killed.",
        cause "An endless or a very large output.",
        next "Write large results to a file and return its path, or raise `output_bytes_max`.";
    OutcomeUnknown = "OUTCOME_UNKNOWN", retry false,
        what "Nobody can say whether the effect happened, so it was not tried again.",
        cause "The process died in the middle of a tool with effect `once`, and its probe could not prove presence or absence.",
        next "Look in the target system and answer the question: `detent goals answer`. Declare `settles_within_ms` and a `probe` to have it decided by itself.";
    ObservationRejected = "OBSERVATION_REJECTED", retry true,
        what "The real world does not show what the step should have done.",
        cause "The tool reported success without the effect, or did half of it.",
        next "The evidence in `steps` says what was seen and what was expected.";
    ObservationUnavailable = "OBSERVATION_UNAVAILABLE", retry true,
        what "The probe could not look.",
        cause "The system it asks is down, or the probe is configured wrongly.",
        next "Check the probe of the tool; `detent tools lint` finds the obvious mistakes.";
    ExpectationTrivial = "EXPECTATION_TRIVIAL", retry false,
        what "The expectation would be met also if nothing had happened.",
        cause "A schema that accepts everything, or a probe that only reads the tool's own output.",
        next "Expect what is only true after the effect: a row count, a file's content, a status.";
    SandboxViolation = "SANDBOX_VIOLATION", retry false,
        what "The tool tried something that its sandbox forbids.",
        cause "A bug in the tool, or an attack.",
        next "Read the audit log; quarantine the tool.";
    JournalUnknown = "JOURNAL_UNKNOWN", retry true,
        what "It is not known whether the append reached the journal.",
        cause "The store or the broker did not answer clearly.",
        next "Nothing: the tail is read back before anything goes on.";
    JournalStorage = "JOURNAL_STORAGE", retry true,
        what "The journal can't be written.",
        cause "The disk is full or has an I/O error.",
        next "Free space or replace the disk, then restart the node: it goes on where it stopped.";
    JournalCorrupt = "JOURNAL_CORRUPT", retry false,
        what "The journal on this disk is damaged; nothing is dispatched from it.",
        cause "A flipped or lost byte, a file cut off, a restored back-up that is older than what was confirmed.",
        next "Restore the data directory from a back-up or move it aside. `detent doctor` names the file.";
    JournalUnreadable = "JOURNAL_UNREADABLE", retry false,
        what "The journal holds a record that this version does not know; the goal is parked.",
        cause "It was written by a newer version.",
        next "Run the newer version again.";
    ConfigInvalid = "CONFIG_INVALID", retry false,
        what "The configuration can't be used.",
        cause "Broken TOML, an unknown key, or a value outside its range.",
        next "The message names file, line and column. `detent config validate` checks without starting.";
    DataDirLocked = "DATA_DIR_LOCKED", retry false,
        what "Another process uses this data directory.",
        cause "A node is already running on it.",
        next "Use that node (`detent submit`), stop it, or give this one its own `--data`.";
    PortTaken = "PORT_TAKEN", retry false,
        what "The address to listen on is in use.",
        cause "Another node or program listens there.",
        next "Set another `node.http_listen`, or port 0 for any free one.";
    BrokerUnreachable = "BROKER_UNREACHABLE", retry true,
        what "The message broker can't be reached.",
        cause "It is not running, the address is wrong, or the network is cut. Nothing that was accepted is lost; goals go on when it is back.",
        next "Check `nats.url` and the server; `detent doctor` tries each step and says which fails.";
    BrokerRefused = "BROKER_REFUSED", retry false,
        what "The message broker refused the connection, or denied permission for a subject or a stream.",
        cause "Wrong or missing credentials, no JetStream for this account, or a user without the permissions of its role.",
        next "The message names the subject. `cluster/nats/users.conf` has the permissions of each role. For a certificate set `nats.tls_ca` to who signed the server's.";
    StreamSettings = "STREAM_SETTINGS", retry false,
        what "A stream is missing, or stands with weaker settings than what it keeps needs.",
        cause "It was made by hand or by an older version, or its settings were changed: fewer copies, memory instead of files, an age limit, deletes allowed.",
        next "The message names each setting. `detent nats setup` makes what is missing and mends what may be changed in place; the rest has to be changed by an operator.";
    NodeNameTaken = "NODE_NAME_TAKEN", retry false,
        what "Another node with this name is running on the same broker.",
        cause "Two nodes were given one name, or a data directory was copied.",
        next "Give each node its own `node.name`; if the other one has just died, its name is free after a few seconds.";
    EventsGone = "EVENTS_GONE", retry false,
        what "The events that were asked for are no longer kept one by one.",
        cause "The goal ended longer ago than journals are kept; its result is still known.",
        next "`detent goals show` gives the result; `detent goals export` reads the archive while that is kept.";
    NodeUnreachable = "NODE_UNREACHABLE", retry true,
        what "No node answers.",
        cause "None is running on this data directory, or it is starting.",
        next "Start one: `detent up`.";
    InternalLogicError = "INTERNAL_LOGIC_ERROR", retry false,
        what "Detent broke one of its own rules and stopped the goal before harm was done.",
        cause "A result that breaks the agent's result schema, or a bug in Detent.",
        next "Export the goal (`detent goals export`) and report it with the file.";
}

impl Code {
    /// The code with this text, if there is one.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str() == text)
    }

    /// The code's page in the book, Markdown: what happened, why, what to do next,
    /// whether the same request may be sent again, and where the code is met.
    pub fn page(self) -> String {
        let retry = if self.retryable() {
            "the same request may succeed later as it is"
        } else {
            "the same request is not expected to succeed before something has changed"
        };
        format!(
            "# {self}\n\n{}\n\n\
             ## Cause\n\n{}\n\n\
             ## What to do next\n\n{}\n\n\
             ## Retryable\n\n`retryable` is `{}`: {}.\n\n\
             ## Where it appears\n\n{}\n",
            self.what(),
            self.cause(),
            self.next(),
            self.retryable(),
            retry,
            self.place(),
        )
    }

    /// Where a reader meets the code.
    fn place(self) -> &'static str {
        use Code as C;
        match self {
            C::InputInvalid
            | C::AgentUnknown
            | C::IdempotencyConflict
            | C::KeyExpired
            | C::IntakeOverloaded
            | C::Draining => {
                "In the answer to a request, above all to a submission: it was refused, and nothing was started."
            }
            C::InputTooLarge => {
                "In the answer to a request, which then was refused; as the fault of a step whose call is too large; as `error_code` of a goal of which something did not fit."
            }
            C::BrokerUnreachable | C::BrokerRefused | C::StreamSettings | C::NodeNameTaken => {
                "On stderr of a command that needs the broker, above all `detent up` and `detent doctor`; a node that loses it later says so in its log and in `/readyz`."
            }
            C::EventsGone => "In the answer to a query for a goal's events.",
            C::GoalUnknown => "In the answer to a control message or a query about a goal.",
            C::ModelUnavailable
            | C::ModelMalformed
            | C::ModelHallucination
            | C::ModelFalseClaim
            | C::PlanInvalid
            | C::PolicyDenied => {
                "Among the reasons why a plan was refused (`detent goals show`); as `error_code` of the failed goal when no planner is left to ask."
            }
            C::ExpectationTrivial => {
                "When the configuration is loaded, in `detent tools lint`, and among the reasons why a plan was refused."
            }
            C::LoopNoProgress
            | C::BudgetExhausted
            | C::DeadlineExceeded
            | C::InternalLogicError => "As `error_code` of a failed goal.",
            C::UserCancelled => {
                "In the receipt of a cancelled goal, as the fault of each step that was stopped for it."
            }
            C::ReferenceMissing
            | C::EffectConflict
            | C::ToolUnavailable
            | C::ToolFailed
            | C::ToolTimeout
            | C::ToolCrashed
            | C::ToolOutputInvalid
            | C::ResponseTooLarge
            | C::OutcomeUnknown
            | C::ObservationRejected
            | C::ObservationUnavailable
            | C::SandboxViolation => {
                "As the fault of a step (`detent goals show`, `steps` in the result); as `error_code` of the failed goal when nothing is left to try."
            }
            C::ReplayMismatch | C::JournalUnreadable => {
                "As the reason why a goal is parked (`parked` in `detent goals show`), and in the node's log."
            }
            C::OwnerFenced | C::JournalUnknown | C::JournalStorage => {
                "In the node's log, and in the answer to a request that needed the journal."
            }
            C::JournalCorrupt => "When the node starts, in its log, and in `detent doctor`.",
            C::ConfigInvalid => "When the node starts, and in `detent config validate`.",
            C::DataDirLocked | C::PortTaken => "When the node starts.",
            C::NodeUnreachable => {
                "From a command that talks to a running node, and in place of an answer that never came."
            }
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Longest message of a fault, bytes; longer ones are cut.
pub const FAULT_MESSAGE_BYTES_MAX: usize = 4096;

/// What went wrong: a code, where, and a sentence for people.
///
/// The message never holds a secret: whoever builds one from a tool's or a model's
/// words passes it through [`crate::redact::Redactor`] first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{code}: {message}{}", at.as_deref().map(|a| format!(" (at {a})")).unwrap_or_default())]
pub struct Fault {
    /// What kind.
    pub code: Code,
    /// A sentence for people; at most 4,096 bytes ([`FAULT_MESSAGE_BYTES_MAX`]).
    pub message: String,
    /// The place: a JSON pointer, a file with line and column, a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Earliest sensible time to try again, milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Fault {
    /// A fault with a message, cut at a character boundary where it is too long.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > FAULT_MESSAGE_BYTES_MAX {
            let cut = (0..=FAULT_MESSAGE_BYTES_MAX)
                .rev()
                .find(|i| message.is_char_boundary(*i))
                .unwrap_or(0);
            message.truncate(cut);
        }
        Self {
            code,
            message,
            at: None,
            retry_after_ms: None,
        }
    }
    /// Says where.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.at = Some(place.into());
        self
    }
    /// Says when to try again, milliseconds from now.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_say_something() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("{:?}", code.as_str()));
            for text in [code.what(), code.cause(), code.next()] {
                assert!(text.len() > 10 && text.ends_with('.'), "{code}: {text}");
            }
        }
        assert_eq!(Code::parse("NO_SUCH"), None);
    }

    #[test]
    fn a_page_holds_all_that_the_table_says() {
        for code in Code::ALL {
            let page = code.page();
            assert!(page.starts_with(&format!("# {code}\n\n")) && page.ends_with(".\n"));
            let retryable = format!("`retryable` is `{}`", code.retryable());
            for text in [code.what(), code.cause(), code.next(), &retryable] {
                assert!(page.contains(text), "{code}: no {text:?} in\n{page}");
            }
        }
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let f = Fault::new(Code::ToolFailed, "ü".repeat(5000));
        assert!(f.message.len() <= FAULT_MESSAGE_BYTES_MAX);
        assert!(f.message.chars().all(|c| c == 'ü'));
    }

    #[test]
    fn a_fault_shows_code_message_and_place() {
        let f = Fault::new(Code::InputInvalid, "wrong type").at("/product");
        assert_eq!(f.to_string(), "INPUT_INVALID: wrong type (at /product)");
    }
}
