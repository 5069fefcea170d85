//! The listening side: the socket file and who may connect.

use super::frame::{self, CONNECTION};
use super::{SocketOptions, connection};
use crate::{BusError, Messages};
use detent_protocol::{Code, Fault};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// Only the user the node runs as.
const MODE: u32 = 0o600;
/// Connections the system holds until they are accepted.
const BACKLOG: u32 = 64;
/// How long a node that already listens is given to show that it lives.
const PROBE: Duration = Duration::from_secs(2);
/// Pause after a failed accept: mostly the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a socket can't be listened on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A live process listens there.
    #[error("another node listens on {}", .0.display())]
    InUse(PathBuf),
    /// Something else than a socket lies there; it is left alone.
    #[error("{} is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("can't listen on {}: {source}", path.display())]
    Io {
        /// The socket file.
        path: PathBuf,
        /// The system's error; a path longer than about 100 bytes is one too.
        source: io::Error,
    },
}

impl From<SocketError> for Fault {
    fn from(error: SocketError) -> Self {
        let code = match error {
            SocketError::InUse(_) => Code::DataDirLocked,
            SocketError::NotASocket(_) | SocketError::Io { .. } => Code::ConfigInvalid,
        };
        Fault::new(code, error.to_string())
    }
}

/// Serves a node's messages on a socket; dropping it closes all connections and removes
/// the socket file.
#[derive(Debug)]
pub struct SocketServer {
    path: PathBuf,
    /// Device and inode: a file that somebody else put there since is not removed.
    file: (u64, u64),
    accepting: JoinHandle<()>,
}

impl SocketServer {
    /// Listens on `path` with mode 0600. A socket file that nobody listens on, as a
    /// killed node leaves it, is replaced.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn bind(
        path: impl AsRef<Path>,
        messages: Arc<dyn Messages>,
        options: SocketOptions,
    ) -> Result<Self, SocketError> {
        let path = path.as_ref().to_owned();
        remove_stale(&path).await?;
        let failed = |source| SocketError::Io {
            path: path.clone(),
            source,
        };
        let listener = listen(&path).map_err(failed)?;
        let file = identity(&path).map_err(failed)?;
        let accepting = tokio::spawn(accept_all(listener, messages, Arc::new(options)));
        Ok(Self {
            path,
            file,
            accepting,
        })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        // The task owns the connections, so they end with it.
        self.accepting.abort();
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // Best effort: the next node replaces a stale file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

async fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Io {
        path: path.to_owned(),
        source,
    };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(e)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match tokio::time::timeout(PROBE, UnixStream::connect(path)).await {
        Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Ok(Err(e)) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // Full of connections that wait is alive too; so is one that does not answer.
        _ => Err(SocketError::InUse(path.to_owned())),
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // Linux makes the file with the mode of the unbound socket, so there is no moment at
    // which others could connect.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(MODE))?;
    socket.bind(path)?;
    // For systems that don't: still before anybody is listened to.
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)
}

async fn accept_all(
    listener: UnixListener,
    messages: Arc<dyn Messages>,
    options: Arc<SocketOptions>,
) {
    let seats = options.connections_max.clamp(1, Semaphore::MAX_PERMITS);
    let seats = Arc::new(Semaphore::new(seats));
    let mut connections = JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "can't accept on the node's socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else {
            turn_away(stream);
            continue;
        };
        let serving = connection::serve(stream, Arc::clone(&messages), Arc::clone(&options));
        connections.spawn(async move {
            let _seat = seat;
            serving.await;
        });
    }
}

/// Says that the node is busy. A few bytes into a fresh socket never wait.
fn turn_away(stream: UnixStream) {
    let busy = BusError::Busy("the node's socket: too many connections".into());
    let frame = frame::answer(CONNECTION, Err(busy));
    if let Ok(mut stream) = stream.into_std() {
        // A client that is gone already needs no answer.
        let _ = stream.write_all(&frame);
    }
}
