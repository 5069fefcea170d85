//! Requests and events on a real broker: what only it promises, and what a lost server
//! does to them.

mod support;

use async_nats::HeaderMap;
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::nats::NatsBus;
use detent_bus::{Bus, BusError, Event, Handler, ServeOptions, Served};
use detent_protocol::MESSAGE_BYTES_MAX;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Broker, PATIENCE, server};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const SUBJECT: &str = "detent.test.a";

/// Answers with the payload, or with as many bytes as it says.
struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, _: &str, payload: Bytes) -> Bytes {
        let wanted = std::str::from_utf8(&payload)
            .ok()
            .and_then(|n| n.parse().ok());
        wanted.map_or(payload, |len| Bytes::from(vec![7; len]))
    }
}

async fn serve(bus: &Bus, pattern: &str, group: &str) -> Served {
    let options = ServeOptions {
        group: group.into(),
        ..ServeOptions::default()
    };
    let served = bus.messages.serve(pattern, options, Arc::new(Echo));
    served.await.unwrap()
}

async fn connect(broker: &Broker) -> NatsBus {
    NatsBus::connect(broker.options()).await.unwrap()
}

async fn raw(broker: &Broker) -> async_nats::Client {
    async_nats::connect(broker.server.url()).await.unwrap()
}

async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, asking).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

#[tokio::test]
async fn nats_micro_lists_what_is_served() {
    let broker = server().await;
    let nats = connect(&broker).await;
    let _submit = serve(&nats.bus, "detent.*.submit.*", "detent").await;
    let _tool = serve(&nats.bus, "detent.tool.*.n1", "").await;
    let client = raw(&broker).await;
    client.flush().await.unwrap();
    nats.bus
        .messages
        .request("detent.t.submit.a", "x".into(), PATIENCE)
        .await
        .unwrap();

    let ask = async |verb: &str| -> Value {
        let answer = client
            .request(format!("$SRV.{verb}.detent"), Bytes::new())
            .await
            .unwrap();
        serde_json::from_slice(&answer.payload).unwrap()
    };
    let info = ask("INFO").await;
    assert_eq!(info["metadata"]["node"], "test");
    let endpoints = info["endpoints"].as_array().unwrap();
    let subjects: Vec<_> = endpoints
        .iter()
        .map(|e| e["subject"].as_str().unwrap())
        .collect();
    assert_eq!(subjects.len(), 2, "{info}");
    for subject in ["detent.*.submit.*", "detent.tool.*.n1"] {
        assert!(subjects.contains(&subject), "{info}");
    }
    let stats = ask("STATS").await;
    let endpoints = stats["endpoints"].as_array().unwrap();
    let submit = endpoints
        .iter()
        .find(|e| e["subject"] == "detent.*.submit.*");
    assert_eq!(submit.unwrap()["num_requests"], 1, "{stats}");
    assert_eq!(ask("PING").await["name"], "detent");
}

