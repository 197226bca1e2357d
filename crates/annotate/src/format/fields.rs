//! The table of the fields of a record, in the order in which all formats write them.

use larder_wire::Name;

use super::schema::{
    ECS_VERSION, Field, Names, Type, Value, duration_ns, has_ports, name_bytes, transport,
};
use crate::record::{End, FlowRecord, NameFlags};
use crate::registered;

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

/// A row that is added to Zeek's columns under the name `zeek`.
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
        "bytes",
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
        "bytes",
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
        "bytes",
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
        "larder.source.name_confidence",
        "orig_name_confidence",
        Type::Long,
        "%",
        |r| confidence(&r.source),
        "How sure `source.domain` is: the share of flows in the same situation for which it is right.",
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
        "Lookups gave `source.ip` names of another registered domain than the flow states, \
         and no alias chain joins them.",
    ),
    ours(
        "larder.source.name_conflict_grade",
        "orig_name_conflict_grade",
        Type::Keyword,
        "",
        |r| conflict_grade(&r.source),
        "How far the stated name is from the looked-up names where it is none of them: \
         `same_domain`, `chain`, `other_domain`.",
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
        "larder.destination.name_confidence",
        "resp_name_confidence",
        Type::Long,
        "%",
        |r| confidence(&r.destination),
        "How sure `destination.domain` is: the share of flows in the same situation for which it is right.",
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
        "Lookups gave `destination.ip` names of another registered domain than the flow states, \
         and no alias chain joins them; or the flow states two names.",
    ),
    ours(
        "larder.destination.name_conflict_grade",
        "resp_name_conflict_grade",
        Type::Keyword,
        "",
        |r| conflict_grade(&r.destination),
        "How far the stated name is from the looked-up names where it is none of them: \
         `same_domain`, `chain`, `other_domain`.",
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
        "The ClientHello has the encrypted_client_hello extension, or GREASE that looks alike; \
         absent without a ClientHello.",
    ),
    ours(
        "url.domain",
        "host",
        Type::Keyword,
        "",
        |r| stated(&r.http_host, &r.no_names.http_host),
        "Host of the flow's first HTTP request, `:authority` in HTTP/2. Only a valid host name names the flow.",
    ),
    ours(
        "larder.exporter.ip",
        "exporter",
        Type::Ip,
        "",
        |r| r.exporter.map_or(Value::Absent, |exporter| Value::Ip(exporter.addr)),
        "Address of the router that exported the flow; absent for flows of packets.",
    ),
    ours(
        "larder.exporter.domain",
        "exporter_domain",
        Type::Id,
        "",
        |r| r.exporter.map_or(Value::Absent, |exporter| Value::Id(exporter.domain.into())),
        "Its observation domain (IPFIX), source ID (NetFlow v9), or engine type and number (v5).",
    ),
    ours(
        "larder.exporter.sampling_rate",
        "sampling_rate",
        Type::Long,
        "packets",
        |r| {
            let rate = r.exporter.and_then(|exporter| exporter.sampling_rate);
            rate.map_or(Value::Absent, number)
        },
        "The router saw one of this many packets. Counts are as exported, not multiplied.",
    ),
    ours(
        "larder.continued_since",
        "continued_since",
        Type::Date,
        "",
        |r| r.continued_since_ns.map_or(Value::Absent, Value::Time),
        "When the flow began, if an earlier record counts its first packets (`--cut-every`, `--active`).",
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

/// A number in the range of a `long`.
fn number<'r>(number: u64) -> Value<'r> {
    Value::Number(number.min(i64::MAX as u64))
}

fn port<'r>(record: &'r FlowRecord, end: &'r End) -> Value<'r> {
    if has_ports(record.protocol) { Value::Number(end.port.into()) } else { Value::Absent }
}

/// A statement of the flow, whether it is a name or not.
fn stated<'r>(name: &'r Option<Name>, no_name: &'r Option<Name>) -> Value<'r> {
    name.as_ref().or(no_name.as_ref()).map_or(Value::Absent, name_value)
}

fn domain(end: &End) -> Value<'_> {
    end.naming.as_ref().map_or(Value::Absent, |naming| name_value(&naming.name))
}

fn name_value(name: &Name) -> Value<'_> {
    Value::Name(name_bytes(name))
}

fn registered_domain(end: &End) -> Value<'_> {
    let naming = end.naming.as_ref();
    let registered = naming.and_then(|naming| registered::domain(naming.name.as_bytes()));
    registered.map_or(Value::Absent, Value::Name)
}

fn name_source(end: &End) -> Value<'_> {
    end.naming.as_ref().map_or(Value::Absent, |naming| Value::Word(naming.source.as_str()))
}

fn confidence(end: &End) -> Value<'_> {
    end.naming.as_ref().map_or(Value::Absent, |naming| number(naming.confidence.into()))
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
