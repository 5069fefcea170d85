//! A playbook as it is written: read once, with every mistake and its place.
//!
//! Must never know: a goal.

use super::condition::Condition;
use super::layout::split_revision;
use detent_protocol::expect::Expectation;
use detent_protocol::json::{is_pointer, pointer_escape};
use detent_protocol::{Code, Fault, StepId, ToolName};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most steps of a playbook, and of the plan made from it.
pub const STEPS_MAX: usize = 1000;

const BOOK_KEYS: &[&str] = &["parameters", "steps", "result"];
const STEP_KEYS: &[&str] = &[
    "id",
    "tool",
    "args",
    "after",
    "delay_seconds",
    "expect",
    "repeat",
    "when",
    "for_each",
];
const EXPECT_KEYS: &[&str] = &["probe", "params", "schema", "absent", "output_at"];
const FOR_EACH_KEYS: &[&str] = &["goal", "as"];

/// A playbook.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) parameters: BTreeMap<String, Value>,
    pub(super) steps: Vec<BookStep>,
    pub(super) result: Value,
}

/// A step of a playbook.
#[derive(Debug)]
pub(super) struct BookStep {
    pub(super) body: Body,
    pub(super) when: Option<Condition>,
    pub(super) for_each: Option<ForEach>,
}

/// What of a step goes into the plan.
#[derive(Debug, Deserialize)]
pub(super) struct Body {
    pub(super) id: StepId,
    pub(super) tool: ToolName,
    #[serde(default = "empty_object")]
    pub(super) args: Value,
    #[serde(default)]
    pub(super) after: Vec<StepId>,
    #[serde(default)]
    pub(super) delay_seconds: u64,
    #[serde(default)]
    pub(super) expect: Vec<Expectation>,
    #[serde(default)]
    pub(super) repeat: bool,
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

/// One step for each element of an array in the input.
#[derive(Debug, Deserialize)]
pub(super) struct ForEach {
    /// JSON pointer of the array.
    pub(super) goal: String,
    /// What one element is called, for people.
    #[serde(default = "item", rename = "as")]
    pub(super) name: String,
}

fn item() -> String {
    "item".to_owned()
}

/// A fault at a place in the playbook; the whole of it is shown as `/`.
pub(super) fn invalid(message: impl Into<String>, at: impl Into<String>) -> Fault {
    let at: String = at.into();
    let at = if at.is_empty() { "/".into() } else { at };
    Fault::new(Code::PlanInvalid, message).at(at)
}

impl Book {
    /// Reads a playbook; on failure everything that was found wrong, in its order.
    pub(super) fn parse(value: &Value) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let book = Self::read(value, &mut faults);
        match book {
            Some(book) if faults.is_empty() => Ok(book),
            _ => Err(faults),
        }
    }

    fn read(value: &Value, faults: &mut Vec<Fault>) -> Option<Self> {
        let Some(map) = value.as_object() else {
            faults.push(invalid("a playbook is an object with steps and result", ""));
            return None;
        };
        unknown_keys(map, BOOK_KEYS, "", faults);
        let parameters = parameters(map, faults);
        let steps = steps(map, faults);
        let result = map.get("result").cloned();
        if result.is_none() {
            faults.push(invalid("a playbook has a result", "/result"));
        }
        duplicates(&steps, faults);
        Some(Self {
            parameters,
            steps: steps.into_iter().map(|(_, s)| s).collect(),
            result: result?,
        })
    }
}

fn unknown_keys(map: &Map<String, Value>, known: &[&str], at: &str, faults: &mut Vec<Fault>) {
    for key in map.keys().filter(|k| !known.contains(&k.as_str())) {
        let message = format!("unknown key; there are {}", known.join(", "));
        faults.push(invalid(message, format!("{at}/{}", pointer_escape(key))));
    }
}

fn parameters(map: &Map<String, Value>, faults: &mut Vec<Fault>) -> BTreeMap<String, Value> {
    match map.get("parameters") {
        None => BTreeMap::new(),
        Some(Value::Object(p)) => p.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        Some(_) => {
            faults.push(invalid("takes an object of templates", "/parameters"));
            BTreeMap::new()
        }
    }
}

