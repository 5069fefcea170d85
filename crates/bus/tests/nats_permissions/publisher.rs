//! A publisher: its own tenant's goals, and nothing else.

use crate::world::{FORGED, LONG, Raw, World, round_trip, serve, within};
use detent_bus::nats::{CONTROL, INTAKE, JOURNAL, NatsBus, NatsOptions};
use detent_bus::{BusError, Event, Queue};
use detent_protocol::{Code, Fault};
use futures::StreamExt;

const GOAL: &str = "5e8ba5e5-62f7-5a8e-8a0a-0123456789ab";

/// What is served, and a subject of the tenant `default` there.
fn requests(tenant: &str) -> [(&'static str, String); 3] {
    [
        ("detent.*.submit.*", format!("detent.{tenant}.submit.a")),
        ("detent.*.steer.*", format!("detent.{tenant}.steer.{GOAL}")),
        ("detent.*.query", format!("detent.{tenant}.query")),
    ]
}

fn durable(tenant: &str) -> [String; 2] {
    [
        format!("detent.{tenant}.intake.a"),
        format!("detent.{tenant}.control.{GOAL}"),
    ]
}

/// Patterns of what a publisher reads, and a subject of each.
fn views(tenant: &str) -> [(String, String); 4] {
    let view = |pattern: &str, subject: String| {
        let pattern = format!("detent.{tenant}.{pattern}");
        (pattern, format!("detent.{tenant}.{subject}"))
    };
    [
        view("result.>", format!("result.a.{GOAL}")),
        view("event.*", format!("event.{GOAL}")),
        view("ask.*", format!("ask.{GOAL}")),
        view("refused.*", "refused.key".into()),
    ]
}

/// The same for each tenant, the copied one too.
async fn can_do_its_work(tenant: &str, options: NatsOptions, node: &NatsBus, raw: &mut Raw) {
    let mut served = Vec::new();
    let messages = NatsBus::messages(options).await.unwrap();
    for (pattern, subject) in requests(tenant) {
        served.push(serve(node, pattern).await);
        let answer = messages.request(&subject, "x".into(), LONG);
        let answer = within(&subject, answer).await;
        assert_eq!(answer.as_deref(), Ok(&b"x"[..]), "{subject}");
    }
    for subject in durable(tenant) {
        let kept = raw.ask(&subject, "x").await;
        assert!(kept.contains("\"stream\":\"DETENT_"), "{subject}: {kept}");
    }
    for (pattern, subject) in views(tenant) {
        let mut events = messages.subscribe(&pattern, 8).await.unwrap();
        let told = node.bus.messages.publish(&subject, "told".into()).await;
        told.unwrap();
        let event = within(&pattern, events.next()).await;
        let payload = "told".into();
        assert_eq!(event, Some(Event::Message { subject, payload }));
    }
    raw.was_told_nothing();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tenant_can_do_its_work() {
    let (world, node) = World::start().await;
    for tenant in ["default", "acme"] {
        let mut raw = world.raw(tenant).await;
        // With an inbox of its own or with the usual one.
        for inbox_prefix in [None, Some(format!("_INBOX.{tenant}"))] {
            let options = NatsOptions {
                inbox_prefix,
                ..world.options(tenant)
            };
            can_do_its_work(tenant, options, &node, &mut raw).await;
        }
    }
    assert_eq!(world.violations(), [""; 0]);
}

#[tokio::test]
async fn without_a_node_it_is_told_so() {
    let (world, _node) = World::start().await;
    let messages = NatsBus::messages(world.options("default")).await.unwrap();
    let subject = "detent.default.submit.a";
    let refused = messages.request(subject, "x".into(), LONG);
    let refused = within("a refusal", refused).await;
    assert_eq!(refused, Err(BusError::NoResponders(subject.into())));
}

#[tokio::test]
async fn a_request_to_another_tenant_is_refused_at_once() {
    let (world, node) = World::start().await;
    let _served = serve(&node, "detent.*.submit.*").await;
    let messages = NatsBus::messages(world.options("default")).await.unwrap();
    let refused = messages.request("detent.acme.submit.a", "x".into(), LONG);
    let refused = within("a refusal", refused).await.unwrap_err();
    assert!(matches!(refused, BusError::Denied(_)), "{refused:?}");
    let fault = Fault::from(refused);
    assert_eq!(fault.code, Code::BrokerRefused);
    assert!(fault.message.contains("detent.acme.submit.a"), "{fault}");
    assert!(!fault.code.retryable());
    // Nor what needs JetStream.
    let looking = within("a refusal", NatsBus::look(world.options("default"))).await;
    let fault = looking.err().unwrap();
    assert_eq!(fault.code, Code::BrokerRefused);
    assert!(fault.message.contains("$JS.API.INFO"), "{fault}");
}

/// All that a publisher has no business with.
fn foreign() -> Vec<String> {
    let mut subjects: Vec<String> = [
        // Of nodes among each other.
        "detent.tool.pay.n1",
        "detent.reason.local",
        "detent.observe.http.n1",
        "detent.executor.n1",
        "detent.owner.n1",
        "detent.infer.m",
        "detent.node.n1",
        "detent.alert.x",
        "detent.default.other",
        "detent.default.submit.a.b",
        "detent",
        // What is kept.
        "detent-dead",
        "$KV.DETENT_LEASES.node/n1",
        "$O.DETENT_BLOBS.C.x",
        "$O.DETENT_BLOBS.M.x",
        "$JS.ACK.DETENT_INTAKE.dealers.1.1.1.1.1",
        // Of the server.
        "$SRV.PING",
        "$SRV.INFO.detent",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.USER.INFO",
        "_R_.x.y",
    ]
    .map(String::from)
    .into();
    subjects.push(format!("detent-journal.00.default.{GOAL}.e"));
    subjects.push(format!("detent-journal.00.default.{GOAL}.s.pay.1"));
    let api = [
        "INFO",
        "ACCOUNT.PURGE.DETENT",
        "SERVER.REMOVE",
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.CREATE.MINE",
    ];
    subjects.extend(api.map(|what| format!("$JS.API.{what}")));
    for stream in [JOURNAL, INTAKE, CONTROL, "DETENT_DEAD", "KV_DETENT_LEASES"] {
        let api = [
            "STREAM.INFO.S",
            "STREAM.CREATE.S",
            "STREAM.UPDATE.S",
            "STREAM.DELETE.S",
            "STREAM.PURGE.S",
            "STREAM.MSG.GET.S",
            "STREAM.MSG.DELETE.S",
            "STREAM.SNAPSHOT.S",
            "STREAM.RESTORE.S",
            "DIRECT.GET.S",
            "CONSUMER.CREATE.S",
            "CONSUMER.CREATE.S.mine",
            "CONSUMER.DURABLE.CREATE.S.mine",
            "CONSUMER.INFO.S.dealers",
            "CONSUMER.MSG.NEXT.S.dealers",
            "CONSUMER.DELETE.S.dealers",
        ];
        subjects.extend(
            api.map(|what| format!("$JS.API.{}", what.replace(".S", &format!(".{stream}")))),
        );
    }
    subjects
}

#[tokio::test]
async fn it_can_publish_nothing_else() {
    let (world, _node) = World::start().await;
    let mut witness = world.witness().await;
    let mut raw = world.raw("default").await;
    let mut subjects = foreign();
    for (_, subject) in requests("acme") {
        subjects.push(subject);
    }
    subjects.extend(durable("acme"));
    // No view either, not even of its own goals: results are the nodes' word.
    for tenant in ["default", "acme"] {
        subjects.extend(views(tenant).map(|(_, subject)| subject));
    }
    println!("{} subjects", subjects.len());
    let acme = world.raw("acme").await;
    let mut acmes = Vec::new();
    for (pattern, _) in views("acme") {
        acmes.push(acme.subscribe(&pattern).await);
    }
    let before = witness.state(JOURNAL).await;
    for subject in &subjects {
        raw.may_not_publish(subject).await;
    }
    witness.saw_nothing_forged().await;
    assert_eq!(witness.state(JOURNAL).await, before);
    for stream in [INTAKE, CONTROL] {
        assert_eq!(witness.state(stream).await, (0, 0), "{stream}");
    }
    round_trip(&acme.client).await;
    for events in &mut acmes {
        let came = futures::FutureExt::now_or_never(events.next());
        assert!(came.is_none(), "{came:?}");
    }
    // The witness is not blind.
    let own = "detent.default.query";
    raw.client.publish(own, FORGED.into()).await.unwrap();
    round_trip(&raw.client).await;
    let saw = witness.saw().await;
    assert!(saw.iter().any(|message| message.payload == FORGED));
}

#[tokio::test]
async fn it_can_read_nothing_else() {
    let (world, _node) = World::start().await;
    let admin = world.raw("admin").await.client;
    let mut raw = world.raw("default").await;
    for subject in foreign() {
        // Of its own: that is another test's matter.
        if !subject.contains("$JS.API") {
            raw.may_not_subscribe(&subject, &subject, &admin).await;
        }
    }
    for (pattern, subject) in views("acme") {
        raw.may_not_subscribe(&pattern, &subject, &admin).await;
    }
    // Goals are not to be stolen, neither others' nor its own.
    for tenant in ["default", "acme"] {
        for (_, subject) in requests(tenant) {
            raw.may_not_subscribe(&subject, &subject, &admin).await;
        }
        for subject in durable(tenant) {
            raw.may_not_subscribe(&subject, &subject, &admin).await;
        }
    }
    let result = format!("detent.acme.result.a.{GOAL}");
    let submit = "detent.default.submit.a";
    for (pattern, example) in [
        (">", result.as_str()),
        ("*.>", &result),
        ("detent.>", &result),
        ("detent.*.result.>", &result),
        ("detent.*.result.*.*", &result),
        ("detent.default.>", submit),
        ("detent.default.submit.*", submit),
        ("detent.*.submit.*", submit),
        ("detent.tool.>", "detent.tool.pay.n1"),
        ("detent.reason.*", "detent.reason.local"),
        ("detent.observe.>", "detent.observe.http.n1"),
        ("detent.executor.*", "detent.executor.n1"),
        ("detent.owner.*", "detent.owner.n1"),
        ("detent.alert.*", "detent.alert.x"),
        ("detent-journal.>", "detent-journal.00.default.g.e"),
        ("$JS.>", "$JS.EVENT.x"),
        ("$KV.>", "$KV.DETENT_LEASES.x"),
        ("$O.>", "$O.DETENT_BLOBS.C.x"),
        ("$SRV.>", "$SRV.PING"),
        ("$SYS.>", "$SYS.x"),
        ("_R_.>", "_R_.x"),
    ] {
        raw.may_not_subscribe(pattern, example, &admin).await;
    }
}

/// It may listen to `_INBOX.>`, but that is its own account's: the answers of all others
/// are elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_sees_nobody_elses_answers() {
    let (world, node) = World::start().await;
    let _served = serve(&node, "detent.*.query").await;
    let mut raw = world.raw("default").await;
    let mut inboxes = raw.subscribe("_INBOX.>").await;
    for user in ["acme", "operator"] {
        let other = world.raw(user).await;
        let answer = other.ask("detent.acme.query", "of acme").await;
        assert_eq!(answer, "of acme");
    }
    let answer = node
        .bus
        .messages
        .request("detent.x.query", "n".into(), LONG);
    assert_eq!(within("an answer", answer).await.as_deref(), Ok(&b"n"[..]));
    // What is sent to its own inbox from elsewhere does not arrive either.
    let admin = world.raw("admin").await.client;
    admin.publish("_INBOX.default.x", "a".into()).await.unwrap();
    round_trip(&admin).await;
    let own = raw.client.publish("_INBOX.own", "own".into()).await;
    own.unwrap();
    // But for its own round trips, which say nothing.
    let heard = async {
        loop {
            let message = inboxes.next().await.unwrap();
            if !message.payload.is_empty() {
                return message;
            }
        }
    };
    let first = within("its own", heard).await;
    assert_eq!(first.payload, "own");
    raw.was_told_nothing();
}

/// What it publishes on its own subjects is kept in its queue, whatever headers it has.
#[tokio::test]
async fn headers_give_no_more_rights() {
    let (world, node) = World::start().await;
    let witness = world.witness().await;
    let raw = world.raw("default").await;
    raw.ask("detent.default.intake.a", "one").await;
    let journal = format!("detent-journal.00.acme.{GOAL}.e");
    for (name, value) in [
        ("Nats-Rollup", "all"),
        ("Nats-Rollup", "sub"),
        ("Nats-TTL", "1s"),
        ("Nats-Trace-Dest", journal.as_str()),
        ("Nats-Expected-Stream", JOURNAL),
    ] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(name, value);
        let subject = "detent.default.intake.b".to_owned();
        let sent = raw
            .client
            .publish_with_headers(subject, headers, "x".into());
        sent.await.unwrap();
    }
    round_trip(&raw.client).await;
    raw.ask("detent.default.intake.c", "two").await;
    assert_eq!(witness.state(JOURNAL).await, (0, 0));
    let (messages, _) = witness.state(INTAKE).await;
    assert!(messages >= 2, "{messages}");
    let inbox = node.bus.inbox.clone().unwrap();
    let (dealer, mut heard) = crate::node::teller();
    let _served = inbox.take(Queue::Intake, 1, dealer).await.unwrap();
    let first = within("the first", heard.recv()).await.unwrap();
    assert_eq!(first.payload, "one");
}
