//! What a search found, by flow: packets, bytes, times, and the names that the store has for it.
//!
//! ```text
//! FoundFlows::take(packet) ..   counts
//! rows(finder)                  flows with the most bytes first, with their names
//! write_json, write_csv         a row as a line
//! ```
//!
//! Flows are those of the packets' keys: connections that use a port again are one row, and those of
//! two VLANs are two. Bounds: [`FLOWS_MAX`] flows, packets of further ones are counted together;
//! [`NAMES_MAX`] names a flow.
//! Cost: a decoded header and a lookup for each packet; for names, the events of the segments in
//! which packets were found.

mod json;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use larder_wire::civil::Civil;
use larder_wire::digits::write_u64;
use larder_wire::flow_key::{FlowKey, protocol};
use larder_wire::json::write_string;
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name, packet};

use crate::find::{Finder, FoundPacket};
use crate::flow_event::{Choice, NameRole};
use crate::journal::StoredEvent;
use crate::options::StoreError;
use crate::query::WITH_PORTS;

/// Flows that are counted one by one.
pub const FLOWS_MAX: usize = 1 << 20;

/// Names of a flow.
pub const NAMES_MAX: usize = 16;

/// Packets and bytes of one flow, or of a whole search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Time of the earliest packet, ns since 1970.
    pub first_ns: i64,
    /// Time of the latest packet.
    pub last_ns: i64,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn joined(self, other: Tally) -> Tally {
        match (self.packets, other.packets) {
            (_, 0) => self,
            (0, _) => other,
            _ => Tally {
                packets: self.packets.saturating_add(other.packets),
                bytes: self.bytes.saturating_add(other.bytes),
                first_ns: self.first_ns.min(other.first_ns),
                last_ns: self.last_ns.max(other.last_ns),
            },
        }
    }

    /// Appends it as one line of JSON, with the number of flows. `others`: how many of its packets
    /// are of flows that were not counted.
    pub fn write_counts(&self, flows: u64, others: u64, out: &mut Vec<u8>) {
        let counts =
            [("{\"packets\":", self.packets), (",\"bytes\":", self.bytes), (",\"flows\":", flows)];
        for (key, count) in counts {
            out.extend_from_slice(key.as_bytes());
            write_u64(count, out);
        }
        if others > 0 {
            out.extend_from_slice(b",\"packets_of_other_flows\":");
            write_u64(others, out);
        }
        write_times(self, out);
        out.extend_from_slice(b"}\n");
    }

    /// Appends it as fields of an object of JSON, each after a comma.
    pub fn write_fields(&self, out: &mut Vec<u8>) {
        for (key, count) in [(",\"packets\":", self.packets), (",\"bytes\":", self.bytes)] {
            out.extend_from_slice(key.as_bytes());
            write_u64(count, out);
        }
        write_times(self, out);
    }

    fn add(&mut self, ts_ns: i64, bytes: u64) {
        *self = self.joined(Tally { packets: 1, bytes, first_ns: ts_ns, last_ns: ts_ns });
    }
}

/// What an end of a flow sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Bytes, by the innermost IP headers.
    pub ip_bytes: u64,
}

/// The counts of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    tally: Tally,
    /// By the low and the high end of its key.
    sent: [Sent; 2],
    /// The low end sent the first packet that was found.
    begins_low: bool,
}

/// Counts by flow.
#[derive(Debug)]
pub struct FoundFlows {
    flows_max: usize,
    flows: HashMap<Option<FlowKey>, Counts>,
    /// Packets of flows for which that has no room.
    others: Tally,
    all: Tally,
    segments: BTreeSet<u64>,
}

/// One flow that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The flow; `None`: packets that have no flow.
    pub key: Option<FlowKey>,
    /// Its counts.
    pub tally: Tally,
    /// What the low and the high end of its key sent.
    pub sent: [Sent; 2],
    /// Its initiator is the low end: as the store knows, or by the first packet that was found.
    pub source_is_low: bool,
    /// Its names, each once; the names of candidates and lookups are not among them.
    pub names: Vec<Name>,
    /// The names that its record has for destination and source, and what the log says about them.
    pub chosen: [Option<(Name, Choice)>; 2],
}

