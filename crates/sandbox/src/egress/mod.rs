//! The way out of a sandbox that has one: a proxy outside, reached through a listening
//! socket that was made inside and handed over. It promises that a name which is not
//! allowed is not even resolved, and that the address which was checked is the one that
//! is connected. It must not know what runs in the sandbox.

mod address;
mod proxy;
mod request;
mod rules;

pub use proxy::{EgressLog, EgressVerdict};
pub(crate) use proxy::{Proxy, SystemResolver};
pub use rules::Rules;

/// Where in its own network namespace a sandboxed program finds the proxy.
pub(crate) const PROXY_PORT: u16 = 3128;
