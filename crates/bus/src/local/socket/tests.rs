//! The socket from outside: what clients may do, and what broken ones can't.

use super::frame::{self, Answer, FRAME_BYTES_MAX, Outcome, Request};
use super::*;
use crate::local::{LocalBus, LocalOptions};
use crate::{Bus, BusError, Handler, Messages, ServeOptions, Served};
use bytes::Bytes;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

const PATIENCE: Duration = Duration::from_secs(60);
const SUBMIT: &str = "detent.default.submit.agent";
const CONTROL: &str = "detent.default.steer.goal";

/// Answers submissions at once and control messages once they are let go.
struct Node(Arc<Semaphore>);

#[async_trait::async_trait]
impl Handler for Node {
    async fn handle(&self, subject: &str, payload: Bytes) -> Bytes {
        if subject == CONTROL {
            self.0.acquire().await.unwrap().forget();
        }
        payload
    }
}

struct Setup {
    bus: Bus,
    gate: Arc<Semaphore>,
    socket: PathBuf,
    _served: Served,
    _dir: tempfile::TempDir,
}

async fn setup() -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let store = detent_store::StoreOptions::cache(dir.path().join("store"));
    let store = detent_store::Store::open(store).unwrap();
    let bus = LocalBus::open(LocalOptions::new(store, dir.path().join("blobs"))).unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let node = Arc::new(Node(Arc::clone(&gate)));
    let served = bus
        .messages
        .serve("detent.>", ServeOptions::default(), node);
    Setup {
        _served: served.await.unwrap(),
        socket: dir.path().join("node.sock"),
        gate,
        bus,
        _dir: dir,
    }
}

impl Setup {
    async fn bind(&self, options: SocketOptions) -> SocketServer {
        let messages = Arc::clone(&self.bus.messages);
        SocketServer::bind(&self.socket, messages, options)
            .await
            .unwrap()
    }
    async fn client(&self) -> SocketClient {
        SocketClient::connect(&self.socket).await.unwrap()
    }
    async fn raw(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }
    /// The server still serves well-behaved clients.
    async fn assert_serves(&self) {
        let answer = ask(&self.client().await, SUBMIT).await;
        assert_eq!(answer, Ok(Bytes::from_static(b"x")));
    }
}

async fn ask(client: &SocketClient, subject: &str) -> Result<Bytes, BusError> {
    let payload = Bytes::from_static(b"x");
    client.request(subject, payload, PATIENCE).await
}

/// What the server says until it closes the connection.
async fn until_closed(stream: &mut UnixStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is an end too: the server did not read everything.
    let reading = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
    let _ = reading.expect("the server closes the connection");
    said
}

async fn decoded(mut said: &[u8]) -> Answer {
    let first = frame::first_byte(&mut said).await.unwrap().unwrap();
    let length = frame::length(&mut said, first).await.unwrap();
    frame::body(&mut said, length).await.unwrap()
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let setup = setup().await;
    let _server = setup.bind(SocketOptions::default()).await;
    let client = setup.client().await;
    // Slow ones do not hold up a fast one.
    let slow = (0..20).map(|_| ask(&client, CONTROL));
    let (slow, fast) = tokio::join!(futures::future::join_all(slow), async {
        let fast = ask(&client, SUBMIT).await;
        setup.gate.add_permits(20);
        fast
    });
    assert!(fast.is_ok() && slow.iter().all(Result::is_ok));
}

#[tokio::test]
async fn payloads_are_carried_as_they_are() {
    let setup = setup().await;
    let _server = setup.bind(SocketOptions::default()).await;
    let client = setup.client().await;
    for len in [0, 1, 70_000, SOCKET_MESSAGE_BYTES_MAX] {
        let payload: Bytes = (0..len).map(|n| n.to_le_bytes()[0]).collect();
        let answer = client.request(SUBMIT, payload.clone(), PATIENCE).await;
        assert_eq!(answer, Ok(payload));
    }
    let beyond = Bytes::from(vec![0; SOCKET_MESSAGE_BYTES_MAX + 1]);
    let refused = client.request(SUBMIT, beyond, PATIENCE).await;
    assert!(matches!(refused, Err(BusError::TooLarge { .. })));
    ask(&client, SUBMIT).await.unwrap();
}

