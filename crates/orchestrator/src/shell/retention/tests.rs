//! Retention over a real local bus, on a clock that the test sets.

use super::waiting::WAITING_MAX;
use super::*;
use crate::shell::archive::part;
use crate::{Definitions, Handle, NoHooks, Options, Orchestrator};
use detent_bus::claim::ClaimCheck;
use detent_bus::env::Env;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_bus::{Append, Bus, call};
use detent_protocol::agent::{Compiled, Definition};
use detent_protocol::claim::Claim;
use detent_protocol::envelope::Message;
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::messages::{Answer, Ask, Query};
use detent_protocol::tombstone::ARCHIVE_PART_BYTES;
use detent_protocol::{GoalId, NodeId, subject};
use detent_store::{Store, StoreOptions};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};

/// Far more than anything here takes, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR_MS: u64 = 3_600_000;
/// The clock at the beginning.
const BEGIN_MS: u64 = 1_760_000_000_000;

struct Clock(AtomicU64);

impl Env for Clock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn clock_error_ms(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        1
    }
}

struct World {
    bus: Bus,
    clock: Arc<Clock>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::journal(dir.path().join("store"))).unwrap();
        let clock = Arc::new(Clock(AtomicU64::new(BEGIN_MS)));
        let mut options = LocalOptions::new(store, dir.path().join("blobs"));
        options.env = clock.clone();
        Self {
            bus: LocalBus::open(options).unwrap(),
            clock,
            _dir: dir,
        }
    }

    /// Goals are forgotten at once, archives kept for an hour.
    async fn start(&self) -> Handle {
        let retention = Some(Retention {
            journal_ms: 0,
            archive_ms: HOUR_MS,
        });
        let options = Options {
            retention,
            ..Options::new(NodeId::new("n1").unwrap())
        };
        let (bus, env) = (self.bus.clone(), self.clock.clone());
        let definitions = Definitions::new([agent()], []);
        let hooks = Arc::new(NoHooks);
        let started = Orchestrator::spawn(options, bus, env, definitions, hooks, None);
        started.await.unwrap()
    }

    fn pass(&self, ms: u64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
    }

    async fn ask<Q: Message, A: serde::de::DeserializeOwned>(
        &self,
        subject: &str,
        question: &Q,
    ) -> Result<A, Fault> {
        call(&*self.bus.messages, subject, question, PATIENCE).await
    }

    async fn submit(&self, submit: &Submit) -> Result<Accepted, Fault> {
        let subject = subject::submit(&submit.tenant, &submit.agent);
        self.ask(&subject, submit).await
    }

    async fn query(&self, ask: Ask) -> Result<Answer, Fault> {
        let tenant = TenantId::default();
        let subject = subject::query(&tenant);
        self.ask(&subject, &Query { tenant, ask }).await
    }

    async fn tombstone(&self, goal: GoalId) -> Option<Tombstone> {
        let tail = self.bus.journal.tail(&key(goal)).await.unwrap()?;
        let tombstone = archive::read_tombstone(&tail.entry).unwrap()?;
        Some(tombstone.1)
    }

    async fn forgotten(&self, goal: GoalId) -> Tombstone {
        until(async || self.tombstone(goal).await).await
    }
}

fn key(goal: GoalId) -> GoalKey {
    let tenant = TenantId::default();
    GoalKey { tenant, goal }
}

