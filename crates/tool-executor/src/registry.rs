//! The tools that this node can run, by name and digest.

use detent_protocol::agent::CompiledTool;
use detent_protocol::json::Digest;
use detent_protocol::{Code, Fault, ToolName};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

type Versions = BTreeMap<Digest, Arc<CompiledTool>>;

/// Tools by name and digest. Clones share one registry. Holds what was put into it and
/// nothing else: several versions of a tool stand side by side while goals that are
/// pinned to the older ones are still open.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<RwLock<BTreeMap<ToolName, Versions>>>);

/// Whether a tool could be run here now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolHealth {
    /// The tool.
    pub tool: ToolName,
    /// Its version.
    pub digest: Digest,
    /// What is missing; `None` if nothing is.
    pub fault: Option<Fault>,
}

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool, under the digest of its definition.
    pub fn insert(&self, tool: CompiledTool) {
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let versions = tools.entry(tool.def.name.clone()).or_default();
        versions.insert(tool.digest, Arc::new(tool));
    }

    /// Takes a version out; runs of it that are going on are not touched.
    pub fn remove(&self, name: &ToolName, digest: &Digest) {
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(versions) = tools.get_mut(name) {
            versions.remove(digest);
            if versions.is_empty() {
                tools.remove(name);
            }
        }
    }

    /// The tool with this name and digest.
    ///
    /// # Errors
    /// [`Code::ToolUnavailable`] when there is no tool of this name,
    /// [`Code::ReplayMismatch`] when there is one, but in other versions only.
    pub fn get(&self, name: &ToolName, digest: &Digest) -> Result<Arc<CompiledTool>, Fault> {
        let tools = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let versions = tools.get(name).ok_or_else(|| {
            let message = format!("this node has no tool {name}");
            Fault::new(Code::ToolUnavailable, message)
        })?;
        versions.get(digest).cloned().ok_or_else(|| {
            let here: Vec<_> = versions.keys().map(Digest::short).collect();
            let message = format!(
                "the goal is pinned to version {} of tool {name}; this node has {}",
                digest.short(),
                here.join(", ")
            );
            Fault::new(Code::ReplayMismatch, message)
        })
    }

    /// Every tool in every version, in order of name.
    pub fn tools(&self) -> Vec<Arc<CompiledTool>> {
        let tools = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tools.values().flat_map(BTreeMap::values).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(description: &str) -> CompiledTool {
        let def = json!({
            "name": "look", "effect": "read", "kind": "process", "description": description
        });
        CompiledTool::compile(&serde_json::from_value(def).unwrap()).unwrap()
    }

    #[test]
    fn versions_stand_side_by_side_and_what_is_missing_is_said() {
        let registry = Registry::new();
        let (old, new) = (tool("old"), tool("new"));
        let name = old.def.name.clone();
        let missing = registry.get(&name, &old.digest).unwrap_err();
        assert_eq!(missing.code, Code::ToolUnavailable);

        registry.insert(old.clone());
        let other = registry.get(&name, &new.digest).unwrap_err();
        assert_eq!(other.code, Code::ReplayMismatch);
        assert!(other.message.contains(&new.digest.short()), "{other}");

        registry.insert(new.clone());
        assert_eq!(registry.get(&name, &old.digest).unwrap().def, old.def);
        assert_eq!(registry.get(&name, &new.digest).unwrap().def, new.def);
        assert_eq!(registry.tools().len(), 2);

        registry.remove(&name, &old.digest);
        registry.remove(&name, &new.digest);
        assert_eq!(
            registry.get(&name, &new.digest).unwrap_err().code,
            Code::ToolUnavailable
        );
    }
}
