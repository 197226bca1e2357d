//! The fields of a record: one table for every structured format.
//!
//! [`FIELDS`] says for each field its name, its type, its unit, what it means, and how to get it
//! from a [`FlowRecord`]. ECS, CSV and Parquet write all rows under the same names; Zeek's conn.log
//! has its own columns, and the rows with a [`Field::zeek`] name are appended to them. The guide
//! (`docs/guide/fields.md`) is checked against the table by a test. A new field is a new row.
//!
//! Invariants
//! 1. Names are unique, and `@timestamp` comes first and is never absent.
//! 2. The value of a field has the field's type in every record, or is [`Value::Absent`].
//!
//! Absent means unknown, or not applicable; no other value stands for that.
//! Cost: an indirect call a field, no allocation.

use larder_wire::{Addr, Name, civil::Civil, community_id, digits};

use super::zeek;
use crate::record::{End, FlowRecord, NameFlags};
use crate::registered;

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
    /// A number that stands for something and is not counted with: a VLAN ID.
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

    /// The Parquet type, as `parquet-schema` prints it.
    pub const fn parquet(self) -> &'static str {
        match self {
            Type::Date => "INT64 TIMESTAMP(NANOS, UTC)",
            Type::Keyword | Type::Ip | Type::Id => "BYTE_ARRAY STRING",
            Type::Keywords | Type::Ips => "LIST of BYTE_ARRAY STRING",
            Type::Long => "INT64",
            Type::Boolean => "BOOLEAN",
        }
    }

    /// True where a record may hold many values.
    pub const fn is_list(self) -> bool {
        matches!(self, Type::Keywords | Type::Ips)
    }
}

/// What a field holds in one record.
#[derive(Clone, Copy, Debug)]
pub enum Value<'r> {
    /// Unknown, or not applicable.
    Absent,
    /// ns since 1970 UTC.
    Time(i64),
    /// A word of ours: printable ASCII without spaces, quotes or backslashes.
    Word(&'static str),
    /// Words of ours.
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
    /// A count, a size, a port, a duration; at most `i64::MAX`, which is what a `long` holds.
    Number(u64),
    /// A number that stands for something.
    Id(u64),
    /// A flag.
    Flag(bool),
}

/// A list of names without repeats, walked without building it.
#[derive(Clone, Copy, Debug)]
pub enum Names<'r> {
    /// The names of one end, best first.
    OfEnd(&'r End),
    /// Every name in the record: of the source, of the destination, and what the flow itself says.
    OfRecord(&'r FlowRecord),
}

impl<'r> Names<'r> {
    /// Calls `each` with every name once, in order.
    ///
    /// Repeats are found by comparing with all that went before: the lists are as short as
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
    /// Name of the column appended to Zeek's conn.log; `None` where Zeek has the field already,
    /// or has no use for it.
    pub zeek: Option<&'static str>,
    /// Type.
    pub kind: Type,
    /// Unit; empty where there is none.
    pub unit: &'static str,
    /// Meaning, one sentence for the guide.
    pub doc: &'static str,
    /// Gets the value.
    pub get: for<'r> fn(&'r FlowRecord) -> Value<'r>,
}

/// A row whose Zeek column is Zeek's own, or none.
const fn row(
    name: &'static str,
    kind: Type,
    unit: &'static str,
    get: for<'r> fn(&'r FlowRecord) -> Value<'r>,
    doc: &'static str,
) -> Field {
    Field { name, zeek: None, kind, unit, doc, get }
}

/// A row that is appended to Zeek's columns under the name `zeek`.
const fn ours(
    name: &'static str,
    zeek: &'static str,
    kind: Type,
    unit: &'static str,
    get: for<'r> fn(&'r FlowRecord) -> Value<'r>,
    doc: &'static str,
) -> Field {
    Field { name, zeek: Some(zeek), kind, unit, doc, get }
}

