//! IPFIX: records for flow collectors, as a file of messages (RFC 7011, RFC 5655).
//!
//! Standard elements state what a router states; a record has both directions (RFC 5103). The other fields
//! of the schema are elements of larder's own, with the names of the schema's fields in camel case. The file
//! describes them itself (RFC 5610), so that a reader needs no list.
//!
//! ```text
//! message = header: version, length, export time, sequence, domain 0;  set*
//! set     = templates | types of larder's elements | one record
//! ```
//!
//! [`Sets`] renders records as sets, which can be kept, sorted and put in order like the lines of other
//! formats. [`Writer`], one a file, packs them into messages that fit a UDP datagram, and repeats the
//! templates, so that a collector may begin anywhere in the stream. The export time of a message is the end
//! of its latest flow: the same records are the same bytes.
//!
//! larder has no enterprise number of its own: [`ENTERPRISE`] is the one for documentation.
//!
//! Absent is the empty string, 0 or false. Names are in the `\xHH` spelling of the other formats.

mod writer;

use super::RecordWriter;
use super::fields::FIELDS;
use super::schema::{self, Field, Type, Value, has_ports};
use crate::record::{EndReason, FlowRecord};

pub use self::writer::{Collector, Target, Writer};

/// The enterprise number of larder's elements: the number that RFC 5612 reserves for documentation.
pub const ENTERPRISE: u32 = 32_473;

/// The enterprise number that marks the reverse direction (RFC 5103).
const REVERSE: u32 = 29_305;

/// Bytes of a message, at most, unless one record is longer: the payload of a UDP datagram that is not
/// fragmented on an Ethernet.
pub const MESSAGE_BYTES_MAX: usize = 1_400;

/// Messages between two with templates.
pub const TEMPLATES_EVERY: u32 = 256;

/// Bytes of a list of names, at most; later names of a longer list are left out.
const LIST_BYTES_MAX: usize = 4_096;

const HEADER_BYTES: usize = 16;
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
/// The template of elements' types.
const TYPES: u16 = 256;
/// The templates of flows, by the version of IP.
const FLOWS: [u16; 2] = [257, 258];
/// The length of an element that states its own.
const VARIABLE: u16 = 65_535;

/// Standard elements of a record: number, length, enterprise. Those of addresses and of ICMP depend on the version
/// of IP.
const fn standard(is_v6: bool) -> [(u16, u16, u32); 15] {
    let (source, destination, bytes, icmp) = if is_v6 { (27, 28, 16, 139) } else { (8, 12, 4, 32) };
    [
        (152, 8, 0),             // flowStartMilliseconds
        (153, 8, 0),             // flowEndMilliseconds
        (source, bytes, 0),      // sourceIPv4Address, sourceIPv6Address
        (destination, bytes, 0), // destinationIPv4Address, destinationIPv6Address
        (7, 2, 0),               // sourceTransportPort
        (11, 2, 0),              // destinationTransportPort
        (4, 1, 0),               // protocolIdentifier
        (icmp, 2, 0),            // icmpTypeCodeIPv4, icmpTypeCodeIPv6
        (136, 1, 0),             // flowEndReason
        (58, 2, 0),              // vlanId
        (1, 8, 0),               // octetDeltaCount
        (2, 8, 0),               // packetDeltaCount
        (1, 8, REVERSE),         // reverseOctetDeltaCount
        (2, 8, REVERSE),         // reversePacketDeltaCount
        (60, 1, 0),              // ipVersion
    ]
}

/// larder's elements: number and field. A number is never used again for another field. With the standard
/// elements they are fewer than 60: tshark takes no longer template.
pub const OWN: [(u16, &str); 44] = [
    (1, "source.domain"),
    (2, "larder.source.name_source"),
    (3, "larder.source.name_confidence"),
    (4, "larder.source.candidates"),
    (5, "larder.source.name_age_ms"),
    (6, "larder.source.name_stale"),
    (7, "larder.source.name_late"),
    (8, "larder.source.name_ambiguous"),
    (9, "larder.source.name_conflict"),
    (10, "larder.source.name_conflict_grade"),
    (11, "larder.source.name_unsolicited"),
    (12, "larder.source.name_one_sided"),
    (13, "larder.source.name_unconfirmed"),
    (14, "larder.source.name_claimed"),
    (15, "larder.source.unnamed_reason"),
    (33, "destination.domain"),
    (34, "larder.destination.name_source"),
    (35, "larder.destination.name_confidence"),
    (36, "larder.destination.candidates"),
    (37, "larder.destination.name_age_ms"),
    (38, "larder.destination.name_stale"),
    (39, "larder.destination.name_late"),
    (40, "larder.destination.name_ambiguous"),
    (41, "larder.destination.name_conflict"),
    (42, "larder.destination.name_conflict_grade"),
    (43, "larder.destination.name_unsolicited"),
    (44, "larder.destination.name_one_sided"),
    (45, "larder.destination.name_unconfirmed"),
    (46, "larder.destination.name_claimed"),
    (47, "larder.destination.unnamed_reason"),
    (48, "destination.registered_domain"),
    (65, "event.id"),
    (66, "event.start"),
    (67, "event.end"),
    (68, "network.protocol"),
    (69, "network.community_id"),
    (70, "network.inner.vlan.id"),
    (71, "larder.tunnel.id"),
    (72, "tls.client.server_name"),
    (73, "tls.client.ech"),
    (74, "url.domain"),
    (75, "larder.exporter.ip"),
    (76, "larder.exporter.domain"),
    (77, "larder.exporter.sampling_rate"),
];

