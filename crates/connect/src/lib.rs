//! How other systems are reached: one client for each way of asking.
//!
//! | module | asks |
//! |---|---|
//! | [`http`] | a web server, over HTTP/1.1, with or without TLS |
//! | [`sql`] | a SQLite database, read only |
//!
//! Promises: every call ends by its deadline, whatever the other side does; every
//! answer has a bound on its size; what goes wrong is told apart by type, so that
//! "the system is down" is never taken for "the thing is not there"; no error text
//! holds a password or the query part of an address.
//!
//! Must never know: goals, plans, tools, probes, the bus.

pub mod http;
pub mod sql;
