//! The form a policy has in a file, and how one that extends another is put together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Files, Network, Policy, Resources, Work, wrong};
use crate::error::SpawnError;
use crate::feature::Feature;

/// How many policies may extend one another.
const DEPTH_MAX: usize = 4;

/// The text of a policy that comes along.
pub(super) fn builtin(name: &str) -> Option<&'static str> {
    Some(match name {
        "default" => include_str!("../../../../config/sandbox/default.toml"),
        "python" => include_str!("../../../../config/sandbox/python.toml"),
        "node" => include_str!("../../../../config/sandbox/node.toml"),
        "java" => include_str!("../../../../config/sandbox/java.toml"),
        "native" => include_str!("../../../../config/sandbox/native.toml"),
        "network" => include_str!("../../../../config/sandbox/network.toml"),
        _ => return None,
    })
}

/// Reads `text` and what it extends.
pub(super) fn parse(name: &str, text: &str) -> Result<Policy, SpawnError> {
    let mut layers: Vec<PolicyFile> = Vec::new();
    let mut text = text;
    loop {
        let layer: PolicyFile =
            toml::from_str(text).map_err(|error| wrong(name, error.to_string().trim()))?;
        let parent = layer.extends.clone();
        layers.push(layer);
        let Some(parent) = parent else { break };
        if layers.len() == DEPTH_MAX {
            return Err(wrong(
                name,
                "policies extend one another more than three times",
            ));
        }
        let missing = || {
            wrong(
                name,
                &format!("it extends {parent:?}, which is not built in"),
            )
        };
        text = builtin(&parent).ok_or_else(missing)?;
    }
    let mut merged = PolicyFile::default();
    for layer in layers.into_iter().rev() {
        merged.lay_over(layer);
    }
    merged.complete(name)
}

