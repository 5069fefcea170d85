//! A node in a process of its own, on servers in processes of their own.

use super::{Results, Setup, fresh, goal, report};
use detent_bus::nats::server::{
    ClusterOptions, PrivateServer, ServerOptions, find_server, free_ports,
};
use detent_bus::nats::{NatsBus, NatsOptions};
use detent_bus::{Messages, call};
use detent_protocol::goal::Accepted;
use detent_protocol::subject;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is run.
pub(crate) struct Run {
    pub(crate) name: &'static str,
    pub(crate) servers: usize,
    pub(crate) secs: u64,
    pub(crate) w2: bool,
    pub(crate) audit: bool,
}

struct Place {
    dir: PathBuf,
    servers: Vec<PrivateServer>,
    url: String,
}

impl Place {
    async fn start(name: &str, count: usize) -> Self {
        let dir = fresh(name);
        let program = find_server(None).unwrap_or_else(|f| panic!("{f}"));
        let ports = free_ports(2 * count).unwrap_or_else(|f| panic!("{f}"));
        let routes: Vec<u16> = ports[count..].to_vec();
        let mut servers = Vec::new();
        for n in 0..count {
            let mut options = ServerOptions::new(&program, dir.join(format!("server-{n}")));
            options.name = format!("s{n}");
            options.port = ports[n];
            // One server has no group commit: it would measure the disk alone.
            options.sync_always = count > 1;
            options.cluster = (count > 1).then(|| ClusterOptions {
                name: "bench".into(),
                port: routes[n],
                routes: routes.clone(),
            });
            servers.push(PrivateServer::spawn(options).unwrap_or_else(|f| panic!("{f}")));
        }
        for server in &mut servers {
            let ready = server.wait_ready(Duration::from_secs(60)).await;
            ready.unwrap_or_else(|f| panic!("{f}"));
        }
        let urls: Vec<_> = servers.iter().map(PrivateServer::url).collect();
        Self {
            dir,
            url: urls.join(","),
            servers,
        }
    }

