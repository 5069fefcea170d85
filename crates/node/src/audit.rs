//! The audit log: one JSON line for each transition, rotated by size.
//!
//! Derived from the journal, never the source of truth. A writer thread takes records
//! from a bounded queue; what does not fit is counted, and the count stands in the log
//! itself: nothing is dropped in silence.

use detent_orchestrator::Transition;
use detent_protocol::audit::AuditRecord;
use detent_protocol::redact::Redactor;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// How the log is written.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// The file.
    pub file: PathBuf,
    /// Size at which it is rotated, bytes.
    pub rotate_bytes: u64,
    /// Rotated files that are kept, as `FILE.1` (the newest) to `FILE.N`.
    pub files_max: u64,
    /// Records that wait.
    pub queue_max: usize,
    /// Masks secrets.
    pub redactor: Redactor,
}

enum Line {
    Transition(Box<Transition>, SystemTime),
    Flush(SyncSender<()>),
}

/// A running writer. Cheap to clone; the thread ends with the last clone.
#[derive(Clone)]
pub struct Audit {
    queue: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Opens the file (appending) and starts the writer.
    pub fn start(options: AuditOptions) -> io::Result<Self> {
        let (queue, lines) = sync_channel(options.queue_max);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            file: open(&options.file)?,
            bytes: std::fs::metadata(&options.file)?.len(),
            usage: Usage::default(),
            lost: lost.clone(),
            told: 0,
            options,
        };
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || writer.run(&lines))?;
        Ok(Self { queue, lost })
    }

    /// Writes a transition, soon. Never waits.
    pub fn record(&self, transition: Transition) {
        let line = Line::Transition(Box::new(transition), SystemTime::now());
        if let Err(TrySendError::Full(_)) = self.queue.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that did not fit into the queue so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until what was recorded so far is in the file, at most two seconds.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Line::Flush(done)).is_ok() {
            // A writer that is stuck on a full disk must not keep the node from ending.
            let _ = wait.recv_timeout(Duration::from_secs(2));
        }
    }
}

fn open(path: &Path) -> io::Result<BufWriter<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(BufWriter::with_capacity(64 << 10, file))
}

/// How long lines gather before they are written.
const GATHER: Duration = Duration::from_millis(5);

struct Writer {
    options: AuditOptions,
    file: BufWriter<File>,
    bytes: u64,
    usage: Usage,
    lost: Arc<AtomicU64>,
    told: u64,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Line>) {
        loop {
            // Whatever waits is written in one go; then the file is brought up to date.
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(_) => {
                    self.report(|w| w.file.flush());
                    // Under load lines gather here for a moment: waking the writer for
                    // each would cost the goals more than the line itself.
                    std::thread::sleep(GATHER);
                    match lines.recv() {
                        Ok(line) => line,
                        Err(_) => return,
                    }
                }
            };
            match line {
                Line::Transition(t, at) => self.report(|w| w.write(&t, at)),
                Line::Flush(done) => {
                    self.report(|w| w.file.flush());
                    let _ = done.send(());
                }
            }
        }
    }

    /// The log is a view: an error is told, and the node goes on.
    fn report(&mut self, f: impl FnOnce(&mut Self) -> io::Result<()>) {
        if let Err(error) = f(self) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, file = %self.options.file.display(), "audit log not written");
        }
    }

    fn write(&mut self, t: &Transition, at: SystemTime) -> io::Result<()> {
        let (cpu_ms, memory_bytes) = self.usage.now();
        let record = AuditRecord {
            time: rfc3339(at),
            tenant: t.tenant.clone(),
            goal: t.goal,
            epoch: t.epoch,
            n: t.n,
            state: t.phase,
            event: t.event.to_owned(),
            records: t.records.iter().map(ToString::to_string).collect(),
            duration_us: u64::try_from(t.duration.as_micros()).unwrap_or(u64::MAX),
            turn_us: u64::try_from(t.turn.as_micros()).unwrap_or(u64::MAX),
            cpu_ms,
            memory_bytes,
            reason: self.options.redactor.text(&t.reason),
        };
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        self.tell_lost()?;
        self.put(&line)
    }

    fn tell_lost(&mut self) -> io::Result<()> {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost == self.told {
            return Ok(());
        }
        let more = lost - self.told;
        self.told = lost;
        let time = rfc3339(SystemTime::now());
        let line = serde_json::json!({"time": time, "event": "audit_records_lost", "lost": more});
        self.put(format!("{line}\n").as_bytes())
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes + line.len() as u64 > self.options.rotate_bytes && self.bytes > 0 {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let base = self.options.file.display().to_string();
        for i in (1..self.options.files_max).rev() {
            let from = format!("{base}.{i}");
            if Path::new(&from).exists() {
                std::fs::rename(from, format!("{base}.{}", i + 1))?;
            }
        }
        std::fs::rename(&base, format!("{base}.1"))?;
        self.file = open(&self.options.file)?;
        self.bytes = 0;
        Ok(())
    }
}

