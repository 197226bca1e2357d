//! Sockets as Linux makes them: non-blocking and closed by `exec` from the start, without a second
//! system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::c_int;

use super::{RawAddress, get_int, owned};

/// A new socket, non-blocking and closed by `exec`.
pub(super) fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes integers only; what it makes is ours.
    unsafe { owned(libc::socket(family, kind, 0)) }
}

/// The next connection that waits, non-blocking and closed by `exec`, and its peer.
pub(crate) fn accept(listener: &impl AsFd) -> io::Result<(OwnedFd, RawAddress)> {
    let fd = listener.as_fd().as_raw_fd();
    let mut peer = RawAddress::EMPTY;
    let mut length = RawAddress::BYTES;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes at most `length` bytes to `peer`, which has that many; the
    // descriptor that it makes is ours.
    let socket =
        unsafe { owned(libc::accept4(fd, (&raw mut peer).cast(), &raw mut length, flags)) }?;
    Ok((socket, peer))
}

/// The address family of a socket.
pub(super) fn family(socket: &impl AsFd) -> io::Result<c_int> {
    get_int(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)
}