fn steps(map: &Map<String, Value>, faults: &mut Vec<Fault>) -> Vec<(usize, BookStep)> {
    let Some(steps) = map.get("steps").and_then(Value::as_array) else {
        faults.push(invalid("a playbook has an array of steps", "/steps"));
        return Vec::new();
    };
    if steps.len() > STEPS_MAX {
        let message = format!("{} steps; at most {STEPS_MAX}", steps.len());
        faults.push(invalid(message, "/steps"));
        return Vec::new();
    }
    let steps = steps.iter().enumerate();
    steps
        .filter_map(|(i, v)| Some((i, step(v, &format!("/steps/{i}"), faults)?)))
        .collect()
}

fn step(value: &Value, at: &str, faults: &mut Vec<Fault>) -> Option<BookStep> {
    let Some(map) = value.as_object() else {
        faults.push(invalid("a step is an object", at));
        return None;
    };
    unknown_keys(map, STEP_KEYS, at, faults);
    let before = faults.len();
    expect_keys(map, at, faults);
    if faults.len() > before {
        // Said already; reading the step would say it once more.
        return None;
    }
    let when = map.get("when").and_then(|c| {
        let placed = |f: Fault| {
            let inner = f.at.clone().unwrap_or_default();
            f.at(format!("{at}/when{inner}"))
        };
        let parsed = Condition::parse(c).map_err(placed);
        parsed.map_err(|f| faults.push(f)).ok()
    });
    let for_each = map
        .get("for_each")
        .and_then(|v| for_each(v, &format!("{at}/for_each"), faults));
    let body = body(map, at).map_err(|f| faults.push(f)).ok()?;
    Some(BookStep {
        body,
        when,
        for_each,
    })
}

fn body(map: &Map<String, Value>, at: &str) -> Result<Body, Fault> {
    let fields = map.iter();
    let fields = fields.filter(|(k, _)| !["when", "for_each"].contains(&k.as_str()));
    let fields: Map<_, _> = fields.map(|(k, v)| (k.clone(), v.clone())).collect();
    let body: Body = serde_json::from_value(Value::Object(fields))
        .map_err(|e| invalid(format!("not a step: {e}"), at))?;
    if split_revision(body.id.as_str()).1 > 1 {
        let message = format!("step id {} ends as a revision's suffix does", body.id);
        return Err(invalid(message, format!("{at}/id")));
    }
    Ok(body)
}

fn expect_keys(map: &Map<String, Value>, at: &str, faults: &mut Vec<Fault>) {
    let expect = map.get("expect").and_then(Value::as_array);
    for (i, e) in expect.into_iter().flatten().enumerate() {
        if let Some(map) = e.as_object() {
            unknown_keys(map, EXPECT_KEYS, &format!("{at}/expect/{i}"), faults);
        }
    }
}

fn for_each(value: &Value, at: &str, faults: &mut Vec<Fault>) -> Option<ForEach> {
    if let Some(map) = value.as_object() {
        unknown_keys(map, FOR_EACH_KEYS, at, faults);
    }
    let parsed = ForEach::deserialize(value)
        .map_err(|e| invalid(format!("not a for_each: {e}"), at))
        .and_then(|f| match is_pointer(&f.goal) {
            true => Ok(f),
            false => {
                let message = "a JSON pointer is empty or starts with /";
                Err(invalid(message, format!("{at}/goal")))
            }
        });
    parsed.map_err(|f| faults.push(f)).ok()
}

fn duplicates(steps: &[(usize, BookStep)], faults: &mut Vec<Fault>) {
    let mut first: BTreeMap<&StepId, usize> = BTreeMap::new();
    for (i, step) in steps {
        let id = &step.body.id;
        if let Some(earlier) = first.insert(id, *i) {
            let message = format!("step id {id} stands at /steps/{earlier} too");
            faults.push(invalid(message, format!("/steps/{i}/id")));
        }
    }
}
