//! How the journal lies in its stream: the subjects, the headers, the settings.
//!
//! | subject | holds |
//! |---|---|
//! | `detent-journal.<shard>.<tenant>.<goal>.e` | the goal's entries |
//! | `detent-journal.<shard>.<tenant>.<goal>.s.<step>.<attempt>` | one effect slot |
//!
//! Not below `detent.`, where the second token is a tenant: a tenant named `journal` would
//! have its requests kept here, and streams of durable messages could not be made.
//!
//! Promises: for ever the same, since a journal that stands has it; `<shard>` is
//! [`GoalId::shard`] in two digits. What is no subject of this form is not a goal.
//!
//! Must not know: how anything is sent.

use super::NatsOptions;
use crate::{GoalKey, SlotKey};
use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use detent_protocol::{GoalId, MESSAGE_BYTES_MAX, NodeId, TenantId};
use std::time::Duration;

/// The stream of journals and slots.
pub const JOURNAL: &str = "DETENT_JOURNAL";

/// Who appended.
pub(super) const BY: &str = "Detent-By";
/// On an entry that ends its goal, tombstones included.
pub(super) const ENDS: &str = "Detent-Ends";
/// On a tombstone: what stood before it on its subject is gone.
const ROLLUP: &str = "Nats-Rollup";
/// For how long a message is kept.
const TTL: &str = "Nats-TTL";

/// Entries of a goal.
pub(super) fn entries(key: &GoalKey) -> String {
    format!("{}.e", goal(key))
}

/// One effect slot.
pub(super) fn slot(key: &SlotKey) -> String {
    format!("{}.s.{}.{}", goal(&key.goal), key.step, key.attempt)
}

/// All slots of a goal.
pub(super) fn slots(key: &GoalKey) -> String {
    format!("{}.s.>", goal(key))
}

/// Entries of all goals of a tenant, or of all tenants, in one shard.
pub(super) fn entries_of(shard: u16, tenant: Option<&TenantId>) -> String {
    let tenant = tenant.map_or("*", TenantId::as_str);
    format!("detent-journal.{shard:02}.{tenant}.*.e")
}

fn goal(key: &GoalKey) -> String {
    let GoalKey { tenant, goal } = key;
    format!("detent-journal.{:02}.{tenant}.{goal}", goal.shard())
}

/// The goal whose entries are on this subject.
pub(super) fn parse_entries(subject: &str) -> Option<GoalKey> {
    let mut tokens = subject.strip_prefix("detent-journal.")?.split('.');
    let (shard, tenant, goal) = (tokens.next()?, tokens.next()?, tokens.next()?);
    if tokens.next()? != "e" || tokens.next().is_some() {
        return None;
    }
    let key = GoalKey {
        tenant: TenantId::new(tenant).ok()?,
        goal: goal.parse::<GoalId>().ok()?,
    };
    // Under another shard nobody would look for it.
    (shard == format!("{:02}", key.goal.shard())).then_some(key)
}

/// Headers of an entry: the fence, who, and whether it is the last.
pub(super) fn entry_headers(after: u64, by: Option<&NodeId>, ends: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, after.to_string());
    if let Some(by) = by {
        headers.insert(BY, by.as_str());
    }
    if ends {
        headers.insert(ENDS, "1");
    }
    headers
}

/// Longest time a tombstone is kept by a limit, seconds: 100 years. Beyond it for ever.
const KEEP_S_MAX: u64 = 100 * 365 * 24 * 3600;

/// Headers of a tombstone.
pub(super) fn tombstone_headers(after: u64, keep: Duration) -> HeaderMap {
    let mut headers = entry_headers(after, None, true);
    headers.insert(ROLLUP, "sub");
    let whole = keep
        .as_secs()
        .saturating_add(u64::from(keep.subsec_nanos() > 0));
    if whole <= KEEP_S_MAX {
        headers.insert(TTL, format!("{}s", whole.max(1)));
    }
    headers
}

/// The sequence that the entry's writer had seen as the last one, where it says so.
pub(super) fn follows(headers: &HeaderMap) -> Option<u64> {
    let after = headers.get(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE)?;
    after.as_str().parse().ok()
}

