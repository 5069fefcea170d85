//! Figures and how they are printed.

use std::time::Duration;

/// What one run gave.
pub(crate) struct Figures {
    pub(crate) goals: usize,
    lanes: usize,
    took: Duration,
    latencies: Vec<Duration>,
    cpu: f64,
    syncs: u64,
}

/// User and system time of this process, seconds.
pub(crate) fn cpu() -> f64 {
    detent_node::audit::process_usage().0 as f64 / 1000.0
}

/// Resident memory of this process, bytes.
pub(crate) fn memory() -> u64 {
    detent_node::audit::process_usage().1
}

pub(crate) fn head() {
    println!(
        "{:<8} {:>6} {:>8} {:>9} {:>9} {:>9} {:>12} {:>12}",
        "load", "lanes", "goals", "goals/s", "p50 ms", "p99 ms", "CPU s/1000", "syncs/goal"
    );
}

/// The head where CPU is told apart.
pub(crate) fn head_split() {
    println!(
        "{:<8} {:>6} {:>8} {:>9} {:>9} {:>9}   CPU s/1000 goals: {:>7} {:>7} {:>7} {:>7}",
        "load", "lanes", "goals", "goals/s", "p50 ms", "p99 ms", "all", "servers", "node", "client"
    );
}

impl Figures {
    pub(crate) fn new(
        lanes: usize,
        took: Duration,
        mut latencies: Vec<Duration>,
        cpu: f64,
    ) -> Self {
        latencies.sort_unstable();
        Self {
            goals: latencies.len(),
            lanes,
            took,
            latencies,
            cpu,
            syncs: 0,
        }
    }

    /// Adds the store's own count of syncs.
    pub(crate) fn synced(mut self, syncs: u64) -> Self {
        self.syncs = syncs;
        self
    }

    /// Goals a second.
    pub(crate) fn rate(&self) -> f64 {
        self.goals as f64 / self.took.as_secs_f64()
    }

    fn quantile_ms(&self, q: f64) -> f64 {
        let at = (self.latencies.len() as f64 * q) as usize;
        let at = at.min(self.latencies.len().saturating_sub(1));
        self.latencies
            .get(at)
            .map_or(0.0, |d| d.as_secs_f64() * 1000.0)
    }

    /// Prints CPU of servers, node and client apart.
    pub(crate) fn print_split(&self, load: &str, [servers, node, client]: [f64; 3]) {
        let n = self.goals.max(1) as f64;
        let each = |cpu: f64| cpu / n * 1000.0;
        println!(
            "{load:<8} {:>6} {:>8} {:>9.0} {:>9.2} {:>9.2}   {:>25.2} {:>7.2} {:>7.2} {:>7.2}",
            self.lanes,
            self.goals,
            n / self.took.as_secs_f64(),
            self.quantile_ms(0.5),
            self.quantile_ms(0.99),
            each(self.cpu),
            each(servers),
            each(node),
            each(client)
        );
    }

    pub(crate) fn print(&self, load: &str) {
        let n = self.goals.max(1) as f64;
        println!(
            "{load:<8} {:>6} {:>8} {:>9.0} {:>9.2} {:>9.2} {:>12.2} {:>12.2}",
            self.lanes,
            self.goals,
            n / self.took.as_secs_f64(),
            self.quantile_ms(0.5),
            self.quantile_ms(0.99),
            self.cpu / n * 1000.0,
            self.syncs as f64 / n
        );
    }
}
