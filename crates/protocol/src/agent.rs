//! Definitions: agents and tools as the configuration declares them.
//!
//! A goal keeps the definition it started with. It is named by its digest, so a
//! changed file never changes a running goal.

use crate::budget::Limits;
use crate::claim::OUTPUT_BYTES_MAX;
use crate::contract::Contract;
use crate::effect::Effect;
use crate::error::{Code, Fault};
use crate::expect::Expectation;
use crate::ids::{AgentName, ToolName};
use crate::json::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// When and how often a tool's failure is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Attempts in all, the first included; 1 to 20.
    pub attempts_max: u32,
    /// Wait before the second attempt, milliseconds; doubles each time.
    pub backoff_ms: u64,
    /// Longest wait, milliseconds.
    pub backoff_ms_max: u64,
}

impl Default for Retry {
    /// Three attempts, 200 ms, at most 10 s.
    fn default() -> Self {
        Self {
            attempts_max: 3,
            backoff_ms: 200,
            backoff_ms_max: 10_000,
        }
    }
}

fn any_schema() -> Value {
    Value::Bool(true)
}
fn timeout_default() -> u64 {
    30_000
}
fn output_default() -> u64 {
    1024 * 1024
}
fn key_valid_default() -> u64 {
    24 * 3_600_000
}

/// A tool as its registry entry declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDef {
    /// Name, unique in the registry.
    pub name: ToolName,
    /// One sentence for the planner.
    #[serde(default)]
    pub description: String,
    /// What it does to the world.
    pub effect: Effect,
    /// Kind of runner: `process`, or the name of one that the embedding program adds.
    pub kind: String,
    /// What the runner needs, e.g. `command` for `process`.
    #[serde(default)]
    pub run: Value,
    /// JSON Schema of the arguments.
    #[serde(default = "any_schema")]
    pub input_schema: Value,
    /// JSON Schema of the output.
    #[serde(default = "any_schema")]
    pub output_schema: Value,
    /// JSON pointers of the arguments that make the effect's identity; empty: all.
    #[serde(default)]
    pub identity: Vec<String>,
    /// Milliseconds after which bytes that were sent can no longer arrive. Only with
    /// it can a `once` effect be proven absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settles_within_ms: Option<u64>,
    /// How long the world honours an idempotency key, milliseconds.
    #[serde(default = "key_valid_default")]
    pub key_valid_for_ms: u64,
    /// Wall time of one attempt, milliseconds; 1 to 86,400,000.
    #[serde(default = "timeout_default")]
    pub timeout_ms: u64,
    /// Largest output, bytes; at most 64 MiB. What is large is kept as a body
    /// ([`crate::claim`]).
    #[serde(default = "output_default")]
    pub output_bytes_max: u64,
    /// Retries.
    #[serde(default)]
    pub retry: Retry,
    /// Tool to use instead when this one failed for good. Takes the same arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<ToolName>,
    /// Its answers are second best: a step that used it is marked `stale`.
    #[serde(default)]
    pub stale: bool,
    /// Where the effect is looked up, from the arguments alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Expectation>,
    /// Price of one attempt, millionths of a currency.
    #[serde(default)]
    pub cost_micros: u64,
}

