//! Real brokers for the tests, each with a folder of its own that goes with it.
#![allow(dead_code, reason = "each test file uses its own part")]

use detent_bus::nats::NatsOptions;
use detent_bus::nats::server::{
    ClusterOptions, PrivateServer, ServerOptions, find_server, free_ports,
};
use std::time::Duration;
use tempfile::TempDir;

/// For what has to happen, however loaded the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// A server and its folder.
pub(crate) struct Broker {
    pub(crate) server: PrivateServer,
    // After the server: it goes when the server has gone.
    _dir: TempDir,
}

impl Broker {
    /// Options of a bus on it: small streams, one copy.
    pub(crate) fn options(&self) -> NatsOptions {
        options(self.server.url())
    }
}

/// Options with small streams, so that they fit on any disk.
pub(crate) fn options(url: impl Into<String>) -> NatsOptions {
    NatsOptions {
        journal_bytes_max: 256 * MIB,
        inbox_bytes_max: 64 * MIB,
        blobs_bytes_max: 256 * MIB,
        ..NatsOptions::new(url, "test")
    }
}

/// How a server for tests is started in `dir`; it does not sync, which no test can see.
pub(crate) fn server_options(dir: &TempDir) -> ServerOptions {
    let program = find_server(None).expect("a nats-server");
    ServerOptions {
        sync_always: false,
        file_bytes_max: 4096 * MIB,
        start_timeout: PATIENCE,
        ..ServerOptions::new(program, dir.path().join("nats"))
    }
}

/// A lone server.
pub(crate) async fn server() -> Broker {
    server_with(|_| {}).await
}

/// A lone server, with settings changed.
pub(crate) async fn server_with(change: impl FnOnce(&mut ServerOptions)) -> Broker {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = server_options(&dir);
    change(&mut options);
    let server = PrivateServer::start(options).await.expect("a server");
    Broker { server, _dir: dir }
}

/// Three servers that make a cluster, healthy.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Broker>,
}

impl Cluster {
    /// Options of a bus on it: small streams, three copies.
    pub(crate) fn options(&self) -> NatsOptions {
        let urls: Vec<_> = self.servers.iter().map(|b| b.server.url()).collect();
        NatsOptions {
            replicas: 3,
            ..options(urls.join(","))
        }
    }

    /// Waits until each server that runs is healthy.
    pub(crate) async fn wait_ready(&mut self) {
        for broker in &mut self.servers {
            if broker.server.pid().is_some() {
                broker.server.wait_ready(PATIENCE).await.expect("healthy");
            }
        }
    }
}

/// Three servers that make a cluster.
pub(crate) async fn cluster3() -> Cluster {
    let routes = free_ports(3).expect("ports");
    let start = |n: usize| {
        let dir = tempfile::tempdir().expect("a folder");
        let options = ServerOptions {
            name: format!("n{n}"),
            monitor_port: Some(0),
            cluster: Some(ClusterOptions {
                name: "test".into(),
                port: routes[n],
                routes: routes.clone(),
            }),
            ..server_options(&dir)
        };
        let server = PrivateServer::spawn(options).expect("a server");
        Broker { server, _dir: dir }
    };
    let servers = (0..3).map(start).collect();
    let mut cluster = Cluster { servers };
    cluster.wait_ready().await;
    cluster
}
