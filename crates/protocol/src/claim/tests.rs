//! Claims give back every part, have a bound, and can not be forged by data.

use super::*;
use crate::expect::{Observation, Verdict};
use crate::record::RunFacts;
use crate::{StepId, template};
use proptest::prelude::*;

fn goal(n: u8) -> GoalId {
    GoalId::from_bytes([n; 16])
}

fn output() -> Value {
    let rows: Vec<_> = (0..20_000).map(|i| json!({"id": i, "n/m": "é"})).collect();
    json!({"count": 17, "meta": {"by": "x"}, "rows": rows, "text": "y".repeat(2_000)})
}

/// What a reference to `pointer` gives: the value itself, or that of the fetched part.
fn through(claim: &Claim, body: &[u8], pointer: &str) -> Result<Option<Value>, Code> {
    let Some(found) = claim.find(pointer) else {
        return Ok(None);
    };
    let Some(claimed) = found.claims.first() else {
        return Ok(Some(found.value));
    };
    let taken = claimed.part.take(&goal(1), body, 1 << 30);
    match taken {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.code == Code::ReferenceMissing => Ok(None),
        Err(fault) => Err(fault.code),
    }
}

#[test]
fn a_claim_gives_every_part_and_small_members_without_the_body() {
    let output = output();
    let (claim, body) = Claim::keep(&goal(1), &output);
    assert_eq!(claim.value, Digest::of_json(&output));
    assert_eq!(claim.bytes, json::size_bytes(&output) as u64);
    for pointer in [
        "",
        "/count",
        "/meta",
        "/meta/by",
        "/meta/no",
        "/rows",
        "/rows/7/id",
        "/rows/7/n~1m",
        "/rows/07",
        "/rows/-",
        "/rows/99999",
        "/rows/7/id/x",
        "/text",
        "/text/0",
        "/no",
        "/",
        "no",
    ] {
        let expected = output.pointer(pointer).cloned();
        assert_eq!(through(&claim, &body, pointer), Ok(expected), "{pointer}");
    }
    for (pointer, whole) in [("/count", true), ("/meta/by", true), ("/rows", false)] {
        assert_eq!(claim.find(pointer).unwrap().is_whole(), whole, "{pointer}");
    }
    let rows = &claim.large["rows"];
    assert_eq!(rows.items, Some(20_000));
    assert_eq!(rows.value, Digest::of_json(&output["rows"]));
    assert!(json::size_bytes(&claim.to_output()) < 1_500);
}

#[test]
fn a_claim_has_a_bound_whatever_the_output_is_like() {
    let many: Map<_, _> = (0..50_000)
        .map(|i| (format!("member-{i}"), json!(i)))
        .collect();
    let wide: Map<_, _> = (0..500)
        .map(|i| (format!("{i}-{}", "k".repeat(100)), json!("v".repeat(5_000))))
        .collect();
    let list = json!(vec![1; 500_000]);
    for output in [many.into(), wide.into(), list] {
        let (claim, body) = Claim::keep(&goal(1), &output);
        assert!(claim.more);
        let bytes = json::size_bytes(&claim.to_output());
        assert!(bytes < 40 * 1024, "{bytes}");
        assert_eq!(Claim::of(&claim.to_output()), Some(claim.clone()));
        assert_eq!(through(&claim, &body, ""), Ok(Some(output)));
    }
}

#[test]
fn a_body_is_of_one_goal_and_a_part_has_a_bound() {
    let (claim, body) = Claim::keep(&goal(1), &output());
    let (other, _) = Claim::keep(&goal(2), &output());
    assert_ne!(claim.digest, other.digest, "two goals share no body");
    let part = claim.find("/rows").unwrap().claims[0].part.clone();
    let taken = |goal, max| part.take(&goal, &body, max).map_err(|f| f.code);
    assert_eq!(taken(goal(2), 1 << 30), Err(Code::JournalCorrupt));
    assert_eq!(taken(goal(1), 1_000), Err(Code::InputTooLarge));
    assert_eq!(taken(goal(1), 1 << 30).unwrap(), output()["rows"]);
}

#[test]
fn only_an_object_with_that_one_key_is_a_claim() {
    let (claim, _) = Claim::keep(&goal(1), &output());
    let mut beside = claim.to_output();
    beside["other"] = json!(1);
    for no_claim in [beside, json!({KEY: 1}), json!({KEY: {}}), json!({})] {
        assert_eq!(Claim::of(&no_claim), None);
    }
    assert!(is_reserved(&json!({KEY: 1, "a": 2})));
    assert!(!is_reserved(&json!({"a": {KEY: 1}})));
}