impl ToolDef {
    /// Digest of the whole entry: names the version of a tool.
    pub fn digest(&self) -> Digest {
        // A ToolDef holds nothing that JSON can't; the fallback is never reached.
        Digest::of_json(&serde_json::to_value(self).unwrap_or_default())
    }
    /// Checks what the types can't.
    pub fn lint(&self) -> Result<(), Fault> {
        let wrong = |at: &str, m: &str| Err(Fault::new(Code::ConfigInvalid, m).at(at));
        if !(1..=20).contains(&self.retry.attempts_max) {
            return wrong("retry.attempts_max", "takes 1 to 20");
        }
        if !(1..=86_400_000).contains(&self.timeout_ms) {
            return wrong("timeout_ms", "takes 1 to 86400000 (a day)");
        }
        if !(1..=OUTPUT_BYTES_MAX).contains(&self.output_bytes_max) {
            return wrong("output_bytes_max", "takes 1 to 67108864 (64 MiB)");
        }
        if self.identity.iter().any(|p| !p.starts_with('/')) {
            return wrong("identity", "takes JSON pointers such as \"/invoice\"");
        }
        if self.fallback.as_ref() == Some(&self.name) {
            return wrong("fallback", "a tool can't be its own fallback");
        }
        let Some(probe) = &self.probe else {
            return Ok(());
        };
        let place = |f: Fault| Fault {
            code: if f.code == Code::ExpectationTrivial {
                f.code
            } else {
                Code::ConfigInvalid
            },
            at: Some(format!(
                "probe{}",
                f.at.unwrap_or_default().replace('/', ".")
            )),
            ..f
        };
        probe.lint(self.effect.has_slot()).map_err(place)?;
        if self.effect.has_slot() && probe.needs_output() {
            return wrong(
                "probe.params",
                "a probe must find the effect from $args alone: the output may be lost",
            );
        }
        Ok(())
    }
}

/// What an agent does about failures, questions and repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// New plans after a failed step; 0 ends the goal with the step's code.
    pub replans_max: u32,
    /// How long a person may take to answer, milliseconds.
    pub ask_ms: u64,
    /// May a plan repeat an effect on purpose?
    pub allow_repeat: bool,
    /// Steps that run at the same time; 1 to 256.
    pub parallel_max: u32,
    /// Steps of one plan; 1 to 1,000.
    pub steps_max: u32,
}

impl Default for Policy {
    /// Two replans, an hour for answers, no repeats, 16 at a time, 256 steps.
    fn default() -> Self {
        Self {
            replans_max: 2,
            ask_ms: 3_600_000,
            allow_repeat: false,
            parallel_max: 16,
            steps_max: 256,
        }
    }
}

fn deadline_default() -> u64 {
    3_600_000
}
fn playbook_only() -> Vec<String> {
    vec!["playbook".to_owned()]
}

/// An agent as the configuration declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDef {
    /// Name; part of the subject that goals are published on.
    pub name: AgentName,
    /// One sentence for the planner and for people.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of a goal's input.
    pub input_schema: Value,
    /// JSON Schema of the result's `data`.
    pub result_schema: Value,
    /// Tools it may use (fallbacks included by themselves).
    pub tools: Vec<ToolName>,
    /// Planners in the order they are tried.
    #[serde(default = "playbook_only")]
    pub reasoners: Vec<String>,
    /// The plan template of provider `playbook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub playbook: Option<Value>,
    /// Budget of one goal.
    #[serde(default)]
    pub budget: Limits,
    /// Deadline of one goal from its acceptance, milliseconds.
    #[serde(default = "deadline_default")]
    pub deadline_ms: u64,
    /// Policy.
    #[serde(default)]
    pub policy: Policy,
}

/// An agent with every tool it can reach: what a goal is pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The agent.
    pub agent: AgentDef,
    /// Its tools and their fallbacks, by name.
    pub tools: BTreeMap<ToolName, ToolDef>,
}

/// A definition with its contracts compiled. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Compiled(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    definition: Definition,
    digest: Digest,
    input: Contract,
    result: Contract,
    tools: BTreeMap<ToolName, CompiledTool>,
}

/// A tool with its contracts compiled.
#[derive(Debug, Clone)]
pub struct CompiledTool {
    /// As declared.
    pub def: ToolDef,
    /// Digest of the entry.
    pub digest: Digest,
    /// Contract of the arguments.
    pub input: Contract,
    /// Contract of the output.
    pub output: Contract,
}

