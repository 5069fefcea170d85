//! Making a ring: a file of its final size, whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::fstatvfs;
use rustix::process::{Resource, getrlimit};

use super::block::BLOCK_BYTES;
use super::{RING_BYTES_FLOOR, Testimony, encode, record};
use crate::error::is_full;

/// What is written at once, in bytes.
const FILL_BYTES: usize = 256 << 10;
/// A ring takes at most this part of the space that is free.
const SPACE_SHARE: u64 = 8;

/// The file under its name, synced, with one record; and its blocks.
pub(super) fn make(path: &Path, bytes_max: u64, says: Testimony) -> io::Result<(File, u32)> {
    let draft = path.with_extension("new");
    let made = draw(&draft, bytes_max, says);
    if made.is_err() {
        // It may hold what little space there is. The next try begins anew in any case.
        let _ = fs::remove_file(&draft);
    }
    let made = made?;
    fs::rename(&draft, path)?;
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        File::open(dir)?.sync_all()?;
    }
    Ok(made)
}

fn draw(draft: &Path, bytes_max: u64, says: Testimony) -> io::Result<(File, u32)> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(draft)?;
    let bytes = fill(&file, bytes_max)?;
    let blocks = (bytes / BLOCK_BYTES as u64) as u32;
    let mut first = vec![0; 2 * BLOCK_BYTES];
    encode(&mut first, blocks, 0, record(0, says, 0), &[]);
    file.write_all_at(&first, 0)?;
    file.sync_all()?;
    Ok((file, blocks))
}

/// Fills the file with zeros: written blocks, so that a later write changes nothing but their
/// content. Takes less where there is little space. Gives the size.
fn fill(file: &File, bytes_max: u64) -> io::Result<u64> {
    let space = fstatvfs(file)?;
    let share = space.f_bavail.saturating_mul(space.f_frsize) / SPACE_SHARE;
    // Beyond the limit the system would end the process.
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let mut bytes = bytes_max - bytes_max % BLOCK_BYTES as u64;
    loop {
        let can_halve = bytes / 2 >= RING_BYTES_FLOOR;
        if can_halve && bytes > share.min(limit) {
            bytes = halve(bytes);
            continue;
        }
        match write_zeros(file, bytes) {
            // A quota, say.
            Err(error) if can_halve && is_full(&error) => {
                file.set_len(0)?;
                bytes = halve(bytes);
            }
            written => return written.map(|()| bytes),
        }
    }
}

fn halve(bytes: u64) -> u64 {
    bytes / 2 - bytes / 2 % BLOCK_BYTES as u64
}

fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; FILL_BYTES];
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(FILL_BYTES as u64);
        file.write_all_at(&zeros[..len as usize], at)?;
        at += len;
    }
    Ok(())
}
