//! Metrics, in the OpenMetrics text format on `/metrics`.

use detent_protocol::Fault;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// A label with one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Label {
    /// What it is about: a status, a code, an event, an alert's kind.
    pub what: String,
}

impl Label {
    fn of(what: &str) -> Self {
        Self {
            what: what.to_owned(),
        }
    }
}

/// The label of a broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Broken {
    /// Its number, such as `I3`, or [`UNNAMED`].
    pub invariant: String,
}

/// An invariant whose number is not known.
pub const UNNAMED: &str = "unnamed";

/// All metrics of a node. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: std::sync::Arc<Registry>,
    goals_accepted: Counter,
    goals_refused: Family<Label, Counter>,
    goals_ended: Family<Label, Counter>,
    goals_in_flight: Gauge,
    goals_owned_elsewhere: Gauge,
    goals_forgotten: Counter,
    archive_bytes: Counter,
    retention_failures: Family<Label, Counter>,
    goal_seconds: Histogram,
    transitions: Family<Label, Counter>,
    turn_seconds: Histogram,
    append_seconds: Histogram,
    alerts: Family<Label, Counter>,
    invariant_violations: Family<Broken, Counter>,
    audit_lost: Gauge,
    store_commits: Gauge,
    store_syncs: Gauge,
    process_cpu_seconds: Gauge<f64, std::sync::atomic::AtomicU64>,
    process_memory_bytes: Gauge,
    tools_running: Gauge,
    ready: Gauge,
}

/// Values that are read when somebody asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sampled {
    /// Audit records lost.
    pub audit_lost: u64,
    /// Commits of the store.
    pub store_commits: u64,
    /// Syncs of the store to the disk.
    pub store_syncs: u64,
    /// Tools that run.
    pub tools_running: usize,
    /// Does the node take goals?
    pub ready: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Kinds of alerts.
const ALERTS: [&str; 9] = [
    "actor-failed",
    "internal-logic-error",
    "invariant",
    "journal",
    "replay-mismatch",
    "restart",
    "scan",
    "slow-turn",
    "spawn",
];

