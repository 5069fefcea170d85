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
            for (k, e) in step.body.expect.iter().enumerate() {
                look(&e.params, &format!("/steps/{i}/expect/{k}/params"));
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::ToolName;
    use detent_protocol::agent::{AgentDef, Definition, ToolDef};
    use detent_protocol::effect::Effect;
    use serde_json::json;

    fn definition() -> Compiled {
        let tool = |name: &str, effect: Effect, input_schema: Value| {
            let def = json!({"name": name, "effect": effect, "kind": "process", "input_schema": input_schema});
            let def: ToolDef = serde_json::from_value(def).unwrap();
            (ToolName::new(name).unwrap(), def)
        };
        let number = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
        let agent: AgentDef = serde_json::from_value(json!({
            "name": "report", "input_schema": true, "result_schema": true, "tools": ["rows", "mail"]
        }))
        .unwrap();
        let tools = [
            tool("rows", Effect::Read, number),
            tool("mail", Effect::Once, json!(true)),
        ];
        Compiled::compile(Definition {
            agent,
            tools: tools.into_iter().collect(),
        })
        .unwrap()
    }

    #[test]
    fn lint_finds_nothing_in_a_sound_playbook() {
        let book = json!({
            "parameters": {"n": {"$goal": "/n"}},
            "steps": [
                {"id": "a", "tool": "rows", "for_each": {"goal": "/l"}, "args": {"n": {"$item": "/n"}}},
                {"id": "b", "tool": "mail", "when": {"goal": "/to", "exists": true}, "args": {"x": {"$step": "a"}},
                 "expect": [{"probe": "http", "params": {"url": {"$goal": "/url"}},
                             "schema": {"properties": {"status": {"const": 200}, "body": {"const": {"$goal": "/to"}}}, "required": ["status", "body"]}}]},
                {"id": "d", "tool": "rows", "args": {"n": {"$param": "n"}}, "after": ["b"]}],
            "result": {"x": {"$step": "a"}}
        });
        assert_eq!(lint(&book, &definition()), []);
    }

    #[test]
    fn lint_names_every_mistake_with_its_place() {
        let places = |book: Value| -> Vec<String> {
            let faults = lint(&book, &definition());
            faults.into_iter().map(|f| f.at.unwrap()).collect()
        };
        let book = json!({"steps": [
        {"id": "a", "tool": "rows", "wehn": 1},
        {"id": "b", "tool": "rows", "expect": [{"probe": "output", "schema": {}, "x": 1}]}],
        "result": {}, "extra": 1});
        assert_eq!(
            places(book),
            ["/extra", "/steps/0/wehn", "/steps/1/expect/0/x"]
        );
        let book = json!({"steps": [
        {"id": "a", "tool": "ghost"},
        {"id": "b", "tool": "rows", "args": {"n": "text"}},
        {"id": "c", "tool": "mail"}],
        "result": {"x": {"$step": "a"}}});
        assert_eq!(
            places(book),
            ["/steps/0/tool", "/steps/1/args/n", "/steps/2/expect"]
        );
        let book = json!({"steps": [
        {"id": "a", "tool": "rows", "after": ["b"]}, {"id": "b", "tool": "rows", "after": ["a"]}],
        "result": {"x": {"$step": "a"}}});
        assert_eq!(places(book), ["/steps"]);
        let book = json!({"steps": [
        {"id": "a", "tool": "rows", "args": {"n": {"$param": "p"}}},
        {"id": "b", "tool": "rows", "args": {"n": {"$step": "ghost"}}}],
        "result": {"x": {"$item": "/a"}}});
        assert_eq!(
            places(book),
            ["/steps/0/args/n", "/steps/1/args/n", "/result/x"]
        );
        let book = json!({"steps": [
        {"id": "a", "tool": "rows", "when": {"goal": "/x", "exists": true}},
        {"id": "b", "tool": "rows", "args": {"n": {"$step": "a"}}}],
        "result": {"x": {"$step": "b"}}});
        assert_eq!(places(book), ["/steps/1/args"]);
    }
}
