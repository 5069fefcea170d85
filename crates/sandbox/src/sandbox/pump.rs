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
        let room = self.kept.stdout_max - self.kept.stdout.len();
        self.kept.overflow |= bytes > room;
        self.kept.stdout.extend(&self.chunk[..bytes.min(room)]);
        bytes
    }

    fn pull_stderr(&mut self) -> usize {
        let bytes = pull(&mut self.stderr, &mut self.chunk);
        let kept = &mut self.kept;
        kept.stderr.extend(&self.chunk[..bytes]);
        // Cut only now and then, so that a flood is not moved byte by byte.
        if kept.stderr.len() > kept.stderr_max + 16 * CHUNK_BYTES {
            keep_tail(&mut kept.stderr, kept.stderr_max);
        }
        bytes
    }

    /// Reads what is left in the pipes of a dead run. Returns what was kept, and whether
    /// standard output went over its limit.
    pub(super) fn finish(mut self) -> (Vec<u8>, Vec<u8>, bool) {
        while !self.kept.overflow && self.pull_stdout() > 0 {}
        let mut drained = 0;
        while drained < DRAIN_BYTES_MAX {
            match self.pull_stderr() {
                0 => break,
                bytes => drained += bytes,
            }
        }
        let mut kept = self.kept;
        keep_tail(&mut kept.stderr, kept.stderr_max);
        (kept.stdout, kept.stderr, kept.overflow)
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
