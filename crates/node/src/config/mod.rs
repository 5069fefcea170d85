//! Configuration: defaults < file < environment < flags.
//!
//! Unknown keys are refused with line and column, values outside their range with the
//! range; every effective value knows where it comes from ([`Config::shown`]).

mod definitions;
mod file;
mod keys;

pub use keys::{KEYS, Key, Kind};

use detent_protocol::agent::{AgentDef, Compiled, ToolDef};
use detent_protocol::{Code, Fault};
use detent_reasoner::ProviderConfig;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The file to read.
    pub file: Option<PathBuf>,
    /// `section.key=value` pairs, the later ones win.
    pub set: Vec<String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// A file, with line and column.
    File(String),
    /// An environment variable.
    Env(String),
    /// A flag.
    Flag,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(at) => f.write_str(at),
            Source::Env(name) => write!(f, "env {name}"),
            Source::Flag => f.write_str("flag --set"),
        }
    }
}

/// A setting as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// `section.key`.
    pub path: &'static str,
    /// Its effective value, as TOML.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
    /// What it is.
    pub doc: &'static str,
}

/// An effective configuration, checked as a whole.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder of the file; what `config:` in commands and paths stands for.
    pub dir: PathBuf,
    /// The file, if one was read.
    pub file: Option<PathBuf>,
    /// Planners by name.
    pub reasoners: BTreeMap<String, ProviderConfig>,
    /// Agents with the file each comes from.
    pub agents: Vec<(AgentDef, PathBuf)>,
    /// Tools with the file each comes from.
    pub tools: Vec<(ToolDef, PathBuf)>,
    /// Definitions, compiled.
    pub definitions: Vec<Compiled>,
    values: BTreeMap<&'static str, (toml::Value, Source)>,
}

/// A fault of the configuration at a place.
pub(crate) fn invalid(at: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault::new(Code::ConfigInvalid, message).at(at)
}

impl Config {
    /// Reads and checks everything: files, environment (`env` gives a variable's
    /// value) and flags.
    ///
    /// Fails with `CONFIG_INVALID` that names file, line and column where there is one.
    pub fn load(flags: &Flags, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Fault> {
        let mut values = keys::defaults();
        let mut parsed = file::Parsed::default();
        let mut dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        if let Some(path) = &flags.file {
            parsed = file::read(path)?;
            for (key, value, at) in std::mem::take(&mut parsed.values) {
                keys::set(&mut values, &key, value, Source::File(at))?;
            }
            dir = folder_of(path)?;
        }
        for key in KEYS {
            let name = key.env_name();
            if let Some(text) = env(&name) {
                let value = key
                    .parse(&text)
                    .map_err(|m| invalid(format!("env {name}"), m))?;
                keys::set(&mut values, key.path, value, Source::Env(name))?;
            }
        }
        for pair in &flags.set {
            let place = format!("--set {pair}");
            let Some((path, text)) = pair.split_once('=') else {
                return Err(invalid(place, "takes section.key=value"));
            };
            let key = keys::find(path).ok_or_else(|| invalid(&place, keys::unknown(path)))?;
            let value = key.parse(text).map_err(|m| invalid(&place, m))?;
            keys::set(&mut values, key.path, value, Source::Flag)?;
        }
        for (name, provider) in &parsed.reasoners {
            provider.lint(name)?;
        }
        let (agents, tools) = definitions::read(&dir, &parsed)?;
        let compiled = definitions::compile(&agents, &tools, &parsed.reasoners)?;
        Ok(Self {
            file: flags.file.clone(),
            reasoners: parsed.reasoners,
            definitions: compiled,
            dir,
            agents,
            tools,
            values,
        })
    }

    /// A number.
    pub fn int(&self, path: &str) -> u64 {
        let value = self.values.get(path).and_then(|(v, _)| v.as_integer());
        // Values were checked against the key's range when they were set.
        value
            .and_then(|v| u64::try_from(v).ok())
            .unwrap_or_default()
    }

    /// A text.
    pub fn text(&self, path: &str) -> &str {
        let value = self.values.get(path).and_then(|(v, _)| v.as_str());
        value.unwrap_or_default()
    }

    /// A switch.
    pub fn on(&self, path: &str) -> bool {
        let value = self.values.get(path).and_then(|(v, _)| v.as_bool());
        value.unwrap_or_default()
    }

    /// A number as a size.
    pub fn size(&self, path: &str) -> usize {
        usize::try_from(self.int(path)).unwrap_or(usize::MAX)
    }

    /// Every setting with its value and source, in the order of [`KEYS`].
    pub fn shown(&self) -> Vec<Shown> {
        let shown = |key: &Key| {
            let (value, source) = self.values.get(key.path)?;
            Some(Shown {
                path: key.path,
                value: value.to_string(),
                source: source.clone(),
                doc: key.doc,
            })
        };
        KEYS.iter().filter_map(shown).collect()
    }
}

fn folder_of(path: &Path) -> Result<PathBuf, Fault> {
    let full = path
        .canonicalize()
        .map_err(|e| invalid(path.display().to_string(), e.to_string()))?;
    Ok(full
        .parent()
        .map_or_else(|| PathBuf::from("/"), Path::to_path_buf))
}

#[cfg(test)]
mod tests;
