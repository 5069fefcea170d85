//! How the reasoner and its providers are configured.
//!
//! Promises: what can't work is refused here, before the first request, with the key
//! of the configuration. Must never know: the file that it stands in.

use crate::key::ApiKey;
use crate::playbook;
use detent_protocol::redact::Redactor;
use detent_protocol::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the reasoner needs to start.
#[derive(Debug, Clone)]
pub struct ReasonerOptions {
    /// Planners by name, beside `playbook`, which is always there.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Requests handled at the same time; 1 to 4,096.
    pub concurrency_max: usize,
    /// Requests that wait beyond these; one more is refused by the bus.
    pub queue_max: usize,
    /// Masks secrets in faults and in what models say. It has to know
    /// [`ProviderConfig::secrets`].
    pub redactor: Redactor,
}

impl Default for ReasonerOptions {
    /// The playbook alone, 32 at a time, 1,024 waiting.
    fn default() -> Self {
        Self {
            providers: BTreeMap::new(),
            concurrency_max: 32,
            queue_max: 1024,
            redactor: Redactor::default(),
        }
    }
}

/// One planner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProviderConfig {
    /// The agent's own plan template.
    Playbook {},
    /// An endpoint that speaks the OpenAI chat completions protocol.
    Openai(OpenaiConfig),
}

/// A model endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenaiConfig {
    /// Address up to and with the version, e.g. `http://127.0.0.1:8000/v1`.
    pub base_url: String,
    /// The model's name at the endpoint.
    pub model: String,
    /// Environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// File that holds the key; only its owner may reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Longest wait for an answer, milliseconds; 1 to 600,000.
    #[serde(default = "timeout_default")]
    pub timeout_ms: u64,
    /// Most tokens of one answer; 1 to 1,000,000. A request may ask for fewer.
    #[serde(default = "tokens_default")]
    pub tokens_max: u64,
    /// Sampling temperature, 0 to 2.
    #[serde(default)]
    pub temperature: f64,
    /// How the endpoint is told to answer with JSON.
    #[serde(default)]
    pub structured: Structured,
    /// Further instructions, after the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
}

fn timeout_default() -> u64 {
    120_000
}
fn tokens_default() -> u64 {
    8_192
}

/// How an endpoint is told to answer with JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structured {
    /// The strictest form that the endpoint turns out to take.
    #[default]
    Auto,
    /// `response_format` with the plan's JSON Schema.
    JsonSchema,
    /// `response_format` that asks for any JSON object.
    JsonObject,
    /// By words alone.
    None,
}

impl ProviderConfig {
    /// The keys that this planner sends, for the [`Redactor`] of the node.
    ///
    /// Fails with [`Code::ConfigInvalid`] where one can't be read.
    pub fn secrets(&self) -> Result<Vec<String>, Fault> {
        match self {
            Self::Playbook {} => Ok(Vec::new()),
            Self::Openai(config) => {
                let key = config.key()?;
                Ok(key.iter().map(|k| k.reveal().to_owned()).collect())
            }
        }
    }

    /// Checks what the types can't, for the provider called `name`; reads no key.
    ///
    /// Fails with [`Code::ConfigInvalid`], placed at the key.
    pub fn lint(&self, name: &str) -> Result<(), Fault> {
        let place = |key: &str| format!("reasoners.{name}.{key}");
        let wrong = |key: &str, m: &str| Err(Fault::new(Code::ConfigInvalid, m).at(place(key)));
        let named = !name.is_empty() && name.len() <= detent_protocol::ids::NAME_BYTES_MAX;
        let token = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if !named || !name.bytes().all(token) {
            return wrong("", "a name is 1 to 64 of A-Z a-z 0-9 - _");
        }
        match self {
            Self::Playbook {} => Ok(()),
            Self::Openai(_) if name == playbook::NAME => {
                wrong("kind", "the name playbook is taken by the built-in planner")
            }
            Self::Openai(config) => config.lint(&wrong),
        }
    }
}

