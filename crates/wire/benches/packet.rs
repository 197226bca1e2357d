//! Placeholder replaced by the packet bench.
fn main() {}
