//! Streams that stand otherwise than wanted, and a server that does not sync.

use super::*;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use detent_bus::nats::SetUp;
use detent_protocol::{Code, Fault};

async fn refused(options: &NatsOptions) -> Fault {
    let connected = NatsBus::connect(options.clone()).await;
    connected.map(drop).expect_err("refused")
}

#[tokio::test]
async fn a_missing_stream_is_made_only_where_that_is_allowed() {
    let server = support::server().await;
    let careful = NatsOptions {
        create: false,
        ..server.options()
    };
    let fault = refused(&careful).await;
    assert_eq!(fault.code, Code::StreamSettings);
    assert!(
        fault.message.contains("DETENT_JOURNAL is missing"),
        "{fault}"
    );
    assert!(fault.message.contains("detent nats setup"), "{fault}");
    let made = NatsBus::set_up(careful.clone()).await.expect("made");
    assert!(made.contains(&SetUp::Made(JOURNAL.into())), "{made:?}");
    connect(careful.clone()).await;
    let fine = NatsBus::set_up(careful).await.expect("made");
    assert!(
        fine.iter().all(|one| matches!(one, SetUp::Fine(_))),
        "{fine:?}"
    );
}

#[tokio::test]
async fn a_weaker_stream_is_refused_and_mended() {
    let server = support::server().await;
    connect(server.options()).await;
    let jetstream = jetstream(&server.options()).await;
    let mut stream = jetstream.get_stream(JOURNAL).await.unwrap();
    let standing = stream.info().await.unwrap().config.clone();
    let weaker = Config {
        discard: DiscardPolicy::Old,
        max_age: std::time::Duration::from_secs(3600),
        max_bytes: 1 << 20,
        max_messages: 1000,
        allow_direct: false,
        ..standing
    };
    jetstream.update_stream(weaker).await.unwrap();
    let fault = refused(&server.options()).await;
    assert_eq!(fault.code, Code::StreamSettings);
    for setting in [
        "discard old is true, has to be false",
        "max_age is 3600s, has to be 0ns",
        "max_bytes is 1048576, has to be 268435456",
        "max_msgs is 1000, has to be -1",
        "allow_direct is false, has to be true",
    ] {
        assert!(fault.message.contains(setting), "{setting}: {fault}");
    }
    let done = NatsBus::set_up(server.options()).await.expect("mended");
    let mended = |one: &&SetUp| matches!(one, SetUp::Mended(name, _) if name == JOURNAL);
    assert!(done.iter().any(|one| mended(&one)), "{done:?}");
    connect(server.options()).await;
}

#[tokio::test]
async fn what_cannot_be_changed_in_place_is_named() {
    let server = support::server().await;
    let jetstream = jetstream(&server.options()).await;
    let fleeting = Config {
        name: JOURNAL.into(),
        subjects: vec!["detent-journal.>".into()],
        storage: StorageType::Memory,
        ..Config::default()
    };
    jetstream.create_stream(fleeting).await.unwrap();
    let fault = refused(&server.options()).await;
    assert_eq!(fault.code, Code::StreamSettings);
    assert!(
        fault.message.contains("storage is Memory, has to be File"),
        "{fault}"
    );
    let fault = NatsBus::set_up(server.options()).await.expect_err("stuck");
    assert_eq!(fault.code, Code::StreamSettings);
    assert!(fault.message.contains("storage is Memory"), "{fault}");
    let standing = jetstream.get_stream(JOURNAL).await.unwrap();
    assert!(
        !standing.cached_info().config.allow_rollup,
        "it was not touched"
    );
}

#[tokio::test]
async fn three_copies_need_three_servers() {
    let server = support::server().await;
    let options = NatsOptions {
        replicas: 3,
        ..server.options()
    };
    let fault = refused(&options).await;
    assert_eq!(fault.code, Code::StreamSettings, "{fault}");
    assert!(fault.message.contains("replicas"), "{fault}");
}

#[tokio::test]
async fn it_is_seen_whether_a_server_syncs() {
    for (sync_always, wanted) in [(true, "before each confirmation"), (false, "every 120s")] {
        let broker = support::server_with(|options| {
            options.sync_always = sync_always;
            options.monitor_port = Some(0);
        });
        let broker = broker.await;
        let options = NatsOptions {
            monitor: broker.server.monitor_url(),
            ..broker.options()
        };
        let connected = NatsBus::connect(options).await.expect("a bus");
        let checks = connected.handle.check().await;
        let syncing = checks.iter().find(|check| check.what == "syncing");
        let found = syncing.expect("a check").found.as_ref().expect("seen");
        assert!(found.starts_with(wanted), "{found}");
    }
}
