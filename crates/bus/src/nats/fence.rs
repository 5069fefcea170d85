//! Writes that are refused for a moment, and how often they are tried again.

use super::api::{Failed, code};
use std::time::Duration;

/// How often an answer that settles nothing is asked for again.
pub(super) const TRIES: u32 = 8;
/// The first pause between these; it doubles.
pub(super) const PAUSE: Duration = Duration::from_millis(2);

/// May the same write succeed in a moment? Only for writes that can be told from others'
/// afterwards.
pub(super) fn passes(why: &Failed) -> bool {
    match why {
        Failed::NotSent(_) => false,
        Failed::Silent(_) => true,
        Failed::Said(complaint) => [
            code::WRONG_LAST,
            code::WRONG_LAST_BUSY,
            code::WRONG_LAST_NOT_READY,
            code::NOT_AVAILABLE,
            code::NO_STREAM,
        ]
        .contains(&complaint.err_code),
    }
}
