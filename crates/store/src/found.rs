//! What a search found, by flow: packets, bytes, times, and the names that the store has for it.
//!
//! ```text
//! FoundFlows::take(packet) ..   counts
//! rows(finder)                  flows with the most bytes first, with their names
//! write_json, write_csv         a row as a line
//! ```
//!
//! Flows are those of the packets' keys: connections that use a port again are one row. Bounds:
//! `FLOWS_MAX` flows, packets of further ones are counted together; [`NAMES_MAX`] names a flow.
//! Cost: a decoded header and a lookup for each packet; for names, the events of the segments in
//! which packets were found.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use larder_wire::civil::Civil;
use larder_wire::digits::write_u64;
use larder_wire::flow_key::{FlowKey, protocol};
use larder_wire::json::write_string;
use larder_wire::{Addr, Name, packet};

use crate::find::{Finder, FoundPacket};
use crate::flow_event::NameRole;
use crate::options::StoreError;
use crate::query::WITH_PORTS;

/// Flows that are counted one by one.
const FLOWS_MAX: usize = 1 << 20;

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

    /// Appends it as one line of JSON, with the number of flows.
    pub fn write_counts(&self, flows: u64, out: &mut Vec<u8>) {
        let counts =
            [("{\"packets\":", self.packets), (",\"bytes\":", self.bytes), (",\"flows\":", flows)];
        for (key, count) in counts {
            out.extend_from_slice(key.as_bytes());
            write_u64(count, out);
        }
        write_times(self, out);
        out.extend_from_slice(b"}\n");
    }

    fn add(&mut self, ts_ns: i64, bytes: u64) {
        *self = self.joined(Tally { packets: 1, bytes, first_ns: ts_ns, last_ns: ts_ns });
    }
}

/// Counts by flow.
#[derive(Debug)]
pub struct FoundFlows {
    flows_max: usize,
    flows: HashMap<Option<FlowKey>, Tally>,
    /// Packets of flows for which that has no room.
    others: u64,
    all: Tally,
    segments: BTreeSet<u64>,
}

/// One flow that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The flow, as a word of a query; `None`: packets that have no flow.
    pub flow: Option<String>,
    /// Its counts.
    pub tally: Tally,
    /// Its names, each once; the names of candidates and lookups are not among them.
    pub names: Vec<Name>,
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
        FoundFlows { flows_max, flows, others: 0, all: Tally::default(), segments }
    }

    /// Counts a packet.
    pub fn take(&mut self, found: &FoundPacket<'_>) {
        let bytes = u64::from(found.original_len);
        self.all.add(found.ts_ns, bytes);
        self.segments.insert(found.segment);
        let packet = packet::decode(found.link_type(), found.frame).ok();
        let key = packet.map(|packet| FlowKey::of(&packet).0);
        if self.flows.len() < self.flows_max || self.flows.contains_key(&key) {
            self.flows.entry(key).or_default().add(found.ts_ns, bytes);
        } else {
            self.others += 1;
        }
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
    pub fn others(&self) -> u64 {
        self.others
    }

    /// The flows, those with the most bytes first, with the names that the store of `finder` has:
    /// of the segments in which packets were found.
    pub fn rows(&self, finder: &Finder) -> Result<Vec<Row>, StoreError> {
        let mut names = self.names(finder)?;
        let mut rows: Vec<Row> = self
            .flows
            .iter()
            .map(|(key, tally)| {
                let names = key.and_then(|key| names.remove(&key)).unwrap_or_default();
                Row { flow: key.as_ref().map(word), tally: *tally, names }
            })
            .collect();
        sort(&mut rows);
        Ok(rows)
    }

    /// The names of the flows, of the segments in which packets were found.
    fn names(&self, finder: &Finder) -> Result<HashMap<FlowKey, Vec<Name>>, StoreError> {
        let mut by_ends: HashMap<FlowKey, Vec<(FlowKey, Tally)>> = HashMap::new();
        for (key, tally) in self.flows.iter().filter_map(|(key, tally)| Some(((*key)?, *tally))) {
            by_ends.entry(key.unscoped()).or_default().push((key, tally));
        }
        let mut names: HashMap<FlowKey, Vec<Name>> = HashMap::new();
        finder.events_of(&self.segments, &mut |event| {
            for (key, tally) in by_ends.get(&event.key).into_iter().flatten() {
                let is_before = event.end.is_some() && event.last_ns < tally.first_ns;
                if !event.is_of(key) || is_before || event.start_ns > tally.last_ns {
                    continue;
                }
                let known = names.entry(*key).or_default();
                for (role, name) in &event.names {
                    let is_own = matches!(role, NameRole::Destination | NameRole::Source);
                    if is_own && known.len() < NAMES_MAX && !known.contains(name) {
                        known.push(name.clone());
                    }
                }
            }
        })?;
        Ok(names)
    }
}

impl Row {
    /// Appends it as a line of JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"flow\":");
        match &self.flow {
            Some(flow) => write_string(flow.as_bytes(), out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"packets\":");
        write_u64(self.tally.packets, out);
        out.extend_from_slice(b",\"bytes\":");
        write_u64(self.tally.bytes, out);
        write_times(&self.tally, out);
        out.extend_from_slice(b",\"names\":[");
        for (at, name) in self.names.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write_string(name.as_bytes(), out);
        }
        out.extend_from_slice(b"]}\n");
    }

    /// Appends it as a line of CSV (RFC 4180) with the columns of [`CSV_HEADER`].
    pub fn write_csv(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.flow.as_deref().unwrap_or_default().as_bytes());
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
        out.extend_from_slice(format!(",\"{names}\"\r\n").as_bytes());
    }
}

/// Sorts rows: those with the most bytes first.
pub fn sort(rows: &mut [Row]) {
    rows.sort_by_cached_key(|row| (Reverse(row.tally.bytes), row.tally.first_ns, row.flow.clone()));
}

/// The columns of [`Row::write_csv`].
pub const CSV_HEADER: &str = "flow,packets,bytes,first,last,names\r\n";

fn write_times(tally: &Tally, out: &mut Vec<u8>) {
    for (key, ns) in [("first", tally.first_ns), ("last", tally.last_ns)] {
        out.extend_from_slice(format!(",\"{key}\":").as_bytes());
        match tally.packets {
            0 => out.extend_from_slice(b"null"),
            _ => write_string(&Civil::from_ns(ns).rfc3339(), out),
        }
    }
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
