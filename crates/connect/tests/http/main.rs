//! The HTTP client against real sockets: what each kind of bad server becomes.

mod server;

use bytes::Bytes;
use detent_connect::http::{HttpClient, HttpError, HttpMethod, HttpOptions, HttpRequest};
use server::{Answer, Server};
use tokio::net::TcpListener;

/// Far more than any answer here takes, also on a loaded machine.
const PATIENCE_MS: u64 = 60_000;

fn client() -> HttpClient {
    client_with(|_| ())
}

fn client_with(change: impl FnOnce(&mut HttpOptions)) -> HttpClient {
    let mut options = HttpOptions {
        timeout_ms: PATIENCE_MS,
        connect_timeout_ms: PATIENCE_MS,
        response_bytes_max: 64 * 1024,
        ..HttpOptions::default()
    };
    change(&mut options);
    HttpClient::new(options).unwrap()
}

fn get(url: impl Into<String>) -> HttpRequest {
    HttpRequest::new(HttpMethod::Get, url)
}

#[tokio::test]
async fn a_whole_answer_has_status_headers_and_body() {
    let server =
        Server::text("HTTP/1.1 404 Not Found\r\nX-Kind: a\r\nContent-Length: 4\r\n\r\nnone").await;
    let answer = client().send(get(server.url("/a?b=c"))).await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (404, &b"none"[..]));
    assert_eq!(answer.header("x-kind"), Some("a"));
    assert_eq!(answer.retry_after_ms, None);
    let heads = server.heads();
    assert!(heads[0].starts_with("GET /a?b=c HTTP/1.1\r\n"), "{heads:?}");
}

#[tokio::test]
async fn method_headers_and_body_are_sent() {
    let server = Server::text("HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut request = HttpRequest::new(HttpMethod::Post, server.url("/"));
    request.headers = vec![("x-token".into(), "t".into())];
    request.body = Some(Bytes::from_static(b"hello"));
    let answer = client().send(request).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    let head = server.heads().remove(0);
    assert!(head.starts_with("POST / "), "{head}");
    assert!(head.contains("x-token: t\r\n"), "{head}");
    assert!(head.contains("content-length: 5\r\n"), "{head}");
}

#[tokio::test]
async fn head_takes_an_announced_length_for_no_body() {
    let server = Server::text("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n").await;
    let request = HttpRequest::new(HttpMethod::Head, server.url("/"));
    let answer = client().send(request).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let aim = Server::text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let head = format!(
        "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        aim.url("/")
    );
    let server = Server::text(&head).await;
    let answer = client().send(get(server.url("/"))).await.unwrap();
    assert_eq!(answer.status, 302);
    assert_eq!(aim.connections(), 0);
}

#[tokio::test]
async fn retry_after_is_read_in_both_forms() {
    for (header, ms) in [
        ("Retry-After: 7", Some(7_000)),
        (
            "Date: Sun, 29 Nov 2026 12:00:00 GMT\r\nRetry-After: Sun, 29 Nov 2026 12:00:09 GMT",
            Some(9_000),
        ),
        ("Retry-After: soon", None),
    ] {
        let head =
            format!("HTTP/1.1 503 Service Unavailable\r\n{header}\r\nContent-Length: 0\r\n\r\n");
        let server = Server::text(&head).await;
        let answer = client().send(get(server.url("/"))).await.unwrap();
        assert_eq!(
            (answer.status, answer.retry_after_ms),
            (503, ms),
            "{header}"
        );
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_connect_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = client().send(get(format!("http://{address}/"))).await;
    let error = error.unwrap_err();
    assert!(matches!(error, HttpError::Connect { .. }), "{error:?}");
    assert!(error.not_sent());
}

#[tokio::test]
async fn a_name_without_address_is_a_dns_error() {
    // The top-level domain is reserved for names that do not exist.
    let error = client().send(get("http://nothing.invalid/")).await;
    assert_eq!(
        error,
        Err(HttpError::Dns {
            host: "nothing.invalid".into()
        })
    );
}

#[tokio::test]
async fn a_server_without_tls_is_a_tls_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 16];
        stream.read_exact(&mut hello).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        // Open until the other side has read it and left.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let error = client().send(get(format!("https://{address}/"))).await;
    let error = error.unwrap_err();
    assert!(matches!(error, HttpError::Tls { .. }), "{error:?}");
}

