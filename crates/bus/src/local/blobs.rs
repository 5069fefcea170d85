//! Bodies as files `<folder>/<first two hex digits>/<64 hex digits>`.
//!
//! A body is written beside its place, synced, renamed there, and the folder synced: a
//! file under its hash is whole, whenever the process was killed. What is read is
//! compared with its hash.

use super::storage::blocking;
use crate::{BLOB_BYTES_MAX, Blobs};
use async_trait::async_trait;
use bytes::Bytes;
use detent_protocol::json::Digest;
use detent_protocol::{Code, Fault};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// Where bodies lie until they are whole.
const UNFINISHED: &str = "unfinished";

/// Bodies of one node.
pub(crate) struct LocalBlobs {
    files: Arc<Files>,
    // Bounds memory and threads; a body may have 64 MiB.
    at_once: Arc<Semaphore>,
}

struct Files {
    dir: PathBuf,
    next: AtomicU64,
}

impl LocalBlobs {
    pub(crate) fn open(dir: PathBuf, at_once_max: usize) -> Result<Self, Fault> {
        let unfinished = dir.join(UNFINISHED);
        let made = make_dir(&unfinished).and_then(|()| empty(&unfinished));
        made.map_err(|e| io_fault("making the folder of the bodies", &dir, &e))?;
        let next = AtomicU64::new(0);
        Ok(Self {
            files: Arc::new(Files { dir, next }),
            at_once: Arc::new(Semaphore::new(at_once_max)),
        })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Files) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let permit = Arc::clone(&self.at_once).acquire_owned().await;
        let files = Arc::clone(&self.files);
        blocking(move || {
            // Held by the work itself: a caller that goes away does not end it.
            let _permit = permit;
            work(&files)
        })
        .await
    }
}

#[async_trait]
impl Blobs for LocalBlobs {
    async fn put(&self, body: Bytes) -> Result<Digest, Fault> {
        if body.len() > BLOB_BYTES_MAX {
            let text = format!("a body of {} bytes; at most {BLOB_BYTES_MAX}", body.len());
            return Err(Fault::new(Code::InputTooLarge, text));
        }
        self.run(move |files| files.put(&body)).await
    }

    async fn get(&self, digest: &Digest) -> Result<Option<Bytes>, Fault> {
        let digest = *digest;
        self.run(move |files| files.get(&digest)).await
    }

    async fn remove(&self, digest: &Digest) -> Result<(), Fault> {
        let digest = *digest;
        self.run(move |files| files.remove(&digest)).await
    }
}

impl Files {
    fn put(&self, body: &[u8]) -> Result<Digest, Fault> {
        let digest = Digest::of_bytes(body);
        let path = self.path(&digest);
        self.keep(&path, body)
            .map_err(|e| io_fault("keeping a body", &path, &e))?;
        Ok(digest)
    }

    fn keep(&self, path: &Path, body: &[u8]) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.dir);
        // What is there already may be damaged; then this is the chance to mend it.
        if read_at_most(path, body.len())?.is_none_or(|there| there != body) {
            make_dir(folder)?;
            File::open(&self.dir)?.sync_all()?;
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let unfinished = self.dir.join(UNFINISHED).join(n.to_string());
            let done = write(&unfinished, body).and_then(|()| fs::rename(&unfinished, path));
            if let Err(error) = done {
                // Best effort: the next start empties the folder.
                let _ = fs::remove_file(&unfinished);
                return Err(error);
            }
        }
        // Also where it was there: whoever renamed it may have been killed before this.
        File::open(folder)?.sync_all()
    }

    fn get(&self, digest: &Digest) -> Result<Option<Bytes>, Fault> {
        let path = self.path(digest);
        let body = read_at_most(&path, BLOB_BYTES_MAX);
        match body.map_err(|e| io_fault("reading a body", &path, &e))? {
            Some(body) if Digest::of_bytes(&body) != *digest => {
                let text = format!("the body {digest} does not match its hash");
                Err(Fault::new(Code::JournalCorrupt, text).at(path.display().to_string()))
            }
            body => Ok(body.map(Bytes::from)),
        }
    }

    /// Not synced: what a power cut brings back is removed the next time.
    fn remove(&self, digest: &Digest) -> Result<(), Fault> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(io_fault("removing a body", &path, &e))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        self.dir.join(&name[..2]).join(name)
    }
}

fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn empty(dir: &Path) -> io::Result<()> {
    for file in fs::read_dir(dir)? {
        fs::remove_file(file?.path())?;
    }
    Ok(())
}

fn write(path: &Path, body: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(body)?;
    file.sync_all()
}

/// The file's bytes; of a larger one only that it is larger (one byte more than
/// `bytes_max`). `None` where there is no file.
fn read_at_most(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut body = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut body)?;
    Ok(Some(body))
}

fn io_fault(doing: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::new(Code::JournalStorage, format!("{doing}: {error}")).at(path.display().to_string())
}
