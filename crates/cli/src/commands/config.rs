//! `detent config …`

use crate::args::{ConfigCommand, Global};
use crate::commands::load;
use crate::{exit, output};
use detent_protocol::Fault;
use serde_json::json;

pub(crate) fn run(global: &Global, command: &ConfigCommand) -> Result<u8, Fault> {
    let config = load(global, None, &[])?;
    match command {
        ConfigCommand::Show => {
            for s in config.shown() {
                if output::is_json() {
                    let source = s.source.to_string();
                    output::json(
                        &json!({"key": s.path, "value": s.value, "source": source, "doc": s.doc}),
                    );
                } else {
                    output::line(format!("{:<28} = {:<24} # {}", s.path, s.value, s.source));
                }
            }
            for (agent, file) in &config.agents {
                if output::is_json() {
                    output::json(&json!({"agent": agent.name, "source": file}));
                } else {
                    output::line(format!(
                        "agent {:<22} # {}",
                        agent.name.as_str(),
                        file.display()
                    ));
                }
            }
            for (name, provider) in &config.reasoners {
                // Holds no key: only where one is read from.
                if output::is_json() {
                    output::json(&json!({"reasoner": name, "provider": provider}));
                } else {
                    output::line(format!("reasoner {name:<19} # {}", json!(provider)));
                }
            }
        }
        ConfigCommand::Validate => {
            let file = config
                .file
                .as_ref()
                .map_or("no file".to_owned(), |f| f.display().to_string());
            let (agents, tools) = (config.agents.len(), config.tools.len());
            if output::is_json() {
                output::json(
                    &json!({"valid": true, "file": config.file, "agents": agents, "tools": tools}),
                );
            } else {
                output::line(format!("valid: {file}, {agents} agents, {tools} tools"));
            }
        }
    }
    Ok(exit::OK)
}
