//! The node and its broker: how the settings say to reach it, and what the node does
//! while it is connected.

use crate::config::Config;
use detent_bus::nats::{NatsAuth, NatsOptions, NatsTls};
use detent_protocol::{Code, Fault};
use std::path::PathBuf;
use std::time::Duration;

/// How to reach the broker; `None` where the node needs none.
///
/// # Errors
/// `CONFIG_INVALID` for settings that contradict one another.
pub fn options(config: &Config) -> Result<Option<NatsOptions>, Fault> {
    let url = config.text("nats.url");
    if url.is_empty() {
        return Ok(None);
    }
    let file = |path: &str| {
        let given = config.text(path);
        (!given.is_empty()).then(|| config.dir.join(given))
    };
    let mut options = NatsOptions::new(url, config.text("node.name"));
    options.auth = auth(config, file)?;
    let inbox = config.text("nats.inbox_prefix");
    if !inbox.is_empty() {
        options.inbox_prefix = Some(inbox_prefix(inbox)?);
    }
    options.tls = NatsTls {
        required: config.on("nats.tls"),
        ca: file("nats.tls_ca"),
        client: client_certificate(file)?,
    };
    options.replicas = config.size("nats.replicas");
    if ![1, 3, 5].contains(&options.replicas) {
        let message = format!("{} copies; it takes 1, 3 or 5", options.replicas);
        return Err(Fault::new(Code::ConfigInvalid, message).at("nats.replicas"));
    }
    options.create = config.on("nats.create_streams");
    options.journal_bytes_max = config.int("nats.journal_bytes_max");
    options.inbox_bytes_max = config.int("nats.inbox_bytes_max");
    options.blobs_bytes_max = config.int("nats.blobs_bytes_max");
    let monitor = config.text("nats.monitor");
    options.monitor = (!monitor.is_empty()).then(|| monitor.to_owned());
    options.connect_timeout = Duration::from_millis(config.int("nats.connect_timeout_ms"));
    options.ack_timeout = Duration::from_millis(config.int("nats.ack_timeout_ms"));
    Ok(Some(options))
}

fn auth(config: &Config, file: impl Fn(&str) -> Option<PathBuf>) -> Result<NatsAuth, Fault> {
    let user = config.text("nats.user");
    let ways = (
        file("nats.credentials"),
        file("nats.nkey_seed"),
        (!user.is_empty()).then(|| user.to_owned()),
        file("nats.password_file"),
    );
    match ways {
        (None, None, None, None) => Ok(NatsAuth::None),
        (Some(file), None, None, None) => Ok(NatsAuth::Credentials(file)),
        (None, Some(file), None, None) => Ok(NatsAuth::NkeySeed(file)),
        (None, None, Some(user), Some(password_file)) => Ok(NatsAuth::Password {
            user,
            password_file,
        }),
        _ => {
            let message = "one way to prove who the node is: nats.credentials, or \
                           nats.nkey_seed, or nats.user together with nats.password_file";
            Err(Fault::new(Code::ConfigInvalid, message).at("nats"))
        }
    }
}

/// A prefix of a subject: the client panics over what is none.
fn inbox_prefix(text: &str) -> Result<String, Fault> {
    let token = |t: &str| {
        !t.is_empty()
            && t.bytes()
                .all(|b| b.is_ascii_graphic() && b != b'*' && b != b'>')
    };
    if text.split('.').all(token) {
        return Ok(text.to_owned());
    }
    let message = format!("{text:?} is no subject without wildcards");
    Err(Fault::new(Code::ConfigInvalid, message).at("nats.inbox_prefix"))
}

fn client_certificate(
    file: impl Fn(&str) -> Option<PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>, Fault> {
    match (file("nats.tls_cert"), file("nats.tls_key")) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        _ => {
            let message = "a certificate needs its key, and a key its certificate";
            Err(Fault::new(Code::ConfigInvalid, message).at("nats.tls_cert"))
        }
    }
}