#[tokio::test]
async fn only_allowed_subjects_are_served() {
    let setup = setup().await;
    let _server = setup.bind(SocketOptions::default()).await;
    let client = setup.client().await;
    for subject in ["detent.tool.rm", "detent.executor.n", "detent.reason.x", ""] {
        let refused = ask(&client, subject).await;
        assert_eq!(refused, Err(BusError::NoResponders(subject.into())));
    }
    ask(&client, "detent.default.query").await.unwrap();
    let published = client.publish(SUBMIT, Bytes::new()).await;
    assert_eq!(published, Err(BusError::Closed));
}

#[tokio::test]
async fn only_names_of_one_subject_are_served() {
    let setup = setup().await;
    let _server = setup.bind(SocketOptions::default()).await;
    let client = setup.client().await;
    let long = format!("detent.default.submit.{}", "a".repeat(256));
    for subject in [
        "detent..submit.agent",
        "detent.default.submit.",
        "detent.*.submit.agent",
        "detent.default.submit.>",
        "detent.default.submit.a b",
        "detent.default.submit.a\u{a0}b",
        "detent.default.submit.a\nb",
        "detent.default.submit.a\0",
        &long,
    ] {
        let refused = ask(&client, subject).await;
        let shown = subject[..subject.len().min(256)].to_owned();
        assert_eq!(refused, Err(BusError::NoResponders(shown)));
    }
    ask(&client, SUBMIT).await.unwrap();
}

#[tokio::test]
async fn timeouts_come_from_the_asker_and_are_cut_by_the_node() {
    let setup = setup().await;
    let options = SocketOptions {
        request_ms_max: 20,
        ..SocketOptions::default()
    };
    let _server = setup.bind(options).await;
    let client = setup.client().await;
    let subject = CONTROL.to_owned();
    let cut = ask(&client, CONTROL).await;
    let timeout_ms = 20;
    assert_eq!(
        cut,
        Err(BusError::Timeout {
            subject,
            timeout_ms
        })
    );
    let own = Duration::from_millis(1);
    let late = client.request(CONTROL, Bytes::new(), own).await;
    assert!(matches!(late, Err(BusError::Timeout { .. })));
}

#[tokio::test]
async fn too_many_requests_are_busy() {
    let setup = setup().await;
    let options = SocketOptions {
        in_flight_max: 2,
        ..SocketOptions::default()
    };
    let _server = setup.bind(options).await;
    let client = setup.client().await;
    let requests = (0..5).map(|_| ask(&client, CONTROL));
    let mut requests: futures::stream::FuturesUnordered<_> = requests.collect();
    for _ in 0..3 {
        let refused = futures::StreamExt::next(&mut requests).await;
        assert_eq!(refused, Some(Err(BusError::Busy(CONTROL.into()))));
    }
    setup.gate.add_permits(2);
    let rest: Vec<_> = futures::StreamExt::collect(requests).await;
    assert!(rest.len() == 2 && rest.iter().all(Result::is_ok));
}

#[tokio::test]
async fn too_many_connections_are_told_so() {
    let setup = setup().await;
    let options = SocketOptions {
        connections_max: 1,
        ..SocketOptions::default()
    };
    let _server = setup.bind(options).await;
    let first = setup.client().await;
    ask(&first, SUBMIT).await.unwrap();
    let second = setup.client().await;
    assert!(matches!(ask(&second, SUBMIT).await, Err(BusError::Busy(_))));
    ask(&first, SUBMIT).await.unwrap();
    drop(first);
    // Its place is free once the server has seen that it went.
    let freed = async {
        while ask(&setup.client().await, SUBMIT).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.unwrap();
}

#[tokio::test]
async fn junk_ends_its_own_connection_only() {
    let setup = setup().await;
    let _server = setup.bind(SocketOptions::default()).await;
    let bystander = setup.client().await;
    let mut trailing = frame::encode(&Answer {
        id: 1,
        result: Outcome::Closed,
    })
    .unwrap();
    trailing.extend_from_slice(b"junk");
    let deep = [&60_000u32.to_be_bytes()[..], &[0x91; 60_000]].concat();
    let empty = 0u32.to_be_bytes().to_vec();
    for junk in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), trailing, deep, empty] {
        let mut stream = setup.raw().await;
        // The server may close before it has read all.
        let _ = stream.write_all(&junk).await;
        let last_word = until_closed(&mut stream).await;
        assert_eq!(decoded(&last_word).await.id, frame::CONNECTION);
        ask(&bystander, SUBMIT).await.unwrap();
    }
}

