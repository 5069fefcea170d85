//! Which goals and which tenants there are.
//!
//! Asked of the stream's leader shard by shard, so that no answer holds more than a part
//! of them; of each shard only the smallest are kept that the page can need.
//!
//! Must not know: what an entry means.

use super::Broker;
use super::api;
use super::layout::{self, JOURNAL};
use crate::GoalKey;
use detent_protocol::ids::SHARDS;
use detent_protocol::{Fault, GoalId, TenantId};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// Most goals in one answer, whatever was asked for.
pub(super) const PAGE_GOALS_MAX: usize = 4096;
/// Shards that are asked about at the same time.
const SHARDS_AT_ONCE: usize = 8;

/// All goals of a tenant in key order, after `after`, at most `limit`.
pub(super) async fn goals(
    broker: &Broker,
    tenant: &TenantId,
    after: Option<&GoalId>,
    limit: usize,
) -> Result<Vec<GoalKey>, Fault> {
    let of_tenant = |shard| layout::entries_of(shard, Some(tenant));
    let pick = |key: GoalKey| Some(key.goal).filter(|goal| after < Some(goal));
    let found = smallest(broker, of_tenant, &pick, limit).await?;
    let goal_key = |goal| GoalKey {
        tenant: tenant.clone(),
        goal,
    };
    Ok(found.into_iter().map(goal_key).collect())
}

/// All tenants that have goals, in order, after `after`, at most `limit`.
pub(super) async fn tenants(
    broker: &Broker,
    after: Option<&TenantId>,
    limit: usize,
) -> Result<Vec<TenantId>, Fault> {
    let all = |shard| layout::entries_of(shard, None);
    let pick = |key: GoalKey| Some(key.tenant).filter(|tenant| after < Some(tenant));
    let found = smallest(broker, all, &pick, limit).await?;
    Ok(found.into_iter().collect())
}

/// The smallest of what `pick` finds in the keys of all goals.
async fn smallest<T: Ord + Send>(
    broker: &Broker,
    filter: impl Fn(u16) -> String + Send,
    pick: &(dyn Fn(GoalKey) -> Option<T> + Sync),
    limit: usize,
) -> Result<BTreeSet<T>, Fault> {
    let limit = limit.min(PAGE_GOALS_MAX);
    let filters: Vec<_> = (0..SHARDS).map(filter).collect();
    let mut asked = futures::stream::iter(filters)
        .map(|filter| smallest_of_shard(broker, filter, pick, limit))
        .buffer_unordered(SHARDS_AT_ONCE);
    let mut found = BTreeSet::new();
    while let Some(of_shard) = asked.next().await {
        keep_smallest(&mut found, of_shard?, limit);
    }
    Ok(found)
}

fn keep_smallest<T: Ord>(found: &mut BTreeSet<T>, more: impl IntoIterator<Item = T>, limit: usize) {
    for one in more {
        found.insert(one);
        while found.len() > limit {
            found.pop_last();
        }
    }
}

#[derive(Serialize)]
struct Question {
    subjects_filter: String,
    offset: usize,
}

/// The part of a stream's info that is read; `total` counts the subjects that match.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    total: usize,
    state: State,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    subjects: Option<HashMap<String, u64>>,
}

async fn smallest_of_shard<T: Ord>(
    broker: &Broker,
    subjects_filter: String,
    pick: &(dyn Fn(GoalKey) -> Option<T> + Sync),
    limit: usize,
) -> Result<BTreeSet<T>, Fault> {
    let mut found = BTreeSet::new();
    let mut question = Question {
        subjects_filter,
        offset: 0,
    };
    loop {
        let asked = api::ask(broker, &format!("STREAM.INFO.{JOURNAL}"), &question).await;
        let info: Info = asked.map_err(|failed| failed.fault("listing goals"))?;
        let subjects = info.state.subjects.unwrap_or_default();
        question.offset += subjects.len();
        let last_page = subjects.is_empty() || question.offset >= info.total;
        let keys = subjects.keys().filter_map(|s| layout::parse_entries(s));
        keep_smallest(&mut found, keys.filter_map(pick), limit);
        if last_page {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_are_kept() {
        let mut found = BTreeSet::from([3, 8]);
        keep_smallest(&mut found, [1, 9, 5, 5], 3);
        assert_eq!(found, BTreeSet::from([1, 3, 5]));
        keep_smallest(&mut found, [0], 0);
        assert!(found.is_empty());
    }
}
