//! A server with the users of `cluster/nats/users.conf`, and clients that try things.

use crate::support::{Broker, PATIENCE, server_with};
use async_nats::{Client, Event, Subscriber, jetstream};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::nats::{NatsAuth, NatsBus, NatsOptions};
use detent_bus::{Handler, ServeOptions, Served};
use futures::{FutureExt, StreamExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// What is sent where it must not go.
pub(crate) const FORGED: &str = "forged";
/// Beginning and end of the block that is to be copied.
const TENANT: (&str, &str) = ("  TENANT_DEFAULT {", "  # End of the tenant's block.");

/// A server, and what its users need.
pub(crate) struct World {
    pub(crate) broker: Broker,
    dir: tempfile::TempDir,
}

/// The file, with a second tenant made as it says.
fn users() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cluster/nats/users.conf");
    let mut text = std::fs::read_to_string(file).unwrap();
    let (from, to) = (text.find(TENANT.0).unwrap(), text.find(TENANT.1).unwrap());
    let block = &text[from..to];
    let acme = block.replace("default", "acme").replace("DEFAULT", "ACME");
    assert_ne!(block, acme);
    text.insert_str(to, &acme);
    let users = ["admin", "node", "operator", "default", "acme", "sys"];
    let passwords = users.map(|user| {
        let name = user.to_uppercase();
        format!("DETENT_{name}_PASSWORD: \"{}\"\n", password(user))
    });
    passwords.concat() + &text
}

fn password(user: &str) -> String {
    format!("the password of {user}")
}

impl World {
    /// A server without streams.
    pub(crate) async fn empty() -> Self {
        let broker = server_with(|options| options.extra = users()).await;
        let dir = tempfile::tempdir().unwrap();
        Self { broker, dir }
    }

    /// A server with all streams, and a bus of the role of a node.
    pub(crate) async fn start() -> (Self, NatsBus) {
        let world = Self::empty().await;
        let node = NatsBus::connect(world.options("node")).await.unwrap();
        (world, node)
    }

    pub(crate) fn options(&self, user: &str) -> NatsOptions {
        let password_file = self.dir.path().join(user);
        std::fs::write(&password_file, password(user)).unwrap();
        let auth = NatsAuth::Password {
            user: user.into(),
            password_file,
        };
        NatsOptions {
            auth,
            ..self.broker.options()
        }
    }

    /// A client that tries what it wants.
    pub(crate) async fn raw(&self, user: &str) -> Raw {
        let (tell, told) = mpsc::unbounded_channel();
        let options = async_nats::ConnectOptions::new()
            .user_and_password(user.into(), password(user))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    // A client that has gone asks no more.
                    let _ = tell.send(error.to_string());
                }
                std::future::ready(())
            });
        let client = options.connect(self.broker.server.url()).await.unwrap();
        Raw { client, told }
    }

    /// All rights, to see what arrived.
    pub(crate) async fn witness(&self) -> Witness {
        let client = self.raw("admin").await.client;
        let all = client.subscribe(">").await.unwrap();
        let witness = Witness { client, all };
        round_trip(&witness.client).await;
        witness
    }

    /// What the server has refused so far, by its own log.
    pub(crate) fn violations(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.broker.server.options().log_file()).unwrap();
        let lines = log.lines().filter(|line| line.contains("Violation"));
        lines.map(str::to_owned).collect()
    }
}

/// The server has dealt with all that this client sent, and the client has all that was
/// sent to it.
pub(crate) async fn round_trip(client: &Client) {
    let inbox = client.new_inbox();
    let mut back = client.subscribe(inbox.clone()).await.unwrap();
    client.publish(inbox, Bytes::new()).await.unwrap();
    within("a round trip", back.next()).await.unwrap();
}

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// A client, and the server's refusals.
pub(crate) struct Raw {
    pub(crate) client: Client,
    told: mpsc::UnboundedReceiver<String>,
}

