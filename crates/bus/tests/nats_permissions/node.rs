//! A node: all its work, and nothing that takes something out of the streams.

use crate::world::{World, within};
use async_trait::async_trait;
use detent_bus::conformance::CASES;
use detent_bus::nats::{CONTROL, DEAD, INTAKE, JOURNAL, NatsBus, NatsOptions, SetUp};
use detent_bus::{Dealer, Delivery, Disposal};
use detent_protocol::Code;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Deals with all, and tells.
pub(crate) struct Teller(mpsc::UnboundedSender<Delivery>);

#[async_trait]
impl Dealer for Teller {
    async fn deal(&self, delivery: Delivery) -> Disposal {
        // A test that has seen enough has no receiver.
        let _ = self.0.send(delivery);
        Disposal::Done
    }
}

pub(crate) fn teller() -> (Arc<Teller>, mpsc::UnboundedReceiver<Delivery>) {
    let (told, heard) = mpsc::unbounded_channel();
    (Arc::new(Teller(told)), heard)
}

/// Between them they use everything that the bus asks of a broker, but for reading dead
/// letters, which nodes have no business with.
const WORK: [&str; 12] = [
    "messages::a_request_is_answered",
    "messages::events_reach_every_subscriber_in_order",
    "journal::reading_goes_in_pages",
    "journal::open_goals_are_listed_by_shard_in_pages",
    "journal::goals_are_listed_by_tenant_in_pages",
    "journal::tenants_are_listed_in_pages",
    "forget::slots_go_with_their_goal",
    "slots::one_of_many_wins",
    "leases::held_names_are_listed_by_prefix",
    "blobs::a_removed_body_is_gone",
    "inbox::what_is_put_off_comes_again",
    "inbox::takers_share",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_can_do_its_work() {
    for name in WORK {
        println!("{name}");
        let case = CASES.iter().find(|case| case.name == name).unwrap();
        let (world, node) = World::start().await;
        (case.run)(node.bus).await;
        assert_eq!(world.violations(), [""; 0], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_doctor_finds_nothing_wrong() {
    let (world, node) = World::start().await;
    let inbox = node.bus.inbox.clone().unwrap();
    let mut served = Vec::new();
    for queue in [detent_bus::Queue::Intake, detent_bus::Queue::Control] {
        served.push(inbox.take(queue, 1, teller().0).await.unwrap());
    }
    for check in node.handle.check().await {
        assert!(check.found.is_ok(), "{check:?}");
    }
    assert_eq!(world.violations(), [""; 0]);
}

/// With rights of a node streams can be made, and not changed: that is for the admin.
#[tokio::test]
async fn streams_are_changed_by_the_admin_alone() {
    let world = World::empty().await;
    let looking = NatsOptions {
        create: false,
        ..world.options("node")
    };
    let fault = NatsBus::connect(looking).await.err().unwrap();
    assert_eq!(fault.code, Code::StreamSettings);
    NatsBus::connect(world.options("node")).await.unwrap();
    let more = |user| {
        let options = world.options(user);
        NatsOptions {
            inbox_bytes_max: options.inbox_bytes_max + 1,
            ..options
        }
    };
    let fault = NatsBus::set_up(more("node")).await.unwrap_err();
    assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
    assert!(fault.message.contains("STREAM.UPDATE."), "{fault}");
    let done = NatsBus::set_up(more("admin")).await.unwrap();
    let mended = done.iter().filter(|d| matches!(d, SetUp::Mended(..)));
    assert_eq!(mended.count(), 3, "{done:?}");
    NatsBus::connect(more("node")).await.unwrap();
}

#[tokio::test]
async fn it_takes_nothing_out_of_a_stream() {
    let (world, node) = World::start().await;
    let inbox = node.bus.inbox.clone().unwrap();
    inbox
        .put("detent.default.intake.a", "x".into())
        .await
        .unwrap();
    let mut witness = world.witness().await;
    let mut raw = world.raw("node").await;
    let mut subjects = vec![
        "$JS.API.STREAM.LIST".to_owned(),
        "$JS.API.STREAM.NAMES".into(),
        "$JS.API.STREAM.CREATE.OTHER".into(),
        "$JS.API.ACCOUNT.PURGE.DETENT".into(),
        "$JS.API.SERVER.REMOVE".into(),
        "$JS.API.STREAM.PURGE.DETENT_INTAKE".into(),
        "$JS.API.STREAM.PURGE.DETENT_CONTROL".into(),
        "$JS.API.STREAM.PURGE.DETENT_DEAD".into(),
        "$JS.API.STREAM.PURGE.KV_DETENT_LEASES".into(),
        "$JS.API.STREAM.MSG.GET.DETENT_DEAD".into(),
        "$JS.API.CONSUMER.DELETE.DETENT_INTAKE.dealers".into(),
        "$JS.API.CONSUMER.CREATE.DETENT_INTAKE.other".into(),
        "$KV.OTHER.x".into(),
        "$O.OTHER.C.x".into(),
        "$SYS.REQ.SERVER.PING".into(),
        "other".into(),
    ];
    for stream in [
        JOURNAL,
        INTAKE,
        CONTROL,
        DEAD,
        "KV_DETENT_LEASES",
        "OBJ_DETENT_BLOBS",
    ] {
        for what in ["DELETE", "UPDATE", "MSG.DELETE", "SNAPSHOT", "RESTORE"] {
            subjects.push(format!("$JS.API.STREAM.{what}.{stream}"));
        }
    }
    for subject in &subjects {
        raw.may_not_publish(subject).await;
    }
    witness.saw_nothing_forged().await;
    assert_eq!(witness.state(INTAKE).await.0, 1);
    raw.may_not_subscribe("$JS.>", "$JS.EVENT.x", &witness.client)
        .await;
    raw.may_not_subscribe("$SYS.>", "$SYS.x", &witness.client)
        .await;
}

/// The server itself keeps the journal's messages, whoever asks.
#[tokio::test]
async fn not_even_the_admin_takes_one_entry_out_of_the_journal() {
    let (world, _node) = World::start().await;
    let admin = world.raw("admin").await;
    let kept = admin.ask("detent-journal.00.default.g.e", "entry").await;
    assert!(kept.contains(JOURNAL), "{kept}");
    let delete = "$JS.API.STREAM.MSG.DELETE.DETENT_JOURNAL";
    let refused = admin.ask(delete, r#"{"seq":1}"#).await;
    assert!(refused.contains("\"error\""), "{refused}");
    let state = within("its state", world.witness()).await;
    assert_eq!(state.state(JOURNAL).await, (1, 1));
}
