//! Which steps a plan gets, and under which ids.
//!
//! Promises: the same playbook, input and earlier steps give the same ids; no id is
//! given twice. Must never know: arguments.

use super::book::{Book, BookStep, STEPS_MAX, invalid};
use detent_protocol::messages::StepView;
use detent_protocol::{Fault, StepId, ToolName};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most elements of an array that `for_each` goes through.
pub const ELEMENTS_MAX: usize = 256;

/// Where a step of the playbook went.
#[derive(Debug)]
pub(super) enum Place {
    /// Its condition is not met.
    LeftOut,
    /// One step of the plan, or of an earlier revision.
    One(StepId),
    /// One for each element of the array at `over`.
    Each { over: String, ids: Vec<StepId> },
}

/// One step of the plan to be.
#[derive(Debug)]
pub(super) struct Instance<'a> {
    /// What it is made from.
    pub(super) step: &'a BookStep,
    /// Its number in the playbook.
    pub(super) number: usize,
    /// Its id in the plan.
    pub(super) id: StepId,
    /// Number of the element.
    pub(super) element: Option<usize>,
}

/// All steps: what is to be planned, and where references lead.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) instances: Vec<Instance<'a>>,
    pub(super) places: BTreeMap<&'a str, Place>,
}

/// What went before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before<'a> {
    /// Revision that the plan will have, from 1.
    pub(super) revision: u32,
    /// Steps of earlier revisions that were made from the same input.
    pub(super) steps: &'a [StepView],
}

/// The id without its revision's suffix, and that revision; 1 where there is none.
pub(super) fn split_revision(id: &str) -> (&str, u32) {
    let split = id.rsplit_once("-r").and_then(|(base, n)| {
        let n = (!n.starts_with('0')).then(|| n.parse::<u32>().ok())??;
        (!base.is_empty() && n > 1).then_some((base, n))
    });
    split.unwrap_or((id, 1))
}

/// A step before it has its final id.
struct Draft<'a> {
    step: &'a BookStep,
    number: usize,
    base: String,
    element: Option<usize>,
}

impl<'a> Layout<'a> {
    /// Lays the steps out for `input`; without one every condition is taken to hold
    /// and every array to have one element.
    pub(super) fn new(
        book: &'a Book,
        input: Option<&Value>,
        before: Before<'_>,
    ) -> Result<Self, Fault> {
        let mut drafts = Vec::new();
        let mut places = BTreeMap::new();
        for (number, step) in book.steps.iter().enumerate() {
            let wanted = step.when.as_ref().zip(input);
            if wanted.is_some_and(|(condition, input)| !condition.holds(input)) {
                places.insert(step.body.id.as_str(), Place::LeftOut);
                continue;
            }
            draft(step, number, input, &mut drafts)?;
        }
        if drafts.len() > STEPS_MAX {
            let message = format!("{} steps; at most {STEPS_MAX}", drafts.len());
            return Err(invalid(message, "/steps"));
        }
        let done = reusable(&drafts, before.steps)?;
        let mut layout = Self {
            instances: Vec::new(),
            places,
        };
        for draft in drafts {
            layout.place(draft, &done, before.revision)?;
        }
        // An array without elements gives no step, but is a place that may be named.
        for step in &book.steps {
            if let Some(each) = &step.for_each {
                let over = each.goal.clone();
                let none = Place::Each { over, ids: vec![] };
                layout.places.entry(step.body.id.as_str()).or_insert(none);
            }
        }
        Ok(layout)
    }

    fn place(
        &mut self,
        draft: Draft<'a>,
        done: &BTreeMap<String, StepId>,
        revision: u32,
    ) -> Result<(), Fault> {
        let earlier = done.get(&draft.base);
        let id = match earlier {
            Some(id) => id.clone(),
            None => final_id(&draft, revision)?,
        };
        let name = draft.step.body.id.as_str();
        match &draft.step.for_each {
            None => {
                self.places.insert(name, Place::One(id.clone()));
            }
            Some(each) => {
                let over = each.goal.clone();
                let empty = Place::Each { over, ids: vec![] };
                if let Place::Each { ids, .. } = self.places.entry(name).or_insert(empty) {
                    ids.push(id.clone());
                }
            }
        }
        if earlier.is_none() {
            self.instances.push(Instance {
                step: draft.step,
                number: draft.number,
                id,
                element: draft.element,
            });
        }
        Ok(())
    }
}

