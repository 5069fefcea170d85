//! Asks a server whether it is ready.

use super::config::ServerOptions;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(10);
/// For one answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Returns once it is; never when it does not become so.
pub(super) async fn ready(options: &ServerOptions, pid: u32) {
    let listens = options.ports_file(pid);
    while !matches!(tokio::fs::try_exists(&listens).await, Ok(true)) {
        tokio::time::sleep(PAUSE).await;
    }
    let Some(port) = options.monitor_port else {
        return;
    };
    let question = "GET /healthz HTTP/1.0\r\n\r\n";
    while !answers(port, question, "HTTP/1.0 200").await {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Does the answer begin with `wanted`?
async fn answers(port: u16, question: &str, wanted: &str) -> bool {
    let answer = tokio::time::timeout(ANSWER_MAX, ask(port, question, wanted.len()));
    matches!(answer.await, Ok(Ok(answer)) if answer == wanted.as_bytes())
}

async fn ask(port: u16, question: &str, len: usize) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
