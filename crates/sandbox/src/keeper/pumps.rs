//! The three pipes of the program: input is written while both outputs are
//! read, none of them ever blocks, and what is kept is bounded.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::spec::Limits;

const CHUNK_BYTES: usize = 64 * 1024;
/// How much standard error is read after the tree is dead: all that a pipe can
/// hold by default settings, so that a process outside the tree that was handed
/// the other end cannot keep the keeper reading. Standard output has its limit.
const DRAIN_BYTES_MAX: usize = 1024 * 1024 + CHUNK_BYTES;

/// Input still to be written.
struct Feed {
    pipe: ChildStdin,
    input: Vec<u8>,
    written: usize,
}

/// The pipes and what came out of them.
pub(super) struct Pumps {
    feed: Option<Feed>,
    stdout_pipe: Option<ChildStdout>,
    stderr_pipe: Option<ChildStderr>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    stdout_max: usize,
    stderr_max: usize,
    overflow: bool,
}

impl Pumps {
    /// Takes the pipes of `child`.
    pub(super) fn new(child: &mut Child, input: Vec<u8>, limits: Limits) -> io::Result<Self> {
        let feed = child.stdin.take().map(|pipe| Feed {
            pipe,
            input,
            written: 0,
        });
        let pumps = Self {
            feed: feed.filter(|feed| !feed.input.is_empty()),
            stdout_pipe: child.stdout.take(),
            stderr_pipe: child.stderr.take(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            stdout_max: usize::try_from(limits.stdout_bytes_max).unwrap_or(usize::MAX),
            stderr_max: usize::try_from(limits.stderr_bytes_max).unwrap_or(usize::MAX),
            overflow: false,
        };
        let pipes = [pumps.stdin(), pumps.stdout(), pumps.stderr()];
        for pipe in pipes.into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(pumps)
    }

    /// The input pipe while there is something to write.
    pub(super) fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.feed.as_ref().map(|feed| feed.pipe.as_fd())
    }

    /// The output pipe until its end.
    pub(super) fn stdout(&self) -> Option<BorrowedFd<'_>> {
        self.stdout_pipe.as_ref().map(AsFd::as_fd)
    }

    /// The error pipe until its end.
    pub(super) fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr_pipe.as_ref().map(AsFd::as_fd)
    }

    /// Whether standard output went over its limit.
    pub(super) fn overflow(&self) -> bool {
        self.overflow
    }

    /// Writes what the pipe takes now; closes it at the end of the input, or
    /// when nobody reads it.
    pub(super) fn feed(&mut self) {
        let Some(feed) = &mut self.feed else { return };
        match feed.pipe.write(&feed.input[feed.written..]) {
            Ok(bytes) => feed.written += bytes,
            Err(error) if is_passing(&error) => return,
            Err(_) => feed.written = feed.input.len(),
        }
        if feed.written == feed.input.len() {
            self.feed = None;
        }
    }

    /// Reads one chunk of output; returns the bytes taken from the pipe.
    pub(super) fn pull_stdout(&mut self) -> usize {
        let chunk = pull(&mut self.stdout_pipe);
        let room = self.stdout_max - self.stdout.len();
        self.overflow |= chunk.len() > room;
        self.stdout.extend(&chunk[..chunk.len().min(room)]);
        chunk.len()
    }

    /// Reads one chunk of errors; returns the bytes taken from the pipe.
    pub(super) fn pull_stderr(&mut self) -> usize {
        let chunk = pull(&mut self.stderr_pipe);
        self.stderr.extend(&chunk);
        // Cut only now and then, so that a flood is not moved byte by byte.
        if self.stderr.len() > self.stderr_max + 16 * CHUNK_BYTES {
            keep_tail(&mut self.stderr, self.stderr_max);
        }
        chunk.len()
    }

    /// Reads what is left in the pipes of a dead tree.
    pub(super) fn drain(&mut self) {
        while !self.overflow && self.pull_stdout() > 0 {}
        let mut drained = 0;
        while drained < DRAIN_BYTES_MAX {
            match self.pull_stderr() {
                0 => return,
                bytes => drained += bytes,
            }
        }
    }

    /// What was kept of standard output and standard error.
    pub(super) fn into_output(mut self) -> (Vec<u8>, Vec<u8>) {
        keep_tail(&mut self.stderr, self.stderr_max);
        (self.stdout, self.stderr)
    }
}

/// One read. Drops the pipe at its end or when it fails.
fn pull<P: Read>(pipe: &mut Option<P>) -> Vec<u8> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let read = pipe.as_mut().map_or(Ok(0), |pipe| pipe.read(&mut chunk));
    let bytes = match read {
        Err(error) if is_passing(&error) => 0,
        Ok(0) | Err(_) => {
            *pipe = None;
            0
        }
        Ok(bytes) => bytes,
    };
    chunk.truncate(bytes);
    chunk
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn keep_tail(bytes: &mut Vec<u8>, bytes_max: usize) {
    let surplus = bytes.len().saturating_sub(bytes_max);
    bytes.drain(..surplus);
}
