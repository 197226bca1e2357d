//! Community ID v1: a hash of a flow's 5-tuple that other tools compute in the same way, so that
//! their logs can be joined (<https://github.com/corelight/community-id-spec>).
//!
//! Both directions of a flow have the same ID: the smaller (address, port) end is first. ICMP has
//! no ports; its type and the type of the response replace them. A type without a response gives a
//! one-way flow, whose ends are not swapped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::Addr;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// The ID of the flow between two ends, `1:` and 28 characters of base64.
///
/// For ICMP and ICMPv6 the ports are type and code, as in [`crate::packet::Packet`]. Protocols
/// other than TCP, UDP, SCTP and these two have no ports in the ID. `seed` distinguishes the IDs of
/// sites; 0 is usual.
pub fn v1(src: Addr, dst: Addr, src_port: u16, dst_port: u16, protocol: u8, seed: u16) -> String {
    let ends = Ends::of(src, dst, src_port, dst_port, protocol);
    let mut hash = Sha1::new();
    hash.update(seed.to_be_bytes());
    hash.update(ends.first.octets());
    hash.update(ends.second.octets());
    hash.update([protocol, 0]);
    if let Some((first_port, second_port)) = ends.ports {
        hash.update(first_port.to_be_bytes());
        hash.update(second_port.to_be_bytes());
    }
    let mut text = String::with_capacity(30);
    text.push_str("1:");
    STANDARD.encode_string(hash.finalize(), &mut text);
    text
}

/// The two ends in the order in which they are hashed.
struct Ends {
    first: Addr,
    second: Addr,
    ports: Option<(u16, u16)>,
}

impl Ends {
    fn of(src: Addr, dst: Addr, src_port: u16, dst_port: u16, protocol: u8) -> Ends {
        let (ports, one_way) = match protocol {
            TCP | UDP | SCTP => (Some((src_port, dst_port)), false),
            ICMP | ICMPV6 => {
                let answer = u8::try_from(src_port)
                    .ok()
                    .and_then(|kind| icmp_counterpart(protocol == ICMPV6, kind));
                let second = answer.map_or(dst_port, u16::from);
                (Some((src_port, second)), answer.is_none())
            }
            _ => (None, false),
        };
        let turn = match ports {
            Some((src_port, dst_port)) => (dst, dst_port) < (src, src_port),
            None => dst < src,
        };
        if turn && !one_way {
            Ends { first: dst, second: src, ports: ports.map(|(a, b)| (b, a)) }
        } else {
            Ends { first: src, second: dst, ports }
        }
    }
}

/// The ICMP (or ICMPv6) type of the response to `kind`, or of its request; `None` for messages
/// without a counterpart. Zeek pairs messages into flows by the same table.
pub const fn icmp_counterpart(v6: bool, kind: u8) -> Option<u8> {
    Some(match (v6, kind) {
        // Echo.
        (false, 8) => 0,
        (false, 0) => 8,
        // Router advertisement and solicitation.
        (false, 9) => 10,
        (false, 10) => 9,
        // Timestamp.
        (false, 13) => 14,
        (false, 14) => 13,
        // Information.
        (false, 15) => 16,
        (false, 16) => 15,
        // Address mask.
        (false, 17) => 18,
        (false, 18) => 17,
        // Echo.
        (true, 128) => 129,
        (true, 129) => 128,
        // Multicast listener query and report.
        (true, 130) => 131,
        (true, 131) => 130,
        // Router solicitation and advertisement.
        (true, 133) => 134,
        (true, 134) => 133,
        // Neighbor solicitation and advertisement.
        (true, 135) => 136,
        (true, 136) => 135,
        // Node information.
        (true, 139) => 140,
        (true, 140) => 139,
        // Home agent address discovery.
        (true, 144) => 145,
        (true, 145) => 144,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn id(src: &str, dst: &str, src_port: u16, dst_port: u16, protocol: u8, seed: u16) -> String {
        let addr = |text: &str| Addr::from(text.parse::<IpAddr>().expect("a literal address"));
        v1(addr(src), addr(dst), src_port, dst_port, protocol, seed)
    }

    /// Gives the values that the specification's baseline publishes, in both directions and with a
    /// seed.
    #[test]
    fn published_values() {
        let tcp = "1:LQU9qZlK+B5F3KDmev6m5PMibrg=";
        assert_eq!(id("128.232.110.120", "66.35.250.204", 34855, 80, TCP, 0), tcp);
        assert_eq!(id("66.35.250.204", "128.232.110.120", 80, 34855, TCP, 0), tcp);
        let seeded = "1:3V71V58M3Ksw/yuFALMcW0LAHvc=";
        assert_eq!(id("128.232.110.120", "66.35.250.204", 34855, 80, TCP, 1), seeded);
        let udp = "1:d/FP5EW3wiY1vCndhwleRRKHowQ=";
        assert_eq!(id("192.168.1.52", "8.8.8.8", 54585, 53, UDP, 0), udp);
        let sctp = "1:jQgCxbku+pNGw8WPbEc/TS/uTpQ=";
        assert_eq!(id("192.168.170.8", "192.168.170.56", 7, 80, SCTP, 0), sctp);
        let echo = "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=";
        assert_eq!(id("192.168.0.89", "192.168.0.1", 8, 0, ICMP, 0), echo);
        assert_eq!(id("192.168.0.1", "192.168.0.89", 0, 0, ICMP, 0), echo);
    }

    /// An ICMP message type without a response has one ID a direction, and each type of a pair
    /// refers to the other.
    #[test]
    fn icmp_pairs() {
        assert_ne!(
            id("192.0.2.1", "192.0.2.2", 3, 1, ICMP, 0),
            id("192.0.2.2", "192.0.2.1", 3, 1, ICMP, 0)
        );
        for v6 in [false, true] {
            for kind in 0..=255 {
                if let Some(answer) = icmp_counterpart(v6, kind) {
                    assert_ne!(answer, kind);
                    assert_eq!(icmp_counterpart(v6, answer), Some(kind));
                }
            }
        }
    }

    /// Protocols without ports give the same ID for any value of the port fields; Wireshark 4.0
    /// shows this value for such an RSVP packet.
    #[test]
    fn no_ports() {
        let id_of = |port| id("10.1.24.4", "10.1.12.1", port, port, 46, 0);
        assert_eq!(id_of(0), "1:/nQI4Rh/TtY3mf0R2gJFBkVlgS4=");
        assert_eq!(id_of(7), id_of(0));
    }
}
