//! What a planner gets to see.

use super::Turn;
use crate::state::{Status, StepState};
use detent_protocol::budget::Amount;
use detent_protocol::claim::Claim;
use detent_protocol::json;
use detent_protocol::messages::{Snapshot, StepView, ToolView};
use serde_json::{Value, json};

/// Most bytes of step outputs in a snapshot, as JSON. The goal with its amendments
/// comes on top and is never cut.
pub(crate) const OUTPUTS_BYTES_MAX: usize = 128 * 1024;
/// Largest output of one step that is shown whole, bytes.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

impl Turn<'_> {
    pub(super) fn snapshot(&self, provider: &str) -> Snapshot {
        // A template needs no schemas, and a model no template.
        let model = provider != super::plan::PLAYBOOK;
        let agent = self.cx.definition.agent();
        let budget = &self.state.budget;
        let (steps, pruned) = self.step_views();
        let limits = Amount {
            plan_calls: budget.limits.plan_calls,
            tokens: budget.limits.tokens,
            tool_calls: budget.limits.tool_calls,
            money_micros: budget.limits.money_micros,
        };
        Snapshot {
            agent: agent.name.clone(),
            description: agent.description.clone(),
            input: self.state.input.as_ref().clone(),
            amendments: self.state.amendments.clone(),
            effective_input: self.effective_input(model),
            result_schema: if model {
                agent.result_schema.clone()
            } else {
                Value::Null
            },
            tools: if model { self.tool_views() } else { Vec::new() },
            steps,
            violations: self.state.violations.clone(),
            playbook: if model { None } else { agent.playbook.clone() },
            budget_left: limits.minus(budget.committed),
            pruned,
        }
    }

    /// The input with its amendments. For a model without any it is null, which means
    /// "the same as `input`": a large goal is not sent twice. A playbook always gets it.
    fn effective_input(&self, model: bool) -> Value {
        if model && self.state.amendments.is_empty() {
            return Value::Null;
        }
        self.state.effective.as_ref().clone()
    }

    fn tool_views(&self) -> Vec<ToolView> {
        let tools = self.cx.definition.tools();
        let tools = tools.filter(|t| self.cx.definition.may_plan(&t.def.name));
        tools
            .map(|t| ToolView {
                name: t.def.name.clone(),
                description: t.def.description.clone(),
                effect: t.def.effect,
                input_schema: t.def.input_schema.clone(),
            })
            .collect()
    }

    fn step_views(&self) -> (Vec<StepView>, u32) {
        let mut left = OUTPUTS_BYTES_MAX;
        let mut pruned = 0;
        let mut views: Vec<_> = self.state.steps.values().collect();
        // The latest revision first: where not all fits, the old outputs go.
        views.sort_by_key(|s| std::cmp::Reverse(s.revision));
        let views = views.into_iter().map(|s| {
            let (output, bytes) = shown(s, left);
            left = left.saturating_sub(bytes);
            let cut = |key: &str| output.get(key).is_some();
            pruned += u32::from(cut("pruned_bytes") || cut("claimed_bytes"));
            view(s, output)
        });
        (views.collect(), pruned)
    }
}

/// The output whole where it fits, else its size and digest. Of one that is kept as a
/// body its small members, where they fit.
fn shown(s: &StepState, left: usize) -> (Value, usize) {
    let Some(output) = &s.output else {
        return (Value::Null, 0);
    };
    let claim = Claim::of(output);
    let summary = claim.as_ref().map(Claim::summary);
    let shown = summary.as_ref().unwrap_or(output);
    let bytes = json::size_bytes(shown);
    if bytes <= OUTPUT_BYTES_MAX.min(left) {
        return (shown.clone(), bytes);
    }
    let (bytes, digest) = match claim {
        Some(claim) => (claim.bytes, claim.value),
        None => (bytes as u64, json::Digest::of_json(output)),
    };
    (json!({"pruned_bytes": bytes, "digest": digest.short()}), 0)
}

/// A step for planners and for people.
pub(crate) fn view(s: &StepState, output: Value) -> StepView {
    let (state, fault) = match &s.status {
        Status::Done => ("done", None),
        Status::Failed { fault } => ("failed", Some(fault.clone())),
        Status::Unknown { fault } => ("unknown", Some(fault.clone())),
        Status::Skipped => ("skipped", s.fault.clone()),
        Status::Pending | Status::Between => ("pending", s.fault.clone()),
        Status::Waiting { .. } => ("waiting", s.fault.clone()),
        Status::Running => ("running", s.fault.clone()),
        Status::Sealing { .. } => ("sealing", s.fault.clone()),
        Status::Looking => ("observing", s.fault.clone()),
        Status::Asking { .. } => ("asking", s.fault.clone()),
    };
    StepView {
        id: s.step.id.clone(),
        tool: s.tool.clone(),
        state: state.to_owned(),
        output,
        fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Context;
    use crate::state::GoalState;
    use detent_protocol::agent::{Compiled, Definition};
    use detent_protocol::goal::Amendment;
    use detent_protocol::{AgentName, GoalId, NodeId, TenantId};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn definition() -> Compiled {
        let agent = json!({"name": "shop", "tools": [], "reasoners": ["big", "playbook"],
            "input_schema": true, "result_schema": true});
        let agent = serde_json::from_value(agent).unwrap();
        let tools = BTreeMap::new();
        Compiled::compile(Definition { agent, tools }).unwrap()
    }

    /// What `provider` sees of a goal for tea, amended with each of `patches`.
    fn seen(provider: &str, patches: &[Value]) -> Snapshot {
        let tenant = TenantId::default();
        let goal = GoalId::from_key(&tenant, &AgentName::new("shop").unwrap(), "k");
        let mut state = GoalState::new(tenant, goal);
        let mut now = json!({"product": "tea"});
        state.input = Arc::new(now.clone());
        for patch in patches {
            detent_protocol::goal::merge_patch(&mut now, patch);
            let by = "ann".to_owned();
            let patch = patch.clone();
            state.amendments.push(Amendment { patch, by });
        }
        state.effective = Arc::new(now);
        let cx = Context {
            definition: &definition(),
            node: &NodeId::new("n").unwrap(),
            epoch: 1,
            now_ms: 0,
            bug: None,
        };
        let turn = Turn {
            cx: &cx,
            cause: "test",
            state,
            records: Vec::new(),
            commands: Vec::new(),
            refused: None,
        };
        turn.snapshot(provider)
    }

    #[test]
    fn a_model_sees_a_goal_once_and_a_playbook_what_is_wanted_now() {
        let (tea, coffee) = (json!({"product": "tea"}), json!({"product": "coffee"}));
        for (provider, patches, effective) in [
            ("big", vec![], Value::Null),
            ("big", vec![coffee.clone()], coffee.clone()),
            ("playbook", vec![], tea.clone()),
            ("playbook", vec![coffee.clone()], coffee),
        ] {
            let seen = seen(provider, &patches);
            assert_eq!(seen.input, tea, "{provider}");
            assert_eq!(seen.amendments.len(), patches.len(), "{provider}");
            assert_eq!(seen.effective_input, effective, "{provider} {patches:?}");
        }
    }
}
