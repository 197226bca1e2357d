//! Batches of packets, and the names of their flows, from the front end to the store.

use larder_wire::Name;
use larder_wire::flow_key::FlowKey;
use larder_wire::naming::{NameFlags, NameSource};

/// The relation of a name to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum NameRole {
    /// It was chosen for the destination: by DNS, or stated by the flow (SNI, QUIC SNI, HTTP Host).
    Destination = 0,
    /// It was chosen for the source.
    Source = 1,
    /// A rival: another name of one of the addresses. Found with `--candidates` only.
    Candidate = 2,
    /// A name that a DNS flow queries. Found with `--lookups` only.
    Lookup = 3,
}

/// What the log says about the name that was chosen for an end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Where the name came from.
    pub source: NameSource,
    /// Doubts about it.
    pub flags: NameFlags,
    /// How sure it is, percent.
    pub confidence: u8,
}

/// Names of a flow. Several events of one flow add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEvent {
    /// Its 5-tuple.
    pub key: FlowKey,
    /// Number of its first packet, as in [`Batch::first_packet`]: with the key it identifies the
    /// flow, since keys are used again.
    pub first_packet: u64,
    /// Time of its first packet, ns.
    pub start_ns: i64,
    /// The flow has ended: packets from this number on do not belong to it, even with its key.
    /// `None`: it goes on.
    pub end_packet: Option<u64>,
    /// Time of its last packet so far, ns.
    pub last_ns: i64,
    /// Its initiator is the key's `low` end.
    pub source_is_low: bool,
    /// The names.
    pub names: Vec<(NameRole, Name)>,
    /// About the names of destination and source in the record of the flow, each the first name
    /// with its role; those of a later event count.
    pub choices: [Option<Choice>; 2],
}

/// Packets in the order of arrival, and names of their flows.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Enhanced packet blocks (pcapng), one after the other, little-endian, times in ns, with the
    /// interface numbers of the store.
    pub blocks: &'a [u8],
    /// Offset in `blocks` of packet *n*, from 0.
    pub offsets: &'a [u32],
    /// Number of the first packet, from 1; each batch continues the previous one.
    pub first_packet: u64,
    /// Events of these packets. An event's `first_packet` may be in an earlier batch.
    pub events: &'a [FlowEvent],
}
