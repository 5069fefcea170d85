//! The crate is tests only.
