//! What readers see: the tree, minus the group that is not durable yet.
//!
//! A batch is in sled's tree before it is on the disk. A reader that saw it could act on a
//! commit that a power cut takes back, so until the group is durable the values before it are
//! kept in an overlay that hides the tree's. After a failed commit the overlay stays.

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

    /// Applies the batch and hands it to the operating system. That is no sync: sled's flush
    /// is `sync_file_range`, which leaves the file's metadata behind.
    pub(crate) fn apply(&self, batch: sled::Batch) -> Result<(), StoreError> {
        let failed = |e| StoreError::sled("committing", &self.dir, e);
        self.db.apply_batch(batch).map_err(failed)?;
        self.db.flush().map(drop).map_err(failed)
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

/// The durable state: tree, overlay, and the meta row of the last durable group.
pub(crate) struct View {
    pub(crate) tree: Tree,
    pub(crate) before: BTreeMap<Vec<u8>, Option<IVec>>,
    pub(crate) meta: Meta,
}

impl View {
    pub(crate) fn new(tree: Tree, meta: Meta) -> View {
        View {
            tree,
            before: BTreeMap::new(),
            meta,
        }
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

    /// The first `limit_rows` of the tree's unhidden rows and the overlay's, merged.
    fn stored_rows(&self, bounds: Bounds, scan: &Scan) -> Result<Vec<(IVec, IVec)>, StoreError> {
        let hidden: Vec<_> = self.before.range(bounds.clone()).collect();
        let mut rows = Vec::new();
        for row in self.tree.range(bounds, scan.reverse) {
            if rows.len() == scan.limit_rows {
                break;
            }
            let (key, value) = row.map_err(|e| StoreError::sled("scanning", &self.tree.dir, e))?;
            if !self.before.contains_key(&*key) {
                rows.push((key, value));
            }
        }
        if !hidden.is_empty() {
            let old = |(key, old): (&Vec<u8>, &Option<IVec>)| {
                Some((IVec::from(key.as_slice()), old.clone()?))
            };
            rows.extend(hidden.into_iter().filter_map(old));
            rows.sort_by(|(a, _), (b, _)| if scan.reverse { b.cmp(a) } else { a.cmp(b) });
            rows.truncate(scan.limit_rows);
        }
        Ok(rows)
    }
}

impl Source for View {
    fn stored(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        match self.before.get(key) {
            Some(old) => Ok(old.clone()),
            None => self.tree.get(key),
        }
    }
}
