//! Every message and answer that is kept as a golden file meets its schema, and what the
//! schema takes its reader takes as well.

use crate::path;
use detent_protocol::contract::Contract;
use detent_protocol::envelope::{Reply, expect_json};
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::*;
use detent_protocol::result::ResultMessage;
use detent_protocol::schema::{check, json_of, names, schema_of};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

/// A golden file.
pub(crate) struct Sample {
    /// Name of the file.
    pub(crate) name: String,
    /// Name of its schema.
    pub(crate) shape: String,
    /// What it says.
    pub(crate) json: Value,
    msgpack: Vec<u8>,
}

/// Marks of effect slots: stored, never sent.
const NOT_SAID: &str = "slot";

/// Every golden message and answer, in order.
pub(crate) fn samples() -> Vec<Sample> {
    let mut all = Vec::new();
    for group in ["message", "answer"] {
        let folder = path("tests/golden/v1").join(group);
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "json"));
        files.sort();
        for file in files {
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let kind = name.split('-').next().unwrap();
            let shape = match (group, kind) {
                ("answer", "fault" | "refused") => "reply",
                (_, kind) => kind,
            };
            if kind != NOT_SAID {
                all.push(Sample {
                    shape: shape.to_owned(),
                    json: serde_json::from_slice(&fs::read(&file).unwrap()).unwrap(),
                    msgpack: fs::read(file.with_extension("msgpack")).unwrap(),
                    name,
                });
            }
        }
    }
    all
}

#[test]
fn every_golden_message_meets_its_schema_in_both_forms() {
    let samples = samples();
    for Sample {
        name,
        shape,
        json,
        msgpack,
    } in &samples
    {
        for payload in [msgpack, json.to_string().as_bytes()] {
            check(shape, payload).unwrap_or_else(|f| panic!("{name}: {f}"));
        }
        assert_eq!(&json_of(msgpack).unwrap(), json, "{name}");
    }
    let seen: BTreeSet<_> = samples.iter().map(|s| s.shape.as_str()).collect();
    let parts = ["asked", "envelope", "fault", "goal_result", "question"];
    let named: BTreeSet<_> = names().filter(|n| !parts.contains(n)).collect();
    assert_eq!(
        named, seen,
        "a schema without a golden message, or the other way round"
    );
}

#[test]
fn parts_and_the_question_meet_their_schemas() {
    let samples = samples();
    let of = |name: &str| {
        samples
            .iter()
            .find(|s| s.name == name)
            .unwrap()
            .json
            .clone()
    };
    let meets = |name: &str, value: &Value| check(name, value.to_string().as_bytes()).is_ok();
    let result = of("result-failed");
    assert!(meets("envelope", &result) && !meets("envelope", &result["body"]));
    assert!(meets("goal_result", &result["body"]["result"]));
    assert!(meets(
        "fault",
        &result["body"]["result"]["steps"][0]["fault"]
    ));

    let asked = fs::read(path("tests/golden/v1/record/asked-1.json")).unwrap();
    let asked: Value = serde_json::from_slice(&asked).unwrap();
    let question = &asked["body"]["question"];
    assert!(meets("question", question));
    let mut event = of("event");
    assert!(!meets("asked", &event), "another event is no question");
    event["body"]["kind"] = json!("asked");
    assert!(!meets("asked", &event), "a question says what it asks");
    event["body"]["detail"] = question.clone();
    assert!(meets("asked", &event) && meets("event", &event));
}

/// Does the reader of this shape take it?
fn is_read(shape: &str, value: &Value) -> bool {
    let bytes = value.to_string().into_bytes();
    macro_rules! message {
        ($t:ty) => {
            expect_json::<$t>(&bytes).is_ok()
        };
    }
    macro_rules! reply {
        ($t:ty) => {
            serde_json::from_slice::<Reply<$t>>(&bytes).is_ok()
        };
    }
    match shape {
        "submit" => expect_json::<Submit>(&bytes).is_ok_and(|s| s.lint().is_ok()),
        "control" => message!(Control),
        "query" => message!(Query),
        "refused" => message!(Refused),
        "result" => message!(ResultMessage),
        "event" => message!(GoalEvent),
        "alert" => message!(Alert),
        "plan_request" => message!(PlanRequest),
        "tool_call" => message!(ToolCall),
        "seal_attempt" => message!(SealAttempt),
        "seal_goal" => message!(SealGoal),
        "observe" => message!(Observe),
        "accepted" => reply!(Accepted),
        "controlled" => reply!(Controlled),
        "answer" => reply!(Answer),
        "plan_answer" => reply!(PlanAnswer),
        "tool_outcome" => reply!(ToolAnswer),
        "attempt_sealed" => reply!(AttemptSealed),
        "goal_sealed" => reply!(GoalSealed),
        "observation" => reply!(Seen),
        "reply" => reply!(Value),
        other => panic!("nobody reads {other}"),
    }
}

