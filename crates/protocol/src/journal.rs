//! Journal entries: all records of one transition in one message.
//!
//! Layout: `DJ`, format byte, CRC-32C (little endian) over the rest, 32 bytes of
//! chain hash, msgpack. The chain hash is SHA-256 over the previous entry's hash and
//! this entry's msgpack, so an entry can't be changed, dropped from the middle or
//! moved without being found. A lost tail is found by the store's witness, not here.
//!
//! The entry that replaces a forgotten goal's journal (its tombstone) has format 2: the
//! 32 bytes of the hash that it follows stand before the msgpack, so that it can begin a
//! journal and still says which chain it ended. Its checksum is over the format byte too.

use crate::envelope::{from_msgpack, to_msgpack};
use crate::error::{Code, Fault};
use crate::ids::{GoalId, TenantId};
use crate::json::Digest;
use crate::record::{Body, Record, Said};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

const MAGIC: &[u8; 2] = b"DJ";
/// Format of the frame of an entry that follows another.
const FORMAT_NEXT: u8 = 1;
/// Format of the frame of an entry that may begin a journal in the place of others.
const FORMAT_START: u8 = 2;
/// Newest format of the entry's frame.
pub const FORMAT: u8 = FORMAT_START;
/// Version of the records' vocabulary.
pub const SCHEMA: u16 = 1;
const HEAD_BYTES: usize = 2 + 1 + 4 + 32;

/// Hash before the first entry of a goal.
pub const GENESIS: Digest = Digest([0; 32]);

/// All records of one transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Whose goal.
    pub tenant: TenantId,
    /// The goal.
    pub goal: GoalId,
    /// Epoch of the owner that wrote it, from 1.
    pub epoch: u64,
    /// Wall clock of that owner, Unix milliseconds.
    pub at_ms: u64,
    /// How far that clock may be off, milliseconds.
    pub at_error_ms: u64,
    /// The records, numbered without gaps.
    pub records: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u16,
    tenant: TenantId,
    goal: GoalId,
    epoch: u64,
    at_ms: u64,
    at_error_ms: u64,
    /// Number of the first record.
    n: u64,
    records: Vec<WireRecord>,
}

#[derive(Serialize, Deserialize)]
struct WireRecord {
    cause: String,
    /// Kept outside the body so that a reader can name what it does not know.
    kind: String,
    body: ByteBuf,
}

fn corrupt(message: impl Into<String>) -> Fault {
    Fault::new(Code::JournalCorrupt, message)
}

impl Entry {
    /// Encodes after the entry whose hash is `previous`; gives the bytes and the new
    /// hash.
    pub fn encode(&self, previous: &Digest) -> Result<(Bytes, Digest), Fault> {
        self.encode_as(FORMAT_NEXT, previous)
    }

    /// Encodes a tombstone: an entry that stands for all entries up to the one whose hash
    /// is `replaces`, and can be read without them.
    pub fn encode_tombstone(&self, replaces: &Digest) -> Result<(Bytes, Digest), Fault> {
        self.encode_as(FORMAT_START, replaces)
    }

    fn encode_as(&self, format: u8, previous: &Digest) -> Result<(Bytes, Digest), Fault> {
        let records: Result<_, Fault> = self.records.iter().map(wire_record).collect();
        let wire = Wire {
            v: SCHEMA,
            tenant: self.tenant.clone(),
            goal: self.goal,
            epoch: self.epoch,
            at_ms: self.at_ms,
            at_error_ms: self.at_error_ms,
            n: self.records.first().map_or(0, |r| r.n),
            records: records?,
        };
        let payload = to_msgpack(&wire)?;
        let hash = chain(previous, &payload);
        let replaces = (format == FORMAT_START).then_some(previous);
        let mut out = BytesMut::with_capacity(HEAD_BYTES + 32 + payload.len());
        out.put_slice(MAGIC);
        out.put_u8(format);
        out.put_u32_le(checksum(&hash, replaces, &payload));
        out.put_slice(&hash.0);
        if let Some(replaces) = replaces {
            out.put_slice(&replaces.0);
        }
        out.put_slice(&payload);
        Ok((out.freeze(), hash))
    }

