//! The attack suite: each case is tried for real and has to come out as expected, from a
//! helper that is root and from one that is nobody. `cargo xtask attack` runs and counts
//! it; a case writes its verdict only when it passed.
//!
//! The attacks themselves are in `attacker.py`; system calls there are x86_64's.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod arena;
mod files;
mod kernel;
mod network;
mod resources;