    fn node(&self, load: &str, replicas: usize) -> NodeProcess {
        let me = std::env::current_exe().expect("own path");
        let mut child = Command::new(me)
            .args(["__node", load, &self.url, &replicas.to_string()])
            .arg(self.dir.join(format!("node-{load}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a node");
        let out = child.stdout.take().expect("its output");
        let mut line = String::new();
        let read = BufReader::new(out).read_line(&mut line);
        assert!(
            read.is_ok() && line.trim() == "ready",
            "the node said {line:?}"
        );
        NodeProcess(child)
    }

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(PrivateServer::pid).collect()
    }

    async fn end(mut self) {
        for server in &mut self.servers {
            server.stop().await;
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct NodeProcess(Child);

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hidden child: a node on the broker, until its input closes.
pub(crate) fn node(args: &[String]) -> i32 {
    let [load, url, replicas, dir] = args else {
        return 2;
    };
    let setup = if load == "w2" {
        Setup::w2()
    } else {
        Setup::w1()
    };
    let dir = Path::new(dir);
    std::fs::create_dir_all(dir).expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let set = [
        format!("nats.url={url}"),
        format!("nats.replicas={replicas}"),
        // Nobody listens: what a follower costs is its own affair.
        "nats.publish_events=false".to_owned(),
    ];
    let node = runtime.block_on(setup.start_with(dir, false, &set));
    println!("ready");
    let mut end = String::new();
    let _ = std::io::stdin().read_line(&mut end);
    runtime.block_on(node.stop());
    0
}

impl Run {
    pub(crate) async fn all(&self) {
        let place = Place::start(self.name, self.servers).await;
        let loads: &[&str] = if self.w2 { &["w1", "w2"] } else { &["w1"] };
        for load in loads {
            let node = place.node(load, self.servers);
            let options = NatsOptions::new(&place.url, "bench");
            let messages = NatsBus::messages(options).await;
            let messages = messages.unwrap_or_else(|f| panic!("{f}"));
            let results = Results::listen_on(&*messages).await;
            let client = Client { messages, results };
            client.phase(8, Duration::from_secs(1), 0).await;
            for lanes in [1, 16, 256] {
                let before = (cpu(&place.pids()), cpu(&[node.0.id()]), report::cpu());
                let begin = Instant::now();
                let min = if lanes >= 64 { 2 * lanes as u64 } else { 0 };
                let latencies = client
                    .phase(lanes, Duration::from_secs(self.secs), min)
                    .await;
                let took = begin.elapsed();
                let own = report::cpu() - before.2;
                let split = [
                    cpu(&place.pids()) - before.0,
                    cpu(&[node.0.id()]) - before.1,
                    own,
                ];
                let figures = report::Figures::new(lanes, took, latencies, split.iter().sum());
                figures.print_split(&format!("{load} {}", self.name), split);
            }
            if self.audit {
                self.audit(&place, &node, &client).await;
            }
        }
        place.end().await;
    }

    /// Counts the kernel's syncs of servers and node for W1 at 1 and 16 in flight.
    async fn audit(&self, place: &Place, node: &NodeProcess, client: &Client) {
        for lanes in [1, 16] {
            let log = place.dir.join("strace.txt");
            let mut strace = Command::new("strace");
            let calls = "trace=fsync,fdatasync,sync_file_range,msync,pwritev2,syncfs,sync";
            strace.args(["-f", "-c", "-e", calls, "-o"]).arg(&log);
            for pid in place.pids().into_iter().chain([node.0.id()]) {
                strace.args(["-p", &pid.to_string()]);
            }
            let Ok(mut strace) = strace.stderr(Stdio::null()).spawn() else {
                println!("audit: strace is not installed; syncs were not counted");
                return;
            };
            tokio::time::sleep(Duration::from_secs(1)).await;
            let goals = client.phase(lanes, Duration::from_secs(2), 0).await.len();
            let pid = rustix::process::Pid::from_child(&strace);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            let _ = strace.wait();
            let table = std::fs::read_to_string(&log).unwrap_or_default();
            print!("audit: w1 {}, {lanes} in flight, {goals} goals:", self.name);
            for line in table.lines() {
                let fields: Vec<_> = line.split_whitespace().collect();
                let name = fields.last().copied().unwrap_or_default();
                if calls.contains(name) && name.len() > 3 && fields.len() > 3 {
                    let count: f64 = fields[3].parse().unwrap_or(0.0);
                    print!(
                        "  {name} {count} ({:.1} a goal)",
                        count / goals.max(1) as f64
                    );
                }
            }
            println!();
        }
    }
}

/// User and system time of processes, seconds.
fn cpu(pids: &[u32]) -> f64 {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let of = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name may hold anything; the numbers come after its last bracket.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<_> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok());
        (number(11).unwrap_or(0.0) + number(12).unwrap_or(0.0)) / ticks
    };
    pids.iter().map(of).sum()
}

struct Client {
    messages: Arc<dyn Messages>,
    results: Arc<Results>,
}

impl Client {
    async fn phase(&self, lanes: usize, time: Duration, min: u64) -> Vec<Duration> {
        let begin = Instant::now();
        let count = Arc::new(AtomicU64::new(0));
        let lane = || {
            let (messages, results) = (self.messages.clone(), self.results.clone());
            let count = count.clone();
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let n = count.fetch_add(1, Ordering::Relaxed);
                    if begin.elapsed() >= time && n >= min {
                        return latencies;
                    }
                    let start = Instant::now();
                    let submit = goal(n);
                    let to = subject::submit(&submit.tenant, &submit.agent);
                    let wait = Duration::from_secs(30);
                    let accepted = call::<_, Accepted>(&*messages, &to, &submit, wait).await;
                    let accepted = accepted.unwrap_or_else(|f| panic!("{f}"));
                    assert!(results.of(accepted.goal).await, "goal {n} did not succeed");
                    latencies.push(start.elapsed());
                }
            })
        };
        let lanes: Vec<_> = (0..lanes).map(|_| lane()).collect();
        let mut all = Vec::new();
        for lane in lanes {
            all.extend(lane.await.expect("a lane"));
        }
        all
    }
}

/// W1 of the peers, by their own bench: a folder with `bench.py`, run by the Python of
/// `$PEERS_LAB/venv`.
pub(crate) fn peers(dir: &Path, secs: u64) {
    let lab = std::env::var("PEERS_LAB").unwrap_or_else(|_| {
        let home = std::env::var("HOME").unwrap_or_default();
        format!("{home}/.cache/peers-lab")
    });
    for peer in ["restate-ts", "temporal-tuned-py"] {
        let run = Command::new(format!("{lab}/venv/bin/python"))
            .args(["bench.py", peer, "w1", "--secs", &secs.to_string()])
            .env("PEERS_LAB", &lab)
            .current_dir(dir)
            .output();
        match run {
            Ok(run) => println!("{peer}: {}", String::from_utf8_lossy(&run.stdout).trim()),
            Err(error) => println!("{peer}: not run: {error}"),
        }
    }
}
