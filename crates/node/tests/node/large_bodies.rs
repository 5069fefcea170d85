//! A goal of a thousand steps of which many give ten megabytes: what travels and what is
//! journaled stays small, and so does the node.

use super::support::{Bed, events, show, submit};
use detent_bus::call;
use detent_node::Node;
use detent_protocol::claim::Claim;
use detent_protocol::journal::Entry;
use detent_protocol::messages::{Answer, Ask, Query};
use detent_protocol::record::{Body, Said, ToolOutcome};
use detent_protocol::result::GoalResult;
use detent_protocol::{Fault, GoalId, MESSAGE_BYTES_MAX, TenantId, json as sizes, subject};
use detent_tool_executor::{FnKind, Invocation};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Chains that run side by side, and the steps of each.
const CHAINS: usize = 4;
const LENGTH: usize = 250;
/// Every so many steps of the first chain one gives ten megabytes. Every second time a
/// later step takes them.
const LARGE_EVERY: usize = 12;
/// A row is 100 bytes with its quotes and comma.
const ROWS: usize = 100_000;

/// What the node may grow by, bytes. What the large steps give is 210 MB as text and more
/// than twice that as values; of it only what is in hand may be there.
const GROWTH_BYTES_MAX: u64 = 320 << 20;
/// Far more than the run takes, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(280);

const TOOLS: &str = r#"
[[tool]]
name = "next"
effect = "read"
kind = "fn"

[[tool]]
name = "rows"
effect = "read"
kind = "fn"
output_bytes_max = 20_000_000
timeout_ms = 200_000
output_schema = { type = "object", required = ["rows", "n"] }

[[tool]]
name = "sum"
effect = "read"
kind = "fn"
timeout_ms = 200_000
input_schema = { properties = { rows = { type = "array", minItems = 2 } } }
"#;

/// Step `i` of a chain goes on from the one before it.
fn step(text: &mut String, chain: usize, i: usize) {
    let id = |i: usize| format!("c{chain}-{i}");
    let tool = match (chain, i % LARGE_EVERY) {
        (0, 4) => "rows",
        (0, 8) if i % (2 * LARGE_EVERY) == 8 => "sum",
        _ => "next",
    };
    let n = match i {
        0 => "0".to_owned(),
        _ => format!("{{ \"$step\" = \"{}\", at = \"/n\" }}", id(i - 1)),
    };
    let rows = match tool {
        "sum" => format!(
            ", rows = {{ \"$step\" = \"{}\", at = \"/rows\" }}",
            id(i - 4)
        ),
        _ => String::new(),
    };
    let step = id(i);
    let _ = writeln!(
        text,
        "[[playbook.steps]]\nid = \"{step}\"\ntool = \"{tool}\"\nargs = {{ n = {n}{rows} }}"
    );
}

fn agent() -> String {
    let mut text = format!(
        "name = \"a\"\ntools = [\"next\", \"rows\", \"sum\"]\ninput_schema = true\n\
         result_schema = {{ type = \"object\", properties = {{ row = {{ type = \"string\", \
         minLength = 40 }} }} }}\nbudget.tool_calls = 2000\n\
         policy = {{ steps_max = 1000, parallel_max = {CHAINS}, replans_max = 0 }}\n"
    );
    for chain in 0..CHAINS {
        (0..LENGTH).for_each(|i| step(&mut text, chain, i));
    }
    text.push_str("[playbook.result]\n");
    for chain in 0..CHAINS {
        let last = LENGTH - 1;
        let _ = writeln!(
            text,
            "n{chain} = {{ \"$step\" = \"c{chain}-{last}\", at = \"/n\" }}"
        );
    }
    // One is in the claim, one in the body.
    text.push_str("count = { \"$step\" = \"c0-4\", at = \"/count\" }\n");
    text.push_str("row = { \"$step\" = \"c0-244\", at = \"/rows/99999\" }\n");
    text.push_str("sum = { \"$step\" = \"c0-8\", at = \"/sum\" }\n");
    text
}

/// 97 characters; no two steps give the same.
fn row(i: usize, n: u64) -> String {
    format!("{:-<80}{n:08}-{i:08}", "a row of the table ")
}

