//! The frame around every stored value: version, kind, CRC-32 over key and value.
//!
//! Layout: `version u8 | kind u8 | crc32 u32 LE | payload`. The key is under the checksum, so
//! a value that turns up beneath another key is found too.

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 6;

/// What a framed payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The value itself.
    Inline = 0,
    /// A descriptor of a value that lies in chunks.
    Chunked = 1,
    /// One chunk of a large value.
    Chunk = 2,
    /// The store's meta row.
    Meta = 3,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        [Kind::Inline, Kind::Chunked, Kind::Chunk, Kind::Meta]
            .into_iter()
            .find(|k| *k as u8 == byte)
    }
}

/// Frames `payload` for the stored key `key`.
pub(crate) fn encode(key: &[u8], kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(HEADER_BYTES + payload.len());
    framed.extend_from_slice(&[VERSION, kind as u8]);
    framed.extend_from_slice(&checksum(key, kind, payload).to_le_bytes());
    framed.extend_from_slice(payload);
    framed
}

/// Checks the frame and gives kind and payload, or what is wrong with it.
pub(crate) fn decode<'a>(key: &[u8], framed: &'a [u8]) -> Result<(Kind, &'a [u8]), &'static str> {
    let (header, payload) = framed
        .split_at_checked(HEADER_BYTES)
        .ok_or("frame is cut off")?;
    if header[0] != VERSION {
        return Err("unknown frame version");
    }
    let kind = Kind::from_byte(header[1]).ok_or("unknown frame kind")?;
    if header[2..] != checksum(key, kind, payload).to_le_bytes() {
        return Err("checksum does not match");
    }
    Ok((kind, payload))
}

fn checksum(key: &[u8], kind: Kind, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u32).to_le_bytes());
    hasher.update(key);
    hasher.update(&[VERSION, kind as u8]);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let framed = encode(b"key", Kind::Inline, b"value");
        assert_eq!(decode(b"key", &framed), Ok((Kind::Inline, &b"value"[..])));
        for bit in 0..framed.len() * 8 {
            let mut flipped = framed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(b"key", &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_value_under_another_key_is_found() {
        let framed = encode(b"key", Kind::Inline, b"value");
        assert_eq!(decode(b"kez", &framed), Err("checksum does not match"));
        assert_eq!(decode(b"key", &framed[..3]), Err("frame is cut off"));
    }
}
