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
use crate::policy::Policy;
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
    /// Without its standard input.
    pub(crate) spec: ProcessSpec,
}

/// Which of the optional descriptors come with an order, as bits of its one byte.
pub(crate) const ORDER_WORK: u8 = 1;
pub(crate) const ORDER_EGRESS: u8 = 2;

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
