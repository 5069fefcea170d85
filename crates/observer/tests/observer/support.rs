//! What the tests share: a place with the three directories, and an observer on a bus.

use detent_bus::env::SystemEnv;
use detent_bus::local::{LocalBus, LocalOptions};
use detent_bus::{Bus, call};
use detent_observer::probes::{self, ProcessProbeOptions};
use detent_observer::{Look, Observer, ObserverHandle, ObserverOptions, Probe, ProbeContext};
use detent_protocol::expect::{Observation, Verdict, absent_schema};
use detent_protocol::messages::Observe;
use detent_protocol::{Code, Fault, GoalId, NodeId, TenantId, subject};
use detent_sandbox::{KeeperCommand, TreeConfine};
use detent_store::{Store, StoreOptions};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Far more than anything here takes, also on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The three directories of a node, and a goal that has worked.
pub(crate) struct Place {
    dir: TempDir,
    pub(crate) goal: GoalId,
}

/// The node that the observers are on.
pub(crate) fn node() -> NodeId {
    NodeId::new("n1").unwrap()
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
            goal: GoalId::from_bytes([7; 16]),
        };
        for dir in [place.work_dir(), place.config_dir(), place.data_dir()] {
            std::fs::create_dir_all(dir).unwrap();
        }
        place
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }
    pub(crate) fn work_dir(&self) -> PathBuf {
        self.root().join("work").join(self.goal.to_string())
    }
    pub(crate) fn config_dir(&self) -> PathBuf {
        self.root().join("config")
    }
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.root().join("data")
    }

    /// Writes a file of the goal.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work_dir().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn cx(&self, timeout_ms: u64) -> ProbeContext {
        ProbeContext {
            goal: self.goal,
            step: "s1".parse().unwrap(),
            work_dir: self.work_dir(),
            config_dir: self.config_dir(),
            data_dir: self.data_dir(),
            timeout_ms,
        }
    }

    pub(crate) fn options(&self) -> ObserverOptions {
        let work_root = self.root().join("work");
        ObserverOptions {
            timeout_ms: 60_000,
            ..ObserverOptions::new(node(), work_root, self.config_dir(), self.data_dir())
        }
    }

    /// Looks with plenty of time.
    pub(crate) async fn look(&self, probe: &dyn Probe, params: Value) -> Look {
        probe.look(&params, &self.cx(60_000)).await.unwrap()
    }

    /// Looks where it can't; gives why.
    pub(crate) async fn fail(&self, probe: &dyn Probe, params: Value, timeout_ms: u64) -> Fault {
        let fault = probe.look(&params, &self.cx(timeout_ms)).await.unwrap_err();
        assert_eq!(fault.code, Code::ObservationUnavailable);
        fault
    }
}

/// An observer with all probes on a local bus.
pub(crate) struct World {
    pub(crate) place: Place,
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) observer: ObserverHandle,
}

impl World {
    pub(crate) async fn start() -> Self {
        let place = Place::new();
        let options = place.options();
        Self::start_with(place, options, all_probes()).await
    }

    pub(crate) async fn start_with(
        place: Place,
        options: ObserverOptions,
        probes: Vec<Arc<dyn Probe>>,
    ) -> Self {
        let (bus, store) = open_bus(place.root());
        let observer = Observer::spawn(options, bus.clone(), probes, Arc::new(SystemEnv), None);
        let observer = observer.await.unwrap();
        Self {
            place,
            bus,
            store,
            observer,
        }
    }

    pub(crate) fn ask(&self, probe: &str, params: Value, schema: Value) -> Observe {
        Observe {
            tenant: TenantId::default(),
            goal: self.place.goal,
            step: "s1".parse().unwrap(),
            probe: probe.into(),
            params,
            claims: vec![],
            schema,
            absent: absent_schema(probe),
            output_at: None,
        }
    }

    pub(crate) async fn send(&self, ask: Observe) -> Observation {
        let messages = &*self.bus.messages;
        let subject = subject::observe(&ask.probe, &node());
        call(messages, &subject, &ask, PATIENCE).await.unwrap()
    }

    pub(crate) async fn verdict(&self, probe: &str, params: Value, schema: Value) -> Verdict {
        self.send(self.ask(probe, params, schema)).await.verdict
    }

    /// Stops everything, in order.
    pub(crate) async fn stop(self) {
        self.observer.stop().await;
        drop(self.bus);
        self.store.close().await.unwrap();
    }
}

pub(crate) fn open_bus(dir: &Path) -> (Bus, Store) {
    let store = Store::open(StoreOptions::journal(dir.join("store"))).unwrap();
    let options = LocalOptions::new(store.clone(), dir.join("blobs"));
    (LocalBus::open(options).unwrap(), store)
}

pub(crate) fn all_probes() -> Vec<Arc<dyn Probe>> {
    let owner = ProcessProbeOptions::new(format!("observer-test-{}", std::process::id()));
    probes::all(Arc::new(confine()), owner).unwrap()
}

/// Confines by the keeper that is built with these tests.
pub(crate) fn confine() -> TreeConfine {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let program = target.join("examples").join("probe-keeper");
    assert!(
        program.exists(),
        "not built: `cargo build -p detent-observer --examples`"
    );
    TreeConfine::new(KeeperCommand {
        program,
        args: vec![],
    })
}

pub(crate) fn is_unavailable(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Unavailable { fault } if fault.code == Code::ObservationUnavailable)
}
