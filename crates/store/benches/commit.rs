//! Commit latency and throughput, the growth of the file under overwrites, and the time to
//! open 100,000 rows. `cargo bench -p detent-store`; `DETENT_BENCH_DIR` picks the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use detent_store::{Scan, Store, StoreOptions, Table, Txn};
use tokio::task::JoinSet;

const ROWS: Table = Table::new("rows");
const VALUE_BYTES: usize = 300;
/// About what one transition of a goal journals.
const LARGE_BYTES: usize = 2 << 10;

fn main() {
    let base = std::env::var_os("DETENT_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(base).expect("a directory for the bench");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build();
    runtime.expect("a runtime").block_on(async {
        for value_bytes in [VALUE_BYTES, LARGE_BYTES] {
            for (writers, commits) in [(1, 5_000), (16, 60_000), (64, 100_000), (256, 100_000)] {
                let store = dir.path().join(format!("{value_bytes}-{writers}"));
                throughput(store, writers, commits, value_bytes).await;
            }
        }
        overwrites(dir.path().join("overwrites")).await;
        reopen(dir.path().join("reopen")).await;
    });
}

async fn throughput(dir: PathBuf, writers: usize, commits: usize, value_bytes: usize) {
    let store = Arc::new(Store::open(StoreOptions::journal(dir)).expect("open"));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            for n in 0..commits / writers {
                let key = format!("{writer:04}/{n:08}");
                let txn = Txn::new().expect_absent(ROWS, key.clone()).put(
                    ROWS,
                    key,
                    vec![7; value_bytes],
                );
                let sent = Instant::now();
                store.commit(txn).await.expect("commit");
                latencies.push(sent.elapsed());
            }
            latencies
        });
    }
    let mut latencies: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
    let rate = latencies.len() as f64 / began.elapsed().as_secs_f64();
    latencies.sort();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let counters = store.counters();
    println!(
        "{value_bytes:4} bytes, {writers:3} writers: {rate:8.0} commits/s, p50 {:?}, p99 {:?}, \
         {} groups, {} syncs",
        at(0.5),
        at(0.99),
        counters.groups,
        counters.syncs
    );
}

/// 2,000 rows of 8 KiB overwritten at random, 64 at a time, beside an append-only table.
async fn overwrites(dir: PathBuf) {
    let store = Store::open(StoreOptions::journal(dir)).expect("open");
    let mut state = 1_u64;
    for round in 0..2_000_u64 {
        let mut txn = Txn::new();
        for n in 0..16 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = ((state >> 33) % 2_000).to_be_bytes().to_vec();
            txn = txn.put(ROWS, key, vec![n; 8192]);
        }
        store
            .commit(txn.put(
                Table::new("log"),
                round.to_be_bytes().to_vec(),
                vec![1; 300],
            ))
            .await
            .expect("commit");
        if (round + 1) % 500 == 0 {
            let status = store.status().expect("status");
            println!(
                "overwrites: {:5} groups, 16 MiB live, {} MiB on disk",
                round + 1,
                status.bytes_on_disk >> 20
            );
        }
    }
    store.close().await.expect("close");
}

async fn reopen(dir: PathBuf) {
    let store = Store::open(StoreOptions::journal(&dir)).expect("open");
    for first in (0..100_000_u64).step_by(500) {
        let put = |txn: Txn, n: u64| txn.put(ROWS, n.to_be_bytes().to_vec(), vec![7; VALUE_BYTES]);
        store
            .commit((first..first + 500).fold(Txn::new(), put))
            .await
            .expect("commit");
    }
    store.close().await.expect("close");
    let began = Instant::now();
    let store = Store::open(StoreOptions::journal(&dir)).expect("open");
    println!(
        "open with full verification, 100,000 rows: {:?}",
        began.elapsed()
    );
    let began = Instant::now();
    let rows = store
        .scan(ROWS, &Scan::prefix(b"", 100_000))
        .expect("scan")
        .len();
    println!("scan of {rows} rows: {:?}", began.elapsed());
    store.close().await.expect("close");
}
