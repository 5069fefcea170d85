//! `detent replay`: folds an exported journal and shows each state.
//!
//! The file is `DETENTJ1`, then each entry as it lies in the journal, with its length
//! (u32, big endian) before it.

use crate::{exit, output};
use detent_orchestrator::GoalState;
use detent_orchestrator::view::fold_with_events;
use detent_protocol::journal::{Entry, GENESIS};
use detent_protocol::{Code, Fault};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::io::Write;
use std::path::Path;

const MAGIC: &[u8; 8] = b"DETENTJ1";
/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

fn corrupt(path: &Path, message: impl Into<String>) -> Fault {
    Fault::new(Code::JournalCorrupt, message).at(path.display().to_string())
}

/// Writes a new file.
pub(crate) fn write(path: &Path, entries: &[ByteBuf]) -> Result<(), Fault> {
    let failed = |e: std::io::Error| output::refuse(path.display().to_string(), e.to_string());
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(failed)?;
    let mut file = std::io::BufWriter::new(file);
    file.write_all(MAGIC).map_err(failed)?;
    for entry in entries {
        // Entries are at most a few MiB.
        let length = u32::try_from(entry.len()).unwrap_or(u32::MAX);
        file.write_all(&length.to_be_bytes()).map_err(failed)?;
        file.write_all(entry).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>, Fault> {
    let failed = |e: std::io::Error| output::refuse(path.display().to_string(), e.to_string());
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(output::refuse(
            path.display().to_string(),
            "larger than 1 GiB",
        ));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return Err(corrupt(path, "not a file of `detent goals export`"));
    };
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let cut = || corrupt(path, format!("cut off after entry {}", entries.len()));
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_be_bytes(*length) as usize;
        let entry = after.get(..length).ok_or_else(cut)?;
        rest = &after[length..];
        entries.push(entry.to_vec());
    }
    Ok(entries)
}

pub(crate) fn replay(path: &Path) -> Result<u8, Fault> {
    let mut state: Option<GoalState> = None;
    let mut hash = GENESIS;
    for (i, bytes) in read(path)?.iter().enumerate() {
        let (entry, next) = Entry::decode(bytes, &hash)
            .map_err(|f| f.at(format!("{}: entry {}", path.display(), i + 1)))?;
        hash = next;
        let state = state.get_or_insert_with(|| GoalState::new(entry.tenant.clone(), entry.goal));
        for event in fold_with_events(state, &entry) {
            output::event(&event);
        }
        show(state, &entry, i + 1);
    }
    let Some(state) = state else {
        return Err(corrupt(path, "holds no entry"));
    };
    if let Some(parked) = &state.parked {
        return Err(parked.clone());
    }
    match &state.ended {
        Some(result) => output::result(&state.goal, result),
        None => exit::OK,
    };
    Ok(exit::OK)
}

/// The state after an entry.
fn show(state: &GoalState, entry: &Entry, number: usize) {
    let waiting = state.waiting();
    if output::is_json() {
        let (n, phase) = (state.n, state.phase());
        return output::json(
            &json!({"type": "state", "entry": number, "n": n, "epoch": entry.epoch,
            "at_ms": entry.at_ms, "phase": phase, "waiting": waiting}),
        );
    }
    let waits: Vec<_> = waiting
        .iter()
        .map(|w| match &w.step {
            Some(step) => format!("{} of {step}", w.what),
            None => w.what.clone(),
        })
        .collect();
    let phase = json!(state.phase());
    let phase = phase.as_str().unwrap_or_default().to_owned();
    let waits = if waits.is_empty() {
        "nothing".to_owned()
    } else {
        waits.join(", ")
    };
    output::line(format!(
        "entry {number} epoch {} {}: {phase}, waits for {waits}",
        entry.epoch,
        output::time(entry.at_ms)
    ));
}
