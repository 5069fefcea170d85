//! Leases of one process, in memory: they end with it, as the names' holders do.

use crate::{Lease, Leases};
use async_trait::async_trait;
use detent_protocol::{Code, Fault, NodeId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Longest name of a lease, bytes.
const NAME_BYTES_MAX: usize = 512;

/// Names and who holds them, on tokio's clock.
pub(crate) struct LocalLeases {
    leases_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the last change to any name.
    revision: u64,
    held: BTreeMap<String, Held>,
}

struct Held {
    lease: Lease,
    /// `None`: so far away that the clock can't say it.
    until: Option<Instant>,
}

impl Held {
    fn is_live(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl LocalLeases {
    pub(crate) fn new(leases_max: usize) -> Self {
        Self {
            leases_max,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one insert or remove: a panic can't leave it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_room(&self, state: &mut State, now: Instant) -> Result<(), Fault> {
        if state.held.len() < self.leases_max {
            return Ok(());
        }
        state.held.retain(|_, held| held.is_live(now));
        if state.held.len() < self.leases_max {
            return Ok(());
        }
        let text = format!("{} leases are held, the most there may be", self.leases_max);
        Err(Fault::new(Code::IntakeOverloaded, text))
    }
}

impl State {
    fn hold(&mut self, name: &str, holder: &NodeId, until: Option<Instant>) -> Lease {
        self.revision += 1;
        let lease = Lease {
            name: name.to_owned(),
            holder: holder.clone(),
            revision: self.revision,
        };
        let held = Held {
            lease: lease.clone(),
            until,
        };
        self.held.insert(lease.name.clone(), held);
        lease
    }

    /// Does `lease` still stand as it was given?
    fn stands(&self, lease: &Lease, now: Instant) -> bool {
        let held = self.held.get(&lease.name);
        held.is_some_and(|held| held.lease == *lease && held.is_live(now))
    }
}

#[async_trait]
impl Leases for LocalLeases {
    async fn acquire(
        &self,
        name: &str,
        holder: &NodeId,
        ttl: Duration,
    ) -> Result<Result<Lease, NodeId>, Fault> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let text = format!("a lease's name has 1 to {NAME_BYTES_MAX} bytes");
            return Err(Fault::new(Code::InputInvalid, text));
        }
        let now = Instant::now();
        let mut state = self.state();
        match state.held.get(name) {
            Some(held) if held.is_live(now) => return Ok(Err(held.lease.holder.clone())),
            Some(_) => {}
            None => self.check_room(&mut state, now)?,
        }
        Ok(Ok(state.hold(name, holder, now.checked_add(ttl))))
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Option<Lease>, Fault> {
        let now = Instant::now();
        let mut state = self.state();
        if !state.stands(lease, now) {
            return Ok(None);
        }
        Ok(Some(state.hold(
            &lease.name,
            &lease.holder,
            now.checked_add(ttl),
        )))
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        let mut state = self.state();
        if state.stands(lease, Instant::now()) {
            state.held.remove(&lease.name);
        }
        Ok(())
    }

    async fn held(&self, prefix: &str) -> Result<Vec<Lease>, Fault> {
        let now = Instant::now();
        let state = self.state();
        Ok(state
            .held
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .filter(|(_, held)| held.is_live(now))
            .map(|(_, held)| held.lease.clone())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_number_of_leases_is_bounded_and_lapsed_ones_make_room() {
        let leases = LocalLeases::new(2);
        let node = NodeId::new("n").unwrap();
        let long = Duration::from_secs(3600);
        let acquire = async |name: &str, ttl| leases.acquire(name, &node, ttl).await;
        let lapsed = Duration::ZERO;
        acquire("a", long).await.unwrap().unwrap();
        acquire("b", lapsed).await.unwrap().unwrap();
        acquire("c", long).await.unwrap().unwrap();
        let full = acquire("d", long).await.unwrap_err();
        assert_eq!(full.code, Code::IntakeOverloaded);
        // A name that is held is answered, not refused for want of room.
        assert_eq!(acquire("a", long).await.unwrap(), Err(node.clone()));
    }
}
