//! `detent tools …`

use crate::args::{Global, Tools};
use crate::commands::load;
use crate::{exit, output};
use detent_node::doctor;
use detent_protocol::Fault;
use serde_json::json;

pub(crate) fn run(global: &Global, command: &Tools) -> Result<u8, Fault> {
    let config = load(global, None, &[])?;
    match command {
        Tools::List => {
            for (tool, _) in &config.tools {
                let effect = json!(tool.effect);
                if output::is_json() {
                    output::json(tool);
                } else {
                    let effect = effect.as_str().unwrap_or_default();
                    let (name, kind) = (tool.name.as_str(), &tool.kind);
                    let row = format!("{name:<20} {effect:<10} {kind:<8} {}", tool.description);
                    output::line(row.trim_end());
                }
            }
            Ok(exit::OK)
        }
        Tools::Lint => {
            let found = doctor::lint(&config);
            for fault in &found {
                if output::is_json() {
                    output::json(fault);
                } else {
                    output::line(fault.to_string());
                }
            }
            output::note(format!(
                "detent: {} tools, {} agents, {} problems",
                config.tools.len(),
                config.agents.len(),
                found.len()
            ));
            Ok(if found.is_empty() {
                exit::OK
            } else {
                exit::REFUSED
            })
        }
    }
}
