//! What Linux has for TCP beyond other systems.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::c_int;

use super::ConnectOptions;
use super::transfer::again_if_interrupted;
use crate::socket::set_option;

/// Flag of a send: more follows at once.
pub(super) const MORE: c_int = libc::MSG_MORE;

/// Sets options of a listener that take effect before it listens; 0: not.
pub(super) fn before_listen(
    socket: &OwnedFd,
    defer_accept_s: c_int,
    fast_open: c_int,
) -> io::Result<()> {
    if defer_accept_s > 0 {
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &defer_accept_s)?;
    }
    if fast_open > 0 {
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &fast_open)?;
    }
    Ok(())
}

/// Sets options of a socket that take effect before it has an address of its own.
pub(super) fn before_connect(socket: &OwnedFd, options: &ConnectOptions) -> io::Result<()> {
    if options.fast_open {
        set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &1)?;
    }
    if options.local.is_some() {
        // The port is chosen when the peer is known: the same one may serve towards many peers.
        set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1)?;
    }
    Ok(())
}

/// Sends at most `bytes` bytes of a file from `offset` on, by their pages and without a copy, and
/// returns their number. 0: the file ends there. The socket must be non-blocking; the file's own
/// position is neither used nor moved.
///
/// The peer receives what the pages contain when the kernel reads them, not what they contained at
/// the call: do not write pages again while it may read them. Punching a hole is allowed, since it
/// takes the pages from the file and leaves them to the socket.
pub fn send_file(
    socket: &impl AsFd,
    file: &impl AsFd,
    offset: u64,
    bytes: usize,
) -> io::Result<usize> {
    let (to, from) = (socket.as_fd().as_raw_fd(), file.as_fd().as_raw_fd());
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut offset = libc::off64_t::try_from(offset).map_err(too_far)?;
    again_if_interrupted(|| {
        // SAFETY: both descriptors are open while they are borrowed; the kernel reads and writes
        // `offset`.
        unsafe { libc::sendfile64(to, from, &raw mut offset, bytes) }
    })
}
