//! Small values side by side in a word, so that hashing a state costs little.

/// A word that is filled from the right.
#[derive(Debug, Default, Clone, Copy)]
pub struct Bits {
    word: u64,
    used: u32,
}

impl Bits {
    /// Adds a value of so many bits. Values that do not fit would make two states look
    /// alike, so a debug build refuses them.
    pub fn put(&mut self, value: u64, bits: u32) {
        debug_assert!(value < 1 << bits, "{value} does not fit into {bits} bits");
        debug_assert!(self.used + bits <= 64, "the word is full");
        self.word |= value << self.used;
        self.used += bits;
    }

    /// Adds one bit.
    pub fn flag(&mut self, value: bool) {
        self.put(value.into(), 1);
    }

    /// The word.
    pub fn word(self) -> u64 {
        self.word
    }
}
