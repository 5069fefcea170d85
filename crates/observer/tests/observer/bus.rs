//! The observer on a bus: requests in, verdicts with evidence out.

use crate::support::{PATIENCE, Place, World, all_probes, is_unavailable, node};
use bytes::Bytes;
use detent_bus::env::{Env, SystemEnv};
use detent_observer::{ObserverOptions, SUMMARY_BYTES_MAX};
use detent_protocol::expect::{Observation, Verdict};
use detent_protocol::json::{self, Digest};
use detent_protocol::redact::Redactor;
use detent_protocol::{Code, envelope, subject};
use serde_json::{Value, json};

fn exists() -> Value {
    json!({"properties": {"exists": {"const": true}}, "required": ["exists"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verdicts_of_each_kind() {
    let world = World::start().await;
    world.place.write("a.txt", "x");
    rusqlite::Connection::open(world.place.data_dir().join("shop.db"))
        .unwrap()
        .execute_batch("CREATE TABLE orders(id); INSERT INTO orders VALUES (1), (2)")
        .unwrap();
    let rows = |n| json!({"properties": {"row_count": {"const": n}}, "required": ["row_count"]});
    let orders = |from| {
        let query = format!("SELECT id FROM orders WHERE id >= {from}");
        json!({"database": "shop.db", "query": query})
    };
    let exit = |code| json!({"properties": {"exit_code": {"const": code}}});
    let sh = |code| json!({"command": ["sh", "-c", format!("exit {code}")]});

    let met = world.verdict("file", json!({"path": "a.txt"}), exists());
    assert_eq!(met.await, Verdict::Met);
    let absent = world.verdict("file", json!({"path": "b.txt"}), exists());
    assert_eq!(absent.await, Verdict::Absent);
    let mismatch = json!({"properties": {"bytes": {"const": 2}}});
    let mismatch = world.verdict("file", json!({"path": "a.txt"}), mismatch);
    assert!(matches!(mismatch.await, Verdict::Mismatch { .. }));
    let folder = world.verdict("file", json!({"path": "."}), exists());
    assert!(is_unavailable(&folder.await));

    assert_eq!(world.verdict("sql", orders(2), rows(1)).await, Verdict::Met);
    let absent = world.verdict("sql", orders(3), rows(1)).await;
    assert_eq!(absent, Verdict::Absent);
    let mismatch = world.verdict("sql", orders(1), rows(1)).await;
    assert!(matches!(mismatch, Verdict::Mismatch { .. }));

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let refused = json!({"url": format!("http://{closed}/")});
    let refused = world.verdict("http", refused, json!({"required": ["bytes"]}));
    assert!(is_unavailable(&refused.await));

    assert_eq!(world.verdict("process", sh(0), exit(0)).await, Verdict::Met);
    let failed = world.verdict("process", sh(1), exit(0)).await;
    assert!(is_unavailable(&failed), "{failed:?}");
    // What status 1 proves, the tool's own form of absence may say.
    let mut ask = world.ask("process", sh(1), exit(0));
    ask.absent = Some(exit(1));
    assert_eq!(world.send(ask).await.verdict, Verdict::Absent);

    let stats = world.observer.stats();
    assert_eq!((stats.met, stats.absent, stats.mismatch), (3, 3, 2));
    assert_eq!(
        (stats.unavailable, stats.refused, stats.in_flight),
        (3, 0, 0)
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_says_what_was_seen_and_when() {
    let world = World::start().await;
    let content = json!({"invoice": {"number": "R-7"}}).to_string();
    world.place.write("r.json", &content);
    let mut ask = world.ask("file", json!({"path": "r.json", "parse": "json"}), exists());
    ask.output_at = Some("/json/invoice".into());
    let before_ms = SystemEnv.now_ms();
    let observation = world.send(ask.clone()).await;
    let evidence = observation.evidence.unwrap();
    assert_eq!(evidence.probe, "file");
    assert!(evidence.what.ends_with("/r.json"), "{}", evidence.what);
    assert!((before_ms..=SystemEnv.now_ms()).contains(&evidence.at_ms));
    assert_eq!(evidence.digest, Digest::of_json(&evidence.seen));
    assert_eq!(evidence.seen["json"]["invoice"]["number"], "R-7");
    assert_eq!(observation.output, Some(json!({"number": "R-7"})));
    // The output is known only where the effect is.
    ask.params = json!({"path": "none.json"});
    let observation = world.send(ask).await;
    assert_eq!(
        (observation.verdict, observation.output),
        (Verdict::Absent, None)
    );
    assert_eq!(observation.evidence.unwrap().seen, json!({"exists": false}));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_evidence_is_cut_but_its_output_is_whole() {
    let world = World::start().await;
    world.place.write("long.txt", "x".repeat(100_000));
    let mut ask = world.ask(
        "file",
        json!({"path": "long.txt", "parse": "text"}),
        exists(),
    );
    ask.output_at = Some("/text".into());
    let observation = world.send(ask).await;
    let evidence = observation.evidence.unwrap();
    assert!(json::size_bytes(&evidence.seen) <= SUMMARY_BYTES_MAX);
    assert_eq!(evidence.seen["bytes"], 100_000);
    assert_eq!(evidence.seen["text"], json!({"cut_bytes": 100_002}));
    assert_eq!(observation.output, Some(json!("x".repeat(100_000))));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_leaves_the_observer() {
    const SECRET: &str = "hunter2-secret";
    let place = Place::new();
    let options = ObserverOptions {
        redactor: Redactor::new([SECRET.to_owned()]),
        ..place.options()
    };
    let world = World::start_with(place, options, all_probes()).await;
    world
        .place
        .write(SECRET, format!("{{\"key\": \"{SECRET}\"}}"));
    world
        .place
        .write("long", format!("{} {SECRET}", "y ".repeat(5_000)));
    let file = |path: &str| json!({"path": path, "parse": "json"});
    let speak = json!({"command": ["sh", "-c", "echo hunter2-secret >&2; exit 3"]});
    let mismatch = json!({"required": [SECRET]});
    for (probe, params, schema) in [
        ("file", file(SECRET), exists()),
        ("file", file(SECRET), mismatch),
        ("file", json!({"path": "long", "parse": "text"}), exists()),
        ("file", file(&format!("../{SECRET}")), exists()),
        ("process", speak, json!({"required": ["nothing"]})),
        ("sql", json!({"database": "x", "query": [SECRET]}), exists()),
    ] {
        let mut ask = world.ask(probe, params, schema);
        ask.output_at = Some("/json".into());
        let answer = format!("{:?}", world.send(ask).await);
        assert!(!answer.contains("hunter2"), "{answer}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cant_be_looked_at_is_unavailable_and_says_where() {
    let world = World::start().await;
    let path = json!({"path": "a"});
    let timed = |ms: Value| json!({"path": "a", "timeout_ms": ms});
    let broken = json!({"type": "nothing"});
    for (probe, params, schema, code, at) in [
        (
            "crystal",
            path.clone(),
            exists(),
            Code::ObservationUnavailable,
            "/probe",
        ),
        ("file", path.clone(), broken, Code::ConfigInvalid, "/schema"),
        (
            "file",
            timed(json!(0)),
            exists(),
            Code::ObservationUnavailable,
            "/params/timeout_ms",
        ),
        (
            "file",
            timed(json!(60_001)),
            exists(),
            Code::ObservationUnavailable,
            "/params/timeout_ms",
        ),
        (
            "file",
            timed(json!("1")),
            exists(),
            Code::ObservationUnavailable,
            "/params/timeout_ms",
        ),
        (
            "file",
            json!([]),
            exists(),
            Code::ObservationUnavailable,
            "/params",
        ),
    ] {
        let verdict = world.verdict(probe, params, schema).await;
        let Verdict::Unavailable { fault } = verdict else {
            panic!("{probe} {at}: {verdict:?}");
        };
        assert_eq!((fault.code, fault.at.as_deref()), (code, Some(at)));
    }
    let junk = Bytes::from_static(b"junk");
    let messages = &world.bus.messages;
    let subject = subject::observe("file", &node());
    let answer = messages.request(&subject, junk, PATIENCE);
    let answer = envelope::read_reply::<Observation>(&answer.await.unwrap());
    assert_eq!(answer.unwrap_err().code, Code::InputInvalid);
    assert_eq!(world.observer.stats().refused, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_gets_the_time_that_its_parameters_name() {
    let world = World::start().await;
    let params = json!({"command": ["sh", "-c", "sleep 600"], "timeout_ms": 200});
    let verdict = world.verdict("process", params, exists()).await;
    let Verdict::Unavailable { fault } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(fault.message.contains("200 ms"), "{fault}");
    world.stop().await;
}
