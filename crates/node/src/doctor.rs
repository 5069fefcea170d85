//! `detent doctor` and `detent tools lint`: finding out by trying.

use crate::config::Config;
use crate::node::store_fault;
use detent_bus::nats::{NatsBus, NatsOptions};
use detent_protocol::{Code, Fault};
use detent_sandbox::{
    Confine, KeeperCommand, KillSwitch, Limits, ProcessSpec, RunTag, TreeConfine,
};
use detent_store::{Store, StoreOptions};
use detent_tool_executor::{ExecutorOptions, PROCESS_KIND, ProcessKind, ToolKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// One check and what it found.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// What was found.
    pub found: String,
    /// What is wrong, if something is.
    pub fault: Option<Fault>,
}

fn check(name: impl Into<String>, result: Result<String, Fault>) -> Check {
    let (found, fault) = match result {
        Ok(found) => (found, None),
        Err(fault) => (String::new(), Some(fault)),
    };
    Check {
        name: name.into(),
        found,
        fault,
    }
}

/// Everything about the broker, where the node uses one.
async fn broker(config: &Config) -> Vec<Check> {
    let options = match crate::broker::options(config) {
        Ok(None) => return Vec::new(),
        Ok(Some(options)) => options,
        Err(fault) => return vec![check("broker", Err(fault))],
    };
    // Looks, and leaves what is missing to `nats setup` and to the node.
    let looks = NatsOptions {
        create: false,
        ..options
    };
    match NatsBus::look(looks).await {
        Ok(handle) => {
            let checks = handle.check().await.into_iter();
            let named = checks.map(|c| check(format!("broker: {}", c.what), c.found));
            named.collect()
        }
        Err(fault) => vec![check("broker", Err(fault))],
    }
}

/// Tries everything that a node needs, and says what was found.
pub async fn run(config: &Config, data_dir: &Path, keeper: KeeperCommand) -> Vec<Check> {
    let mut checks = vec![
        check("config", Ok(describe(config))),
        check("data directory", disk(data_dir)),
        check("journal", journal(data_dir)),
        check("sandbox", sandbox(keeper.clone()).await),
    ];
    checks.extend(broker(config).await);
    for (name, provider) in &config.reasoners {
        let found = provider
            .secrets()
            .map(|_| "configured; its key can be read".to_owned());
        checks.push(check(format!("reasoner {name}"), found));
    }
    let kind = process_kind(config, keeper);
    for (tool, _) in &config.tools {
        if tool.kind == PROCESS_KIND {
            let result = kind.check(tool).map(|()| "can be started".to_owned());
            checks.push(check(format!("tool {}", tool.name), result));
        }
    }
    checks
}

fn describe(config: &Config) -> String {
    let file = config
        .file
        .as_ref()
        .map_or("built-in defaults".to_owned(), |f| f.display().to_string());
    format!(
        "{file}: {} agents, {} tools",
        config.agents.len(),
        config.tools.len()
    )
}

fn process_kind(config: &Config, keeper: KeeperCommand) -> ProcessKind {
    // Names nobody: nothing is run with it.
    #[allow(clippy::expect_used)]
    let node = detent_protocol::NodeId::new("doctor").expect("a constant name");
    let options = ExecutorOptions::new(node, &config.dir, std::env::temp_dir(), "doctor");
    let confine: Arc<dyn Confine> = Arc::new(TreeConfine::new(keeper));
    ProcessKind::new(confine, &options)
}

/// Writes and syncs a file.
fn disk(data_dir: &Path) -> Result<String, Fault> {
    let failed = |e: std::io::Error| {
        Fault::new(Code::JournalStorage, e.to_string()).at(data_dir.display().to_string())
    };
    std::fs::create_dir_all(data_dir).map_err(failed)?;
    let path = data_dir.join(format!(".doctor-{}", std::process::id()));
    let begin = Instant::now();
    let written = std::fs::File::create(&path)
        .and_then(|mut f| f.write_all(&[0; 4096]).and_then(|()| f.sync_data()));
    let took = begin.elapsed();
    // Left behind only where the disk is in trouble, which is then said.
    let _ = std::fs::remove_file(&path);
    written.map_err(failed)?;
    Ok(format!(
        "can be written; a sync takes {} µs",
        took.as_micros()
    ))
}

/// Verifies the whole store, if there is one that no node uses.
fn journal(data_dir: &Path) -> Result<String, Fault> {
    let dir = data_dir.join("store");
    if !dir.exists() {
        return Ok("none yet".to_owned());
    }
    match Store::open(StoreOptions::journal(&dir)).map_err(store_fault) {
        Ok(store) => {
            let status = store.status().map_err(store_fault)?;
            Ok(format!("{} rows, every checksum holds", status.rows))
        }
        Err(fault) if fault.code == Code::DataDirLocked => {
            Ok("in use by a node; not verified".to_owned())
        }
        Err(fault) => Err(fault),
    }
}

/// Runs a program that does nothing.
async fn sandbox(keeper: KeeperCommand) -> Result<String, Fault> {
    let confine = TreeConfine::new(keeper);
    let spec = ProcessSpec {
        program: "true".into(),
        args: Vec::new(),
        env: BTreeMap::from([("PATH".into(), std::env::var("PATH").unwrap_or_default())]),
        cwd: std::env::temp_dir(),
        stdin: Vec::new(),
        limits: Limits::default(),
        tag: RunTag {
            owner: format!("doctor-{}", std::process::id()),
            run: "1".into(),
        },
        start_deadline: None,
    };
    let ended = confine.run(spec, KillSwitch::new()).await;
    let ended = ended.map_err(|e| Fault::new(Code::ToolUnavailable, e.to_string()))?;
    let missing = ended.level.missing.join(", ");
    Ok(format!(
        "level {}, {} ms a start; not confined: {missing}",
        ended.level.name, ended.wall_ms
    ))
}

/// Everything that is wrong with tools and playbooks, without running any.
pub fn lint(config: &Config) -> Vec<Fault> {
    let kind = process_kind(config, KeeperCommand::this_program(&[]));
    let mut found = Vec::new();
    for (tool, file) in &config.tools {
        if tool.kind != PROCESS_KIND {
            let message = format!("no kind {:?}; there is {PROCESS_KIND}", tool.kind);
            let at = format!("{}: tool {}", file.display(), tool.name);
            found.push(Fault::new(Code::ConfigInvalid, message).at(at));
        } else if let Err(fault) = kind.check(tool) {
            let at = format!("{}: tool {}", file.display(), tool.name);
            found.push(fault.at(at));
        }
    }
    for ((agent, file), definition) in config.agents.iter().zip(&config.definitions) {
        let Some(playbook) = &agent.playbook else {
            continue;
        };
        for fault in detent_reasoner::playbook::lint(playbook, definition) {
            let inner = fault.at.clone().unwrap_or_default();
            found.push(fault.at(format!("{}: playbook{inner}", file.display())));
        }
    }
    found
}