fn draft<'a>(
    step: &'a BookStep,
    number: usize,
    input: Option<&Value>,
    drafts: &mut Vec<Draft<'a>>,
) -> Result<(), Fault> {
    let id = &step.body.id;
    let Some(each) = &step.for_each else {
        drafts.push(Draft {
            step,
            number,
            base: id.to_string(),
            element: None,
        });
        return Ok(());
    };
    let elements = match input {
        None => 1,
        Some(input) => elements(input, &each.goal)
            .map_err(|m| invalid(m, format!("/steps/{number}/for_each/goal")))?,
    };
    drafts.extend((0..elements).map(|i| Draft {
        step,
        number,
        base: format!("{id}-{i}"),
        element: Some(i),
    }));
    Ok(())
}

fn elements(input: &Value, pointer: &str) -> Result<usize, String> {
    let Some(array) = input.pointer(pointer).and_then(Value::as_array) else {
        return Err(format!("the goal has no array at {pointer:?}"));
    };
    match array.len() {
        n if n <= ELEMENTS_MAX => Ok(n),
        n => Err(format!("{n} elements; for_each takes {ELEMENTS_MAX}")),
    }
}

fn final_id(draft: &Draft<'_>, revision: u32) -> Result<StepId, Fault> {
    let text = match revision {
        0 | 1 => draft.base.clone(),
        n => format!("{}-r{n}", draft.base),
    };
    StepId::new(text).map_err(|e| invalid(e.to_string(), format!("/steps/{}/id", draft.number)))
}

/// Steps that ended well in an earlier revision and need not be planned again, by
/// their id without the revision.
///
/// A step counts only when its whole revision was made from this playbook: another
/// planner may have used the same id for the same tool with other arguments.
fn reusable(drafts: &[Draft<'_>], earlier: &[StepView]) -> Result<BTreeMap<String, StepId>, Fault> {
    let mut tools: BTreeMap<&str, &ToolName> = BTreeMap::new();
    for d in drafts {
        if tools.insert(&d.base, &d.step.body.tool).is_some() {
            let message = format!("two steps get the id {}", d.base);
            return Err(invalid(message, format!("/steps/{}/id", d.number)));
        }
    }
    let ours = |view: &StepView| tools.get(split_revision(view.id.as_str()).0) == Some(&&view.tool);
    let foreign: BTreeSet<u32> = earlier
        .iter()
        .filter(|v| !ours(v))
        .map(|v| split_revision(v.id.as_str()).1)
        .collect();
    let mut latest: BTreeMap<String, (u32, StepId)> = BTreeMap::new();
    for view in earlier.iter().filter(|v| v.state == "done") {
        let (base, revision) = split_revision(view.id.as_str());
        let newer = latest.get(base).is_none_or(|(r, _)| *r < revision);
        if newer && !foreign.contains(&revision) {
            latest.insert(base.to_owned(), (revision, view.id.clone()));
        }
    }
    Ok(latest.into_iter().map(|(k, (_, id))| (k, id)).collect())
}

#[cfg(test)]
mod tests {
    use super::split_revision;

    #[test]
    fn a_revision_is_read_off_an_id() {
        for (id, want) in [
            ("fetch", ("fetch", 1)),
            ("fetch-r2", ("fetch", 2)),
            ("fetch-0-r12", ("fetch-0", 12)),
            ("fetch-r1", ("fetch-r1", 1)),
            ("fetch-r02", ("fetch-r02", 1)),
            ("fetch-rows", ("fetch-rows", 1)),
            ("-r2", ("-r2", 1)),
        ] {
            assert_eq!(split_revision(id), want);
        }
    }
}
