//! What a ring means for a store that opens: which groups sled lacks, or that something is lost.

use super::survey::{Survey, Whole};
use crate::meta::{Head, Meta};

/// The groups to put back, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) redo: Vec<Whole>,
    /// Blocks of the records that count here which are not as they were written. The other
    /// copy of each is.
    pub(crate) damaged: u32,
}

/// Compares the ring with the head that sled has. An error says what is lost or does not fit.
pub(crate) fn plan(survey: &Survey, meta: &Meta) -> Result<Plan, String> {
    if survey.store_ids != [meta.store_id] {
        return Err("the witness belongs to another store".to_owned());
    }
    let redo = missing(survey, meta.head)?;
    let newest = survey.newest();
    let reached = redo.last().map_or(meta.head, |last| last.record.head);
    if survey.proven.seq > reached.seq {
        return Err(behind(reached, survey.proven));
    }
    // Sled is synced before a group that the ring does not keep: so a crash leaves it one such
    // group ahead at most.
    let fits = newest.record.head == reached || newest.record.head == meta.previous;
    if !fits {
        let (at, saw) = (reached.seq, newest.record.head.seq);
        return Err(format!(
            "store and witness do not fit: store at commit {at}, witness at commit {saw}"
        ));
    }
    let is_redone = redo.last() == Some(newest);
    let counted = redo.iter().chain((!is_redone).then_some(newest));
    let damaged = counted.map(|whole| whole.damaged).sum();
    Ok(Plan { redo, damaged })
}

/// The records after sled's head: each the successor of the one before, or something is lost.
fn missing(survey: &Survey, mut head: Head) -> Result<Vec<Whole>, String> {
    let mut redo = Vec::new();
    for whole in &survey.whole {
        let record = &whole.record;
        if record.head.seq <= head.seq {
            if record.head.seq == head.seq && record.head != head {
                return Err(format!(
                    "store and witness do not fit: they differ at commit {}",
                    head.seq
                ));
            }
            continue;
        }
        if record.previous != head || record.redo_bytes == 0 {
            return Err(behind(head, survey.proven));
        }
        redo.push(*whole);
        head = record.head;
    }
    Ok(redo)
}

fn behind(store: Head, proven: Head) -> String {
    let (at, saw) = (store.seq, proven.seq);
    format!("store is behind its witness: it ends at commit {at}, the witness saw commit {saw}")
}
