//! How UDP sockets are set up: buffers, fragments, ports.

use std::io;

use crate::random::Random;
use crate::socket::Sharing;

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
/// stay below 1,400 bytes, which avoids this. Without effect on systems other than Linux, which all
/// act as for [`Fragments::System`].
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
