//! One helper process, seen from its caller.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::error::SpawnError;
use crate::feature::FeatureTable;
use crate::frame;
use crate::helper::ENV_HELPER;
use crate::tree::KeeperCommand;
use crate::wire::{self, NEWS_BYTES_MAX, Order};

/// Enough for a loaded machine to try each feature once.
const GREETING_WITHIN: Duration = Duration::from_secs(60);

/// A helper. Dropping it closes the control socket, which ends it and its sandboxes.
pub(super) struct Helper {
    /// A socket for packets, in the type that the runtime has for its family.
    control: UnixStream,
    /// Reaped by the runtime after the control socket has closed.
    process: Child,
    table: FeatureTable,
    lost: AtomicBool,
}

impl Helper {
    /// Starts one and hears what the machine offers.
    pub(super) async fn start(command: &KeeperCommand) -> Result<Self, SpawnError> {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.map_err(|errno| unavailable(&errno.into()))?;
        // No pre_exec and no uid here, so that the standard library spawns without copying
        // this process's page tables.
        let process = Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .env(ENV_HELPER, "1")
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| unavailable(&error))?;
        let control = wire::for_runtime(ours).map_err(|error| unavailable(&error))?;
        let greeting = tokio::time::timeout(GREETING_WITHIN, greeting(&control)).await;
        let table = greeting
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| unavailable(&error))?;
        Ok(Self {
            control,
            process,
            table,
            lost: AtomicBool::new(false),
        })
    }

    pub(super) fn table(&self) -> &FeatureTable {
        &self.table
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Whether it may be given orders.
    pub(super) fn is_alive(&self) -> bool {
        !self.lost.load(Ordering::Relaxed) && !is_closed(self.control.as_fd())
    }

    /// Not to be used again.
    pub(super) fn give_up(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Hands over one order.
    pub(super) async fn order(
        &self,
        order: Order,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), SpawnError> {
        let sent = self.control.async_io(Interest::WRITABLE, || {
            wire::send(self.control.as_fd(), &order.write(), fds).map_err(io::Error::from)
        });
        sent.await.map_err(|error| {
            self.give_up();
            unavailable(&error)
        })
    }
}

async fn greeting(control: &UnixStream) -> io::Result<FeatureTable> {
    let mut buffer = vec![0; NEWS_BYTES_MAX];
    let (bytes, _) = wire::receive_async(control, &mut buffer).await?;
    frame::read(&mut &buffer[..bytes], NEWS_BYTES_MAX)
}

/// After its greeting a helper sends nothing: anything to read is its end.
fn is_closed(control: BorrowedFd<'_>) -> bool {
    let got = wire::receive(control, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(got, Err(Errno::AGAIN | Errno::INTR))
}

fn unavailable(error: &io::Error) -> SpawnError {
    SpawnError::KeeperUnavailable {
        errno: error.raw_os_error().unwrap_or(0),
    }
}
