//! One node for one name: a lease that the node holds while it runs.
//!
//! Promises: a second node with the same name is refused while the first one runs. The
//! lease is a hint: what keeps two nodes from harming one goal is the journal's fence.

use detent_bus::{Lease, Leases};
use detent_protocol::{Code, Fault, NodeId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long a dead node's name is taken.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// Wait before a name is asked for again.
const PAUSE: Duration = Duration::from_millis(250);

/// Holds the name until it is dropped or left.
pub(crate) struct Membership {
    task: tokio::task::JoinHandle<()>,
    leave: CancellationToken,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave.cancel();
    }
}

impl Membership {
    /// Takes the name. `tag` is the data directory's own: a lease that it holds is from
    /// an earlier life of this node, since only one process has the directory, and need
    /// not be waited for.
    ///
    /// # Errors
    /// `NODE_NAME_TAKEN` when another data directory holds it for longer than a dead
    /// node could; what the broker says otherwise.
    pub(crate) async fn join(
        leases: Arc<dyn Leases>,
        node: &NodeId,
        tag: &NodeId,
        alert: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, Fault> {
        let name = lease_name(node);
        let lease = first(&*leases, &name, node, tag).await?;
        let leave = CancellationToken::new();
        let keeper = Keeper {
            leases,
            name,
            tag: tag.clone(),
            alert: Box::new(alert),
        };
        let task = tokio::spawn(keeper.run(lease, leave.clone()));
        Ok(Self { task, leave })
    }

    /// Gives the name back.
    pub(crate) async fn leave(mut self) {
        self.leave.cancel();
        // A broker that is away keeps the name until it lapses.
        let _ = tokio::time::timeout(Duration::from_secs(2), &mut self.task).await;
    }
}

/// The lease of a node's name.
pub(crate) fn lease_name(node: &NodeId) -> String {
    format!("node-{node}")
}

async fn first(
    leases: &dyn Leases,
    name: &str,
    node: &NodeId,
    tag: &NodeId,
) -> Result<Option<Lease>, Fault> {
    let began = Instant::now();
    loop {
        match leases.acquire(name, tag, TTL).await? {
            Ok(lease) => return Ok(Some(lease)),
            Err(holder) if holder == *tag => return Ok(None),
            Err(_) if began.elapsed() < TTL + TTL / 2 => tokio::time::sleep(PAUSE).await,
            Err(holder) => {
                let message = format!("node {node} runs elsewhere (data directory {holder})");
                return Err(Fault::new(Code::NodeNameTaken, message).at("node.name"));
            }
        }
    }
}

struct Keeper {
    leases: Arc<dyn Leases>,
    name: String,
    tag: NodeId,
    alert: Box<dyn Fn(String) + Send + Sync>,
}

impl Keeper {
    async fn run(self, mut lease: Option<Lease>, leave: CancellationToken) {
        loop {
            let pause = match lease {
                Some(_) => TTL / 3,
                None => PAUSE,
            };
            tokio::select! {
                biased;
                () = leave.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            lease = self.keep(lease).await;
        }
        if let Some(lease) = lease
            && let Err(fault) = self.leases.release(&lease).await
        {
            tracing::debug!(%fault, "the node's name lapses by itself");
        }
    }

    async fn keep(&self, lease: Option<Lease>) -> Option<Lease> {
        let kept = match &lease {
            Some(held) => self.leases.renew(held, TTL).await,
            None => Ok(None),
        };
        match kept {
            Ok(Some(renewed)) => return Some(renewed),
            Ok(None) => {}
            // Not known whether it is still held: the next try shows it.
            Err(_) => return lease,
        }
        match self.leases.acquire(&self.name, &self.tag, TTL).await {
            Ok(Ok(lease)) => Some(lease),
            Ok(Err(holder)) if holder != self.tag => {
                (self.alert)(format!("data directory {holder} took the name"));
                None
            }
            _ => None,
        }
    }
}
