//! `detent nats …`, and connecting to the broker.

use crate::args::{Global, Nats};
use crate::commands::load;
use crate::{exit, output};
use detent_bus::nats::{NatsBus, NatsOptions, SetUp};
use detent_node::broker;
use detent_protocol::{Code, Fault};
use serde_json::json;

pub(crate) async fn run(global: &Global, command: Nats) -> Result<u8, Fault> {
    match command {
        Nats::Setup => setup(global).await,
    }
}

/// How the settings say to reach the broker; `None` where they name none.
pub(crate) fn options(global: &Global) -> Result<Option<NatsOptions>, Fault> {
    broker::options(&load(global, None, &[])?)
}

fn needed(global: &Global) -> Result<NatsOptions, Fault> {
    options(global)?.ok_or_else(|| {
        let message = "this needs NATS: --nats URL, or nats.url in the configuration";
        Fault::new(Code::ConfigInvalid, message).at("nats.url")
    })
}

/// Connects to the broker that the settings name; `create`: makes what is missing.
pub(crate) async fn connect(global: &Global, create: bool) -> Result<NatsBus, Fault> {
    let options = needed(global)?;
    NatsBus::connect(NatsOptions { create, ..options }).await
}

async fn setup(global: &Global) -> Result<u8, Fault> {
    for done in NatsBus::set_up(needed(global)?).await? {
        let (name, what, changes) = match &done {
            SetUp::Fine(name) => (name, "fine", &[][..]),
            SetUp::Made(name) => (name, "made", &[][..]),
            SetUp::Mended(name, changes) => (name, "mended", &changes[..]),
        };
        if output::is_json() {
            output::json(&json!({"type": "stream", "name": name, "is": what, "changes": changes}));
        } else {
            output::line(format!("{name:<18} {what} {}", changes.join("; ")).trim_end());
        }
    }
    Ok(exit::OK)
}
