//! A plan: a graph of steps, and the checks it has to pass before anything runs.

use crate::agent::Compiled;
use crate::error::{Code, Fault};
use crate::expect::Expectation;
use crate::ids::{StepId, ToolName};
use crate::json;
use crate::template::{self, Reference};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Longest relative delay, seconds: 30 days.
pub const DELAY_SECONDS_MAX: u64 = 30 * 86_400;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// New in this goal.
    pub id: StepId,
    /// Tool to call.
    pub tool: ToolName,
    /// Arguments; a [`template`] over `$goal`, `$step` and `$meta`.
    #[serde(default = "empty_object")]
    pub args: Value,
    /// Steps that have to end well first, beside those that `args` refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepId>,
    /// Wait before the start, seconds, from the moment its predecessors are done.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_seconds: u64,
    /// What must be seen afterwards, beside the tool's own probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expectation>,
    /// Do the same effect once more, on purpose. Needs the agent's permission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeat: bool,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its steps, in any order.
    pub steps: Vec<Step>,
    /// The result's data; a [`template`] over `$goal`, `$step` and `$meta`.
    pub result: Value,
}

/// What a plan is checked against.
pub struct PlanContext<'a> {
    /// The goal's definition.
    pub definition: &'a Compiled,
    /// Step ids that earlier revisions used.
    pub used: &'a dyn Fn(&StepId) -> bool,
    /// Of these, the ones that ended well: the plan may refer to their output.
    pub done: &'a dyn Fn(&StepId) -> bool,
    /// Was it written by a person (a playbook)? A model's result may hold no literals.
    pub trusted: bool,
}

/// Names under which planners like to put points in time. Delays are relative here,
/// so that a late node does not act on a moment that has passed.
const ABSOLUTE: [&str; 9] = [
    "at",
    "run_at",
    "start_at",
    "not_before",
    "when",
    "until",
    "deadline",
    "time",
    "schedule",
];

/// Reads a plan from JSON, with a [`Fault`] that names the place.
pub fn parse(value: &Value) -> Result<Plan, Fault> {
    let steps = value.get("steps").and_then(Value::as_array);
    for (i, step) in steps.into_iter().flatten().enumerate() {
        refuse_absolute_time(step, i)?;
    }
    if value.get("done").is_some() && value.get("steps").is_none() {
        let message = "says done, but has no steps that could be observed";
        return Err(Fault::new(Code::ModelFalseClaim, message).at("/done"));
    }
    Plan::deserialize(value)
        .map_err(|e| Fault::new(Code::ModelMalformed, format!("not a plan: {e}")).at("/"))
}

fn refuse_absolute_time(step: &Value, i: usize) -> Result<(), Fault> {
    let fault = |at: String| {
        let message = "absolute times are refused; use delay_seconds (whole seconds, relative)";
        Err(Fault::new(Code::PlanInvalid, message).at(at))
    };
    let Some(map) = step.as_object() else {
        return Ok(());
    };
    if let Some(key) = ABSOLUTE.iter().find(|k| map.contains_key(**k)) {
        return fault(format!("/steps/{i}/{key}"));
    }
    match map.get("delay_seconds") {
        None => Ok(()),
        Some(v) if v.is_u64() => Ok(()),
        Some(_) => fault(format!("/steps/{i}/delay_seconds")),
    }
}

impl Plan {
    /// Everything that is wrong with the plan (invariant I11); empty means that it
    /// may be executed.
    pub fn violations(&self, cx: &PlanContext<'_>) -> Vec<Fault> {
        let mut found = Vec::new();
        let ids: BTreeSet<&StepId> = self.steps.iter().map(|s| &s.id).collect();
        let mut push = |i: usize, f: Fault| {
            let inner = f.at.clone().unwrap_or_default();
            found.push(f.at(format!("/steps/{i}{inner}")));
        };
        let mut seen = BTreeSet::new();
        for (i, step) in self.steps.iter().enumerate() {
            if !seen.insert(&step.id) || (cx.used)(&step.id) {
                let message = format!("step id {} was used before", step.id);
                push(i, Fault::new(Code::PlanInvalid, message).at("/id"));
            }
            for fault in step.violations(cx, &ids) {
                push(i, fault);
            }
        }
        if let Some(fault) = self.size_violation(cx) {
            found.push(fault);
        }
        found.extend(self.cycle());
        found.extend(self.result_violations(cx, &ids));
        found
    }

