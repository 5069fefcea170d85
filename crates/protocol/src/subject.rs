//! Subject names, in one place.

use crate::ids::{AgentName, GoalId, NodeId, TenantId, ToolName};

/// Requests that submit a goal to an agent.
pub fn submit(tenant: &TenantId, agent: &AgentName) -> String {
    format!("detent.{tenant}.submit.{agent}")
}
/// All submissions.
pub const SUBMIT_ALL: &str = "detent.*.submit.*";
/// Control messages of a goal.
pub fn control(tenant: &TenantId, goal: &GoalId) -> String {
    format!("detent.{tenant}.control.{goal}")
}
/// All control messages.
pub const CONTROL_ALL: &str = "detent.*.control.*";
/// Questions about goals: list, show, export, events.
pub fn query(tenant: &TenantId) -> String {
    format!("detent.{tenant}.query")
}
/// All queries.
pub const QUERY_ALL: &str = "detent.*.query";
/// The terminal result of a goal.
pub fn result(tenant: &TenantId, agent: &AgentName, goal: &GoalId) -> String {
    format!("detent.{tenant}.result.{agent}.{goal}")
}
/// Transitions of a goal, with gap-free numbers.
pub fn event(tenant: &TenantId, goal: &GoalId) -> String {
    format!("detent.{tenant}.event.{goal}")
}
/// Questions of a goal to people.
pub fn ask(tenant: &TenantId, goal: &GoalId) -> String {
    format!("detent.{tenant}.ask.{goal}")
}
/// Alerts for operators.
pub fn alert(kind: &str) -> String {
    format!("detent.alert.{kind}")
}
/// Requests to planners of this name.
pub fn reason(provider: &str) -> String {
    format!("detent.reason.{provider}")
}
/// All planner requests.
pub const REASON_ALL: &str = "detent.reason.*";
/// Calls of a tool.
pub fn tool(tool: &ToolName) -> String {
    format!("detent.tool.{tool}")
}
/// All tool calls.
pub const TOOL_ALL: &str = "detent.tool.*";
/// Seals and cancels for the executor on one node.
pub fn executor(node: &NodeId) -> String {
    format!("detent.executor.{node}")
}
/// Observations by probes of one kind.
pub fn observe(probe: &str) -> String {
    format!("detent.observe.{probe}")
}
/// All observations.
pub const OBSERVE_ALL: &str = "detent.observe.*";

/// Does `subject` match `pattern` (`*` one token, a trailing `>` one or more)?
pub fn matches(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for token in pattern.split('.') {
        match (token, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (p, Some(s)) if p == s => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_nats() {
        assert!(matches("detent.*.submit.*", "detent.default.submit.a"));
        assert!(!matches("detent.*.submit.*", "detent.default.submit.a.b"));
        assert!(!matches("detent.*.submit.*", "detent.default.submit"));
        assert!(matches("detent.tool.>", "detent.tool.a.b"));
        assert!(!matches("detent.tool.>", "detent.tool"));
        assert!(matches("a.b", "a.b") && !matches("a.b", "a.c"));
    }
}
