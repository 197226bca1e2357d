//! Which flow a packet belongs to: the 5-tuple, and a hash of it.
//!
//! Inside any tunnel, as [`crate::packet`] decodes it. All code that handles flows uses this key.
//! VLAN IDs, VNIs and GRE keys are part of it ([`crate::scope`]): networks that use the same
//! addresses have separate flows.

use std::hint::select_unpredictable;

use crate::Addr;
use crate::community_id;
use crate::packet::Packet;
use crate::scope::Scope;

/// IP protocol numbers.
pub mod protocol {
    #![allow(missing_docs)]
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMP6: u8 = 58;
}

/// A 5-tuple in canonical order: `low` is the lesser (address, port).
#[derive(Clone, Copy, Debug, Eq, PartialOrd, Ord)]
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
    /// The network in which the addresses are valid.
    pub scope: Scope,
}

impl std::hash::Hash for FlowKey {
    /// For maps of the standard library, whose hash senders of packets cannot foresee;
    /// [`FlowKey::hash`] is for tables that have a seed of their own.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(&self.low.0);
        state.write(&self.high.0);
        let ports = u64::from(self.low_port) << 16 | u64::from(self.high_port);
        state.write_u64(ports << 8 | u64::from(self.protocol));
        state.write_u64(self.scope.bits());
    }
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
        let scope = self.scope.bits() ^ other.scope.bits();
        (low | high | u128::from(u64::from(rest) | scope)) == 0
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
        // Neither `&&` nor `if`: the end that a packet comes from cannot be predicted, and a
        // misprediction costs more than all of this.
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
            scope: packet.scope,
        };
        (key, from_low)
    }

    /// The key of a flow between two ends, and whether the first is the `low` one.
    pub fn between([one, other]: [(Addr, u16); 2], protocol: u8, scope: Scope) -> (FlowKey, bool) {
        let is_low = one <= other;
        let ((low, low_port), (high, high_port)) = if is_low { (one, other) } else { (other, one) };
        (FlowKey { low, high, low_port, high_port, protocol, scope }, is_low)
    }

    /// The same ends without a network.
    pub fn unscoped(self) -> FlowKey {
        FlowKey { scope: Scope::NONE, ..self }
    }

    /// A seeded hash: folded 64x64-bit products (as wyhash), about 4 ns. The top bits choose the
    /// shard, the low 32 the place in its index.
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let word = |addr: &Addr, at: usize| {
            let half = if at == 0 { addr.0.first_chunk::<8>() } else { addr.0.last_chunk::<8>() };
            u64::from_le_bytes(*half.expect("an address has sixteen bytes"))
        };
        let ports = u64::from(self.low_port)
            | u64::from(self.high_port) << 16
            | u64::from(self.protocol) << 32;
        let a = fold(word(&self.low, 8) ^ seed, word(&self.high, 8) ^ 0xe703_7ed1_a0b4_28db);
        let b = fold(
            word(&self.low, 0) ^ ports.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            word(&self.high, 0) ^ 0x8ebc_6af0_9c88_c6e3,
        );
        // With the seed: senders choose it freely, and could aim at a table otherwise.
        let scope = fold(self.scope.bits() ^ seed, 0x1d8e_4e27_c47d_124f);
        fold(a ^ ports, b ^ scope ^ 0x5899_65cc_7537_4cc3)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The ports of a packet's flow. ICMP has Zeek's: the sender's is the type, the receiver's the
/// counterpart type (so that a reply joins its request's flow) or the code.
#[inline]
fn ports(packet: &Packet) -> (u16, u16) {
    match packet.protocol {
        protocol::ICMP | protocol::ICMP6 => {
            let v6 = packet.protocol == protocol::ICMP6;
            let kind = packet.src_port;
            let counterpart =
                u8::try_from(kind).ok().and_then(|kind| community_id::icmp_counterpart(v6, kind));
            (kind, counterpart.map_or(packet.dst_port, u16::from))
        }
        _ => (packet.src_port, packet.dst_port),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Addresses that differ in either half or not at all.
    fn addr() -> impl Strategy<Value = Addr> {
        (0u8..3, 0u8..3).prop_map(|(first, last)| {
            let mut bytes = [0x80; 16];
            (bytes[0], bytes[15]) = (first << 7, last << 7);
            Addr(bytes)
        })
    }

    proptest! {
        /// The key is the sorted pair of ends, the lesser first, and states which end sent.
        #[test]
        fn key_is_the_sorted_pair(
            src in addr(), dst in addr(), src_port in 0u16..3, dst_port in 0u16..3,
        ) {
            let packet = Packet {
                src, dst, src_port, dst_port,
                protocol: protocol::TCP, ip_version: 6, tcp_flags: 0, tunnels: 0, tunnel: None,
                scope: Scope::NONE,
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
