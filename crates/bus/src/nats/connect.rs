//! The connection: how it is made, and what a refusal means.

use super::link::{Link, Links};
use super::options::{NatsAuth, NatsOptions};
use super::replies::Replies;
use async_nats::connection::State;
use async_nats::jetstream;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{AccountError, AccountErrorKind, ContextBuilder};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};
use bytes::Bytes;
use detent_protocol::{Code, Fault, MESSAGE_BYTES_MAX};
use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest pause between two attempts to reconnect.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// For one attempt to reach one server; the next in the list may be there.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// The oldest server that is known to have all that is used here.
pub(crate) const SERVER_MIN: (i64, i64, i64) = (2, 12, 0);
/// How often the connection is proven; after two without an answer it counts as lost.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Between two looks for a connection while there is none.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most commands that wait to be written, above all while there is no connection; whoever
/// has one more waits, each under a timeout of its own.
const COMMANDS_MAX: usize = 2048;
/// Most messages of one subscription that its task has not taken yet. That task only
/// moves them on, so this covers a burst within one reading.
const BURST_MAX: usize = 16_384;
/// For one try to ask for the account.
const ACCOUNT_TRY: Duration = Duration::from_secs(3);
/// For an answer of JetStream's API; its own work may wait for an election (4 to 9 s).
pub(crate) const API_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the broker, cheap to clone. The last clone closes it.
#[derive(Clone)]
pub(crate) struct Broker {
    /// Core NATS.
    pub(crate) client: Client,
    /// JetStream, with [`API_TIMEOUT`] for every request.
    pub(crate) jetstream: jetstream::Context,
    /// As given.
    pub(crate) options: Arc<NatsOptions>,
    /// What happens to the connection.
    pub(crate) links: Links,
    /// Who waits for which answer.
    pub(crate) replies: Arc<Replies>,
}

impl Broker {
    /// Connects, within `options.connect_timeout`: also to a broker that is just starting.
    ///
    /// # Errors
    /// `CONFIG_INVALID` for a URL, a file or a number that can't be used,
    /// `BROKER_UNREACHABLE`, and `BROKER_REFUSED` at once when the broker says no, has no
    /// JetStream for this account, or takes no messages of 1 MiB.
    pub(crate) async fn connect(options: NatsOptions) -> Result<Self, Fault> {
        let broker = Self::connect_plain(options).await?;
        broker.check_server().await?;
        Ok(broker)
    }

