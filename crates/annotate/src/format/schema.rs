//! The fields of a record: one table for every structured format.
//!
//! [`FIELDS`](super::fields::FIELDS) has for each field its name, type, unit, meaning, and the function that gets it from
//! a [`FlowRecord`]. ECS, CSV, Parquet and the rows for programs have all fields under the same names. Zeek's
//! conn.log has its own columns, and the fields with a [`Field::zeek`] name are added to them. A test compares the
//! guide (`docs/guide/fields.md`) with the table. A new field is a new row.
//!
//! Invariants
//! 1. Names are unique, and `@timestamp` comes first and is never absent.
//! 2. The value of a field has the field's type in every record, or is [`Value::Absent`].
//!
//! Absent means unknown, or not applicable; no other value has that meaning. Cost: an indirect call
//! a field, no allocation.

use larder_wire::{Addr, Name, civil::Civil, community_id, digits};

use super::zeek;
use crate::record::{End, FlowRecord};

/// Version of the Elastic Common Schema that the names and types follow.
pub const ECS_VERSION: &str = "8.17.0";

/// Type of a field, by its Elasticsearch mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A time, ns since 1970 UTC; RFC 3339 in text.
    Date,
    /// One word or name.
    Keyword,
    /// A list of words or names.
    Keywords,
    /// An IP address.
    Ip,
    /// A list of IP addresses.
    Ips,
    /// A number that identifies something: a VLAN ID.
    Id,
    /// A number that is never negative.
    Long,
    /// True or false.
    Boolean,
}

impl Type {
    /// The Elasticsearch field type. A list has the type of its elements.
    pub const fn ecs(self) -> &'static str {
        match self {
            Type::Date => "date",
            Type::Keyword | Type::Keywords | Type::Id => "keyword",
            Type::Ip | Type::Ips => "ip",
            Type::Long => "long",
            Type::Boolean => "boolean",
        }
    }

    /// The Zeek type.
    pub const fn zeek(self) -> &'static str {
        match self {
            Type::Date => "time",
            Type::Keyword => "string",
            Type::Keywords => "vector[string]",
            Type::Ip => "addr",
            Type::Ips => "set[addr]",
            Type::Id => "int",
            Type::Long => "count",
            Type::Boolean => "bool",
        }
    }

    /// True where a record may hold many values.
    pub const fn is_list(self) -> bool {
        matches!(self, Type::Keywords | Type::Ips)
    }
}

