//! The settings of a private server, and the file it reads them from.

use super::ports;
use detent_protocol::{Code, Fault, MESSAGE_BYTES_MAX};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most of a log that goes into a fault's message, bytes.
const TAIL_BYTES_MAX: usize = 2000;
/// Size at which the server begins another log file, bytes; one old one is kept.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// A server's place in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The cluster's name, the same on each server.
    pub name: String,
    /// Port for the other servers, on the loopback interface.
    pub port: u16,
    /// Ports of all servers of the cluster; its own may be among them.
    pub routes: Vec<u16>,
}

/// How a private server is started.
///
/// The file that is written has, beside what stands here:
/// - `listen`, `http` and `cluster.listen` on `127.0.0.1`: it is for this machine alone;
/// - `max_payload` of 1 MiB, which is the bus's bound ([`MESSAGE_BYTES_MAX`]): what works
///   on a private server works on one with the usual settings;
/// - `jetstream.store_dir` below the folder: nothing is kept elsewhere;
/// - `jetstream.max_file_store`: without it the server takes three quarters of the free
///   disk, and streams, which reserve their `max_bytes`, can't be made on a small one;
/// - `ports_file_dir`: the server writes a file once it listens, so that another server on
///   its port is not taken for it;
/// - a log file of at most 16 MiB and one older one, since its output is nobody's terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// The nats-server program ([`super::find_server`]).
    pub program: PathBuf,
    /// Its folder, made if it is missing: settings, log and all it keeps. Belongs to one
    /// server at a time.
    pub dir: PathBuf,
    /// Its name, unique within a cluster.
    pub name: String,
    /// Port for clients; 0 is any free one.
    pub port: u16,
    /// Port for monitoring over HTTP; 0 is any free one, `None` is no monitoring.
    pub monitor_port: Option<u16>,
    /// Its place in a cluster.
    pub cluster: Option<ClusterOptions>,
    /// Sync to the disk before each confirmation (`sync_interval: always`). Without it the
    /// server syncs every two minutes, and a power cut takes what it confirmed since.
    pub sync_always: bool,
    /// Most bytes in files.
    pub file_bytes_max: u64,
    /// Most bytes of streams in memory; Detent has none.
    pub memory_bytes_max: u64,
    /// Further settings as they stand in a configuration file: accounts, users, TLS.
    pub extra: String,
    /// How long [`super::PrivateServer::start`] waits.
    pub start_timeout: Duration,
}

impl ServerOptions {
    /// A lone server on any free port: no monitoring, sync before each confirmation, 64
    /// GiB in files, 64 MiB in memory, 30 s to start.
    pub fn new(program: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            dir: dir.into(),
            name: "detent".into(),
            port: 0,
            monitor_port: None,
            cluster: None,
            sync_always: true,
            file_bytes_max: 64 << 30,
            memory_bytes_max: 64 << 20,
            extra: String::new(),
            start_timeout: Duration::from_secs(30),
        }
    }

    /// Its log.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("nats-server.log")
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.dir.join("nats-server.conf")
    }

    /// What it says before it reads its settings, and when it dies.
    pub(super) fn output_file(&self) -> PathBuf {
        self.dir.join("nats-server.out")
    }

    /// What it writes once it listens on all its ports.
    pub(super) fn ports_file(&self, pid: u32) -> PathBuf {
        let program = self.program.file_name().unwrap_or_default();
        let name = format!("{}_{pid}.ports", program.to_string_lossy());
        self.dir.join(name)
    }

    pub(super) fn ports_are_given(&self) -> bool {
        self.port != 0 && self.monitor_port != Some(0)
    }

    /// With the open ports chosen.
    pub(super) fn with_ports(mut self) -> Result<Self, Fault> {
        let mut free = ports::free(2)?.into_iter();
        if self.port == 0 {
            self.port = free.next().unwrap_or(0);
        }
        if self.monitor_port == Some(0) {
            self.monitor_port = free.next();
        }
        Ok(self)
    }

    fn text(&self) -> Result<String, Fault> {
        let mut text = String::from("# Written by detent at each start: changes are lost.\n");
        let mut line = |key: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{key}: {value}");
        };
        line("server_name", quoted(&self.name)?);
        line("listen", format!("\"127.0.0.1:{}\"", self.port));
        if let Some(port) = self.monitor_port {
            line("http", format!("\"127.0.0.1:{port}\""));
        }
        line("max_payload", MESSAGE_BYTES_MAX.to_string());
        line("log_file", quoted_path(&self.log_file())?);
        line("ports_file_dir", quoted_path(&self.dir)?);
        line("logfile_size_limit", LOG_BYTES_MAX.to_string());
        line("logfile_max_num", "2".into());
        let store = quoted_path(&self.dir.join("jetstream"))?;
        let sync = if self.sync_always { "always" } else { "\"2m\"" };
        let (file, memory) = (self.file_bytes_max, self.memory_bytes_max);
        line(
            "jetstream",
            format!(
                "{{\n  store_dir: {store}\n  sync_interval: {sync}\n  max_file_store: {file}\n  \
                 max_memory_store: {memory}\n}}"
            ),
        );
        if let Some(cluster) = &self.cluster {
            line("cluster", cluster.text()?);
        }
        text.push_str(&self.extra);
        text.push('\n');
        Ok(text)
    }
}

