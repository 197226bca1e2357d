//! The generator of other systems: `getentropy`.

use std::io;

use crate::socket::check;

/// Most bytes of a call.
const CALL_BYTES: usize = 256;

/// Fills bytes from the start, and returns how many.
pub(super) fn random(bytes: &mut [u8]) -> io::Result<usize> {
    let count = bytes.len().min(CALL_BYTES);
    // SAFETY: the system writes `count` bytes at the start of `bytes`, which has as many.
    check(unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), count) })?;
    Ok(count)
}
