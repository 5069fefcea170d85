//! Keeps compiled contracts: the same expectation is judged again and again.

use detent_protocol::Fault;
use detent_protocol::contract::Contract;
use detent_protocol::json::Digest;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Most contracts that are kept; the one that was not used for longest goes first.
pub(crate) const CONTRACTS_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Contracts {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_schema: HashMap<Digest, (Contract, u64)>,
    uses: u64,
}

impl Contracts {
    /// The contract of a schema.
    pub(crate) fn get(&self, schema: &Value) -> Result<Contract, Fault> {
        let digest = Digest::of_json(schema);
        if let Some(contract) = self.lock().find(&digest) {
            return Ok(contract);
        }
        // Outside the lock: it may take long, and doing it twice does no harm.
        let contract = Contract::compile(schema)?;
        self.lock().keep(digest, contract.clone());
        Ok(contract)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        // Nothing panics in there; and if, the map is still a map.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn find(&mut self, digest: &Digest) -> Option<Contract> {
        self.uses += 1;
        let (contract, used) = self.by_schema.get_mut(digest)?;
        *used = self.uses;
        Some(contract.clone())
    }

    fn keep(&mut self, digest: Digest, contract: Contract) {
        if self.by_schema.len() >= CONTRACTS_MAX {
            let oldest = self.by_schema.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                self.by_schema.remove(&oldest);
            }
        }
        self.by_schema.insert(digest, (contract, self.uses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let contracts = Contracts::default();
        let often = json!({"const": "often"});
        for n in 0..2 * CONTRACTS_MAX {
            contracts.get(&often).unwrap();
            let contract = contracts.get(&json!({"const": n})).unwrap();
            assert!(contract.accepts(&json!(n)) && !contract.accepts(&json!("often")));
        }
        let kept = contracts.lock();
        assert_eq!(kept.by_schema.len(), CONTRACTS_MAX);
        assert!(kept.by_schema.contains_key(&Digest::of_json(&often)));
        assert!(
            !kept
                .by_schema
                .contains_key(&Digest::of_json(&json!({"const": 0})))
        );
    }

    #[test]
    fn what_does_not_compile_is_not_kept() {
        let contracts = Contracts::default();
        assert!(contracts.get(&json!({"type": "nothing"})).is_err());
        assert!(contracts.lock().by_schema.is_empty());
    }
}
