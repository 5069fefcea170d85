//! Turns names into addresses through the system's resolver, with an error of its own
//! type: otherwise a name without an address looks like any failed connection.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A name has no address.
#[derive(Debug, thiserror::Error)]
#[error("the name has no address")]
pub(crate) struct DnsFailed;

pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The port is filled in by the connector.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            let addresses: Vec<_> = found.map_err(|_| DnsFailed)?.collect();
            if addresses.is_empty() {
                return Err(DnsFailed.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