/// The value of a field in one record.
#[derive(Clone, Copy, Debug)]
pub enum Value<'r> {
    /// Unknown, or not applicable.
    Absent,
    /// ns since 1970 UTC.
    Time(i64),
    /// A word of larder's own: printable ASCII without spaces, quotes or backslashes.
    Word(&'static str),
    /// Words of larder's own.
    Words(&'static [&'static str]),
    /// The Community ID of the flow; computed when written.
    CommunityId(&'r FlowRecord),
    /// Zeek's `uid` of the flow; computed when written.
    Uid(&'r FlowRecord),
    /// A name from the network, or the end of one, in canonical spelling: hostile bytes.
    Name(&'r [u8]),
    /// Names from the network, at least one.
    Names(Names<'r>),
    /// An address.
    Ip(Addr),
    /// The addresses of both ends, without repeats.
    Ips(&'r FlowRecord),
    /// A count, a size, a port, a duration; at most `i64::MAX`, the limit of a `long`.
    Number(u64),
    /// A number that identifies something.
    Id(u64),
    /// A flag.
    Flag(bool),
}

/// A list of names without repeats, walked without building it.
#[derive(Clone, Copy, Debug)]
pub enum Names<'r> {
    /// The names of one end, best first.
    OfEnd(&'r End),
    /// Every name in the record: of the source, of the destination, and those that the flow states.
    OfRecord(&'r FlowRecord),
}

impl<'r> Names<'r> {
    /// Calls `each` with every name once, in order.
    ///
    /// Repeats are found by comparing with all names before: the lists are as short as
    /// `candidates_max`, so this is cheaper than a set.
    pub fn for_each(self, mut each: impl FnMut(&'r Name)) {
        let mut at = 0;
        while let Some(name) = self.nth(at) {
            if (0..at).all(|before| self.nth(before) != Some(name)) {
                each(name);
            }
            at += 1;
        }
    }

    /// True when there is no name.
    pub fn is_empty(self) -> bool {
        self.nth(0).is_none()
    }

    /// The name at a place of the list with repeats.
    fn nth(self, at: usize) -> Option<&'r Name> {
        match self {
            Names::OfEnd(end) => nth_of_end(end, at),
            Names::OfRecord(record) => {
                let source = len_of_end(&record.source);
                let both = source + len_of_end(&record.destination);
                if at < source {
                    return nth_of_end(&record.source, at);
                }
                if at < both {
                    return nth_of_end(&record.destination, at - source);
                }
                let own = [record.tls_server_name.as_ref(), record.http_host.as_ref()];
                own.into_iter().flatten().nth(at - both)
            }
        }
    }
}

fn len_of_end(end: &End) -> usize {
    usize::from(end.naming.is_some()) + end.candidates.len()
}

fn nth_of_end(end: &End, at: usize) -> Option<&Name> {
    match &end.naming {
        Some(naming) if at == 0 => Some(&naming.name),
        Some(_) => end.candidates.get(at - 1),
        None => end.candidates.get(at),
    }
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in ECS, CSV and Parquet.
    pub name: &'static str,
    /// Name of the column in Zeek's conn.log; `None` if Zeek has the field, or has no use for it.
    pub zeek: Option<&'static str>,
    /// Type.
    pub kind: Type,
    /// Unit; empty where there is none.
    pub unit: &'static str,
    /// Meaning, one sentence for the guide.
    pub doc: &'static str,
    /// The function that gets the value.
    pub get: for<'r> fn(&'r FlowRecord) -> Value<'r>,
}

/// From the first packet to the last, ns; 0 where the capture's clock went backwards.
pub(crate) fn duration_ns(record: &FlowRecord) -> u64 {
    u64::try_from(record.end_ns.saturating_sub(record.start_ns)).unwrap_or(0)
}

/// IANA's keyword for an IP protocol number, in lower case as in ECS. Only protocols that occur in
/// practice; the others are absent.
pub(crate) fn transport(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        1 => "icmp",
        2 => "igmp",
        4 => "ipv4",
        6 => "tcp",
        8 => "egp",
        9 => "igp",
        17 => "udp",
        27 => "rdp",
        33 => "dccp",
        41 => "ipv6",
        46 => "rsvp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "ipv6-icmp",
        88 => "eigrp",
        89 => "ospfigp",
        94 => "ipip",
        97 => "etherip",
        103 => "pim",
        108 => "ipcomp",
        112 => "vrrp",
        115 => "l2tp",
        132 => "sctp",
        133 => "fc",
        136 => "udplite",
        137 => "mpls-in-ip",
        _ => return None,
    })
}

/// True for protocols with ports: TCP, UDP, DCCP, SCTP, UDP-Lite. Those of ICMP are its type and
/// code, and no service.
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// The bytes of a name as written: the root, which is stored as the empty name, is a dot.
pub(crate) fn name_bytes(name: &Name) -> &[u8] {
    if name.is_root() { b"." } else { name.as_bytes() }
}

/// Appends a name in the spelling that text, Zeek, CSV and Parquet share: printable ASCII, every
/// other byte as `\xHH`.
pub(crate) fn write_name(name: &Name, out: &mut Vec<u8>) {
    Name::write_escaped(name_bytes(name), out);
}

/// Appends a value as plain ASCII text: no name has a space or a control byte after [`write_name`],
/// so lists are joined by one space. Absent is nothing.
pub(crate) fn write_plain(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Absent => {}
        Value::Time(ns) => out.extend_from_slice(&Civil::from_ns(ns).rfc3339()),
        Value::Word(word) => out.extend_from_slice(word.as_bytes()),
        Value::Words(words) => {
            for (i, word) in words.iter().enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                out.extend_from_slice(word.as_bytes());
            }
        }
        Value::CommunityId(record) => write_community_id(record, out),
        Value::Uid(record) => zeek::write_uid(record, out),
        Value::Name(name) => Name::write_escaped(name, out),
        Value::Names(names) => {
            let start = out.len();
            names.for_each(|name| {
                if out.len() > start {
                    out.push(b' ');
                }
                write_name(name, out);
            });
        }
        Value::Ip(addr) => digits::write_addr(addr, out),
        Value::Ips(record) => {
            let (first, second) = related_addrs(record);
            digits::write_addr(first, out);
            if let Some(second) = second {
                out.push(b' ');
                digits::write_addr(second, out);
            }
        }
        Value::Number(number) | Value::Id(number) => digits::write_u64(number, out),
        Value::Flag(flag) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
    }
}

/// Appends the Community ID v1 of a flow, with seed 0.
pub(crate) fn write_community_id(record: &FlowRecord, out: &mut Vec<u8>) {
    let FlowRecord { source, destination, .. } = record;
    let id = community_id::v1(
        source.addr,
        destination.addr,
        source.port,
        destination.port,
        record.protocol,
        0,
    );
    out.extend_from_slice(id.as_bytes());
}

/// The addresses of a record, the second only if it differs from the first.
pub(crate) fn related_addrs(record: &FlowRecord) -> (Addr, Option<Addr>) {
    let (source, destination) = (record.source.addr, record.destination.addr);
    (source, (source != destination).then_some(destination))
}
