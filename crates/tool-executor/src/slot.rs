//! Effect slots: taking one, and revoking one.

use crate::core::Core;
use detent_bus::{GoalKey, SlotKey};
use detent_protocol::effect::SlotMark;
use detent_protocol::messages::{SealAttempt, ToolCall};
use detent_protocol::{Code, Fault, NodeId};

/// Whose a slot is, once this node has tried to take or revoke it.
pub(crate) enum Claim {
    /// Ours: this very run may start.
    Won,
    /// An owner's: this attempt never starts.
    Revoked,
    /// An executor's, which may be this node in an earlier run.
    StartedBy(NodeId),
}

pub(crate) fn key_of_call(call: &ToolCall) -> SlotKey {
    SlotKey {
        goal: GoalKey {
            tenant: call.tenant.clone(),
            goal: call.goal,
        },
        step: call.step.clone(),
        attempt: call.attempt,
    }
}

pub(crate) fn key_of_seal(seal: &SealAttempt) -> SlotKey {
    SlotKey {
        goal: GoalKey {
            tenant: seal.tenant.clone(),
            goal: seal.goal,
        },
        step: seal.step.clone(),
        attempt: seal.attempt,
    }
}

impl Core {
    /// Tries to win the slot for a run of this node. The bus passes the failpoints
    /// `slot.before` and `slot.after`.
    ///
    /// An error means that nobody knows whose it is, so nothing may start.
    pub(crate) async fn claim(&self, key: &SlotKey, nonce: u64) -> Result<Claim, Fault> {
        let mine = SlotMark::Started {
            node: self.options.node.clone(),
            nonce,
        };
        let there = self.write_once(key, mine.clone()).await?;
        Ok(match there {
            mark if mark == mine => Claim::Won,
            SlotMark::Revoked { .. } => Claim::Revoked,
            SlotMark::Started { node, .. } => Claim::StartedBy(node),
        })
    }

    /// Tries to win the slot with `revoked`; never answers [`Claim::Won`].
    pub(crate) async fn revoke(&self, key: &SlotKey, epoch: u64) -> Result<Claim, Fault> {
        Ok(
            match self.write_once(key, SlotMark::Revoked { epoch }).await? {
                SlotMark::Revoked { .. } => Claim::Revoked,
                SlotMark::Started { node, .. } => Claim::StartedBy(node),
            },
        )
    }

    /// On an unclear answer the slot is read back. Where it is empty then, the write may
    /// still be under way: that is an error, not a free slot.
    async fn write_once(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        let unclear = match self.bus.slots.win(key, mark).await {
            Ok(there) => return Ok(there),
            Err(unclear) => unclear,
        };
        tracing::warn!(step = %key.step, attempt = key.attempt, %unclear, "effect slot: reading it back");
        self.bus.slots.read(key).await?.ok_or(unclear)
    }
}

/// What is said about an attempt that somebody else has started: nothing but who.
pub(crate) fn started_elsewhere(node: &NodeId) -> Fault {
    let message =
        format!("the attempt was started before, on node {node}; its end is not known here");
    Fault::new(Code::OwnerFenced, message).at(node.as_str())
}
