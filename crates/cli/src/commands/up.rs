//! `detent up`: a node that runs until it is told to stop.

use crate::args::{Global, Up};
use crate::commands::load;
use crate::{KEEPER, exit, output};
use detent_bus::nats::server::{PrivateServer, ServerOptions, find_server};
use detent_node::{Node, NodeParts};
use detent_protocol::Fault;
use detent_sandbox::KeeperCommand;
use serde_json::json;
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) async fn up(global: &Global, up: &Up) -> Result<u8, Fault> {
    let mut server = match &up.nats_server {
        Some(wish) => Some(private_server(global, up, wish).await?),
        None => None,
    };
    let stopped = run(global, server.as_ref()).await;
    if let Some(server) = &mut server {
        // After the node, which says goodbye over it.
        server.stop().await;
    }
    stopped
}

/// A NATS server for this node alone, with its data in the data directory.
async fn private_server(global: &Global, up: &Up, wish: &str) -> Result<PrivateServer, Fault> {
    let program = find_server((wish != "auto").then(|| Path::new(wish)))?;
    let options = ServerOptions {
        port: up.nats_port,
        ..ServerOptions::new(program, global.data.join("nats"))
    };
    let server = PrivateServer::start(options).await?;
    output::note(format!("detent: nats-server on {}", server.url()));
    Ok(server)
}

async fn run(global: &Global, server: Option<&PrivateServer>) -> Result<u8, Fault> {
    let url = server.map(|s| format!("nats.url={}", s.url()));
    let set: Vec<_> = url.iter().map(String::as_str).collect();
    let config = load(global, None, &set)?;
    let agents: Vec<_> = config
        .agents
        .iter()
        .map(|(a, _)| a.name.to_string())
        .collect();
    let mut signals = Signals::start();
    let node = Node::start(NodeParts {
        config,
        data_dir: global.data.clone(),
        keeper: KeeperCommand::this_program(&[KEEPER]),
        kinds: Vec::new(),
        socket: true,
    })
    .await?;
    let http = node.http_address().map(|a| a.to_string());
    if output::is_json() {
        output::json(
            &json!({"type": "ready", "agents": agents, "http": http, "data": global.data,
            "goals_in_flight": node.in_flight()}),
        );
    }
    let (data, in_flight) = (global.data.display(), node.in_flight());
    output::note(format!(
        "detent: ready, data in {data}, {in_flight} goals taken up again"
    ));
    let agents = if agents.is_empty() {
        "none (--config?)".to_owned()
    } else {
        agents.join(", ")
    };
    output::note(format!("  agents: {agents}"));
    if let Some(http) = http {
        output::note(format!("  http: http://{http}/metrics /healthz /readyz"));
    }
    signals.heard().await;
    output::note("detent: draining; what does not end goes on with the next start");
    output::note("  again to stop at once");
    let all_ended = tokio::select! {
        biased;
        all_ended = node.stop() => all_ended,
        () = signals.heard() => {
            output::note("detent: stopped at once; goals go on with the next start");
            return Ok(exit::INTERRUPTED);
        }
    };
    let how = if all_ended {
        "every running tool ended"
    } else {
        "some tools were stopped"
    };
    output::note(format!("detent: stopped, {how}"));
    Ok(exit::OK)
}

/// SIGTERM and SIGINT; from the start on they are kept until somebody listens.
pub(crate) struct Signals(Option<(Signal, Signal)>);

impl Signals {
    pub(crate) fn start() -> Self {
        let term = signal(SignalKind::terminate());
        let int = signal(SignalKind::interrupt());
        // Without handlers the signals end the process at once, which loses nothing
        // either: the journal has it.
        Self(term.ok().zip(int.ok()))
    }

    /// Waits for the next one.
    pub(crate) async fn heard(&mut self) {
        let Some((term, int)) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    }
}
