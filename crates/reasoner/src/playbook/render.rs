//! Replaces `$param` and `$item`, and leads `$step` to the plan's own ids.
//!
//! `$goal` and `$meta` stay for whoever resolves the plan, with one exception: a
//! schema is no template to anybody later, so in a schema `$goal` is replaced here.
//!
//! Promises: what comes from the goal's input never becomes a reference; what is
//! made is at most [`PLAN_BYTES_MAX`]. Must never know: which steps there are.

use super::book::{Book, BookStep, invalid};
use super::layout::{Instance, Layout, Place};
use detent_protocol::expect::Expectation;
use detent_protocol::json::{is_pointer, pointer_escape, size_bytes};
use detent_protocol::plan::{Plan, Step};
use detent_protocol::template::{self, DEPTH_MAX};
use detent_protocol::{Fault, StepId};
use serde_json::{Map, Value, json};

/// Largest plan that a playbook may give, bytes of JSON: half of a message.
pub const PLAN_BYTES_MAX: usize = 512 * 1024;

/// Makes plan steps out of playbook steps.
pub(super) struct Render<'a> {
    pub(super) book: &'a Book,
    pub(super) layout: &'a Layout<'a>,
    /// The effective input; none when a playbook is only being checked.
    pub(super) input: Option<&'a Value>,
    /// What may still be made, bytes.
    pub(super) bytes_left: usize,
}

/// Where a value stands.
#[derive(Clone, Copy)]
struct Spot<'a> {
    /// The step, or nothing for the result.
    step: Option<&'a BookStep>,
    /// Number of the element.
    element: Option<usize>,
    /// A schema instead of a template.
    schema: bool,
    /// In the template of a parameter.
    parameter: bool,
    depth: usize,
}

impl<'a> Render<'a> {
    /// The plan, all its steps and the result.
    pub(super) fn plan(&mut self) -> Result<Plan, Fault> {
        let layout = self.layout;
        let steps = layout.instances.iter();
        let steps: Result<_, _> = steps.map(|i| self.step(i)).collect();
        Ok(Plan {
            steps: steps?,
            result: self.result()?,
        })
    }

    /// The plan's result.
    pub(super) fn result(&mut self) -> Result<Value, Fault> {
        let spot = Spot {
            step: None,
            element: None,
            schema: false,
            parameter: false,
            depth: 0,
        };
        let book = self.book;
        self.value(&book.result, spot, "/result")
    }

    /// One step of the plan.
    pub(super) fn step(&mut self, instance: &Instance<'a>) -> Result<Step, Fault> {
        let body = &instance.step.body;
        let at = format!("/steps/{}", instance.number);
        let spot = Spot {
            step: Some(instance.step),
            element: instance.element,
            schema: false,
            parameter: false,
            depth: 0,
        };
        let args = self.value(&body.args, spot, &format!("{at}/args"))?;
        let expect = body.expect.iter().enumerate();
        let expect: Result<_, _> = expect
            .map(|(i, e)| self.expectation(e, spot, &format!("{at}/expect/{i}")))
            .collect();
        Ok(Step {
            id: instance.id.clone(),
            tool: body.tool.clone(),
            args,
            after: self.after(body.after.as_slice(), spot, &at)?,
            delay_seconds: body.delay_seconds,
            expect: expect?,
            repeat: body.repeat,
        })
    }

    fn expectation(
        &mut self,
        e: &Expectation,
        spot: Spot<'_>,
        at: &str,
    ) -> Result<Expectation, Fault> {
        let absent = e.absent.as_ref();
        let absent = absent.map(|s| self.schema(s, spot, &format!("{at}/absent")));
        Ok(Expectation {
            probe: e.probe.clone(),
            params: self.value(&e.params, spot, &format!("{at}/params"))?,
            schema: self.schema(&e.schema, spot, &format!("{at}/schema"))?,
            absent: absent.transpose()?,
            output_at: e.output_at.clone(),
        })
    }

