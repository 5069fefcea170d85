//! A goal's journal, decoded, with the state it folds to.

use bytes::Bytes;
use detent_bus::GoalKey;
use detent_orchestrator::GoalState;
use detent_orchestrator::view::fold_with_events;
use detent_protocol::Fault;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::record::{Body, Record, Said};
use detent_protocol::result::GoalResult;

/// A goal's journal.
pub(super) struct History {
    pub(super) entries: Vec<Entry>,
    pub(super) last: GoalState,
}

impl History {
    pub(super) fn read(key: &GoalKey, raw: &[Bytes]) -> Result<Self, Fault> {
        let mut hash = GENESIS;
        let mut entries = Vec::with_capacity(raw.len());
        for bytes in raw {
            let (entry, next) = Entry::decode(bytes, &hash)?;
            hash = next;
            entries.push(entry);
        }
        let mut last = GoalState::new(key.tenant.clone(), key.goal);
        entries.iter().for_each(|entry| last.fold_entry(entry));
        Ok(Self { entries, last })
    }

    /// All records of kinds that are known, with their entry.
    pub(super) fn bodies(&self) -> impl Iterator<Item = (&Entry, &Record, &Body)> {
        self.entries.iter().flat_map(|entry| {
            entry.records.iter().filter_map(move |r| match &r.said {
                Said::Known(body) => Some((entry, r, body)),
                Said::Unknown { .. } => None,
            })
        })
    }

    /// In words, one line for each record.
    pub(super) fn story(&self) -> Vec<String> {
        let mut state = GoalState::new(self.last.tenant.clone(), self.last.goal);
        let mut lines = Vec::new();
        for entry in &self.entries {
            for event in fold_with_events(&mut state, entry) {
                let (n, epoch, at) = (event.n, entry.epoch, event.at_ms);
                let step = event.step.map(|s| s.to_string()).unwrap_or_default();
                let (kind, text) = (event.kind, event.text);
                lines.push(format!("{n:>4} e{epoch} {at} {kind} {step}: {text}"));
            }
        }
        lines
    }

    /// The end, and the entry that it stands in.
    pub(super) fn end(&self) -> Option<(&Entry, &GoalResult)> {
        self.bodies().find_map(|(entry, _, body)| match body {
            Body::Ended { result } => Some((entry, result)),
            _ => None,
        })
    }
}
