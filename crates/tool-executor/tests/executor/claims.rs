//! Large outputs are kept as bodies, and what is in them comes back as arguments.

use crate::support::*;
use detent_bus::Bus;
use detent_protocol::agent::CompiledTool;
use detent_protocol::claim::{Claim, Claimed};
use detent_protocol::effect::SlotMark;
use detent_protocol::json::size_bytes;
use detent_protocol::messages::ToolCall;
use detent_protocol::record::Seal;
use detent_protocol::{Code, MESSAGE_BYTES_MAX};
use serde_json::{Value, json};

/// Ten megabytes of rows, and how many there are.
const ROWS: &str = "printf '{\"count\": 200000, \"rows\": [\"'; \
                    yes 'seven-and-forty-letters-and-a-number-at-the-end\",\"' | \
                    tr -d '\\n' | head -c 9999950; echo '\"]}'";

fn large(world: &World, effect: &str) -> CompiledTool {
    let schema = json!({"required": ["count", "rows"], "properties": {"rows":
        {"type": "array", "items": {"type": "string"}}}});
    let more = json!({"output_bytes_max": 20_000_000, "output_schema": schema});
    world.sh_with(effect, ROWS, more)
}

async fn kept(world: &World) -> (Claim, Value) {
    let (output, _) = done(world.call(&large(world, "read")).await);
    let bytes = size_bytes(&output);
    assert!(bytes < 1_000, "{bytes}");
    let claim = Claim::of(&output).expect("it is a claim");
    (claim, output)
}

fn at(claim: &Claim, pointer: &str, place: &str) -> Claimed {
    let mut found = claim.find(pointer).unwrap().claims.remove(0);
    found.at = place.into();
    found
}

fn asks(world: &World, tool: &CompiledTool, claims: Vec<Claimed>) -> ToolCall {
    let mut message = world.message(tool, 1);
    message.args = json!({"rows": null, "n": 1});
    message.claims = claims;
    message
}

/// Says how many bytes it was given, and how many lines with `seven` are in them.
fn count(world: &World, effect: &str, schema: Value) -> CompiledTool {
    let script = "cat > in; printf '{\"bytes\": %d}' $(wc -c < in)";
    let more = json!({"input_schema": schema});
    world.tool(
        "count",
        effect,
        json!({"command": ["sh", "-c", script]}),
        more,
    )
}

#[tokio::test]
async fn ten_megabytes_travel_as_a_claim_and_arrive_whole() {
    let world = World::new().await;
    let (claim, _) = kept(&world).await;
    assert_eq!(claim.inline["count"], 200_000);
    assert!(claim.bytes > 9_000_000 && claim.bytes as usize > 8 * MESSAGE_BYTES_MAX);
    let body = world.bus.blobs.get(&claim.digest).await.unwrap();
    assert!(body.unwrap().len() as u64 > claim.bytes);

    let schema = json!({"properties": {"rows": {"type": "array", "minItems": 1000}}});
    let tool = count(&world, "read", schema);
    let message = asks(&world, &tool, vec![at(&claim, "/rows", "/rows")]);
    let (output, _) = done(world.send(&message).await.unwrap());
    let rows = claim.large["rows"].bytes;
    assert_eq!(output["bytes"], rows + r#"{"n":1,"rows":}"#.len() as u64);
}

#[tokio::test]
async fn arguments_that_were_fetched_are_checked_and_what_is_refused_never_starts() {
    let world = World::new().await;
    let (claim, _) = kept(&world).await;
    let tool = count(
        &world,
        "once",
        json!({"properties": {"rows": {"type": "integer"}}}),
    );
    let cases = [
        ("/rows", Code::InputInvalid, "/rows"),
        ("/rows/0/no", Code::ReferenceMissing, "/rows"),
    ];
    for (attempt, (pointer, code, place)) in (1..).zip(cases) {
        let mut message = asks(&world, &tool, vec![at(&claim, pointer, "/rows")]);
        message.attempt = attempt;
        let (fault, started) = failed(world.send(&message).await.unwrap(), code);
        assert_eq!(
            (fault.at.as_deref(), started),
            (Some(place), false),
            "{fault}"
        );
        let slot = world.slot(attempt).await;
        assert_eq!(slot, Some(SlotMark::Revoked { epoch: 1 }), "{pointer}");
    }
    world.bus.blobs.remove(&claim.digest).await.unwrap();
    let mut message = asks(&world, &tool, vec![at(&claim, "/rows", "/rows")]);
    message.attempt = 9;
    let (_, started) = failed(world.send(&message).await.unwrap(), Code::ToolUnavailable);
    assert!(!started);
    assert_eq!(world.lines("in"), 0);
}

#[tokio::test]
async fn arguments_have_a_bound_and_a_goal_gets_its_own_bodies_only() {
    let bound = |options: &mut detent_tool_executor::ExecutorOptions| {
        options.args_bytes_max = 1_000_000;
    };
    let world = World::with(vec![], bound, |bus: Bus| bus).await;
    let (claim, _) = kept(&world).await;
    let tool = count(&world, "read", json!(true));
    let message = asks(&world, &tool, vec![at(&claim, "/rows", "/rows")]);
    failed(world.send(&message).await.unwrap(), Code::InputTooLarge);
    let mut message = asks(&world, &tool, vec![at(&claim, "/rows/5", "/rows")]);
    done(world.send(&message).await.unwrap());
    message.goal = goal(2);
    failed(world.send(&message).await.unwrap(), Code::JournalCorrupt);
}

#[tokio::test]
async fn a_seal_and_a_second_delivery_find_the_claim() {
    let world = World::new().await;
    let tool = large(&world, "once");
    let (output, _) = done(world.call(&tool).await);
    Claim::of(&output).expect("it is a claim");
    let world = world.restart().await;
    let (again, _) = done(world.call(&tool).await);
    assert_eq!(again, output);
    let Seal::Ended {
        outcome: Some(outcome),
    } = world.seal(1).await.unwrap()
    else {
        panic!("its outcome is in the ledger");
    };
    assert_eq!(done(outcome).0, output);
}

#[tokio::test]
async fn the_schema_is_that_of_the_whole_output() {
    let world = World::new().await;
    let schema = json!({"properties": {"rows": {"maxItems": 10}}});
    let more = json!({"output_bytes_max": 20_000_000, "output_schema": schema});
    let tool = world.sh_with("read", ROWS, more);
    let (fault, _) = failed(world.call(&tool).await, Code::ToolOutputInvalid);
    assert_eq!(fault.at.as_deref(), Some("/rows"));
    // As ever, a tool that declares nothing may print 1 MiB.
    let tool = world.sh("read", ROWS);
    failed(world.call(&tool).await, Code::ResponseTooLarge);
}
