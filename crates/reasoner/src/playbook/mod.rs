//! Provider `playbook`: instantiates a plan template that a person wrote.
//!
//! ```json
//! {"parameters": {"from": {"$goal": "/date_range/from"}},
//!  "steps": [
//!    {"id": "fetch", "tool": "sales_rows", "for_each": {"goal": "/products", "as": "product"},
//!     "args": {"product": {"$item": "/sku"}, "from": {"$param": "from"}}},
//!    {"id": "mail", "tool": "send_mail", "when": {"goal": "/mail_to", "exists": true},
//!     "args": {"to": {"$goal": "/mail_to"}, "rows": {"$step": "fetch", "at": "/rows"}}}],
//!  "result": {"rows": {"$step": "fetch", "at": "/rows"}}}
//! ```
//!
//! | form | what becomes of it |
//! |---|---|
//! | `{"$param": "from"}` | the parameter's template; parameters do not nest |
//! | `when` | `{"goal": pointer}` with one of `equals`, `exists`, `schema`, on the effective input; a step left out also leaves the others' `after`, and referring to it is a fault |
//! | `for_each` | the step once for each element (at most [`ELEMENTS_MAX`]), ids `fetch-0`, `fetch-1`, … |
//! | `{"$item": "/sku"}` | that part of the element; where it looks like a reference itself, a `$goal` reference to it |
//! | `$step` or `after` naming a `for_each` step | from a step over the same array the twin with the same number; from elsewhere all of them (for `$step`, an array) |
//! | `$goal` in an expectation's schema | the value: nobody later takes a schema for a template |
//! | `$goal`, `$step`, `$meta`, `$concat` elsewhere | stay for the orchestrator |
//!
//! A new plan after a failure (revision *n* > 1) has ids with the suffix `-r<n>`; what
//! ended well in an earlier revision is referred to instead of done again. That is
//! only so while the steps were made from the same input and this playbook: once the
//! goal was amended, or another planner made that revision, everything is planned
//! anew (an effect that happened is not repeated then either: its identity binds it).
//!
//! Promises: the same snapshot gives the same bytes; what comes from the goal's input
//! is never taken for a template; no model, no network, no tokens.
//!
//! Must never know: a clock, a random source, the network.

mod book;
mod condition;
mod layout;
mod lint;
mod render;
#[cfg(test)]
mod tests;

pub use book::STEPS_MAX;
pub use layout::ELEMENTS_MAX;
pub use lint::lint;
pub use render::PLAN_BYTES_MAX;

use crate::provider::Provider;
use async_trait::async_trait;
use book::{Book, invalid};
use detent_protocol::messages::{PlanAnswer, PlanRequest, Snapshot};
use detent_protocol::{Code, Fault};
use layout::{Before, Layout};
use render::Render;
use serde_json::Value;

/// Name of the provider that is always there.
pub const NAME: &str = "playbook";

/// Instantiates the agent's playbook. See the [module](self).
#[derive(Debug, Clone, Copy, Default)]
pub struct Playbook;

#[async_trait]
impl Provider for Playbook {
    async fn plan(&self, request: &PlanRequest) -> Result<PlanAnswer, Fault> {
        let plan = instantiate(&request.snapshot, request.revision)?;
        Ok(PlanAnswer {
            plan,
            tokens: 0,
            trusted: true,
        })
    }
}

/// The plan of `snapshot.playbook` for the snapshot's effective input.
///
/// Fails with [`Code::ModelUnavailable`] where the agent has no playbook and with
/// [`Code::PlanInvalid`], placed by a JSON pointer into the playbook, where the
/// playbook or what it needs of the goal is wrong.
pub fn instantiate(snapshot: &Snapshot, revision: u32) -> Result<Value, Fault> {
    let Some(playbook) = &snapshot.playbook else {
        let message = "the agent has no playbook";
        return Err(Fault::new(Code::ModelUnavailable, message));
    };
    let book = Book::parse(playbook).map_err(first)?;
    let reuse = revision > 1 && snapshot.amendments.is_empty();
    let before = Before {
        revision,
        steps: if reuse { &snapshot.steps } else { &[] },
    };
    let input = effective_input(snapshot);
    let layout = Layout::new(&book, Some(input), before)?;
    let plan = Render {
        book: &book,
        layout: &layout,
        input: Some(input),
        bytes_left: PLAN_BYTES_MAX,
    }
    .plan()?;
    serde_json::to_value(&plan).map_err(|e| invalid(format!("can't be written: {e}"), ""))
}

/// The input with its amendments; null where there are none stands for the input.
fn effective_input(snapshot: &Snapshot) -> &Value {
    if snapshot.effective_input.is_null() && snapshot.amendments.is_empty() {
        return &snapshot.input;
    }
    &snapshot.effective_input
}

fn first(faults: Vec<Fault>) -> Fault {
    // A playbook that can't be read says at least one thing that is wrong.
    let mut faults = faults.into_iter();
    faults.next().unwrap_or_else(|| invalid("unreadable", ""))
}
