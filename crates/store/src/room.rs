//! Room ahead of sled: the data file is kept longer than what is written in it.
//!
//! A sync of a file that grew must also write its new length. So the file is extended in
//! steps, before it is needed, by blocks that are allocated and unwritten. They read as zeros,
//! which sled takes for free segments. Extending writes no byte, and cutting takes away only
//! what was never written, so neither can touch sled's data. The end is cut off when the store
//! is closed and before sled opens the file, so sled starts from the file it would have had.
//!
//! What it must not know: what sled writes. Where the filesystem cannot tell written from
//! unwritten, or has no space, nothing is extended.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, SeekFrom, fadvise, fallocate, flock, seek,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// What an extension leaves unwritten at least, in bytes.
const STEP_BYTES: u64 = 2 << 20;
/// Unwritten bytes below which the file is extended.
const LOW_BYTES: u64 = 1 << 20;

/// The room in one open data file. Owned by the one thread that commits.
pub(crate) struct Room {
    /// `None` once extending turned out to be of no use.
    file: Option<File>,
    /// Where the last look found the end of the written part.
    written: u64,
}

impl Room {
    pub(crate) fn new(db: &Path) -> io::Result<Room> {
        let file = OpenOptions::new().read(true).write(true).open(db)?;
        // Where the filesystem cannot tell, the first look says so.
        let written = written_end(&file, 0).unwrap_or(0);
        Ok(Room {
            file: Some(file),
            written,
        })
    }

    /// Never extends.
    pub(crate) fn none() -> Room {
        Room {
            file: None,
            written: 0,
        }
    }

    /// Looks whether there is enough, and extends. A failure only means that there is no room.
    pub(crate) fn keep(&mut self) {
        let Some(file) = &self.file else { return };
        match look(file, self.written) {
            Ok(Some(written)) => self.written = written,
            Ok(None) => self.file = None,
            Err(error) => {
                tracing::debug!(%error, "no room ahead of the data");
                self.file = None;
            }
        }
    }
}

/// Extends the file when its unwritten end is short. `None` when that is of no use here.
fn look(file: &File, from: u64) -> io::Result<Option<u64>> {
    let bytes = file.metadata()?.len();
    // sled may have cut the file since.
    let from = if from > bytes { 0 } else { from };
    let mut written = written_end(file, from)?;
    if bytes.saturating_sub(written) < LOW_BYTES {
        // Unwritten blocks that somebody read, a backup say, count as written while cached.
        fadvise(file, from, None, Advice::DontNeed)?;
        written = written_end(file, from)?;
    }
    if bytes.saturating_sub(written) >= LOW_BYTES {
        return Ok(Some(written));
    }
    let end = written + STEP_BYTES;
    // Beyond the limit the system would end the process.
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| end > limit) {
        return Ok(None);
    }
    fallocate(
        file,
        FallocateFlags::empty(),
        bytes,
        end.saturating_sub(bytes).max(1),
    )?;
    // Where unwritten blocks count as written, the file would grow at every look.
    let seen = written_end(file, written)?;
    Ok((seen < end).then_some(seen))
}

/// The end of what is written in the file, at or behind `from`.
fn written_end(file: &File, from: u64) -> io::Result<u64> {
    let mut end = from;
    loop {
        match seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = seek(file, SeekFrom::Hole(data))?,
            Err(Errno::NXIO) => return Ok(end),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Cuts off the unwritten end. `false` while sled still has the file.
pub(crate) fn cut(db: &Path) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(db) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    // sled holds this very lock until its last thread is done with the file.
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let written = written_end(&file, 0)?;
    if written < file.metadata()?.len() {
        file.set_len(written)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn data_file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        (dir, path)
    }

    fn bytes(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn the_file_is_extended_when_the_end_is_near_and_cut_to_what_is_written() {
        let (_dir, path) = data_file();
        let mut room = Room::new(&path).unwrap();
        room.keep();
        let first = bytes(&path);
        assert!(
            (STEP_BYTES..STEP_BYTES + 20_000).contains(&first),
            "{first}"
        );

        // Far from the end nothing happens; near it the file grows by no more than a step.
        (0..3).for_each(|_| room.keep());
        assert_eq!(bytes(&path), first);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[8; 5000], first - LOW_BYTES).unwrap();
        room.keep();
        let second = bytes(&path);
        assert!(second > first && second <= first + STEP_BYTES, "{second}");

        assert!(cut(&path).unwrap());
        let written = first - LOW_BYTES + 5000;
        assert_eq!(bytes(&path), written.next_multiple_of(4096));
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content[..10_000], [7; 10_000]);
        assert_eq!(
            content[written as usize - 5000..written as usize],
            [8; 5000]
        );
    }

    #[test]
    fn reading_the_unwritten_end_does_not_make_the_file_grow() {
        let (_dir, path) = data_file();
        let mut room = Room::new(&path).unwrap();
        room.keep();
        let first = bytes(&path);
        for _ in 0..3 {
            assert_eq!(std::fs::read(&path).unwrap().len() as u64, first);
            room.keep();
        }
        assert_eq!(bytes(&path), first);
    }

    #[test]
    fn a_file_that_was_cut_meanwhile_is_looked_at_from_its_beginning() {
        let (_dir, path) = data_file();
        let mut room = Room::new(&path).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[8; 5000], 8 << 20).unwrap();
        room.keep();
        file.set_len(10_000).unwrap();
        room.keep();
        assert!(bytes(&path) < STEP_BYTES + 20_000);
    }

    #[test]
    fn a_file_that_sled_holds_is_not_cut() {
        let (_dir, path) = data_file();
        let held = File::open(&path).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        assert!(!cut(&path).unwrap());
        drop(held);
        assert!(cut(&path).unwrap());
    }
}