/// Every field, in the order in which all formats write them.
pub static FIELDS: &[Field] = &[
    row("@timestamp", Type::Date, "", |r| Value::Time(r.start_ns), "The same as `event.start`."),
    row("ecs.version", Type::Keyword, "", |_| Value::Word(ECS_VERSION), "Version of ECS."),
    row("event.kind", Type::Keyword, "", |_| Value::Word("event"), "Always `event`."),
    row("event.category", Type::Keywords, "", |_| Value::Words(&["network"]), "Always `network`."),
    row(
        "event.type",
        Type::Keywords,
        "",
        |_| Value::Words(&["connection"]),
        "Always `connection`.",
    ),
    row(
        "event.dataset",
        Type::Keyword,
        "",
        |_| Value::Word("larder.flow"),
        "Always `larder.flow`.",
    ),
    row("event.module", Type::Keyword, "", |_| Value::Word("larder"), "Always `larder`."),
    row(
        "event.id",
        Type::Keyword,
        "",
        |r| Value::Uid(r),
        "The flow's `uid` in Zeek's format: the same in every run over the same packets.",
    ),
    row("observer.product", Type::Keyword, "", |_| Value::Word("larder"), "Always `larder`."),
    row("observer.type", Type::Keyword, "", |_| Value::Word("sensor"), "Always `sensor`."),
    row(
        "observer.version",
        Type::Keyword,
        "",
        |_| Value::Word(env!("CARGO_PKG_VERSION")),
        "Version of larder.",
    ),
    row("event.start", Type::Date, "", |r| Value::Time(r.start_ns), "Time of the first packet."),
    row("event.end", Type::Date, "", |r| Value::Time(r.end_ns), "Time of the last packet."),
    row(
        "event.duration",
        Type::Long,
        "ns",
        |r| number(duration_ns(r)),
        "From the first packet to the last; 0 where the capture's clock went backwards.",
    ),
    row(
        "network.transport",
        Type::Keyword,
        "",
        |r| transport(r.protocol).map_or(Value::Absent, Value::Word),
        "IANA keyword of the IP protocol, lower case: `tcp`, `udp`, `icmp`, `ipv6-icmp` ...",
    ),
    row(
        "network.type",
        Type::Keyword,
        "",
        |r| Value::Word(if r.source.addr.is_v4() { "ipv4" } else { "ipv6" }),
        "`ipv4` or `ipv6`.",
    ),
    row(
        "network.protocol",
        Type::Keyword,
        "",
        |r| r.app.map_or(Value::Absent, |app| Value::Word(app.as_str())),
        "Application protocol, as far as larder looked.",
    ),
    ours(
        "network.community_id",
        "community_id",
        Type::Keyword,
        "",
        |r| Value::CommunityId(r),
        "Community ID v1 with seed 0: the same for the same flow in Zeek, Suricata and others.",
    ),
    ours(
        "network.vlan.id",
        "vlan",
        Type::Id,
        "",
        |r| r.scope.vlan().map_or(Value::Absent, |id| Value::Id(id.into())),
        "ID of the flow's VLAN, the outermost of several.",
    ),
    ours(
        "network.inner.vlan.id",
        "inner_vlan",
        Type::Id,
        "",
        |r| r.scope.inner_vlan().map_or(Value::Absent, |id| Value::Id(id.into())),
        "ID of the innermost VLAN, where there is more than one tag (QinQ).",
    ),
    ours(
        "larder.tunnel.id",
        "tunnel_id",
        Type::Id,
        "",
        |r| r.scope.vni().or(r.scope.gre_key()).map_or(Value::Absent, |id| Value::Id(id.into())),
        "VNI of the flow's VXLAN or Geneve tunnel, or key of its GRE tunnel.",
    ),
    row(
        "network.bytes",
        Type::Long,
        "octets",
        |r| number(r.source.ip_bytes.saturating_add(r.destination.ip_bytes)),
        "`source.bytes` and `destination.bytes` together.",
    ),
    row(
        "network.packets",
        Type::Long,
        "packets",
        |r| number(r.source.packets.saturating_add(r.destination.packets)),
        "`source.packets` and `destination.packets` together.",
    ),
    row("source.ip", Type::Ip, "", |r| Value::Ip(r.source.addr), "Address of the initiator."),
    row(
        "source.port",
        Type::Long,
        "",
        |r| port(r, &r.source),
        "Its port; absent for protocols without ports.",
    ),
    row("source.domain", Type::Keyword, "", |r| domain(&r.source), "Its name."),
    row(
        "source.bytes",
        Type::Long,
        "octets",
        |r| number(r.source.ip_bytes),
        "What it sent, by the innermost IP headers.",
    ),
    row("source.packets", Type::Long, "packets", |r| number(r.source.packets), "What it sent."),
    row(
        "destination.ip",
        Type::Ip,
        "",
        |r| Value::Ip(r.destination.addr),
        "Address of the responder.",
    ),
    row(
        "destination.port",
        Type::Long,
        "",
        |r| port(r, &r.destination),
        "Its port; absent for protocols without ports.",
    ),
    row("destination.domain", Type::Keyword, "", |r| domain(&r.destination), "Its name."),
    row(
        "destination.registered_domain",
        Type::Keyword,
        "",
        |r| registered_domain(&r.destination),
        "The end of `destination.domain` that somebody registered, by the Public Suffix List; absent \
         where no public suffix ends the name.",
    ),
    row(
        "destination.bytes",
        Type::Long,
        "octets",
        |r| number(r.destination.ip_bytes),
        "What it sent, by the innermost IP headers.",
    ),
    row(
        "destination.packets",
        Type::Long,
        "packets",
        |r| number(r.destination.packets),
        "What it sent.",
    ),
    ours(
        "larder.source.name_source",
        "id.orig_h_name.src",
        Type::Keyword,
        "",
        |r| name_source(&r.source),
        "Where `source.domain` came from.",
    ),
    ours(
        "larder.source.candidates",
        "id.orig_h_name.vals",
        Type::Keywords,
        "",
        |r| candidates(&r.source),
        "Every name known for `source.ip`, best first; `source.domain` is the first.",
    ),
    ours(
        "larder.destination.name_source",
        "id.resp_h_name.src",
        Type::Keyword,
        "",
        |r| name_source(&r.destination),
        "Where `destination.domain` came from.",
    ),
    ours(
        "larder.destination.candidates",
        "id.resp_h_name.vals",
        Type::Keywords,
        "",
        |r| candidates(&r.destination),
        "Every name known for `destination.ip`, best first; `destination.domain` is the first.",
    ),
    ours(
        "larder.source.name_age_ms",
        "orig_name_age_ms",
        Type::Long,
        "ms",
        |r| name_age(&r.source),
        "From learning `source.domain` to the first packet; 0 for names that the flow states itself \
         and for late names.",
    ),
    ours(
        "larder.source.name_stale",
        "orig_name_stale",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::STALE),
        "`source.domain` was past its TTL at the first packet.",
    ),
    ours(
        "larder.source.name_late",
        "orig_name_late",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::LATE),
        "`source.domain` was learned only after the first packet.",
    ),
    ours(
        "larder.source.name_ambiguous",
        "orig_name_ambiguous",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::AMBIGUOUS),
        "`source.ip` had rival names.",
    ),
    ours(
        "larder.source.name_conflict",
        "orig_name_conflict",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::CONFLICT),
        "Lookups gave `source.ip` names of another registered domain than the flow states, and no alias chain joins them.",
    ),
    ours(
        "larder.source.name_conflict_grade",
        "orig_name_conflict_grade",
        Type::Keyword,
        "",
        |r| conflict_grade(&r.source),
        "How far the stated name is from the looked-up names where it is none of them: `same_domain`, `chain`, `other_domain`.",
    ),
    ours(
        "larder.source.name_unsolicited",
        "orig_name_unsolicited",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::UNSOLICITED),
        "`source.domain` comes from a response without a query, although queries of this client are seen.",
    ),
    ours(
        "larder.source.name_one_sided",
        "orig_name_one_sided",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::ONE_SIDED),
        "`source.domain` comes from a response to a client whose queries are never seen.",
    ),
    ours(
        "larder.source.name_unconfirmed",
        "orig_name_unconfirmed",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::UNCONFIRMED),
        "The flow states `source.domain`, and no lookup gave it for `source.ip`.",
    ),
    ours(
        "larder.source.name_claimed",
        "orig_name_claimed",
        Type::Boolean,
        "",
        |r| name_flag(&r.source, NameFlags::CLAIMED),
        "A host or a reverse zone claims `source.domain`, and nothing confirms it.",
    ),
    ours(
        "larder.source.unnamed_reason",
        "orig_unnamed_reason",
        Type::Keyword,
        "",
        |r| unnamed_reason(&r.source),
        "Why `source.ip` has no name.",
    ),
    ours(
        "larder.destination.name_age_ms",
        "resp_name_age_ms",
        Type::Long,
        "ms",
        |r| name_age(&r.destination),
        "From learning `destination.domain` to the first packet; 0 for names that the flow states \
         itself and for late names.",
    ),
    ours(
        "larder.destination.name_stale",
        "resp_name_stale",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::STALE),
        "`destination.domain` was past its TTL at the first packet.",
    ),
    ours(
        "larder.destination.name_late",
        "resp_name_late",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::LATE),
        "`destination.domain` was learned only after the first packet.",
    ),
    ours(
        "larder.destination.name_ambiguous",
        "resp_name_ambiguous",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::AMBIGUOUS),
        "`destination.ip` had rival names.",
    ),
    ours(
        "larder.destination.name_conflict",
        "resp_name_conflict",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::CONFLICT),
        "Lookups gave `destination.ip` names of another registered domain than the flow states, and no alias chain joins them; or the flow states two names.",
    ),
    ours(
        "larder.destination.name_conflict_grade",
        "resp_name_conflict_grade",
        Type::Keyword,
        "",
        |r| conflict_grade(&r.destination),
        "How far the stated name is from the looked-up names where it is none of them: `same_domain`, `chain`, `other_domain`.",
    ),
    ours(
        "larder.destination.name_unsolicited",
        "resp_name_unsolicited",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::UNSOLICITED),
        "`destination.domain` comes from a response without a query, although queries of this client are seen.",
    ),
    ours(
        "larder.destination.name_one_sided",
        "resp_name_one_sided",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::ONE_SIDED),
        "`destination.domain` comes from a response to a client whose queries are never seen.",
    ),
    ours(
        "larder.destination.name_unconfirmed",
        "resp_name_unconfirmed",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::UNCONFIRMED),
        "The flow states `destination.domain`, and no lookup gave it for `destination.ip`.",
    ),
    ours(
        "larder.destination.name_claimed",
        "resp_name_claimed",
        Type::Boolean,
        "",
        |r| name_flag(&r.destination, NameFlags::CLAIMED),
        "A host or a reverse zone claims `destination.domain`, and nothing confirms it.",
    ),
    ours(
        "larder.destination.unnamed_reason",
        "resp_unnamed_reason",
        Type::Keyword,
        "",
        |r| unnamed_reason(&r.destination),
        "Why `destination.ip` has no name.",
    ),
    ours(
        "tls.client.server_name",
        "server_name",
        Type::Keyword,
        "",
        |r| stated(&r.tls_server_name, &r.no_names.tls_server_name),
        "Server name (SNI) in the flow's TLS, DTLS or QUIC ClientHello. Only a valid host name names the flow.",
    ),
    ours(
        "tls.client.ech",
        "ech",
        Type::Boolean,
        "",
        |r| r.tls_ech.map_or(Value::Absent, Value::Flag),
        "The ClientHello has the encrypted_client_hello extension, or GREASE that looks alike; absent without a ClientHello.",
    ),
    ours(
        "url.domain",
        "host",
        Type::Keyword,
        "",
        |r| stated(&r.http_host, &r.no_names.http_host),
        "Host of the flow's first HTTP request, `:authority` in HTTP/2. Only a valid host name names the flow.",
    ),
    row(
        "related.ip",
        Type::Ips,
        "",
        |r| Value::Ips(r),
        "`source.ip` and `destination.ip`, without repeats.",
    ),
    row(
        "related.hosts",
        Type::Keywords,
        "",
        |r| some_names(Names::OfRecord(r)),
        "Every name in the record, without repeats.",
    ),
];

