//! `detent run`: one goal in this process, from the file to the verified result.

use crate::args::{self, Global};
use crate::client::{Client, over};
use crate::commands::goals::follow;
use crate::commands::up::Signals;
use crate::commands::{load, submit};
use crate::{KEEPER, exit, output};
use detent_node::{Node, NodeParts};
use detent_protocol::Fault;
use detent_protocol::goal::Submit;
use detent_sandbox::KeeperCommand;
use std::path::Path;

pub(crate) async fn run(global: &Global, args: &args::Run) -> Result<u8, Fault> {
    let goal = submit::read(&args.file, args.key.as_deref())?;
    // Nobody scrapes a node that ends with its goal; `--set` can still say otherwise.
    let config = load(global, Some(&args.file), &["node.http_listen="])?;
    output::work_goes_on();
    let mut signals = Signals::start();
    let node = Node::start(NodeParts {
        config,
        data_dir: global.data.clone(),
        keeper: KeeperCommand::this_program(&[KEEPER]),
        kinds: Vec::new(),
        socket: true,
    })
    .await?;
    let client = Client::Node(over(global, node.bus().messages.clone()));
    let outcome = tokio::select! {
        biased;
        outcome = one_goal(&client, &goal, &global.data) => outcome,
        () = signals.heard() => {
            let data = global.data.display();
            output::note(format!("detent: interrupted; the goal goes on when a node starts: detent up --data {data}"));
            Ok(exit::INTERRUPTED)
        }
    };
    node.stop().await;
    outcome
}

async fn one_goal(client: &Client, goal: &Submit, data: &Path) -> Result<u8, Fault> {
    let accepted = client.submit(goal).await?;
    submit::tell(&accepted, false);
    let code = match &accepted.result {
        Some(result) => output::result(&accepted.goal, result),
        None => follow(client, accepted.goal, 1).await?,
    };
    let files = data.join("work").join(accepted.goal.to_string());
    if files.is_dir() {
        output::note(format!("detent: the goal's files: {}", files.display()));
    }
    Ok(code)
}