async fn until<T>(mut is: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = is().await {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn agent() -> Compiled {
    let agent = json!({"name": "a", "tools": [], "reasoners": ["gone"],
        "input_schema": true, "result_schema": true});
    let definition = json!({"agent": agent, "tools": {}});
    Compiled::compile(serde_json::from_value::<Definition>(definition).unwrap()).unwrap()
}

/// A goal that ends at once: nothing may be spent on it.
fn order() -> Submit {
    let submit = json!({"agent": "a", "input": {},
        "key": {"key": "k", "issued_at_ms": BEGIN_MS},
        "budget": {"plan_calls": 0, "tokens": 0, "tool_calls": 0, "money_micros": 0}});
    serde_json::from_value(submit).unwrap()
}

#[tokio::test]
async fn an_archive_goes_in_its_time_and_the_result_stays() {
    let world = World::new();
    let handle = world.start().await;
    let goal = world.submit(&order()).await.unwrap().goal;
    let tombstone = world.forgotten(goal).await;
    let all = |from| Ask::Events {
        goal,
        from,
        wait_ms: 0,
    };
    let Answer::Events { events, ended } = world.query(all(1)).await.unwrap() else {
        panic!("no events");
    };
    assert!(ended && !events.is_empty());
    handle.stop().await;

    world.pass(2 * HOUR_MS);
    let handle = world.start().await;
    let blobs = &world.bus.blobs;
    let gone = async || {
        let body = blobs.get(&tombstone.archive.parts[0]).await.unwrap();
        body.is_none().then_some(())
    };
    until(gone).await;
    let code = |answer: Result<Answer, Fault>| answer.map_err(|fault| fault.code);
    assert_eq!(code(world.query(all(1)).await), Err(Code::EventsGone));
    let export = Ask::Export { goal, from: 1 };
    assert_eq!(code(world.query(export).await), Err(Code::EventsGone));
    // Who has heard all is not told that something is gone.
    let after = all(events.len() as u64 + 1);
    let none = Answer::Events {
        events: Vec::new(),
        ended: true,
    };
    assert_eq!(code(world.query(after).await), Ok(none));
    let again = world.submit(&order()).await.unwrap();
    assert_eq!(again.result, Some(tombstone.result));
    handle.stop().await;
}

#[tokio::test]
async fn a_key_answers_until_it_is_expired_and_is_never_taken_anew() {
    let world = World::new();
    let handle = world.start().await;
    let first = world.submit(&order()).await.unwrap();
    let tombstone = world.forgotten(first.goal).await;
    handle.stop().await;

    // Its keys' time, and the margin for publishers whose clocks are ahead.
    world.pass(30 * DAY_MS);
    let handle = world.start().await;
    assert!(!world.bus.journal.sweep().await.unwrap());
    let again = world.submit(&order()).await.unwrap();
    assert_eq!((again.goal, again.duplicate), (first.goal, true));
    assert_eq!(again.result, Some(tombstone.result));
    handle.stop().await;

    world.pass(HOUR_MS);
    let handle = world.start().await;
    let gone = async || {
        let tail = world.bus.journal.tail(&key(first.goal)).await.unwrap();
        tail.is_none().then_some(())
    };
    until(gone).await;
    // Before its tombstone went, its archive did.
    let archived = world.bus.blobs.get(&tombstone.archive.parts[0]).await;
    assert_eq!(archived, Ok(None));
    let expired = world.submit(&order()).await.unwrap_err();
    assert_eq!(expired.code, Code::KeyExpired);
    let unknown = world.query(Ask::Show { goal: first.goal }).await;
    assert_eq!(unknown.unwrap_err().code, Code::GoalUnknown);
    handle.stop().await;
}

/// A goal with one step whose output was kept as a body, and that ended.
async fn with_large_output(world: &World) -> (GoalId, Claim) {
    let goal = GoalId::from_bytes([1; 16]);
    let check = ClaimCheck::new(world.bus.blobs.clone());
    let output = check.keep(&goal, json!({"text": "x".repeat(500_000)}));
    let output = output.await.unwrap();
    let claim = Claim::of(&output).unwrap();
    let plan = json!({"steps": [{"id": "s", "tool": "t"}], "result": {"$step": "s"}});
    let reserve = json!({});
    let bodies = [
        json!({"kind": "accepted", "body": {"agent": "a", "definition": agent().digest(),
            "input": {}, "submission": Digest([1; 32]), "key": null,
            "deadline_ms": BEGIN_MS + HOUR_MS, "limits": {}, "trace": null}}),
        json!({"kind": "plan_requested", "body": {"revision": 1, "provider": "gone",
            "why": "new_goal", "reserve": reserve}}),
        json!({"kind": "planned", "body": {"revision": 1, "plan": plan, "used": reserve}}),
        json!({"kind": "intended", "body": {"step": "s", "attempt": 1, "tool": "t",
            "args": Digest([2; 32]), "identity": null, "reserve": reserve}}),
        json!({"kind": "outcome", "body": {"step": "s", "attempt": 1,
            "outcome": {"done": {"output": output, "run": {}}}}}),
        json!({"kind": "step_ended", "body": {"step": "s", "end": {"done": {"stale": false}}}}),
        json!({"kind": "ended", "body": {"result": {"status": "succeeded", "data": {},
            "evidence": []}}}),
    ];
    let record = |(n, body)| Record {
        n,
        cause: "test".into(),
        said: Said::Known(serde_json::from_value(body).unwrap()),
    };
    let key = key(goal);
    let entry = Entry {
        tenant: key.tenant.clone(),
        goal,
        epoch: 1,
        at_ms: BEGIN_MS,
        at_error_ms: 0,
        records: (1..).zip(bodies).map(record).collect(),
    };
    let (entry, _) = entry.encode(&GENESIS).unwrap();
    let append = Append {
        key,
        after: 0,
        entry,
        by: NodeId::new("n1").unwrap(),
        ends: true,
    };
    world.bus.journal.append(append).await.unwrap();
    (goal, claim)
}

#[tokio::test]
async fn large_outputs_go_with_their_goals_archive() {
    let world = World::new();
    let (goal, claim) = with_large_output(&world).await;
    let blobs = &world.bus.blobs;
    let handle = world.start().await;
    let tombstone = world.forgotten(goal).await;
    assert!(blobs.get(&claim.digest).await.unwrap().is_some());
    handle.stop().await;

    world.pass(2 * HOUR_MS);
    let handle = world.start().await;
    let gone = async || {
        let body = blobs.get(&tombstone.archive.parts[0]).await.unwrap();
        body.is_none().then_some(())
    };
    until(gone).await;
    assert_eq!(blobs.get(&claim.digest).await.unwrap(), None);
    handle.stop().await;
}

#[tokio::test]
async fn a_large_journal_is_archived_in_parts() {
    let world = World::new();
    let key = key(GoalId::from_bytes([1; 16]));
    let blobs = &*world.bus.blobs;
    let entries: Vec<Vec<u8>> = (0..50u8).map(|n| vec![n; 700 * 1024]).collect();
    let mut writer = Writer::new(blobs, &key);
    for entry in &entries {
        writer.add(entry).await.unwrap();
    }
    let archive = writer.finish().await.unwrap();
    assert_eq!(archive.entries, 50);
    assert_eq!(
        archive.parts.len(),
        50 * 700 * 1024 / ARCHIVE_PART_BYTES + 1
    );
    let mut read: Vec<Vec<u8>> = Vec::new();
    for digest in &archive.parts {
        let part = part(blobs, &key, digest).await.unwrap();
        assert_eq!(part.first, read.len() as u64 + 1);
        read.extend(part.entries.into_iter().map(|entry| entry.into_vec()));
    }
    assert_eq!(read, entries);
}

#[test]
fn what_does_not_fit_into_memory_is_looked_for_once_there_is_room() {
    let waiting = Waiting::default();
    let goal = |n: usize| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&n.to_be_bytes());
        key(GoalId::from_bytes(id))
    };
    for n in 0..=WAITING_MAX {
        waiting.add(n as u64, goal(n));
    }
    assert!(!waiting.missed(), "there is no room yet");
    assert_eq!(waiting.next_ms(), Some(0));
    let mut taken = Vec::new();
    while taken.len() < WAITING_MAX {
        let some = waiting.take(u64::MAX);
        assert!((1..=AT_ONCE).contains(&some.len()));
        taken.extend(some);
    }
    // The last one was due the latest.
    assert_eq!(taken.last(), Some(&goal(WAITING_MAX - 1)));
    assert!(waiting.missed());
    assert!(!waiting.missed(), "told once");
}