/// How an element of larder is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coded {
    /// A string that states its length.
    Text,
    /// 8 bytes.
    Number,
    /// 1 byte: 1 true, 2 false (RFC 7011, section 6.1.5).
    Flag,
}

impl Coded {
    fn of(kind: Type) -> Coded {
        match kind {
            Type::Long => Coded::Number,
            Type::Boolean => Coded::Flag,
            Type::Date | Type::Keyword | Type::Keywords | Type::Ip | Type::Ips | Type::Id => {
                Coded::Text
            }
        }
    }

    /// Bytes in a template.
    fn bytes(self) -> u16 {
        match self {
            Coded::Text => VARIABLE,
            Coded::Number => 8,
            Coded::Flag => 1,
        }
    }

    /// The number of its data type (RFC 5610, section 3.1).
    fn data_type(self) -> u8 {
        match self {
            Coded::Text => 13,
            Coded::Number => 4,
            Coded::Flag => 11,
        }
    }
}

/// Renders records for [`Writer::push_rows`]: a row is the export time, seconds, and a set with the record.
#[derive(Debug)]
pub struct Sets {
    own: Vec<(u16, &'static Field, Coded)>,
}

impl Default for Sets {
    fn default() -> Sets {
        let found = |name| FIELDS.iter().find(|field| field.name == name);
        let own = OWN.iter().filter_map(|(number, name)| {
            found(*name).map(|field| (*number, field, Coded::of(field.kind)))
        });
        Sets { own: own.collect() }
    }
}

impl RecordWriter for Sets {
    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        let start = out.len();
        let end_s =
            record.end_ns.max(record.start_ns).max(0).unsigned_abs().div_ceil(1_000_000_000);
        out.extend_from_slice(&(end_s as u32).to_be_bytes());
        let is_v6 = !(record.source.addr.is_v4() && record.destination.addr.is_v4());
        out.extend_from_slice(&FLOWS[usize::from(is_v6)].to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        write_standard(record, is_v6, out);
        for (_, field, coded) in &self.own {
            write_own((field.get)(record), *coded, out);
        }
        // Some fifty fields of which none is longer than a list: far below 64 KiB.
        let bytes = (out.len() - start - 4) as u16;
        out[start + 6..start + 8].copy_from_slice(&bytes.to_be_bytes());
    }
}

fn write_standard(record: &FlowRecord, is_v6: bool, out: &mut Vec<u8>) {
    let FlowRecord { source, destination, protocol, .. } = record;
    let start_ms = record.start_ns.max(0) / 1_000_000;
    out.extend_from_slice(&start_ms.to_be_bytes());
    out.extend_from_slice(&(record.end_ns.max(0) / 1_000_000).max(start_ms).to_be_bytes());
    for end in [source, destination] {
        // An IPv4 address in a flow of IPv6 is a mapped one.
        out.extend_from_slice(if is_v6 { &end.addr.0 } else { end.addr.octets() });
    }
    let (has_ports, is_icmp) = (has_ports(*protocol), matches!(protocol, 1 | 58));
    for end in [source, destination] {
        out.extend_from_slice(&if has_ports { end.port } else { 0 }.to_be_bytes());
    }
    out.push(*protocol);
    // The ports of ICMP are its type and code.
    let icmp = if is_icmp { [source.port as u8, destination.port as u8] } else { [0; 2] };
    out.extend_from_slice(&icmp);
    out.push(match record.end_reason {
        EndReason::Idle => 1,
        EndReason::Active => 2,
        EndReason::Closed => 3,
        EndReason::InputEnd => 4,
        EndReason::Evicted => 5,
    });
    out.extend_from_slice(&record.scope.vlan().unwrap_or(0).to_be_bytes());
    for end in [source, destination] {
        out.extend_from_slice(&end.ip_bytes.to_be_bytes());
        out.extend_from_slice(&end.packets.to_be_bytes());
    }
    out.push(if is_v6 { 6 } else { 4 });
}

fn write_own(value: Value<'_>, coded: Coded, out: &mut Vec<u8>) {
    match (coded, value) {
        (Coded::Flag, Value::Flag(true)) => out.push(1),
        (Coded::Flag, _) => out.push(2),
        (Coded::Number, Value::Number(number)) => out.extend_from_slice(&number.to_be_bytes()),
        (Coded::Number, _) => out.extend_from_slice(&[0; 8]),
        (Coded::Text, value) => write_text(value, out),
    }
}

/// Appends a string with its length, in the three bytes that fit any (RFC 7011, section 7).
fn write_text(value: Value<'_>, out: &mut Vec<u8>) {
    if matches!(value, Value::Absent) {
        return out.push(0);
    }
    out.extend_from_slice(&[255, 0, 0]);
    let start = out.len();
    schema::write_plain(value, out);
    if out.len() - start > LIST_BYTES_MAX {
        let list = &out[start..start + LIST_BYTES_MAX];
        let whole = list.iter().rposition(|byte| *byte == b' ').unwrap_or(0);
        out.truncate(start + whole);
    }
    let bytes = (out.len() - start) as u16;
    if bytes < 255 {
        out[start - 3] = bytes as u8;
        out.drain(start - 2..start);
    } else {
        out[start - 2..start].copy_from_slice(&bytes.to_be_bytes());
    }
}

impl Sets {
    /// Messages without complete headers, with their records: the templates, and the types of larder's elements.
    fn described(&self) -> Vec<(Vec<u8>, u32)> {
        let mut messages = Vec::new();
        for (is_v6, number) in [false, true].into_iter().zip(FLOWS) {
            let mut template = Vec::new();
            let count = standard(is_v6).len() + self.own.len();
            template.extend_from_slice(&number.to_be_bytes());
            template.extend_from_slice(&(count as u16).to_be_bytes());
            for (number, bytes, enterprise) in standard(is_v6) {
                write_element(number, bytes, enterprise, &mut template);
            }
            for (number, _, coded) in &self.own {
                write_element(*number, coded.bytes(), ENTERPRISE, &mut template);
            }
            messages.push((message_of(TEMPLATES, &template), 0));
        }
        // Scope: enterprise and element; then its type, meaning of numbers, and name.
        let mut template = [TYPES, 5, 2].map(u16::to_be_bytes).concat();
        for (number, bytes) in [(346, 4), (303, 2), (339, 1), (344, 1), (341, VARIABLE)] {
            write_element(number, bytes, 0, &mut template);
        }
        messages.push((message_of(OPTIONS_TEMPLATES, &template), 0));
        let (mut types, mut count) = (Vec::new(), 0);
        for (number, field, coded) in &self.own {
            types.extend_from_slice(&ENTERPRISE.to_be_bytes());
            types.extend_from_slice(&number.to_be_bytes());
            types.extend_from_slice(&[coded.data_type(), 0]);
            let name = camel_case(field.name);
            types.push(name.len() as u8);
            types.extend_from_slice(name.as_bytes());
            count += 1;
            if types.len() > MESSAGE_BYTES_MAX / 2 {
                let types = std::mem::take(&mut types);
                messages.push((message_of(TYPES, &types), std::mem::take(&mut count)));
            }
        }
        messages.push((message_of(TYPES, &types), count));
        messages
    }
}

fn write_element(number: u16, bytes: u16, enterprise: u32, out: &mut Vec<u8>) {
    let is_own = enterprise != 0;
    out.extend_from_slice(&(number | if is_own { 0x8000 } else { 0 }).to_be_bytes());
    out.extend_from_slice(&bytes.to_be_bytes());
    if is_own {
        out.extend_from_slice(&enterprise.to_be_bytes());
    }
}

/// A message with one set, its header still to be completed.
fn message_of(set: u16, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    message.extend_from_slice(&set.to_be_bytes());
    message.extend_from_slice(&(body.len() as u16 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// The name of an element: `larder.source.name_source` is `larderSourceNameSource`.
pub fn camel_case(field: &str) -> String {
    let mut name = String::with_capacity(field.len());
    for (at, word) in field.split(['.', '_']).enumerate() {
        let (first, rest) = word.split_at(1);
        name.push_str(&if at == 0 { first.to_owned() } else { first.to_ascii_uppercase() });
        name.push_str(rest);
    }
    name
}

#[cfg(test)]
mod tests;
