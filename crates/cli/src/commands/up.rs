//! `detent up`: a node that runs until it is told to stop.

use crate::args::Global;
use crate::commands::load;
use crate::{KEEPER, exit, output};
use detent_node::{Node, NodeParts};
use detent_protocol::Fault;
use detent_sandbox::KeeperCommand;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) async fn up(global: &Global) -> Result<u8, Fault> {
    let config = load(global, None, &[])?;
    let agents: Vec<_> = config
        .agents
        .iter()
        .map(|(a, _)| a.name.to_string())
        .collect();
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
    eprintln!(
        "detent: ready, data in {}, {} goals taken up again",
        global.data.display(),
        node.in_flight()
    );
    eprintln!(
        "  agents: {}",
        if agents.is_empty() {
            "none (--config?)".to_owned()
        } else {
            agents.join(", ")
        }
    );
    if let Some(http) = http {
        eprintln!("  http: http://{http}/metrics /healthz /readyz");
    }
    told_to_stop().await;
    eprintln!("detent: draining; what does not end goes on with the next start");
    let all_ended = node.stop().await;
    let how = if all_ended {
        "every running tool ended"
    } else {
        "some tools were stopped"
    };
    eprintln!("detent: stopped, {how}");
    Ok(exit::OK)
}

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn told_to_stop() {
    let term = signal(SignalKind::terminate());
    let int = signal(SignalKind::interrupt());
    let (Ok(mut term), Ok(mut int)) = (term, int) else {
        // Without handlers the signals end the process at once, which loses nothing
        // either: the journal has it.
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
