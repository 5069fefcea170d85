//! What every implementation of the five traits has to do, as code that checks it.
//!
//! What it is for: an implementation's tests call [`all`], or run [`CASES`] one by one.
//! What no case checks, no caller may rely on.
//!
//! What it promises: each case ends by itself, needs nothing but the bus it is given, and
//! does not depend on how exact the clock is: it waits for what has to happen and gives
//! up after [`PATIENCE`]. So it runs on tokio's paused clock too.
//!
//! What it must not know: anything of an implementation. Where the traits leave room (an
//! append that loses a race may be refused or unknown), so do the cases.

mod blobs;
mod forget;
mod inbox;
mod journal;
mod leases;
mod messages;
mod slots;

use crate::{Bus, GoalKey};
use detent_protocol::{AgentName, GoalId, NodeId, TenantId};
use futures::future::LocalBoxFuture;
use std::time::Duration;

/// How long a case waits for what has to happen before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One property. It panics where the bus does not have it.
pub struct Case {
    /// What holds.
    pub name: &'static str,
    /// Checks it on a bus on which no other case has run. To be awaited where it is made:
    /// it starts tasks on the current runtime, and is not `Send` itself.
    pub run: fn(Bus) -> LocalBoxFuture<'static, ()>,
}

macro_rules! cases {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$(Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: |bus| Box::pin($module::$name(bus)),
        }),*]
    };
}

/// Every property.
pub const CASES: &[Case] = cases![
    messages::a_request_is_answered,
    messages::a_pattern_is_served,
    messages::without_a_service_nobody_answers,
    messages::a_late_answer_is_a_timeout,
    messages::more_than_may_wait_is_busy,
    messages::a_group_shares_requests,
    messages::each_group_gets_one,
    messages::a_panic_harms_only_its_request,
    messages::a_dropped_guard_ends_the_service,
    messages::a_handler_may_ask_itself,
    messages::sizes_are_bounded,
    messages::events_reach_every_subscriber_in_order,
    messages::a_slow_subscriber_is_told_what_it_missed,
    messages::a_dropped_subscription_harms_nobody,
    journal::the_first_must_be_first,
    journal::the_fence_holds,
    journal::of_racing_writers_one_wins,
    journal::racing_first_appends_make_one_goal,
    journal::entries_come_back_as_they_were,
    journal::reading_goes_in_pages,
    journal::a_page_has_at_least_one_entry,
    journal::the_tail_is_the_last_entry,
    journal::goals_are_open_until_they_end,
    journal::open_goals_are_listed_by_shard_in_pages,
    journal::goals_are_listed_by_tenant_in_pages,
    journal::tenants_are_listed_in_pages,
    journal::tenants_are_apart,
    forget::a_tombstone_stands_alone,
    forget::a_forgotten_goal_is_not_begun_anew,
    forget::forgetting_needs_the_last_sequence,
    forget::slots_go_with_their_goal,
    forget::forgetting_again_is_forgetting_once,
    forget::a_tombstone_may_be_followed,
    forget::nothing_of_a_forgotten_goal_starts,
    slots::one_of_many_wins,
    slots::a_mark_never_changes,
    slots::slots_are_apart,
    leases::one_holds_a_name,
    leases::a_lapsed_name_is_free,
    leases::renewing_needs_the_last_revision,
    leases::a_released_name_is_free,
    leases::held_names_are_listed_by_prefix,
    blobs::a_body_comes_back,
    blobs::keeping_twice_is_keeping_once,
    blobs::an_unknown_hash_has_no_body,
    blobs::a_body_has_a_bound,
    blobs::a_removed_body_is_gone,
    inbox::a_message_waits_and_is_dealt_with_once,
    inbox::of_one_subject_one_after_the_other,
    inbox::no_more_in_hand_than_wanted,
    inbox::takers_share,
    inbox::what_is_put_off_comes_again,
    inbox::a_dead_letter_is_kept_and_comes_back,
    inbox::a_dealers_panic_loses_nothing,
    inbox::a_dropped_guard_ends_the_taking,
    inbox::a_message_has_a_queue_and_a_bound,
];

/// Runs every case, each on a bus of its own.
pub async fn all<F: Future<Output = Bus>>(make: impl Fn() -> F) {
    for case in CASES {
        tracing::info!(case = case.name, "conformance");
        (case.run)(make().await).await;
    }
}

/// A goal of the tenant `default`; equal for equal `name`.
fn goal(name: &str) -> GoalKey {
    goal_of("default", name)
}

fn goal_of(tenant: &str, name: &str) -> GoalKey {
    let tenant = TenantId::new(tenant).expect("a name");
    let agent = AgentName::new("conformance").expect("a name");
    let goal = GoalId::from_key(&tenant, &agent, name);
    GoalKey { tenant, goal }
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

/// Waits for what has to happen.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Asks again until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, asking).await
}