#[test]
fn templates_leave_open_what_has_to_be_fetched() {
    let (claim, _) = Claim::keep(&goal(1), &output());
    let kept = claim.to_output();
    let scope = |r: &template::Reference<'_>| match r {
        template::Reference::Step(_, p) => find(&kept, p),
        _ => None,
    };
    let step = |at: &str| json!({"$step": "a", "at": at});
    let wanted = json!({"n": step("/count"), "a~/": [step("/rows"), step("/rows/0/id")]});
    let resolved = template::resolve_parts(&wanted, &scope).unwrap();
    assert_eq!(resolved.value["n"], 17);
    let places: Vec<_> = resolved.claims.iter().map(|c| c.at.as_str()).collect();
    assert_eq!(places, ["/a~0~1/0", "/a~0~1/1"]);
    // Into an open place, above it, and beside it.
    let at = |p: &str| resolved.pointer(p).unwrap();
    assert_eq!(at("/a~0~1/0/5/id").claims[0].part.pointer, "/rows/5/id");
    assert_eq!(at("/a~0~1").claims[1].at, "/1");
    assert!(at("/n").is_whole());
    assert_eq!(resolved.pointer("/no"), None);

    assert_eq!(resolved.unknown_in(&["/n".into()]), None);
    assert_eq!(
        resolved.unknown_in(&["/a~0~1/0".into()]),
        None,
        "by its digest"
    );
    for unknown in ["/a~0~1/0/5", "/a~0~1/1", "/a~0~1"] {
        assert!(
            resolved.unknown_in(&[unknown.into()]).is_some(),
            "{unknown}"
        );
    }

    let text = json!({"t": {"$concat": ["n: ", step("/count")]}});
    assert_eq!(template::resolve(&text, &scope).unwrap()["t"], "n: 17");
    for (refused, place) in [
        (
            json!({"t": {"$concat": ["n: ", step("/rows/0/id")]}}),
            "/t/1",
        ),
        (json!({"t": step("/rows")}), "/t"),
    ] {
        let fault = template::resolve(&refused, &scope).unwrap_err();
        assert_eq!(fault.code, Code::InputTooLarge);
        assert_eq!(fault.at.as_deref(), Some(place));
    }
    let missing = template::resolve(&step("/no"), &scope).unwrap_err();
    assert_eq!(missing.code, Code::ReferenceMissing);
}

#[test]
fn the_same_value_in_another_output_is_the_same_argument() {
    let fetched = |at_ms: u64| {
        let mut output = output();
        output["at_ms"] = json!(at_ms);
        Claim::keep(&goal(1), &output).0
    };
    let (first, again) = (fetched(1), fetched(2));
    assert_ne!(first.digest, again.digest);
    let rows = |claim: &Claim| claim.find("/rows").unwrap().digest();
    assert_eq!(rows(&first), rows(&again));
}

#[test]
fn records_name_their_claims() {
    let (claim, _) = Claim::keep(&goal(1), &output());
    let step = StepId::new("s").unwrap();
    let run = RunFacts::default();
    let output = claim.to_output();
    let outcome = ToolOutcome::Done { output, run };
    let observation = Observation {
        verdict: Verdict::Met,
        evidence: None,
        output: Some(claim.to_output()),
    };
    let bodies = [
        Body::Outcome {
            step: step.clone(),
            attempt: 1,
            outcome: outcome.clone(),
        },
        Body::Sealed {
            step: step.clone(),
            attempt: 1,
            seal: Seal::Ended {
                outcome: Some(outcome),
            },
        },
        Body::Observed {
            step,
            attempt: 1,
            observations: vec![observation],
            proven_absent: false,
        },
    ];
    for body in bodies {
        assert_eq!(
            claims_of(&body),
            std::slice::from_ref(&claim),
            "{}",
            body.kind()
        );
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "[a~/0\"é]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a~/0\"é]{0,2}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Taking a part out of the text is the same as looking it up in the value.
    #[test]
    fn a_part_of_the_text_is_the_part_of_the_value(
        output in any_json(),
        path in proptest::collection::vec("[a~/0-2é]{0,2}", 0..4),
    ) {
        let pointer: String = path.iter().map(|k| format!("/{}", json::pointer_escape(k))).collect();
        let (claim, body) = Claim::keep(&goal(1), &output);
        let whole = Part { digest: claim.digest, bytes: claim.bytes, pointer: String::new(), value: None };
        let taken = whole.inner(&pointer).take(&goal(1), &body, 1 << 20);
        prop_assert_eq!(taken.ok(), output.pointer(&pointer).cloned());
        prop_assert_eq!(through(&claim, &body, &pointer), Ok(output.pointer(&pointer).cloned()));
    }
}
