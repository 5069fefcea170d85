//! The `detent` binary.
fn main() {}
