//! Opening: lock, sled, verification, or the making of a new store.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::files::Paths;
use crate::meta::Meta;
use crate::redo;
use crate::room;
use crate::shared::panic_text;
use crate::verify::{self, RowsError};
use crate::view::Tree;
use crate::witness::{Found, Testimony, Witness};
use crate::{StoreError, StoreOptions, VerifyOnOpen, key, row};

/// How long a predecessor's last I/O task may keep sled's file in milliseconds.
const RELEASE_WAIT_MS: u64 = 5000;

/// A verified store.
pub(crate) struct Opened {
    pub(crate) tree: Tree,
    pub(crate) witness: Witness,
    pub(crate) meta: Meta,
}

/// Opens or makes the store. The caller holds the lock.
pub(crate) fn open(paths: &Paths, options: &StoreOptions) -> Result<Opened, StoreError> {
    let attempt = AssertUnwindSafe(|| Opening { paths, options }.run());
    catch_unwind(attempt).unwrap_or_else(|panic| {
        let detail = format!("sled panicked while opening: {}", panic_text(&*panic));
        Err(StoreError::corrupt(&paths.dir, detail))
    })
}

struct Opening<'a> {
    paths: &'a Paths,
    options: &'a StoreOptions,
}

impl Opening<'_> {
    fn run(&self) -> Result<Opened, StoreError> {
        let witness = self.read_witness()?;
        if witness.is_some() && !self.paths.db.exists() {
            return Err(self.corrupt("the witness is there, the data file is not"));
        }
        let tree = Tree::new(self.open_sled()?, self.paths.dir.clone());
        let meta = tree
            .get(key::META)?
            .as_deref()
            .map(Meta::decode)
            .transpose();
        let meta = meta.map_err(|detail| self.corrupt(detail))?;
        match witness {
            Some((witness, found)) => self.resume(tree, meta, witness, &found),
            None => self.create(tree, meta),
        }
    }

    fn read_witness(&self) -> Result<Option<(Witness, Found)>, StoreError> {
        match Witness::open(&self.paths.witness, self.options.sync) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => Err(self.corrupt("the witness file has no valid slot")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("reading the witness", error)),
        }
    }

    fn resume(
        &self,
        tree: Tree,
        meta: Option<Meta>,
        mut witness: Witness,
        found: &Found,
    ) -> Result<Opened, StoreError> {
        let says = found.says;
        let lost = || {
            let saw = says.head.seq;
            self.corrupt(format!(
                "store is behind its witness: it is empty, the witness saw commit {saw}"
            ))
        };
        let meta = meta.ok_or_else(lost)?;
        let meta = self.redo(&tree, meta, found)?;
        verify::against_witness(&meta, says).map_err(|detail| self.corrupt(detail))?;
        self.verify_rows(&tree, &meta)?;
        // A group that a crash left between sled and the witness becomes visible now, so it
        // must be durable now.
        self.sync_files()?;
        if meta.head != says.head {
            let says = Testimony {
                store_id: meta.store_id,
                head: meta.head,
            };
            witness
                .write(says, &[])
                .map_err(|e| StoreError::io("writing the witness", e))?;
        }
        Ok(Opened {
            tree,
            witness,
            meta,
        })
    }

    /// Puts the last group back when sled is without it and the witness kept it. It was
    /// answered and lost, or not answered yet: either way the whole of it is right.
    fn redo(&self, tree: &Tree, meta: Meta, found: &Found) -> Result<Meta, StoreError> {
        let Some(redo) = redo::decode(&found.redo) else {
            return Ok(meta);
        };
        if !verify::follows(&meta, &redo.meta, found.says) {
            return Ok(meta);
        }
        let seq = redo.meta.head.seq;
        tracing::info!(dir = %self.paths.dir.display(), seq, "the last group comes from the witness");
        tree.apply(redo.batch)?;
        Ok(redo.meta)
    }

    /// The witness comes last, so a store without one is new or was never finished.
    fn create(&self, tree: Tree, meta: Option<Meta>) -> Result<Opened, StoreError> {
        let begun = meta.is_some();
        let meta = meta.unwrap_or_else(|| Meta::new(random_id()));
        if meta.head.seq > 0 || tree.rows().take(2).count() > usize::from(begun) {
            return Err(self.corrupt("the store has rows, its witness is missing"));
        }
        let mut batch = sled::Batch::default();
        batch.insert(key::META, meta.encode());
        tree.apply(batch)?;
        self.sync_files()?;
        let says = Testimony {
            store_id: meta.store_id,
            head: meta.head,
        };
        let witness = Witness::create(&self.paths.witness, says, self.options.sync)
            .map_err(|e| StoreError::io("creating the witness", e))?;
        self.sync_files()?;
        Ok(Opened {
            tree,
            witness,
            meta,
        })
    }

    fn verify_rows(&self, tree: &Tree, meta: &Meta) -> Result<(), StoreError> {
        if self.options.verify == VerifyOnOpen::Witness {
            return Ok(());
        }
        verify::all_rows(tree, meta).map_err(|error| match error {
            RowsError::Store(error) => error,
            RowsError::Detail(detail) => self.corrupt(detail),
        })
    }

    fn sync_files(&self) -> Result<(), StoreError> {
        if self.options.sync == crate::SyncMode::Never {
            return Ok(());
        }
        self.paths
            .sync_all()
            .map_err(|e| StoreError::io("syncing the store's files", e))
    }

    fn open_sled(&self) -> Result<sled::Db, StoreError> {
        let config = sled::Config::new()
            .path(&self.paths.dir)
            .cache_capacity(self.options.cache_bytes_max)
            .mode(sled::Mode::HighThroughput)
            .segment_size(row::SEGMENT_BYTES)
            .flush_every_ms(None);
        let deadline = Instant::now() + Duration::from_millis(RELEASE_WAIT_MS);
        loop {
            // Only a matter of space and of time: sled would take the end for free segments.
            if let Err(error) = room::cut(&self.paths.db) {
                tracing::debug!(%error, "the unwritten end of the data file stays");
            }
            match config.open() {
                Ok(db) => return Ok(db),
                Err(error) if is_held(&error) && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(sled::Error::Unsupported(detail)) => return Err(self.corrupt(detail)),
                Err(error) => return Err(StoreError::sled("opening", &self.paths.dir, error)),
            }
        }
    }

    fn corrupt(&self, detail: impl Into<String>) -> StoreError {
        StoreError::corrupt(&self.paths.dir, detail)
    }
}

/// sled locks its file too and lets go of it only when its I/O threads are done. We hold the
/// store's lock, so the holder can only be a predecessor in this process.
fn is_held(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(e) if e.to_string().contains("could not acquire lock"))
}

/// Random enough to tell stores apart: the standard library seeds its hash maps from the system.
fn random_id() -> u64 {
    RandomState::new().build_hasher().finish()
}
