//! Leases in memory. Hints only, so no fault is worth drawing here but the crash.

use super::{LeaseTable, Port, lock};
use async_trait::async_trait;
use detent_bus::{Lease, Leases};
use detent_protocol::{Fault, NodeId};
use std::time::Duration;
use tokio::time::Instant;

impl LeaseTable {
    fn hold(&mut self, name: &str, holder: &NodeId, ttl: Duration) -> Lease {
        self.revision += 1;
        let lease = Lease {
            name: name.to_owned(),
            holder: holder.clone(),
            revision: self.revision,
        };
        let until = Instant::now().checked_add(ttl);
        self.held.insert(name.to_owned(), (lease.clone(), until));
        lease
    }

    fn live(&self, name: &str) -> Option<&Lease> {
        let (lease, until) = self.held.get(name)?;
        until.is_none_or(|u| Instant::now() < u).then_some(lease)
    }
}

#[async_trait]
impl Leases for Port {
    async fn acquire(
        &self,
        name: &str,
        holder: &NodeId,
        ttl: Duration,
    ) -> Result<Result<Lease, NodeId>, Fault> {
        self.point("lease").await;
        let mut table = lock(&self.fabric.leases);
        if let Some(held) = table.live(name) {
            return Ok(Err(held.holder.clone()));
        }
        Ok(Ok(table.hold(name, holder, ttl)))
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Option<Lease>, Fault> {
        self.point("lease renewed").await;
        let mut table = lock(&self.fabric.leases);
        if table.live(&lease.name) != Some(lease) {
            return Ok(None);
        }
        Ok(Some(table.hold(&lease.name, &lease.holder, ttl)))
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.point("lease released").await;
        let mut table = lock(&self.fabric.leases);
        if table.live(&lease.name) == Some(lease) {
            table.held.remove(&lease.name);
        }
        Ok(())
    }

    async fn held(&self, prefix: &str) -> Result<Vec<Lease>, Fault> {
        self.life.alive().await;
        let table = lock(&self.fabric.leases);
        let names = table.held.range(prefix.to_owned()..);
        let names = names.take_while(|(name, _)| name.starts_with(prefix));
        Ok(names
            .filter_map(|(name, _)| table.live(name).cloned())
            .collect())
    }
}