fn rfc3339(at: SystemTime) -> String {
    let at = jiff::Timestamp::try_from(at).unwrap_or_default();
    format!("{at:.3}")
}

/// CPU time and memory of the process, read at most ten times a second: reading them
/// for each line would cost more than the line.
#[derive(Default)]
struct Usage {
    read: Option<Instant>,
    cpu_ms: u64,
    memory_bytes: u64,
}

impl Usage {
    fn now(&mut self) -> (u64, u64) {
        let fresh = |at: Instant| at.elapsed() < Duration::from_millis(100);
        if !self.read.is_some_and(fresh) {
            self.read = Some(Instant::now());
            (self.cpu_ms, self.memory_bytes) = process_usage();
        }
        (self.cpu_ms, self.memory_bytes)
    }
}

/// CPU time (user and system, milliseconds) and resident memory (bytes) of this
/// process, as `/proc` gives them; zeros where it can't be read.
pub fn process_usage() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields are counted after the command's name, which may hold spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |n: usize| -> u64 {
        let field = fields.split_ascii_whitespace().nth(n);
        field.and_then(|f| f.parse().ok()).unwrap_or(0)
    };
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    ((field(11) + field(12)) * 1000 / ticks, field(21) * page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use detent_protocol::messages::Phase;
    use detent_protocol::{GoalId, TenantId};

    fn transition(n: u64, reason: &str) -> Transition {
        Transition {
            tenant: TenantId::default(),
            goal: GoalId::from_bytes([1; 16]),
            epoch: 1,
            n,
            phase: Phase::Executing,
            event: "tool_completed",
            records: vec!["outcome"],
            duration: Duration::from_micros(5),
            turn: Duration::from_micros(3),
            reason: reason.to_owned(),
        }
    }

    fn options(dir: &Path, rotate_bytes: u64) -> AuditOptions {
        AuditOptions {
            file: dir.join("audit.log"),
            rotate_bytes,
            files_max: 3,
            queue_max: 10_000,
            redactor: Redactor::new(["top-secret".to_owned()]),
        }
    }

    #[test]
    fn lines_are_json_and_hold_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::start(options(dir.path(), 1 << 20)).unwrap();
        audit.record(transition(1, "tool said top-secret"));
        audit.flush();
        let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
        let record: AuditRecord = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(record.reason, "tool said [redacted]");
        assert!(record.time.ends_with('Z') && record.memory_bytes > 0);
    }

    #[test]
    fn rotation_keeps_so_many_files_and_no_line_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::start(options(dir.path(), 2_000)).unwrap();
        for n in 1..=100 {
            audit.record(transition(n, ""));
        }
        audit.flush();
        let mut seen = Vec::new();
        for name in ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"] {
            let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert!(text.len() <= 2_000);
            seen.extend(
                text.lines()
                    .map(|l| serde_json::from_str::<AuditRecord>(l).unwrap().n),
            );
        }
        assert!(!dir.path().join("audit.log.4").exists());
        assert!(seen.contains(&100) && audit.lost() == 0);
    }

    #[test]
    fn usage_is_read() {
        let (_, memory) = process_usage();
        assert!(memory > 100_000);
    }
}
