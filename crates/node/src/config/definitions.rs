//! Agents and tools: read from their files, put together, compiled.

use super::{file, invalid};
use detent_protocol::agent::{AgentDef, Compiled, Definition, ToolDef};
use detent_protocol::{Code, Fault, ToolName};
use detent_reasoner::ProviderConfig;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Agents = Vec<(AgentDef, PathBuf)>;
type Tools = Vec<(ToolDef, PathBuf)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsFile {
    #[serde(default)]
    tool: Vec<ToolDef>,
}

pub(super) fn read(dir: &Path, parsed: &file::Parsed) -> Result<(Agents, Tools), Fault> {
    let mut agents: Agents = Vec::new();
    for name in &parsed.agents {
        let path = dir.join(name);
        let agent: AgentDef = file::parse(&path, &file::read_text(&path)?)?;
        if let Some((_, other)) = agents.iter().find(|(a, _)| a.name == agent.name) {
            let message = format!("agent {} is defined in {} too", agent.name, other.display());
            return Err(invalid(path.display().to_string(), message));
        }
        agents.push((agent, path));
    }
    let mut tools: Tools = Vec::new();
    for name in &parsed.tools {
        let path = dir.join(name);
        let more: ToolsFile = file::parse(&path, &file::read_text(&path)?)?;
        for tool in more.tool {
            if let Some((_, other)) = tools.iter().find(|(t, _)| t.name == tool.name) {
                let message = format!("tool {} is defined in {} too", tool.name, other.display());
                return Err(invalid(path.display().to_string(), message));
            }
            tools.push((tool, path.clone()));
        }
    }
    Ok((agents, tools))
}

pub(super) fn compile(
    agents: &Agents,
    tools: &Tools,
    reasoners: &BTreeMap<String, ProviderConfig>,
) -> Result<Vec<Compiled>, Fault> {
    let by_name: BTreeMap<&ToolName, &ToolDef> = tools.iter().map(|(t, _)| (&t.name, t)).collect();
    let each = agents.iter().map(|(agent, path)| {
        let place = |f: Fault| {
            let inner = f.at.clone().unwrap_or_default();
            f.at(format!("{}: {inner}", path.display()))
        };
        check_agent(agent, reasoners).map_err(place)?;
        let definition = Definition {
            agent: agent.clone(),
            tools: reachable(agent, &by_name),
        };
        Compiled::compile(definition).map_err(place)
    });
    each.collect()
}

fn check_agent(
    agent: &AgentDef,
    reasoners: &BTreeMap<String, ProviderConfig>,
) -> Result<(), Fault> {
    let known = |r: &&String| *r != detent_reasoner::playbook::NAME && !reasoners.contains_key(*r);
    if let Some(missing) = agent.reasoners.iter().find(known) {
        let message = format!("no planner {missing:?} in [reasoners]");
        return Err(Fault::new(Code::ConfigInvalid, message).at("reasoners"));
    }
    let uses_playbook = agent
        .reasoners
        .iter()
        .any(|r| r == detent_reasoner::playbook::NAME);
    if uses_playbook && agent.playbook.is_none() {
        let message = "the planner playbook is listed, but there is no [playbook]";
        return Err(Fault::new(Code::ConfigInvalid, message).at("playbook"));
    }
    Ok(())
}

/// The agent's tools with all their fallbacks. One that is missing is left out here
/// and named by [`Compiled::compile`].
fn reachable(
    agent: &AgentDef,
    tools: &BTreeMap<&ToolName, &ToolDef>,
) -> BTreeMap<ToolName, ToolDef> {
    let mut found = BTreeMap::new();
    let mut todo: BTreeSet<ToolName> = agent.tools.iter().cloned().collect();
    while let Some(name) = todo.pop_first() {
        let Some(tool) = tools.get(&name) else {
            continue;
        };
        if found.insert(name, (*tool).clone()).is_none()
            && let Some(fallback) = &tool.fallback
            && !found.contains_key(fallback)
        {
            todo.insert(fallback.clone());
        }
    }
    found
}
