//! UDP where each message is a system call. Buffers are limited by the system, which also decides
//! about fragments; drops are not counted, and messages are not steered to cores.

use std::io;
use std::os::fd::{AsFd, RawFd};

use libc::{c_int, c_uint, in_addr, in_pktinfo, msghdr};

use super::options::UdpOptions;
use crate::socket::set_option;

/// The header of a message, and its length: as Linux has it.
#[derive(Clone, Copy)]
#[expect(non_camel_case_types, reason = "the name on Linux")]
pub(super) struct mmsghdr {
    pub msg_hdr: msghdr,
    pub msg_len: c_uint,
}

/// Receives waiting messages, one after the other, and returns their number, or -1 and `errno` if
/// there is no first one.
///
/// # Safety
/// Each header points to memory that the caller borrows alone, of at least the lengths that it
/// states.
pub(super) unsafe fn receive(socket: RawFd, headers: &mut [mmsghdr]) -> c_int {
    each(headers, |header| {
        let message = &raw mut header.msg_hdr;
        // SAFETY: the contract.
        let length = unsafe { libc::recvmsg(socket, message, libc::MSG_DONTWAIT) };
        let is_cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        header.msg_len = length as c_uint + c_uint::from(is_cut && length >= 0);
        length
    })
}

/// Sends messages, one after the other, until one is refused, and returns how many were sent, or -1
/// and `errno` if none was.
///
/// # Safety
/// As for [`receive`].
pub(super) unsafe fn send(socket: RawFd, headers: &mut [mmsghdr]) -> c_int {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    each(headers, |header| {
        // SAFETY: the contract.
        unsafe { libc::sendmsg(socket, &raw const header.msg_hdr, flags) }
    })
}

/// Calls `call` until it fails, and returns how often it succeeded, or -1. An error behind messages
/// that were sent or received is met again by the next call, unless the system reports it once: of
/// an earlier message that was refused.
fn each(headers: &mut [mmsghdr], mut call: impl FnMut(&mut mmsghdr) -> isize) -> c_int {
    let failed = headers.iter_mut().position(|header| call(header) < 0);
    match failed {
        Some(0) => -1,
        Some(done) => done as c_int,
        None => headers.len() as c_int,
    }
}

/// The address to respond from. Some systems leave `ipi_spec_dst` empty; then it is the destination
/// of the message.
pub(super) fn own_end(info: &in_pktinfo) -> in_addr {
    if info.ipi_spec_dst.s_addr == 0 { info.ipi_addr } else { info.ipi_spec_dst }
}

/// Drops are not counted for each socket.
pub(super) fn drops(_: &impl AsFd) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sets all options except `sharing`, which takes effect around `bind`. A buffer beyond the
/// system's limit gets the default.
pub(super) fn apply(
    socket: &impl AsFd,
    v4: bool,
    reports_local: bool,
    options: &UdpOptions,
) -> io::Result<()> {
    let buffers = [
        (options.receive_buffer_bytes, libc::SO_RCVBUF),
        (options.send_buffer_bytes, libc::SO_SNDBUF),
    ];
    for (bytes, name) in buffers {
        if let Some(bytes) = bytes {
            let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
            // macOS refuses what is beyond the limit, where Linux gives as much as it may.
            let _ = set_option(socket, libc::SOL_SOCKET, name, &bytes);
        }
    }
    let (level, local) = match v4 {
        true => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    if reports_local {
        set_option(socket, level, local, &1)?;
    }
    Ok(())
}

/// Steering needs Linux.
pub(super) fn steer_by_core(_: &impl AsFd, _: &[usize]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
