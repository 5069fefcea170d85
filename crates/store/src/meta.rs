//! The meta row: what the store must contain, written in the same batch as the rows.

use std::collections::BTreeMap;

use crate::codec::Fields;
use crate::frame::{self, Kind};
use crate::hash::{hash64, row_hash};
use crate::key;

/// Commit sequence and hash chain at one point of the store's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) chain: u64,
}

/// Live rows of one table: their number, their size, and the sum of their hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) digest: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.rows += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.digest = self.digest.wrapping_add(row_hash(key, value));
    }

    /// Saturates: a row that was altered under us must end as a mismatch, not as a panic.
    fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub((key.len() + value.len()) as u64);
        self.digest = self.digest.wrapping_sub(row_hash(key, value));
    }
}

/// The meta row's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Random, made with the store: a witness of another store does not fit.
    pub(crate) store_id: u64,
    /// The last commit in the store.
    pub(crate) head: Head,
    /// The head before the last group: where a witness may be after a crash.
    pub(crate) previous: Head,
    /// Tables that have rows; chunks stand under [`key::CHUNKS_NAME`].
    pub(crate) tables: BTreeMap<String, Totals>,
}

impl Meta {
    pub(crate) fn new(store_id: u64) -> Meta {
        let head = Head {
            seq: 0,
            chain: hash64(0, &store_id.to_le_bytes()),
        };
        Meta {
            store_id,
            head,
            previous: head,
            tables: BTreeMap::new(),
        }
    }

    /// Accounts for one stored key going from `old` to `new`.
    pub(crate) fn replace(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        let name = match key::parse(key) {
            Some(key::Parsed::Row { table, .. }) => table,
            _ => key::CHUNKS_NAME,
        };
        let mut totals = self.tables.remove(name).unwrap_or_default();
        if let Some(old) = old {
            totals.remove(key, old);
        }
        if let Some(new) = new {
            totals.add(key, new);
        }
        if totals != Totals::default() {
            self.tables.insert(name.to_owned(), totals);
        }
    }

    /// Ends a group whose last commit is `seq`.
    pub(crate) fn advance(&mut self, seq: u64) {
        self.previous = self.head;
        let mut content = seq.to_le_bytes().to_vec();
        self.encode_tables(&mut content);
        self.head = Head {
            seq,
            chain: hash64(self.previous.chain, &content),
        };
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(128);
        let fields = [
            self.store_id,
            self.head.seq,
            self.head.chain,
            self.previous.seq,
            self.previous.chain,
        ];
        fields
            .iter()
            .for_each(|field| payload.extend_from_slice(&field.to_le_bytes()));
        self.encode_tables(&mut payload);
        frame::encode(key::META, Kind::Meta, &payload)
    }

    pub(crate) fn decode(framed: &[u8]) -> Result<Meta, &'static str> {
        let (kind, payload) = frame::decode(key::META, framed)?;
        if kind != Kind::Meta {
            return Err("not a meta row");
        }
        Self::decode_payload(Fields(payload)).ok_or("meta row is malformed")
    }

    fn decode_payload(mut fields: Fields<'_>) -> Option<Meta> {
        let store_id = fields.u64()?;
        let head = Head {
            seq: fields.u64()?,
            chain: fields.u64()?,
        };
        let previous = Head {
            seq: fields.u64()?,
            chain: fields.u64()?,
        };
        let count = fields.u16()?;
        let tables = (0..count)
            .map(|_| decode_table(&mut fields))
            .collect::<Option<_>>()?;
        fields.0.is_empty().then_some(Meta {
            store_id,
            head,
            previous,
            tables,
        })
    }

    fn encode_tables(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.tables.len() as u16).to_le_bytes());
        for (name, totals) in &self.tables {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
            for field in [totals.rows, totals.bytes, totals.digest] {
                out.extend_from_slice(&field.to_le_bytes());
            }
        }
    }
}

fn decode_table(fields: &mut Fields<'_>) -> Option<(String, Totals)> {
    let len = fields.u8()?;
    let name = std::str::from_utf8(fields.take(usize::from(len))?)
        .ok()?
        .to_owned();
    let totals = Totals {
        rows: fields.u64()?,
        bytes: fields.u64()?,
        digest: fields.u64()?,
    };
    Some((name, totals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Table;

    #[test]
    fn removing_what_was_added_leaves_nothing() {
        let mut meta = Meta::new(7);
        let key = key::row(Table::new("t"), b"k");
        meta.replace(&key, None, Some(b"one"));
        meta.replace(&key, Some(b"one"), Some(b"two"));
        assert_eq!(meta.tables["t"].rows, 1);
        meta.replace(&key, Some(b"two"), None);
        assert!(meta.tables.is_empty());
    }

    #[test]
    fn encoding_comes_back_whole() {
        let mut meta = Meta::new(7);
        meta.replace(&key::row(Table::new("t"), b"k"), None, Some(b"v"));
        meta.advance(3);
        assert_eq!(Meta::decode(&meta.encode()), Ok(meta));
    }
}
