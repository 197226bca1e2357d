//! TCP without what only Linux has: no deferred accepting, no Fast Open, no `MSG_MORE`, no
//! `sendfile` as Linux has it (each system has another). The first three only spare packets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libc::c_int;

use super::{ConnectOptions, write};

/// No flag: each send may be a packet.
pub(super) const MORE: c_int = 0;

/// Bytes of a file that are copied at a time.
const PIECE_BYTES: usize = 16 << 10;

/// Accepts at once, and without Fast Open, whatever the options are.
pub(super) fn before_listen(_: &OwnedFd, _: c_int, _: c_int) -> io::Result<()> {
    Ok(())
}

/// Connects without Fast Open.
pub(super) fn before_connect(_: &OwnedFd, _: &ConnectOptions) -> io::Result<()> {
    Ok(())
}

/// Sends at most `bytes` bytes of a file from `offset` on, and returns their number: one piece of
/// [`PIECE_BYTES`] at most, which is copied. 0: the file ends there. The socket must be
/// non-blocking; the file's own position is neither used nor moved.
pub fn send_file(
    socket: &impl AsFd,
    file: &impl AsFd,
    offset: u64,
    bytes: usize,
) -> io::Result<usize> {
    // As for `sendfile`, which takes a signed offset.
    i64::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut piece = [0; PIECE_BYTES];
    let wanted = &mut piece[..bytes.min(PIECE_BYTES)];
    let count = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *wanted, offset))?;
    if count == 0 {
        return Ok(0);
    }
    write(socket, &piece[..count])
}
