//! The generator of Linux: `getrandom`.

use std::io;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills bytes from the start, and returns how many.
pub(super) fn random(bytes: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()))?)
}
