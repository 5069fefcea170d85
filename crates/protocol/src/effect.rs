//! What a tool does to the world, and the identity of one effect.

use crate::claim::Resolved;
use crate::ids::{GoalId, NodeId, TenantId, ToolName};
use crate::json::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a tool does to the world, as its registry entry declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing: run again at will.
    Read,
    /// Takes an idempotency key, and the world honours it: run again with that key.
    Idempotent,
    /// Takes a fencing token, and the world refuses lower ones for ever.
    Fenced,
    /// None of these: runs again only after its effect is proven absent.
    Once,
}

impl Effect {
    /// Does it need an effect slot?
    pub fn has_slot(self) -> bool {
        self != Effect::Read
    }
}

/// Identity of one effect (invariant I16): tenant, goal, tool and the arguments that
/// the tool declares as `identity`. Never the step, the attempt or the epoch: a
/// replan that names the step anew must still meet the old effect. An argument that has
/// still to be fetched counts by its value's digest, which the caller makes sure is known
/// ([`Resolved::unknown_in`]).
pub fn identity(
    tenant: &TenantId,
    goal: &GoalId,
    tool: &ToolName,
    args: &Resolved,
    pointers: &[String],
    repeat_of: Option<&str>,
) -> Digest {
    let chosen = if pointers.is_empty() {
        args.value.clone()
    } else {
        let pick = |p: &String| args.pointer(p).map_or(Value::Null, |found| found.value);
        Value::Array(pointers.iter().map(pick).collect())
    };
    Digest::of_parts(&[
        tenant.as_str().as_bytes(),
        goal.as_bytes(),
        tool.as_str().as_bytes(),
        crate::json::canonical(&chosen).as_bytes(),
        repeat_of.unwrap_or_default().as_bytes(),
    ])
}

/// What stands in an effect slot. A slot is written once and never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SlotMark {
    /// An executor won it and may start the child.
    Started {
        /// The executor's node.
        node: NodeId,
        /// Chosen anew for each try to win, so that an executor that got no clear
        /// answer can tell its own mark from another's.
        nonce: u64,
    },
    /// An owner won it: this attempt never starts.
    Revoked {
        /// Epoch of that owner.
        epoch: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identity_is_the_declared_arguments_only() {
        let t = TenantId::default();
        let g = GoalId::from_bytes([1; 16]);
        let tool = ToolName::new("pay").unwrap();
        let id = |args: Value, p: &[&str], r: Option<&str>| {
            let p: Vec<_> = p.iter().map(ToString::to_string).collect();
            identity(&t, &g, &tool, &args.into(), &p, r)
        };
        let a = id(json!({"invoice": 7, "note": "x"}), &["/invoice"], None);
        assert_eq!(
            a,
            id(json!({"invoice": 7, "note": "y"}), &["/invoice"], None)
        );
        assert_ne!(
            a,
            id(json!({"invoice": 8, "note": "x"}), &["/invoice"], None)
        );
        assert_ne!(a, id(json!({"invoice": 7}), &["/invoice"], Some("again")));
        let all = id(json!({"invoice": 7, "note": "x"}), &[], None);
        assert_ne!(all, id(json!({"invoice": 7, "note": "y"}), &[], None));
    }
}