    /// The same for a client that only asks: it may have no rights on JetStream.
    pub(crate) async fn connect_plain(options: NatsOptions) -> Result<Self, Fault> {
        let deadline = Instant::now() + options.connect_timeout;
        let addresses = addresses(&options.url)?;
        check(&options)?;
        let links = Links::default();
        let client = loop {
            let settings = settings(&options, &links).await?;
            let attempt = settings.connect(&addresses[..]);
            let error = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Ok(client)) => break client,
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            let fault = connect_fault(&addresses, &options, error.as_ref());
            let pause = Instant::now() + Duration::from_millis(100);
            if fault.code != Code::BrokerUnreachable || pause > deadline {
                return Err(fault);
            }
            tokio::time::sleep_until(pause).await;
        };
        let jetstream = ContextBuilder::new()
            .timeout(API_TIMEOUT)
            .build(client.clone());
        let replies = Replies::new(&client).await.map_err(|error| {
            let text = format!("the broker takes no subscription: {error}");
            Fault::new(Code::BrokerUnreachable, text)
        })?;
        Ok(Self {
            client,
            jetstream,
            options: Arc::new(options),
            links,
            replies: Arc::new(replies),
        })
    }

    async fn check_server(&self) -> Result<(), Fault> {
        let info = self.client.server_info();
        let (major, minor, patch) = SERVER_MIN;
        if !self.client.is_server_compatible(major, minor, patch) {
            let found = &info.version;
            let text = format!("nats-server {found} is too old: {major}.{minor} is needed");
            return Err(Fault::new(Code::BrokerRefused, text));
        }
        if info.max_payload < MESSAGE_BYTES_MAX {
            let text = format!(
                "the broker takes messages of {} bytes, and Detent's have up to \
                 {MESSAGE_BYTES_MAX}; set `max_payload` of the server to at least that",
                info.max_payload
            );
            return Err(Fault::new(Code::BrokerRefused, text));
        }
        self.check_account().await
    }

    /// Servers that are finding each other leave the question without an answer: it is
    /// asked again.
    async fn check_account(&self) -> Result<(), Fault> {
        let since = Instant::now();
        let wait = self.options.connect_timeout.max(API_TIMEOUT);
        while since.elapsed() < wait {
            let asked = tokio::time::timeout(ACCOUNT_TRY, self.jetstream.query_account());
            let why = tokio::select! {
                asked = asked => match asked {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(error)) if may_pass(&error) => {
                        tokio::time::sleep(LOOK_EVERY).await;
                        continue;
                    }
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => continue,
                },
                // Told beside the request, which just gets no answer.
                words = self.links.denial("$JS.API.INFO", since) => words,
            };
            let text = format!("no JetStream for this account: {why}");
            return Err(Fault::new(Code::BrokerRefused, text));
        }
        let text = format!("JetStream did not answer within {wait:?}");
        Err(Fault::new(Code::BrokerUnreachable, text))
    }

    /// Is there a connection now?
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Waits until there is one. It looks for itself: the client drops events when many
    /// come at once.
    pub(crate) async fn connected(&self) {
        while !self.is_connected() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Sends a message to itself, so that the server has seen all that was sent before;
    /// gives how long that took. `None`: it did not come back in time.
    pub(crate) async fn round_trip(&self, wait: Duration) -> Option<Duration> {
        let started = Instant::now();
        let mut place = self.replies.place();
        let subject = place.subject.clone();
        let there_and_back = async {
            self.client.publish(subject, Bytes::new()).await.ok()?;
            place.answer().await
        };
        let back = tokio::time::timeout(wait, there_and_back).await;
        back.ok().flatten().map(|_| started.elapsed())
    }

    /// The fault for a request that JetStream did not carry out, `what` first.
    pub(crate) fn fault(&self, what: &str, error: &(dyn StdError + 'static)) -> Fault {
        Fault::new(Code::BrokerUnreachable, format!("{what}: {}", chain(error)))
    }
}

/// Does this say that the servers have no leader yet?
fn may_pass(error: &AccountError) -> bool {
    match error.kind() {
        AccountErrorKind::TimedOut => true,
        AccountErrorKind::JetStream(error) => {
            error.error_code() == ErrorCode::CLUSTER_NOT_AVAILABLE
        }
        _ => false,
    }
}

/// An error with what caused it.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        // Many errors end with the words of their cause.
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.source();
        Some(this)
    })
}

fn invalid(text: impl Into<String>, at: &str) -> Fault {
    Fault::new(Code::ConfigInvalid, text).at(at)
}

fn check(options: &NatsOptions) -> Result<(), Fault> {
    if ![1, 3, 5].contains(&options.replicas) {
        let text = format!(
            "{} copies of a stream; it can be 1, 3 or 5",
            options.replicas
        );
        return Err(invalid(text, "nats.replicas"));
    }
    Ok(())
}

fn addresses(url: &str) -> Result<Vec<ServerAddr>, Fault> {
    let wanted = url.split(',').map(str::trim).filter(|one| !one.is_empty());
    let parsed: Result<Vec<ServerAddr>, _> = wanted.map(str::parse).collect();
    // Its text is left out: an address may hold a password.
    let parsed = parsed.map_err(|_| {
        let text = "an address is not like nats://host:port or tls://host:port";
        invalid(text, "nats.url")
    })?;
    if parsed.iter().any(|one| one.has_user_pass()) {
        let text = "a user in an address would show up in logs; name a user and a password file, \
                    credentials or an nkey instead";
        return Err(invalid(text, "nats.url"));
    }
    if parsed
        .iter()
        .any(|one| !matches!(one.scheme(), "nats" | "tls"))
    {
        return Err(invalid(
            "an address begins with nats:// or tls://",
            "nats.url",
        ));
    }
    match parsed.is_empty() {
        true => Err(invalid("no address of a broker", "nats.url")),
        false => Ok(parsed),
    }
}