    fn size_violation(&self, cx: &PlanContext<'_>) -> Option<Fault> {
        let max = cx.definition.agent().policy.steps_max as usize;
        if self.steps.len() > max {
            let message = format!("{} steps; the agent allows {max}", self.steps.len());
            return Some(Fault::new(Code::PlanInvalid, message).at("/steps"));
        }
        None
    }

    /// Names the steps that wait for one another, if any do.
    fn cycle(&self) -> Option<Fault> {
        let edges = self.edges();
        let mut dependents: BTreeMap<&StepId, Vec<&StepId>> = BTreeMap::new();
        for (id, deps) in &edges {
            for dep in deps {
                dependents.entry(dep).or_default().push(id);
            }
        }
        let mut left: BTreeMap<_, usize> =
            edges.iter().map(|(id, deps)| (id, deps.len())).collect();
        let mut ready: Vec<_> = left
            .iter()
            .filter(|(_, n)| **n == 0)
            .map(|(id, _)| *id)
            .collect();
        while let Some(id) = ready.pop() {
            left.remove(id);
            for other in dependents.get(id).into_iter().flatten() {
                if let Some(n) = left.get_mut(other) {
                    *n -= 1;
                    if *n == 0 {
                        ready.push(other);
                    }
                }
            }
        }
        if left.is_empty() {
            return None;
        }
        let names: Vec<_> = left.keys().map(|id| id.as_str()).collect();
        let message = format!("these steps wait for one another: {}", names.join(", "));
        Some(Fault::new(Code::PlanInvalid, message).at("/steps"))
    }

    /// Which steps of this plan each step waits for.
    pub fn edges(&self) -> BTreeMap<StepId, BTreeSet<StepId>> {
        let ids: BTreeSet<_> = self.steps.iter().map(|s| &s.id).collect();
        let deps = |s: &Step| {
            let deps = s.needs().into_iter();
            deps.filter(|d| ids.contains(d)).collect()
        };
        self.steps.iter().map(|s| (s.id.clone(), deps(s))).collect()
    }

    fn result_violations(&self, cx: &PlanContext<'_>, ids: &BTreeSet<&StepId>) -> Vec<Fault> {
        let mut found = Vec::new();
        let mut steps = 0;
        let walked = template::walk(&self.result, &mut |r, at| {
            let at = format!("/result{at}");
            match r {
                Reference::Step(id, _) if ids.contains(&id) || (cx.done)(&id) => steps += 1,
                Reference::Step(id, _) => found.push(missing_step(&id, &at)),
                Reference::Args(_) | Reference::Output(_) => {
                    let message = "$args and $output belong to expectations";
                    found.push(Fault::new(Code::PlanInvalid, message).at(at));
                }
                Reference::Goal(_) | Reference::Meta(_) => {}
            }
        });
        if let Err(f) = walked {
            let inner = f.at.clone().unwrap_or_default();
            found.push(f.at(format!("/result{inner}")));
            return found;
        }
        if steps == 0 {
            let message = "the result rests on no step: only what was observed counts";
            found.push(Fault::new(Code::ModelFalseClaim, message).at("/result"));
        } else if !cx.trusted
            && let Some(at) = literal_in(&self.result, "/result")
        {
            let message = "a model's result holds references only, no values of its own";
            found.push(Fault::new(Code::ModelFalseClaim, message).at(at));
        }
        found
    }
}

/// The place of a value that stands in `template` itself, also as part of a text.
fn literal_in(template: &Value, at: &str) -> Option<String> {
    match template {
        Value::Number(_) | Value::String(_) | Value::Bool(_) => Some(at.to_owned()),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(i, v)| literal_in(v, &format!("{at}/{i}")))
        }
        Value::Object(map) if map.contains_key("$concat") => literal_in(&map["$concat"], at),
        Value::Object(map) if map.keys().any(|k| k.starts_with('$')) => None,
        Value::Object(map) => map
            .iter()
            .find_map(|(k, v)| literal_in(v, &format!("{at}/{}", json::pointer_escape(k)))),
        Value::Null => None,
    }
}

