//! Reads `Retry-After`: seconds, or a date.

use std::time::{Duration, SystemTime};

/// Longest wait that is believed, milliseconds: a day.
pub const RETRY_AFTER_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Milliseconds to wait by a `Retry-After` header, at most [`RETRY_AFTER_MS_MAX`].
/// A date is compared with the server's own `date` where it sent one, so that its
/// clock and ours need not agree. `None` where the header is neither form.
pub fn retry_after_ms(value: &str, date: Option<&str>, now: SystemTime) -> Option<u64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit are still "very long".
        let seconds: u64 = value.parse().unwrap_or(u64::MAX);
        return Some(seconds.saturating_mul(1000).min(RETRY_AFTER_MS_MAX));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let from = date
        .and_then(|d| httpdate::parse_http_date(d.trim()).ok())
        .unwrap_or(now);
    let wait = until.duration_since(from).unwrap_or(Duration::ZERO);
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Some(wait_ms.min(RETRY_AFTER_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "Sun, 29 Nov 2026 12:00:00 GMT";

    fn at(date: &str) -> SystemTime {
        httpdate::parse_http_date(date).unwrap()
    }

    #[test]
    fn seconds() {
        for (value, ms) in [
            ("0", Some(0)),
            ("7", Some(7_000)),
            (" 120 ", Some(120_000)),
            ("99999999999999999999999", Some(RETRY_AFTER_MS_MAX)),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(retry_after_ms(value, None, at(NOON)), ms, "{value:?}");
        }
    }

    #[test]
    fn a_date_counts_from_now_or_from_the_servers_date() {
        let later = "Sun, 29 Nov 2026 12:00:30 GMT";
        assert_eq!(retry_after_ms(later, None, at(NOON)), Some(30_000));
        let server = "Sun, 29 Nov 2026 12:00:20 GMT";
        assert_eq!(retry_after_ms(later, Some(server), at(NOON)), Some(10_000));
        let past = "Sun, 29 Nov 2026 11:00:00 GMT";
        assert_eq!(retry_after_ms(past, None, at(NOON)), Some(0));
        let far = "Sun, 29 Nov 2037 12:00:00 GMT";
        assert_eq!(
            retry_after_ms(far, None, at(NOON)),
            Some(RETRY_AFTER_MS_MAX)
        );
    }
}
