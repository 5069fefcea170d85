//! The channels are the subjects that `subject.rs` makes: all of them, and no others.

use detent_protocol::ids::{AgentName, GoalId, NodeId, TenantId, ToolName};
use detent_protocol::schema::{CHANNELS, Form, channel_of, names, shape_of};
use detent_protocol::subject;
use std::collections::BTreeSet;

const SOURCE: &str = include_str!("../../src/subject.rs");

struct Names {
    tenant: TenantId,
    agent: AgentName,
    goal: GoalId,
    node: NodeId,
    tool: ToolName,
}

fn sample() -> Names {
    Names {
        tenant: TenantId::new("t1").unwrap(),
        agent: AgentName::new("a1").unwrap(),
        goal: GoalId::from_bytes([7; 16]),
        node: NodeId::new("n1").unwrap(),
        tool: ToolName::new("tool1").unwrap(),
    }
}

fn filled(address: &str, n: &Names) -> String {
    let goal = n.goal.to_string();
    let values = [
        ("{tenant}", n.tenant.as_str()),
        ("{agent}", n.agent.as_str()),
        ("{goal}", &goal),
        ("{node}", n.node.as_str()),
        ("{tool}", n.tool.as_str()),
        ("{name}", "order-17"),
        ("{kind}", "scan"),
        ("{provider}", "big"),
        ("{probe}", "file"),
    ];
    let fill = |text: String, (name, value): (&str, &str)| text.replace(name, value);
    values.into_iter().fold(address.to_owned(), fill)
}

/// Each function of `subject.rs` that makes one subject, with what it makes.
fn made(n: &Names) -> Vec<(&'static str, String)> {
    vec![
        ("submit", subject::submit(&n.tenant, &n.agent)),
        ("intake", subject::intake(&n.tenant, &n.agent)),
        ("refused", subject::refused(&n.tenant, "order-17")),
        ("steer", subject::steer(&n.tenant, &n.goal)),
        ("control", subject::control(&n.tenant, &n.goal)),
        ("query", subject::query(&n.tenant)),
        ("result", subject::result(&n.tenant, &n.agent, &n.goal)),
        ("event", subject::event(&n.tenant, &n.goal)),
        ("ask", subject::ask(&n.tenant, &n.goal)),
        ("alert", subject::alert("scan")),
        ("reason", subject::reason("big")),
        ("tool", subject::tool(&n.tool, &n.node)),
        ("owner", subject::owner(&n.node)),
        ("executor", subject::executor(&n.node)),
        ("observe", subject::observe("file", &n.node)),
    ]
}

/// Each function that makes a pattern, and the channels that it takes in.
fn patterns(n: &Names) -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("tools_of", subject::tools_of(&n.node), "tool"),
        (
            "observations_of",
            subject::observations_of(&n.node),
            "observe",
        ),
        ("SUBMIT_ALL", subject::SUBMIT_ALL.into(), "submit"),
        ("INTAKE_ALL", subject::INTAKE_ALL.into(), "intake"),
        ("STEER_ALL", subject::STEER_ALL.into(), "steer"),
        ("CONTROL_ALL", subject::CONTROL_ALL.into(), "control"),
        ("QUERY_ALL", subject::QUERY_ALL.into(), "query"),
        ("REASON_ALL", subject::REASON_ALL.into(), "reason"),
    ]
}

#[test]
fn each_channel_is_the_subject_of_its_function() {
    let names = sample();
    let made = made(&names);
    let functions: Vec<_> = made.iter().map(|(name, _)| *name).collect();
    let channels: Vec<_> = CHANNELS.iter().map(|c| c.name).collect();
    assert_eq!(functions, channels);
    for (channel, (name, subject)) in CHANNELS.iter().zip(&made) {
        assert_eq!(&filled(channel.address, &names), subject);
        assert_eq!(channel_of(subject).map(|c| c.name), Some(*name));
    }
    assert!(channel_of("_INBOX.abc").is_none() && channel_of("detent.t1.other").is_none());
}

#[test]
fn each_pattern_takes_in_its_channel_and_no_other() {
    let names = sample();
    for (function, pattern, of) in patterns(&names) {
        let made = made(&names);
        let taken: Vec<_> = made
            .iter()
            .filter(|(_, s)| subject::matches(&pattern, s))
            .collect();
        assert_eq!(
            taken.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            [of],
            "{function}"
        );
    }
}

/// A new function or constant of `subject.rs` is noticed here: it has to become a channel.
#[test]
fn nothing_of_the_subjects_is_left_out() {
    let public = SOURCE.lines().filter_map(|line| {
        let (line, end) = match line.strip_prefix("pub fn ") {
            Some(rest) => (rest, '('),
            None => (line.strip_prefix("pub const ")?, ':'),
        };
        line.split_once(end).map(|(name, _)| name)
    });
    let public: BTreeSet<_> = public.filter(|name| *name != "matches").collect();
    let names = sample();
    let known = made(&names).into_iter().map(|(name, _)| name);
    let known: BTreeSet<_> = known
        .chain(patterns(&names).into_iter().map(|p| p.0))
        .collect();
    assert_eq!(public, known);
}

#[test]
fn every_message_and_answer_has_a_channel() {
    let said = CHANNELS.iter().flat_map(|c| c.exchanges);
    let said: BTreeSet<_> = said
        .flat_map(|e| std::iter::once(e.message).chain(e.reply))
        .collect();
    let shaped = names().filter(|n| shape_of(n).is_some_and(|s| s.form != Form::Part));
    assert_eq!(said, shaped.collect());
}
