//! A fast 64-bit hash for digests and chains. It guards against rot and lost writes, not
//! against somebody who forges rows: who can write the files can also write the witness.

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = 0xd6e8_feb8_6659_fd93;

/// Folds the 128-bit product, so every input bit reaches every output bit.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hashes `bytes` onto `state`. The length takes part, so `ab`+`c` differs from `a`+`bc`.
pub(crate) fn hash64(state: u64, bytes: &[u8]) -> u64 {
    let mut state = fold(state ^ SEED, STEP ^ bytes.len() as u64);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word) ^ SEED, STEP);
    }
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    fold(state ^ u64::from_le_bytes(last) ^ SEED, STEP)
}

/// Hash of one stored row. Rows' hashes are summed, so the order of commits plays no part.
pub(crate) fn row_hash(key: &[u8], value: &[u8]) -> u64 {
    hash64(hash64(0, key), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_anywhere_changes_the_hash() {
        let row = *b"a row of some thirty-five bytes .. ";
        let whole = row_hash(b"key", &row);
        for bit in 0..row.len() * 8 {
            let mut flipped = row;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(row_hash(b"key", &flipped), whole, "bit {bit}");
        }
    }

    #[test]
    fn moving_a_byte_from_key_to_value_changes_the_hash() {
        assert_ne!(row_hash(b"ab", b"c"), row_hash(b"a", b"bc"));
        assert_ne!(row_hash(b"", b"\0"), row_hash(b"", b"\0\0"));
    }
}
