//! The flow of a packet, and which end began it.

pub use larder_wire::flow_key::{FlowKey, protocol};
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

/// The shard of a hash.
#[inline]
pub fn shard_of(hash: u64) -> usize {
    (hash >> 58) as usize
}
const _: () = assert!(SHARDS == 1 << 6, "the top six bits of the hash choose the shard");

/// The fields of one packet that the flow table needs.
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
    /// Captured payload, bytes.
    pub payload_len: u32,
    /// Payload by the headers, bytes.
    pub payload_bytes: u32,
    /// IP bytes by the header.
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
    /// A fragment that came before its ports were known. It is counted with a later packet:
    /// `packet` is the number of that one, and `payload_offset` the index of its own in
    /// [`crate::decode::Decoded::held`].
    pub is_held: bool,
    /// The name learner made it, from fragments.
    pub is_made: bool,
    /// It is from a reduced capture: later packets of its flow may be left out, until a note says when the last one
    /// was.
    pub is_reduced: bool,
    /// No packet, but a note.
    pub note: Option<FlowNote>,
}

/// What a reduced capture says of a flow ([`larder_wire::note`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowNote {
    /// Later packets may be left out.
    Open,
    /// The last packet so far was at [`Event::time_ns`].
    Last,
}

impl Event {
    /// Makes the event of a decoded packet. `payload_base`: offset of the packet's frame in the
    /// batch.
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
            is_held: false,
            is_made: false,
            is_reduced: false,
            note: None,
        }
    }

    /// A note on a flow. `number`: as of a packet.
    pub fn of_note(note: FlowNote, key: FlowKey, seed: u64, number: u32, time_ns: i64) -> Event {
        Event {
            hash: key.hash(seed),
            key,
            time_ns,
            packet: number,
            payload_offset: 0,
            payload_len: 0,
            payload_bytes: 0,
            ip_bytes: 0,
            tcp_seq: 0,
            tcp_window: 0,
            tcp_flags: 0,
            from_low: true,
            tunnel: None,
            is_held: false,
            is_made: false,
            is_reduced: true,
            note: Some(note),
        }
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.key.protocol == protocol::TCP
    }
}

/// The first cut of records after `time_ns`, if there is one at each multiple of `every_ns`; 0: never.
pub fn next_cut_ns(time_ns: i64, every_ns: i64) -> i64 {
    let interval = time_ns.checked_div_euclid(every_ns);
    interval.map_or(i64::MAX, |interval| (interval + 1).saturating_mul(every_ns))
}

/// True if the `low` end began: the sender of the SYN; else the sender of the first packet, unless
/// that is a SYN+ACK or comes from a well-known server port to an ephemeral one.
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
        _ => is_response(event.key.protocol, from_port, to_port),
    };
    event.from_low != answers
}

/// True if packets between these ports are responses, as far as ports alone can tell.
pub fn is_response(protocol: u8, from_port: u16, to_port: u16) -> bool {
    match protocol {
        protocol::TCP | protocol::UDP => {
            is_server_port(from_port) && !is_server_port(to_port) && to_port >= 1024
        }
        // An echo reply or similar (Zeek's ICMP orientation follows the request).
        protocol::ICMP => matches!(from_port, 0 | 14 | 16 | 18) && to_port != from_port,
        protocol::ICMP6 => matches!(from_port, 129),
        _ => false,
    }
}

/// Ports on which servers respond; used only if the first packet does not tell which end began.
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
