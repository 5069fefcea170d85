//! The local bus: request round trips, and appends at 1, 16 and 256 goals at once.
//! `cargo bench -p detent-bus`; `DETENT_BENCH_DIR` picks the disk.

use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_bus::{Append, Bus, GoalKey, Handler, ServeOptions};
use detent_protocol::{GoalId, NodeId, TenantId};
use detent_store::{Store, StoreOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SUBJECT: &str = "detent.tool.echo";
const MESSAGE_BYTES: usize = 200;
const ENTRY_BYTES: usize = 300;
/// Appends of one short goal, from accepted to ended.
const GOAL_APPENDS: u64 = 5;

fn main() {
    let base = std::env::var_os("DETENT_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(base).expect("a directory for the bench");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let options = StoreOptions::journal(dir.path().join("store"));
        let store = Store::open(options).expect("a store");
        let options = LocalOptions::new(store, dir.path().join("blobs"));
        let bus = LocalBus::open(options).expect("a bus");
        for (askers, requests) in [(1, 100_000), (64, 500_000)] {
            round_trips(&bus, askers, requests).await;
        }
        for (goals_at_once, goals) in [(1, 1_000), (16, 8_000), (64, 16_000), (256, 32_000)] {
            appends(&bus, goals_at_once, goals).await;
        }
    });
}

struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
        payload
    }
}

async fn round_trips(bus: &Bus, askers: usize, requests: usize) {
    let served = bus
        .messages
        .serve(SUBJECT, ServeOptions::default(), Arc::new(Echo));
    let _served = served.await.expect("served");
    let took = measure(askers, requests / askers, {
        let bus = bus.clone();
        move |_, _| {
            let messages = Arc::clone(&bus.messages);
            async move {
                let payload = Bytes::from_static(&[7; MESSAGE_BYTES]);
                let wait = Duration::from_secs(10);
                messages
                    .request(SUBJECT, payload, wait)
                    .await
                    .expect("an answer");
            }
        }
    });
    report(&format!("{askers:3} askers"), "requests", took.await);
}

async fn appends(bus: &Bus, goals_at_once: usize, goals: usize) {
    let took = measure(
        goals_at_once,
        goals / goals_at_once * GOAL_APPENDS as usize,
        {
            let bus = bus.clone();
            move |writer, n| {
                let journal = Arc::clone(&bus.journal);
                let (nth_goal, after) = (n as u64 / GOAL_APPENDS, n as u64 % GOAL_APPENDS);
                let id = [goals_at_once as u32, writer as u32, nth_goal as u32, 0];
                let append = Append {
                    key: goal(id),
                    after,
                    entry: Bytes::from_static(&[7; ENTRY_BYTES]),
                    by: NodeId::new("bench").expect("a name"),
                    ends: after + 1 == GOAL_APPENDS,
                };
                async move {
                    journal.append(append).await.expect("appended");
                }
            }
        },
    );
    report(&format!("{goals_at_once:3} goals"), "appends", took.await);
}

fn goal(id: [u32; 4]) -> GoalKey {
    let mut bytes = [0; 16];
    for (part, number) in bytes.chunks_exact_mut(4).zip(id) {
        part.copy_from_slice(&number.to_be_bytes());
    }
    GoalKey {
        tenant: TenantId::default(),
        goal: GoalId::from_bytes(bytes),
    }
}

struct Took {
    each: Vec<Duration>,
    all: Duration,
}

/// Runs `work(task, n)` for each `n`, one after the other in each of `tasks` tasks.
async fn measure<F: Future<Output = ()> + Send>(
    tasks: usize,
    rounds: usize,
    work: impl Fn(usize, usize) -> F + Clone + Send + 'static,
) -> Took {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let work = work.clone();
        running.spawn(async move {
            let mut each = Vec::with_capacity(rounds);
            for n in 0..rounds {
                let sent = Instant::now();
                work(task, n).await;
                each.push(sent.elapsed());
            }
            each
        });
    }
    let each = running.join_all().await.into_iter().flatten().collect();
    let all = began.elapsed();
    Took { each, all }
}

fn report(who: &str, what: &str, mut took: Took) {
    took.each.sort();
    let at = |share: f64| took.each[((took.each.len() - 1) as f64 * share) as usize];
    let rate = took.each.len() as f64 / took.all.as_secs_f64();
    println!(
        "{who}: {rate:8.0} {what}/s, p50 {:?}, p99 {:?}",
        at(0.5),
        at(0.99)
    );
}
