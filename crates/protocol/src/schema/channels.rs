//! Which messages travel on which subject.

use crate::subject::matches;

/// How messages on a subject are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A node reads it and answers.
    Request,
    /// It is kept until a node has dealt with it; nobody answers.
    Durable,
    /// A node says it to whoever listens.
    Event,
}

/// A message and the answer to it, by the names of their schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// What is sent.
    pub message: &'static str,
    /// What is answered, on the subject that the request names for it.
    pub reply: Option<&'static str>,
}

/// A family of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// Short name.
    pub name: &'static str,
    /// The subject, with `{parameters}`.
    pub address: &'static str,
    /// How messages on it are treated.
    pub way: Way,
    /// What is said on it.
    pub exchanges: &'static [Exchange],
    /// May it be JSON? Else it is always msgpack.
    pub json: bool,
    /// Between actors and nodes alone: no part of what publishers may rely on.
    pub internal: bool,
    /// What it is for.
    pub about: &'static str,
}

impl Channel {
    /// Names of its parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        let tokens = self.address.split('.');
        tokens.filter_map(|t| t.strip_prefix('{')?.strip_suffix('}'))
    }

    /// The pattern that a subscriber to all of it uses.
    pub fn pattern(&self) -> String {
        let star = |t: &'static str| if t.starts_with('{') { "*" } else { t };
        let tokens: Vec<_> = self.address.split('.').map(star).collect();
        tokens.join(".")
    }
}

/// The channel that a subject belongs to; `None` for subjects that are none of these,
/// such as the ones that answers travel on.
pub fn channel_of(subject: &str) -> Option<&'static Channel> {
    let found = CHANNELS.iter().filter(|c| matches(&c.pattern(), subject));
    // A tool or an alert may be named like a verb of tenants; tenants are not named `tool`.
    found.min_by_key(|c| c.address.starts_with("detent.{tenant}."))
}

const fn asks(message: &'static str, reply: &'static str) -> Exchange {
    Exchange {
        message,
        reply: Some(reply),
    }
}

const fn tells(message: &'static str) -> Exchange {
    Exchange {
        message,
        reply: None,
    }
}

const fn open(
    name: &'static str,
    address: &'static str,
    way: Way,
    exchanges: &'static [Exchange],
    about: &'static str,
) -> Channel {
    Channel {
        name,
        address,
        way,
        exchanges,
        json: true,
        internal: false,
        about,
    }
}

/// Between actors and nodes: always a request, always msgpack.
const fn internal(
    name: &'static str,
    address: &'static str,
    exchanges: &'static [Exchange],
    about: &'static str,
) -> Channel {
    Channel {
        name,
        address,
        way: Way::Request,
        exchanges,
        json: false,
        internal: true,
        about,
    }
}

/// Every family of subjects.
pub const CHANNELS: &[Channel] = &[
    open(
        "submit",
        "detent.{tenant}.submit.{agent}",
        Way::Request,
        &[asks("submit", "accepted")],
        "Submits a goal to an agent. Answered when the goal is durable, or refused.",
    ),
    open(
        "intake",
        "detent.{tenant}.intake.{agent}",
        Way::Durable,
        &[tells("submit")],
        "Hands a goal in without waiting for an answer; it needs an idempotency key. On NATS only.",
    ),
    open(
        "refused",
        "detent.{tenant}.refused.{name}",
        Way::Event,
        &[tells("refused")],
        "Why what was handed in by `intake` or `control` was refused.",
    ),
    open(
        "steer",
        "detent.{tenant}.steer.{goal}",
        Way::Request,
        &[asks("control", "controlled")],
        "Cancels, amends, answers, pauses or resumes a goal. Answered with what came of it.",
    ),
    open(
        "control",
        "detent.{tenant}.control.{goal}",
        Way::Durable,
        &[tells("control")],
        "The same as `steer`, kept until the goal's owner has dealt with it. On NATS only.",
    ),
    open(
        "query",
        "detent.{tenant}.query",
        Way::Request,
        &[asks("query", "answer")],
        "Lists goals, shows one, exports its journal, or gives its events from a number on.",
    ),
    open(
        "result",
        "detent.{tenant}.result.{agent}.{goal}",
        Way::Event,
        &[tells("result")],
        "The one terminal result of a goal.",
    ),
    open(
        "event",
        "detent.{tenant}.event.{goal}",
        Way::Event,
        &[tells("event")],
        "Each transition of a goal, with numbers without gaps.",
    ),
    open(
        "ask",
        "detent.{tenant}.ask.{goal}",
        Way::Event,
        &[tells("asked")],
        "A question of a goal to people; `steer` takes the answer.",
    ),
    Channel {
        json: false,
        ..open(
            "alert",
            "detent.alert.{kind}",
            Way::Event,
            &[tells("alert")],
            "Something that an operator should look at.",
        )
    },
    internal(
        "reason",
        "detent.reason.{provider}",
        &[asks("plan_request", "plan_answer")],
        "Asks a planner for a plan.",
    ),
    internal(
        "tool",
        "detent.tool.{tool}.{node}",
        &[asks("tool_call", "tool_outcome")],
        "One attempt of one step, on the node that has the goal's folder.",
    ),
    internal(
        "owner",
        "detent.owner.{node}",
        &[asks("control", "controlled"), asks("query", "answer")],
        "What another node passes on about a goal that this one owns.",
    ),
    internal(
        "executor",
        "detent.executor.{node}",
        &[
            asks("seal_attempt", "attempt_sealed"),
            asks("seal_goal", "goal_sealed"),
        ],
        "Seals an attempt, or a whole goal, on one node.",
    ),
    internal(
        "observe",
        "detent.observe.{probe}.{node}",
        &[asks("observe", "observation")],
        "A look at the world, on the node that has the goal's folder.",
    ),
];
