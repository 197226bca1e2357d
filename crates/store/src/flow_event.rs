//! What the front end tells the store of a batch of packets.

use larder_wire::Name;
use larder_wire::flow_key::FlowKey;

/// What a name is to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum NameRole {
    /// It was chosen for the destination: by DNS, or said by the flow itself (SNI, QUIC SNI, HTTP Host).
    Destination = 0,
    /// It was chosen for the source.
    Source = 1,
    /// A rival: another name of one of the addresses. Asked for by `--candidates` only.
    Candidate = 2,
    /// It is a DNS flow, and this was asked for in it. Asked for by `--lookups` only.
    Lookup = 3,
}

/// A flow has names. Several events of one flow add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEvent {
    /// Its 5-tuple.
    pub key: FlowKey,
    /// Number of its first packet, as [`Batch::first_packet`] counts: with the key it says which flow is meant, since keys
    /// are used again.
    pub first_packet: u64,
    /// Time of its first packet, ns.
    pub start_ns: i64,
    /// It has ended: packets from this number on are not its own, also if their key is. `None`: it lives.
    pub end_packet: Option<u64>,
    /// Time of its last packet so far, ns.
    pub last_ns: i64,
    /// Its initiator is the key's `low` end.
    pub source_is_low: bool,
    /// The names.
    pub names: Vec<(NameRole, Name)>,
}

/// Packets in the order in which they came, and what is known of their flows.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Enhanced packet blocks (pcapng), one after the other, little-endian, times in ns, interfaces as numbered when the
    /// store was opened.
    pub blocks: &'a [u8],
    /// Where in `blocks` packet *n* begins, from 0.
    pub offsets: &'a [u32],
    /// Number of the first packet, from 1; each batch goes on where the one before ended.
    pub first_packet: u64,
    /// Events that came with these packets. An event's `first_packet` may be in an earlier batch.
    pub events: &'a [FlowEvent],
}