/// Appends the table for machines: a line a field, a tab between name, ECS type, `list` where there
/// may be many values, unit, Zeek column, Parquet type, and meaning; absent ones are `-`.
pub fn write_columns(out: &mut Vec<u8>) {
    for field in FIELDS {
        let list = if field.kind.is_list() { "list" } else { "-" };
        let unit = if field.unit.is_empty() { "-" } else { field.unit };
        let zeek = field.zeek.unwrap_or("-");
        let kind = field.kind;
        let columns = [field.name, kind.ecs(), list, unit, zeek, kind.parquet(), field.doc];
        out.extend_from_slice(columns.join("\t").as_bytes());
        out.push(b'\n');
    }
}

/// From the first packet to the last, ns; 0 where the capture's clock went backwards.
pub(crate) fn duration_ns(record: &FlowRecord) -> u64 {
    u64::try_from(record.end_ns.saturating_sub(record.start_ns)).unwrap_or(0)
}

/// IANA's keyword for an IP protocol number, in the lower case that ECS asks for. Only protocols
/// met beneath IP in practice; the others are absent rather than guessed.
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

/// True for protocols whose ports are ports: TCP, UDP, DCCP, SCTP, UDP-Lite. Those of ICMP are its
/// type and code, which nobody should take for a service.
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// The octets of a name as written: the root, which we keep as the empty name, is a dot.
pub(crate) fn name_octets(name: &Name) -> &[u8] {
    if name.is_root() { b"." } else { name.as_bytes() }
}

