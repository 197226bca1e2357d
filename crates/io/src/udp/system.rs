//! What Linux has for UDP: many messages a system call, buffers beyond the limit, control of
//! fragments, steering by core, a count of drops.

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::ptr;

use libc::{c_int, c_uint, in_addr, in_pktinfo};

use super::options::{Fragments, UdpOptions};
use crate::socket::{get_option, set_option};

/// The header of a message, and its length.
pub(super) use libc::mmsghdr;

/// Receives waiting messages by one system call, and returns their number, or -1 and `errno`.
///
/// # Safety
/// Each header points to memory that the caller borrows alone, of at least the lengths that it
/// states.
pub(super) unsafe fn receive(socket: RawFd, headers: &mut [mmsghdr]) -> c_int {
    // MSG_TRUNC returns the true length of a message that is too long.
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let (first, count) = (headers.as_mut_ptr(), headers.len() as c_uint);
    // SAFETY: the contract; `count` headers are there.
    unsafe { libc::recvmmsg(socket, first, count, flags as _, ptr::null_mut()) }
}

/// Sends messages by one system call until one is refused, and returns how many were sent, or -1
/// and `errno`.
///
/// # Safety
/// As for [`receive`].
pub(super) unsafe fn send(socket: RawFd, headers: &mut [mmsghdr]) -> c_int {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (first, count) = (headers.as_mut_ptr(), headers.len() as c_uint);
    // SAFETY: the contract; `count` headers are there.
    unsafe { libc::sendmmsg(socket, first, count, flags as _) }
}

/// The address to respond from: for broadcasts that of the interface.
pub(super) fn own_end(info: &in_pktinfo) -> in_addr {
    info.ipi_spec_dst
}

/// Messages that the kernel has dropped since the socket was made.
pub(super) fn drops(socket: &impl AsFd) -> io::Result<u32> {
    let mut values = [0; libc::SK_MEMINFO_DROPS as usize + 1];
    let count = get_option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut values)?;
    match values.get(..count).and_then(|values| values.get(libc::SK_MEMINFO_DROPS as usize)) {
        Some(drops) => Ok(*drops as u32),
        None => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Sets all options except `sharing`, which takes effect around `bind`.
pub(super) fn apply(
    socket: &impl AsFd,
    v4: bool,
    reports_local: bool,
    options: &UdpOptions,
) -> io::Result<()> {
    if let Some(bytes) = options.receive_buffer_bytes {
        set_buffer(socket, bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
    }
    if let Some(bytes) = options.send_buffer_bytes {
        set_buffer(socket, bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
    }
    let (level, local, discover) = match v4 {
        true => (libc::IPPROTO_IP, libc::IP_PKTINFO, libc::IP_MTU_DISCOVER),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, libc::IPV6_MTU_DISCOVER),
    };
    if reports_local {
        set_option(socket, level, local, &1)?;
    }
    let discovery = match (options.fragments, v4) {
        (Fragments::System, _) => return Ok(()),
        (Fragments::Omit, true) => libc::IP_PMTUDISC_OMIT,
        (Fragments::Omit, false) => libc::IPV6_PMTUDISC_OMIT,
        (Fragments::Never, true) => libc::IP_PMTUDISC_PROBE,
        (Fragments::Never, false) => libc::IPV6_PMTUDISC_PROBE,
    };
    set_option(socket, level, discover, &discovery)
}

/// Requests a buffer beyond the system's limit, or within it if that is not permitted.
fn set_buffer(socket: &impl AsFd, bytes: usize, force: c_int, soft: c_int) -> io::Result<()> {
    // The kernel doubles it.
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
    set_option(socket, libc::SOL_SOCKET, force, &bytes)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, soft, &bytes))
}

/// Attaches a program that gives a packet to the socket of its core:
///
/// ```text
/// A = number of this core
/// if A == cores[0] return 0
/// if A == cores[1] return 1
/// ...
/// return A mod count
/// ```
pub(super) fn steer_by_core(socket: &impl AsFd, cores: &[usize]) -> io::Result<()> {
    let too_many = || io::Error::from(io::ErrorKind::InvalidInput);
    let count = u32::try_from(cores.len()).ok().filter(|count| *count > 0).ok_or_else(too_many)?;
    let step = |code: u32, jump_false: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, cpu)];
    for (index, core) in (0..count).zip(cores) {
        let core = u32::try_from(*core).map_err(|_| too_many())?;
        program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, core));
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, index));
    }
    program.push(step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, count));
    program.push(step(libc::BPF_RET | RETURN_A, 0, 0));
    // The kernel takes 4,096 steps at most, and returns an error above.
    let len = u16::try_from(program.len()).map_err(|_| too_many())?;
    // `program` outlives the call, in which the kernel copies it.
    let fprog = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &fprog)
}

/// `BPF_A`: the returned value is the accumulator's.
const RETURN_A: u32 = 0x10;
