//! The store's directory: names, the lock, and the syncing of what sled created.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::StoreError;

/// Paths inside the store's directory. sled's own files lie beside them.
pub(crate) struct Paths {
    pub(crate) dir: PathBuf,
    pub(crate) db: PathBuf,
    pub(crate) witness: PathBuf,
    lock: PathBuf,
}

impl Paths {
    pub(crate) fn new(dir: &Path) -> Paths {
        Paths {
            dir: dir.to_owned(),
            db: dir.join("db"),
            witness: dir.join("WITNESS"),
            lock: dir.join("LOCK"),
        }
    }

    /// Makes the directory and makes its name durable, and so for every missing parent.
    pub(crate) fn create_dir(&self) -> io::Result<()> {
        let missing: Vec<_> = self
            .dir
            .ancestors()
            .take_while(|dir| !dir.exists())
            .collect();
        fs::create_dir_all(&self.dir)?;
        missing
            .iter()
            .filter_map(|dir| dir.parent())
            .try_for_each(|parent| {
                let here = parent.as_os_str().is_empty();
                sync_dir(if here { Path::new(".") } else { parent })
            })
    }

    /// Takes the lock for as long as the file lives.
    pub(crate) fn lock(&self) -> Result<File, StoreError> {
        let failed = |e| StoreError::io("locking the store", e);
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .clone();
        let mut file = options.open(&self.lock).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(StoreError::Locked {
                    dir: self.dir.clone(),
                    pid: read_pid(&mut file),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        write_pid(&mut file).map_err(failed)?;
        Ok(file)
    }

    /// Syncs every file sled made and the directory that names them.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                File::open(entry.path())?.sync_all()?;
            }
        }
        sync_dir(&self.dir)
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}