fn missing_step(id: &StepId, at: &str) -> Fault {
    let message = format!("there is no step {id} to refer to");
    Fault::new(Code::ModelHallucination, message).at(at)
}

impl Step {
    /// Steps it waits for: named in `after` or referred to.
    pub fn needs(&self) -> BTreeSet<StepId> {
        let mut needs: BTreeSet<_> = self.after.iter().cloned().collect();
        // A malformed template was reported by `violations`; here it refers to nothing.
        needs.extend(template::steps_of(&self.args).unwrap_or_default());
        for e in &self.expect {
            needs.extend(template::steps_of(&e.params).unwrap_or_default());
        }
        needs
    }

    fn violations(&self, cx: &PlanContext<'_>, ids: &BTreeSet<&StepId>) -> Vec<Fault> {
        let mut found = Vec::new();
        for id in self.needs() {
            if !ids.contains(&id) && !(cx.done)(&id) {
                found.push(missing_step(&id, ""));
            }
        }
        if self.delay_seconds > DELAY_SECONDS_MAX {
            let message = format!("at most {DELAY_SECONDS_MAX} seconds");
            found.push(Fault::new(Code::PlanInvalid, message).at("/delay_seconds"));
        }
        if self.repeat && !cx.definition.agent().policy.allow_repeat {
            let message = "the agent may not repeat effects (policy.allow_repeat)";
            found.push(Fault::new(Code::PolicyDenied, message).at("/repeat"));
        }
        let tool = cx.definition.tool(&self.tool);
        let Some(tool) = tool.filter(|_| cx.definition.may_plan(&self.tool)) else {
            let known: Vec<_> = cx
                .definition
                .agent()
                .tools
                .iter()
                .map(ToolName::as_str)
                .collect();
            let message = format!("no tool {}; there are {}", self.tool, known.join(", "));
            found.push(Fault::new(Code::ModelHallucination, message).at("/tool"));
            return found;
        };
        found.extend(self.args_violation(&tool.input));
        found.extend(self.expectation_violations(cx, tool));
        found
    }

    fn expectation_violations(
        &self,
        cx: &PlanContext<'_>,
        tool: &crate::agent::CompiledTool,
    ) -> Vec<Fault> {
        let mut found = Vec::new();
        let has_effect = tool.def.effect.has_slot();
        for (i, e) in self.expect.iter().enumerate() {
            let mut push = |f: Fault| {
                let inner = f.at.clone().unwrap_or_default();
                found.push(f.at(format!("/expect/{i}{inner}")));
            };
            if let Err(f) = e.lint(has_effect) {
                push(f);
            }
            if !cx.trusted
                && let Err(f) = e.may_be_untrusted()
            {
                push(f);
            }
        }
        let known = tool.def.probe.is_some();
        if !cx.trusted
            && let Some(unproven) = cx.definition.unproven(&self.tool)
        {
            let message = format!(
                "{unproven} changes the world and its registry entry has no probe: a model may \
                 not say what proves it"
            );
            found.push(Fault::new(Code::PolicyDenied, message).at("/tool"));
        } else if has_effect && !known && self.expect.is_empty() {
            let message = format!(
                "{} changes the world, so something must be expected of it",
                self.tool
            );
            found.push(Fault::new(Code::ExpectationTrivial, message).at("/expect"));
        }
        found
    }

    /// Arguments without references are checked now; the rest when they are resolved.
    fn args_violation(&self, contract: &crate::contract::Contract) -> Option<Fault> {
        let mut foreign = false;
        let walked = template::walk(&self.args, &mut |r, _| {
            foreign |= matches!(r, Reference::Args(_) | Reference::Output(_));
        });
        if let Err(f) = walked {
            let inner = f.at.clone().unwrap_or_default();
            return Some(f.at(format!("/args{inner}")));
        }
        if foreign {
            let message = "$args and $output belong to expectations";
            return Some(Fault::new(Code::PlanInvalid, message).at("/args"));
        }
        if template::has_references(&self.args) {
            return None;
        }
        let fault = contract
            .check_as(Code::ModelHallucination, &self.args)
            .err()?;
        let inner = fault.at.clone().unwrap_or_default();
        let inner = if inner == "/" { "" } else { &inner };
        Some(fault.clone().at(format!("/args{inner}")))
    }
}
