//! How UDP sockets are set up: buffers, fragments, ports, steering.

use std::io;
use std::os::fd::AsFd;

use libc::c_int;

use crate::random::Random;
use crate::socket::{Sharing, set_option};

/// How a socket is set up.
#[derive(Debug, Clone)]
pub struct UdpOptions {
    /// Whether several sockets may be bound to one address. The kernel spreads messages over them.
    pub sharing: Sharing,
    /// Bytes of messages that may wait to be received; `None` is the system's default. Only a
    /// process with `CAP_NET_ADMIN` gets more than `net.core.rmem_max`; others get that much.
    pub receive_buffer_bytes: Option<usize>,
    /// Bytes of messages that may wait to be sent, limited in the same way by `net.core.wmem_max`.
    pub send_buffer_bytes: Option<usize>,
    /// How to handle messages that are too long for the path.
    pub fragments: Fragments,
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions {
            sharing: Sharing::Alone,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            fragments: Fragments::Omit,
        }
    }
}

/// Handling of messages that are longer than a packet may be. RFC 9715 recommends that DNS servers
/// stay below 1,400 bytes, which avoids this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fragments {
    /// Path MTU discovery by the system, which trusts ICMP messages: a forged one makes us
    /// fragment, and fragments can be poisoned.
    System,
    /// ICMP messages about the path are ignored; only messages that the interface itself cannot
    /// carry are fragmented. `IP_PMTUDISC_OMIT`.
    #[default]
    Omit,
    /// Nothing is fragmented either, here or on the way. A message that is too long for the
    /// interface is not sent (`EMSGSIZE`), and one that is too long for the path is lost.
    /// `IP_PMTUDISC_PROBE`.
    Never,
}

/// Ports that source ports are drawn from, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// All but those that only privileged servers may have.
    pub const UNPRIVILEGED: Ports = Ports { first: 1024, last: u16::MAX };

    /// From `first` to `last`; `None` if the range is empty, or has 0, which means any port.
    pub fn new(first: u16, last: u16) -> Option<Ports> {
        (1 <= first && first <= last).then_some(Ports { first, last })
    }

    pub(super) fn draw(self, random: &mut Random) -> io::Result<u16> {
        let count = u32::from(self.last - self.first) + 1;
        // Below `count`, which is at most 2^16 - first.
        Ok(self.first + random.below(count)? as u16)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Drawn ports stay in their range and reach its ends, and invalid ranges cannot be made.
    #[test]
    fn ports_stay_in_range() {
        let mut random = Random::new();
        let ports = Ports::new(65533, 65535).unwrap();
        let drawn: std::collections::BTreeSet<u16> =
            (0..200).map(|_| ports.draw(&mut random).unwrap()).collect();
        assert_eq!(drawn, (65533..=65535).collect());
        assert!((0..200).all(|_| Ports::UNPRIVILEGED.draw(&mut random).unwrap() >= 1024));
        assert_eq!((Ports::new(0, 9), Ports::new(9, 8)), (None, None));
        assert_eq!(Ports::new(1, 65535).map(|ports| ports.last), Some(65535));
    }
}