#[tokio::test]
async fn the_deadline_holds_against_a_silent_server_and_against_dripping() {
    for answer in [
        Answer::Hang(""),
        Answer::Hang("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
        Answer::Drip("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"),
        Answer::Drip("HTTP/1.1 200 OK\r\nX-Long: "),
    ] {
        let server = Server::start(answer).await;
        let mut request = get(server.url("/"));
        request.timeout_ms = Some(200);
        let error = client().send(request).await.unwrap_err();
        assert!(
            matches!(
                error,
                HttpError::Timeout {
                    timeout_ms: 200,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(!error.not_sent());
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_an_error_announced_or_not() {
    for answer in [
        Answer::Hang("HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n"),
        Answer::Flood("HTTP/1.1 200 OK\r\n\r\n"),
        Answer::Flood("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
    ] {
        let server = Server::start(answer).await;
        let error = client().send(get(server.url("/"))).await.unwrap_err();
        assert!(
            matches!(error, HttpError::TooLarge { max: 65536, .. }),
            "{error:?}"
        );
    }
    let mut exact = b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n".to_vec();
    exact.resize(exact.len() + 65536, b'x');
    let server = Server::start(Answer::Bytes(exact)).await;
    let answer = client().send(get(server.url("/"))).await.unwrap();
    assert_eq!(answer.body.len(), 65536);
}

#[tokio::test]
async fn a_broken_off_or_garbled_answer_is_a_protocol_error() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "",
        "220 mail.test ESMTP ready\r\n",
    ] {
        let server = Server::text(bytes).await;
        let error = client().send(get(server.url("/"))).await.unwrap_err();
        assert!(
            matches!(error, HttpError::Protocol { .. }),
            "{bytes:?} {error:?}"
        );
    }
}

#[tokio::test]
async fn unusable_addresses_and_headers_are_refused() {
    for url in [
        "",
        "/a",
        "ftp://h/",
        "file:///etc/passwd",
        "http://",
        "http://h:99999/",
    ] {
        let error = client().send(get(url)).await.unwrap_err();
        assert!(
            matches!(error, HttpError::InvalidUrl { .. }),
            "{url} {error:?}"
        );
    }
    for (name, value) in [("bad name", "v"), ("x", "line\r\nbreak")] {
        let mut request = get("http://127.0.0.1:1/");
        request.headers = vec![(name.into(), value.into())];
        let error = client().send(request).await.unwrap_err();
        assert_eq!(error, HttpError::InvalidHeader { name: name.into() });
    }
}

#[tokio::test]
async fn no_error_text_holds_a_secret_of_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let broken = Server::text("").await.address;
    let silent = Server::start(Answer::Hang("")).await.address;
    for (scheme, host) in [
        ("http", closed.to_string()),
        ("http", broken.to_string()),
        ("https", broken.to_string()),
        ("http", silent.to_string()),
        ("http", "nothing.invalid".into()),
        ("gopher", "h".into()),
        ("http", "h:99999".into()),
    ] {
        let mut request = get(format!(
            "{scheme}://us3r:hunter2@{host}/p?key=hunter2#hunter2"
        ));
        request.timeout_ms = Some(1_000);
        let error = client().send(request).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("us3r"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_proxy_is_used_only_where_the_options_name_one() {
    let proxy = Server::text("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy").await;
    let url = proxy.url("");
    let through = client_with(|o| o.proxy = Some(url));
    let answer = through.send(get("http://nothing.invalid/x")).await.unwrap();
    assert_eq!(&answer.body[..], b"proxy");
    let head = proxy.heads().remove(0);
    assert!(
        head.starts_with("GET http://nothing.invalid/x HTTP/1.1"),
        "{head}"
    );
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Serves one connection only: a second one would never be answered.
    tokio::spawn(async move {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|n| n > 0) {
            if line.trim().is_empty() {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.get_mut().write_all(answer).await.unwrap();
            }
            line.clear();
        }
    });
    let client = client();
    for _ in 0..3 {
        let answer = client.send(get(format!("http://{address}/"))).await;
        assert_eq!(answer.unwrap().status, 200);
    }
}
