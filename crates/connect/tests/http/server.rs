//! A server on the loopback interface that answers with exactly the bytes it is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is done with one connection after its request's head was read.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Sends these bytes, then one byte every few milliseconds, for ever.
    Drip(&'static str),
    /// Sends these bytes and keeps the connection open, silent.
    Hang(&'static str),
    /// Sends these bytes, then as many more as the other side takes.
    Flood(&'static str),
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            heads: Arc::default(),
            connections: Arc::default(),
        };
        let (heads, connections) = (server.heads.clone(), server.connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answer.clone(), heads.clone()));
            }
        });
        server
    }

    /// A server that sends `text` and closes.
    pub(crate) async fn text(text: &str) -> Self {
        Self::start(Answer::Bytes(text.as_bytes().to_vec())).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, answer: Answer, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().unwrap().push(head);
    // The other side may leave at any time; that is its right.
    let _ = respond(&mut stream, answer).await;
}

async fn respond(stream: &mut TcpStream, answer: Answer) -> std::io::Result<()> {
    match answer {
        Answer::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        Answer::Drip(head) => {
            stream.write_all(head.as_bytes()).await?;
            loop {
                stream.write_all(b"x").await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Answer::Hang(head) => {
            stream.write_all(head.as_bytes()).await?;
            std::future::pending().await
        }
        Answer::Flood(head) => {
            stream.write_all(head.as_bytes()).await?;
            let piece = vec![b'x'; 64 * 1024];
            loop {
                stream.write_all(&piece).await?;
            }
        }
    }
}
