//! A group's writes as the witness keeps them, so that a group that reached the witness but
//! not sled can be made good.
//!
//! Layout: for each stored key `key bytes u32 | key | 0`, or `.. | 1 | value bytes u32 | value`,
//! little-endian. The meta row is one of them, and says after which head the group belongs.

use crate::codec::Fields;
use crate::key;
use crate::meta::Meta;

/// Collects the writes of a group until they are too many.
pub(crate) struct RedoWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
    too_large: bool,
}

impl RedoWriter {
    /// For a group of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> RedoWriter {
        RedoWriter {
            bytes: Vec::new(),
            bytes_max,
            too_large: false,
        }
    }

    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let room = self.bytes_max - self.bytes.len();
        if self.too_large || key.len() + value.map_or(0, <[u8]>::len) + 9 > room {
            self.too_large = true;
            return;
        }
        push_sized(&mut self.bytes, key);
        self.bytes.push(u8::from(value.is_some()));
        if let Some(value) = value {
            push_sized(&mut self.bytes, value);
        }
    }

    /// The encoded writes; `None` when they are too large to be kept.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        (!self.too_large).then_some(self.bytes)
    }
}

/// A group as it was read from the witness.
pub(crate) struct Redo {
    pub(crate) batch: sled::Batch,
    /// The store's meta row after the group.
    pub(crate) meta: Meta,
}

/// `None` when the bytes are no group.
pub(crate) fn decode(bytes: &[u8]) -> Option<Redo> {
    let mut fields = Fields(bytes);
    let mut batch = sled::Batch::default();
    let mut meta = None;
    while !fields.0.is_empty() {
        let key = take_sized(&mut fields)?;
        match fields.u8()? {
            0 => batch.remove(key),
            1 => {
                let value = take_sized(&mut fields)?;
                if key == key::META {
                    meta = Some(Meta::decode(value).ok()?);
                }
                batch.insert(key, value);
            }
            _ => return None,
        }
    }
    Some(Redo { batch, meta: meta? })
}

fn push_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_sized<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let len = fields.u32()?;
    fields.take(usize::try_from(len).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Meta, Vec<u8>) {
        let mut meta = Meta::new(7);
        meta.advance(1);
        let mut redo = RedoWriter::new(1000);
        redo.push(b"gone", None);
        redo.push(b"key", Some(b"value"));
        redo.push(key::META, Some(&meta.encode()));
        (meta, redo.finish().unwrap())
    }

    #[test]
    fn a_group_comes_back_whole() {
        let (meta, bytes) = sample();
        let redo = decode(&bytes).unwrap();
        assert_eq!(redo.meta, meta);
        let db = sled::Config::new().temporary(true).open().unwrap();
        db.insert("gone", "old").unwrap();
        db.apply_batch(redo.batch).unwrap();
        assert_eq!(db.get("gone").unwrap(), None);
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        assert_eq!(db.get(key::META).unwrap().unwrap(), meta.encode());
    }

    #[test]
    fn a_group_that_is_cut_off_is_none() {
        let (_, bytes) = sample();
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_none(), "{len} bytes");
        }
    }

    #[test]
    fn a_group_beyond_the_bound_is_not_kept() {
        let mut redo = RedoWriter::new(1000);
        redo.push(b"k", Some(&[0; 990]));
        assert_eq!(redo.finish().unwrap().len(), 1000);

        let mut redo = RedoWriter::new(1000);
        redo.push(b"k", Some(&[0; 991]));
        redo.push(b"small", None);
        assert!(redo.finish().is_none());
    }
}
