//! Opening: lock, sled, verification, or the making of a new store.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::files::Paths;
use crate::meta::{Head, Meta};
use crate::ring::{self, Plan, Record, Ring, Survey, Testimony, Unusable};
use crate::room;
use crate::shared::panic_text;
use crate::verify::{self, RowsError};
use crate::view::Tree;
use crate::{StoreError, StoreOptions, VerifyOnOpen, key, legacy, redo, row};

/// How long a predecessor's last I/O task may keep sled's file in milliseconds.
const RELEASE_WAIT_MS: u64 = 5000;

/// A verified store, with all its groups synced.
pub(crate) struct Opened {
    pub(crate) tree: Tree,
    pub(crate) ring: Ring,
    pub(crate) meta: Meta,
}

/// What the witness file is.
enum Witness {
    Ring(File, Survey),
    Legacy(legacy::Found),
    Missing,
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
        if !matches!(witness, Witness::Missing) && !self.paths.db.exists() {
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
            Witness::Ring(file, survey) => self.resume(tree, meta, file, &survey),
            Witness::Legacy(found) => self.migrate(tree, meta, &found),
            Witness::Missing => self.create(tree, meta),
        }
    }

    fn read_witness(&self) -> Result<Witness, StoreError> {
        let failed = |e| StoreError::io("reading the witness", e);
        let options = OpenOptions::new().read(true).write(true).clone();
        let file = match options.open(&self.paths.witness) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Witness::Missing),
            Err(error) => return Err(failed(error)),
        };
        let unusable = match ring::read(&file).map_err(failed)? {
            Ok(survey) => return Ok(Witness::Ring(file, survey)),
            Err(unusable) => unusable,
        };
        Err(self.corrupt(match unusable {
            Unusable::Length => "the witness file is not as long as it was made",
            Unusable::NoRecord => "the witness file has no whole record",
            Unusable::NoRing => match legacy::read(&file).map_err(failed)? {
                Some(found) => return Ok(Witness::Legacy(found)),
                None => "the witness file has no valid block",
            },
        }))
    }

    /// Puts back what sled lacks and the witness has. It was answered and not synced yet, or
    /// lost, or not answered yet: either way the whole of it is right.
    fn resume(
        &self,
        tree: Tree,
        meta: Option<Meta>,
        file: File,
        survey: &Survey,
    ) -> Result<Opened, StoreError> {
        let mut meta = match meta {
            Some(meta) => meta,
            None => self.never_begun(&tree, survey)?,
        };
        let plan = ring::plan(survey, &meta).map_err(|detail| self.corrupt(detail))?;
        self.tell(survey, &plan);
        for whole in &plan.redo {
            let redo = ring::redo(&file, whole)
                .map_err(|e| StoreError::io("reading the witness", e))?
                .and_then(|bytes| redo::decode(&bytes))
                .filter(|redo| is_of(&redo.meta, &whole.record))
                .ok_or_else(|| self.corrupt("a record of the witness is no group"))?;
            tree.apply(redo.batch)?;
            meta = redo.meta;
        }
        self.verify_rows(&tree, &meta)?;
        tree.flush()?;
        self.sync_files()?;
        // From here on the records are of no account, and damage in them neither.
        let mut ring = Ring::resume(&self.paths.witness, file, survey, self.options.sync);
        ring.write(says(&meta), &[])
            .map_err(|e| StoreError::io("writing the witness", e))?;
        ring.release();
        Ok(Opened { tree, ring, meta })
    }

    fn tell(&self, survey: &Survey, plan: &Plan) {
        let dir = self.paths.dir.display();
        if plan.damaged > 0 {
            let blocks = plan.damaged;
            tracing::warn!(%dir, blocks, "the witness is damaged; its other copy was good");
        }
        if !plan.redo.is_empty() {
            let groups = plan.redo.len();
            tracing::info!(%dir, groups, "the last groups come from the witness");
        }
        if survey.ends_unfinished() {
            tracing::info!(%dir, "the witness ends with a group that was not answered; dropped");
        }
    }

    /// A store with the witness of former versions gets a ring.
    fn migrate(
        &self,
        tree: Tree,
        meta: Option<Meta>,
        found: &legacy::Found,
    ) -> Result<Opened, StoreError> {
        let mut meta = meta.ok_or_else(|| self.emptied(found.head()))?;
        if let Some(redo) = found.missing(&meta) {
            tree.apply(redo.batch)?;
            meta = redo.meta;
        }
        found
            .compare(&meta)
            .map_err(|detail| self.corrupt(detail))?;
        self.verify_rows(&tree, &meta)?;
        tree.flush()?;
        self.sync_files()?;
        let ring = self.make_ring(&meta)?;
        tracing::info!(dir = %self.paths.dir.display(), "the witness has a new format now");
        Ok(Opened { tree, ring, meta })
    }

    /// The witness comes first, so a store that has a meta row and no witness has lost it.
    fn create(&self, tree: Tree, meta: Option<Meta>) -> Result<Opened, StoreError> {
        if meta.is_some() || tree.rows().next().is_some() {
            return Err(self.corrupt("the store was in use, its witness is missing"));
        }
        // The witness must not outlive the data file that it belongs to.
        self.sync_files()?;
        let meta = Meta::new(random_id());
        let ring = self.make_ring(&meta)?;
        self.begin(&tree, &meta)?;
        Ok(Opened { tree, ring, meta })
    }

    /// The meta row that a crash kept from a store in the making: its witness is there and has
    /// never seen a commit. Anything else without a meta row was emptied.
    fn never_begun(&self, tree: &Tree, survey: &Survey) -> Result<Meta, StoreError> {
        let meta = Meta::new(survey.newest().record.store_id);
        if survey.proven != meta.head || tree.rows().next().is_some() {
            return Err(self.emptied(survey.proven));
        }
        self.begin(tree, &meta)?;
        Ok(meta)
    }

    fn begin(&self, tree: &Tree, meta: &Meta) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        batch.insert(key::META, meta.encode());
        tree.apply(batch)?;
        tree.flush()?;
        self.sync_files()
    }

    fn make_ring(&self, meta: &Meta) -> Result<Ring, StoreError> {
        let bytes_max = self.options.witness_bytes_max;
        Ring::create(
            &self.paths.witness,
            bytes_max,
            says(meta),
            self.options.sync,
        )
        .map_err(|e| StoreError::io("making the witness", e))
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

    fn emptied(&self, proven: Head) -> StoreError {
        let saw = proven.seq;
        self.corrupt(format!(
            "store is behind its witness: it is empty, the witness saw commit {saw}"
        ))
    }

    fn corrupt(&self, detail: impl Into<String>) -> StoreError {
        StoreError::corrupt(&self.paths.dir, detail)
    }
}

/// What the witness says of a store.
fn says(meta: &Meta) -> Testimony {
    Testimony {
        store_id: meta.store_id,
        head: meta.head,
        previous: meta.previous,
    }
}

/// Whether a group's meta row says what its record does.
fn is_of(meta: &Meta, record: &Record) -> bool {
    (meta.store_id, meta.head, meta.previous) == (record.store_id, record.head, record.previous)
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
