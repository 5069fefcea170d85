//! Looks at, and outputs of, what is kept as a body.

use crate::support::World;
use detent_bus::claim::ClaimCheck;
use detent_protocol::claim::Claim;
use detent_protocol::expect::Verdict;
use detent_protocol::json::{Digest, size_bytes};
use serde_json::{Value, json};

fn large() -> Value {
    json!({"count": 100_000, "rows": vec![json!({"product": "tea"}); 100_000]})
}

async fn kept(world: &World) -> Claim {
    let check = ClaimCheck::new(world.bus.blobs.clone());
    let output = check.keep(&world.place.goal, large()).await.unwrap();
    Claim::of(&output).unwrap()
}

#[tokio::test]
async fn an_output_that_is_kept_is_judged_whole_and_its_evidence_is_small() {
    let world = World::start().await;
    let claim = kept(&world).await;
    for (rows_min, met) in [(100_000, true), (100_001, false)] {
        let schema = json!({"properties": {"rows": {"minItems": rows_min}}, "required": ["rows"]});
        let found = claim.find("").unwrap();
        let mut ask = world.ask("output", json!({"output": found.value}), schema);
        ask.claims = found.claims;
        ask.claims[0].at = "/output".into();
        let seen = world.send(ask).await;
        assert_eq!(seen.verdict == Verdict::Met, met, "{:?}", seen.verdict);
        let evidence = seen.evidence.unwrap();
        assert_eq!(evidence.digest, Digest::of_json(&large()));
        assert_eq!(evidence.seen["count"], 100_000);
        assert!(size_bytes(&evidence.seen) < 4_096);
    }
    world.stop().await;
}

#[tokio::test]
async fn what_can_not_be_fetched_proves_nothing() {
    let world = World::start().await;
    let claim = kept(&world).await;
    world.bus.blobs.remove(&claim.digest).await.unwrap();
    let found = claim.find("/rows").unwrap();
    let mut ask = world.ask("output", json!({"output": found.value}), json!(false));
    ask.claims = found.claims;
    ask.claims[0].at = "/output".into();
    let seen = world.send(ask).await;
    assert!(
        matches!(seen.verdict, Verdict::Unavailable { .. }),
        "{:?}",
        seen.verdict
    );
    world.stop().await;
}

#[tokio::test]
async fn an_output_that_a_probe_finds_is_put_aside_where_it_is_large() {
    let world = World::start().await;
    for (output, aside) in [(large(), true), (json!({"count": 1}), false)] {
        world.place.write("out.json", output.to_string());
        let schema = json!({"properties": {"exists": {"const": true}}, "required": ["exists"]});
        let params = json!({"path": "out.json", "parse": "json", "bytes_max": 16_000_000});
        let mut ask = world.ask("file", params, schema);
        ask.output_at = Some("/json".into());
        let seen = world.send(ask).await;
        let found = seen.output.expect("it was seen");
        match Claim::of(&found) {
            Some(claim) => assert_eq!((claim.value, aside), (Digest::of_json(&output), true)),
            None => assert_eq!((found, aside), (output, false)),
        }
    }
    // What looks like a claim and is none of ours is left out.
    let forged =
        json!({"$claim": {"digest": Digest([1; 32]), "bytes": 1, "value": Digest([1; 32])}});
    world.place.write("out.json", forged.to_string());
    let mut ask = world.ask(
        "file",
        json!({"path": "out.json", "parse": "json"}),
        json!({"required": ["json"]}),
    );
    ask.output_at = Some("/json".into());
    let seen = world.send(ask).await;
    assert_eq!((seen.verdict, seen.output), (Verdict::Met, None));
    world.stop().await;
}