/// Appends a name in the spelling that text, Zeek, CSV and Parquet share: printable ASCII, every
/// other octet as `\xHH`.
pub(crate) fn write_name(name: &Name, out: &mut Vec<u8>) {
    Name::write_escaped(name_octets(name), out);
}

/// Appends a value that is text in every format as plain ASCII: no name can hold a space or a
/// control octet after [`write_name`], so lists are joined by one space. Absent is nothing.
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

/// A number in the range of a `long`.
fn number<'r>(number: u64) -> Value<'r> {
    Value::Number(number.min(i64::MAX as u64))
}

fn port<'r>(record: &'r FlowRecord, end: &'r End) -> Value<'r> {
    if has_ports(record.protocol) { Value::Number(end.port.into()) } else { Value::Absent }
}

/// What a flow stated, as a name or as something that is none.
fn stated<'r>(name: &'r Option<Name>, no_name: &'r Option<Name>) -> Value<'r> {
    name.as_ref().or(no_name.as_ref()).map_or(Value::Absent, name_value)
}

fn domain(end: &End) -> Value<'_> {
    end.naming.as_ref().map_or(Value::Absent, |naming| name_value(&naming.name))
}

fn name_value(name: &Name) -> Value<'_> {
    Value::Name(name_octets(name))
}