async fn run(call: Invocation) -> Result<Value, Fault> {
    let n = call.args["n"].as_u64().unwrap() + 1;
    Ok(match call.tool.def.name.as_str() {
        "rows" => {
            let rows: Vec<_> = (0..ROWS).map(|i| json!(row(i, n))).collect();
            json!({"n": n, "count": ROWS, "rows": rows})
        }
        "sum" => {
            let rows = call.args["rows"].as_array().unwrap();
            let bytes: usize = rows.iter().map(|r| r.as_str().unwrap().len()).sum();
            json!({"n": n, "sum": bytes})
        }
        _ => json!({"n": n}),
    })
}

/// Memory of this process, which is the node, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Waits for the end; gives the most memory that was seen on the way.
async fn ended(node: &Node, goal: GoalId) -> (GoalResult, u64) {
    let (begin, mut from, mut most) = (Instant::now(), 1, 0);
    loop {
        let (seen, ended) = events(node, goal, from).await;
        from += seen.len() as u64;
        most = most.max(resident());
        if ended {
            return (show(node, goal).await.result.unwrap(), most);
        }
        assert!(begin.elapsed() < PATIENCE, "after {from} events");
    }
}

/// The goal's journal: the size of its entries, and the claims in it.
async fn journal(node: &Node, goal: GoalId) -> (Vec<usize>, Vec<Claim>) {
    let (mut sizes, mut claims) = (Vec::new(), Vec::new());
    loop {
        let tenant = TenantId::default();
        let on = subject::query(&tenant);
        let from = sizes.len() as u64 + 1;
        let ask = Ask::Export { goal, from };
        let query = Query { tenant, ask };
        let answer = call(&*node.bus().messages, &on, &query, PATIENCE).await;
        let Answer::Entries { entries } = answer.unwrap() else {
            panic!("not entries");
        };
        if entries.is_empty() {
            return (sizes, claims);
        }
        for bytes in entries {
            sizes.push(bytes.len());
            let (entry, _) = Entry::decode_alone(&bytes).unwrap();
            for record in entry.records {
                let Said::Known(body) = record.said else {
                    panic!("an unknown record");
                };
                claims.extend(detent_protocol::claim::claims_of(&body));
                if let Body::Outcome {
                    outcome: ToolOutcome::Done { output, .. },
                    ..
                } = body
                {
                    assert!(sizes::size_bytes(&output) < 2_000);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_steps_with_ten_megabytes_each_so_often() {
    let bed = Bed::new(&[
        (
            "detent.toml",
            "agents = [\"a.toml\"]\ntools = [\"t.toml\"]\n".into(),
        ),
        ("a.toml", agent()),
        ("t.toml", TOOLS.into()),
    ]);
    let node = bed.node(&[], Arc::new(FnKind::new("fn", run))).await;
    let before = resident();
    let goal = submit(&node, "a", json!({})).await.unwrap().goal;
    let (result, most) = ended(&node, goal).await;
    let GoalResult::Succeeded { data, evidence, .. } = &result else {
        panic!("{result:?}")
    };
    assert_eq!(evidence.len(), CHAINS * LENGTH);
    let expected = json!({"n0": LENGTH, "n1": LENGTH, "n2": LENGTH, "n3": LENGTH,
        "count": ROWS, "row": row(ROWS - 1, 245), "sum": ROWS * 97});
    assert_eq!(data, &expected);

    // What travelled fits into messages: the bus carries nothing larger, and the journal
    // holds claims only.
    let (sizes, claims) = journal(&node, goal).await;
    let largest = sizes.iter().max().unwrap();
    assert!(*largest < MESSAGE_BYTES_MAX, "{largest}");
    assert_eq!(claims.len(), LENGTH / LARGE_EVERY + 1);
    let bytes: u64 = claims.iter().map(|c| c.bytes).sum();
    assert!(claims.iter().all(|c| c.bytes > 9_900_000), "{bytes}");
    for claim in &claims {
        assert!(node.bus().blobs.get(&claim.digest).await.unwrap().is_some());
    }
    let grown = most.saturating_sub(before);
    let total: usize = sizes.iter().sum();
    println!(
        "{} entries, {total} bytes, the largest {largest}; {} bodies of {bytes} bytes together; \
         grew by {} MiB",
        sizes.len(),
        claims.len(),
        grown >> 20
    );
    assert!(grown < GROWTH_BYTES_MAX, "the node grew by {grown} bytes");
    node.stop().await;
}