impl OpenaiConfig {
    fn lint(&self, wrong: &dyn Fn(&str, &str) -> Result<(), Fault>) -> Result<(), Fault> {
        let rest = self.base_url.strip_prefix("http://");
        let rest = rest.or_else(|| self.base_url.strip_prefix("https://"));
        let host = rest.unwrap_or_default().split('/').next();
        let host = host.unwrap_or_default();
        if host.is_empty() || self.base_url.contains(['?', '#', ' ']) {
            return wrong(
                "base_url",
                "takes an address such as http://127.0.0.1:8000/v1",
            );
        }
        if host.contains('@') {
            return wrong("base_url", "holds a user; put the key into api_key_env");
        }
        if self.model.trim().is_empty() {
            return wrong("model", "needs the model's name at the endpoint");
        }
        if self.api_key_env.is_some() && self.api_key_file.is_some() {
            return wrong("api_key_file", "the key comes from one place, not two");
        }
        if !(1..=600_000).contains(&self.timeout_ms) {
            return wrong("timeout_ms", "takes 1 to 600000 (ten minutes)");
        }
        if !(1..=1_000_000).contains(&self.tokens_max) {
            return wrong("tokens_max", "takes 1 to 1000000");
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return wrong("temperature", "takes 0 to 2");
        }
        Ok(())
    }

    /// Reads the key; none where none is configured.
    pub(crate) fn key(&self) -> Result<Option<ApiKey>, Fault> {
        match (&self.api_key_env, &self.api_key_file) {
            (Some(name), _) => ApiKey::from_env(name).map(Some),
            (None, Some(path)) => ApiKey::from_file(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn openai(change: Value) -> Result<ProviderConfig, serde_json::Error> {
        let mut config =
            json!({"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"});
        detent_protocol::goal::merge_patch(&mut config, &change);
        serde_json::from_value(config)
    }

    #[test]
    fn defaults_are_usable() {
        let config = openai(json!({})).unwrap();
        config.lint("big").unwrap();
        assert_eq!(config.secrets().unwrap(), Vec::<String>::new());
        let playbook: ProviderConfig = serde_json::from_value(json!({"kind": "playbook"})).unwrap();
        playbook.lint("playbook").unwrap();
    }

    #[test]
    fn what_can_not_work_is_refused_with_its_key() {
        for (change, key) in [
            (json!({"base_url": "127.0.0.1:1"}), "base_url"),
            (json!({"base_url": "ftp://127.0.0.1"}), "base_url"),
            (
                json!({"base_url": "http://u:p4ss@127.0.0.1/v1"}),
                "base_url",
            ),
            (
                json!({"base_url": "http://127.0.0.1/v1?key=p4ss"}),
                "base_url",
            ),
            (json!({"model": " "}), "model"),
            (
                json!({"api_key_env": "A", "api_key_file": "/b"}),
                "api_key_file",
            ),
            (json!({"timeout_ms": 0}), "timeout_ms"),
            (json!({"tokens_max": 0}), "tokens_max"),
            (json!({"temperature": 2.1}), "temperature"),
        ] {
            let fault = openai(change.clone()).unwrap().lint("big").unwrap_err();
            assert_eq!(fault.code, Code::ConfigInvalid, "{change}");
            assert_eq!(fault.at, Some(format!("reasoners.big.{key}")), "{change}");
            assert!(!fault.to_string().contains("p4ss"));
        }
        let fault = openai(json!({})).unwrap().lint("playbook").unwrap_err();
        assert_eq!(fault.at.as_deref(), Some("reasoners.playbook.kind"));
        openai(json!({})).unwrap().lint("a.b").unwrap_err();
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(openai(json!({"temprature": 1})).is_err());
        let extra = json!({"kind": "playbook", "model": "m"});
        assert!(serde_json::from_value::<ProviderConfig>(extra).is_err());
    }
}
