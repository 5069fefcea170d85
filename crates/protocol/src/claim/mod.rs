//! Claims: what stands for a value that is too large to travel (claim check).
//!
//! A tool's output that is larger than [`OVER_BYTES`] is kept as a body, and messages,
//! records and states hold a [`Claim`] instead of it: an object whose only key is
//! [`KEY`]. The small members of the output stand in the claim, so that a reference to
//! one of them needs no body. A reference to anything else becomes a [`Part`], which
//! travels beside the arguments and is fetched by whoever needs the value.
//!
//! What it promises:
//! - A body belongs to one goal: its first line names the goal. So two goals never share
//!   one, it can be removed with its goal, and a claim that names another goal's body is
//!   refused.
//! - What is fetched was checked against the hash it was asked by.
//! - Data can't pretend to be a part: which places of arguments are to be fetched stands
//!   in a list of its own. That a whole output is no claim of the tool's making is for
//!   whoever takes outputs to see to, with [`is_reserved`].
//!
//! What it must not know: where bodies are kept.

mod pick;
mod resolved;

pub use resolved::Resolved;
pub(crate) use resolved::too_large_here;

use crate::error::{Code, Fault};
use crate::ids::GoalId;
use crate::json::{self, Digest};
use crate::record::{Body, Seal, ToolOutcome};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The one key of an output that is a claim. No tool may use it at the top of its output.
pub const KEY: &str = "$claim";
/// Outputs larger than this are kept as bodies, bytes of JSON text.
pub const OVER_BYTES: usize = 128 * 1024;
/// Largest output that a tool may declare, bytes of JSON text.
pub const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Arguments, or parameters of a probe, with all that is fetched for them, bytes of JSON
/// text, where nothing else is set.
pub const FETCHED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest member of an output that stands in its claim, bytes of JSON text.
pub const INLINE_BYTES_MAX: usize = 1024;
/// All members together that stand in a claim, bytes of JSON text.
pub const INLINE_ALL_BYTES_MAX: usize = 16 * 1024;
/// Names of the members that do not, all together, bytes.
const NAMES_BYTES_MAX: usize = 8 * 1024;

/// Stands for an output that is kept as a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// The body.
    pub digest: Digest,
    /// Size of the output as JSON text.
    pub bytes: u64,
    /// Digest of the output, the same as if it had not been kept.
    pub value: Digest,
    /// Its small members.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inline: Map<String, Value>,
    /// Its other members.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub large: BTreeMap<String, Large>,
    /// There are members, or items, that are not named here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// A member of an output that does not stand in its claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Large {
    /// Its size as JSON text.
    pub bytes: u64,
    /// Its digest.
    pub value: Digest,
    /// Number of its items, where it is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
}

/// A part of an output that is kept as a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// The body.
    pub digest: Digest,
    /// Size of the whole output, bytes.
    pub bytes: u64,
    /// Which part: a JSON pointer into the output; empty is the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pointer: String,
    /// Digest of the part itself, where it is known without the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Digest>,
}

/// A place whose value is a part of an output, and has to be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claimed {
    /// The place: a JSON pointer; empty is the whole. Until the part is fetched
    /// [`Part::marker`] stands there.
    pub at: String,
    /// What belongs there.
    pub part: Part,
}

impl Part {
    /// What stands in the place of a part that was not fetched: equal for equal values
    /// where the part's own digest is known.
    pub fn marker(&self) -> Value {
        match &self.value {
            Some(value) => json!({KEY: {"value": value}}),
            None => json!({KEY: {"digest": self.digest, "pointer": self.pointer}}),
        }
    }

    /// The part that `pointer` names in this one.
    fn inner(&self, pointer: &str) -> Self {
        Self {
            digest: self.digest,
            bytes: self.bytes,
            pointer: format!("{}{pointer}", self.pointer),
            value: self.value.filter(|_| pointer.is_empty()),
        }
    }

    /// Takes the part out of the goal's body. Builds nothing else of it.
    ///
    /// # Errors
    /// [`Code::ReferenceMissing`] where the output has no such part,
    /// [`Code::InputTooLarge`] where it is larger than `bytes_max`,
    /// [`Code::JournalCorrupt`] where this is no body of the goal.
    pub fn take(&self, goal: &GoalId, body: &[u8], bytes_max: usize) -> Result<Value, Fault> {
        let text = body.strip_prefix(first_line(goal).as_bytes());
        let corrupt = |why: String| Fault::new(Code::JournalCorrupt, why);
        let text =
            text.ok_or_else(|| corrupt(format!("body {} is not one of this goal", self.digest)))?;
        let found = pick::pick(text, &self.pointer, bytes_max)
            .map_err(|e| corrupt(format!("body {} can't be read: {e}", self.digest)))?;
        match found {
            pick::Picked::Part(value) => Ok(value),
            pick::Picked::TooLarge => {
                let message =
                    format!("a part of an earlier output has more than {bytes_max} bytes");
                Err(Fault::new(Code::InputTooLarge, message))
            }
            pick::Picked::Missing => {
                let message = format!("output {:?} is not there", self.pointer);
                Err(Fault::new(Code::ReferenceMissing, message))
            }
        }
    }
}

