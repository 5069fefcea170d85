//! The loop on NATS: one local server that syncs every two minutes, and three that sync
//! every append.
//!
//! `cargo xtask bench nats [r1] [r3] [w2] [audit] [--secs N] [--peers DIR]` (r1 and r3
//! without a name).
//!
//! The same goals as in the bench `loop`. Servers, node and client are processes of their
//! own, so CPU is told apart; each is counted from the first goal of a phase to its last.
//! `audit` counts the system calls that sync, with strace attached to servers and node.
//! `--peers DIR` runs W1 of each peer's own bench in DIR right after, on the same machine.

#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

/// As in the `detent` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use support::{broker, report};

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let Some(code) = support::hidden(&args) {
        std::process::exit(code);
    }
    let secs = support::option(&args, "--secs").unwrap_or(8);
    let named = |name: &str| args.iter().any(|a| a == name);
    let all = !named("r1") && !named("r3");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    report::head_split();
    for (name, servers) in [("r1", 1), ("r3", 3)] {
        if all || named(name) {
            let run = broker::Run {
                name,
                servers,
                secs,
                w2: named("w2"),
                audit: named("audit"),
            };
            runtime.block_on(run.all());
        }
    }
    if let Some(at) = args.iter().position(|a| a == "--peers") {
        let dir = args.get(at + 1).expect("--peers DIR");
        broker::peers(std::path::Path::new(dir), secs);
    }
}
