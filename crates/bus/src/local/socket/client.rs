//! The connecting side.

use super::SOCKET_MESSAGE_BYTES_MAX;
use super::frame::{self, Answer, CONNECTION, FRAME_BYTES_MAX, Request};
use crate::{BusError, Handler, Messages, ServeOptions, Served, Subscription};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Frames that wait for the socket; further requests wait to get in.
const OUTGOING_MAX: usize = 64;

type Outcome = Result<Bytes, BusError>;

/// A connection to the node of this machine.
///
/// Of [`Messages`] it offers requests, to the subjects the node allows; serving,
/// subscribing and publishing end with [`BusError::Closed`]. Once the connection is lost,
/// every request ends with the reason; connect anew to go on.
#[derive(Debug)]
pub struct SocketClient {
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Vec<u8>>,
    next_id: AtomicU64,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u64, oneshot::Sender<Outcome>>,
    /// Why nothing comes any more.
    ended: Option<BusError>,
}

impl SocketClient {
    /// Connects to the node that listens on `path`.
    ///
    /// # Errors
    /// [`BusError::NoResponders`] with path and cause when no node answers there.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, BusError> {
        let path = path.as_ref();
        let stream = UnixStream::connect(path).await.map_err(|e| {
            let why = match e.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    "no node is running".to_owned()
                }
                _ => e.to_string(),
            };
            BusError::NoResponders(format!("{} ({why})", path.display()))
        })?;
        let (from, to) = stream.into_split();
        let shared = Arc::new(Shared::default());
        let (outgoing, frames) = mpsc::channel(OUTGOING_MAX);
        let reading = tokio::spawn(read(from, Arc::clone(&shared)));
        let tasks = [reading, tokio::spawn(write(to, frames))];
        Ok(Self {
            shared,
            outgoing,
            next_id: AtomicU64::new(CONNECTION + 1),
            tasks,
        })
    }
}

impl Drop for SocketClient {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[async_trait]
impl Messages for SocketClient {
    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Outcome {
        let (bytes, max) = (payload.len(), SOCKET_MESSAGE_BYTES_MAX);
        if bytes > max {
            return Err(BusError::TooLarge { bytes, max });
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let frame = frame::encode(&Request {
            id,
            subject: subject.to_owned(),
            payload,
            timeout_ms,
        })?;
        let (_waiting, heard) = Waiting::register(&self.shared, id)?;
        let exchange = async {
            // Where this fails the connection is lost, and the reader tells why.
            let _ = self.outgoing.send(frame).await;
            heard.await.unwrap_or(Err(BusError::Closed))
        };
        let late = |_| {
            Err(BusError::Timeout {
                subject: subject.to_owned(),
                timeout_ms,
            })
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(late)
    }

    async fn publish(&self, _subject: &str, _payload: Bytes) -> Result<(), BusError> {
        Err(BusError::Closed)
    }

    async fn serve(
        &self,
        _pattern: &str,
        _options: ServeOptions,
        _handler: Arc<dyn Handler>,
    ) -> Result<Served, BusError> {
        Err(BusError::Closed)
    }

    async fn subscribe(
        &self,
        _pattern: &str,
        _queue_max: usize,
    ) -> Result<Box<dyn Subscription>, BusError> {
        Err(BusError::Closed)
    }
}

/// A request's place among those that wait; given up when the asker goes.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl<'a> Waiting<'a> {
    fn register(
        shared: &'a Shared,
        id: u64,
    ) -> Result<(Self, oneshot::Receiver<Outcome>), BusError> {
        let mut state = shared.state();
        if let Some(reason) = &state.ended {
            return Err(reason.clone());
        }
        let (answer, heard) = oneshot::channel();
        state.waiting.insert(id, answer);
        drop(state);
        Ok((Self { shared, id }, heard))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.state().waiting.remove(&self.id);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Changed by single inserts and removes: never half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, id: u64, result: Outcome) {
        if let Some(answer) = self.state().waiting.remove(&id) {
            // The asker may just have given up.
            let _ = answer.send(result);
        }
    }

    fn end(&self, reason: BusError) {
        let mut state = self.state();
        for (_, answer) in state.waiting.drain() {
            let _ = answer.send(Err(reason.clone()));
        }
        state.ended = Some(reason);
    }
}

async fn write(mut to: OwnedWriteHalf, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}

async fn read(from: OwnedReadHalf, shared: Arc<Shared>) {
    let mut from = BufReader::new(from);
    let reason = loop {
        match next(&mut from).await {
            Ok(Some(Answer { id, result })) if id != CONNECTION => shared.hear(id, result.into()),
            Ok(Some(last_word)) => {
                break Outcome::from(last_word.result)
                    .err()
                    .unwrap_or(BusError::Closed);
            }
            Ok(None) | Err(_) => break BusError::Closed,
        }
    };
    shared.end(reason);
}

async fn next(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Answer>> {
    let Some(first) = frame::first_byte(from).await? else {
        return Ok(None);
    };
    let length = frame::length(from, first).await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    frame::body(from, length).await.map(Some)
}
