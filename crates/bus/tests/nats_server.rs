//! The private broker: how it starts, ends and comes back.

mod support;

use detent_bus::nats::server::{PrivateServer, ServerOptions};
use detent_protocol::Code;
use support::{PATIENCE, cluster3, server, server_options, server_with};

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // A zombie has ended.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn it_starts_stops_and_comes_back_on_the_same_ports() {
    let mut broker = server_with(|options| options.monitor_port = Some(0)).await;
    let (url, monitor) = (broker.server.url(), broker.server.monitor_url());
    let first = broker.server.pid().unwrap();
    assert!(lives(first));
    broker.server.stop().await;
    assert!(!lives(first) && broker.server.pid().is_none());
    let log = std::fs::read_to_string(broker.server.options().log_file()).unwrap();
    assert!(log.contains("Server Exiting"), "it was told to end:\n{log}");

    broker.server.restart().await.unwrap();
    let second = broker.server.pid().unwrap();
    assert_ne!(first, second);
    assert_eq!(
        (broker.server.url(), broker.server.monitor_url()),
        (url, monitor)
    );
    broker.server.kill().await;
    assert!(!lives(second));
    broker.server.restart().await.unwrap();
}

#[tokio::test]
async fn it_ends_with_its_owner() {
    let broker = server().await;
    let pid = broker.server.pid().unwrap();
    drop(broker);
    assert!(!lives(pid));
}

#[tokio::test]
async fn one_that_can_not_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        extra: "no_such_setting: 1".into(),
        ..server_options(&dir)
    };
    let fault = PrivateServer::start(options).await.unwrap_err();
    assert_eq!(fault.code, Code::BrokerUnreachable);
    assert!(fault.message.contains("no_such_setting"), "{fault}");

    let taken = server().await;
    let options = ServerOptions {
        port: taken.server.options().port,
        ..server_options(&dir)
    };
    let fault = PrivateServer::start(options).await.unwrap_err();
    assert!(fault.message.contains("address already in use"), "{fault}");

    let missing = ServerOptions::new(dir.path().join("none"), dir.path().join("nats"));
    let fault = PrivateServer::start(missing).await.unwrap_err();
    assert_eq!(fault.code, Code::ConfigInvalid);
    assert!(fault.at.unwrap().ends_with("none"));
}

#[tokio::test]
async fn three_make_a_cluster() {
    let mut cluster = cluster3().await;
    cluster.servers[0].server.kill().await;
    cluster.wait_ready().await;
    cluster.servers[0].server.restart().await.unwrap();
    cluster.servers[0]
        .server
        .wait_ready(PATIENCE)
        .await
        .unwrap();
}

/// Not a test: what [`it_does_not_outlive_a_killed_owner`] kills.
#[tokio::test]
#[ignore = "run by another test"]
async fn an_owner() {
    let broker = server().await;
    println!("pid {}", broker.server.pid().unwrap());
    std::future::pending::<()>().await;
}

#[test]
fn it_does_not_outlive_a_killed_owner() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.args(["--exact", "an_owner", "--ignored", "--nocapture"]);
    let mut owner = owner.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| {
        let (_, pid) = line.split_once("pid ")?;
        pid.parse::<u32>().ok()
    });
    let pid = pid.expect("a server");
    assert!(lives(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while lives(pid) {
        assert!(std::time::Instant::now() < deadline, "it lives on");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
