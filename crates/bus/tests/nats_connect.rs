//! Connecting: who is let in, what is refused and how fast, what the handle tells.

mod support;

use detent_bus::nats::server::ServerOptions;
use detent_bus::nats::{NatsAuth, NatsBus, NatsOptions, NatsTls};
use detent_protocol::{Code, Fault};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{PATIENCE, options, server, server_with};
use tempfile::TempDir;

async fn refused(options: NatsOptions) -> Fault {
    match NatsBus::connect(options).await {
        Ok(_) => panic!("connected"),
        Err(fault) => fault,
    }
}

/// As refused, and not by waiting: the wait would be far longer than the test.
async fn refused_at_once(options: NatsOptions) -> Fault {
    let options = NatsOptions {
        connect_timeout: Duration::from_secs(3600),
        ..options
    };
    let refused = tokio::time::timeout(PATIENCE, refused(options)).await;
    refused.expect("at once")
}

fn password(dir: &TempDir, password: &str) -> NatsAuth {
    let password_file = dir.path().join(password);
    std::fs::write(&password_file, format!("{password}\n")).unwrap();
    NatsAuth::Password {
        user: "detent".into(),
        password_file,
    }
}

#[tokio::test]
async fn the_wrong_password_is_refused_at_once() {
    let broker = server_with(|options| {
        options.extra = "authorization { user: detent, password: right }".into();
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let with = |auth| NatsOptions {
        auth,
        ..broker.options()
    };
    for auth in [NatsAuth::None, password(&dir, "wrong")] {
        let fault = refused_at_once(with(auth)).await;
        assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
        assert!(!fault.to_string().contains("wrong"), "{fault}");
        let port = broker.server.options().port.to_string();
        assert!(fault.at.as_ref().unwrap().contains(&port), "{fault}");
    }
    NatsBus::connect(with(password(&dir, "right")))
        .await
        .unwrap();
    let missing = NatsAuth::Credentials(dir.path().join("none"));
    let fault = refused_at_once(with(missing)).await;
    assert_eq!(fault.code, Code::ConfigInvalid);
    assert!(fault.at.unwrap().ends_with("none"));
}

#[tokio::test]
async fn an_nkey_is_enough() {
    // Made for this test; it opens nothing else.
    const SEED: &str = "SUAE7E62KULDQVLZQOBQCZFWT43QHMVHTXQN7AO6IGCJHBH6VVN4ZF3XPE";
    const PUBLIC: &str = "UBOTJQCKSLCDA5UVAMM5X5DJQA2C5YIGWE2CVNDIY5YZ2R4QJZDNHOWF";
    let broker = server_with(|options| {
        options.extra = format!("authorization {{ users: [{{ nkey: {PUBLIC} }}] }}");
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seed");
    std::fs::write(&file, format!("{SEED}\n")).unwrap();
    let auth = NatsAuth::NkeySeed(file);
    NatsBus::connect(NatsOptions {
        auth,
        ..broker.options()
    })
    .await
    .unwrap();
    let fault = refused_at_once(broker.options()).await;
    assert_eq!(fault.code, Code::BrokerRefused);
}

#[tokio::test]
async fn nobody_there_is_unreachable_after_the_wait() {
    let mut broker = server().await;
    broker.server.stop().await;
    let wait = Duration::from_millis(500);
    let options = NatsOptions {
        connect_timeout: wait,
        ..broker.options()
    };
    let started = Instant::now();
    let fault = tokio::time::timeout(PATIENCE, refused(options))
        .await
        .unwrap();
    assert_eq!(fault.code, Code::BrokerUnreachable, "{fault}");
    assert!(started.elapsed() >= wait / 2, "it did not try again");
}

#[tokio::test]
async fn one_that_is_still_starting_is_waited_for() {
    let mut broker = server().await;
    broker.server.stop().await;
    let options = NatsOptions {
        connect_timeout: PATIENCE,
        ..broker.options()
    };
    let connecting = tokio::spawn(NatsBus::connect(options));
    tokio::task::yield_now().await;
    broker.server.restart().await.unwrap();
    connecting.await.unwrap().unwrap();
}

#[tokio::test]
async fn without_jetstream_or_room_for_messages_it_is_refused() {
    let without = server_with(|options| {
        options.extra =
            "accounts { A { users: [{user: a, password: a}] } }\nno_auth_user: a".into();
    })
    .await;
    let fault = refused_at_once(without.options()).await;
    assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
    assert!(fault.message.contains("JetStream"), "{fault}");

    let small = server_with(|options| options.extra = "max_payload: 1000000".into()).await;
    let fault = refused_at_once(small.options()).await;
    assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
    assert!(fault.message.contains("max_payload"), "{fault}");
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let broker = server_with(|options| {
        options.extra = "authorization { users: [{ user: a, password: a, permissions: {
            publish: { deny: [\"$JS.API.STREAM.CREATE.>\"] }, subscribe: \">\" } }] }
            no_auth_user: a"
            .into();
    })
    .await;
    let options = NatsOptions {
        connect_timeout: Duration::from_secs(2),
        ..broker.options()
    };
    let fault = refused(options).await;
    assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
    assert!(
        fault.message.contains("STREAM.CREATE.DETENT_JOURNAL"),
        "{fault}"
    );
}

#[tokio::test]
async fn streams_are_made_only_where_that_is_wanted() {
    let broker = server().await;
    let looking = NatsOptions {
        create: false,
        ..broker.options()
    };
    let fault = refused_at_once(looking.clone()).await;
    assert_eq!(fault.code, Code::StreamSettings, "{fault}");
    let names = [
        "DETENT_JOURNAL",
        "KV_DETENT_LEASES",
        "OBJ_DETENT_BLOBS",
        "DETENT_DEAD",
    ];
    for name in names {
        assert!(fault.message.contains(name), "{fault}");
    }
    NatsBus::set_up(looking.clone()).await.unwrap();
    NatsBus::connect(looking.clone()).await.unwrap();
    // Beyond what stands.
    let more = NatsOptions {
        inbox_bytes_max: looking.inbox_bytes_max + 1,
        ..looking
    };
    let fault = refused_at_once(more).await;
    assert_eq!(fault.code, Code::StreamSettings);
    assert!(
        fault.message.contains("DETENT_INTAKE: max_bytes"),
        "{fault}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_handle_tells_of_losses_and_checks_everything() {
    let mut broker = server_with(|options| {
        options.monitor_port = Some(0);
        options.sync_always = true;
    })
    .await;
    let options = NatsOptions {
        monitor: broker.server.monitor_url(),
        ..broker.options()
    };
    let nats = NatsBus::connect(options).await.unwrap();
    let handle = nats.handle.clone();
    let status = handle.status();
    assert!(status.connected && status.losses == 0 && status.round_trip.is_none());
    assert!(status.version.starts_with("2."), "{status:?}");
    let checks = handle.check().await;
    for check in &checks {
        println!("{}: {:?}", check.what, check.found);
    }
    assert!(checks.iter().all(|check| check.found.is_ok()));
    assert!(checks.len() >= 13, "{}", checks.len());
    let found = |what: &str| {
        let check = checks.iter().find(|check| check.what == what);
        check.unwrap().found.clone().unwrap()
    };
    assert!(
        found("syncing").contains("before each"),
        "{}",
        found("syncing")
    );
    assert!(handle.status().round_trip.is_some());

    let mut watch = handle.watch();
    broker.server.kill().await;
    let lost = watch.wait_for(|link| !link.connected);
    let since = tokio::time::timeout(PATIENCE, lost)
        .await
        .unwrap()
        .unwrap()
        .since;
    assert!(!handle.status().connected);
    assert_eq!(
        handle.round_trip().await.unwrap_err().code,
        Code::BrokerUnreachable
    );
    broker.server.restart().await.unwrap();
    let back = watch.wait_for(|link| link.connected);
    let link = *tokio::time::timeout(PATIENCE, back).await.unwrap().unwrap();
    assert!(link.losses == 1 && link.since >= since);
    handle.round_trip().await.unwrap();
}

fn openssl(dir: &Path, args: &str) {
    let done = Command::new("openssl")
        .args(args.split_whitespace())
        .current_dir(dir)
        .output()
        .expect("openssl");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "openssl {args}: {said}");
}

/// A self-made authority `NAME-ca.pem`, and what it signed for `NAME`.
fn signed(dir: &Path, name: &str) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        dir,
        &format!(
            "req -x509 {key} -keyout {name}-ca.key -out {name}-ca.pem -days 2 -subj /CN={name}-ca"
        ),
    );
    openssl(
        dir,
        &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"),
    );
    std::fs::write(
        dir.join("ext"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\n",
    )
    .unwrap();
    openssl(
        dir,
        &format!(
            "x509 -req -in {name}.csr -CA {name}-ca.pem -CAkey {name}-ca.key -CAcreateserial \
             -days 2 -extfile ext -out {name}.pem"
        ),
    );
}

fn with_tls(options: &mut ServerOptions, dir: &Path) {
    let dir = dir.display();
    options.extra = format!(
        "tls {{ cert_file: \"{dir}/server.pem\", key_file: \"{dir}/server.key\", \
         ca_file: \"{dir}/client-ca.pem\", verify: true }}"
    );
}

#[tokio::test]
async fn tls_proves_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    signed(dir.path(), "server");
    signed(dir.path(), "client");
    let broker = server_with(|options| with_tls(options, dir.path())).await;
    let file = |name: &str| -> PathBuf { dir.path().join(name) };
    let url = format!("tls://127.0.0.1:{}", broker.server.options().port);
    let with = |tls| NatsOptions {
        tls,
        ..options(url.clone())
    };
    let good = NatsTls {
        required: true,
        ca: Some(file("server-ca.pem")),
        client: Some((file("client.pem"), file("client.key"))),
    };
    NatsBus::connect(with(good.clone())).await.unwrap();
    let others = NatsTls {
        ca: Some(file("client-ca.pem")),
        ..good.clone()
    };
    let nobody = NatsTls {
        client: None,
        ..good
    };
    for tls in [others, nobody] {
        let fault = refused_at_once(with(tls)).await;
        assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
    }
}

#[tokio::test]
async fn whom_to_trust_and_whether_tls_is_a_must_is_the_clients_to_say() {
    let dir = tempfile::tempdir().unwrap();
    signed(dir.path(), "server");
    let broker = server_with(|options| {
        let dir = dir.path().display();
        options.extra =
            format!("tls {{ cert_file: \"{dir}/server.pem\", key_file: \"{dir}/server.key\" }}");
    })
    .await;
    let with = |tls: &NatsTls, scheme| NatsOptions {
        tls: tls.clone(),
        ..options(broker.server.url().replace("nats:", scheme))
    };
    let trusting = NatsTls {
        ca: Some(dir.path().join("server-ca.pem")),
        ..NatsTls::default()
    };
    // The server asks for TLS, so it is used whatever the address says.
    for scheme in ["nats:", "tls:"] {
        NatsBus::connect(with(&trusting, scheme)).await.unwrap();
        let fault = refused_at_once(with(&NatsTls::default(), scheme)).await;
        assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
        let said = fault.message.to_lowercase();
        assert!(
            said.contains("certificate") && said.contains("issuer"),
            "{fault}"
        );
    }

    let plain = server().await;
    let must = NatsTls {
        required: true,
        ..trusting
    };
    let fault = refused_at_once(NatsOptions {
        tls: must,
        ..plain.options()
    })
    .await;
    assert_eq!(fault.code, Code::BrokerRefused, "{fault}");
    assert!(fault.message.to_lowercase().contains("tls"), "{fault}");
}
