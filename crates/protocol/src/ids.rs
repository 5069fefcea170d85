//! Typed names and identifiers.
//!
//! Names become tokens of NATS subjects and parts of file names, so they are kept
//! to letters, digits, `-` and `_`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Longest name, bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} is not a name: 1 to 64 of A-Z a-z 0-9 - _")]
pub struct InvalidName {
    /// Which kind of name was expected.
    pub what: &'static str,
    /// What was given, cut to 80 characters.
    pub given: String,
}

fn check_name(what: &'static str, s: &str) -> Result<(), InvalidName> {
    let ok = !s.is_empty()
        && s.len() <= NAME_BYTES_MAX
        && s.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if ok {
        return Ok(());
    }
    Err(InvalidName {
        what,
        given: s.chars().take(80).collect(),
    })
}

macro_rules! name {
    ($(#[$doc:meta])* $t:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $t(std::sync::Arc<str>);

        impl $t {
            /// Checks and wraps a name; fails when it is not 1 to 64 of `A-Za-z0-9-_`.
            pub fn new(s: impl AsRef<str>) -> Result<Self, InvalidName> {
                check_name($what, s.as_ref())?;
                Ok(Self(s.as_ref().into()))
            }
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $t {
            type Error = InvalidName;
            fn try_from(s: String) -> Result<Self, InvalidName> {
                Self::new(s)
            }
        }
        impl From<$t> for String {
            fn from(n: $t) -> String {
                n.0.to_string()
            }
        }
        impl FromStr for $t {
            type Err = InvalidName;
            fn from_str(s: &str) -> Result<Self, InvalidName> {
                Self::new(s)
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// Who a goal belongs to; part of every id, key, quota and permission.
    TenantId, "tenant"
);
name!(
    /// An agent definition's name.
    AgentName, "agent"
);
name!(
    /// A tool's name in the registry.
    ToolName, "tool"
);
name!(
    /// A step of a plan. Never reused within a goal, across all its revisions.
    StepId, "step"
);
name!(
    /// A node of the cluster.
    NodeId, "node"
);
name!(
    /// A question put to a person.
    QuestionId, "question"
);

impl Default for TenantId {
    /// The tenant of a single-tenant set-up.
    fn default() -> Self {
        Self("default".into())
    }
}

/// A goal: UUID version 7 (made from a clock and a random source outside this
/// crate), or version 5 of tenant, agent and idempotency key, so that one key can
/// never name two goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoalId(Uuid);

/// Namespace of keyed goal ids; fixed for ever, or old keys would name new goals.
const GOAL_NAMESPACE: Uuid = Uuid::from_u128(0x6d1c_3f52_9a0e_4c57_8b21_7e90_d47a_55c3);

impl GoalId {
    /// Wraps an id that somebody else made.
    pub fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }
    /// The id of the goal that `key` names for this tenant and agent.
    pub fn from_key(tenant: &TenantId, agent: &AgentName, key: &str) -> Self {
        // Names can't hold NUL, so no two triples give the same text.
        let text = format!("{tenant}\0{agent}\0{key}");
        Self(Uuid::new_v5(&GOAL_NAMESPACE, text.as_bytes()))
    }
    /// The 16 bytes, big endian.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
    /// The goal whose id these 16 bytes are.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
    /// Shard of the goal, `0..SHARDS`: evenly spread, fixed for a goal's life.
    pub fn shard(&self) -> u16 {
        u16::from(crc32c::crc32c(self.0.as_bytes()) as u8) % SHARDS
    }
}

/// Number of shards that the journal's subjects carry.
pub const SHARDS: u16 = 64;

impl fmt::Display for GoalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for GoalId {
    type Err = InvalidName;
    fn from_str(s: &str) -> Result<Self, InvalidName> {
        Uuid::try_parse(s).map(Self).map_err(|_| InvalidName {
            what: "goal id",
            given: s.chars().take(80).collect(),
        })
    }
}

// As text in every encoding: ids are read by people and by programs in any language.
impl Serialize for GoalId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for GoalId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = std::borrow::Cow::<'de, str>::deserialize(d)?;
        s.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_names_one_goal() {
        let t = TenantId::default();
        let a = AgentName::new("sales-report").unwrap();
        assert_eq!(GoalId::from_key(&t, &a, "k"), GoalId::from_key(&t, &a, "k"));
        assert_ne!(GoalId::from_key(&t, &a, "k"), GoalId::from_key(&t, &a, "l"));
        let b = AgentName::new("sales").unwrap();
        assert_ne!(GoalId::from_key(&t, &a, "k"), GoalId::from_key(&t, &b, "k"));
    }

    #[test]
    fn names_are_subject_tokens() {
        for bad in ["", "a.b", "a b", "*", ">", "a/b", "ä", &"x".repeat(65)] {
            assert!(StepId::new(bad).is_err(), "{bad:?}");
        }
        assert!(StepId::new("fetch-targets_2").is_ok());
        let as_json = serde_json::from_str::<StepId>("\"a.b\"");
        assert!(as_json.unwrap_err().to_string().contains("is not a name"));
    }

    #[test]
    fn shards_are_in_range_and_spread() {
        let t = TenantId::default();
        let a = AgentName::new("a").unwrap();
        let hit: std::collections::BTreeSet<u16> = (0..2000)
            .map(|i| GoalId::from_key(&t, &a, &i.to_string()).shard())
            .collect();
        assert!(hit.iter().all(|s| *s < SHARDS));
        assert_eq!(hit.len(), usize::from(SHARDS));
    }
}
