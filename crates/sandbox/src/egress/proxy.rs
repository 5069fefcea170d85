//! The proxy of one run: accepts inside the sandbox's network, connects outside.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::address::is_public;
use super::request::{
    BadRequest, HEAD_BYTES_MAX, HELLO_BYTES_MAX, Opening, Wish, head_length, opening, parse,
};
use super::rules::{Refusal, Rules, normal_name};
use crate::spec::RunTag;
use crate::wire;

/// Connections of one run at the same time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to say what it wants, and a name or server to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a name is logged.
const LOGGED_BYTES_MAX: usize = 255;

/// One decision of the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressVerdict {
    /// Whose run asked.
    pub tag: RunTag,
    /// The host as it was asked for, cut at 255 bytes.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The address that was connected, when it was allowed.
    pub address: Option<IpAddr>,
    /// Whether it was allowed.
    pub allowed: bool,
    /// Why, in a few words.
    pub reason: &'static str,
}

/// Hears every verdict, before anything is connected.
pub trait EgressLog: Send + Sync {
    /// One verdict. Called from the runtime's threads; must not block.
    fn verdict(&self, verdict: &EgressVerdict);
}

/// Turns a name into addresses.
#[async_trait]
pub(crate) trait Resolve: Send + Sync + 'static {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The host's own resolver.
pub(crate) struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// A proxy that serves until it is dropped.
pub(crate) struct Proxy {
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Serves the listener that will come over `offer`.
    pub(crate) fn start(
        offer: OwnedFd,
        rules: Arc<Rules>,
        log: Option<Arc<dyn EgressLog>>,
        tag: RunTag,
        resolver: impl Resolve,
    ) -> io::Result<Self> {
        let offer = wire::for_runtime(offer)?;
        let gate = Arc::new(Gate {
            rules,
            log,
            tag,
            resolver,
        });
        let task = tokio::spawn(async move {
            if let Ok(listener) = receive(&offer).await {
                serve(listener, gate).await;
            }
        });
        Ok(Self { task })
    }
}

async fn receive(offer: &UnixStream) -> io::Result<TcpListener> {
    let (_, mut fds) = wire::receive_async(offer, &mut [0; 1]).await?;
    let listener = fds.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
    TcpListener::from_std(listener.into())
}

async fn serve<R: Resolve>(listener: TcpListener, gate: Arc<Gate<R>>) {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let gate = Arc::clone(&gate);
                    connections.spawn(async move { gate.attend(client).await });
                }
                // Out of descriptors for a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

struct Gate<R> {
    rules: Arc<Rules>,
    log: Option<Arc<dyn EgressLog>>,
    tag: RunTag,
    resolver: R,
}

/// What a client is told instead of being served.
struct Denied {
    status: &'static str,
    reason: &'static str,
}

const fn forbidden(reason: &'static str) -> Denied {
    Denied {
        status: "403 Forbidden",
        reason,
    }
}

impl<R: Resolve> Gate<R> {
    async fn attend(&self, mut client: TcpStream) {
        let denied = match timeout(PATIENCE, read_head(&mut client)).await {
            Ok(Ok((wish, rest))) => self.grant(&mut client, wish, rest).await,
            Ok(Err(denied)) => Err(denied),
            Err(_) => return,
        };
        if let Err(denied) = denied {
            let body = format!(
                "{{\"code\":\"EGRESS_DENIED\",\"reason\":\"{}\"}}\n",
                denied.reason
            );
            let answer = format!(
                "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                denied.status,
                body.len()
            );
            let _ = client.write_all(answer.as_bytes()).await;
            let _ = client.shutdown().await;
        }
    }

    async fn grant(&self, client: &mut TcpStream, wish: Wish, rest: Vec<u8>) -> Result<(), Denied> {
        match wish {
            Wish::Tunnel { host, port } => {
                let (name, server) = self.connect(&host, port).await?;
                // From here on the client believes to talk to the server.
                let _ = self.tunnel(client, server, &name, port, rest).await;
            }
            Wish::Forward {
                host,
                port,
                head,
                body_bytes,
            } => {
                let (_, server) = self.connect(&host, port).await?;
                let _ = forward(client, server, &head, rest, body_bytes).await;
            }
        }
        Ok(())
    }

    /// Decides, then resolves, then connects the very address that was looked at.
    async fn connect(&self, host: &str, port: u16) -> Result<(String, TcpStream), Denied> {
        let name = self.rules.decide(host, port).map_err(|refusal| {
            let reason = match refusal {
                Refusal::NotAName => "no host name",
                Refusal::HostNotAllowed => "host not allowed",
                Refusal::PortNotAllowed => "port not allowed",
            };
            self.say(host, port, None, reason);
            forbidden(reason)
        })?;
        let addresses = self.addresses(&name, port).await?;
        for address in &addresses {
            self.say(host, port, Some(address.ip()), "allowed");
            if let Ok(Ok(server)) = timeout(PATIENCE, TcpStream::connect(address)).await {
                return Ok((name, server));
            }
        }
        Err(Denied {
            status: "502 Bad Gateway",
            reason: "the host does not answer",
        })
    }

