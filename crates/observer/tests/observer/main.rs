//! Probes against the real things, and the observer on a real bus.

mod bus;
mod claims;
mod file;
mod http;
mod life;
mod process;
mod sql;
mod support;
