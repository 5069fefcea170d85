//! Lets other processes of the machine use a node's messages, over a Unix socket.
//!
//! What it is for: commands and tools beside a node on the local bus, which has no
//! server that they could reach.
//!
//! What it promises: only the subjects that [`SocketOptions::allowed`] names are served,
//! only to the user the node runs as (the socket has mode 0600). A client can hurt its
//! own connection alone: frames, requests, connections and waiting times are bounded.
//!
//! What it must not know: what the payloads mean.

mod client;
mod connection;
mod frame;
mod server;
#[cfg(test)]
mod tests;

pub use client::SocketClient;
pub use server::{SocketError, SocketServer};

use detent_protocol::subject::{QUERY_ALL, STEER_ALL, SUBMIT_ALL, matches};

/// Largest request or answer over a socket, bytes; as over a network.
pub const SOCKET_MESSAGE_BYTES_MAX: usize = detent_protocol::MESSAGE_BYTES_MAX;

/// What a [`SocketServer`] serves, and its bounds.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// Subject patterns that are served; any other subject has no responders.
    pub allowed: Vec<String>,
    /// Connections at the same time; one more is told that the node is busy.
    pub connections_max: usize,
    /// Requests in flight on one connection; one more is answered
    /// [`crate::BusError::Busy`].
    pub in_flight_max: usize,
    /// Bytes of requests in flight on one connection; beyond it the connection is not
    /// read. At least one frame ([`SOCKET_MESSAGE_BYTES_MAX`] and 4 KiB) is let through.
    pub in_flight_bytes_max: usize,
    /// How long a client may take from a frame's first byte to its last, and to take an
    /// answer, milliseconds; then its connection is closed.
    pub frame_ms_max: u64,
    /// Longest time a request may wait for its answer, milliseconds; longer wishes are
    /// cut to it.
    pub request_ms_max: u64,
}

impl Default for SocketOptions {
    /// Submissions, control messages and queries; 64 connections with 64 requests and 8
    /// MiB each in flight; 10 s a frame; 10 minutes a request.
    fn default() -> Self {
        Self {
            allowed: [SUBMIT_ALL, STEER_ALL, QUERY_ALL]
                .map(str::to_owned)
                .to_vec(),
            connections_max: 64,
            in_flight_max: 64,
            in_flight_bytes_max: 8 << 20,
            frame_ms_max: 10_000,
            request_ms_max: 600_000,
        }
    }
}

impl SocketOptions {
    fn allows(&self, subject: &str) -> bool {
        is_concrete(subject) && self.allowed.iter().any(|pattern| matches(pattern, subject))
    }
}

/// Longest subject that a client may name, bytes: two names and the words between them.
const SUBJECT_BYTES_MAX: usize = 256;

/// Names one subject: no wildcards, no empty tokens, nothing that a server of another
/// bus would refuse or take for the end of the name.
fn is_concrete(subject: &str) -> bool {
    let refused = |c: char| c == '*' || c == '>' || c.is_whitespace() || c.is_control();
    subject.len() <= SUBJECT_BYTES_MAX
        && subject
            .split('.')
            .all(|token| !token.is_empty() && !token.contains(refused))
}
