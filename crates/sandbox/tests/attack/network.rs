//! Cases 53 to 66: the network.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, Mutex};

use detent_sandbox::{EgressLog, EgressVerdict, Policy};
use serde_json::json;

use crate::arena::{Arena, contained, everybody, everyone, scratch};

/// What a connection attempt may come to when there is no way.
const NO_WAY: [&str; 8] = [
    "ENETUNREACH",
    "EACCES",
    "EPERM",
    "EADDRNOTAVAIL",
    "ECONNREFUSED",
    "EHOSTUNREACH",
    "ENOENT",
    "EAFNOSUPPORT",
];

/// Keeps every verdict.
#[derive(Default)]
struct Log(Mutex<Vec<EgressVerdict>>);

impl EgressLog for Log {
    fn verdict(&self, verdict: &EgressVerdict) {
        self.0.lock().unwrap().push(verdict.clone());
    }
}

/// A server on this host's loopback that says something to whoever connects, and keeps
/// what it heard.
struct Server {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let keep = Arc::clone(&keep);
                std::thread::spawn(move || serve(stream, &keep));
            }
        });
        Self { port, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn serve(mut stream: std::net::TcpStream, keep: &Mutex<Vec<String>>) {
    let mut all = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(bytes) = stream.read(&mut chunk) {
        all.extend(&chunk[..bytes]);
        if bytes == 0 || all.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    keep.lock()
        .unwrap()
        .push(String::from_utf8_lossy(&all).into_owned());
    let _ =
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
}

fn allowing(allow: &[&str], private: &[&str]) -> Policy {
    let mut policy = scratch();
    policy.network.allow = allow.iter().map(ToString::to_string).collect();
    policy.network.allow_private = private.iter().map(ToString::to_string).collect();
    policy
}

/// A policy that lets `localhost:port` out.
fn allowing_local(port: u16) -> Policy {
    allowing(&[&format!("localhost:{port}")], &["localhost"])
}

/// The case for everybody, with the verdicts of the proxy.
async fn with_network(number: u32, policy: Policy, attack: impl AsyncFn(&Arena, &Log)) {
    for who in everybody() {
        let log = Arc::new(Log::default());
        let arena = Arena::with_log(who, policy.clone(), Some(log.clone())).await;
        attack(&arena, &log).await;
    }
    contained(number);
}

#[tokio::test]
async fn case_53_metadata_and_loopback_addresses() {
    everyone(53, scratch(), async |arena| {
        arena.all_fail_with("direct", &["80"], &NO_WAY).await;
    })
    .await;
}

#[tokio::test]
async fn case_54_datagrams_to_name_servers() {
    everyone(54, scratch(), async |arena| {
        arena.all_fail_with("udp", &[], &NO_WAY).await;
    })
    .await;
}

#[tokio::test]
async fn case_55_data_smuggled_out_in_names() {
    for policy in [scratch(), allowing(&["good.test:443"], &[])] {
        everyone(55, policy, async |arena| {
            let seen = arena.ask("dns", &[]).await;
            assert_eq!(seen["resolved"], json!(null), "{:?}", arena.who);
        })
        .await;
    }
}

/// All of these targets have to be refused, and nobody may have been connected.
async fn refused(arena: &Arena, log: &Log, targets: &[&str]) {
    let list = serde_json::to_string(targets).unwrap();
    let seen = arena.ask("tunnels", &[&list]).await;
    for (target, status) in seen.as_object().unwrap() {
        let refused = ["403", "400"].contains(&status.as_str().unwrap());
        assert!(refused, "{:?} {target}: {status}", arena.who);
    }
    assert_eq!(seen.as_object().unwrap().len(), targets.len());
    let verdicts = log.0.lock().unwrap();
    assert!(
        !verdicts.is_empty() && verdicts.iter().all(|v| !v.allowed),
        "{verdicts:?}"
    );
}

#[tokio::test]
async fn case_56_tunnels_to_addresses() {
    with_network(56, allowing(&["good.test:443"], &[]), async |arena, log| {
        let targets = [
            "169.254.169.254:80",
            "[::1]:443",
            "127.0.0.1:443",
            "10.0.0.1:443",
            "2130706433:443",
            "0x7f.1:443",
            "[fd00:ec2::254]:80",
            "[::ffff:127.0.0.1]:443",
            "1.1.1.1:443",
        ];
        refused(arena, log, &targets).await;
    })
    .await;
}

#[tokio::test]
async fn case_57_names_that_only_look_allowed() {
    with_network(57, allowing(&["good.test:443"], &[]), async |arena, log| {
        let targets = [
            "good.test.evil.test:443",
            "evil-good.test:443",
            "good.tes:443",
            "x.good.test:443",
            "evil.test:443",
        ];
        refused(arena, log, &targets).await;
    })
    .await;
}

#[tokio::test]
async fn case_58_plain_http_past_the_tunnel() {
    let server = Server::start();
    let port = server.port;
    with_network(58, allowing_local(port), async |arena, _log| {
        let refused = [
            "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_owned(),
            format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"),
            format!("GET http://evil.test/ HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
            format!("GET http://localhost:{port}@evil.test/ HTTP/1.1\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
            format!("GET http://localhost:{port}/ HTTP/1.1\r\nX: a\nHost: evil.test\r\n\r\n"),
            "GET ftp://evil.test/ HTTP/1.1\r\n\r\n".to_owned(),
        ];
        let list = serde_json::to_string(&refused).unwrap();
        let seen = arena.ask("requests", &[&list]).await;
        for (request, answer) in refused.iter().zip(seen.as_array().unwrap()) {
            let status = answer[0].as_str().unwrap();
            assert!(["403", "400"].contains(&status), "{request:?}: {answer}");
        }
        // What is allowed comes through, once: nothing rides behind it.
        let two = format!(
            "GET http://localhost:{port}/ok HTTP/1.1\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n"
        );
        let list = serde_json::to_string(&[two]).unwrap();
        let seen = arena.ask("requests", &[&list]).await;
        assert_eq!(seen[0][0], "200", "{seen}");
    })
    .await;
    let heard = server.heard();
    assert_eq!(heard.len(), everybody().len(), "{heard:?}");
    for request in heard {
        assert!(request.starts_with("GET /ok HTTP/1.1\r\n"), "{request}");
        assert!(!request.contains("evil"), "{request}");
    }
}

#[tokio::test]
async fn case_59_an_allowed_name_that_leads_inside() {
    let server = Server::start();
    let policy = allowing(&[&format!("localhost:{}", server.port)], &[]);
    with_network(59, policy, async |arena, log| {
        refused(arena, log, &[&format!("localhost:{}", server.port)]).await;
        let reason = log.0.lock().unwrap()[0].reason;
        assert_eq!(reason, "the name leads to an inside address");
    })
    .await;
    assert_eq!(server.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn case_60_another_port_of_an_allowed_host() {
    let (server, other) = (Server::start(), Server::start());
    with_network(60, allowing_local(server.port), async |arena, log| {
        refused(
            arena,
            log,
            &[&format!("localhost:{}", other.port), "localhost:22"],
        )
        .await;
    })
    .await;
    assert_eq!(other.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn case_61_the_host_s_loopback() {
    let server = Server::start();
    for policy in [scratch(), allowing_local(server.port)] {
        everyone(61, policy, async |arena| {
            let port = server.port.to_string();
            arena.all_fail_with("direct", &[&port], &NO_WAY).await;
        })
        .await;
    }
    assert_eq!(server.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn case_62_unix_sockets_of_the_host() {
    let name = format!("detent-attack-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _path = UnixListener::bind(&path).unwrap();
    everyone(62, scratch(), async |arena| {
        arena
            .all_fail_with("unix", &[&name, path.to_str().unwrap()], &NO_WAY)
            .await;
    })
    .await;
}

#[tokio::test]
async fn case_63_other_families_of_sockets() {
    everyone(63, scratch(), async |arena| {
        arena
            .all_fail_with("families", &[], &["EPERM", "EACCES"])
            .await;
    })
    .await;
}

#[tokio::test]
async fn case_64_a_relay_inside_the_sandbox() {
    with_network(
        64,
        allowing(&["good.test:443"], &[]),
        async |arena, _log| {
            arena
                .all_fail_with("relay", &[], &["EACCES", "EPERM"])
                .await;
        },
    )
    .await;
}

#[tokio::test]
async fn case_65_another_server_named_inside_the_tunnel() {
    let server = Server::start();
    with_network(65, allowing_local(server.port), async |arena, log| {
        let before = server.heard().len();
        let target = format!("localhost:{}", server.port);
        let seen = arena
            .ask("hello", &[&target, r#"["evil.test", "localhost"]"#])
            .await;
        assert_eq!(seen["evil.test"], "", "{seen}");
        assert!(
            seen["localhost"].as_str().unwrap().contains("hello"),
            "{seen}"
        );
        // The server heard one greeting with its own name, and of the other nothing at all.
        let heard = server.heard().split_off(before);
        let greetings: Vec<_> = heard.iter().filter(|bytes| !bytes.is_empty()).collect();
        assert_eq!(greetings.len(), 1, "{heard:?}");
        assert!(greetings[0].contains("localhost") && !greetings[0].contains("evil"));
        let verdicts = log.0.lock().unwrap();
        let told = verdicts
            .iter()
            .any(|v| v.reason == "another server is named inside the tunnel");
        assert!(told, "{verdicts:?}");
    })
    .await;
}

#[tokio::test]
async fn case_66_other_ways_to_write_a_name() {
    let server = Server::start();
    let port = server.port;
    with_network(66, allowing_local(port), async |arena, _log| {
        let same = ["localhost", "LOCALHOST", "LocalHost.", "localhost."];
        for name in same {
            let seen = arena
                .ask("through", &[&format!("{name}:{port}"), "ping\r\n\r\n"])
                .await;
            assert_eq!(seen[0], "200", "{name}: {seen}");
            assert!(
                seen[1].as_str().unwrap().contains("hello"),
                "{name}: {seen}"
            );
        }
        let others: Vec<String> = [
            "localhost\0.evil.test",
            "localhost..",
            ".localhost",
            "lоcalhost",
            "xn--lcalhost-ojg",
            "localhost%00",
            "localhost#",
            "localhost/",
            "localhost\t",
        ]
        .iter()
        .map(|name| format!("{name}:{port}"))
        .collect();
        // As bytes of one octet each; what is not, arrives as UTF-8 would.
        let latin: Vec<String> = others
            .iter()
            .map(|name| name.bytes().map(char::from).collect())
            .collect();
        let list = serde_json::to_string(&latin).unwrap();
        let seen = arena.ask("tunnels", &[&list]).await;
        for (target, status) in seen.as_object().unwrap() {
            let refused = ["403", "400"].contains(&status.as_str().unwrap());
            assert!(refused, "{target:?}: {status}");
        }
    })
    .await;
}
