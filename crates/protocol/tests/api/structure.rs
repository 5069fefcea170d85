//! The AsyncAPI document holds together: what it refers to is there, and fits.

use crate::{asyncapi, wanted};
use serde_json::Value;
use std::collections::BTreeSet;

/// Every `$ref` in `value`, outside of samples of payloads.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| *key != "examples") {
                match (key.as_str(), value) {
                    ("$ref", Value::String(target)) => found.push(target.clone()),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn keys(value: &Value) -> BTreeSet<&str> {
    let map = value.as_object().into_iter().flatten();
    map.map(|(key, _)| key.as_str()).collect()
}

fn target<'a>(document: &'a Value, reference: &Value) -> &'a Value {
    let text = reference["$ref"].as_str().unwrap();
    document
        .pointer(text.trim_start_matches('#'))
        .unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn the_text_is_yaml_and_says_what_the_document_says() {
    let text = asyncapi::text();
    let read: Value = serde_norway::from_str(&text).unwrap();
    assert_eq!(read, asyncapi::document());
    assert_eq!(read["asyncapi"], "3.0.0");
}

#[test]
fn every_reference_leads_somewhere() {
    let files = wanted();
    let document = asyncapi::document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100, "only {} references", found.len());
    for reference in found {
        match reference.strip_prefix('#') {
            Some(pointer) => assert!(document.pointer(pointer).is_some(), "{reference}"),
            None => {
                let file = reference.trim_start_matches("./");
                assert!(files.contains_key(file), "{reference}");
            }
        }
    }
}

#[test]
fn operations_say_only_what_their_channels_carry() {
    let document = asyncapi::document();
    let mut carried = BTreeSet::new();
    for (name, operation) in document["operations"].as_object().unwrap() {
        assert!(["send", "receive"].contains(&operation["action"].as_str().unwrap()));
        let parts = [Some(operation), operation.get("reply")];
        for part in parts.into_iter().flatten() {
            let channel = target(&document, &part["channel"]);
            let within = part["channel"]["$ref"].as_str().unwrap().to_owned() + "/messages/";
            let messages = part["messages"].as_array().unwrap();
            assert!(!messages.is_empty(), "{name}");
            for message in messages {
                let reference = message["$ref"].as_str().unwrap();
                let short = reference
                    .strip_prefix(&within)
                    .unwrap_or_else(|| panic!("{reference}"));
                assert!(channel["messages"].get(short).is_some(), "{reference}");
                carried.insert(reference.to_owned());
            }
        }
    }
    let channels = document["channels"].as_object().unwrap();
    let all = channels.iter().flat_map(|(name, channel)| {
        let messages = keys(&channel["messages"]).into_iter();
        messages.map(move |m| format!("#/channels/{name}/messages/{m}"))
    });
    assert_eq!(
        carried,
        all.collect(),
        "a channel carries what no operation says"
    );
}

#[test]
fn channels_have_the_parameters_of_their_address() {
    let document = asyncapi::document();
    for (name, channel) in document["channels"].as_object().unwrap() {
        let Some(address) = channel["address"].as_str() else {
            assert!(name.ends_with("_reply") && channel.get("parameters").is_none());
            continue;
        };
        let named = address
            .split('{')
            .skip(1)
            .filter_map(|t| Some(t.split_once('}')?.0));
        assert_eq!(
            named.collect::<BTreeSet<_>>(),
            keys(&channel["parameters"]),
            "{name}"
        );
    }
}

#[test]
fn every_component_is_used_and_public_ones_come_in_both_forms() {
    let document = asyncapi::document();
    let mut found = Vec::new();
    references(&document["channels"], &mut found);
    let prefix = "#/components/messages/";
    let used: BTreeSet<_> = found
        .iter()
        .filter_map(|r| r.strip_prefix(prefix))
        .collect();
    let messages = &document["components"]["messages"];
    assert_eq!(used, keys(messages));
    for name in used {
        let json = name.ends_with("_json");
        let content_type = if json {
            "application/json"
        } else {
            "application/msgpack"
        };
        assert_eq!(messages[name]["contentType"], content_type);
    }
    for name in [
        "submit",
        "accepted",
        "refused",
        "control",
        "controlled",
        "query",
        "answer",
    ] {
        assert!(messages.get(format!("{name}_json")).is_some(), "{name}");
    }
    for name in ["result", "event", "asked"] {
        assert!(messages.get(format!("{name}_json")).is_some(), "{name}");
    }
}

#[test]
fn no_host_but_this_machine_is_named() {
    let document = asyncapi::document();
    for server in document["servers"].as_object().unwrap().values() {
        assert!(server["host"].as_str().unwrap().starts_with("localhost:"));
    }
}
