//! The shell over a real local bus, with a journal that can be made to refuse.

use super::*;
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::env::SystemEnv;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_bus::{Append, AppendError, Forget, Journal, OpenGoal, Stored, call};
use detent_protocol::agent::{Compiled, Definition};
use detent_protocol::goal::{Accepted, Submit};
use detent_protocol::{Code, subject};
use detent_store::{Store, StoreOptions};
use serde_json::json;
use std::time::Instant;

/// Far more than anything here takes, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A journal that takes each goal's first entry, and more once it is told to.
struct Stubborn {
    inner: Arc<dyn Journal>,
    yields: AtomicBool,
    refused: AtomicUsize,
}

#[async_trait]
impl Journal for Stubborn {
    async fn append(&self, append: Append) -> Result<u64, AppendError> {
        if append.after > 0 && !self.yields.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let fault = Fault::new(Code::InputTooLarge, "no entry is small enough");
            return Err(AppendError::Refused(fault));
        }
        self.inner.append(append).await
    }
    async fn read(&self, key: &GoalKey, after: u64, max: usize) -> Result<Vec<Stored>, Fault> {
        self.inner.read(key, after, max).await
    }
    async fn forget(&self, forget: Forget) -> Result<u64, AppendError> {
        self.inner.forget(forget).await
    }
    async fn tail(&self, key: &GoalKey) -> Result<Option<Stored>, Fault> {
        self.inner.tail(key).await
    }
    async fn open_goals(
        &self,
        shard: u16,
        after: Option<&GoalKey>,
        limit: usize,
    ) -> Result<Vec<OpenGoal>, Fault> {
        self.inner.open_goals(shard, after, limit).await
    }
    async fn goals(
        &self,
        tenant: &TenantId,
        after: Option<&GoalId>,
        limit: usize,
    ) -> Result<Vec<GoalKey>, Fault> {
        self.inner.goals(tenant, after, limit).await
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Hooks for Heard {
    fn alert(&self, kind: &str, _text: &str) {
        self.0.lock().unwrap().push(kind.to_owned());
    }
}

struct World {
    bus: Bus,
    journal: Arc<Stubborn>,
    heard: Arc<Heard>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::journal(dir.path().join("store"))).unwrap();
        let bus = LocalBus::open(LocalOptions::new(store, dir.path().join("blobs"))).unwrap();
        let journal = Arc::new(Stubborn {
            inner: bus.journal.clone(),
            yields: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
        });
        Self {
            bus: Bus {
                journal: journal.clone(),
                ..bus
            },
            journal,
            heard: Arc::default(),
            _dir: dir,
        }
    }

    fn options() -> Options {
        Options {
            scan_every_ms: 20,
            ..Options::new(NodeId::new("n1").unwrap())
        }
    }
}

/// An agent whose only planner is one that is not there.
fn agent() -> Compiled {
    let agent = json!({"name": "a", "tools": [], "reasoners": ["gone"],
        "input_schema": true, "result_schema": true});
    let definition = json!({"agent": agent, "tools": {}});
    Compiled::compile(serde_json::from_value::<Definition>(definition).unwrap()).unwrap()
}

async fn until(mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_goal_that_can_not_even_be_closed_is_told_and_taken_up_again() {
    let world = World::new();
    let handle = Orchestrator::spawn(
        World::options(),
        world.bus.clone(),
        Arc::new(SystemEnv),
        Definitions::new([agent()], []),
        world.heard.clone(),
        None,
    );
    let handle = handle.await.unwrap();
    let submit: Submit = serde_json::from_value(json!({"agent": "a", "input": {}})).unwrap();
    let subject = subject::submit(&submit.tenant, &submit.agent);
    let accepted: Accepted = call(&*world.bus.messages, &subject, &submit, PATIENCE)
        .await
        .unwrap();
    // The event's entry and the one that closes the goal, then both again.
    let refused = || world.journal.refused.load(Ordering::SeqCst);
    until(|| refused() >= 4).await;
    let alerts = world.heard.0.lock().unwrap().clone();
    assert!(alerts.iter().any(|kind| kind == "journal"), "{alerts:?}");

    world.journal.yields.store(true, Ordering::SeqCst);
    let key = GoalKey {
        tenant: submit.tenant,
        goal: accepted.goal,
    };
    let begin = Instant::now();
    loop {
        let loaded = load(&*world.bus.journal, &key).await.unwrap().unwrap();
        if loaded.state.ended.is_some() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until(|| handle.in_flight() == 0).await;
    handle.stop().await;
}

/// Stands for a goal's actor.
struct Still;

impl Actor for Still {
    type Msg = GoalMsg;
    type State = ();
    type Arguments = ();
    async fn pre_start(&self, _: ActorRef<GoalMsg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

#[tokio::test]
async fn a_goal_whose_actor_can_not_be_started_is_left_to_the_scan() {
    let world = World::new();
    let options = World::options();
    let shared = Arc::new(Shared {
        permits: Arc::new(Semaphore::new(options.goals_in_flight_max)),
        options,
        claims: ClaimCheck::new(world.bus.blobs.clone()),
        bus: world.bus.clone(),
        env: Arc::new(SystemEnv),
        definitions: Definitions::default(),
        hooks: world.heard.clone(),
        goals: Mutex::default(),
        taken: Mutex::default(),
        waiting: retention::Waiting::default(),
        draining: AtomicBool::new(false),
        calls_out: AtomicUsize::new(0),
        // Nobody to start an actor under.
        me: OnceLock::new(),
    });
    let key = GoalKey {
        tenant: TenantId::default(),
        goal: GoalId::from_bytes([1; 16]),
    };
    let (actor, ended) = Actor::spawn(None, Still, ()).await.unwrap();
    let failed = Active {
        actor: actor.clone(),
        progress: watch::channel(0).1,
        controls: Arc::new(Semaphore::new(1)),
        permit: None,
        failures: 1,
    };
    shared.register(&key, failed);
    actor.kill();
    ended.await.unwrap();
    let spawned = shared.spawn_goal(key, Start::Recover, None).await;
    assert!(spawned.is_err());
    assert_eq!(shared.with_goals(|g| g.len()), 0);
}

#[test]
fn an_entry_that_no_reader_could_take_is_not_written() {
    let entry = |levels: usize| {
        let deep = (1..levels).fold(json!(1), |inner, _| json!([inner]));
        let said = Said::Known(Body::Amended {
            patch: deep,
            by: "me".into(),
        });
        let entry = detent_protocol::journal::Entry {
            tenant: TenantId::default(),
            goal: GoalId::from_bytes([1; 16]),
            epoch: 1,
            at_ms: 1,
            at_error_ms: 0,
            records: vec![Record {
                n: 1,
                cause: "amend".into(),
                said,
            }],
        };
        let (bytes, _): (Bytes, _) = entry.encode(&detent_protocol::journal::GENESIS).unwrap();
        append::legible(&bytes)
    };
    assert_eq!(entry(32), Ok(()));
    assert_eq!(entry(200).unwrap_err().code, Code::InternalLogicError);
}
