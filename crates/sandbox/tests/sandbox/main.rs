//! The sandbox level with real processes.

#![cfg(target_os = "linux")]

mod basics;
mod degraded;
mod leftovers;
mod support;
mod work;
