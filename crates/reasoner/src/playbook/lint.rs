//! Checks a playbook before any goal: what `detent tools lint` says about it.
//!
//! Must never know: an input. What depends on one is taken to be right.

use super::book::{Book, invalid};
use super::layout::{Before, Layout};
use super::render::{PLAN_BYTES_MAX, Render};
use detent_protocol::agent::Compiled;
use detent_protocol::plan::{Plan, PlanContext};
use detent_protocol::{Fault, template};
use serde_json::Value;

/// Everything that is wrong with `playbook` whatever the goal; places are JSON
/// pointers into it. Empty: nothing was found.
///
/// The plan is made as if every condition held and every array had one element, and
/// then checked like any plan of the agent in `definition`: its tools, their
/// arguments, references, cycles, expectations.
pub fn lint(playbook: &Value, definition: &Compiled) -> Vec<Fault> {
    let book = match Book::parse(playbook) {
        Ok(book) => book,
        Err(faults) => return faults,
    };
    let before = Before {
        revision: 1,
        steps: &[],
    };
    let layout = match Layout::new(&book, None, before) {
        Ok(layout) => layout,
        Err(fault) => return vec![fault],
    };
    let mut faults = dangling(&book);
    match plan(&book, &layout) {
        Ok(plan) => faults.extend(plan.violations(&PlanContext {
            definition,
            used: &|_| false,
            done: &|_| false,
            trusted: true,
        })),
        Err(found) => faults.extend(found),
    }
    faults
}

/// The plan, or everything that can't be rendered.
fn plan(book: &Book, layout: &Layout<'_>) -> Result<Plan, Vec<Fault>> {
    let mut render = Render {
        book,
        layout,
        input: None,
        bytes_left: PLAN_BYTES_MAX,
    };
    let mut faults = Vec::new();
    let mut steps = Vec::new();
    for instance in &layout.instances {
        match render.step(instance) {
            Ok(step) => steps.push(step),
            Err(fault) => faults.push(fault),
        }
    }
    match render.result() {
        Ok(result) if faults.is_empty() => Ok(Plan { steps, result }),
        Ok(_) => Err(faults),
        Err(fault) => {
            faults.push(fault);
            Err(faults)
        }
    }
}

/// References from what is always there to what is there only sometimes.
fn dangling(book: &Book) -> Vec<Fault> {
    let conditional = |id: &str| {
        let mut steps = book.steps.iter();
        steps.any(|s| s.when.is_some() && s.body.id.as_str() == id)
    };
    let mut faults = Vec::new();
    let mut look = |template: &Value, at: &str| {
        let mut found = Vec::new();
        references(template, 0, &mut found);
        faults.extend(found.into_iter().filter(|id| conditional(id)).map(|id| {
            let message = format!("refers to step {id}, which its condition may leave out");
            invalid(message, at)
        }));
    };
    for (i, step) in book.steps.iter().enumerate() {
        if step.when.is_none() {
            look(&step.body.args, &format!("/steps/{i}/args"));
        }
    }
    look(&book.result, "/result");
    faults
}

/// Steps that are referred to; unlike the protocol's own walk it reads past the
/// references that only a playbook has.
fn references<'a>(v: &'a Value, depth: usize, found: &mut Vec<&'a str>) {
    match v {
        _ if depth > template::DEPTH_MAX => {}
        Value::Array(items) => items.iter().for_each(|v| references(v, depth + 1, found)),
        Value::Object(map) => {
            found.extend(map.get("$step").and_then(Value::as_str));
            map.values().for_each(|v| references(v, depth + 1, found));
        }
        _ => {}
    }
}
