//! A NATS server outside the node, as an operator runs one: what nodes that die find
//! again, and what itself can die.

use crate::{Context, Result, binary};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a server to listen.
const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// One server on loopback, with its data below a folder. Killed when dropped.
#[derive(Debug)]
pub struct Broker {
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Broker {
    /// Starts a server that syncs what it confirms.
    ///
    /// # Errors
    /// There is no `nats-server`, or it does not start.
    pub fn start(dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let settings = format!(
            "listen: \"127.0.0.1:{port}\"\nmax_payload: 1100KB\njetstream {{\n  \
             store_dir: \"{}\"\n  sync_interval: always\n  max_file_store: 64GB\n}}\n",
            dir.join("data").display()
        );
        Self::with_settings(dir, port, &settings)
    }

    /// Starts a server with these settings, which name `port`.
    ///
    /// # Errors
    /// There is no `nats-server`, or it does not start.
    pub fn with_settings(dir: &Path, port: u16, settings: &str) -> Result<Self> {
        std::fs::create_dir_all(dir).context("the broker's folder")?;
        std::fs::write(dir.join("server.conf"), settings).context("the broker's settings")?;
        let mut broker = Self {
            dir: dir.to_path_buf(),
            port,
            child: None,
        };
        broker.restart()?;
        Ok(broker)
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts it again on its port and its data.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(&mut self) -> Result<()> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("server.log"))
            .context("the broker's log")?;
        let child = Command::new(program()?)
            .arg("-c")
            .arg(self.dir.join("server.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting nats-server")?;
        self.child = Some(child);
        let until = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.as_mut().map(|c| c.try_wait());
            if let Some(Ok(Some(status))) = ended {
                let log = self.dir.join("server.log");
                return Err(format!(
                    "nats-server ended: {status}, see {}",
                    log.display()
                ));
            }
            if Instant::now() > until {
                return Err("nats-server does not listen".to_owned());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// The system does not say that it ended.
    pub fn kill(&mut self) -> Result<()> {
        self.end(Signal::KILL)
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    /// The system does not say that it ended.
    pub fn terminate(&mut self) -> Result<()> {
        self.end(Signal::TERM)
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("no such process")?, signal).context("ending nats-server")?;
        child.wait().context("waiting for nats-server").map(drop)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The server that `cargo xtask setup` installed, or that `DETENT_NATS_SERVER` names.
///
/// # Errors
/// There is none.
pub fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("DETENT_NATS_SERVER") {
        return Ok(named.into());
    }
    let installed = binary::workspace().join("target/tools/nats-server");
    if installed.is_file() {
        return Ok(installed);
    }
    Err("no nats-server; do: cargo xtask setup".to_owned())
}

/// A port on loopback that is free now.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    listener
        .local_addr()
        .map(|a| a.port())
        .context("a free port")
}