fn registered_domain(end: &End) -> Value<'_> {
    let naming = end.naming.as_ref();
    let registered = naming.and_then(|naming| registered::domain(naming.name.as_bytes()));
    registered.map_or(Value::Absent, Value::Name)
}

/// The addresses of a record, the second only where it differs from the first.
pub(crate) fn related_addrs(record: &FlowRecord) -> (Addr, Option<Addr>) {
    let (source, destination) = (record.source.addr, record.destination.addr);
    (source, (source != destination).then_some(destination))
}

fn name_source(end: &End) -> Value<'_> {
    end.naming.as_ref().map_or(Value::Absent, |naming| Value::Word(naming.source.as_str()))
}

fn name_age(end: &End) -> Value<'_> {
    end.naming.as_ref().map_or(Value::Absent, |naming| number(naming.age_ms))
}

#[inline]
fn name_flag(end: &End, flag: NameFlags) -> Value<'_> {
    end.naming.as_ref().map_or(Value::Absent, |naming| Value::Flag(naming.flags.has(flag)))
}

fn conflict_grade(end: &End) -> Value<'_> {
    let grade = end.naming.as_ref().and_then(|naming| naming.conflict_grade);
    grade.map_or(Value::Absent, |grade| Value::Word(grade.as_str()))
}

fn unnamed_reason(end: &End) -> Value<'_> {
    match (&end.naming, end.unnamed_reason) {
        (None, Some(reason)) => Value::Word(reason.as_str()),
        _ => Value::Absent,
    }
}

fn candidates(end: &End) -> Value<'_> {
    some_names(Names::OfEnd(end))
}

fn some_names(names: Names<'_>) -> Value<'_> {
    if names.is_empty() { Value::Absent } else { Value::Names(names) }
}