impl ClusterOptions {
    fn text(&self) -> Result<String, Fault> {
        let name = quoted(&self.name)?;
        let routes = self.routes.iter();
        let routes: Vec<_> = routes
            .map(|port| format!("\"nats-route://127.0.0.1:{port}\""))
            .collect();
        let (port, routes) = (self.port, routes.join(", "));
        Ok(format!(
            "{{\n  name: {name}\n  listen: \"127.0.0.1:{port}\"\n  routes: [{routes}]\n}}"
        ))
    }
}

/// In quotes; what could end them is refused rather than escaped.
fn quoted(text: &str) -> Result<String, Fault> {
    let fits = !text.is_empty() && !text.contains(['"', '\\', '\n', '\r', '$']);
    if fits {
        return Ok(format!("\"{text}\""));
    }
    let message = format!("{text:?} can't stand in the settings of a nats-server");
    Err(Fault::new(Code::ConfigInvalid, message))
}

fn quoted_path(path: &Path) -> Result<String, Fault> {
    let full = std::path::absolute(path).map_err(|e| unusable(path, &e))?;
    quoted(&full.to_string_lossy())
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    let text = format!("the folder of a nats-server can't be used: {error}");
    Fault::new(Code::ConfigInvalid, text).at(path.display().to_string())
}

/// Writes the settings; makes the folder.
pub(super) fn write(options: &ServerOptions) -> Result<(), Fault> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let text = options.text()?;
    let dir = &options.dir;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(|e| unusable(dir, &e))?;
    remove_old_ports_files(dir).map_err(|e| unusable(dir, &e))?;
    let path = options.config_file();
    let mut file = std::fs::OpenOptions::new();
    // `extra` may hold passwords.
    file.write(true).create(true).truncate(true).mode(0o600);
    let written = file.open(&path).and_then(|mut file| {
        use std::io::Write;
        file.write_all(text.as_bytes())
    });
    written.map_err(|e| unusable(&path, &e))
}

/// A killed server leaves its file, and the next may get its number.
fn remove_old_ports_files(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "ports") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The ends of its output and its log, for people.
pub(super) fn log_tail(options: &ServerOptions) -> String {
    let files = [options.output_file(), options.log_file()];
    let tails = files.iter().filter_map(|file| tail(file));
    tails.collect::<Vec<_>>().join("\n")
}

fn tail(file: &Path) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(file).ok()?;
    let len = file.metadata().ok()?.len();
    let from = len.saturating_sub(TAIL_BYTES_MAX as u64 / 2);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_end_a_quote_is_refused() {
        for bad in ["a\"b", "a\\b", "a\nb", "$HOME", ""] {
            assert_eq!(
                quoted(bad).unwrap_err().code,
                Code::ConfigInvalid,
                "{bad:?}"
            );
        }
        assert_eq!(quoted("/a b/c").unwrap(), "\"/a b/c\"");
    }

    #[test]
    fn the_file_holds_what_is_promised() {
        let options = ServerOptions {
            port: 4333,
            monitor_port: Some(8333),
            cluster: Some(ClusterOptions {
                name: "c".into(),
                port: 6333,
                routes: vec![6333, 6334],
            }),
            ..ServerOptions::new("nats-server", "/x")
        };
        let text = options.text().unwrap();
        for line in [
            "listen: \"127.0.0.1:4333\"",
            "http: \"127.0.0.1:8333\"",
            "max_payload: 1048576",
            "sync_interval: always",
            "store_dir: \"/x/jetstream\"",
            "routes: [\"nats-route://127.0.0.1:6333\", \"nats-route://127.0.0.1:6334\"]",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    }
}