/// Does it stand for all that was before it on its subject?
pub(super) fn is_tombstone(headers: &HeaderMap) -> bool {
    headers.get(ROLLUP).is_some()
}

/// Settings of the journal's stream.
pub(super) fn stream(options: &NatsOptions) -> Config {
    Config {
        name: JOURNAL.into(),
        description: Some("Journals and effect slots of Detent's goals".into()),
        subjects: vec!["detent-journal.>".into()],
        storage: StorageType::File,
        num_replicas: options.replicas,
        retention: RetentionPolicy::Limits,
        // Full, it refuses; it never makes room by forgetting.
        discard: DiscardPolicy::New,
        max_age: Duration::ZERO,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_bytes: i64::try_from(options.journal_bytes_max).unwrap_or(i64::MAX),
        max_message_size: i32::try_from(MESSAGE_BYTES_MAX).unwrap_or(i32::MAX),
        // The shortest there is: no message has an id, or a loser of the fence would be
        // told that its entry is there.
        duplicate_window: Duration::from_millis(100),
        deny_delete: true,
        // A tombstone is a roll-up, and a roll-up is a purge.
        deny_purge: false,
        allow_rollup: true,
        allow_message_ttl: true,
        allow_direct: true,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::{AgentName, StepId};

    fn key(name: &str) -> GoalKey {
        let tenant = TenantId::new("acme").unwrap();
        let goal = GoalId::from_key(&tenant, &AgentName::new("a").unwrap(), name);
        GoalKey { tenant, goal }
    }

    #[test]
    fn subjects_stay_as_they_are() {
        let goal = "5e8ba5e5-62f7-5a8e-8a0a-0123456789ab".parse().unwrap();
        let tenant = TenantId::new("acme").unwrap();
        let key = GoalKey { tenant, goal };
        let shard = format!("{:02}", goal.shard());
        let wanted = format!("detent-journal.{shard}.acme.5e8ba5e5-62f7-5a8e-8a0a-0123456789ab");
        assert_eq!(entries(&key), format!("{wanted}.e"));
        let step = StepId::new("pay").unwrap();
        let slot_key = SlotKey {
            goal: key.clone(),
            step,
            attempt: 2,
        };
        assert_eq!(slot(&slot_key), format!("{wanted}.s.pay.2"));
        assert_eq!(slots(&key), format!("{wanted}.s.>"));
        assert_eq!(entries_of(7, None), "detent-journal.07.*.*.e");
        assert_eq!(
            entries_of(17, Some(&key.tenant)),
            "detent-journal.17.acme.*.e"
        );
    }

    #[test]
    fn a_goal_is_read_off_its_subject_and_off_no_other() {
        for n in 0..200 {
            let key = key(&n.to_string());
            assert_eq!(parse_entries(&entries(&key)), Some(key));
        }
        let good = entries(&key("x"));
        let shard = &good["detent-journal.".len()..][..2];
        let other = if shard == "00" { "01" } else { "00" };
        for bad in [
            good.replace(".e", ".s.pay.1"),
            format!("{good}.e"),
            good.replace(&format!(".{shard}."), &format!(".{other}.")),
            good.replace("acme", "ac me"),
            "detent-journal.00.acme.x.e".into(),
            "detent-journal".into(),
        ] {
            assert_eq!(parse_entries(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_tombstone_is_kept_for_whole_seconds_or_for_ever() {
        let ttl = |keep| {
            let headers = tombstone_headers(3, keep);
            assert_eq!(follows(&headers), Some(3));
            headers.get(TTL).map(|ttl| ttl.as_str().to_owned())
        };
        assert_eq!(ttl(Duration::ZERO).as_deref(), Some("1s"));
        assert_eq!(ttl(Duration::from_millis(1001)).as_deref(), Some("2s"));
        assert_eq!(ttl(Duration::from_secs(60)).as_deref(), Some("60s"));
        assert_eq!(ttl(Duration::MAX), None);
    }
}