    fn schema(&mut self, schema: &Value, spot: Spot<'_>, at: &str) -> Result<Value, Fault> {
        if self.input.is_none() && self.needs_input(schema) {
            // Only checking: whether the schema is any good depends on the input.
            return Ok(json!({"const": "an element of the goal"}));
        }
        let spot = Spot {
            schema: true,
            ..spot
        };
        self.value(schema, spot, at)
    }

    fn needs_input(&self, v: &Value) -> bool {
        match v {
            Value::Array(items) => items.iter().any(|v| self.needs_input(v)),
            Value::Object(map) => {
                let named = map.get("$param").and_then(Value::as_str);
                let parameter = named.and_then(|n| self.book.parameters.get(n));
                // A parameter holds no `$param`, so this ends.
                map.contains_key("$goal")
                    || map.contains_key("$item")
                    || parameter.is_some_and(|p| p.get("$param").is_none() && self.needs_input(p))
                    || map.values().any(|v| self.needs_input(v))
            }
            _ => false,
        }
    }

    fn after(&self, after: &[StepId], spot: Spot<'_>, at: &str) -> Result<Vec<StepId>, Fault> {
        let mut ids = Vec::new();
        for (i, dep) in after.iter().enumerate() {
            match self.layout.places.get(dep.as_str()) {
                None => {
                    let message = format!("there is no step {dep} to wait for");
                    return Err(invalid(message, format!("{at}/after/{i}")));
                }
                Some(Place::LeftOut) => {}
                Some(Place::One(id)) => ids.push(id.clone()),
                Some(Place::Each { over, ids: each }) => match paired(spot, over) {
                    Some(n) => ids.extend(each.get(n).cloned()),
                    None => ids.extend(each.iter().cloned()),
                },
            }
        }
        Ok(ids)
    }

    fn charge(&mut self, bytes: usize, at: &str) -> Result<(), Fault> {
        let message = format!("the plan would be larger than {PLAN_BYTES_MAX} bytes");
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or_else(|| invalid(message, at))?;
        Ok(())
    }

    fn value(&mut self, v: &Value, spot: Spot<'_>, at: &str) -> Result<Value, Fault> {
        if spot.depth > DEPTH_MAX {
            return Err(invalid("nested too deeply", at));
        }
        let spot = Spot {
            depth: spot.depth + 1,
            ..spot
        };
        match v {
            Value::Array(items) => {
                self.charge(2, at)?;
                let items = items.iter().enumerate();
                let items: Result<_, _> = items
                    .map(|(i, v)| self.value(v, spot, &format!("{at}/{i}")))
                    .collect();
                Ok(Value::Array(items?))
            }
            Value::Object(map) => match self.special(map, spot, at) {
                Some(replaced) => replaced,
                None => self.fields(map, spot, at),
            },
            leaf => {
                self.charge(size_bytes(leaf) + 1, at)?;
                Ok(leaf.clone())
            }
        }
    }

    fn fields(
        &mut self,
        map: &Map<String, Value>,
        spot: Spot<'_>,
        at: &str,
    ) -> Result<Value, Fault> {
        self.charge(2, at)?;
        let mut out = Map::new();
        for (key, v) in map {
            self.charge(key.len() + 4, at)?;
            let inner = format!("{at}/{}", pointer_escape(key));
            out.insert(key.clone(), self.value(v, spot, &inner)?);
        }
        Ok(Value::Object(out))
    }

    /// What stands in place of `map`, where it is a reference that is replaced here.
    fn special(
        &mut self,
        map: &Map<String, Value>,
        spot: Spot<'_>,
        at: &str,
    ) -> Option<Result<Value, Fault>> {
        let replaced: &[&str] = match spot.schema {
            true => &["$param", "$item", "$goal"],
            false => &["$param", "$item", "$step"],
        };
        let key = replaced.iter().find(|k| map.contains_key(**k))?;
        let strange = |k: &String| k != key && !(*key == "$step" && k == "at");
        if map.keys().any(strange) {
            return Some(Err(invalid(format!("{key} stands beside other keys"), at)));
        }
        let Some(text) = map[*key].as_str() else {
            return Some(Err(invalid(format!("{key} takes a text"), at)));
        };
        Some(match *key {
            "$param" => self.parameter(text, spot, at),
            "$item" => self.item(text, spot, at),
            "$goal" => self.goal(text, at),
            _ => self.reference(text, map.get("at"), spot, at),
        })
    }

