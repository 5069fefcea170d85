//! Nobody checks where a client wants its answer. So it must not matter.

use crate::world::{World, round_trip};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::nats::{CONTROL, INTAKE, JOURNAL, NatsBus};
use detent_bus::{Handler, ServeOptions, Served};
use std::sync::Arc;

const PURGE: &str = "$JS.API.STREAM.PURGE.DETENT_JOURNAL";
const ENTRY: &str = "detent-journal.00.acme.5e8ba5e5-62f7-5a8e-8a0a-0123456789ab.e";

/// An empty answer: as a request to purge it means everything.
struct Nothing;

#[async_trait]
impl Handler for Nothing {
    async fn handle(&self, _: &str, _: Bytes) -> Bytes {
        Bytes::new()
    }
}

async fn serve_nothing(node: &NatsBus) -> Served {
    let (messages, options) = (&node.bus.messages, ServeOptions::default());
    let pattern = "detent.*.query";
    let served = messages.serve(pattern, options, Arc::new(Nothing)).await;
    served.unwrap()
}

/// Where answers must not go, and what they would do there.
const TARGETS: [&str; 5] = [
    PURGE,
    ENTRY,
    "detent.acme.control.g",
    "detent.acme.result.a.g",
    "$KV.DETENT_LEASES.x",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_publisher_or_an_operator_no_answer_goes_elsewhere() {
    let (world, node) = World::start().await;
    let _served = serve_nothing(&node).await;
    let mut witness = world.witness().await;
    let entry = witness.client.request(ENTRY, "an entry".into()).await;
    assert!(entry.unwrap().payload.starts_with(b"{\"stream\""));
    let mut sent: u64 = 0;
    for (user, asks) in [
        (
            "default",
            &["detent.default.query", "detent.default.intake.a"][..],
        ),
        (
            "operator",
            &["detent.acme.query", "$JS.API.INFO", "$SRV.PING"],
        ),
    ] {
        let raw = world.raw(user).await;
        for subject in asks {
            for target in TARGETS {
                let (to, reply) = (subject.to_string(), target.to_owned());
                let asked = raw.client.publish_with_reply(to, reply, Bytes::new());
                asked.await.unwrap();
                sent += u64::from(subject.contains(".intake."));
            }
        }
        round_trip(&raw.client).await;
    }
    // All that was asked before was answered before this.
    let raw = world.raw("default").await;
    raw.ask("detent.default.query", "").await;
    raw.ask("detent.default.intake.a", "").await;
    assert_eq!(witness.state(JOURNAL).await, (1, 1));
    assert_eq!(witness.state(INTAKE).await.0, sent + 1);
    assert_eq!(witness.state(CONTROL).await, (0, 0));
    let saw = witness.saw().await;
    let at = |target: &str| saw.iter().filter(|m| m.subject.as_str() == target).count();
    assert_eq!(TARGETS.map(at), [0, 1, 0, 0, 0], "but for the entry itself");
    assert_eq!(at("detent.default.query"), TARGETS.len() + 1);
}

/// Whoever shares the nodes' account, without the accounts of `users.conf`, gets no node
/// to say something for him where only nodes may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_answers_into_no_subject_of_the_system() {
    let (world, node) = World::start().await;
    let _served = serve_nothing(&node).await;
    let mut witness = world.witness().await;
    let client = witness.client.clone();
    client.request(ENTRY, "an entry".into()).await.unwrap();
    for target in TARGETS {
        let (to, reply) = ("detent.x.query".to_owned(), target.to_owned());
        let asked = client.publish_with_reply(to, reply, Bytes::new());
        asked.await.unwrap();
        let (to, reply) = ("$SRV.INFO.detent".to_owned(), target.to_owned());
        let asked = client.publish_with_reply(to, reply, Bytes::new());
        asked.await.unwrap();
    }
    client
        .request("detent.x.query", Bytes::new())
        .await
        .unwrap();
    let listed = client.request("$SRV.INFO.detent", Bytes::new()).await;
    assert!(!listed.unwrap().payload.is_empty());
    assert_eq!(witness.state(JOURNAL).await, (1, 1));
    let saw = witness.saw().await;
    let at = |target: &str| saw.iter().filter(|m| m.subject.as_str() == target).count();
    assert_eq!(TARGETS.map(at), [0, 1, 0, 0, 0], "but for the entry itself");
}
