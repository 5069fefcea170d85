//! How a node reaches the broker, and what it demands of it.

use std::path::PathBuf;
use std::time::Duration;

/// How a client proves who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NatsAuth {
    /// Not at all.
    #[default]
    None,
    /// A file of credentials, as `nsc` writes it.
    Credentials(PathBuf),
    /// A file that holds an nkey seed.
    NkeySeed(PathBuf),
    /// A user's name and a file that holds the password.
    Password {
        /// The user.
        user: String,
        /// File with the password; white space around it is cut off.
        password_file: PathBuf,
    },
}

/// TLS to the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// TLS or nothing, also where the server does not ask for it.
    pub required: bool,
    /// Certificates of who may sign the server's; the system's where it is missing. PEM.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key. PEM.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// How a node reaches the broker, and what it demands of it.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Servers: `nats://host:port` or `tls://host:port`, comma-separated.
    pub url: String,
    /// Shown in the server's list of connections; the node's name.
    pub name: String,
    /// Who it is.
    pub auth: NatsAuth,
    /// Prefix of the subjects on which answers come; `None`: `_INBOX`. A user whose
    /// permissions name another one needs it here.
    pub inbox_prefix: Option<String>,
    /// TLS.
    pub tls: NatsTls,
    /// Copies of each stream: 1, 3 or 5.
    pub replicas: usize,
    /// Make streams that are missing. Without it a missing one is refused.
    pub create: bool,
    /// Most bytes of the journal's stream; full, it refuses goals and loses none.
    pub journal_bytes_max: u64,
    /// Most bytes of each stream of durable messages.
    pub inbox_bytes_max: u64,
    /// How long nothing may be heard of a durable message that somebody has in hand until
    /// it is delivered again. Who deals with it says so three times within that.
    pub inbox_ack_wait: Duration,
    /// How often a durable message is delivered before it becomes a dead letter.
    pub inbox_tries_max: u64,
    /// How long dead letters are kept.
    pub dead_keep: Duration,
    /// Most bytes of the bodies.
    pub blobs_bytes_max: u64,
    /// Monitoring endpoint of a server, `http://host:port`, where there is one: shows
    /// whether the server syncs what it confirms.
    pub monitor: Option<String>,
    /// Longest wait for the first connection.
    pub connect_timeout: Duration,
    /// Longest wait for the broker's confirmation of one append.
    pub ack_timeout: Duration,
}

impl NatsOptions {
    /// One copy of each stream, missing ones are made, 10 GiB of journal, 1 GiB of each
    /// other; durable messages are delivered again after 30 s of silence, 20 times at
    /// most, dead letters kept for 30 days; 10 s to connect, 1 s for a confirmation.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            url: url.into(),
            name: name.into(),
            auth: NatsAuth::None,
            inbox_prefix: None,
            tls: NatsTls::default(),
            replicas: 1,
            create: true,
            journal_bytes_max: 10 * GIB,
            inbox_bytes_max: GIB,
            inbox_ack_wait: Duration::from_secs(30),
            inbox_tries_max: 20,
            dead_keep: Duration::from_secs(30 * 24 * 3600),
            blobs_bytes_max: GIB,
            monitor: None,
            connect_timeout: Duration::from_secs(10),
            ack_timeout: Duration::from_secs(1),
        }
    }
}
