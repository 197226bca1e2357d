//! Small records that the format tests share.
#![allow(dead_code)]

use std::net::IpAddr;

use larder_annotate::Error;
use larder_annotate::format::Format;
use larder_annotate::options::OutputFormat;
use larder_annotate::record::{
    App, ConflictGrade, ConnState, End, EndReason, Exporter, FlowRecord, NameFlags, NameSource,
    Naming, UnnamedReason,
};
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

/// Bytes that no log may contain unescaped: terminal escapes, line ends, separators, quotes,
/// invalid UTF-8.
pub const HOSTILE: &[u8] = b"=e\x1b[31m,\"\t\r\n\\.\x00\x7f\x80\xffx;'`$(1) y";

pub fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().expect("a literal address"))
}

pub fn name(bytes: &[u8]) -> Name {
    Name::from_canonical(bytes)
}

pub fn end(address: &str, port: u16) -> End {
    End { port, ..End::of(addr(address)) }
}

pub fn naming(bytes: &[u8], source: NameSource) -> Naming {
    Naming {
        name: name(bytes),
        source,
        age_ms: 250,
        flags: NameFlags::NONE,
        confidence: 98,
        conflict_grade: None,
    }
}

/// A named TLS flow with two candidates.
pub fn web() -> FlowRecord {
    FlowRecord {
        first_packet: 7,
        end_packet: 40,
        start_ns: 1_704_164_645_123_456_789,
        end_ns: 1_704_164_657_469_135_578,
        protocol: 6,
        source: End {
            packets: 11,
            ip_bytes: 1_234,
            payload_bytes: Some(790),
            unnamed_reason: Some(UnnamedReason::Local),
            ..end("10.0.0.5", 49_152)
        },
        destination: End {
            packets: 29,
            ip_bytes: 34_567,
            payload_bytes: Some(33_001),
            missed_bytes: 1_460,
            naming: Some(Naming {
                flags: NameFlags::STALE.with(NameFlags::AMBIGUOUS),
                ..naming(b"www.example.com", NameSource::DnsPair)
            }),
            candidates: vec![name(b"www.example.com"), name(b"cdn.example.net")],
            ..end("93.184.216.34", 443)
        },
        app: Some(App::Tls),
        tls_server_name: Some(name(b"www.example.com")),
        tls_ech: Some(true),
        conn_state: ConnState::SF,
        history: "ShADadFf".to_owned(),
        end_reason: EndReason::Closed,
        ..FlowRecord::blank()
    }
}

/// A single ping over IPv6 without a name for either end.
pub fn ping() -> FlowRecord {
    FlowRecord {
        first_packet: 9,
        end_packet: u64::MAX,
        start_ns: 1_704_164_646_000_000_000,
        end_ns: 1_704_164_646_000_000_000,
        protocol: 58,
        source: End {
            packets: 1,
            ip_bytes: 104,
            payload_bytes: Some(56),
            ..end("2001:db8::5", 128)
        },
        destination: End {
            payload_bytes: Some(0),
            unnamed_reason: Some(UnnamedReason::NoLookupSeen),
            ..end("2001:db8:0:0:1::7", 129)
        },
        conn_state: ConnState::S0,
        ..FlowRecord::blank()
    }
}

/// A flow with a value for every field.
pub fn full() -> FlowRecord {
    let mut record = web();
    record.first_packet = 8;
    record.scope = Scope::NONE.tagged(10).tagged(20).with_vni(5000);
    record.source.unnamed_reason = None;
    record.source.naming = Some(Naming {
        flags: NameFlags::LATE.with(NameFlags::CLAIMED),
        conflict_grade: Some(ConflictGrade::OtherDomain),
        ..naming(b"laptop.local", NameSource::Mdns)
    });
    record.destination.naming = Some(Naming {
        flags: NameFlags::CONFLICT.with(NameFlags::UNCONFIRMED),
        conflict_grade: Some(ConflictGrade::SameDomain),
        ..naming(b"www.example.com", NameSource::Sni)
    });
    record.source.candidates = vec![name(b"laptop.local"), name(b"laptop")];
    record.app = Some(App::Http);
    record.http_host = Some(name(b"www.example.org"));
    record.continued_since_ns = Some(record.start_ns - 3_600_000_000_000);
    record.exporter =
        Some(Exporter { addr: addr("192.0.2.1"), domain: 7, sampling_rate: Some(100) });
    record
}

/// Every name is hostile, and the capture's clock ran backwards.
pub fn hostile() -> FlowRecord {
    let mut record = web();
    record.first_packet = 12;
    record.end_ns = record.start_ns - 1;
    record.protocol = 17;
    record.app = Some(App::Quic);
    record.source = end("fe80::1", 5353);
    record.source.naming = Some(naming("josé 😀.local".as_bytes(), NameSource::Mdns));
    record.destination.naming = Some(naming(HOSTILE, NameSource::QuicSni));
    record.destination.candidates = vec![name(HOSTILE), name(b"-"), name(b"")];
    record.tls_server_name = Some(name(HOSTILE));
    record.http_host = Some(name(b"@sum(a1),b"));
    record
}

pub fn all() -> Vec<FlowRecord> {
    vec![web(), full(), ping(), hostile()]
}

/// Renders a whole log.
pub fn log(
    output: OutputFormat,
    numeric_ports: bool,
    records: &[FlowRecord],
) -> Result<String, Error> {
    let format = Format::new(output, numeric_ports)?;
    let mut out = Vec::new();
    format.writer().header(0, &mut out);
    for record in records {
        format.writer().record(record, &mut out);
    }
    format.writer().footer(0, &mut out);
    Ok(String::from_utf8(out).expect("line formats are ASCII"))
}