#[tokio::test]
async fn json_is_answered_as_json() {
    let broker = server().await;
    let nats = connect(&broker).await;
    let _served = serve(&nats.bus, SUBJECT, "g").await;
    let client = raw(&broker).await;
    let mut headers = HeaderMap::new();
    headers.insert("Content-Type", "application/json");
    let body = Bytes::from_static(br#"{"a":1}"#);
    let answer = client
        .request_with_headers(SUBJECT, headers, body.clone())
        .await
        .unwrap();
    assert_eq!(answer.payload, body);
    let kind = answer.headers.unwrap();
    assert_eq!(
        kind.get("Content-Type").unwrap().as_str(),
        "application/json"
    );
    let plain = client.request(SUBJECT, body).await.unwrap();
    assert!(plain.headers.is_none());
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_told_with_its_size() {
    let broker = server().await;
    let nats = connect(&broker).await;
    let _served = serve(&nats.bus, SUBJECT, "g").await;
    let ask = async |len: usize| {
        let payload = Bytes::from(len.to_string());
        nats.bus.messages.request(SUBJECT, payload, PATIENCE).await
    };
    let largest = ask(MESSAGE_BYTES_MAX).await.unwrap();
    assert_eq!(largest.len(), MESSAGE_BYTES_MAX);
    let (bytes, max) = (MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX);
    assert_eq!(ask(bytes).await, Err(BusError::TooLarge { bytes, max }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_comes_back_and_all_goes_on() {
    let mut broker = server().await;
    let (asker, server) = (connect(&broker).await, connect(&broker).await);
    let _served = serve(&server.bus, SUBJECT, "g").await;
    let mut events = asker
        .bus
        .messages
        .subscribe("detent.event", 64)
        .await
        .unwrap();
    let ask = async |wait| asker.bus.messages.request(SUBJECT, "x".into(), wait).await;
    ask(PATIENCE).await.unwrap();

    broker.server.kill().await;
    let lost = async || (!asker.handle.status().connected).then_some(());
    until("the loss to be seen", lost).await;
    // Never sent: not "nobody answers", which would be another thing.
    assert_eq!(ask(Duration::from_millis(200)).await, Err(BusError::Closed));
    let event = Bytes::from_static(b"lost");
    let published = asker.bus.messages.publish("detent.event", event).await;
    assert_eq!(published, Err(BusError::Closed));
    // One that waits for the connection gets its answer as soon as the service is back.
    let (answer, ()) = tokio::join!(
        until("an answer", async || match ask(PATIENCE).await {
            // The service's own connection may come later than the asker's.
            Err(BusError::NoResponders(_)) => None,
            told => Some(told),
        }),
        async { broker.server.restart().await.unwrap() },
    );
    assert_eq!(answer.unwrap(), "x");
    until("the service", async || ask(PATIENCE).await.ok()).await;

    // The subscription is told of the gap and gets what comes after.
    let next = tokio::time::timeout(PATIENCE, events.next()).await.unwrap();
    assert_eq!(next, Some(Event::Missed(1)));
    let heard = until("an event", async || {
        let sent = server.bus.messages.publish("detent.event", "after".into());
        sent.await.ok()?;
        tokio::time::timeout(Duration::from_millis(200), events.next())
            .await
            .ok()
    });
    let heard = heard.await.unwrap();
    assert!(matches!(heard, Event::Message { payload, .. } if payload == "after"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_lost_on_the_way_is_a_timeout() {
    /// Tells that it has it, and never answers.
    struct Silent(Notify);
    #[async_trait]
    impl Handler for Silent {
        async fn handle(&self, _: &str, _: Bytes) -> Bytes {
            self.0.notify_one();
            std::future::pending().await
        }
    }
    let mut broker = server().await;
    let nats = connect(&broker).await;
    let silent = Arc::new(Silent(Notify::new()));
    let options = ServeOptions::default();
    let handler = Arc::clone(&silent) as Arc<dyn Handler>;
    let served = nats.bus.messages.serve(SUBJECT, options, handler);
    let _served = served.await.unwrap();
    let wait = Duration::from_secs(2);
    let (told, ()) = tokio::join!(
        nats.bus.messages.request(SUBJECT, "x".into(), wait),
        async {
            silent.0.notified().await;
            broker.server.kill().await;
        }
    );
    assert!(matches!(told, Err(BusError::Timeout { .. })), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_ends_loses_no_request() {
    const ENDINGS: usize = 15;
    let broker = server().await;
    let asker = connect(&broker).await;
    let (stays, goes) = (connect(&broker).await, connect(&broker).await);
    let _stays = serve(&stays.bus, SUBJECT, "g").await;
    let done = Arc::new(AtomicBool::new(false));
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let (bus, done) = (asker.bus.clone(), Arc::clone(&done));
        asking.spawn(async move {
            let mut answered = 0;
            while !done.load(Ordering::SeqCst) {
                let answer = bus.messages.request(SUBJECT, "x".into(), PATIENCE).await;
                assert_eq!(answer.as_deref(), Ok(&b"x"[..]));
                answered += 1;
            }
            answered
        });
    }
    for _ in 0..ENDINGS {
        let served = serve(&goes.bus, SUBJECT, "g").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        drop(served);
    }
    done.store(true, Ordering::SeqCst);
    let answered: usize = asking.join_all().await.into_iter().sum();
    println!("{answered} requests over {ENDINGS} endings");
    assert!(answered > 0);
}

#[tokio::test]
async fn what_has_ended_leaves_the_listing() {
    let broker = server().await;
    let nats = connect(&broker).await;
    let _stays = serve(&nats.bus, "detent.test.b", "g").await;
    drop(serve(&nats.bus, SUBJECT, "g").await);
    let client = raw(&broker).await;
    let gone = async || {
        let answer = client
            .request("$SRV.INFO.detent", Bytes::new())
            .await
            .unwrap();
        let info: Value = serde_json::from_slice(&answer.payload).unwrap();
        let left = info["endpoints"].as_array().unwrap();
        (left.len() == 1 && left[0]["subject"] == "detent.test.b").then_some(())
    };
    until("it to leave", gone).await;
}

#[tokio::test]
async fn the_connection_ends_with_the_bus() {
    let broker = server().await;
    let nats = connect(&broker).await;
    let served = serve(&nats.bus, SUBJECT, "g").await;
    let mut events = nats
        .bus
        .messages
        .subscribe("detent.event", 4)
        .await
        .unwrap();
    let client = raw(&broker).await;
    drop(nats);
    assert_eq!(
        tokio::time::timeout(PATIENCE, events.next()).await.unwrap(),
        None
    );
    let gone = async || {
        let answer = client.request("$SRV.PING.detent", Bytes::new()).await;
        answer.is_err().then_some(())
    };
    until("the service to go", gone).await;
    drop(served);
}