async fn settings(options: &NatsOptions, links: &Links) -> Result<ConnectOptions, Fault> {
    let told = links.clone();
    let mut settings = ConnectOptions::new()
        .name(&options.name)
        .connection_timeout(options.connect_timeout.min(ATTEMPT_MAX))
        .ping_interval(PING_EVERY)
        .max_reconnects(None)
        .reconnect_delay_callback(pause)
        .request_timeout(Some(API_TIMEOUT))
        .client_capacity(COMMANDS_MAX)
        .subscription_capacity(BURST_MAX)
        .require_tls(options.tls.required)
        .event_callback(move |event| {
            told.heard(&event);
            std::future::ready(())
        });
    if let Some(prefix) = &options.inbox_prefix {
        settings = settings.custom_inbox_prefix(prefix.clone());
    }
    if let Some(ca) = &options.tls.ca {
        readable(ca).await?;
        settings = settings.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.tls.client {
        readable(certificate).await?;
        readable(key).await?;
        settings = settings.add_client_certificate(certificate.clone(), key.clone());
    }
    authenticate(settings, &options.auth).await
}

async fn authenticate(settings: ConnectOptions, auth: &NatsAuth) -> Result<ConnectOptions, Fault> {
    Ok(match auth {
        NatsAuth::None => settings,
        NatsAuth::Credentials(file) => {
            let text = readable(file).await?;
            // The error's own text might hold a part of the file.
            let read = settings.credentials(&text);
            read.map_err(|_| invalid("no credentials in this file", &file.display().to_string()))?
        }
        NatsAuth::NkeySeed(file) => settings.nkey(readable(file).await?.trim().to_owned()),
        NatsAuth::Password {
            user,
            password_file,
        } => {
            let password = readable(password_file).await?;
            settings.user_and_password(user.clone(), password.trim().to_owned())
        }
    })
}

async fn readable(file: &Path) -> Result<String, Fault> {
    let read = tokio::fs::read_to_string(file).await;
    read.map_err(|e| invalid(format!("can't be read: {e}"), &file.display().to_string()))
}

/// Doubling from 10 ms. Not random: the servers of a list are tried in random order.
fn pause(attempt: usize) -> Duration {
    match u32::try_from(attempt).unwrap_or(u32::MAX) {
        0 | 1 => Duration::ZERO,
        n => Duration::from_millis(10)
            .saturating_mul(2_u32.saturating_pow(n - 2))
            .min(PAUSE_MAX),
    }
}

/// `None`: time ran out in the middle of an attempt.
fn connect_fault(
    addresses: &[ServerAddr],
    options: &NatsOptions,
    error: Option<&ConnectError>,
) -> Fault {
    let places = addresses
        .iter()
        .map(|a| format!("{}:{}", a.host(), a.port()));
    let places = places.collect::<Vec<_>>().join(", ");
    let Some(error) = error else {
        let text = format!("no answer within {:?}", options.connect_timeout);
        return Fault::new(Code::BrokerUnreachable, text).at(places);
    };
    let code = match error.kind() {
        ConnectErrorKind::Authentication
        | ConnectErrorKind::AuthorizationViolation
        | ConnectErrorKind::Tls => Code::BrokerRefused,
        ConnectErrorKind::ServerParse => Code::ConfigInvalid,
        _ if causes(error).any(is_refusal) => Code::BrokerRefused,
        _ => Code::BrokerUnreachable,
    };
    let text = chain(error);
    let text = match causes(error).any(is_tls) {
        // The library's words do not say what they are about.
        true => format!("TLS: {text}"),
        false => text,
    };
    Fault::new(code, text).at(places)
}

/// Did TLS fail?
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    let inner = io.and_then(std::io::Error::get_ref);
    error.is::<async_nats::rustls::Error>()
        || inner.is_some_and(|e| e.is::<async_nats::rustls::Error>())
}

/// What another attempt would not change.
fn is_refusal(error: &(dyn StdError + 'static)) -> bool {
    is_tls(error) || error.is::<async_nats::ServerError>()
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let link: Link = self.links.now();
        f.debug_struct("Broker")
            .field("link", &link)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_never_repeated() {
        let good = addresses("nats://a:4222, tls://b , c:4333").unwrap();
        assert_eq!(good.len(), 3);
        for bad in [
            "",
            " , ",
            "http://a",
            "ws://a",
            "nats://u:secret@a",
            "nats://[secret",
        ] {
            let fault = addresses(bad).unwrap_err();
            assert_eq!(fault.code, Code::ConfigInvalid, "{bad}");
            assert!(!fault.to_string().contains("secret"), "{fault}");
        }
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!(pause(1), Duration::ZERO);
        assert_eq!(pause(2), Duration::from_millis(10));
        assert_eq!(pause(4), Duration::from_millis(40));
        assert_eq!(pause(usize::MAX), PAUSE_MAX);
    }
}
