//! The sandbox level with real processes.

#![cfg(target_os = "linux")]

mod basics;
mod degraded;
mod fuzz;
mod leftovers;
mod support;
mod work;
