//! The program on a broker with the settings that operators take, `cluster/nats/`: TLS,
//! a node, a publisher, an operator, each with its own rights.

use detent_chaos_tests::binary;
use detent_chaos_tests::broker::{Broker, free_port};
use detent_chaos_tests::process::{NodeProcess, Start};
use detent_chaos_tests::site::{Said, Site};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Far less than a request that nobody answers takes.
const AT_ONCE: Duration = Duration::from_secs(20);

fn openssl(dir: &Path, args: &str) {
    let done = Command::new("openssl")
        .args(args.split_whitespace())
        .current_dir(dir)
        .output()
        .expect("openssl");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "openssl {args}: {said}");
}

/// An authority and the server's certificate, under the names that the settings have.
fn certificates(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        dir,
        &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"),
    );
    openssl(
        dir,
        &format!("req {key} -keyout server.key -out server.csr -subj /CN=server"),
    );
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
    std::fs::write(dir.join("ext"), names).unwrap();
    openssl(
        dir,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
         -extfile ext -out server.pem",
    );
}

/// The files of `cluster/nats/` as one text, for one server in a folder, on a port.
fn settings(dir: &Path, port: u16) -> String {
    let read = |name: &str| {
        let file = binary::workspace().join("cluster/nats").join(name);
        std::fs::read_to_string(file).unwrap()
    };
    let mut text = read("server.conf");
    // As its first lines say for a server that is alone.
    let from = text.find("\ncluster {").unwrap();
    let to = from + text[from..].find("\n}\n").unwrap() + 2;
    text.replace_range(from..to, "");
    let monitor = free_port().unwrap();
    for (theirs, ours) in [
        ("include ./users.conf", read("users.conf")),
        ("0.0.0.0:4222", format!("127.0.0.1:{port}")),
        ("127.0.0.1:8222", format!("127.0.0.1:{monitor}")),
        ("/var/lib/nats", dir.join("data").display().to_string()),
        ("/etc/nats", dir.display().to_string()),
    ] {
        assert!(text.contains(theirs), "{theirs}");
        text = text.replace(theirs, &ours);
    }
    let variables = ["ADMIN", "NODE", "OPERATOR", "DEFAULT", "SYS"]
        .map(|name| format!("DETENT_{name}_PASSWORD: \"{}\"\n", password(name)));
    format!("SERVER_NAME: n1\n{}{text}", variables.concat())
}

fn password(user: &str) -> String {
    format!("secret of {}", user.to_lowercase())
}

struct World {
    root: tempfile::TempDir,
    site: Site,
    _broker: Broker,
}

impl World {
    fn start() -> Self {
        let mut root = tempfile::Builder::new();
        let root = root.prefix("detent-rights-").tempdir().unwrap();
        let dir = root.path().join("broker");
        certificates(&dir);
        let port = free_port().unwrap();
        let broker = Broker::with_settings(&dir, port, &settings(&dir, port)).unwrap();
        let mut site = Site::new(&root.path().join("site")).unwrap();
        site.nats = Some(broker.url().replace("nats:", "tls:"));
        Self {
            root,
            site,
            _broker: broker,
        }
    }

    /// What says who somebody is.
    fn as_user(&self, user: &str) -> Vec<String> {
        let file = |name: &str| -> PathBuf { self.root.path().join(name) };
        let secret = file(user);
        std::fs::write(&secret, password(user)).unwrap();
        let ca = file("broker/ca.pem");
        [
            format!("nats.user={user}"),
            format!("nats.password_file={}", secret.display()),
            format!("nats.tls_ca={}", ca.display()),
        ]
        .into_iter()
        .flat_map(|setting| ["--set".to_owned(), setting])
        .collect()
    }

    fn up(&self) -> NodeProcess {
        let who = self.as_user("node");
        let args: Vec<&str> = ["up"].into_iter().chain(who.iter().map(|a| &**a)).collect();
        let mut node = NodeProcess::start(&self.site, &args, None).unwrap();
        match node.wait_line("ready").unwrap() {
            Start::Line(_) => node,
            Start::Ended(status, fault) => panic!("{status}, {fault:?}"),
        }
    }

