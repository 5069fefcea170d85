//! JSON Schemas of what publishers, operators and actors say, made from the Rust types.
//!
//! What it is for: `docs/reference/api` is written from it, and tests hold it against
//! real messages ([`check`]).
//!
//! Promises: the same types give the same text. A schema of what a node *reads* asks for
//! no more than the reader does; one of what a node *says* holds for every message of
//! this version. No schema refers to anything outside itself. Only keywords that mean the
//! same in drafts 07 and 2020-12 are used, so that tools of either can read them.
//!
//! Must not know: where the schemas are written, and how messages travel.

mod catalog;
mod channels;
mod check;
mod impls;
mod polish;

pub use catalog::{Form, Shape, names, shape_of};
pub use channels::{CHANNELS, Channel, Exchange, Way, channel_of};
pub use check::{check, json_of};

use serde_json::Value;

/// The schema of everything that is written with this name: a kind of message
/// (`submit`, with its envelope), an answer (`accepted`, as `{"ok": …}` or
/// `{"fault": …}`), or a part (`fault`). `None` where nothing has this name; [`names`]
/// lists them.
pub fn schema_of(name: &str) -> Option<Value> {
    shape_of(name).map(Shape::schema)
}