impl Default for FoundFlows {
    fn default() -> FoundFlows {
        FoundFlows::with_limit(FLOWS_MAX)
    }
}

impl FoundFlows {
    /// For this number of flows at most.
    pub fn with_limit(flows_max: usize) -> FoundFlows {
        let (flows, segments) = (HashMap::new(), BTreeSet::new());
        FoundFlows { flows_max, flows, others: Tally::default(), all: Tally::default(), segments }
    }

    /// Counts a packet.
    pub fn take(&mut self, found: &FoundPacket<'_>) {
        let bytes = u64::from(found.original_len);
        self.all.add(found.ts_ns, bytes);
        self.segments.insert(found.segment);
        let packet = packet::decode(found.link_type(), found.frame).ok();
        let flow = packet.as_ref().map(FlowKey::of);
        let key = flow.map(|(key, _)| key);
        if self.flows.len() >= self.flows_max && !self.flows.contains_key(&key) {
            self.others.add(found.ts_ns, bytes);
            return;
        }
        let counts = self.flows.entry(key).or_default();
        let from_low = flow.is_some_and(|(_, from_low)| from_low);
        if counts.tally.packets == 0 {
            counts.begins_low = from_low;
        }
        counts.tally.add(found.ts_ns, bytes);
        let sent = &mut counts.sent[usize::from(!from_low)];
        sent.packets += 1;
        sent.ip_bytes += packet.map_or(0, |packet| u64::from(packet.ip_bytes));
    }

    /// The counts of all packets.
    pub fn all(&self) -> Tally {
        self.all
    }

    /// How many flows there are, packets without a flow not among them.
    pub fn flows(&self) -> usize {
        self.flows.len() - usize::from(self.flows.contains_key(&None))
    }

    /// Packets of flows beyond the limit, which no row has.
    pub fn others(&self) -> Tally {
        self.others
    }

    /// The flows, those with the most bytes first, with the names that the store of `finder` has:
    /// of the segments in which packets were found.
    pub fn rows(&self, finder: &Finder) -> Result<Vec<Row>, StoreError> {
        let mut by_ends: HashMap<Option<FlowKey>, Vec<Row>> = HashMap::new();
        for (key, counts) in &self.flows {
            let row = Row {
                key: *key,
                tally: counts.tally,
                sent: counts.sent,
                source_is_low: counts.begins_low,
                names: Vec::new(),
                chosen: [None, None],
            };
            by_ends.entry(key.map(FlowKey::unscoped)).or_default().push(row);
        }
        finder.events_of(&self.segments, &mut |event| {
            let rows = by_ends.get_mut(&Some(event.key)).into_iter().flatten();
            rows.for_each(|row| row.take(&event));
        })?;
        let mut rows: Vec<Row> = by_ends.into_values().flatten().collect();
        sort(&mut rows);
        Ok(rows)
    }
}

impl Row {
    /// Takes the names of an event, if it is about this flow.
    fn take(&mut self, event: &StoredEvent) {
        let is_before = event.end.is_some() && event.last_ns < self.tally.first_ns;
        let is_its = self.key.is_some_and(|key| event.is_of(&key));
        if !is_its || is_before || event.start_ns > self.tally.last_ns {
            return;
        }
        self.source_is_low = event.source_is_low;
        for (role, name) in &event.names {
            if matches!(role, NameRole::Destination | NameRole::Source) {
                self.add_name(name);
            }
        }
        for (own, chosen) in self.chosen.iter_mut().zip(event.chosen()) {
            if let Some((name, choice)) = chosen {
                *own = Some((name.clone(), choice));
            }
        }
    }

    fn add_name(&mut self, name: &Name) {
        if self.names.len() < NAMES_MAX && !self.names.contains(name) {
            self.names.push(name.clone());
        }
    }