#[tokio::test]
async fn an_oversized_frame_is_refused_by_its_length() {
    let setup = setup().await;
    let _server = setup.bind(SocketOptions::default()).await;
    for length in [FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
        let mut stream = setup.raw().await;
        stream.write_all(&length.to_be_bytes()).await.unwrap();
        let last_word = decoded(&until_closed(&mut stream).await).await;
        assert!(matches!(last_word.result, Outcome::TooLarge { .. }));
    }
    setup.assert_serves().await;
}

#[tokio::test]
async fn half_frames_are_given_up() {
    let setup = setup().await;
    let options = SocketOptions {
        frame_ms_max: 50,
        ..SocketOptions::default()
    };
    let _server = setup.bind(options).await;
    let whole = frame::encode(&Request {
        id: 1,
        subject: SUBMIT.into(),
        payload: Bytes::from_static(b"x"),
        timeout_ms: 1000,
    })
    .unwrap();
    // Cut in the length, after it, and in the body; the clients stay connected.
    for cut in [2, 4, whole.len() - 1] {
        let mut stream = setup.raw().await;
        stream.write_all(&whole[..cut]).await.unwrap();
        until_closed(&mut stream).await;
    }
    // And one that goes away in the middle.
    let mut stream = setup.raw().await;
    stream.write_all(&whole[..9]).await.unwrap();
    drop(stream);
    setup.assert_serves().await;
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_cut_off() {
    let setup = setup().await;
    let options = SocketOptions {
        frame_ms_max: 200,
        ..SocketOptions::default()
    };
    let _server = setup.bind(options).await;
    let request = frame::encode(&Request {
        id: 1,
        subject: SUBMIT.into(),
        payload: Bytes::from(vec![0; SOCKET_MESSAGE_BYTES_MAX]),
        timeout_ms: 60_000,
    })
    .unwrap();
    let mut stream = setup.raw().await;
    // Never reads: the answers pile up until the server gives up on it, and then
    // writing fails.
    let flood = async { while stream.write_all(&request).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, flood).await.unwrap();
    setup.assert_serves().await;
}

#[tokio::test]
async fn only_the_owner_may_connect() {
    let setup = setup().await;
    let server = setup.bind(SocketOptions::default()).await;
    let mode = std::fs::metadata(server.path()).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
}

#[tokio::test]
async fn without_a_node_nobody_answers() {
    let setup = setup().await;
    for stale in [false, true] {
        if stale {
            drop(std::os::unix::net::UnixListener::bind(&setup.socket).unwrap());
        }
        match SocketClient::connect(&setup.socket).await {
            Err(BusError::NoResponders(text)) => {
                assert!(text.contains("node.sock (no node is running)"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_dead_nodes_socket_is_replaced_and_a_live_ones_is_not() {
    let setup = setup().await;
    drop(std::os::unix::net::UnixListener::bind(&setup.socket).unwrap());
    let _server = setup.bind(SocketOptions::default()).await;
    let messages = Arc::clone(&setup.bus.messages);
    let second = SocketServer::bind(&setup.socket, messages, SocketOptions::default()).await;
    assert!(matches!(second, Err(SocketError::InUse(_))));
    setup.assert_serves().await;
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let setup = setup().await;
    std::fs::write(&setup.socket, "precious").unwrap();
    let messages = Arc::clone(&setup.bus.messages);
    let refused = SocketServer::bind(&setup.socket, messages, SocketOptions::default()).await;
    assert!(matches!(refused, Err(SocketError::NotASocket(_))));
    assert_eq!(std::fs::read(&setup.socket).unwrap(), b"precious");
}

#[tokio::test]
async fn a_server_that_ends_ends_its_connections_and_its_file() {
    let setup = setup().await;
    let server = setup.bind(SocketOptions::default()).await;
    let client = setup.client().await;
    let (waiting, ()) = tokio::join!(ask(&client, CONTROL), async {
        ask(&client, SUBMIT).await.unwrap();
        drop(server);
    });
    assert_eq!(waiting, Err(BusError::Closed));
    assert_eq!(ask(&client, SUBMIT).await, Err(BusError::Closed));
    assert!(!setup.socket.exists());
}
