//! The observer's life on a bus: its bounds, its end, its supervisor, its settings.

use crate::support::{PATIENCE, Place, World, all_probes, is_unavailable, node, open_bus};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::BusError;
use detent_bus::env::SystemEnv;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_observer::{Look, Observer, ObserverError, ObserverOptions, Probe, ProbeContext};
use detent_protocol::expect::{Observation, Verdict};
use detent_protocol::messages::Observe;
use detent_protocol::{Fault, TenantId, envelope, subject};
use detent_store::{Store, StoreOptions};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

fn exists() -> Value {
    json!({"properties": {"exists": {"const": true}}, "required": ["exists"]})
}

/// Waits for a sign before it looks, or panics if it is told to.
struct Gate {
    /// Has a permit for each look that has begun.
    entered: Semaphore,
    open: Notify,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            entered: Semaphore::new(0),
            open: Notify::new(),
        })
    }
}

#[async_trait]
impl Probe for Gate {
    fn kind(&self) -> &str {
        "gate"
    }
    async fn look(&self, params: &Value, _cx: &ProbeContext) -> Result<Look, Fault> {
        assert!(params["panic"] != true, "as it was told");
        self.entered.add_permits(1);
        self.open.notified().await;
        Ok(Look::new("gate", json!({"exists": true})))
    }
}

async fn gated(concurrency_max: usize, queue_max: usize) -> (Arc<World>, Arc<Gate>) {
    let place = Place::new();
    let options = ObserverOptions {
        concurrency_max,
        queue_max,
        ..place.options()
    };
    let gate = Gate::new();
    let probe: Arc<dyn Probe> = gate.clone();
    let world = World::start_with(place, options, vec![probe]).await;
    (Arc::new(world), gate)
}

fn ask_gate(world: &Arc<World>) -> tokio::task::JoinHandle<Observation> {
    let world = Arc::clone(world);
    tokio::spawn(async move { world.send(world.ask("gate", json!({}), exists())).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_panics_could_not_look() {
    let (world, gate) = gated(1, 0).await;
    let verdict = world
        .verdict("gate", json!({"panic": true}), exists())
        .await;
    assert!(is_unavailable(&verdict), "{verdict:?}");
    // And the next look is served as if nothing had been.
    let next = ask_gate(&world);
    gate.open.notify_one();
    assert_eq!(next.await.unwrap().verdict, Verdict::Met);
    Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_beyond_the_bound_wait_and_beyond_the_queue_are_refused() {
    let (world, gate) = gated(1, 0).await;
    let first = ask_gate(&world);
    gate.entered.acquire().await.unwrap().forget();
    let ask = envelope::seal(&world.ask("gate", json!({}), exists())).unwrap();
    let subject = subject::observe("gate", &node());
    let second = world.bus.messages.request(&subject, ask, PATIENCE).await;
    assert!(matches!(second, Err(BusError::Busy(_))), "{second:?}");
    assert_eq!(world.observer.stats().in_flight, 1);
    gate.open.notify_one();
    assert_eq!(first.await.unwrap().verdict, Verdict::Met);
    Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_observer_finishes_its_looks_and_takes_no_more() {
    let place = Place::new();
    let (bus, store) = open_bus(place.root());
    let gate = Gate::new();
    let probe: Arc<dyn Probe> = gate.clone();
    let env = Arc::new(SystemEnv);
    let observer = Observer::spawn(place.options(), bus.clone(), vec![probe], env, None);
    let observer = observer.await.unwrap();
    let ask = Observe {
        tenant: TenantId::default(),
        goal: place.goal,
        step: "s1".parse().unwrap(),
        probe: "gate".into(),
        params: json!({}),
        claims: vec![],
        schema: exists(),
        absent: None,
        output_at: None,
    };
    let payload = envelope::seal(&ask).unwrap();
    let subject = subject::observe("gate", &node());
    let going_on = tokio::spawn({
        let (bus, subject, payload) = (bus.clone(), subject.clone(), payload.clone());
        async move { bus.messages.request(&subject, payload, PATIENCE).await }
    });
    gate.entered.acquire().await.unwrap().forget();
    observer.stop().await;
    let refused = bus.messages.request(&subject, payload, PATIENCE).await;
    assert!(
        matches!(refused, Err(BusError::NoResponders(_))),
        "{refused:?}"
    );
    gate.open.notify_one();
    let answer = going_on.await.unwrap().unwrap();
    let answer: Observation = envelope::read_reply(&answer).unwrap();
    assert_eq!(answer.verdict, Verdict::Met);
    drop(bus);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_outside_their_range_are_refused() {
    let place = Place::new();
    let (bus, store) = open_bus(place.root());
    let two: Vec<Arc<dyn Probe>> = vec![Gate::new(), Gate::new()];
    let file = place.write("file", "");
    let change = |f: fn(&mut ObserverOptions)| {
        let mut options = place.options();
        f(&mut options);
        options
    };
    let mut below_a_file = place.options();
    below_a_file.work_root = file.join("work");
    for (options, probes) in [
        (change(|o| o.timeout_ms = 0), vec![]),
        (change(|o| o.timeout_ms = 60_001), vec![]),
        (change(|o| o.concurrency_max = 0), vec![]),
        (place.options(), two),
        (below_a_file, vec![]),
    ] {
        let env = Arc::new(SystemEnv);
        let error = Observer::spawn(options, bus.clone(), probes, env, None).await;
        let error = error.unwrap_err();
        assert!(
            matches!(
                error,
                ObserverError::Options { .. } | ObserverError::Directory { .. }
            ),
            "{error:?}"
        );
    }
    drop(bus);
    store.close().await.unwrap();
}

/// A supervisor that lives until it is stopped.
struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();
    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_ends_with_its_supervisor() {
    let place = Place::new();
    let (bus, store) = open_bus(place.root());
    let (supervisor, _) = Actor::spawn(None, Supervisor, ()).await.unwrap();
    let parent = Some(supervisor.get_cell());
    let env = Arc::new(SystemEnv);
    let observer = Observer::spawn(place.options(), bus.clone(), all_probes(), env, parent);
    let observer = observer.await.unwrap();
    supervisor.stop(None);
    observer.cell().wait(Some(PATIENCE)).await.unwrap();
    observer.stop().await;
    let subject = subject::observe("file", &node());
    let request = bus.messages.request(&subject, Bytes::new(), PATIENCE).await;
    assert!(
        matches!(request, Err(BusError::NoResponders(_))),
        "{request:?}"
    );
    drop(bus);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_does_not_let_it_serve_is_an_error() {
    let place = Place::new();
    let store = Store::open(StoreOptions::journal(place.root().join("store"))).unwrap();
    let options = LocalOptions {
        services_max: 1,
        ..LocalOptions::new(store.clone(), place.root().join("blobs"))
    };
    let bus = LocalBus::open(options).unwrap();
    let spawn = || {
        let env = Arc::new(SystemEnv);
        Observer::spawn(place.options(), bus.clone(), all_probes(), env, None)
    };
    let first = spawn().await.unwrap();
    let second = spawn().await.unwrap_err();
    assert!(
        matches!(second, ObserverError::Bus(BusError::Busy(_))),
        "{second:?}"
    );
    first.stop().await;
    store.close().await.unwrap();
}