impl Raw {
    /// Publishes, with a place for an answer, and is told that it may not.
    pub(crate) async fn may_not_publish(&mut self, subject: &str) {
        let (to, reply) = (subject.to_owned(), self.client.new_inbox());
        let sent = self.client.publish_with_reply(to, reply, FORGED.into());
        sent.await.unwrap();
        self.is_told(&format!("Publish to \"{subject}\"")).await;
    }

    /// Subscribes and is told that it may not, and gets nothing of what is published on
    /// `example`.
    pub(crate) async fn may_not_subscribe(&mut self, pattern: &str, example: &str, by: &Client) {
        let mut alone = self.client.subscribe(pattern.to_owned()).await.unwrap();
        self.is_told(&format!("Subscription to \"{pattern}\""))
            .await;
        let group = "detent".to_owned();
        let shared = self.client.queue_subscribe(pattern.to_owned(), group);
        let mut shared = shared.await.unwrap();
        self.is_told(&format!("Subscription to \"{pattern}\""))
            .await;
        by.publish(example.to_owned(), "secret".into())
            .await
            .unwrap();
        round_trip(by).await;
        round_trip(&self.client).await;
        for sub in [&mut alone, &mut shared] {
            // Nothing, or the end of what never stood.
            let came = sub.next().now_or_never().flatten();
            assert!(came.is_none(), "{pattern}: {came:?}");
        }
    }

    async fn is_told(&mut self, what: &str) {
        let told = within(what, self.told.recv()).await.unwrap();
        let words = told.to_lowercase();
        assert!(words.contains("permissions violation"), "{what}: {told}");
        assert!(words.contains(&what.to_lowercase()), "{what}: {told}");
    }

    pub(crate) fn was_told_nothing(&mut self) {
        let told = self.told.try_recv();
        assert!(told.is_err(), "{told:?}");
    }

    pub(crate) async fn subscribe(&self, pattern: &str) -> Subscriber {
        let subscriber = self.client.subscribe(pattern.to_owned()).await.unwrap();
        round_trip(&self.client).await;
        subscriber
    }

    /// A request, and its answer.
    pub(crate) async fn ask(&self, subject: &str, payload: &'static str) -> String {
        let asked = self.client.request(subject.to_owned(), payload.into());
        let answer = within(subject, asked).await;
        let answer = answer.unwrap_or_else(|error| panic!("{subject}: {error}"));
        String::from_utf8(answer.payload.to_vec()).unwrap()
    }
}

/// Sees all that reaches the account of the nodes.
pub(crate) struct Witness {
    pub(crate) client: Client,
    all: Subscriber,
}

impl Witness {
    /// All that arrived since the last look.
    pub(crate) async fn saw(&mut self) -> Vec<async_nats::Message> {
        const END: &str = "witness.end";
        self.client.publish(END, Bytes::new()).await.unwrap();
        let mut saw = Vec::new();
        loop {
            let message = within("the end", self.all.next()).await.unwrap();
            match message.subject.as_str() {
                END => return saw,
                _ => saw.push(message),
            }
        }
    }

    pub(crate) async fn saw_nothing_forged(&mut self) {
        let saw = self.saw().await;
        let mut forged = saw.iter().filter(|message| message.payload == FORGED);
        assert!(forged.next().is_none(), "{saw:?}");
    }

    /// Messages of a stream, its last sequence.
    pub(crate) async fn state(&self, stream: &str) -> (u64, u64) {
        let context = jetstream::new(self.client.clone());
        let mut stream = context.get_stream(stream).await.unwrap();
        let state = &stream.info().await.unwrap().state;
        (state.messages, state.last_sequence)
    }
}

/// Answers with what it was asked.
pub(crate) struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
        payload
    }
}

pub(crate) async fn serve(node: &NatsBus, pattern: &str) -> Served {
    let (messages, options) = (&node.bus.messages, ServeOptions::default());
    let served = messages.serve(pattern, options, Arc::new(Echo)).await;
    served.unwrap()
}

/// Far longer than a test: who is refused must not have to wait for it.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
