//! Which flow a packet belongs to, and who began it.

use std::hint::select_unpredictable;

use larder_wire::Addr;
use larder_wire::packet::{Packet, Tunnel};

use super::SHARDS;

/// TCP flag bits.
pub mod tcp_flag {
    #![allow(missing_docs)]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const ACK: u8 = 0x10;
}
use tcp_flag::{ACK, SYN};

/// IP protocol numbers.
pub mod protocol {
    #![allow(missing_docs)]
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMP6: u8 = 58;
}

/// A 5-tuple in canonical order: `low` is the lesser (address, port).
#[derive(Clone, Copy, Debug, Eq)]
pub struct FlowKey {
    /// The lesser end.
    pub low: Addr,
    /// The greater end.
    pub high: Addr,
    /// Port of the lesser end.
    pub low_port: u16,
    /// Port of the greater end.
    pub high_port: u16,
    /// IP protocol.
    pub protocol: u8,
}

impl PartialEq for FlowKey {
    /// All at once: whether keys that are compared are equal is known beforehand, where they differ
    /// is not.
    #[inline]
    fn eq(&self, other: &FlowKey) -> bool {
        let words = |addr: &Addr| u128::from_ne_bytes(addr.0);
        let low = words(&self.low) ^ words(&other.low);
        let high = words(&self.high) ^ words(&other.high);
        let ports = (self.low_port ^ other.low_port) | (self.high_port ^ other.high_port);
        let rest = ports | u16::from(self.protocol ^ other.protocol);
        (low | high | u128::from(rest)) == 0
    }
}

impl FlowKey {
    /// The key of a packet, and whether its sender is the `low` end.
    #[inline]
    pub fn of(packet: &Packet) -> (FlowKey, bool) {
        let (src_port, dst_port) = ports(packet);
        let words = |addr: &Addr| u128::from_ne_bytes(addr.0);
        let (src, dst) = (words(&packet.src), words(&packet.dst));
        let (src_value, dst_value) = (u128::from_be(src), u128::from_be(dst));
        // Neither `&&` nor `if`: which end a packet comes from can't be predicted, and a wrong
        // prediction costs more than all of this.
        let from_low =
            (src_value < dst_value) | ((src_value == dst_value) & (src_port <= dst_port));
        let low = select_unpredictable(from_low, src, dst);
        let low_port = select_unpredictable(from_low, src_port, dst_port);
        let key = FlowKey {
            low: Addr(low.to_ne_bytes()),
            high: Addr((src ^ dst ^ low).to_ne_bytes()),
            low_port,
            high_port: src_port ^ dst_port ^ low_port,
            protocol: packet.protocol,
        };
        (key, from_low)
    }

    /// A seeded hash: folded 64x64-bit products (as wyhash), about 4 ns. The top bits choose the
    /// shard, the low 32 the place in its index.
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let word = |addr: &Addr, at: usize| {
            let half = if at == 0 { addr.0.first_chunk::<8>() } else { addr.0.last_chunk::<8>() };
            u64::from_le_bytes(*half.expect("an address has sixteen octets"))
        };
        let ports = u64::from(self.low_port)
            | u64::from(self.high_port) << 16
            | u64::from(self.protocol) << 32;
        let a = fold(word(&self.low, 8) ^ seed, word(&self.high, 8) ^ 0xe703_7ed1_a0b4_28db);
        let b = fold(
            word(&self.low, 0) ^ ports.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            word(&self.high, 0) ^ 0x8ebc_6af0_9c88_c6e3,
        );
        fold(a ^ ports, b ^ seed ^ 0x5899_65cc_7537_4cc3)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The shard of a hash.
#[inline]
pub fn shard_of(hash: u64) -> usize {
    (hash >> 58) as usize
}
const _: () = assert!(SHARDS == 1 << 6, "the top six bits of the hash choose the shard");

/// The ports of a packet's flow. ICMP has Zeek's: the sender's is the type, the receiver's the
/// counterpart type (so that a reply joins its request's flow) or the code.
#[inline]
fn ports(packet: &Packet) -> (u16, u16) {
    match packet.protocol {
        protocol::ICMP | protocol::ICMP6 => {
            let v6 = packet.protocol == protocol::ICMP6;
            let kind = packet.src_port;
            let counterpart = u8::try_from(kind)
                .ok()
                .and_then(|kind| larder_wire::community_id::icmp_counterpart(v6, kind));
            (kind, counterpart.map_or(packet.dst_port, u16::from))
        }
        _ => (packet.src_port, packet.dst_port),
    }
}

/// One packet as the flow table needs it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Its flow.
    pub key: FlowKey,
    /// Hash of `key`.
    pub hash: u64,
    /// Capture time, ns since 1970 UTC.
    pub time_ns: i64,
    /// Number of the packet in its batch, from 1.
    pub packet: u32,
    /// Offset of the payload in the batch's bytes.
    pub payload_offset: u32,
    /// Captured payload.
    pub payload_len: u32,
    /// Payload by the headers.
    pub payload_bytes: u32,
    /// IP octets by the header.
    pub ip_bytes: u32,
    /// TCP sequence number.
    pub tcp_seq: u32,
    /// TCP window.
    pub tcp_window: u16,
    /// TCP flags.
    pub tcp_flags: u8,
    /// The sender is the key's `low` end.
    pub from_low: bool,
    /// Innermost tunnel.
    pub tunnel: Option<Tunnel>,
}

