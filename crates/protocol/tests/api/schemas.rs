//! The schemas stand alone and mean the same to readers of draft 07 and of 2020-12.

use crate::golden;
use detent_protocol::schema::{names, schema_of};
use serde_json::Value;

/// Calls `each` for `schema` and every schema in it.
fn walk(schema: &Value, each: &mut dyn FnMut(&Value)) {
    each(schema);
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match (keyword.as_str(), value) {
            ("properties" | "$defs", Value::Object(map)) => {
                map.values().for_each(|s| walk(s, each))
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(all)) => {
                all.iter().for_each(|s| walk(s, each))
            }
            ("items" | "additionalProperties", below) => walk(below, each),
            _ => {}
        }
    }
}

/// Keywords with one meaning in both drafts. `$defs` is only a place for `$ref` to lead to.
const KEYWORDS: [&str; 23] = [
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "default",
    "type",
    "const",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
];
/// What may stand beside `$ref`: draft 07 does not see it.
const ANNOTATIONS: [&str; 3] = ["$ref", "description", "default"];

#[test]
fn only_keywords_of_both_drafts_are_used() {
    for name in names() {
        let schema = schema_of(name).unwrap();
        walk(&schema, &mut |schema| {
            let Some(map) = schema.as_object() else {
                assert!(schema.is_boolean(), "{name}: {schema}");
                return;
            };
            let allowed: &[&str] = if map.contains_key("$ref") {
                &ANNOTATIONS
            } else {
                &KEYWORDS
            };
            let odd: Vec<_> = map
                .keys()
                .filter(|k| !allowed.contains(&k.as_str()))
                .collect();
            assert!(odd.is_empty(), "{name}: {odd:?} in {schema}");
        });
    }
}

#[test]
fn references_lead_to_a_definition_of_the_same_file_and_each_is_used() {
    for name in names() {
        let schema = schema_of(name).unwrap();
        let mut used = std::collections::BTreeSet::new();
        walk(&schema, &mut |s| {
            if let Some(target) = s.get("$ref").and_then(Value::as_str) {
                let pointer = target
                    .strip_prefix('#')
                    .unwrap_or_else(|| panic!("{name}: {target}"));
                assert!(
                    schema.pointer(pointer).is_some(),
                    "{name}: {target} leads to nothing"
                );
                used.insert(target.replace("#/$defs/", ""));
            }
        });
        let defined: Vec<_> = schema["$defs"]
            .as_object()
            .into_iter()
            .flat_map(|d| d.keys())
            .collect();
        assert_eq!(used.iter().collect::<Vec<_>>(), defined, "{name}");
    }
}

#[test]
fn descriptions_are_for_readers_without_the_code() {
    for name in names() {
        let schema = schema_of(name).unwrap();
        assert!(
            schema["description"].is_string(),
            "{name} does not say what it is"
        );
        walk(&schema, &mut |s| {
            let text = s
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default();
            assert!(
                !text.contains("[`") && !text.contains("::"),
                "{name}: {text}"
            );
        });
    }
}

#[test]
fn readers_of_draft_07_take_and_refuse_the_same() {
    for sample in golden::samples() {
        let mut schema = schema_of(&sample.shape).unwrap();
        schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        let old = jsonschema::draft7::new(&schema).unwrap();
        assert!(old.is_valid(&sample.json), "{}", sample.name);
        let mut bad = sample.json.clone();
        for field in ["body", "ok", "fault"] {
            bad.as_object_mut().unwrap().remove(field);
        }
        assert!(!old.is_valid(&bad), "{}", sample.name);
    }
}
