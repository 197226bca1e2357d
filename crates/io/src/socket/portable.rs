//! Sockets where `socket` and `accept` take no flags: a second and a third system call make each
//! non-blocking and closed by `exec`. A program that another thread starts in between inherits the
//! socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::c_int;
use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};

use super::{RawAddress, check, owned};

/// A new socket, non-blocking and closed by `exec`.
pub(super) fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only; what it makes is ours.
    set_up(unsafe { owned(libc::socket(family, kind, 0)) }?)
}

/// The next connection that waits, non-blocking and closed by `exec`, and its peer.
pub(crate) fn accept(listener: &impl AsFd) -> io::Result<(OwnedFd, RawAddress)> {
    let fd = listener.as_fd().as_raw_fd();
    let mut peer = RawAddress::EMPTY;
    let mut length = RawAddress::BYTES;
    // SAFETY: the kernel writes at most `length` bytes to `peer`, which has that many; the
    // descriptor that it makes is ours.
    let socket = unsafe { owned(libc::accept(fd, (&raw mut peer).cast(), &raw mut length)) }?;
    Ok((set_up(socket)?, peer))
}

fn set_up(socket: OwnedFd) -> io::Result<OwnedFd> {
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// The address family of a socket, by its own address.
pub(super) fn family(socket: &impl AsFd) -> io::Result<c_int> {
    let fd = socket.as_fd().as_raw_fd();
    let mut raw = RawAddress::EMPTY;
    let mut length = RawAddress::BYTES;
    // SAFETY: the kernel writes at most `length` bytes to `raw`, which has that many and may hold
    // any.
    check(unsafe { libc::getsockname(fd, (&raw mut raw).cast(), &raw mut length) })?;
    Ok(c_int::from(raw.0.sin6_family))
}
