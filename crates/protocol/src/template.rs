//! Templates: JSON values with references, as plans and probes use them.
//!
//! An object with exactly one key that starts with `$` is a reference:
//!
//! | form | gives |
//! |---|---|
//! | `{"$goal": "/date_range/from"}` | that part of the goal's input |
//! | `{"$step": "fetch", "at": "/rows"}` | that part of an earlier step's output |
//! | `{"$args": "/path"}` | that part of the step's own arguments (probes only) |
//! | `{"$output": "/id"}` | that part of the step's own output (expectations only) |
//! | `{"$meta": "goal_id"}` | `goal_id`, `tenant` or `agent` |
//! | `{"$concat": [...]}` | the parts joined to one text |
//!
//! What a reference names may be kept as a body ([`crate::claim`]); [`resolve_parts`]
//! then leaves its place open.

use crate::claim::{Claimed, Resolved, too_large_here};
use crate::error::{Code, Fault};
use crate::ids::StepId;
use crate::json;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Deepest nesting of a template.
pub const DEPTH_MAX: usize = 32;

/// Largest value that a template may become, bytes as JSON text: it has to fit into one
/// message and one journal entry. A short template can name a long value many times.
pub const RESOLVED_BYTES_MAX: usize = 512 * 1024;

/// Deepest nesting of what a template may become; readers of messages stop at 128.
pub const RESOLVED_DEPTH_MAX: usize = 96;

