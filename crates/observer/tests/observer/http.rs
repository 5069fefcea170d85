//! A real server on the loopback interface.

use crate::support::Place;
use detent_observer::probes::HttpProbe;
use detent_protocol::expect::nothing_there;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Answers each connection's first request with these bytes.
async fn server(answer: impl Into<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer: Arc<[u8]> = answer.into().into();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&answer)));
        }
    });
    address
}

async fn serve(stream: TcpStream, answer: Arc<[u8]>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|n| n > 0) && line != "\r\n" {
        line.clear();
    }
    // The other side may leave at any time.
    let _ = stream.get_mut().write_all(&answer).await;
    if !answer.ends_with(b"...") {
        return;
    }
    // Silent, but still there.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn probe() -> HttpProbe {
    HttpProbe::new().unwrap()
}

async fn see(address: SocketAddr) -> (Value, Option<String>) {
    let params = json!({"url": format!("http://{address}/a")});
    let look = Place::new().look(&probe(), params).await;
    (look.seen, look.doubt.map(|f| f.message))
}

#[tokio::test]
async fn a_good_answer_has_its_body_as_json_or_text() {
    for (body, seen) in [
        ("{\"id\": 7}", json!({"id": 7})),
        ("hello", json!("hello")),
        ("7", json!(7)),
    ] {
        let address = server(answer("200 OK", body)).await;
        let expected = json!({"status": 200, "body": seen, "bytes": body.len()});
        assert_eq!(see(address).await, (expected, None));
    }
    let address = server(answer("200 OK", "")).await;
    let expected = json!({"status": 200, "body": ""});
    assert_eq!(see(address).await, (expected, None));
    let mut binary = answer("200 OK", "xx").into_bytes();
    binary.splice(binary.len() - 2.., [0xff, 0xfe]);
    let expected = json!({"status": 200, "body": null, "bytes": 2});
    assert_eq!(see(server(binary).await).await, (expected, None));
}

#[tokio::test]
async fn a_long_text_is_cut_at_a_character() {
    let body = "ü".repeat(40_000);
    let (seen, doubt) = see(server(answer("200 OK", &body)).await).await;
    assert_eq!(seen["bytes"], 80_000);
    assert_eq!(seen["body_cut"], true);
    assert_eq!(seen["body"], "ü".repeat(32_768));
    assert_eq!(doubt, None);
}

#[tokio::test]
async fn nothing_there_is_exactly_the_form_by_which_expectations_are_checked() {
    let (seen, doubt) = see(server(answer("404 Not Found", "")).await).await;
    assert!(nothing_there("http").contains(&seen), "{seen}");
    assert_eq!(doubt, None);
    // A page that says so is not the thing that was asked for.
    let address = server(answer("404 Not Found", "<h1>Not found</h1>")).await;
    let expected = json!({"status": 404, "body": null, "error_body": "<h1>Not found</h1>"});
    assert_eq!(see(address).await, (expected, None));
}

#[tokio::test]
async fn other_refusals_leave_a_doubt() {
    for status in [
        "301 Moved",
        "401 Unauthorized",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "503 Service Unavailable",
    ] {
        let (seen, doubt) = see(server(answer(status, "")).await).await;
        assert_eq!(seen["status"], status[..3].parse::<u16>().unwrap());
        assert!(doubt.unwrap().contains(&status[..3]));
    }
    let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n";
    let params = json!({"url": format!("http://{}/", server(busy).await)});
    let look = Place::new().look(&probe(), params).await;
    assert_eq!(look.doubt.unwrap().retry_after_ms, Some(3_000));
}

#[tokio::test]
async fn head_sees_the_status() {
    let address = server("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n").await;
    let params = json!({"url": format!("http://{address}/"), "method": "HEAD"});
    let look = Place::new().look(&probe(), params).await;
    assert_eq!(look.seen, json!({"status": 200, "body": null}));
    assert!(
        look.what.starts_with("HEAD http://127.0.0.1"),
        "{}",
        look.what
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_well_is_not_absent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = listener.local_addr().unwrap();
    drop(listener);
    let half = server("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await;
    let silent = server("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf...").await;
    let huge = server(answer("200 OK", &"x".repeat(1024 * 1024 + 1))).await;
    for (address, timeout_ms, why) in [
        (refused, 60_000, "no connection"),
        (half, 60_000, "broke off"),
        (silent, 200, "within 200 ms"),
        (huge, 60_000, "larger than"),
    ] {
        let params = json!({"url": format!("http://u:hunter2@{address}/?key=hunter2")});
        let fault = Place::new().fail(&probe(), params, timeout_ms).await;
        assert!(fault.message.contains(why), "{fault}");
        assert!(!fault.message.contains("hunter2"), "{fault}");
    }
}

#[tokio::test]
async fn unusable_parameters_are_refused() {
    for params in [
        json!({}),
        json!({"url": "http://h/", "method": "POST"}),
        json!({"url": "http://h/", "body": "x"}),
        json!({"url": "file:///etc/passwd"}),
        json!({"url": "http://h/", "headers": {"a b": "c"}}),
    ] {
        Place::new().fail(&probe(), params, 60_000).await;
    }
}
