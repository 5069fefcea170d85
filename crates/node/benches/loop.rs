//! The loop measured: a whole node with its journal synced to disk, tools in process.
//!
//! `cargo xtask bench loop [w1] [w2] [w3] [memory] [audit]` (all without a name).
//!
//! | | goal | durable steps |
//! |---|---|---|
//! | w1 | plan, 3 no-op tools one after the other, each returning 200 bytes, then validate (the result holds all three, its contract checks them) | 5 |
//! | w2 | plan, 16 no-op tools side by side, then validate | 18 |
//! | w3 | 200 goals of 5 steps of 50 ms with effect `once`; the node is killed -9 after 500 effects and started again | 5 |
//! | memory | 1,000 goals held in flight | |
//! | audit | w1 under strace: syncs for each goal, counted by the kernel | |
//!
//! Beside w1 stands its floor: five commits in a row on the bare store.
//!
//! Closed loop: so many lanes, each of which submits a goal, waits for its result and
//! starts the next. Client and node share the process, so CPU is the sum of both.

#[allow(dead_code)]
mod support;

/// As in the `detent` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use support::{Lanes, Setup, crash, floor, held, report};

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let Some(code) = support::hidden(&args) {
        std::process::exit(code);
    }
    let secs = support::option(&args, "--secs").unwrap_or(8);
    let wanted = |name: &str| {
        let named = args
            .iter()
            .filter(|a| !a.starts_with("--") && a.parse::<u64>().is_err());
        let mut named = named.peekable();
        named.peek().is_none() || named.any(|a| a == name)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    report::head();
    if wanted("w1") {
        for lanes in [1, 16, 256] {
            let floor = runtime.block_on(floor::run(lanes, secs.min(4)));
            let goals = runtime.block_on(Lanes::run(&Setup::w1(), lanes, secs));
            floor.print("floor");
            goals.print("w1");
            println!(
                "{:>24} {:.2} of the floor",
                "w1 reaches",
                goals.rate() / floor.rate()
            );
        }
    }
    if wanted("w2") {
        for lanes in [1, 16, 256] {
            runtime
                .block_on(Lanes::run(&Setup::w2(), lanes, secs))
                .print("w2");
        }
    }
    if wanted("memory") {
        runtime.block_on(held::run(1_000));
    }
    if wanted("audit") {
        support::audit();
    }
    if wanted("w3") {
        let ok = runtime.block_on(crash::run(200, 5));
        if !ok {
            std::process::exit(1);
        }
    }
}
