//! The file: `detent.toml`.
//!
//! ```toml
//! agents = ["agents/sales-report.toml"]   # one agent a file
//! tools = ["tools.toml"]                  # [[tool]] tables
//!
//! [node]
//! name = "n1"
//!
//! [reasoners.big]
//! kind = "openai"
//! base_url = "http://127.0.0.1:8000/v1"
//! model = "m"
//! api_key_env = "MODEL_KEY"
//! ```

use super::invalid;
use detent_protocol::Fault;
use detent_reasoner::ProviderConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;

/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

type Section = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    agents: Vec<String>,
    tools: Vec<String>,
    node: Section,
    store: Section,
    audit: Section,
    reasoners: BTreeMap<String, ProviderConfig>,
}

/// A file's contents.
#[derive(Default)]
pub(super) struct Parsed {
    /// `section.key`, value, `file:line:column`.
    pub(super) values: Vec<(String, toml::Value, String)>,
    pub(super) reasoners: BTreeMap<String, ProviderConfig>,
    pub(super) agents: Vec<String>,
    pub(super) tools: Vec<String>,
}

pub(super) fn read(path: &Path) -> Result<Parsed, Fault> {
    let text = read_text(path)?;
    let file: File = parse(path, &text)?;
    let mut values = Vec::new();
    for (name, section) in [
        ("node", file.node),
        ("store", file.store),
        ("audit", file.audit),
    ] {
        for (key, value) in section {
            let at = place(path, &text, key.span().start);
            let key = format!("{name}.{}", key.into_inner());
            values.push((key, value.into_inner(), at));
        }
    }
    Ok(Parsed {
        values,
        reasoners: file.reasoners,
        agents: file.agents,
        tools: file.tools,
    })
}

/// Reads a bounded text file.
pub(super) fn read_text(path: &Path) -> Result<String, Fault> {
    let shown = path.display().to_string();
    let failed = |e: std::io::Error| invalid(&shown, format!("can't be read: {e}"));
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > FILE_BYTES_MAX {
        return Err(invalid(
            &shown,
            format!("{size} bytes; at most {FILE_BYTES_MAX}"),
        ));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Parses TOML; what is wrong is said with file, line and column.
pub(super) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Fault> {
    toml::from_str(text).map_err(|e| {
        let at = match e.span() {
            Some(span) => place(path, text, span.start),
            None => path.display().to_string(),
        };
        invalid(at, e.message().replace('\n', " "))
    })
}

/// `file:line:column` of a byte, counted from 1.
fn place(path: &Path, text: &str, byte: usize) -> String {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |i| i + 1);
    let column = before[start..].chars().count() + 1;
    format!("{}:{line}:{column}", path.display())
}
