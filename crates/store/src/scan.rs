//! What a scan covers: a prefix or a range of one table's keys, its direction, its limit.

use std::ops::Bound;

use crate::{Table, key};

/// Part of a table, in key order (bytewise).
#[derive(Debug, Clone)]
pub struct Scan {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    pub(crate) limit_rows: usize,
    pub(crate) reverse: bool,
}

/// Stored keys, from and to.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Scan {
    /// All rows whose key begins with `prefix`, at most `limit_rows` of them. The answer is
    /// held in memory, so the limit is its bound.
    pub fn prefix(prefix: impl AsRef<[u8]>, limit_rows: usize) -> Scan {
        let prefix = prefix.as_ref();
        let to = key::after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Scan {
            from: Bound::Included(prefix.to_vec()),
            to,
            limit_rows,
            reverse: false,
        }
    }

    /// All rows whose key lies between the bounds, at most `limit_rows` of them.
    pub fn range(from: Bound<&[u8]>, to: Bound<&[u8]>, limit_rows: usize) -> Scan {
        let (from, to) = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
        Scan {
            from,
            to,
            limit_rows,
            reverse: false,
        }
    }

    /// From the last key down to the first.
    #[must_use]
    pub fn reversed(mut self) -> Scan {
        self.reverse = true;
        self
    }

    /// The stored keys covered; `None` when there can be none.
    pub(crate) fn bounds(&self, table: Table) -> Option<Bounds> {
        let prefix = key::table_prefix(table);
        let stored = |key: &Vec<u8>| key::row(table, key);
        let from = match self.from.as_ref().map(stored) {
            Bound::Unbounded => Bound::Included(prefix.clone()),
            bound => bound,
        };
        let to = match self.to.as_ref().map(stored) {
            Bound::Unbounded => {
                key::after_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded)
            }
            bound => bound,
        };
        is_ordered(&from, &to).then_some((from, to))
    }
}

/// Inverted ranges make the standard library's maps panic, so they are answered before.
fn is_ordered(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match (from, to) {
        (Unbounded, _) | (_, Unbounded) => true,
        (Included(from), Included(to)) => from <= to,
        (Included(from) | Excluded(from), Included(to) | Excluded(to)) => from < to,
    }
}