    async fn addresses(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, Denied> {
        let resolved = timeout(PATIENCE, self.resolver.resolve(name, port)).await;
        let Ok(Ok(mut addresses)) = resolved else {
            self.say(name, port, None, "the name does not resolve");
            return Err(Denied {
                status: "502 Bad Gateway",
                reason: "the name does not resolve",
            });
        };
        if !self.rules.may_be_private(name) {
            addresses.retain(|address| is_public(address.ip()));
        }
        if addresses.is_empty() {
            let reason = "the name leads to an inside address";
            self.say(name, port, None, reason);
            return Err(forbidden(reason));
        }
        Ok(addresses)
    }

    async fn tunnel(
        &self,
        client: &mut TcpStream,
        mut server: TcpStream,
        name: &str,
        port: u16,
        mut sent: Vec<u8>,
    ) -> io::Result<()> {
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await?;
        let opening = timeout(PATIENCE, read_opening(client, &mut sent)).await;
        let fits = match opening {
            Ok(opening) => match opening? {
                Opening::Tls(Some(named)) => normal_name(&named).as_deref() == Some(name),
                // Without a name it is the server's own, the one that is allowed. Something
                // that is not TLS is let through on other ports than the one for it.
                Opening::Tls(None) => true,
                Opening::Other => port != 443,
                Opening::Incomplete => sent.is_empty(),
            },
            // Protocols in which the server speaks first.
            Err(_) => sent.is_empty() && port != 443,
        };
        if !fits {
            self.say(
                name,
                port,
                None,
                "another server is named inside the tunnel",
            );
            return Ok(());
        }
        server.write_all(&sent).await?;
        copy_bidirectional(client, &mut server).await.map(drop)
    }

    fn say(&self, host: &str, port: u16, address: Option<IpAddr>, reason: &'static str) {
        let mut end = host.len().min(LOGGED_BYTES_MAX);
        while !host.is_char_boundary(end) {
            end -= 1;
        }
        let verdict = EgressVerdict {
            tag: self.tag.clone(),
            host: host[..end].to_owned(),
            port,
            address,
            allowed: address.is_some(),
            reason,
        };
        tracing::debug!(
            run = verdict.tag.run,
            host = verdict.host,
            port,
            allowed = verdict.allowed,
            reason,
            "egress"
        );
        if let Some(log) = &self.log {
            log.verdict(&verdict);
        }
    }
}

async fn read_head(client: &mut TcpStream) -> Result<(Wish, Vec<u8>), Denied> {
    let mut bytes = Vec::new();
    let malformed = Denied {
        status: "400 Bad Request",
        reason: "no request to a proxy",
    };
    let length = loop {
        if let Some(length) = head_length(&bytes) {
            break length;
        }
        let mut chunk = [0; 4096];
        match client.read(&mut chunk).await {
            Ok(read) if read > 0 && bytes.len() + read <= HEAD_BYTES_MAX => {
                bytes.extend(&chunk[..read]);
            }
            _ => return Err(malformed),
        }
    };
    let rest = bytes.split_off(length);
    match parse(&bytes) {
        Ok(wish) => Ok((wish, rest)),
        Err(BadRequest::Malformed) => Err(malformed),
        Err(BadRequest::HostMismatch) => Err(forbidden("the Host header names another host")),
        Err(BadRequest::NoLength) => Err(Denied {
            status: "411 Length Required",
            reason: "a body needs a Content-Length",
        }),
    }
}

/// The client's first bytes in a tunnel, as many as it takes to judge them.
async fn read_opening(client: &mut TcpStream, sent: &mut Vec<u8>) -> io::Result<Opening> {
    loop {
        match opening(sent) {
            Opening::Incomplete if sent.len() < HELLO_BYTES_MAX => {}
            known => return Ok(known),
        }
        let mut chunk = [0; 4096];
        match client.read(&mut chunk).await? {
            0 => return Ok(Opening::Incomplete),
            read => sent.extend(&chunk[..read]),
        }
    }
}

/// One request with a body of exactly that length, and its answer; nothing after it, which
/// could be for another host.
async fn forward(
    client: &mut TcpStream,
    mut server: TcpStream,
    head: &[u8],
    mut rest: Vec<u8>,
    body_bytes: u64,
) -> io::Result<()> {
    server.write_all(head).await?;
    rest.truncate(usize::try_from(body_bytes).unwrap_or(usize::MAX));
    server.write_all(&rest).await?;
    let left = body_bytes - rest.len() as u64;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mut body = (&mut from_client).take(left);
    let up = async { copy(&mut body, &mut to_server).await };
    let down = async {
        copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    // The answer may come before the body was taken.
    tokio::pin!(up, down);
    tokio::select! {
        sent = &mut up => { sent?; down.await }
        answered = &mut down => answered,
    }
}