/// Every place in `value`, as JSON pointers.
fn places(value: &Value) -> Vec<String> {
    let mut all = vec![String::new()];
    let below: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (token, value) in below {
        all.extend(places(value).iter().map(|p| format!("/{token}{p}")));
    }
    all
}

/// `value` with one thing changed: a field taken out, put in, or replaced.
fn changed(value: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for place in places(value) {
        let edit = |what: &str, edit: &dyn Fn(&mut Value)| {
            let mut copy = value.clone();
            edit(copy.pointer_mut(&place).unwrap());
            (format!("{what} at {place:?}"), copy)
        };
        for other in [
            json!(null),
            json!(true),
            json!(""),
            json!(-1),
            json!(0),
            json!(1.5),
            json!({"zzz": 1}),
        ] {
            // No version 0 was ever said, though a reader takes it for an older one.
            if (place.as_str(), &other) != ("/v", &json!(0)) {
                all.push(edit(&format!("{other}"), &|v| *v = other.clone()));
            }
        }
        if let Some(Value::Object(map)) = value.pointer(&place) {
            all.push(edit("more", &|v| v["zzz"] = json!(1)));
            for field in map.keys() {
                let without = |v: &mut Value| {
                    v.as_object_mut().unwrap().remove(field);
                };
                all.push(edit(&format!("no {field}"), &without));
            }
        }
    }
    all
}

#[test]
fn a_schema_takes_no_more_than_its_reader_and_no_less_where_nodes_read() {
    let (mut taken, mut refused) = (0, 0);
    for sample in samples() {
        let contract = Contract::compile(&schema_of(&sample.shape).unwrap()).unwrap();
        let exact = ["submit", "control", "query"].contains(&sample.shape.as_str());
        for (what, value) in changed(&sample.json) {
            let (meets, read) = (contract.accepts(&value), is_read(&sample.shape, &value));
            let name = &sample.name;
            assert!(
                !meets || read,
                "{name}, {what}: meets the schema and is not read"
            );
            assert!(
                !exact || meets == read,
                "{name}, {what}: is read and breaks the schema"
            );
            if meets { taken += 1 } else { refused += 1 }
        }
    }
    assert!(
        taken > 500 && refused > 2000,
        "{taken} taken, {refused} refused"
    );
}

#[test]
fn a_message_without_a_required_field_breaks_its_schema() {
    for sample in samples() {
        let schema = schema_of(&sample.shape).unwrap();
        let contract = Contract::compile(&schema).unwrap();
        let message = ["kind", "v", "body"].map(|f| format!("/{f}"));
        let body = sample.json.get("body").and_then(|b| {
            let name = schema.pointer("/properties/body/$ref")?.as_str()?;
            let required = schema.pointer(&format!("{}/required", name.trim_start_matches('#')))?;
            let fields: Vec<_> = required
                .as_array()?
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert!(fields.iter().all(|f| b.get(f).is_some()), "{}", sample.name);
            Some(
                fields
                    .iter()
                    .map(|f| format!("/body/{f}"))
                    .collect::<Vec<_>>(),
            )
        });
        let fields = match body {
            Some(fields) => message.into_iter().chain(fields).collect(),
            None => vec!["/ok".to_owned(), "/fault".to_owned()],
        };
        for field in fields {
            let (within, name) = field.rsplit_once('/').unwrap();
            let mut value = sample.json.clone();
            let object = value.pointer_mut(within).unwrap().as_object_mut().unwrap();
            if object.remove(name).is_some() {
                assert!(!contract.accepts(&value), "{} without {field}", sample.name);
            }
        }
    }
}