    /// Decodes the entry that follows the one whose hash is `previous`; gives it and
    /// its hash. A tombstone follows what it replaces, and [`GENESIS`]. Fails with [`Code::JournalCorrupt`] when a byte is not as written or
    /// the entry does not follow, with [`Code::JournalUnreadable`] when its format or
    /// schema is newer than this version.
    pub fn decode(bytes: &[u8], previous: &Digest) -> Result<(Self, Digest), Fault> {
        let frame = unframe(bytes)?;
        let previous = match &frame.replaces {
            Some(replaces) if *previous == GENESIS => replaces,
            _ => previous,
        };
        if frame.replaces.is_some_and(|r| r != *previous)
            || chain(previous, frame.payload) != frame.hash
        {
            return Err(corrupt("the entry does not follow the one before it"));
        }
        Ok((Self::of_payload(frame.payload)?, frame.hash))
    }

    /// Decodes an entry alone, its place in the chain unchecked; gives its hash too.
    pub fn decode_alone(bytes: &[u8]) -> Result<(Self, Digest), Fault> {
        let frame = unframe(bytes)?;
        Ok((Self::of_payload(frame.payload)?, frame.hash))
    }

    /// Is it a tombstone: does it stand for all entries before it?
    pub fn is_tombstone(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC) && bytes.get(2) == Some(&FORMAT_START)
    }

    fn of_payload(payload: &[u8]) -> Result<Self, Fault> {
        let wire: Wire = from_msgpack(payload).map_err(|f| corrupt(f.message))?;
        if wire.v > SCHEMA {
            let message = format!("schema {} is newer than {SCHEMA}", wire.v);
            return Err(Fault::new(Code::JournalUnreadable, message));
        }
        let numbered = (wire.n..).zip(wire.records);
        let records: Result<_, Fault> = numbered.map(|(n, r)| record(n, r)).collect();
        Ok(Self {
            tenant: wire.tenant,
            goal: wire.goal,
            epoch: wire.epoch,
            at_ms: wire.at_ms,
            at_error_ms: wire.at_error_ms,
            records: records?,
        })
    }
}

struct Frame<'a> {
    hash: Digest,
    replaces: Option<Digest>,
    payload: &'a [u8],
}

fn unframe(bytes: &[u8]) -> Result<Frame<'_>, Fault> {
    if bytes.len() < HEAD_BYTES || &bytes[..2] != MAGIC || bytes[2] == 0 {
        return Err(corrupt("not a journal entry"));
    }
    if bytes[2] > FORMAT {
        let message = format!("entry format {} is newer than {FORMAT}", bytes[2]);
        return Err(Fault::new(Code::JournalUnreadable, message));
    }
    let mut crc = [0; 4];
    crc.copy_from_slice(&bytes[3..7]);
    let mut hash = [0; 32];
    hash.copy_from_slice(&bytes[7..HEAD_BYTES]);
    let (hash, mut payload) = (Digest(hash), &bytes[HEAD_BYTES..]);
    let mut replaces = None;
    if bytes[2] == FORMAT_START {
        let cut = || corrupt("a tombstone is cut off");
        let (named, rest) = payload.split_first_chunk().ok_or_else(cut)?;
        (replaces, payload) = (Some(Digest(*named)), rest);
    }
    if checksum(&hash, replaces.as_ref(), payload) != u32::from_le_bytes(crc) {
        return Err(corrupt("checksum of an entry does not match"));
    }
    Ok(Frame {
        hash,
        replaces,
        payload,
    })
}

fn chain(previous: &Digest, payload: &[u8]) -> Digest {
    use sha2::{Digest as _, Sha256};
    let mut h = Sha256::new();
    h.update(previous.0);
    h.update(payload);
    Digest(h.finalize().into())
}

fn checksum(hash: &Digest, replaces: Option<&Digest>, payload: &[u8]) -> u32 {
    let Some(replaces) = replaces else {
        return crc32c::crc32c_append(crc32c::crc32c(&hash.0), payload);
    };
    let parts: [&[u8]; 4] = [&[FORMAT_START], &hash.0, &replaces.0, payload];
    let append = |crc, part: &[u8]| crc32c::crc32c_append(crc, part);
    parts.into_iter().fold(0, append)
}

fn wire_record(r: &Record) -> Result<WireRecord, Fault> {
    let (kind, body) = match &r.said {
        Said::Known(body) => (body.kind().to_owned(), to_msgpack(body)?.to_vec()),
        Said::Unknown { kind, raw } => (kind.clone(), raw.clone()),
    };
    Ok(WireRecord {
        cause: r.cause.clone(),
        kind,
        body: ByteBuf::from(body),
    })
}

