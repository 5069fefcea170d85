//! What is said between a caller and the helper that builds its sandboxes.
//!
//! On the control socket (packets): one [`Order`] a run, with the run's descriptors, the
//! first of them a socket for the run's [`News`] and the last before the optional ones a
//! file in memory with the [`Request`]; from the helper once the [`FeatureTable`]. Closing a
//! run's socket means "kill it".

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::clock::BootInstant;
use crate::error::SpawnError;
use crate::exit::Hit;
use crate::policy::{Policy, Resources};
use crate::spec::{ARGS_BYTES_MAX, ProcessSpec};

/// Bound on a request; its standard input goes through a pipe.
pub(crate) const REQUEST_BYTES_MAX: usize = ARGS_BYTES_MAX + 256 * 1024;
/// Bound on one piece of news, and on the feature table.
pub(crate) const NEWS_BYTES_MAX: usize = 64 * 1024;
/// The most descriptors that come with one order.
const FDS_MAX: usize = 8;

/// One run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) policy: Policy,
    /// Whether the working directory is to become the program's own.
    pub(crate) give_work: bool,
    /// Without its standard input.
    pub(crate) spec: ProcessSpec,
}

/// A bit of [`Order::parts`]: the working directory comes along.
pub(crate) const ORDER_WORK: u8 = 1;
/// A bit of [`Order::parts`]: a socket for the egress proxy's listener comes along.
pub(crate) const ORDER_EGRESS: u8 = 2;

/// What stands in the packet of an order itself: enough to find a place for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    /// Which of the optional descriptors come with it.
    pub(crate) parts: u8,
    pub(crate) limits: Resources,
}

/// The size of an [`Order`].
pub(crate) const ORDER_BYTES: usize = 17;

impl Order {
    pub(crate) fn write(self) -> [u8; ORDER_BYTES] {
        let limits = self.limits;
        let numbers = [
            limits.memory_mib_max,
            limits.processes_max,
            limits.cpu_percent_max,
            limits.open_files_max,
        ];
        let mut bytes = [self.parts; ORDER_BYTES];
        for (to, number) in bytes[1..].chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn read(bytes: [u8; ORDER_BYTES]) -> Self {
        let number = |at: usize| {
            let at = 1 + 4 * at;
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            parts: bytes[0],
            limits: Resources {
                memory_mib_max: number(0),
                processes_max: number(1),
                cpu_percent_max: number(2),
                open_files_max: number(3),
            },
        }
    }
}

/// What a helper tells about a run: at most one `Started`, then one of the others.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum News {
    /// The program is executing.
    Started { pid: u32, at: BootInstant },
    /// Everything in the sandbox is dead and reaped.
    Ended(Ended),
    /// There is no outcome; nothing of the run is alive.
    Failed(SpawnError),
}

/// How a run ended, as far as the helper knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) why: Why,
    pub(crate) hit: Option<Hit>,
    pub(crate) wall_ms: u64,
    pub(crate) cpu_ms: u64,
    pub(crate) max_rss_bytes: u64,
}

/// Why everything in a sandbox is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    /// The program exited.
    Exited(i32),
    /// The program was ended by a signal of somebody else's.
    Signaled(i32),
    /// Its time was over.
    Deadline,
    /// The caller closed the run's socket.
    Killed,
}

/// Sends a packet with descriptors.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(rustix::io::Errno::TOOBIG);
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}

/// Receives a packet with descriptors; an empty one is the end.
pub(crate) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(buffer)];
    let got = rustix::net::recvmsg(socket, &mut parts, &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok((got.bytes, fds))
}

/// A socket for packets in the type that the runtime has for its family.
pub(crate) fn for_runtime(socket: OwnedFd) -> io::Result<UnixStream> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    UnixStream::from_std(socket.into())
}

/// [`receive`] for a runtime's task.
pub(crate) async fn receive_async(
    socket: &UnixStream,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let received = socket.async_io(Interest::READABLE, || {
        receive(socket, buffer, RecvFlags::empty()).map_err(io::Error::from)
    });
    received.await
}

/// A file in memory that holds `bytes`, read from the start by whoever gets it.
pub(crate) fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    use std::io::{Seek, Write};
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("request", flags)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_the_trip() {
        let order = Order {
            parts: ORDER_WORK | ORDER_EGRESS,
            limits: Resources {
                memory_mib_max: 1,
                processes_max: 2_000_000,
                cpu_percent_max: 3,
                open_files_max: u32::MAX,
            },
        };
        assert_eq!(Order::read(order.write()), order);
    }
}
