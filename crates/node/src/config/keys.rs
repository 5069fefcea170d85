//! The settings: one table gives name, default, range, environment variable and help.

use super::{Source, invalid};
use detent_protocol::Fault;
use std::collections::BTreeMap;
use toml::Value;

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text {
        /// Default.
        default: &'static str,
    },
    /// A whole number.
    Int {
        /// Default.
        default: u64,
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// `true` or `false`.
    Bool {
        /// Default.
        default: bool,
    },
}

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// `section.key`.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is, with its unit.
    pub doc: &'static str,
}

const fn text(path: &'static str, default: &'static str, doc: &'static str) -> Key {
    let kind = Kind::Text { default };
    Key { path, kind, doc }
}
const fn int(path: &'static str, default: u64, range: (u64, u64), doc: &'static str) -> Key {
    let (min, max) = range;
    let kind = Kind::Int { default, min, max };
    Key { path, kind, doc }
}
const fn on(path: &'static str, default: bool, doc: &'static str) -> Key {
    let kind = Kind::Bool { default };
    Key { path, kind, doc }
}

/// Every setting.
pub const KEYS: &[Key] = &[
    text(
        "node.name",
        "local",
        "Name of the node: 1 to 64 of A-Z a-z 0-9 - _.",
    ),
    text(
        "node.http_listen",
        "127.0.0.1:8710",
        "Address of /metrics, /healthz and /readyz; empty: none; port 0: any free one.",
    ),
    int(
        "node.goals_in_flight_max",
        10_000,
        (1, 1_000_000),
        "Goals in flight; one more is refused with retry-after.",
    ),
    int(
        "node.tools_in_flight_max",
        16,
        (1, 4096),
        "Tools that run at the same time.",
    ),
    int(
        "node.tools_waiting_max",
        4096,
        (1, 1_000_000),
        "Tool calls that wait beyond these; one more is refused.",
    ),
    int(
        "node.drain_ms",
        20_000,
        (0, 3_600_000),
        "How long a stop waits for running tools, milliseconds.",
    ),
    int(
        "node.idempotency_keep_days",
        30,
        (1, 3650),
        "How long after its issue an idempotency key is taken, days.",
    ),
    int(
        "node.plan_timeout_ms",
        180_000,
        (100, 3_600_000),
        "Longest wait for a plan, milliseconds.",
    ),
    int(
        "node.scan_every_ms",
        30_000,
        (100, 3_600_000),
        "How often open goals that nobody works on are looked for, milliseconds.",
    ),
    on(
        "node.publish_events",
        false,
        "Tell each transition on the bus as it happens; followers that ask need it not.",
    ),
    text(
        "nats.url",
        "",
        "NATS servers, comma-separated, e.g. nats://127.0.0.1:4222; empty: the bus of one process, which needs no server.",
    ),
    text(
        "nats.credentials",
        "",
        "File of credentials, as nsc writes it. Files here are relative to the configuration's folder.",
    ),
    text("nats.nkey_seed", "", "File that holds an nkey seed."),
    text("nats.user", "", "User, with nats.password_file."),
    text(
        "nats.password_file",
        "",
        "File that holds the user's password.",
    ),
    text(
        "nats.inbox_prefix",
        "",
        "Prefix of the subjects on which answers come, e.g. _INBOX.default; empty: _INBOX. A user whose permissions name one needs it.",
    ),
    on(
        "nats.tls",
        false,
        "TLS or nothing, also where the server does not ask for it.",
    ),
    text(
        "nats.tls_ca",
        "",
        "Certificates of who may sign the server's, PEM; empty: the system's.",
    ),
    text(
        "nats.tls_cert",
        "",
        "The node's own certificate, PEM, with nats.tls_key.",
    ),
    text(
        "nats.tls_key",
        "",
        "Key of the node's own certificate, PEM.",
    ),
    int(
        "nats.replicas",
        1,
        (1, 5),
        "Copies of each stream: 1, 3 or 5. Fewer than 3 do not survive the loss of a server.",
    ),
    on(
        "nats.create_streams",
        true,
        "Make streams that are missing. Off: `detent nats setup` makes them, with rights that nodes need not have.",
    ),
    int(
        "nats.journal_bytes_max",
        10 << 30,
        (1 << 20, 1 << 50),
        "Most bytes of the journal's stream; full, it refuses goals and loses none.",
    ),
    int(
        "nats.inbox_bytes_max",
        1 << 30,
        (1 << 20, 1 << 50),
        "Most bytes of each stream of durable messages; full, it refuses publishers.",
    ),
    int(
        "nats.blobs_bytes_max",
        1 << 30,
        (1 << 20, 1 << 50),
        "Most bytes of the object store.",
    ),
    text(
        "nats.monitor",
        "",
        "Monitoring endpoint of a server, http://host:port: shows `detent doctor` whether it syncs what it confirms.",
    ),
    int(
        "nats.connect_timeout_ms",
        10_000,
        (100, 600_000),
        "Longest wait for the first connection, milliseconds.",
    ),
    int(
        "nats.ack_timeout_ms",
        1_000,
        (50, 60_000),
        "Longest wait for the confirmation of one append before it is settled by reading, milliseconds.",
    ),
    on(
        "nats.publish_events",
        true,
        "Publish each transition on the goal's event subject.",
    ),
    int(
        "store.cache_bytes",
        64 << 20,
        (1 << 20, 1 << 40),
        "Cache of the store, bytes.",
    ),
    on(
        "store.sync",
        true,
        "Sync each commit to the disk. Off: a power cut may lose goals that were accepted.",
    ),
    on(
        "retention.on",
        true,
        "Forget goals that have ended. Off: all that is kept of a goal stays until the data directory is removed.",
    ),
    int(
        "retention.journal_ms",
        86_400_000,
        (0, 315_360_000_000),
        "How long after its end a goal's journal is kept, milliseconds; then it is archived, and its effect slots, ledger rows and work folder go. Its result stays as long as its key may come again.",
    ),
    int(
        "retention.archive_ms",
        2_592_000_000,
        (3_600_000, 315_360_000_000),
        "How long after its end a goal's archive is kept, milliseconds: what `detent goals export` and `watch` read once its journal is gone.",
    ),
    on("audit.on", true, "Write the audit log."),
    text(
        "audit.file",
        "audit.log",
        "The audit log; relative to the data directory.",
    ),
    int(
        "audit.rotate_bytes",
        16 << 20,
        (64 << 10, 1 << 40),
        "Size at which the audit log is rotated, bytes.",
    ),
    int(
        "audit.files_max",
        5,
        (1, 1000),
        "Rotated audit logs that are kept.",
    ),
    int(
        "audit.queue_max",
        65_536,
        (16, 1 << 24),
        "Audit records that wait to be written; beyond it they are counted as lost, in the log and in a metric.",
    ),
];

