//! Rows above stored keys: how a value becomes one stored row, or a head and chunks.
//!
//! sled writes a page whose encoding exceeds a quarter of its segment to a file of its own
//! that it never syncs. A leaf holds up to about 17 rows, so values are cut into chunks small
//! enough that no page ever gets there.

use bytes::Bytes;
use sled::IVec;

use crate::codec::Fields;
use crate::frame::{self, Kind};
use crate::key::{self, ChunkSet};
use crate::{StoreError, Table};

/// sled's segment in bytes; pages up to a quarter of it stay in the synced log file. A segment
/// is used again only when no page in it is live, so larger ones let the file grow faster.
pub(crate) const SEGMENT_BYTES: usize = 512 << 10;
/// Largest payload of one stored row: 24 of them with the longest keys fit a quarter of a
/// segment, and so do the 257 longest keys of a full index page.
pub(crate) const CHUNK_BYTES_MAX: usize = 4 << 10;

/// Where stored rows come from: the tree, or the tree under uncommitted writes.
pub(crate) trait Source {
    /// The stored, framed value of a stored key.
    fn stored(&self, key: &[u8]) -> Result<Option<IVec>, StoreError>;
}

/// What a row's head says.
enum Head<'a> {
    Inline(&'a [u8]),
    Chunked(Descriptor),
}

#[derive(Debug, Clone, Copy)]
struct Descriptor {
    set: ChunkSet,
    bytes: u32,
    chunks: u32,
    crc: u32,
}

/// Reads a row and checks every checksum on the way.
pub(crate) fn load(
    source: &impl Source,
    table: Table,
    key: &[u8],
) -> Result<Option<Bytes>, StoreError> {
    let stored_key = key::row(table, key);
    let framed = source.stored(&stored_key)?;
    framed
        .map(|framed| value(source, table, &stored_key, &framed))
        .transpose()
}

/// The value behind a head that was already read.
pub(crate) fn value(
    source: &impl Source,
    table: Table,
    stored_key: &[u8],
    framed: &[u8],
) -> Result<Bytes, StoreError> {
    let corrupt = |detail| corrupt(table, stored_key, detail);
    match head(stored_key, framed).map_err(corrupt)? {
        Head::Inline(value) => Ok(Bytes::copy_from_slice(value)),
        Head::Chunked(descriptor) => assemble(source, table, stored_key, descriptor),
    }
}

/// The stored rows of a new value: its chunks, then its head.
pub(crate) fn encode(stored_key: Vec<u8>, value: &[u8], set: ChunkSet) -> Vec<(Vec<u8>, Vec<u8>)> {
    if value.len() <= CHUNK_BYTES_MAX {
        let framed = frame::encode(&stored_key, Kind::Inline, value);
        return vec![(stored_key, framed)];
    }
    let chunk_row = |(index, chunk): (usize, &[u8])| {
        let key = key::chunk(set, index as u32);
        let framed = frame::encode(&key, Kind::Chunk, chunk);
        (key, framed)
    };
    let mut rows: Vec<_> = value
        .chunks(CHUNK_BYTES_MAX)
        .enumerate()
        .map(chunk_row)
        .collect();
    let descriptor = Descriptor {
        set,
        bytes: value.len() as u32,
        chunks: rows.len() as u32,
        crc: crc32fast::hash(value),
    };
    let framed = frame::encode(&stored_key, Kind::Chunked, &descriptor.encode());
    rows.push((stored_key, framed));
    rows
}

/// The stored keys of the chunks that go away when the row with this head does.
pub(crate) fn chunk_keys(
    table: Table,
    stored_key: &[u8],
    framed: &[u8],
) -> Result<Vec<Vec<u8>>, StoreError> {
    match head(stored_key, framed).map_err(|detail| corrupt(table, stored_key, detail))? {
        Head::Inline(_) => Ok(Vec::new()),
        Head::Chunked(d) => Ok((0..d.chunks)
            .map(|index| key::chunk(d.set, index))
            .collect()),
    }
}

fn head<'a>(stored_key: &[u8], framed: &'a [u8]) -> Result<Head<'a>, &'static str> {
    match frame::decode(stored_key, framed)? {
        (Kind::Inline, value) => Ok(Head::Inline(value)),
        (Kind::Chunked, payload) => Descriptor::decode(payload)
            .map(Head::Chunked)
            .ok_or("descriptor is malformed"),
        _ => Err("not a row"),
    }
}

fn assemble(
    source: &impl Source,
    table: Table,
    stored_key: &[u8],
    descriptor: Descriptor,
) -> Result<Bytes, StoreError> {
    let corrupt = |detail| corrupt(table, stored_key, detail);
    let mut value = Vec::with_capacity(descriptor.bytes as usize);
    for index in 0..descriptor.chunks {
        let key = key::chunk(descriptor.set, index);
        let framed = source
            .stored(&key)?
            .ok_or_else(|| corrupt("a chunk is missing"))?;
        match frame::decode(&key, &framed).map_err(corrupt)? {
            (Kind::Chunk, chunk) => value.extend_from_slice(chunk),
            _ => return Err(corrupt("not a chunk")),
        }
    }
    if value.len() != descriptor.bytes as usize || crc32fast::hash(&value) != descriptor.crc {
        return Err(corrupt("the chunks do not make up the value"));
    }
    Ok(value.into())
}

fn corrupt(table: Table, stored_key: &[u8], detail: &'static str) -> StoreError {
    let key = match key::parse(stored_key) {
        Some(key::Parsed::Row { key, .. }) => key,
        _ => stored_key,
    };
    let key = Bytes::copy_from_slice(key);
    StoreError::CorruptRow {
        table: table.name().to_owned(),
        key,
        detail,
    }
}

impl Descriptor {
    fn encode(self) -> Vec<u8> {
        let mut out = self.set.commit.to_le_bytes().to_vec();
        for field in [self.set.write, self.bytes, self.chunks, self.crc] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out
    }

    fn decode(payload: &[u8]) -> Option<Descriptor> {
        let mut fields = Fields(payload);
        let set = ChunkSet {
            commit: fields.u64()?,
            write: fields.u32()?,
        };
        let (bytes, chunks, crc) = (fields.u32()?, fields.u32()?, fields.u32()?);
        fields.0.is_empty().then_some(Descriptor {
            set,
            bytes,
            chunks,
            crc,
        })
    }
}