    /// Adds what another store has of the same flow.
    pub fn join(&mut self, other: Row) {
        if other.tally.first_ns < self.tally.first_ns {
            self.source_is_low = other.source_is_low;
        }
        self.tally = self.tally.joined(other.tally);
        for (own, other) in self.sent.iter_mut().zip(other.sent) {
            own.packets = own.packets.saturating_add(other.packets);
            own.ip_bytes = own.ip_bytes.saturating_add(other.ip_bytes);
        }
        other.names.iter().for_each(|name| self.add_name(name));
        for (own, other) in self.chosen.iter_mut().zip(other.chosen) {
            if own.is_none() {
                *own = other;
            }
        }
    }

    /// The flow as a word of a query; `None`: packets that have no flow.
    pub fn word(&self) -> Option<String> {
        self.key.as_ref().map(word)
    }

    /// Its VLAN IDs, VNI or GRE key, as conditions of a query where the language has one; mostly
    /// empty.
    pub fn network(&self) -> String {
        self.key.map(|key| network(key.scope)).unwrap_or_default()
    }

    /// Source and destination: address, port, and what it sent.
    pub fn ends(&self) -> Option<[(Addr, u16, Sent); 2]> {
        let key = self.key?;
        let [low, high] = self.sent;
        let (low, high) = ((key.low, key.low_port, low), (key.high, key.high_port, high));
        Some(if self.source_is_low { [low, high] } else { [high, low] })
    }

    /// Appends it as a line of CSV (RFC 4180) with the columns of [`CSV_HEADER`].
    pub fn write_csv(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.word().unwrap_or_default().as_bytes());
        for number in [self.tally.packets, self.tally.bytes] {
            out.push(b',');
            write_u64(number, out);
        }
        for ns in [self.tally.first_ns, self.tally.last_ns] {
            out.push(b',');
            out.extend_from_slice(&Civil::from_ns(ns).rfc3339());
        }
        // A name is escaped as in the logs, so that it has no line breaks.
        let names: Vec<String> = self.names.iter().map(Name::to_string).collect();
        let names = names.join(" ").replace('"', "\"\"");
        // As in the log of annotate: spreadsheets run other cells as formulas, and a name may begin
        // with anything.
        let is_formula = names.starts_with(['=', '+', '-', '@', '\'', '\t', '\r']);
        let mark = if is_formula { "'" } else { "" };
        out.extend_from_slice(format!(",\"{mark}{names}\",{}\r\n", self.network()).as_bytes());
    }
}

/// Sorts rows: those with the most bytes first.
pub fn sort(rows: &mut [Row]) {
    rows.sort_by_key(|row| (Reverse(row.tally.bytes), row.tally.first_ns, row.key));
}

/// The columns of [`Row::write_csv`].
pub const CSV_HEADER: &str = "flow,packets,bytes,first,last,names,network\r\n";

fn write_times(tally: &Tally, out: &mut Vec<u8>) {
    for (key, ns) in [("first", tally.first_ns), ("last", tally.last_ns)] {
        out.extend_from_slice(format!(",\"{key}\":").as_bytes());
        match tally.packets {
            0 => out.extend_from_slice(b"null"),
            _ => write_string(&Civil::from_ns(ns).rfc3339(), out),
        }
    }
}

/// The network of a flow, as conditions of a query: `vlan 10 and vni 42`. There is none about keys of
/// GRE.
fn network(scope: Scope) -> String {
    let vlan = |id: Option<u16>| id.map(|id| format!("vlan {id}"));
    let vni = scope.vni().map(|vni| format!("vni {vni}"));
    let gre_key = scope.gre_key().map(|key| format!("gre_key {key}"));
    let parts = [vlan(scope.vlan()), vlan(scope.inner_vlan()), vni, gre_key];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// A flow as a word of a query.
pub fn word(key: &FlowKey) -> String {
    let has_ports = WITH_PORTS.contains(&key.protocol);
    let end = |addr: Addr, port: u16| match (IpAddr::from(addr), has_ports) {
        (ip, true) => SocketAddr::new(ip, port).to_string(),
        (ip, false) => ip.to_string(),
    };
    let protocol = match key.protocol {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::ICMP => "icmp".to_owned(),
        protocol::ICMP6 => "icmp6".to_owned(),
        other => other.to_string(),
    };
    format!("{}-{}/{protocol}", end(key.low, key.low_port), end(key.high, key.high_port))
}
