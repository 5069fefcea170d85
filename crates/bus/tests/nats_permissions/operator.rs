//! An operator: sees everything, redrives dead letters, says nothing in others' names.

use crate::node::teller;
use crate::world::{LONG, World, serve, within};
use async_trait::async_trait;
use detent_bus::nats::{DEAD, INTAKE, JOURNAL, NatsBus, NatsOptions};
use detent_bus::{BusError, Dealer, Delivery, Disposal, Event, Queue};
use detent_protocol::{Code, Fault};
use std::sync::Arc;

const SUBJECT: &str = "detent.acme.intake.a";

/// Gives every message up.
struct Undertaker;

#[async_trait]
impl Dealer for Undertaker {
    async fn deal(&self, _: Delivery) -> Disposal {
        Disposal::Dead(Fault::new(Code::InputInvalid, "a test"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_looks_at_streams_and_redrives_dead_letters() {
    let (world, node) = World::start().await;
    let options = NatsOptions {
        create: false,
        ..world.options("operator")
    };
    let handle = NatsBus::look(options.clone()).await.unwrap();
    for check in handle.check().await {
        assert!(check.found.is_ok(), "{check:?}");
    }
    let nodes = node.bus.inbox.clone().unwrap();
    nodes.put(SUBJECT, "a goal".into()).await.unwrap();
    let taken = nodes.take(Queue::Intake, 1, Arc::new(Undertaker)).await;
    let operator = NatsBus::connect(options).await.unwrap();
    let inbox = operator.bus.inbox.clone().unwrap();
    let letter = within("a dead letter", async {
        loop {
            match inbox.dead(0, 10).await.unwrap().pop() {
                Some(letter) => return letter,
                None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    assert_eq!(letter.subject, SUBJECT);
    drop(taken);
    assert_eq!(inbox.redrive(letter.number).await, Ok(true));
    assert_eq!(inbox.dead(0, 10).await, Ok(vec![]));
    let (dealer, mut heard) = teller();
    let _taken = nodes.take(Queue::Intake, 1, dealer).await.unwrap();
    let again = within("the goal again", heard.recv()).await.unwrap();
    assert_eq!(
        (again.subject.as_str(), &again.payload[..]),
        (SUBJECT, &b"a goal"[..])
    );
    assert_eq!(world.violations(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_asks_about_goals_and_hears_of_them() {
    let (world, node) = World::start().await;
    let messages = NatsBus::messages(world.options("operator")).await.unwrap();
    let _query = serve(&node, "detent.*.query").await;
    let _steer = serve(&node, "detent.*.steer.*").await;
    for subject in ["detent.acme.query", "detent.default.steer.g"] {
        let answer = messages.request(subject, "x".into(), LONG);
        assert_eq!(within(subject, answer).await.as_deref(), Ok(&b"x"[..]));
    }
    for (pattern, subject) in [
        ("detent.alert.*", "detent.alert.invariant"),
        ("detent.*.result.>", "detent.acme.result.a.g"),
        ("detent.*.event.*", "detent.acme.event.g"),
        ("detent.*.ask.*", "detent.default.ask.g"),
        ("detent.*.refused.*", "detent.default.refused.k"),
    ] {
        let mut events = messages.subscribe(pattern, 4).await.unwrap();
        let told = node.bus.messages.publish(subject, "told".into()).await;
        told.unwrap();
        let event = within(subject, events.next()).await;
        let (subject, payload) = (subject.into(), "told".into());
        assert_eq!(event, Some(Event::Message { subject, payload }));
    }
    let listed = world
        .raw("operator")
        .await
        .ask("$SRV.INFO.detent", "")
        .await;
    assert!(listed.contains("detent.*.query"), "{listed}");
    assert_eq!(world.violations(), [""; 0]);
}

#[tokio::test]
async fn it_speaks_for_nobody_and_changes_no_stream() {
    let (world, node) = World::start().await;
    let _served = serve(&node, "detent.*.submit.*").await;
    let messages = NatsBus::messages(world.options("operator")).await.unwrap();
    let refused = messages.request("detent.acme.submit.a", "x".into(), LONG);
    let refused = within("a refusal", refused).await;
    assert!(matches!(refused, Err(BusError::Denied(_))), "{refused:?}");
    let mut witness = world.witness().await;
    let mut raw = world.raw("operator").await;
    for subject in [
        "detent.default.submit.a",
        "detent.default.result.a.g",
        "detent.default.event.g",
        "detent.default.ask.g",
        "detent.default.refused.k",
        "detent.alert.x",
        "detent.tool.pay.n1",
        "detent.reason.local",
        "detent.observe.http.n1",
        "detent.executor.n1",
        "detent.owner.n1",
        "detent-journal.00.default.g.e",
        "detent-journal.00.default.g.s.pay.1",
        "detent-dead",
        "$KV.DETENT_LEASES.x",
        "$O.DETENT_BLOBS.C.x",
        "$SYS.REQ.SERVER.PING",
    ] {
        raw.may_not_publish(subject).await;
    }
    for stream in [JOURNAL, INTAKE, DEAD] {
        for what in ["CREATE", "UPDATE", "DELETE", "PURGE", "SNAPSHOT", "RESTORE"] {
            let subject = format!("$JS.API.STREAM.{what}.{stream}");
            raw.may_not_publish(&subject).await;
        }
        for what in ["CREATE", "MSG.NEXT", "DELETE"] {
            let subject = format!("$JS.API.CONSUMER.{what}.{stream}.dealers");
            raw.may_not_publish(&subject).await;
        }
    }
    raw.may_not_publish("$JS.API.STREAM.MSG.DELETE.DETENT_INTAKE")
        .await;
    witness.saw_nothing_forged().await;
    for (pattern, subject) in [
        (">", "detent.default.submit.a"),
        ("detent.*.submit.*", "detent.default.submit.a"),
        ("detent.*.intake.*", "detent.default.intake.a"),
        ("detent.tool.>", "detent.tool.pay.n1"),
        ("detent-journal.>", "detent-journal.00.default.g.e"),
        ("_R_.>", "_R_.x"),
    ] {
        raw.may_not_subscribe(pattern, subject, &witness.client)
            .await;
    }
}