fn gauge_of(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Metrics {
    /// Fresh metrics, all zero.
    pub fn new() -> Self {
        // From 10 µs to about 80 s.
        let seconds = || Histogram::new(exponential_buckets(0.000_01, 2.0, 24));
        let mut m = Self {
            registry: std::sync::Arc::default(),
            goals_accepted: Counter::default(),
            goals_refused: Family::default(),
            goals_ended: Family::default(),
            goals_in_flight: Gauge::default(),
            goals_owned_elsewhere: Gauge::default(),
            goals_forgotten: Counter::default(),
            archive_bytes: Counter::default(),
            retention_failures: Family::default(),
            goal_seconds: seconds(),
            transitions: Family::default(),
            turn_seconds: seconds(),
            append_seconds: seconds(),
            alerts: Family::default(),
            invariant_violations: Family::default(),
            audit_lost: Gauge::default(),
            store_commits: Gauge::default(),
            store_syncs: Gauge::default(),
            process_cpu_seconds: Gauge::default(),
            process_memory_bytes: Gauge::default(),
            tools_running: Gauge::default(),
            ready: Gauge::default(),
        };
        let mut r = Registry::default();
        r.register(
            "detent_goals_accepted",
            "Goals taken",
            m.goals_accepted.clone(),
        );
        r.register(
            "detent_goals_refused",
            "Goals refused, by code",
            m.goals_refused.clone(),
        );
        r.register(
            "detent_goals_ended",
            "Goals ended, by status",
            m.goals_ended.clone(),
        );
        r.register(
            "detent_goals_in_flight",
            "Goals in flight",
            m.goals_in_flight.clone(),
        );
        r.register(
            "detent_goals_owned_elsewhere",
            "Open goals that other nodes own, at the last scan",
            m.goals_owned_elsewhere.clone(),
        );
        r.register(
            "detent_goals_forgotten",
            "Goals whose journal was archived and replaced by its tombstone",
            m.goals_forgotten.clone(),
        );
        r.register(
            "detent_archive_bytes",
            "Bytes of archives written",
            m.archive_bytes.clone(),
        );
        r.register(
            "detent_retention_failures",
            "What could not be forgotten or removed and is tried again, by code",
            m.retention_failures.clone(),
        );
        r.register(
            "detent_goal_seconds",
            "From acceptance to the end",
            m.goal_seconds.clone(),
        );
        r.register(
            "detent_transitions",
            "Transitions, by event",
            m.transitions.clone(),
        );
        r.register(
            "detent_turn_seconds",
            "The orchestrator's own part of a transition",
            m.turn_seconds.clone(),
        );
        r.register(
            "detent_append_seconds",
            "From an event to its confirmed append",
            m.append_seconds.clone(),
        );
        r.register(
            "detent_alerts",
            "Alerts for operators, by kind",
            m.alerts.clone(),
        );
        r.register(
            "detent_invariant_violations",
            "Has to stay 0",
            m.invariant_violations.clone(),
        );
        r.register(
            "detent_audit_records_lost",
            "Audit records that were not written",
            m.audit_lost.clone(),
        );
        r.register(
            "detent_store_commits",
            "Commits of the store",
            m.store_commits.clone(),
        );
        r.register(
            "detent_store_syncs",
            "Syncs of the store to the disk",
            m.store_syncs.clone(),
        );
        r.register(
            "detent_process_cpu_seconds",
            "CPU time, user and system",
            m.process_cpu_seconds.clone(),
        );
        r.register(
            "detent_process_memory_bytes",
            "Resident memory",
            m.process_memory_bytes.clone(),
        );
        r.register(
            "detent_tools_running",
            "Tools that run",
            m.tools_running.clone(),
        );
        r.register("detent_ready", "1: the node takes goals", m.ready.clone());
        m.registry = std::sync::Arc::new(r);
        // From the start on, so that a first one is a change and not a new series.
        for kind in ALERTS {
            m.alerts.get_or_create(&Label::of(kind)).inc_by(0);
        }
        m.violations(UNNAMED).inc_by(0);
        for status in ["succeeded", "failed", "cancelled"] {
            m.goals_ended.get_or_create(&Label::of(status)).inc_by(0);
        }
        for code in ["BROKER_UNREACHABLE", "JOURNAL_STORAGE"] {
            m.retention_failures
                .get_or_create(&Label::of(code))
                .inc_by(0);
        }
        m
    }

    /// The text that `/metrics` answers.
    pub fn render(&self, sampled: Sampled) -> String {
        let (cpu_ms, memory) = crate::audit::process_usage();
        self.audit_lost.set(gauge_of(sampled.audit_lost));
        self.store_commits.set(gauge_of(sampled.store_commits));
        self.store_syncs.set(gauge_of(sampled.store_syncs));
        self.tools_running
            .set(gauge_of(sampled.tools_running as u64));
        self.ready.set(i64::from(sampled.ready));
        self.process_memory_bytes.set(gauge_of(memory));
        self.process_cpu_seconds.set(cpu_ms as f64 / 1000.0);
        let mut out = String::new();
        // Writing into a String has no way to fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    pub(crate) fn transition(&self, t: &detent_orchestrator::Transition) {
        self.transitions.get_or_create(&Label::of(t.event)).inc();
        self.turn_seconds.observe(t.turn.as_secs_f64());
        self.append_seconds.observe(t.duration.as_secs_f64());
    }

    pub(crate) fn intake(&self, result: Result<(), &Fault>) {
        match result {
            Ok(()) => {
                self.goals_accepted.inc();
            }
            Err(fault) => {
                self.goals_refused
                    .get_or_create(&Label::of(fault.code.as_str()))
                    .inc();
            }
        }
    }

    pub(crate) fn ended(&self, status: &str, seconds: f64) {
        self.goals_ended.get_or_create(&Label::of(status)).inc();
        self.goal_seconds.observe(seconds);
    }

    pub(crate) fn forgotten(&self, archive_bytes: u64) {
        self.goals_forgotten.inc();
        self.archive_bytes.inc_by(archive_bytes);
    }

    pub(crate) fn retention_failed(&self, fault: &Fault) {
        let code = Label::of(fault.code.as_str());
        self.retention_failures.get_or_create(&code).inc();
    }

    pub(crate) fn owned_elsewhere(&self, goals: usize) {
        self.goals_owned_elsewhere.set(gauge_of(goals as u64));
    }

    pub(crate) fn in_flight(&self, goals: usize) {
        self.goals_in_flight.set(gauge_of(goals as u64));
    }

    fn violations(&self, invariant: &str) -> Counter {
        let invariant = invariant.to_owned();
        let broken = Broken { invariant };
        self.invariant_violations.get_or_create(&broken).clone()
    }

    pub(crate) fn alert(&self, kind: &str) {
        self.alerts.get_or_create(&Label::of(kind)).inc();
        if kind == "invariant" {
            self.violations(UNNAMED).inc();
        }
    }
}
