//! What the tests share: a bed of files, the binary run to its end within a bound, and
//! a node that ends with its value.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything; far beyond what a loaded machine takes.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The repository's quickstart, run in place.
pub fn quickstart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/quickstart")
}

/// Tries `look` until it gives something. Only for what no process tells.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder with a configuration and a data directory.
pub struct Bed {
    dir: TempDir,
}

/// A tool that succeeds and does nothing.
pub const NOTHING: &str = tool!("read", "echo '{}'");

/// A registry with one tool `t` that runs a shell script, tried once, for at most ten
/// seconds.
#[macro_export]
macro_rules! tool {
    ($effect:literal, $script:literal) => {
        concat!(
            "[[tool]]\nname = \"t\"\neffect = \"",
            $effect,
            "\"\nkind = \"process\"\ntimeout_ms = 10_000\nretry.attempts_max = 1\n",
            "run.command = [\"/bin/sh\", \"-c\", '''",
            $script,
            "''']\n"
        )
    };
}
pub use tool;

/// One step with the tool `t`; its output is the result.
pub const ONE_STEP: &str = r#"
[[playbook.steps]]
id = "s"
tool = "t"
[playbook.result]
out = { "$step" = "s" }
"#;

impl Bed {
    /// Without any configuration.
    pub fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// One agent `a` with the tool `t` and this playbook.
    pub fn new(tools: &str, playbook: &str) -> Self {
        let bed = Self::empty();
        bed.write(
            "detent.toml",
            "agents = [\"a.toml\"]\ntools = [\"tools.toml\"]\n",
        );
        bed.write("tools.toml", tools);
        bed.agent(playbook);
        bed.write("goal.json", r#"{"agent": "a", "input": {}}"#);
        bed
    }

    /// Writes the agent `a` anew.
    pub fn agent(&self, playbook: &str) {
        let head = "name = \"a\"\ntools = [\"t\"]\ninput_schema = { type = \"object\" }\nresult_schema = true\npolicy.replans_max = 0\n";
        self.write("a.toml", format!("{head}{playbook}"));
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn data(&self, name: &str) -> PathBuf {
        self.path("data").join(name)
    }

    /// The binary with this bed's data directory and, where there is one, its
    /// configuration; nothing of Detent's is inherited from the environment.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_detent"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DETENT_") {
                command.env_remove(name);
            }
        }
        command.args(args).env("DETENT_DATA", self.path("data"));
        if self.path("detent.toml").exists() {
            command.env("DETENT_CONFIG", self.path("detent.toml"));
        }
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn detent<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Out {
        finish(self.command(args))
    }

    /// `detent ARGS… -o json`.
    pub fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Out {
        let mut command = self.command(args);
        command.args(["-o", "json"]);
        finish(command)
    }

    /// `detent run goal.json -o json`.
    pub fn run_goal(&self) -> Out {
        self.json(["run", "goal.json"])
    }

    /// `detent goals show GOAL -o json`.
    pub fn show(&self, goal: &str) -> Value {
        self.json(["goals", "show", goal]).last()
    }

    /// Waits until a goal, as `goals show` gives it, is as wanted.
    pub fn until(&self, goal: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || Some(self.show(goal)).filter(&wanted))
    }
}

/// What a run of the binary left.
#[derive(Debug)]
pub struct Out {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Out {
    /// Checks the exit code, and shows everything where it is another.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    /// Every line of stdout, which has to be JSON.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let parse = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The last line of stdout.
    #[track_caller]
    pub fn last(&self) -> Value {
        let last = self.lines().pop();
        last.unwrap_or_else(|| panic!("nothing on stdout: {self:#?}"))
    }

    /// The result that the last line holds.
    #[track_caller]
    pub fn result(&self) -> Value {
        let last = self.last();
        assert_eq!(last["type"], "result", "{self:#?}");
        last["result"].clone()
    }

    /// Refused with this code: on stdout for programs, on stderr with a next step for
    /// people.
    #[track_caller]
    pub fn refused(self, exit: i32, code: &str) -> Value {
        let out = self.exits(exit);
        let last = out.last();
        assert_eq!(last["type"], "fault", "{out:#?}");
        let fault = &last["fault"];
        assert_eq!(fault["code"], code, "{out:#?}");
        let next = last["next"].as_str().unwrap();
        assert!(
            out.stderr.contains(&format!("detent: {code}: ")),
            "{out:#?}"
        );
        assert!(out.stderr.contains(&format!("next: {next}")), "{out:#?}");
        fault.clone()
    }

    /// The goal failed with this code, and says what to do next.
    #[track_caller]
    pub fn failed(self, code: &str) -> Value {
        let out = self.exits(1);
        let result = out.result();
        assert_eq!(result["status"], "failed", "{out:#?}");
        assert_eq!(result["error_code"], code, "{out:#?}");
        let next = result["recovery_suggestion"].as_str().unwrap();
        assert!(next.len() > 10, "{out:#?}");
        result
    }
}

fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).expect("UTF-8")
    })
}

/// Waits for a process's end within the bound; kills it, and fails, where it hangs.
pub fn wait(child: Child) -> ExitStatus {
    let pid = Pid::from_child(&child);
    let (done, ended) = channel();
    let mut child = child;
    std::thread::spawn(move || done.send(child.wait().unwrap()));
    ended.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = kill_process(pid, Signal::KILL);
        panic!("the program hangs");
    })
}

/// Runs a command to its end. A panic in it fails the test, whatever its exit code.
pub fn finish(mut command: Command) -> Out {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let stdout = drain(child.stdout.take().unwrap());
    let stderr = drain(child.stderr.take().unwrap());
    let status = wait(child);
    let out = Out {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    };
    assert!(!out.stderr.contains("panicked"), "{out:#?}");
    assert_eq!(out.status.signal(), None, "{out:#?}");
    out
}

/// `detent up`, killed with this value.
pub struct Up {
    child: Option<Child>,
    pub ready: Value,
    stderr: Option<JoinHandle<String>>,
}

impl Up {
    /// Starts a node on the bed and waits until it is ready.
    pub fn start(bed: &Bed, set: &[&str]) -> Self {
        let mut command =
            bed.command(["up", "-o", "json", "--set", "node.http_listen=127.0.0.1:0"]);
        for pair in set {
            command.args(["--set", pair]);
        }
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let stderr = drain(child.stderr.take().unwrap());
        let lines = lines_of(child.stdout.take().unwrap());
        let first = lines.recv_timeout(PATIENCE).unwrap_or_else(|e| {
            let _ = child.kill();
            panic!("not ready: {e}")
        });
        let ready: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(ready["type"], "ready");
        Self {
            child: Some(child),
            ready,
            stderr: Some(stderr),
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for its end; gives the exit status and what it said.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let status = wait(self.child.take().unwrap());
        let said = self.stderr.take().unwrap().join().unwrap();
        assert!(!said.contains("panicked"), "{said}");
        (status, said)
    }

    /// SIGTERM and the end.
    pub fn stop(self) -> String {
        self.terminate();
        let (status, said) = self.ended();
        assert_eq!(status.code(), Some(0), "{said}");
        said
    }

    /// Status and body of a page.
    pub fn page(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.ready["http"].as_str().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = String::new();
        write!(
            request,
            "GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Lines of a pipe as they come.
pub fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (to, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { return };
            if to.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Is a process there that is more than a remainder in the table?
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// The process id that a tool has written into a file.
pub fn pid_in(path: &Path) -> u32 {
    eventually("a process id", || {
        let text = std::fs::read_to_string(path).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    })
}
