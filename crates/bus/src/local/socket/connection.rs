//! The server's side of one connection.

use super::SocketOptions;
use super::frame::{self, CONNECTION, FRAME_BYTES_MAX, Request};
use crate::{BusError, Messages};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Characters of a refused subject that the answer repeats.
const SUBJECT_CHARS_SHOWN: usize = 256;

/// Serves one client until it goes or breaks the rules. Then its requests in flight are
/// given up; whether they are carried out is not known.
pub(crate) async fn serve(
    stream: UnixStream,
    messages: Arc<dyn Messages>,
    options: Arc<SocketOptions>,
) {
    let (from, to) = stream.into_split();
    let patience = Duration::from_millis(options.frame_ms_max);
    let (answers, outgoing) = mpsc::channel(options.in_flight_max.max(1));
    let mut writer = pin!(write(to, outgoing, patience));
    let mut reader = Reader::new(from, messages, options, answers.clone());
    let end = tokio::select! {
        end = reader.run() => end,
        () = &mut writer => return,
    };
    // Ends the requests in flight, and with them their answers.
    drop(reader);
    if let Err(error) = end {
        tracing::debug!(%error, "a client of the node's socket was cut off");
        let last_word = Outgoing {
            frame: frame::answer(CONNECTION, Err(reason(&error))),
            held: None,
        };
        // A client that does not read learns it from the closed connection.
        let _ = answers.try_send(last_word);
    }
    drop(answers);
    let _ = timeout(patience, writer).await;
}

/// As much of a refused subject as an answer repeats.
fn shown(subject: &str) -> String {
    subject.chars().take(SUBJECT_CHARS_SHOWN).collect()
}

fn reason(error: &io::Error) -> BusError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => BusError::TooLarge {
            bytes: FRAME_BYTES_MAX + 1,
            max: FRAME_BYTES_MAX,
        },
        _ => BusError::Closed,
    }
}

/// A frame on its way to the client, and what it holds until it is there.
struct Outgoing {
    frame: Vec<u8>,
    held: Option<Held>,
}

/// A request's share of its connection's bounds.
struct Held {
    _slot: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

async fn write(mut to: OwnedWriteHalf, mut outgoing: mpsc::Receiver<Outgoing>, patience: Duration) {
    while let Some(Outgoing { frame, held }) = outgoing.recv().await {
        match timeout(patience, to.write_all(&frame)).await {
            Ok(Ok(())) => drop(held),
            _ => return,
        }
    }
}

struct Reader {
    from: BufReader<OwnedReadHalf>,
    messages: Arc<dyn Messages>,
    options: Arc<SocketOptions>,
    answers: mpsc::Sender<Outgoing>,
    slots: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    requests: JoinSet<()>,
}

impl Reader {
    fn new(
        from: OwnedReadHalf,
        messages: Arc<dyn Messages>,
        options: Arc<SocketOptions>,
        answers: mpsc::Sender<Outgoing>,
    ) -> Self {
        let permits = |bound: usize| Arc::new(Semaphore::new(bound.min(Semaphore::MAX_PERMITS)));
        Self {
            from: BufReader::new(from),
            messages,
            answers,
            slots: permits(options.in_flight_max.max(1)),
            bytes: permits(options.in_flight_bytes_max.max(FRAME_BYTES_MAX)),
            options,
            requests: JoinSet::new(),
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        while let Some(first) = frame::first_byte(&mut self.from).await? {
            let patience = Duration::from_millis(self.options.frame_ms_max);
            let length = timeout(patience, frame::length(&mut self.from, first)).await??;
            if length > FRAME_BYTES_MAX {
                let text = format!("a frame of {length} bytes; at most {FRAME_BYTES_MAX}");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
            }
            let bytes = self.reserve(length).await?;
            let request = timeout(patience, frame::body(&mut self.from, length)).await??;
            self.take(request, bytes).await;
            while self.requests.try_join_next().is_some() {}
        }
        Ok(())
    }

    async fn reserve(&self, length: usize) -> io::Result<OwnedSemaphorePermit> {
        // Never more than there are, because of the bound above.
        let wish = u32::try_from(length).unwrap_or(u32::MAX);
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(wish).await;
        bytes.map_err(io::Error::other)
    }

    async fn take(&mut self, request: Request, bytes: OwnedSemaphorePermit) {
        let refusal = if !self.options.allows(&request.subject) {
            BusError::NoResponders(shown(&request.subject))
        } else if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            let held = Held {
                _slot: slot,
                _bytes: bytes,
            };
            return self.start(request, held);
        } else {
            BusError::Busy(request.subject)
        };
        let frame = frame::answer(request.id, Err(refusal));
        // Waits where the client does not take its answers: then it is not read either.
        let _ = self.answers.send(Outgoing { frame, held: None }).await;
    }

    fn start(&mut self, request: Request, held: Held) {
        let (messages, answers) = (Arc::clone(&self.messages), self.answers.clone());
        let timeout = Duration::from_millis(request.timeout_ms.min(self.options.request_ms_max));
        self.requests.spawn(async move {
            let Request {
                id,
                subject,
                payload,
                ..
            } = request;
            let result = messages.request(&subject, payload, timeout).await;
            let frame = frame::answer(id, result);
            let held = Some(held);
            let _ = answers.send(Outgoing { frame, held }).await;
        });
    }
}