/// The whole policy as a file that extends nothing.
pub(super) fn write(policy: &Policy) -> Result<String, String> {
    let (files, bounds) = (policy.files.clone(), policy.resources);
    let file = PolicyFile {
        extends: None,
        allow_degraded: policy.allow_degraded.clone(),
        files: FilesPart {
            read_only: files.read_only,
            written: files.written,
            devices: files.devices,
            tmp_mib_max: Some(files.tmp_mib_max),
            tmp_files_max: Some(files.tmp_files_max),
            shm_mib_max: Some(files.shm_mib_max),
            file_mib_max: Some(files.file_mib_max),
            work: Some(files.work),
            work_at: Some(files.work_at),
            work_mib_max: Some(files.work_mib_max),
            work_protected: files.work_protected,
        },
        resources: ResourcesPart {
            memory_mib_max: Some(bounds.memory_mib_max),
            processes_max: Some(bounds.processes_max),
            cpu_percent_max: Some(bounds.cpu_percent_max),
            open_files_max: Some(bounds.open_files_max),
        },
        network: NetworkPart {
            allow: policy.network.allow.clone(),
            allow_private: policy.network.allow_private.clone(),
        },
        seccomp: SeccompPart {
            deny: policy.denied_calls.clone(),
            socket_families: policy.socket_families.clone(),
        },
        environment: policy.environment.clone(),
    };
    toml::to_string_pretty(&file).map_err(|error| error.to_string())
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct PolicyFile {
    extends: Option<String>,
    allow_degraded: Vec<Feature>,
    files: FilesPart,
    resources: ResourcesPart,
    network: NetworkPart,
    seccomp: SeccompPart,
    environment: BTreeMap<String, String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct FilesPart {
    read_only: Vec<PathBuf>,
    written: BTreeMap<PathBuf, String>,
    devices: Vec<String>,
    tmp_mib_max: Option<u32>,
    tmp_files_max: Option<u32>,
    shm_mib_max: Option<u32>,
    file_mib_max: Option<u32>,
    work: Option<Work>,
    work_at: Option<PathBuf>,
    work_mib_max: Option<u32>,
    work_protected: Vec<PathBuf>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct ResourcesPart {
    memory_mib_max: Option<u32>,
    processes_max: Option<u32>,
    cpu_percent_max: Option<u32>,
    open_files_max: Option<u32>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct NetworkPart {
    allow: Vec<String>,
    allow_private: Vec<String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct SeccompPart {
    deny: Vec<String>,
    socket_families: Vec<String>,
}

impl PolicyFile {
    /// Lists grow, values are replaced.
    fn lay_over(&mut self, over: Self) {
        self.allow_degraded.extend(over.allow_degraded);
        self.environment.extend(over.environment);
        self.seccomp.deny.extend(over.seccomp.deny);
        // A list of what is permitted is replaced, so that it can shrink.
        if !over.seccomp.socket_families.is_empty() {
            self.seccomp.socket_families = over.seccomp.socket_families;
        }
        self.network.allow.extend(over.network.allow);
        self.network
            .allow_private
            .extend(over.network.allow_private);
        let (files, more) = (&mut self.files, over.files);
        files.read_only.extend(more.read_only);
        files.written.extend(more.written);
        files.devices.extend(more.devices);
        files.work_protected.extend(more.work_protected);
        replace(&mut files.tmp_mib_max, more.tmp_mib_max);
        replace(&mut files.tmp_files_max, more.tmp_files_max);
        replace(&mut files.shm_mib_max, more.shm_mib_max);
        replace(&mut files.file_mib_max, more.file_mib_max);
        replace(&mut files.work, more.work);
        replace(&mut files.work_at, more.work_at);
        replace(&mut files.work_mib_max, more.work_mib_max);
        let (bounds, more) = (&mut self.resources, over.resources);
        replace(&mut bounds.memory_mib_max, more.memory_mib_max);
        replace(&mut bounds.processes_max, more.processes_max);
        replace(&mut bounds.cpu_percent_max, more.cpu_percent_max);
        replace(&mut bounds.open_files_max, more.open_files_max);
    }

    fn complete(self, name: &str) -> Result<Policy, SpawnError> {
        let absent = |what: &str| {
            let reason = format!("{what} is not set; extends = \"default\" gives a value");
            wrong(name, &reason)
        };
        let (files, bounds) = (self.files, self.resources);
        Ok(Policy {
            name: name.to_owned(),
            allow_degraded: self.allow_degraded,
            files: Files {
                read_only: files.read_only,
                written: files.written,
                devices: files.devices,
                tmp_mib_max: files.tmp_mib_max.ok_or_else(|| absent("tmp_mib_max"))?,
                tmp_files_max: files.tmp_files_max.ok_or_else(|| absent("tmp_files_max"))?,
                shm_mib_max: files.shm_mib_max.ok_or_else(|| absent("shm_mib_max"))?,
                file_mib_max: files.file_mib_max.ok_or_else(|| absent("file_mib_max"))?,
                work: files.work.ok_or_else(|| absent("work"))?,
                work_at: files.work_at.ok_or_else(|| absent("work_at"))?,
                work_mib_max: files.work_mib_max.ok_or_else(|| absent("work_mib_max"))?,
                work_protected: files.work_protected,
            },
            resources: Resources {
                memory_mib_max: bounds
                    .memory_mib_max
                    .ok_or_else(|| absent("memory_mib_max"))?,
                processes_max: bounds
                    .processes_max
                    .ok_or_else(|| absent("processes_max"))?,
                cpu_percent_max: bounds
                    .cpu_percent_max
                    .ok_or_else(|| absent("cpu_percent_max"))?,
                open_files_max: bounds
                    .open_files_max
                    .ok_or_else(|| absent("open_files_max"))?,
            },
            network: Network {
                allow: self.network.allow,
                allow_private: self.network.allow_private,
            },
            denied_calls: self.seccomp.deny,
            socket_families: self.seccomp.socket_families,
            environment: self.environment,
        })
    }
}

fn replace<T>(old: &mut Option<T>, new: Option<T>) {
    if new.is_some() {
        *old = new;
    }
}
