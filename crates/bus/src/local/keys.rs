//! Keys of the rows in the store.
//!
//! A goal is `tenant, NUL, 16 bytes of its id`. No name holds a NUL, so no tenant's rows
//! run into another's, and bytewise order is the order of [`GoalKey`].

use crate::{GoalKey, SlotKey};
use detent_protocol::{GoalId, TenantId};

const GOAL_ID_BYTES: usize = 16;

/// What all goals of a tenant begin with.
pub(crate) fn tenant(tenant: &TenantId) -> Vec<u8> {
    let name = tenant.as_str().as_bytes();
    let mut key = Vec::with_capacity(name.len() + 64);
    key.extend_from_slice(name);
    key.push(0);
    key
}

/// A goal.
pub(crate) fn goal(goal: &GoalKey) -> Vec<u8> {
    let mut key = tenant(&goal.tenant);
    key.extend_from_slice(goal.goal.as_bytes());
    key
}

/// An entry of a goal's journal.
pub(crate) fn entry(goal_key: &GoalKey, seq: u64) -> Vec<u8> {
    let mut key = goal(goal_key);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

/// A goal's place in the list of open goals.
pub(crate) fn open(goal_key: &GoalKey) -> Vec<u8> {
    let mut key = shard(goal_key.goal.shard());
    key.extend_from_slice(&goal(goal_key));
    key
}

/// A tombstone's place in the order in which they go.
pub(crate) fn kept(until_ms: u64, goal_key: &GoalKey) -> Vec<u8> {
    let mut key = until_ms.to_be_bytes().to_vec();
    key.extend_from_slice(&goal(goal_key));
    key
}

/// What all open goals of a shard begin with.
pub(crate) fn shard(shard: u16) -> Vec<u8> {
    shard.to_be_bytes().to_vec()
}

/// A slot. The goal and the attempt have fixed lengths, so the step needs no end mark.
pub(crate) fn slot(key: &SlotKey) -> Vec<u8> {
    let mut out = goal(&key.goal);
    out.extend_from_slice(key.step.as_str().as_bytes());
    out.extend_from_slice(&key.attempt.to_be_bytes());
    out
}

/// The goal that a key names; `None` when [`goal`] can't have written it.
pub(crate) fn parse_goal(key: &[u8]) -> Option<GoalKey> {
    let (name, id) = key.split_at_checked(key.len().checked_sub(GOAL_ID_BYTES)?)?;
    let (end, name) = name.split_last()?;
    let tenant = TenantId::new(std::str::from_utf8(name).ok()?).ok()?;
    let goal = GoalId::from_bytes(id.try_into().ok()?);
    (*end == 0).then_some(GoalKey { tenant, goal })
}

/// The goal of a place in the list of open goals.
pub(crate) fn parse_open(key: &[u8]) -> Option<GoalKey> {
    parse_goal(key.get(size_of::<u16>()..)?)
}

/// The goal of a tombstone's place.
pub(crate) fn parse_kept(key: &[u8]) -> Option<GoalKey> {
    parse_goal(key.get(size_of::<u64>()..)?)
}

/// The tenant whose goals' keys begin like this one.
pub(crate) fn parse_tenant(key: &[u8]) -> Option<TenantId> {
    parse_goal(key).map(|goal| goal.tenant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str, id: u8) -> GoalKey {
        GoalKey {
            tenant: TenantId::new(tenant).unwrap(),
            goal: GoalId::from_bytes([id; 16]),
        }
    }

    #[test]
    fn keys_sort_as_goals_do() {
        let mut goals = [key("b", 0), key("ab", 0), key("a", 9), key("a", 0)];
        goals.sort();
        let keys: Vec<_> = goals.iter().map(goal).collect();
        assert!(keys.is_sorted());
    }

    #[test]
    fn keys_round_trip() {
        let k = key("tenant", 0);
        assert_eq!(parse_goal(&goal(&k)), Some(k.clone()));
        assert_eq!(parse_open(&open(&k)), Some(k.clone()));
        assert_eq!(parse_kept(&kept(u64::MAX, &k)), Some(k));
        assert_eq!(parse_kept(b""), None);
        assert_eq!(parse_goal(b"short"), None);
        assert_eq!(parse_open(b""), None);
    }
}
