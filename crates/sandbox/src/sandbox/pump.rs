//! The three pipes of a run, on the caller's side: none ever blocks, and what is kept is
//! bounded.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::spec::Limits;

const CHUNK_BYTES: usize = 64 * 1024;
/// How much is read after everything is dead: all that pipes hold by default settings, so
/// that whoever was handed the other end cannot keep the caller reading.
const DRAIN_BYTES_MAX: usize = 1024 * 1024 + CHUNK_BYTES;

/// The sandbox's ends.
pub(super) struct Ends {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// The caller's ends and what came out of them.
pub(super) struct Pump {
    stdin: Option<Sender>,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    kept: Kept,
    chunk: Box<[u8]>,
}

struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    stdout_max: usize,
    stderr_max: usize,
    overflow: bool,
}

impl Pump {
    /// Three new pipes.
    pub(super) fn open(limits: Limits) -> io::Result<(Self, Ends)> {
        let (stdin, feed) = pipe_with(PipeFlags::CLOEXEC)?;
        let (pull_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (pull_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let pump = Self {
            stdin: Some(Sender::from_owned_fd(feed)?),
            stdout: Some(Receiver::from_owned_fd(pull_stdout)?),
            stderr: Some(Receiver::from_owned_fd(pull_stderr)?),
            kept: Kept {
                stdout: Vec::new(),
                stderr: Vec::new(),
                stdout_max: usize::try_from(limits.stdout_bytes_max).unwrap_or(usize::MAX),
                stderr_max: usize::try_from(limits.stderr_bytes_max).unwrap_or(usize::MAX),
                overflow: false,
            },
            chunk: vec![0; CHUNK_BYTES].into_boxed_slice(),
        };
        let ends = Ends {
            stdin,
            stdout,
            stderr,
        };
        Ok((pump, ends))
    }

    /// Where the input goes.
    pub(super) fn take_stdin(&mut self) -> Option<Sender> {
        self.stdin.take()
    }

    /// Moves bytes until standard output is over its limit; then, and when both outputs
    /// have ended, it does not return again. Cancel safe.
    pub(super) async fn run_to_overflow(&mut self) {
        while !self.kept.overflow {
            self.wait().await;
            self.pull_stdout();
            self.pull_stderr();
        }
    }

    async fn wait(&self) {
        let readable = async |pipe: &Option<Receiver>| match pipe {
            // An error shows again when it is read.
            Some(pipe) => drop(pipe.readable().await),
            None => std::future::pending().await,
        };
        tokio::select! {
            () = readable(&self.stdout) => {}
            () = readable(&self.stderr) => {}
        }
    }

    fn pull_stdout(&mut self) -> usize {
        let bytes = pull(&mut self.stdout, &mut self.chunk);
        self.kept.add_stdout(&self.chunk[..bytes]);
        bytes
    }

    fn pull_stderr(&mut self) -> usize {
        let bytes = pull(&mut self.stderr, &mut self.chunk);
        self.kept.add_stderr(&self.chunk[..bytes]);
        bytes
    }

    /// Reads what is left in the pipes of a dead run. Returns what was kept, and whether
    /// standard output went over its limit.
    pub(super) fn finish(mut self) -> (Vec<u8>, Vec<u8>, bool) {
        // Past the runtime, which may not have heard yet that there is something to read.
        let plain = |pipe: Option<Receiver>| pipe.and_then(|pipe| pipe.into_nonblocking_fd().ok());
        let (stdout, stderr) = (plain(self.stdout.take()), plain(self.stderr.take()));
        while !self.kept.overflow {
            match read(stdout.as_ref(), &mut self.chunk) {
                0 => break,
                bytes => self.kept.add_stdout(&self.chunk[..bytes]),
            }
        }
        let mut drained = 0;
        while drained < DRAIN_BYTES_MAX {
            match read(stderr.as_ref(), &mut self.chunk) {
                0 => break,
                bytes => {
                    self.kept.add_stderr(&self.chunk[..bytes]);
                    drained += bytes;
                }
            }
        }
        let mut kept = self.kept;
        keep_tail(&mut kept.stderr, kept.stderr_max);
        (kept.stdout, kept.stderr, kept.overflow)
    }
}

impl Kept {
    fn add_stdout(&mut self, bytes: &[u8]) {
        let room = self.stdout_max - self.stdout.len();
        self.overflow |= bytes.len() > room;
        self.stdout.extend(&bytes[..bytes.len().min(room)]);
    }

    fn add_stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend(bytes);
        // Cut only now and then, so that a flood is not moved byte by byte.
        if self.stderr.len() > self.stderr_max + 16 * CHUNK_BYTES {
            keep_tail(&mut self.stderr, self.stderr_max);
        }
    }
}

/// What can be read at once; 0 at the end, and when there is nothing.
fn read(pipe: Option<&OwnedFd>, chunk: &mut [u8]) -> usize {
    let Some(pipe) = pipe else { return 0 };
    loop {
        match rustix::io::read(pipe, &mut *chunk) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.unwrap_or(0),
        }
    }
}

/// Writes the input to its end, or until nobody reads it.
pub(super) async fn feed(stdin: Option<Sender>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
    }
}

/// Takes one chunk; forgets the pipe at its end.
fn pull(pipe: &mut Option<Receiver>, chunk: &mut [u8]) -> usize {
    let Some(open) = pipe else { return 0 };
    match open.try_read(chunk) {
        Ok(0) => *pipe = None,
        Ok(bytes) => return bytes,
        Err(error) if is_passing(&error) => {}
        Err(_) => *pipe = None,
    }
    0
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn keep_tail(bytes: &mut Vec<u8>, max: usize) {
    let surplus = bytes.len().saturating_sub(max);
    bytes.drain(..surplus);
}