impl Claim {
    /// The claim on `output`, and the body that it is kept as.
    pub fn keep(goal: &GoalId, output: &Value) -> (Self, Bytes) {
        let mut body = first_line(goal);
        let at = body.len();
        body.push_str(&json::canonical(output));
        let mut claim = Self {
            digest: Digest::of_bytes(body.as_bytes()),
            bytes: (body.len() - at) as u64,
            value: Digest::of_bytes(&body.as_bytes()[at..]),
            inline: Map::new(),
            large: BTreeMap::new(),
            more: !output.is_object(),
        };
        claim.name_members(output);
        (claim, Bytes::from(body))
    }

    /// In the order of their names, so that the same output has the same claim.
    fn name_members(&mut self, output: &Value) {
        let (mut inline_left, mut names_left) = (INLINE_ALL_BYTES_MAX, NAMES_BYTES_MAX);
        for (name, member) in output.as_object().into_iter().flatten() {
            let bytes = json::size_bytes(member);
            let cost = bytes + name.len() + 4;
            if bytes <= INLINE_BYTES_MAX && cost <= inline_left {
                inline_left -= cost;
                self.inline.insert(name.clone(), member.clone());
            } else if let Some(left) = names_left.checked_sub(name.len() + LARGE_BYTES) {
                names_left = left;
                let large = Large {
                    bytes: bytes as u64,
                    value: Digest::of_json(member),
                    items: member.as_array().map(|items| items.len() as u64),
                };
                self.large.insert(name.clone(), large);
            } else {
                self.more = true;
            }
        }
    }

    /// As it stands in the place of an output.
    pub fn to_output(&self) -> Value {
        json!({ KEY: self })
    }

    /// The claim that this output is, if it is one.
    pub fn of(output: &Value) -> Option<Self> {
        let claim = output.as_object().filter(|map| map.len() == 1)?.get(KEY)?;
        Self::deserialize(claim).ok()
    }

    /// The part of the output that `pointer` names. `None`: it is known not to be there.
    pub fn find(&self, pointer: &str) -> Option<Resolved> {
        let whole = Part {
            digest: self.digest,
            bytes: self.bytes,
            pointer: String::new(),
            value: Some(self.value),
        };
        let Some(path) = pointer.strip_prefix('/') else {
            return pointer.is_empty().then(|| Resolved::part(whole));
        };
        let (name, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        let name = json::pointer_unescape(name);
        if let Some(member) = self.inline.get(&name) {
            return member.pointer(rest).cloned().map(Resolved::from);
        }
        let large = self.large.get(&name);
        if large.is_none() && !self.more {
            return None;
        }
        let mut part = whole.inner(pointer);
        part.value = large.filter(|_| rest.is_empty()).map(|l| l.value);
        Some(Resolved::part(part))
    }

    /// For planners and people: its size, its small members, and what else there is.
    pub fn summary(&self) -> Value {
        let large = self.large.iter();
        let large: Map<_, _> = large
            .map(|(name, l)| match l.items {
                Some(items) => (name.clone(), json!({"bytes": l.bytes, "items": items})),
                None => (name.clone(), json!({"bytes": l.bytes})),
            })
            .collect();
        json!({"claimed_bytes": self.bytes, "inline": self.inline, "large": large})
    }
}

/// What a large member takes in a claim beside its name, about, bytes.
const LARGE_BYTES: usize = 128;

fn first_line(goal: &GoalId) -> String {
    format!("{goal}\n")
}

/// Does this output use the key that only Detent may use?
pub fn is_reserved(output: &Value) -> bool {
    output.as_object().is_some_and(|map| map.contains_key(KEY))
}

/// The part of an output, whole or claimed, that `pointer` names.
pub fn find(output: &Value, pointer: &str) -> Option<Resolved> {
    match Claim::of(output) {
        Some(claim) => claim.find(pointer),
        None => output.pointer(pointer).cloned().map(Resolved::from),
    }
}

/// The claims that a record holds: their bodies belong to its goal, and can go when it is
/// forgotten.
pub fn claims_of(record: &Body) -> Vec<Claim> {
    let output = |outcome: &ToolOutcome| match outcome {
        ToolOutcome::Done { output, .. } => Claim::of(output),
        ToolOutcome::Failed { .. } => None,
    };
    match record {
        Body::Outcome { outcome, .. } => output(outcome).into_iter().collect(),
        Body::Sealed {
            seal: Seal::Ended {
                outcome: Some(outcome),
            },
            ..
        } => output(outcome).into_iter().collect(),
        Body::Observed { observations, .. } => {
            let outputs = observations.iter().filter_map(|o| o.output.as_ref());
            outputs.filter_map(Claim::of).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
