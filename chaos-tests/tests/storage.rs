//! Storage that fails: a full disk stops the node from taking goals, and nothing else is
//! lost; damage to a stopped node's journal is found before anything is started.

use detent_chaos_tests::chance::{self, Chance};
use detent_chaos_tests::check::{self, Agent};
use detent_chaos_tests::process::{NodeProcess, Start, wait_for, was_killed};
use detent_chaos_tests::site::{Order, Site};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn root(prefix: &str) -> tempfile::TempDir {
    tempfile::Builder::new().prefix(prefix).tempdir().unwrap()
}

/// Starts a node; its process and its HTTP address.
fn up(site: &Site) -> (NodeProcess, String) {
    let mut node = NodeProcess::up(site, None).unwrap();
    match node.wait_line("ready").unwrap() {
        Start::Line(ready) => (node, ready["http"].as_str().unwrap().to_owned()),
        Start::Ended(status, fault) => panic!("the node ended: {status}, {fault:?}"),
    }
}

/// Status and body of a page.
fn get(address: &str, page: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let limit = Some(Duration::from_secs(30));
    stream.set_read_timeout(limit).unwrap();
    write!(
        stream,
        "GET {page} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

fn wait_ended(site: &Site, node: &mut NodeProcess, goals: usize) {
    let ended = wait_for(node, "the end of all goals", || {
        let list = site.list()?;
        let ended = list.iter().filter(|l| l.status.is_some()).count();
        Ok((ended >= goals).then_some(()))
    });
    assert!(ended.unwrap().is_some(), "the node ended");
}

/// Fills the storage under a node that has goals running, until it says so; makes room
/// and starts it again: all goals end well, one row each.
fn survives_full_storage(site: &mut Site, fill: impl FnOnce(), make_room: impl FnOnce(&mut Site)) {
    const GOALS_MAX: u64 = 2_000;
    let (mut node, http) = up(site);
    assert_eq!(get(&http, "/readyz").0, 200);
    let mut orders: Vec<Order> = Vec::new();
    // These are in the middle of a tool when the disk is full.
    for n in 0..4 {
        orders.push(site.order("light", n, 1_000).unwrap());
        assert!(site.submit(&mut orders[n as usize]).unwrap());
    }
    fill();
    let refused = loop {
        let n = orders.len() as u64;
        assert!(n < GOALS_MAX, "the storage never filled up");
        let mut order = site.order("light", n, 0).unwrap();
        let taken = site.submit(&mut order).unwrap();
        orders.push(order);
        if !taken {
            break n;
        }
    };
    // Whatever the first answer was: from now on the node says what is wrong, and is
    // not ready.
    let file = orders[refused as usize].file.display().to_string();
    let said = site.say(&["submit", &file, "--key", "another"]).unwrap();
    assert_eq!(said.fault_code(), Some("JOURNAL_STORAGE"), "{said:?}");
    assert_eq!(said.code, Some(6));
    let (status, body) = get(&http, "/readyz");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("JOURNAL_STORAGE"), "{body}");
    assert!(node.ended().unwrap().is_none(), "the node ended");
    node.kill().unwrap();

    make_room(site);
    let (mut node, _) = up(site);
    for order in &mut orders {
        assert!(site.submit(order).unwrap(), "{}", order.key);
    }
    wait_ended(site, &mut node, orders.len());
    assert!(node.terminate().unwrap().success());
    let found = check::after(site, Agent::Light, &orders).unwrap();
    assert!(found.is_clean(), "{found:?}");
}

/// A small file system that exists for the processes of one mount namespace only; gone
/// with this.
struct SmallDisk {
    holder: Child,
    dir: PathBuf,
}

impl SmallDisk {
    /// `None` where this user may not mount.
    fn mount(dir: &Path) -> Option<Self> {
        let script = "mount -t tmpfs -o size=6m none \"$0\" && echo mounted && exec sleep 600";
        let mut holder = Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take()?)
            .read_line(&mut line)
            .ok()?;
        let disk = Self {
            holder,
            dir: dir.to_owned(),
        };
        (line.trim() == "mounted").then_some(disk)
    }

    fn enter(&self) -> Vec<OsString> {
        let id = self.holder.id().to_string();
        ["nsenter", "-t", &id, "-m", "--"]
            .map(OsString::from)
            .into()
    }

    /// The same file as seen from outside.
    fn seen(&self, name: &str) -> PathBuf {
        let inside = self.dir.strip_prefix("/").unwrap().join(name);
        Path::new("/proc")
            .join(self.holder.id().to_string())
            .join("root")
            .join(inside)
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.seen("filler")).unwrap();
        // Ends with "no space left".
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.seen("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_full_disk_stops_intake_and_loses_nothing() {
    let root = root("detent-full-");
    let mut site = Site::new(root.path()).unwrap();
    let dir = site.root.join("small");
    std::fs::create_dir(&dir).unwrap();
    let Some(disk) = SmallDisk::mount(&dir) else {
        eprintln!("skipped: mounting needs root; the limited file stands for it");
        return;
    };
    site.prefix = disk.enter();
    site.data = dir.join("data");
    survives_full_storage(&mut site, || disk.fill(), |_| disk.make_room());
}

#[test]
fn a_file_that_may_not_grow_stops_intake_and_loses_nothing() {
    let root = root("detent-limit-");
    let mut site = Site::new(root.path()).unwrap();
    // In blocks of 512 bytes; the tools' own files are far smaller.
    let script = "trap '' XFSZ; ulimit -f 800; exec \"$@\"";
    site.prefix = ["sh", "-c", script, "sh"].map(OsString::from).into();
    survives_full_storage(&mut site, || (), |site| site.prefix.clear());
}

/// A copy of the files of a folder.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A stopped node with goals that ended and goals that did not.
fn stopped_in_the_middle(site: &Site) -> Vec<Order> {
    let mut node = NodeProcess::up_ready(site).unwrap();
    let mut orders: Vec<_> = (0..6).map(|n| site.order("light", n, 0).unwrap()).collect();
    for order in &mut orders {
        assert!(site.submit(order).unwrap());
    }
    wait_ended(site, &mut node, orders.len());
    for n in 6..8 {
        let mut order = site.order("light", n, 3_000).unwrap();
        assert!(site.submit(&mut order).unwrap());
        orders.push(order);
    }
    let log = site.home.join("starts.log");
    let runs = wait_for(&mut node, "the start of the last tools", || {
        Ok((check::started(&log)?.len() == 8).then_some(()))
    });
    assert!(runs.unwrap().is_some(), "the node ended");
    assert!(was_killed(node.kill().unwrap()));
    orders
}

/// Turns a byte of the journal's data or witness; says which.
fn damage(site: &Site, chance: &mut Chance) -> String {
    let store = site.data.join("store");
    let name = if chance.between(0, 3) == 0 {
        "WITNESS"
    } else {
        "db"
    };
    let path = store.join(name);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    // The store keeps room ahead of its data: zeros say nothing and are no target.
    let last = file.metadata().unwrap().len() - 1;
    let (mut at, mut byte) = (0, [0]);
    for _ in 0..10_000 {
        at = chance.between(0, last);
        file.read_exact_at(&mut byte, at).unwrap();
        if byte[0] != 0 {
            break;
        }
    }
    byte[0] ^= 1 << chance.between(0, 7);
    file.write_all_at(&byte, at).unwrap();
    format!("{name}, byte {at}")
}

#[test]
fn a_flipped_byte_is_found_before_anything_starts_or_is_harmless() {
    const FLIPS: u64 = 8;
    let seed = chance::seed().unwrap();
    let mut chance = Chance::new(seed, 0);
    let root = root("detent-flip-");
    let site = Site::new(root.path()).unwrap();
    let orders = stopped_in_the_middle(&site);
    let (data, home) = (root.path().join("data-kept"), root.path().join("home-kept"));
    copy(&site.data, &data);
    copy(&site.home, &home);
    let log = site.home.join("starts.log");
    let before = check::started(&log).unwrap();
    let mut refused = 0;
    for _ in 0..FLIPS {
        copy(&data, &site.data);
        copy(&home, &site.home);
        let says = format!("DETENT_SEED={seed}, {}", damage(&site, &mut chance));
        let mut node = NodeProcess::up(&site, None).unwrap();
        match node.wait_line("ready").unwrap() {
            Start::Ended(status, fault) => {
                assert_eq!(status.code(), Some(6), "{says}: {fault:?}");
                let code = &fault.unwrap_or_default()["fault"]["code"];
                assert_eq!(code, "JOURNAL_CORRUPT", "{says}");
                assert_eq!(check::started(&log).unwrap(), before, "{says}: a tool ran");
                refused += 1;
            }
            Start::Line(_) => harmless(&site, node, &orders, &says),
        }
    }
    // What is kept twice is read from its other copy; what was cut off is kept nowhere.
    copy(&data, &site.data);
    copy(&home, &site.home);
    let witness = site.data.join("store/WITNESS");
    let bytes = std::fs::metadata(&witness).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&witness);
    file.unwrap().set_len(bytes - 4096).unwrap();
    let mut node = NodeProcess::up(&site, None).unwrap();
    match node.wait_line("ready").unwrap() {
        Start::Ended(status, fault) => {
            assert_eq!(status.code(), Some(6), "a witness cut short: {fault:?}");
            let code = &fault.unwrap_or_default()["fault"]["code"];
            assert_eq!(code, "JOURNAL_CORRUPT");
        }
        Start::Line(_) => panic!("DETENT_SEED={seed}: a witness cut short was not found"),
    }
    assert_eq!(check::started(&log).unwrap(), before, "a tool ran");
    println!(
        "flipped bytes: {FLIPS}, refused {refused}, mended or in dead space {}",
        FLIPS - refused
    );
}

/// The byte was in dead space or was mended: every goal is there and those that were open end well.
fn harmless(site: &Site, mut node: NodeProcess, orders: &[Order], says: &str) {
    let listed: BTreeSet<_> = site.list().unwrap().iter().map(|l| l.goal).collect();
    let wanted: BTreeSet<_> = orders.iter().filter_map(|o| o.goal).collect();
    assert_eq!(listed, wanted, "{says}");
    wait_ended(site, &mut node, orders.len());
    assert!(node.terminate().unwrap().success(), "{says}");
    let found = check::after(site, Agent::Light, orders).unwrap();
    assert!(found.is_clean(), "{says}: {found:?}");
}