impl Event {
    /// From a decoded packet. `payload_base`: where the packet's frame begins in the batch.
    #[inline]
    pub fn of(packet: &Packet, seed: u64, number: u32, time_ns: i64, payload_base: u32) -> Event {
        let (key, from_low) = FlowKey::of(packet);
        Event {
            hash: key.hash(seed),
            key,
            time_ns,
            packet: number,
            payload_offset: payload_base + packet.payload_offset,
            payload_len: packet.payload_len,
            payload_bytes: packet.payload_bytes,
            ip_bytes: packet.ip_bytes,
            tcp_seq: packet.tcp_seq,
            tcp_window: packet.tcp_window,
            tcp_flags: packet.tcp_flags,
            from_low,
            tunnel: packet.tunnel,
        }
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.key.protocol == protocol::TCP
    }
}

/// Who began: the sender of the SYN; else the sender of the first packet, unless that is a SYN+ACK
/// or comes from a well-known server port to an ephemeral one.
pub fn source_is_low(event: &Event) -> bool {
    let (from_port, to_port) = if event.from_low {
        (event.key.low_port, event.key.high_port)
    } else {
        (event.key.high_port, event.key.low_port)
    };
    let syn = event.tcp_flags & (SYN | ACK);
    let answers = match event.key.protocol {
        protocol::TCP if syn == SYN => false,
        protocol::TCP if syn == SYN | ACK => true,
        protocol::TCP | protocol::UDP => {
            is_server_port(from_port) && !is_server_port(to_port) && to_port >= 1024
        }
        // An echo reply and its kin (Zeek's ICMP orientation follows the request).
        protocol::ICMP => matches!(from_port, 0 | 14 | 16 | 18) && to_port != from_port,
        protocol::ICMP6 => matches!(from_port, 129),
        _ => false,
    };
    event.from_low != answers
}

/// Ports on which servers answer; used only where the first packet does not say who began.
fn is_server_port(port: u16) -> bool {
    matches!(
        port,
        20..=23
            | 25
            | 43
            | 53
            | 67
            | 69
            | 80
            | 88
            | 110
            | 111
            | 119
            | 123
            | 135
            | 137
            | 139
            | 143
            | 161
            | 179
            | 389
            | 443
            | 445
            | 465
            | 514
            | 515
            | 587
            | 636
            | 853
            | 873
            | 993
            | 995
            | 1194
            | 1433
            | 1521
            | 1883
            | 3128
            | 3306
            | 3389
            | 5060
            | 5222
            | 5353
            | 5355
            | 5432
            | 5671
            | 5672
            | 5900
            | 6379
            | 6443
            | 8000
            | 8080
            | 8443
            | 8883
            | 9092
            | 9200
            | 11211
            | 27017
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Addresses that differ in either half or not at all.
    fn addr() -> impl Strategy<Value = Addr> {
        (0u8..3, 0u8..3).prop_map(|(first, last)| {
            let mut octets = [0x80; 16];
            (octets[0], octets[15]) = (first << 7, last << 7);
            Addr(octets)
        })
    }

    proptest! {
        /// The key is the sorted pair of ends, the lesser first, and says which end sent.
        #[test]
        fn key_is_the_sorted_pair(
            src in addr(), dst in addr(), src_port in 0u16..3, dst_port in 0u16..3,
        ) {
            let packet = Packet {
                src, dst, src_port, dst_port,
                protocol: protocol::TCP, ip_version: 6, tcp_flags: 0, tunnels: 0, tunnel: None,
                tcp_seq: 0, tcp_ack: 0, tcp_window: 0, ip_bytes: 0,
                payload_offset: 0, payload_len: 0, payload_bytes: 0, fragment: None,
            };
            let (key, from_low) = FlowKey::of(&packet);
            let (sender, receiver) = ((src.0, src_port), (dst.0, dst_port));
            prop_assert_eq!(from_low, sender <= receiver);
            prop_assert_eq!((key.low.0, key.low_port), sender.min(receiver));
            prop_assert_eq!((key.high.0, key.high_port), sender.max(receiver));
        }
    }
}
