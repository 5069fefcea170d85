//! Subject names, in one place.

use crate::ids::{AgentName, GoalId, NodeId, TenantId, ToolName};

/// Requests that submit a goal to an agent.
pub fn submit(tenant: &TenantId, agent: &AgentName) -> String {
    format!("detent.{tenant}.submit.{agent}")
}
/// All submissions.
pub const SUBMIT_ALL: &str = "detent.*.submit.*";
/// Goals that are handed in without waiting for an answer; kept until they were taken or
/// refused.
pub fn intake(tenant: &TenantId, agent: &AgentName) -> String {
    format!("detent.{tenant}.intake.{agent}")
}
/// All goals handed in.
pub const INTAKE_ALL: &str = "detent.*.intake.*";
/// Why something that was handed in was refused; `name` is the goal's idempotency key
/// where it is a name, else the goal.
pub fn refused(tenant: &TenantId, name: &str) -> String {
    format!("detent.{tenant}.refused.{name}")
}
/// Requests that control a goal, answered with what came of it.
pub fn steer(tenant: &TenantId, goal: &GoalId) -> String {
    format!("detent.{tenant}.steer.{goal}")
}
/// All requests that control a goal.
pub const STEER_ALL: &str = "detent.*.steer.*";
/// The same, for the goals that one node owns.
pub fn owner(node: &NodeId) -> String {
    format!("detent.owner.{node}")
}
/// Control messages of a goal that are kept until its owner has dealt with them.
pub fn control(tenant: &TenantId, goal: &GoalId) -> String {
    format!("detent.{tenant}.control.{goal}")
}
/// All control messages that are kept.
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
/// Calls of a tool on one node: the one that has the goal's folder.
pub fn tool(tool: &ToolName, node: &NodeId) -> String {
    format!("detent.tool.{tool}.{node}")
}
/// All tool calls on one node.
pub fn tools_of(node: &NodeId) -> String {
    format!("detent.tool.*.{node}")
}
/// Seals and cancels for the executor on one node.
pub fn executor(node: &NodeId) -> String {
    format!("detent.executor.{node}")
}
/// Observations by probes of one kind on one node: the one that has the goal's folder.
pub fn observe(probe: &str, node: &NodeId) -> String {
    format!("detent.observe.{probe}.{node}")
}
/// All observations on one node.
pub fn observations_of(node: &NodeId) -> String {
    format!("detent.observe.*.{node}")
}

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