    fn parameter(&mut self, name: &str, spot: Spot<'_>, at: &str) -> Result<Value, Fault> {
        if spot.parameter {
            let message = "a parameter can't refer to a parameter";
            return Err(invalid(message, at));
        }
        let book = self.book;
        let Some(template) = book.parameters.get(name) else {
            let message = format!("there is no parameter {name:?}");
            return Err(invalid(message, at));
        };
        let spot = Spot {
            parameter: true,
            ..spot
        };
        let value = self.value(template, spot, at)?;
        if spot.schema && template::has_references(&value) {
            let message = format!("parameter {name:?} holds references; a schema takes none");
            return Err(invalid(message, at));
        }
        Ok(value)
    }

    fn item(&mut self, pointer: &str, spot: Spot<'_>, at: &str) -> Result<Value, Fault> {
        let each = spot.step.and_then(|s| s.for_each.as_ref());
        let Some((each, element)) = each.zip(spot.element) else {
            return Err(invalid("$item belongs to a step with for_each", at));
        };
        if !is_pointer(pointer) {
            return Err(invalid("a JSON pointer is empty or starts with /", at));
        }
        let whole = format!("{}/{element}{pointer}", each.goal);
        let Some(input) = self.input else {
            return Ok(json!({"$goal": whole}));
        };
        let Some(value) = input.pointer(&whole) else {
            let message = format!("{} {element} has no {pointer:?}", each.name);
            return Err(invalid(message, at));
        };
        // Data that looks like a reference would be taken for one by whoever resolves
        // the plan, so it is left where it is and referred to.
        let value = match !spot.schema && looks_like_reference(value) {
            true => json!({"$goal": whole}),
            false => value.clone(),
        };
        self.charge(size_bytes(&value), at)?;
        Ok(value)
    }

    fn goal(&mut self, pointer: &str, at: &str) -> Result<Value, Fault> {
        let found = self.input.and_then(|input| input.pointer(pointer));
        let Some(value) = found else {
            let message = format!("the goal has no {pointer:?}");
            return Err(invalid(message, at));
        };
        self.charge(size_bytes(value), at)?;
        Ok(value.clone())
    }

    fn reference(
        &mut self,
        name: &str,
        pointer: Option<&Value>,
        spot: Spot<'_>,
        at: &str,
    ) -> Result<Value, Fault> {
        let to = |id: &StepId| match pointer {
            Some(p) => json!({"$step": id, "at": p}),
            None => json!({"$step": id}),
        };
        let value = match self.layout.places.get(name) {
            None => {
                let message = format!("there is no step {name:?} to refer to");
                return Err(invalid(message, at));
            }
            Some(Place::LeftOut) => return Err(left_out(name, spot, at)),
            Some(Place::One(id)) => to(id),
            Some(Place::Each { over, ids }) => match paired(spot, over) {
                // Both go through the same array, so the number is there.
                Some(n) => ids.get(n).map_or(Value::Null, to),
                None => Value::Array(ids.iter().map(to).collect()),
            },
        };
        self.charge(size_bytes(&value), at)?;
        Ok(value)
    }
}

fn left_out(name: &str, spot: Spot<'_>, at: &str) -> Fault {
    let who = match spot.step {
        Some(step) => format!("step {}", step.body.id),
        None => "the result".to_owned(),
    };
    let message = format!("{who} refers to step {name}, which is left out for this goal");
    invalid(message, at)
}

/// The element whose twin is meant: both steps go through the same array.
fn paired(spot: Spot<'_>, over: &str) -> Option<usize> {
    let each = spot.step?.for_each.as_ref()?;
    spot.element.filter(|_| each.goal == over)
}

fn looks_like_reference(v: &Value) -> bool {
    match v {
        Value::Array(items) => items.iter().any(looks_like_reference),
        Value::Object(map) => {
            map.keys().any(|k| k.starts_with('$')) || map.values().any(looks_like_reference)
        }
        _ => false,
    }
}
