//! What stays of a goal that was forgotten, and what its journal becomes.
//!
//! A goal that ended long ago is archived (its entries, in bodies by their hash) and its
//! journal replaced by one entry, its tombstone: enough to answer the same key with the
//! same goal and result for as long as keys are kept (I14), and to find the archive.
//!
//! What it promises: an archive gives back the entries byte for byte, so that what was
//! exported before and after are the same file.
//!
//! What it must not know: when goals are forgotten, and where bodies are kept.

use crate::envelope::{from_msgpack, to_msgpack};
use crate::error::{Code, Fault};
use crate::ids::{AgentName, GoalId, NodeId, TenantId};
use crate::json::Digest;
use crate::result::GoalResult;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Version of the frame of an archive.
pub const ARCHIVE_VERSION: u16 = 1;
/// Entries of a part together at most, bytes; one that is larger stands alone. What is
/// archived or read is held in memory, so this is its bound.
pub const ARCHIVE_PART_BYTES: usize = 8 * 1024 * 1024;

/// What stays of a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Its agent.
    pub agent: AgentName,
    /// Definition it was pinned to.
    pub definition: Digest,
    /// Digest of the submission, for repeated keys.
    pub submission: Digest,
    /// Idempotency key, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Trace id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// What is told about it is JSON, for it was handed in so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json: bool,
    /// Its last owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NodeId>,
    /// Taken at, Unix milliseconds.
    pub accepted_at_ms: u64,
    /// Its deadline, Unix milliseconds.
    pub deadline_ms: u64,
    /// Ended at, Unix milliseconds.
    pub ended_at_ms: u64,
    /// Its result, whole: it fits, because it did into the entry that ended the goal.
    pub result: GoalResult,
    /// Steps that ended well.
    pub steps_done: u32,
    /// Steps of all revisions.
    pub steps: u32,
    /// Where its entries are, in order.
    pub archive: Archive,
}

/// Where the entries of a forgotten goal are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Archive {
    /// Its parts, in order.
    pub parts: Vec<Digest>,
    /// Entries in all parts.
    pub entries: u64,
    /// Size of all parts, bytes.
    pub bytes: u64,
}

/// One part of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivePart {
    v: u16,
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// Number of the part's first entry, from 1.
    pub first: u64,
    /// Entries as they lay in the journal, oldest first.
    pub entries: Vec<ByteBuf>,
}

impl ArchivePart {
    /// A part without entries.
    pub fn new(tenant: TenantId, goal: GoalId, first: u64) -> Self {
        Self {
            v: ARCHIVE_VERSION,
            tenant,
            goal,
            first,
            entries: Vec::new(),
        }
    }

    /// As it is kept.
    ///
    /// # Errors
    /// `INTERNAL_LOGIC_ERROR`, where it can't be written.
    pub fn encode(&self) -> Result<Bytes, Fault> {
        to_msgpack(self)
    }

    /// Reads a part of this goal's archive.
    ///
    /// # Errors
    /// `JOURNAL_UNREADABLE` for one of a newer version, `JOURNAL_CORRUPT` for what is no
    /// part of this goal's archive.
    pub fn decode(bytes: &[u8], tenant: &TenantId, goal: &GoalId) -> Result<Self, Fault> {
        let corrupt = |why: String| Fault::new(Code::JournalCorrupt, why);
        let part: Self =
            from_msgpack(bytes).map_err(|f| corrupt(format!("an archive: {}", f.message)))?;
        if part.v > ARCHIVE_VERSION {
            let message = format!("archive {} is newer than {ARCHIVE_VERSION}", part.v);
            return Err(Fault::new(Code::JournalUnreadable, message));
        }
        if part.tenant != *tenant || part.goal != *goal {
            return Err(corrupt(format!("the archive of goal {goal} is another's")));
        }
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> ArchivePart {
        let mut part = ArchivePart::new(TenantId::default(), GoalId::from_bytes([7; 16]), 3);
        part.entries.push(ByteBuf::from(vec![0, 255, 0xc1]));
        part.entries.push(ByteBuf::new());
        part
    }

    #[test]
    fn an_archive_gives_back_what_it_was_given() {
        let bytes = part().encode().unwrap();
        let read = ArchivePart::decode(&bytes, &part().tenant, &part().goal);
        assert_eq!(read.unwrap(), part());
    }

    #[test]
    fn what_is_no_archive_of_this_goal_is_told() {
        let decode = |bytes: &[u8], goal: u8| {
            let goal = GoalId::from_bytes([goal; 16]);
            ArchivePart::decode(bytes, &TenantId::default(), &goal).map_err(|f| f.code)
        };
        let bytes = part().encode().unwrap();
        assert_eq!(decode(&bytes, 8), Err(Code::JournalCorrupt));
        assert_eq!(decode(&bytes[1..], 7), Err(Code::JournalCorrupt));
        let newer = ArchivePart { v: 2, ..part() };
        let newer = newer.encode().unwrap();
        assert_eq!(decode(&newer, 7), Err(Code::JournalUnreadable));
    }
}
