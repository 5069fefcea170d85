//! The AsyncAPI document, made from the table of channels, the schemas and the samples.

use crate::golden;
use detent_protocol::schema::{CHANNELS, Channel, Exchange, Way, schema_of};
use serde_json::{Map, Value, json};

/// The file.
pub(crate) fn text() -> String {
    let head = "# Made from the Rust types: `cargo xtask docs` writes it.\n";
    head.to_owned() + &serde_norway::to_string(&document()).unwrap()
}

/// The document.
pub(crate) fn document() -> Value {
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Detent",
            "version": "1",
            "description": "What publishers, operators and actors say to a Detent node over NATS. \
                Every message is an envelope `{kind, v, body}`, in msgpack with field names or in JSON; \
                a payload that begins with `{` is read as JSON. A request is answered in its own form, \
                with `{\"ok\": …}` or `{\"fault\": …}`, and what is told about a goal later has the form \
                that the goal was submitted in.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "defaultContentType": MSGPACK,
        "servers": {
            "local": {
                "host": "localhost:4222",
                "protocol": "nats",
                "description": "The broker that the nodes are set up with.",
            },
        },
        "channels": channels(),
        "operations": operations(),
        "components": {"messages": messages()},
    })
}

const MSGPACK: &str = "application/msgpack";
const JSON: &str = "application/json";

/// A message's name in the document, in each form that the channel allows.
fn forms(channel: &Channel, name: &str) -> Vec<String> {
    let mut forms = vec![name.to_owned()];
    if channel.json {
        forms.push(format!("{name}_json"));
    }
    forms
}

fn references(within: &str, names: &[String]) -> Value {
    let one = |name: &String| json!({"$ref": format!("#/{within}/{name}")});
    names.iter().map(one).collect()
}

fn channels() -> Value {
    let mut all = Map::new();
    for channel in CHANNELS {
        let said = channel.exchanges.iter().map(|e| e.message);
        let mut entry = json!({
            "address": channel.address,
            "description": channel.about,
            "messages": named(channel, said),
        });
        let parameters: Map<_, _> = channel.parameters().map(parameter).collect();
        if !parameters.is_empty() {
            entry["parameters"] = parameters.into();
        }
        all.insert(channel.name.into(), entry);
        let replies = named(channel, channel.exchanges.iter().filter_map(|e| e.reply));
        if replies.as_object().is_some_and(|r| !r.is_empty()) {
            let entry = json!({
                "address": null,
                "description": "The subject that the request names for its answer (its inbox).",
                "messages": replies,
            });
            all.insert(format!("{}_reply", channel.name), entry);
        }
    }
    all.into()
}

fn named(channel: &Channel, names: impl Iterator<Item = &'static str>) -> Value {
    let all = names.flat_map(|name| forms(channel, name));
    let one = |name: String| {
        let reference = json!({"$ref": format!("#/components/messages/{name}")});
        (name, reference)
    };
    Value::Object(all.map(one).collect())
}

fn parameter(name: &str) -> (String, Value) {
    let about = match name {
        "tenant" => "Whose goals; `default` in a set-up with one tenant.",
        "agent" => "Name of the agent.",
        "goal" => "The goal's id: a UUID in lower case with hyphens.",
        "name" => {
            "The idempotency key of a goal that was handed in, or the goal that a control message named."
        }
        "node" => "Name of the node.",
        "kind" => "Kind of alert, as in the metric `detent_alerts`.",
        "provider" => "Name of the planner.",
        "tool" => "Name of the tool.",
        "probe" => "Kind of probe.",
        other => panic!("no words for the parameter {other}"),
    };
    (name.to_owned(), json!({"description": about}))
}

fn operations() -> Value {
    let mut all = Map::new();
    for channel in CHANNELS {
        for exchange in channel.exchanges {
            let name = match channel.exchanges.len() {
                1 => channel.name.to_owned(),
                _ => format!("{}_{}", channel.name, exchange.message),
            };
            all.insert(name, operation(channel, exchange));
        }
    }
    all.into()
}

fn operation(channel: &Channel, exchange: &Exchange) -> Value {
    let name = channel.name;
    // The document is the node's: what it says it sends, what it is told it receives.
    let action = match channel.way {
        Way::Event => "send",
        Way::Request | Way::Durable => "receive",
    };
    let tag = if channel.internal {
        "actors"
    } else {
        "publishers"
    };
    let said = forms(channel, exchange.message);
    let mut operation = json!({
        "action": action,
        "summary": channel.about,
        "tags": [{"name": tag}],
        "channel": {"$ref": format!("#/channels/{name}")},
        "messages": references(&format!("channels/{name}/messages"), &said),
    });
    if let Some(reply) = exchange.reply {
        let within = format!("channels/{name}_reply/messages");
        operation["reply"] = json!({
            "channel": {"$ref": format!("#/channels/{name}_reply")},
            "messages": references(&within, &forms(channel, reply)),
        });
    }
    operation
}

fn messages() -> Value {
    let mut all = Map::new();
    for channel in CHANNELS {
        let said = channel.exchanges.iter();
        for name in said.flat_map(|e| std::iter::once(e.message).chain(e.reply)) {
            all.insert(name.into(), message(name, MSGPACK));
            if channel.json {
                let mut with_samples = message(name, JSON);
                let samples = samples(name);
                if !samples.is_empty() {
                    with_samples["examples"] = samples.into();
                }
                all.insert(format!("{name}_json"), with_samples);
            }
        }
    }
    all.into()
}

fn message(name: &str, content_type: &str) -> Value {
    let schema = schema_of(name).unwrap();
    json!({
        "name": name,
        "summary": schema["description"],
        "contentType": content_type,
        "payload": {"$ref": format!("./schemas/{name}.json")},
    })
}

fn samples(name: &str) -> Vec<Value> {
    let of_it = golden::samples().into_iter().filter(|s| s.shape == name);
    of_it
        .map(|s| json!({"name": s.name, "payload": s.json}))
        .collect()
}
