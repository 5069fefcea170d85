//! The sandbox level with real processes.

mod basics;
mod support;