/// One reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference<'a> {
    /// Into the goal's input.
    Goal(&'a str),
    /// Into an earlier step's output.
    Step(StepId, &'a str),
    /// Into the step's own arguments.
    Args(&'a str),
    /// Into the step's own output.
    Output(&'a str),
    /// A fact about the goal itself.
    Meta(&'a str),
}

/// Where references are looked up. `None` is "not there".
pub trait Scope {
    /// What `reference` names.
    fn lookup(&self, reference: &Reference<'_>) -> Option<Resolved>;
}

impl<T: Into<Resolved>, F: Fn(&Reference<'_>) -> Option<T>> Scope for F {
    fn lookup(&self, reference: &Reference<'_>) -> Option<Resolved> {
        self(reference).map(Into::into)
    }
}

enum Node<'a> {
    Reference(Reference<'a>),
    Concat(&'a [Value]),
    Plain,
}

fn invalid(at: &str, message: &str) -> Fault {
    Fault::new(Code::PlanInvalid, message).at(at)
}

/// What kind of node an object is; an unknown `$` key is a mistake, not data.
fn classify<'a>(map: &'a Map<String, Value>, at: &str) -> Result<Node<'a>, Fault> {
    let Some(key) = map.keys().find(|k| k.starts_with('$')) else {
        return Ok(Node::Plain);
    };
    let value = &map[key];
    let extra = map
        .keys()
        .any(|k| k != key && !(key == "$step" && k == "at"));
    if extra {
        return Err(invalid(at, &format!("{key} stands beside other keys")));
    }
    let pointer = |v: &'a Value| -> Result<&'a str, Fault> {
        let text = v.as_str().filter(|t| json::is_pointer(t));
        text.ok_or_else(|| invalid(at, "a JSON pointer is empty or starts with /"))
    };
    let reference = match key.as_str() {
        "$goal" => Reference::Goal(pointer(value)?),
        "$args" => Reference::Args(pointer(value)?),
        "$output" => Reference::Output(pointer(value)?),
        "$meta" => Reference::Meta(
            value
                .as_str()
                .filter(|m| ["goal_id", "tenant", "agent"].contains(m))
                .ok_or_else(|| invalid(at, "$meta is goal_id, tenant or agent"))?,
        ),
        "$step" => {
            let id = value.as_str().unwrap_or_default();
            let id = StepId::new(id).map_err(|e| invalid(at, &e.to_string()))?;
            Reference::Step(id, map.get("at").map_or(Ok(""), pointer)?)
        }
        "$concat" => {
            let parts = value.as_array();
            let parts = parts.ok_or_else(|| invalid(at, "$concat takes an array"))?;
            return Ok(Node::Concat(parts));
        }
        other => return Err(invalid(at, &format!("{other} is not a reference"))),
    };
    Ok(Node::Reference(reference))
}

/// Calls `visit` with each reference and its place.
///
/// Fails with [`Code::PlanInvalid`] on a malformed reference or when the template is
/// nested deeper than [`DEPTH_MAX`].
pub fn walk<'a>(
    template: &'a Value,
    visit: &mut dyn FnMut(Reference<'a>, &str),
) -> Result<(), Fault> {
    walk_at(template, &mut String::new(), 0, visit)
}

fn walk_at<'a>(
    v: &'a Value,
    at: &mut String,
    depth: usize,
    visit: &mut dyn FnMut(Reference<'a>, &str),
) -> Result<(), Fault> {
    if depth > DEPTH_MAX {
        return Err(invalid(at, "nested too deeply"));
    }
    let mut inner = |v: &'a Value, key: &str, at: &mut String| {
        let len = at.len();
        at.push('/');
        at.push_str(&json::pointer_escape(key));
        let done = walk_at(v, at, depth + 1, visit);
        at.truncate(len);
        done
    };
    match v {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(i, v)| inner(v, &i.to_string(), at)),
        Value::Object(map) => match classify(map, at)? {
            Node::Reference(r) => {
                visit(r, at);
                Ok(())
            }
            Node::Concat(parts) => parts
                .iter()
                .enumerate()
                .try_for_each(|(i, v)| inner(v, &i.to_string(), at)),
            Node::Plain => map.iter().try_for_each(|(k, v)| inner(v, k, at)),
        },
        _ => Ok(()),
    }
}

/// The steps that `template` refers to.
pub fn steps_of(template: &Value) -> Result<BTreeSet<StepId>, Fault> {
    let mut out = BTreeSet::new();
    walk(template, &mut |r, _| {
        if let Reference::Step(id, _) = r {
            out.insert(id);
        }
    })?;
    Ok(out)
}

/// Does `template` hold any reference at all?
pub fn has_references(template: &Value) -> bool {
    let mut any = false;
    let walked = walk(template, &mut |_, _| any = true);
    any || walked.is_err()
}

/// Replaces every reference by its value.
///
/// Fails with [`Code::ReferenceMissing`] when one is not there, with
/// [`Code::InputTooLarge`] when the whole would be larger than [`RESOLVED_BYTES_MAX`] or
/// deeper than [`RESOLVED_DEPTH_MAX`], or is in an output that is kept as a body; no more
/// than that is ever built.
pub fn resolve(template: &Value, scope: &dyn Scope) -> Result<Value, Fault> {
    resolve_parts(template, scope)?.whole()
}

/// Replaces every reference by its value, or, where that is in an output that is kept as a
/// body, leaves its place open for whoever fetches it.
///
/// Fails as [`resolve`] does; such a value can't be part of a text (`$concat`).
pub fn resolve_parts(template: &Value, scope: &dyn Scope) -> Result<Resolved, Fault> {
    let mut resolving = Resolving {
        scope,
        at: String::new(),
        bytes_left: RESOLVED_BYTES_MAX,
        claims: Vec::new(),
    };
    let value = resolving.value(template, 0)?;
    let claims = resolving.claims;
    Ok(Resolved { value, claims })
}

struct Resolving<'a> {
    scope: &'a dyn Scope,
    at: String,
    bytes_left: usize,
    claims: Vec<Claimed>,
}

impl Resolving<'_> {
    fn value(&mut self, v: &Value, depth: usize) -> Result<Value, Fault> {
        if depth > DEPTH_MAX {
            return Err(invalid(&self.at, "nested too deeply"));
        }
        match v {
            Value::Array(items) => {
                self.spend(2 + items.len())?;
                let items = items.iter().enumerate();
                let items: Result<_, _> = items
                    .map(|(i, v)| self.inner(v, &i.to_string(), depth))
                    .collect();
                Ok(Value::Array(items?))
            }
            Value::Object(map) => match classify(map, &self.at)? {
                Node::Reference(r) => self.reference(&r, depth),
                Node::Concat(parts) => self.concat(parts, depth),
                Node::Plain => {
                    let mut fields = Map::new();
                    for (k, v) in map {
                        self.spend(k.len() + 4)?;
                        fields.insert(k.clone(), self.inner(v, k, depth)?);
                    }
                    Ok(Value::Object(fields))
                }
            },
            other => {
                self.spend(json::size_bytes(other))?;
                Ok(other.clone())
            }
        }
    }

    fn reference(&mut self, r: &Reference<'_>, depth: usize) -> Result<Value, Fault> {
        let Resolved { value, claims } = self.scope.lookup(r).ok_or_else(|| {
            let message = format!("{} is not there", describe(r));
            Fault::new(Code::ReferenceMissing, message).at(self.at.as_str())
        })?;
        self.spend(json::size_bytes(&value))?;
        for mut claim in claims {
            // The marker is paid for; its entry in the list takes about as much again.
            self.spend(CLAIM_BYTES)?;
            claim.at.insert_str(0, &self.at);
            self.claims.push(claim);
        }
        if depth + json::depth(&value) > RESOLVED_DEPTH_MAX {
            let message = format!("nested deeper than {RESOLVED_DEPTH_MAX} levels");
            return Err(Fault::new(Code::InputTooLarge, message).at(self.at.as_str()));
        }
        Ok(value)
    }

    fn concat(&mut self, parts: &[Value], depth: usize) -> Result<Value, Fault> {
        let mut text = String::new();
        let open = self.claims.len();
        for (i, part) in parts.iter().enumerate() {
            match self.inner(part, &i.to_string(), depth)? {
                Value::String(s) => text.push_str(&s),
                other => text.push_str(&json::canonical(&other)),
            }
        }
        if let Some(claim) = self.claims.get(open) {
            return Err(too_large_here(&claim.at));
        }
        Ok(Value::String(text))
    }

    fn inner(&mut self, v: &Value, key: &str, depth: usize) -> Result<Value, Fault> {
        let len = self.at.len();
        self.at.push('/');
        self.at.push_str(&json::pointer_escape(key));
        let done = self.value(v, depth + 1);
        self.at.truncate(len);
        done
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => {
                let message = format!("becomes larger than {RESOLVED_BYTES_MAX} bytes");
                Err(Fault::new(Code::InputTooLarge, message).at(self.at.as_str()))
            }
        }
    }
}

