//! Who may do what, with the very file that operators take: `cluster/nats/users.conf`.
//! Whatever a role must not do is tried.

#[path = "../support/mod.rs"]
mod support;

mod node;
mod operator;
mod publisher;
mod replies;
mod world;
