//! The floor: what the store alone could do, in the same run on the same disk.
//!
//! A goal of w1 is five appends, each durable before the next. Five commits of 300
//! bytes in a row, by as many lanes, are that without a runtime around it.

use super::fresh;
use super::report::{self, Figures};
use detent_store::{Store, StoreOptions, Table, Txn};
use std::time::{Duration, Instant};

const TABLE: Table = Table::new("floor");
const APPENDS: u64 = 5;

pub(crate) async fn run(lanes: usize, secs: u64) -> Figures {
    let dir = fresh("floor");
    let store = Store::open(StoreOptions::journal(dir.join("store"))).expect("a store");
    let (begin, before) = (Instant::now(), (report::cpu(), store.counters().syncs));
    let lane = |lane: usize| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            while begin.elapsed() < Duration::from_secs(secs) {
                let start = Instant::now();
                for n in 0..APPENDS {
                    let key = format!("{lane}-{}-{n}", latencies.len()).into_bytes();
                    let txn = Txn::new().put(TABLE, key, vec![7; 300]);
                    store.commit(txn).await.expect("a commit");
                }
                latencies.push(start.elapsed());
            }
            latencies
        })
    };
    let lanes_running: Vec<_> = (0..lanes).map(lane).collect();
    let mut all = Vec::new();
    for lane in lanes_running {
        all.extend(lane.await.expect("a lane"));
    }
    let syncs = store.counters().syncs - before.1;
    let figures = Figures::new(lanes, begin.elapsed(), all, report::cpu() - before.0).synced(syncs);
    store.close().await.expect("a clean end");
    let _ = std::fs::remove_dir_all(dir);
    figures
}