impl CompiledTool {
    /// Checks the entry and compiles both schemas.
    pub fn compile(def: &ToolDef) -> Result<Self, Fault> {
        let place = |f: Fault, what: &str| {
            let at = format!("tools.{}.{what}", def.name);
            Fault { at: Some(at), ..f }
        };
        def.lint().map_err(|f| {
            let what = f.at.clone().unwrap_or_default();
            place(f, &what)
        })?;
        Ok(Self {
            digest: def.digest(),
            input: Contract::compile(&def.input_schema).map_err(|f| place(f, "input_schema"))?,
            output: Contract::compile(&def.output_schema).map_err(|f| place(f, "output_schema"))?,
            def: def.clone(),
        })
    }
}

impl Compiled {
    /// Compiles every contract; fails at the first thing that can't be used, with
    /// its place in the configuration.
    pub fn compile(definition: Definition) -> Result<Self, Fault> {
        let agent = &definition.agent;
        let place = |f: Fault, what: &str| Fault {
            at: Some(format!("agents.{}.{what}", agent.name)),
            ..f
        };
        let wrong = |what: &str, m: &str| Err(place(Fault::new(Code::ConfigInvalid, m), what));
        let policy = agent.policy;
        if !(1..=256).contains(&policy.parallel_max) {
            return wrong("policy.parallel_max", "takes 1 to 256");
        }
        if !(1..=1000).contains(&policy.steps_max) {
            return wrong("policy.steps_max", "takes 1 to 1000");
        }
        if agent.reasoners.is_empty() {
            return wrong("reasoners", "needs at least one planner");
        }
        let mut tools = BTreeMap::new();
        for (name, def) in &definition.tools {
            tools.insert(name.clone(), CompiledTool::compile(def)?);
        }
        let used = agent.tools.iter();
        let used = used.chain(
            definition
                .tools
                .values()
                .filter_map(|t| t.fallback.as_ref()),
        );
        if let Some(missing) = used.into_iter().find(|t| !tools.contains_key(*t)) {
            return wrong("tools", &format!("no tool {missing} is defined"));
        }
        let input = Contract::compile(&agent.input_schema).map_err(|f| place(f, "input_schema"))?;
        let result =
            Contract::compile(&agent.result_schema).map_err(|f| place(f, "result_schema"))?;
        // A Definition holds nothing that JSON can't; the fallback is never reached.
        let digest = Digest::of_json(&serde_json::to_value(&definition).unwrap_or_default());
        Ok(Self(Arc::new(Inner {
            digest,
            input,
            result,
            tools,
            definition,
        })))
    }

    /// Names this version.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }
    /// What it was compiled from.
    pub fn definition(&self) -> &Definition {
        &self.0.definition
    }
    /// The agent.
    pub fn agent(&self) -> &AgentDef {
        &self.0.definition.agent
    }
    /// Contract of a goal's input.
    pub fn input(&self) -> &Contract {
        &self.0.input
    }
    /// Contract of the result's data.
    pub fn result(&self) -> &Contract {
        &self.0.result
    }
    /// A tool that this agent can reach, fallbacks included.
    pub fn tool(&self, name: &ToolName) -> Option<&CompiledTool> {
        self.0.tools.get(name)
    }
    /// The first tool among `name` and its fallbacks that has an effect and no probe of
    /// its own to look it up by.
    pub fn unproven(&self, name: &ToolName) -> Option<&ToolName> {
        let mut seen = std::collections::BTreeSet::new();
        let mut next = self.tool(name);
        while let Some(tool) = next {
            let def = &tool.def;
            if def.effect.has_slot() && def.probe.is_none() {
                return Some(&def.name);
            }
            // Fallbacks may point in a circle.
            if !seen.insert(&def.name) {
                return None;
            }
            next = def.fallback.as_ref().and_then(|f| self.tool(f));
        }
        None
    }

    /// May a plan name this tool?
    pub fn may_plan(&self, name: &ToolName) -> bool {
        self.agent().tools.contains(name)
    }
    /// All reachable tools.
    pub fn tools(&self) -> impl Iterator<Item = &CompiledTool> {
        self.0.tools.values()
    }
}