fn record(n: u64, wire: WireRecord) -> Result<Record, Fault> {
    let known = Body::KINDS.contains(&wire.kind.as_str());
    let said = if known {
        // A known kind that can't be read was written by a newer version too: the
        // checksum holds, so the bytes are as they were written.
        match from_msgpack::<Body>(&wire.body) {
            Ok(body) => Said::Known(body),
            Err(_) => Said::Unknown {
                kind: wire.kind,
                raw: wire.body.into_vec(),
            },
        }
    } else {
        Said::Unknown {
            kind: wire.kind,
            raw: wire.body.into_vec(),
        }
    };
    Ok(Record {
        n,
        cause: wire.cause,
        said,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn entry(n: u64, said: Said) -> Entry {
        Entry {
            tenant: TenantId::default(),
            goal: GoalId::from_bytes([7; 16]),
            epoch: 1,
            at_ms: 1_760_000_000_000,
            at_error_ms: 50,
            records: vec![Record {
                n,
                cause: "test".into(),
                said,
            }],
        }
    }
    fn owned() -> Said {
        Said::Known(Body::Owned {
            node: NodeId::new("n1").unwrap(),
        })
    }

    #[test]
    fn round_trip_and_chain() {
        let a = entry(1, owned());
        let (bytes_a, hash_a) = a.encode(&GENESIS).unwrap();
        let (bytes_b, hash_b) = entry(2, owned()).encode(&hash_a).unwrap();
        assert_eq!(Entry::decode(&bytes_a, &GENESIS).unwrap(), (a, hash_a));
        assert_eq!(Entry::decode(&bytes_b, &hash_a).unwrap().1, hash_b);
        let moved = Entry::decode(&bytes_b, &GENESIS).unwrap_err();
        assert_eq!(moved.code, Code::JournalCorrupt);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let (next, hash) = entry(1, owned()).encode(&GENESIS).unwrap();
        let (start, _) = entry(2, owned()).encode_tombstone(&hash).unwrap();
        for bytes in [next, start] {
            for i in 0..bytes.len() {
                for bit in 0..8 {
                    let mut bad = bytes.to_vec();
                    bad[i] ^= 1 << bit;
                    assert!(Entry::decode(&bad, &GENESIS).is_err(), "byte {i} bit {bit}");
                }
                assert!(Entry::decode(&bytes[..i], &GENESIS).is_err(), "cut at {i}");
            }
        }
    }

    #[test]
    fn a_tombstone_follows_what_it_replaces_and_begins_a_journal() {
        let (a, hash_a) = entry(1, owned()).encode(&GENESIS).unwrap();
        let (b, _) = entry(2, owned()).encode(&hash_a).unwrap();
        let tombstone = entry(2, owned());
        let (bytes, hash) = tombstone.encode_tombstone(&hash_a).unwrap();
        assert!(Entry::is_tombstone(&bytes) && !Entry::is_tombstone(&a));
        for previous in [GENESIS, hash_a] {
            let read = Entry::decode(&bytes, &previous).unwrap();
            assert_eq!(read, (tombstone.clone(), hash));
        }
        let elsewhere = Entry::decode(&bytes, &hash).unwrap_err();
        assert_eq!(elsewhere.code, Code::JournalCorrupt);
        assert!(Entry::decode(&b, &GENESIS).is_err());
    }

    #[test]
    fn unknown_records_are_kept_as_they_are() {
        let said = Said::Unknown {
            kind: "teleported".into(),
            raw: vec![0x81, 0xa1, b'x', 1],
        };
        let e = entry(3, said);
        let (bytes, hash) = e.encode(&GENESIS).unwrap();
        let (back, _) = Entry::decode(&bytes, &GENESIS).unwrap();
        assert_eq!(back, e);
        assert_eq!(back.encode(&GENESIS).unwrap(), (bytes, hash));
    }

    #[test]
    fn newer_formats_are_said_not_guessed() {
        let (bytes, _) = entry(1, owned()).encode(&GENESIS).unwrap();
        let mut newer = bytes.to_vec();
        newer[2] = FORMAT + 1;
        let f = Entry::decode(&newer, &GENESIS).unwrap_err();
        assert_eq!(f.code, Code::JournalUnreadable);
    }
}