    fn say(&self, user: &str, args: &[&str]) -> Said {
        let who = self.as_user(user);
        let args: Vec<&str> = args
            .iter()
            .copied()
            .chain(who.iter().map(|a| &**a))
            .collect();
        self.site.say(&args).unwrap()
    }

    /// A goal's file.
    fn goal(&self, tenant: &str) -> String {
        let input = json!({"home": self.site.home, "amount": 7, "hold_ms": 1});
        let goal = json!({"agent": "light", "tenant": tenant, "input": input});
        let file = self.root.path().join(format!("{tenant}.json"));
        std::fs::write(&file, goal.to_string()).unwrap();
        file.display().to_string()
    }

    fn refused_at_once(&self, user: &str, args: &[&str]) -> Value {
        let began = Instant::now();
        let said = self.say(user, args);
        let took = began.elapsed();
        assert_ne!(said.code, Some(0), "{args:?}");
        let fault = said.of_type("fault").unwrap()["fault"].clone();
        assert_eq!(fault["code"], "BROKER_REFUSED", "{fault}");
        assert!(took < AT_ONCE, "{took:?}");
        fault
    }
}

#[test]
fn each_role_can_do_its_work_and_no_other() {
    let world = World::start();
    let mut node = world.up();
    let goal = world.goal("default");
    let inbox = ["--set", "nats.inbox_prefix=_INBOX.default"];
    for (key, inbox) in [("usual", &[][..]), ("own", &inbox)] {
        let submit = [&["submit", &goal, "--wait", "--key", key], inbox].concat();
        let said = world.say("default", &submit);
        assert_eq!(said.code, Some(0), "{}", said.errors);
        let result = said.lines.last().unwrap();
        assert!(result.to_string().contains("succeeded"), "{result}");
    }
    let listed = world.say("default", &["goals", "list"]);
    assert_eq!(listed.lines.len(), 2, "{}", listed.errors);

    let acme = world.goal("acme");
    let fault = world.refused_at_once("default", &["submit", &acme]);
    let text = fault["message"].as_str().unwrap();
    assert!(text.contains("detent.acme.submit.light"), "{text}");
    world.refused_at_once("default", &["goals", "list", "--tenant", "acme"]);
    world.refused_at_once("default", &["dlq", "list"]);
    world.refused_at_once("operator", &["submit", &goal]);

    let listed = world.say("operator", &["goals", "list"]);
    assert_eq!(listed.lines.len(), 2, "{}", listed.errors);
    let dead = world.say("operator", &["dlq", "list"]);
    assert_eq!(
        (dead.code, dead.lines.len()),
        (Some(0), 0),
        "{}",
        dead.errors
    );
    let doctor = world.say("operator", &["doctor"]);
    assert_eq!(doctor.code, Some(0), "{:?} {}", doctor.lines, doctor.errors);
    assert!(node.terminate().unwrap().success());
}

#[test]
fn who_is_not_known_or_does_not_know_the_server_is_refused() {
    let world = World::start();
    let goal = world.goal("default");
    let mut who = world.as_user("default");
    let submit = |who: &[String]| {
        let args = ["submit", &*goal].into_iter();
        let args: Vec<&str> = args.chain(who.iter().map(|a| &**a)).collect();
        let began = Instant::now();
        let said = world.site.say(&args).unwrap();
        assert_eq!(said.fault_code(), Some("BROKER_REFUSED"), "{}", said.errors);
        assert!(began.elapsed() < AT_ONCE);
        said.of_type("fault").unwrap()["fault"]["message"].to_string()
    };
    // Without the authority's certificate.
    let text = submit(&who[..4]);
    assert!(text.contains("certificate"), "{text}");
    who[1] = "nats.user=node".into();
    let text = submit(&who);
    assert!(!text.contains("secret"), "{text}");
}
