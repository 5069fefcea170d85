//! Three servers: the suite with three copies, and one server less in the middle.

mod support;

use async_nats::jetstream;
use async_trait::async_trait;
use detent_bus::conformance::CASES;
use detent_bus::nats::{BLOBS, CONTROL, DEAD, INTAKE, LEASES, NatsBus, NatsOptions};
use detent_bus::{Dealer, Delivery, Disposal, Queue};
use detent_protocol::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use support::{Cluster, PATIENCE, cluster3};
use tokio::sync::mpsc;

const PARTS: [&str; 4] = ["messages::", "leases::", "blobs::", "inbox::"];

async fn raw(cluster: &Cluster) -> jetstream::Context {
    let options = cluster.options();
    let servers: Vec<_> = options.url.split(',').map(String::from).collect();
    jetstream::new(async_nats::connect(servers).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms_on_three_servers() {
    let cluster = cluster3().await;
    let jetstream = raw(&cluster).await;
    let mine = |name: &str| PARTS.iter().any(|part| name.starts_with(part));
    let mut run = 0;
    for case in CASES.iter().filter(|case| mine(case.name)) {
        println!("{}", case.name);
        let options = NatsOptions {
            // Three servers, their client and other tests on few cores.
            ack_timeout: Duration::from_secs(5),
            ..cluster.options()
        };
        let nats = NatsBus::connect(options).await.unwrap();
        (case.run)(nats.bus).await;
        for stream in [LEASES, BLOBS, INTAKE, CONTROL, DEAD] {
            jetstream.delete_stream(stream).await.unwrap();
        }
        run += 1;
    }
    assert!(run > 20, "{run} cases");
}

struct Teller(mpsc::UnboundedSender<Delivery>);

#[async_trait]
impl Dealer for Teller {
    async fn deal(&self, delivery: Delivery) -> Disposal {
        // The test ends while some may still come again.
        let _ = self.0.send(delivery);
        Disposal::Done
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_nothing_but_time() {
    let mut cluster = cluster3().await;
    let nats = NatsBus::connect(cluster.options()).await.unwrap();
    let inbox = nats.bus.inbox.clone().unwrap();
    let (told, mut heard) = mpsc::unbounded_channel();
    let taken = inbox.take(Queue::Intake, 8, Arc::new(Teller(told)));
    let _served = taken.await.unwrap();
    let node = NodeId::new("n").unwrap();
    let long = Duration::from_secs(3600);
    let lease = nats
        .bus
        .leases
        .acquire("x", &node, long)
        .await
        .unwrap()
        .unwrap();
    let body = nats.bus.blobs.put("body".into()).await.unwrap();

    // What is confirmed is dealt with, however often the leader changes in between.
    let mut confirmed = BTreeSet::new();
    for n in 0..60 {
        if n == 20 {
            let stream = raw(&cluster).await.get_stream(INTAKE).await.unwrap();
            let leader = stream
                .cached_info()
                .cluster
                .as_ref()
                .unwrap()
                .leader
                .clone();
            let leads =
                |b: &&mut support::Broker| Some(&b.server.options().name) == leader.as_ref();
            let leader = cluster.servers.iter_mut().find(leads).unwrap();
            leader.server.kill().await;
        }
        let (subject, payload) = (format!("detent.default.intake.a{n}"), format!("{n}"));
        let trying = async {
            while let Err(error) = inbox.put(&subject, payload.clone().into()).await {
                println!("{n}: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, trying).await.unwrap();
        confirmed.insert(payload);
    }
    while !confirmed.is_empty() {
        let next = tokio::time::timeout(PATIENCE, heard.recv()).await;
        let next = next.unwrap_or_else(|_| panic!("never came: {confirmed:?}"));
        confirmed.remove(std::str::from_utf8(&next.unwrap().payload).unwrap());
    }
    // Bodies and leases have leaders of their own, which may be the killed one's.
    let trying = async {
        while nats.bus.blobs.get(&body).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        loop {
            match nats.bus.leases.renew(&lease, long).await {
                Ok(renewed) => break assert!(renewed.is_some(), "it was held"),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, trying).await.unwrap();
}
