//! Cores, where threads cannot be pinned: the system moves them.

use std::io;

/// Most cores that a set can name.
pub const CORES_MAX: usize = 8192;

/// As many numbers as threads can run at once.
pub fn available_cores() -> io::Result<Vec<usize>> {
    Ok((0..std::thread::available_parallelism()?.get()).collect())
}

/// Fails with `Unsupported`: run unpinned.
pub fn pin_to_core(_: usize) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "pinning threads to cores needs Linux"))
}

/// Fails with `Unsupported`: other systems have one priority for all threads of a process.
pub fn lower_priority() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "priorities of threads need Linux"))
}
