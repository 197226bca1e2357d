//! Networks of one's own need Linux.

use std::io;

/// Fails with `Unsupported`.
pub fn enter_private_network() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "a network namespace needs Linux"))
}

/// Fails with `Unsupported`.
pub fn set_congestion_control(_: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "a network namespace needs Linux"))
}
