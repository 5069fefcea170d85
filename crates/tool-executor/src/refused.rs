//! Keeps an output that was refused, so that people can look at it.

use crate::kind::Invocation;
use detent_protocol::error::FAULT_MESSAGE_BYTES_MAX;
use detent_protocol::{Fault, StepId};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Directory of a goal's directory that refused outputs are kept in.
pub const REFUSED_DIR: &str = ".detent";

/// Keeps `output` and says in the fault where. The file holds what the tool printed,
/// secrets too: only its owner can read it. Where it can't be written the fault says so.
pub(crate) fn kept(call: &Invocation, fault: Fault, output: &[u8]) -> Fault {
    if output.is_empty() {
        return fault;
    }
    let note = match write(&call.work_dir, &call.step, call.attempt, output) {
        Ok(path) => format!("; what it printed is in {}", path.display()),
        Err(error) => format!("; what it printed could not be kept: {error}"),
    };
    let room = FAULT_MESSAGE_BYTES_MAX.saturating_sub(note.len());
    let cut = fault.message.floor_char_boundary(room);
    Fault {
        message: format!("{}{note}", &fault.message[..cut]),
        ..fault
    }
}

fn write(work_dir: &Path, step: &StepId, attempt: u32, output: &[u8]) -> io::Result<PathBuf> {
    let dir = work_dir.join(REFUSED_DIR);
    let made = DirBuilder::new().mode(0o700).create(&dir);
    made.or_else(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(e),
    })?;
    let path = dir.join(format!("refused-{step}-{attempt}.out"));
    // Made anew, so that neither a link that the tool put there is followed nor the
    // mode of an older file kept.
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(output)?;
    Ok(path)
}