/// What one entry in the list of places to be fetched takes, about, bytes.
const CLAIM_BYTES: usize = 256;

fn describe(r: &Reference<'_>) -> String {
    match r {
        Reference::Goal(p) => format!("goal input {p:?}"),
        Reference::Step(id, p) => format!("output {p:?} of step {id}"),
        Reference::Args(p) => format!("argument {p:?}"),
        Reference::Output(p) => format!("output {p:?}"),
        Reference::Meta(m) => format!("meta {m:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope(r: &Reference<'_>) -> Option<Value> {
        match r {
            Reference::Goal(p) => json!({"product": "w", "n": 3}).pointer(p).cloned(),
            Reference::Step(id, p) if id.as_str() == "a" => {
                json!({"rows": [1, 2]}).pointer(p).cloned()
            }
            Reference::Meta("goal_id") => Some(json!("g1")),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced() {
        let t = json!({"p": {"$goal": "/product"}, "r": {"$step": "a", "at": "/rows/1"},
            "f": {"$concat": ["out/", {"$meta": "goal_id"}, "-", {"$goal": "/n"}]}, "plain": [1, {"x": null}]});
        let got = resolve(&t, &scope).unwrap();
        assert_eq!(
            got,
            json!({"p": "w", "r": 2, "f": "out/g1-3", "plain": [1, {"x": null}]})
        );
    }

    #[test]
    fn a_missing_value_says_where() {
        let f = resolve(&json!({"x": [{"$step": "b", "at": "/y"}]}), &scope).unwrap_err();
        assert_eq!(f.code, Code::ReferenceMissing);
        assert_eq!(f.at.as_deref(), Some("/x/0"));
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in [
            json!({"$goal": "product"}),
            json!({"$gaol": "/product"}),
            json!({"$goal": "/product", "other": 1}),
            json!({"$step": "a.b"}),
            json!({"$meta": "time"}),
            json!({"$concat": "x"}),
        ] {
            assert_eq!(
                resolve(&bad, &scope).unwrap_err().code,
                Code::PlanInvalid,
                "{bad}"
            );
        }
        let deep = (0..100).fold(json!(1), |v, _| json!([v]));
        assert_eq!(
            walk(&deep, &mut |_, _| ()).unwrap_err().code,
            Code::PlanInvalid
        );
    }

    #[test]
    fn a_short_template_can_not_become_a_huge_value() {
        let long = |_: &Reference<'_>| Some(json!("x".repeat(100_000)));
        let few = json!([{"$goal": ""}, {"$goal": ""}]);
        assert!(resolve(&few, &long).is_ok());
        for many in [
            json!(vec![json!({"$goal": ""}); 35_000]),
            json!({"$concat": vec![json!({"$goal": ""}); 35_000]}),
        ] {
            let fault = resolve(&many, &long).unwrap_err();
            assert_eq!(fault.code, Code::InputTooLarge);
        }
        let deep = |_: &Reference<'_>| Some((0..100).fold(json!(1), |v, _| json!([v])));
        let fault = resolve(&json!({"$goal": ""}), &deep).unwrap_err();
        assert_eq!(fault.code, Code::InputTooLarge);
    }

    #[test]
    fn steps_are_found_also_inside_concat() {
        let t = json!([{"$step": "a"}, {"$concat": [{"$step": "b", "at": "/x"}]}]);
        let ids: Vec<_> = steps_of(&t)
            .unwrap()
            .into_iter()
            .map(String::from)
            .collect();
        assert_eq!(ids, ["a", "b"]);
    }
}