/// The setting with this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.path == path)
}

/// What is said about a path that is none; with the nearest one.
pub(super) fn unknown(path: &str) -> String {
    let near = KEYS.iter().min_by_key(|k| distance(k.path, path));
    let near = near.filter(|k| distance(k.path, path) <= 3);
    let hint = near
        .map(|k| format!("did you mean {}? ", k.path))
        .unwrap_or_default();
    format!("no setting {path:?}; {hint}`detent config show` lists all")
}

/// Levenshtein distance, for texts of a few dozen bytes.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().take(64).enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

impl Key {
    /// Its environment variable, e.g. `DETENT_NODE_NAME`.
    pub fn env_name(&self) -> String {
        format!("DETENT_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Reads a value from the environment or a flag.
    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        match self.kind {
            Kind::Text { .. } => Ok(Value::String(text.to_owned())),
            Kind::Int { .. } => text
                .parse()
                .map(Value::Integer)
                .map_err(|_| format!("{} takes a whole number, not {text:?}", self.path)),
            Kind::Bool { .. } => text
                .parse()
                .map(Value::Boolean)
                .map_err(|_| format!("{} takes true or false, not {text:?}", self.path)),
        }
    }

    fn default(&self) -> Value {
        match self.kind {
            Kind::Text { default } => Value::String(default.to_owned()),
            // Defaults are far below i64::MAX.
            Kind::Int { default, .. } => Value::Integer(i64::try_from(default).unwrap_or(i64::MAX)),
            Kind::Bool { default } => Value::Boolean(default),
        }
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        match (self.kind, value) {
            (Kind::Text { .. }, Value::String(_)) | (Kind::Bool { .. }, Value::Boolean(_)) => {
                Ok(())
            }
            (Kind::Int { min, max, .. }, Value::Integer(v)) => {
                let inside = u64::try_from(*v).is_ok_and(|v| (min..=max).contains(&v));
                if inside {
                    Ok(())
                } else {
                    Err(format!("{} takes {min} to {max}", self.path))
                }
            }
            (Kind::Text { .. }, _) => Err(format!("{} takes a text in quotes", self.path)),
            (Kind::Int { .. }, _) => Err(format!("{} takes a whole number", self.path)),
            (Kind::Bool { .. }, _) => Err(format!("{} takes true or false", self.path)),
        }
    }
}

pub(super) type Values = BTreeMap<&'static str, (Value, Source)>;

pub(super) fn defaults() -> Values {
    let each = KEYS
        .iter()
        .map(|k| (k.path, (k.default(), Source::Default)));
    each.collect()
}

/// Puts a layer's value over what stands there.
pub(super) fn set(
    values: &mut Values,
    path: &str,
    value: Value,
    source: Source,
) -> Result<(), Fault> {
    let at = source.to_string();
    let key = find(path).ok_or_else(|| invalid(&at, unknown(path)))?;
    key.check(&value).map_err(|m| invalid(&at, m))?;
    values.insert(key.path, (value, source));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_its_range_and_documented() {
        for key in KEYS {
            key.check(&key.default()).unwrap();
            assert!(key.doc.ends_with('.'), "{}", key.path);
        }
    }

    #[test]
    fn a_typing_mistake_gets_a_hint() {
        assert!(unknown("node.nmae").contains("node.name"));
        assert!(!unknown("completely.different").contains("did you mean"));
    }
}
