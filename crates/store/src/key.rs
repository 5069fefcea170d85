//! Stored keys: all tables share one sled tree, so that a batch is atomic over tables.
//!
//! `0` is the meta row, `1 | name length | name | key` a row, `2 | commit u64 BE | write u32 BE |
//! chunk u32 BE` a chunk of a large value.

use crate::Table;

/// The meta row.
pub(crate) const META: &[u8] = &[0];
const ROW_TAG: u8 = 1;
const CHUNK_TAG: u8 = 2;

/// Name under which the meta row counts chunks; no table can be called so.
pub(crate) const CHUNKS_NAME: &str = "";

/// What all rows of a table begin with.
pub(crate) fn table_prefix(table: Table) -> Vec<u8> {
    let name = table.name().as_bytes();
    let mut prefix = Vec::with_capacity(2 + name.len() + 32);
    prefix.extend_from_slice(&[ROW_TAG, name.len() as u8]);
    prefix.extend_from_slice(name);
    prefix
}

/// The stored key of a row.
pub(crate) fn row(table: Table, key: &[u8]) -> Vec<u8> {
    let mut stored = table_prefix(table);
    stored.extend_from_slice(key);
    stored
}

/// The stored key of one chunk. A chunk set is named after the write that made it, so an
/// overwritten value never shares a chunk with its successor.
pub(crate) fn chunk(set: ChunkSet, index: u32) -> Vec<u8> {
    let mut stored = vec![CHUNK_TAG];
    stored.extend_from_slice(&set.commit.to_be_bytes());
    stored.extend_from_slice(&set.write.to_be_bytes());
    stored.extend_from_slice(&index.to_be_bytes());
    stored
}

/// The commit and the write within it that made a set of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkSet {
    pub(crate) commit: u64,
    pub(crate) write: u32,
}

/// What a stored key names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    Meta,
    Row { table: &'a str, key: &'a [u8] },
    Chunk,
}

/// Takes a stored key apart; `None` when this crate cannot have written it.
pub(crate) fn parse(stored: &[u8]) -> Option<Parsed<'_>> {
    match stored.split_first()? {
        (0, []) => Some(Parsed::Meta),
        (&ROW_TAG, rest) => {
            let (len, rest) = rest.split_first()?;
            let (name, key) = rest.split_at_checked(usize::from(*len))?;
            Some(Parsed::Row {
                table: std::str::from_utf8(name).ok()?,
                key,
            })
        }
        (&CHUNK_TAG, rest) if rest.len() == 16 => Some(Parsed::Chunk),
        _ => None,
    }
}

/// The first key after all keys that begin with `prefix`; `None` when there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut next = prefix[..=keep].to_vec();
    next[keep] += 1;
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_do_not_run_into_one_another() {
        let short = row(Table::new("a"), b"b");
        let long = row(Table::new("ab"), b"");
        assert_ne!(short, long);
        assert_eq!(
            parse(&short),
            Some(Parsed::Row {
                table: "a",
                key: b"b"
            })
        );
        assert_eq!(
            parse(&long),
            Some(Parsed::Row {
                table: "ab",
                key: b""
            })
        );
    }

    #[test]
    fn after_prefix_skips_trailing_ff() {
        assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after_prefix(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(after_prefix(&[0xff]), None);
    }
}
