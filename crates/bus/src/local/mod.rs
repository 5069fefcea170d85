//! One process.
