//! Notes of `larder extract`: what a reduced capture says of packets that it lacks.
//!
//! A note is a record of link type [`LINK_TYPE`], one of those that every program may use as it likes. It
//! counts for the place that it has among the packets.
//!
//! ```text
//! note     "larder" | version 1: 1 | kind: 1 | body
//! kind 1   begin        rules: 13 | time: 8 of the capture's first packet, which follows
//! kind 2   minute       time: 8; the next packet is the second in a row that has come to this time
//! kind 3   flow         key: 45 | time: 8 of its last packet so far; later ones are in the capture again
//! kind 4   end          time: 8 of the capture's last packet
//! kind 5   open         key: 45 | time: 8 of a flow's first packet, the one before: later ones may be left out
//! rules    idle seconds of TCP: 4 | of others: 4 | of closed TCP: 4 | 1 without VLANs, or 0: 1
//! key      lesser address: 16 | greater: 16 | their ports: 2, 2 | IP protocol: 1 | scope: 8
//! ```
//!
//! Numbers are little-endian, times nanoseconds since 1970 UTC. A note that is not exactly so is no note.

use crate::Addr;
use crate::flow_key::FlowKey;
use crate::scope::Scope;

/// LINKTYPE_USER15 of the list of link types (tcpdump.org).
pub const LINK_TYPE: u16 = 162;

const HEAD: &[u8; 7] = b"larder\x01";

/// How flows are told apart and end. A reader with other rules needs other packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// TCP flows end after this long without a packet, seconds.
    pub tcp_idle_s: u32,
    /// Other flows end after this long without a packet, seconds.
    pub udp_idle_s: u32,
    /// Closed flows end after this long without a packet, seconds.
    pub linger_s: u32,
    /// VLANs, VNIs and GRE keys do not distinguish flows.
    pub ignores_vlan: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The capture's first packet follows; its time, ns, and what it was reduced for.
    Begin(Rules, i64),
    /// The next packet is the second in a row that has come to this time, a whole minute or the first second, ns.
    Minute(i64),
    /// A flow, and the time of its last packet so far, ns.
    Flow(FlowKey, i64),
    /// A flow that the packet before began, and the time of that, ns: later packets may be left out. After other first
    /// packets of flows than fragments that is so without a note.
    Open(FlowKey, i64),
    /// The time of the capture's last packet, ns.
    End(i64),
}

impl Note {
    /// Appends the note as the frame of a record.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(HEAD);
        let (kind, time_ns) = match self {
            Note::Begin(_, time_ns) => (1, time_ns),
            Note::Minute(time_ns) => (2, time_ns),
            Note::Flow(_, time_ns) => (3, time_ns),
            Note::End(time_ns) => (4, time_ns),
            Note::Open(_, time_ns) => (5, time_ns),
        };
        out.push(kind);
        if let Note::Begin(rules, _) = self {
            for seconds in [rules.tcp_idle_s, rules.udp_idle_s, rules.linger_s] {
                out.extend_from_slice(&seconds.to_le_bytes());
            }
            out.push(u8::from(rules.ignores_vlan));
        }
        if let Note::Flow(key, _) | Note::Open(key, _) = self {
            out.extend_from_slice(&key.low.0);
            out.extend_from_slice(&key.high.0);
            out.extend_from_slice(&key.low_port.to_le_bytes());
            out.extend_from_slice(&key.high_port.to_le_bytes());
            out.push(key.protocol);
            out.extend_from_slice(&key.scope.bits().to_le_bytes());
        }
        out.extend_from_slice(&time_ns.to_le_bytes());
    }

    /// Reads the frame of a record of link type [`LINK_TYPE`]; `None` if it is no note.
    pub fn read(frame: &[u8]) -> Option<Note> {
        let (kind, body) = frame.strip_prefix(HEAD)?.split_first()?;
        let (body, time) = body.split_last_chunk()?;
        let time_ns = i64::from_le_bytes(*time);
        match (kind, body.is_empty()) {
            (1, false) => Some(Note::Begin(rules(body)?, time_ns)),
            (2, true) => Some(Note::Minute(time_ns)),
            (3, false) => Some(Note::Flow(key(body)?, time_ns)),
            (4, true) => Some(Note::End(time_ns)),
            (5, false) => Some(Note::Open(key(body)?, time_ns)),
            _ => None,
        }
    }
}

fn rules(bytes: &[u8]) -> Option<Rules> {
    let (tcp, rest) = bytes.split_first_chunk()?;
    let (udp, rest) = rest.split_first_chunk()?;
    let (linger, rest) = rest.split_first_chunk()?;
    let ignores_vlan = match rest {
        [0] => false,
        [1] => true,
        _ => return None,
    };
    Some(Rules {
        tcp_idle_s: u32::from_le_bytes(*tcp),
        udp_idle_s: u32::from_le_bytes(*udp),
        linger_s: u32::from_le_bytes(*linger),
        ignores_vlan,
    })
}

fn key(bytes: &[u8]) -> Option<FlowKey> {
    let (low, rest) = bytes.split_first_chunk()?;
    let (high, rest) = rest.split_first_chunk()?;
    let (low_port, rest) = rest.split_first_chunk()?;
    let (high_port, rest) = rest.split_first_chunk()?;
    let (protocol, rest) = rest.split_first()?;
    let scope = Scope::from_bits(u64::from_le_bytes(rest.try_into().ok()?))?;
    Some(FlowKey {
        low: Addr(*low),
        high: Addr(*high),
        low_port: u16::from_le_bytes(*low_port),
        high_port: u16::from_le_bytes(*high_port),
        protocol: *protocol,
        scope,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn notes(time_ns: i64, vlan: u16, ports: (u16, u16)) -> [Note; 5] {
        let key = FlowKey {
            low: Addr::v4([10, 0, 0, 1]),
            high: Addr([7; 16]),
            low_port: ports.0,
            high_port: ports.1,
            protocol: 17,
            scope: Scope::NONE.tagged(vlan),
        };
        let (tcp_idle_s, ignores_vlan) = (u32::from(ports.0) << 9, vlan > 7);
        let rules = Rules { tcp_idle_s, udp_idle_s: 60, linger_s: 5, ignores_vlan };
        [
            Note::Begin(rules, time_ns),
            Note::Minute(time_ns),
            Note::Flow(key, time_ns),
            Note::Open(key, time_ns),
            Note::End(time_ns),
        ]
    }

    proptest! {
        /// A note is read as it was written; one that is longer or shorter is none.
        #[test]
        fn notes_are_read_as_written(time_ns: i64, vlan: u16, ports: (u16, u16), cut: u8) {
            for note in notes(time_ns, vlan, ports) {
                let mut frame = Vec::new();
                note.write(&mut frame);
                prop_assert_eq!(Note::read(&frame), Some(note));
                prop_assert_eq!(Note::read(&frame[..frame.len() - 1 - usize::from(cut) % 8]), None);
                frame.push(cut);
                prop_assert_eq!(Note::read(&frame), None);
            }
        }

        /// Any bytes are read without a panic.
        #[test]
        fn other_bytes_are_no_notes(kind: u8, body in prop::collection::vec(any::<u8>(), 0..64)) {
            let frame = [&HEAD[..], &[kind], &body].concat();
            if let Some(note) = Note::read(&frame) {
                let mut again = Vec::new();
                note.write(&mut again);
                prop_assert_eq!(again, frame);
            }
        }
    }
}
