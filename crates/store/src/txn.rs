//! Tables and transactions: what a caller hands to [`crate::Store::commit`].

use bytes::Bytes;

use crate::StoreError;

/// Longest table name in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 64;
/// Longest key in bytes. Longer ones would let sled's index pages outgrow its synced file.
pub const KEY_BYTES_MAX: usize = 256;
/// Longest value in bytes (4 MiB).
pub const VALUE_BYTES_MAX: usize = 4 << 20;
/// Most writes, and most conditions, in one transaction.
pub const TXN_WRITES_MAX: usize = 1024;
/// Most bytes of keys and values in one transaction (8 MiB), conditions included.
pub const TXN_BYTES_MAX: usize = 8 << 20;

/// The name of a table. Tables need no creation; one without rows does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table(&'static str);

impl Table {
    /// Names a table. Meant for constants.
    ///
    /// # Panics
    /// When the name is empty or longer than [`TABLE_NAME_BYTES_MAX`]; in a constant that is
    /// an error of the compiler.
    pub const fn new(name: &'static str) -> Table {
        assert!(
            !name.is_empty() && name.len() <= TABLE_NAME_BYTES_MAX,
            "table name: 1 to 64 bytes"
        );
        Table(name)
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) table: Table,
    pub(crate) key: Bytes,
    /// `None` deletes.
    pub(crate) value: Option<Bytes>,
}

#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) table: Table,
    pub(crate) key: Bytes,
    /// `None` demands that there is no such row.
    pub(crate) value: Option<Bytes>,
}

/// Writes that happen together or not at all, and the conditions under which they happen.
///
/// Conditions see the store before the transaction's own writes. Of two writes to one key
/// the later counts. A transaction without writes is a barrier: it commits after everything
/// queued before it.
#[derive(Debug, Clone, Default)]
pub struct Txn {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) writes: Vec<Write>,
}

impl Txn {
    /// An empty transaction.
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Sets a row.
    #[must_use]
    pub fn put(mut self, table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Txn {
        self.writes.push(Write {
            table,
            key: key.into(),
            value: Some(value.into()),
        });
        self
    }

    /// Deletes a row; one that is not there is no error.
    #[must_use]
    pub fn delete(mut self, table: Table, key: impl Into<Bytes>) -> Txn {
        self.writes.push(Write {
            table,
            key: key.into(),
            value: None,
        });
        self
    }

    /// Demands that the row has exactly this value, or with `None` that there is none.
    #[must_use]
    pub fn expect(mut self, table: Table, key: impl Into<Bytes>, value: Option<Bytes>) -> Txn {
        self.conditions.push(Condition {
            table,
            key: key.into(),
            value,
        });
        self
    }

    /// Demands that there is no such row.
    #[must_use]
    pub fn expect_absent(self, table: Table, key: impl Into<Bytes>) -> Txn {
        self.expect(table, key, None)
    }

    pub(crate) fn bytes(&self) -> usize {
        let size =
            |key: &Bytes, value: &Option<Bytes>| key.len() + value.as_ref().map_or(0, Bytes::len);
        let conditions = self.conditions.iter().map(|c| size(&c.key, &c.value));
        conditions
            .chain(self.writes.iter().map(|w| size(&w.key, &w.value)))
            .sum()
    }

    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        let keys = self
            .writes
            .iter()
            .map(|w| &w.key)
            .chain(self.conditions.iter().map(|c| &c.key));
        let too_large = |w: &Write| {
            w.value
                .as_ref()
                .is_some_and(|value| value.len() > VALUE_BYTES_MAX)
        };
        let complaint = if keys.into_iter().any(|key| key.len() > KEY_BYTES_MAX) {
            format!("a key is longer than {KEY_BYTES_MAX} bytes")
        } else if self.writes.iter().any(too_large) {
            format!("a value is longer than {VALUE_BYTES_MAX} bytes")
        } else if self.writes.len().max(self.conditions.len()) > TXN_WRITES_MAX {
            format!("more than {TXN_WRITES_MAX} writes or conditions")
        } else if self.bytes() > TXN_BYTES_MAX {
            format!("more than {TXN_BYTES_MAX} bytes in one transaction")
        } else {
            return Ok(());
        };
        Err(StoreError::Invalid { what: complaint })
    }
}
