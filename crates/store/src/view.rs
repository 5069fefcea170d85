//! What readers see: the tree under the groups that sled does not have yet.
//!
//! A group that is durable in the witness is kept in memory, over the tree, until a checkpoint
//! has brought it into sled. The overlay also serves the other way round: a group that must
//! be in sled before it is durable is hidden by the values before it, because a reader could
//! act on a commit that a power cut takes back. After a failed commit the overlay stays.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use sled::IVec;

use crate::meta::Meta;
use crate::row::{self, Source};
use crate::scan::{Bounds, Scan};
use crate::{StoreError, Table, key};

/// sled's tree, with its errors told as the store's.
#[derive(Clone)]
pub(crate) struct Tree {
    db: sled::Db,
    dir: PathBuf,
}

impl Tree {
    pub(crate) fn new(db: sled::Db, dir: PathBuf) -> Tree {
        Tree { db, dir }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        self.db
            .get(key)
            .map_err(|e| StoreError::sled("reading", &self.dir, e))
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Result<(IVec, IVec), StoreError>> {
        self.db
            .iter()
            .map(|row| row.map_err(|e| StoreError::sled("reading", &self.dir, e)))
    }

    /// Applies the batch, in memory at first. sled may write any of it at any time.
    pub(crate) fn apply(&self, batch: sled::Batch) -> Result<(), StoreError> {
        self.db
            .apply_batch(batch)
            .map_err(|e| StoreError::sled("committing", &self.dir, e))
    }

    /// Hands what was applied to the operating system. That is no sync: sled's flush is
    /// `sync_file_range`, which leaves the file's metadata behind.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.db
            .flush()
            .map(drop)
            .map_err(|e| StoreError::sled("flushing", &self.dir, e))
    }

    pub(crate) fn bytes_on_disk(&self) -> Result<u64, StoreError> {
        self.db
            .size_on_disk()
            .map_err(|e| StoreError::sled("measuring", &self.dir, e))
    }

    fn range(
        &self,
        bounds: Bounds,
        reverse: bool,
    ) -> Box<dyn Iterator<Item = sled::Result<(IVec, IVec)>>> {
        let rows = self.db.range(bounds);
        if reverse {
            Box::new(rows.rev())
        } else {
            Box::new(rows)
        }
    }
}

/// What lies over the tree: stored keys and their values, `None` where there is no such row.
pub(crate) type Overlay = BTreeMap<Vec<u8>, Option<IVec>>;

/// The durable state: tree, overlay, and the meta row of the last durable group.
pub(crate) struct View {
    pub(crate) tree: Tree,
    pub(crate) over: Overlay,
    pub(crate) meta: Meta,
}

impl View {
    pub(crate) fn new(tree: Tree, meta: Meta) -> View {
        View {
            tree,
            over: Overlay::new(),
            meta,
        }
    }

    /// The overlay and the meta row, for sled.
    pub(crate) fn batch(&self) -> sled::Batch {
        let mut batch = sled::Batch::default();
        for (key, value) in &self.over {
            match value {
                Some(value) => batch.insert(key.as_slice(), value),
                None => batch.remove(key.as_slice()),
            }
        }
        batch.insert(key::META, self.meta.encode());
        batch
    }

    pub(crate) fn scan(
        &self,
        table: Table,
        scan: &Scan,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let Some(bounds) = scan.bounds(table) else {
            return Ok(Vec::new());
        };
        let prefix_bytes = key::table_prefix(table).len();
        let rows = self.stored_rows(bounds, scan)?;
        rows.into_iter()
            .map(|(stored_key, framed)| {
                let value = row::value(self, table, &stored_key, &framed)?;
                Ok((Bytes::copy_from_slice(&stored_key[prefix_bytes..]), value))
            })
            .collect()
    }

    /// The first `limit_rows` of tree and overlay, merged.
    fn stored_rows(&self, bounds: Bounds, scan: &Scan) -> Result<Vec<(IVec, IVec)>, StoreError> {
        let over = self.over.range(bounds.clone());
        let over: Box<dyn Iterator<Item = _>> = match scan.reverse {
            true => Box::new(over.rev()),
            false => Box::new(over),
        };
        let failed = |e| StoreError::sled("scanning", &self.tree.dir, e);
        let mut over = over.peekable();
        let mut tree = self.tree.range(bounds, scan.reverse).peekable();
        let mut rows = Vec::new();
        while rows.len() < scan.limit_rows {
            let order = match (over.peek(), tree.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(_), Some(Err(error))) => return Err(failed(error.clone())),
                (Some((over, _)), Some(Ok((tree, _)))) if scan.reverse => {
                    tree.as_ref().cmp(over.as_slice())
                }
                (Some((over, _)), Some(Ok((tree, _)))) => over.as_slice().cmp(tree),
            };
            let from_tree = if order.is_ge() { tree.next() } else { None };
            let from_over = if order.is_le() { over.next() } else { None };
            match (from_over, from_tree) {
                // The overlay hides the tree's row of the same key.
                (Some((key, value)), _) => {
                    let row = value.clone().map(|value| (key.as_slice().into(), value));
                    rows.extend(row);
                }
                (None, Some(row)) => rows.push(row.map_err(failed)?),
                (None, None) => {}
            }
        }
        Ok(rows)
    }
}

impl Source for View {
    fn stored(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        match self.over.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.tree.get(key),
        }
    }
}
