//! Does the broker sync what it confirms? JetStream's API does not tell; a server's
//! monitoring endpoint does.
//!
//! Promises: one HTTP request of bounded size and time. Where it can't be seen, that is
//! said; it is never guessed.
//!
//! Must not know: streams.

use serde::Deserialize;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// For the whole request.
const WAIT: Duration = Duration::from_secs(5);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Does a server sync what it confirms?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Synced {
    /// Before it confirms.
    Always,
    /// This often: a power cut of a majority at once may lose what was confirmed since.
    Every(Duration),
    /// It can't be seen, and why.
    NotVisible(String),
}

/// What the server's JetStream is set to.
#[derive(Deserialize)]
struct Varz {
    jetstream: JetStream,
}

#[derive(Deserialize)]
struct JetStream {
    config: Option<Config>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    sync_always: bool,
    /// Nanoseconds.
    sync_interval: Option<u64>,
}

/// Asks the monitoring endpoint `http://host:port`.
pub(crate) async fn synced(monitor: Option<&str>) -> Synced {
    let Some(monitor) = monitor else {
        let why = "`nats.monitor` names no monitoring endpoint";
        return Synced::NotVisible(why.into());
    };
    let asked = tokio::time::timeout(WAIT, get(monitor, "/varz")).await;
    let answer = match asked {
        Ok(Ok(answer)) => answer,
        Ok(Err(e)) => return Synced::NotVisible(format!("{monitor}/varz: {e}")),
        Err(_) => return Synced::NotVisible(format!("{monitor}/varz: no answer in {WAIT:?}")),
    };
    read(&answer).unwrap_or_else(|why| Synced::NotVisible(format!("{monitor}/varz: {why}")))
}

fn read(answer: &[u8]) -> Result<Synced, String> {
    let varz: Varz = serde_json::from_slice(answer).map_err(|e| e.to_string())?;
    let config = varz.jetstream.config.ok_or("the server has no JetStream")?;
    match config {
        Config {
            sync_always: true, ..
        } => Ok(Synced::Always),
        Config {
            sync_interval: Some(ns),
            ..
        } => Ok(Synced::Every(Duration::from_nanos(ns))),
        _ => Err("it does not say".into()),
    }
}

/// The body of an answer to HTTP GET. Asked as HTTP/1.0, so that the body is what comes
/// until the server closes.
async fn get(url: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let bad = |text: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, text.to_owned());
    let host = url
        .trim_end_matches('/')
        .strip_prefix("http://")
        .ok_or_else(|| bad("not like http://host:port"))?;
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .await?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or_else(|| bad("not an answer of HTTP"))?;
    let head = answer.get(..end).unwrap_or_default();
    let status = head.split(|byte| *byte == b' ').nth(1);
    if status != Some(b"200") {
        return Err(bad("not 200 OK"));
    }
    Ok(answer.split_off(end + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let varz = |config: &str| read(format!(r#"{{"jetstream":{{{config}}}}}"#).as_bytes());
        let always = r#""config":{"sync_interval":120000000000,"sync_always":true}"#;
        assert_eq!(varz(always), Ok(Synced::Always));
        let every = r#""config":{"sync_interval":120000000000}"#;
        assert_eq!(varz(every), Ok(Synced::Every(Duration::from_secs(120))));
        assert!(varz(r#""config":{}"#).is_err());
        assert!(varz("").is_err());
        assert!(read(b"not json").is_err());
    }
}
