//! Zeek's conn.log: its columns, order, types and headers (Zeek 8), with added columns.
//!
//! Fields are separated by tabs, absent ones are `-`, empty ones `(empty)`, lists are joined by
//! commas. Bytes of names outside printable ASCII are `\xHH`, and so are bytes that would read as
//! something else: a comma in a list, the first byte of a name that is `-` or `(empty)`.
//!
//! If larder has more data than conn.log has columns for, conn.log's meaning counts:
//!
//! * a flow of one packet, or of no duration, has no `duration`, `orig_bytes` and `resp_bytes`;
//! * `proto` is `icmp` for ICMPv6 too, and `unknown_transport` for protocols other than TCP, UDP
//!   and ICMP: `ip_proto` has the number;
//! * `service` is Zeek's word: `ssl` for TLS, `dns` for mDNS, LLMNR and NetBIOS names;
//! * `tunnel_parents` has uids of tunnels; larder has no flow for the tunnel itself, so `-`.
//!
//! The `uid` is made from the 5-tuple, the VLAN or VNI, and the start, so it is the same in every
//! run.

use larder_wire::civil::Civil;
use larder_wire::digits;

use super::RecordWriter;
use super::fields::FIELDS;
use super::schema::{self, Field, Value};
use crate::record::{App, FlowRecord};

/// Zeek's own columns: name and type.
const COLUMNS: [(&str, &str); 22] = [
    ("ts", "time"),
    ("uid", "string"),
    ("id.orig_h", "addr"),
    ("id.orig_p", "port"),
    ("id.resp_h", "addr"),
    ("id.resp_p", "port"),
    ("proto", "enum"),
    ("service", "string"),
    ("duration", "interval"),
    ("orig_bytes", "count"),
    ("resp_bytes", "count"),
    ("conn_state", "string"),
    ("local_orig", "bool"),
    ("local_resp", "bool"),
    ("missed_bytes", "count"),
    ("history", "string"),
    ("orig_pkts", "count"),
    ("orig_ip_bytes", "count"),
    ("resp_pkts", "count"),
    ("resp_ip_bytes", "count"),
    ("tunnel_parents", "set[string]"),
    ("ip_proto", "count"),
];

/// Writes conn.log.
#[derive(Debug)]
pub struct Zeek {
    /// The rows of the schema that are added, names first.
    ours: Vec<&'static Field>,
}

impl Default for Zeek {
    fn default() -> Zeek {
        let mut ours: Vec<_> = FIELDS.iter().filter(|field| field.zeek.is_some()).collect();
        ours.sort_by_key(|field| !field.zeek.is_some_and(|name| name.starts_with("id.")));
        Zeek { ours }
    }
}

impl Zeek {
    /// Appends a tag and, each after a tab, the text of `of_column` for Zeek's columns and of
    /// `of_field` for the added ones.
    fn write_titles(
        &self,
        tag: &str,
        of_column: fn(&(&'static str, &'static str)) -> &'static str,
        of_field: fn(&Field) -> &'static str,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(tag.as_bytes());
        let ours = self.ours.iter().map(|field| of_field(field));
        for title in COLUMNS.iter().map(of_column).chain(ours) {
            out.push(b'\t');
            out.extend_from_slice(title.as_bytes());
        }
        out.push(b'\n');
    }
}

/// Appends `#open` or `#close` with a time.
fn write_log_time(tag: &str, now_ns: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(tag.as_bytes());
    out.push(b'\t');
    // `2024-01-02-03-04-05`
    let text = Civil::from_ns(now_ns).rfc3339();
    out.extend(text[..19].iter().map(|byte| if byte.is_ascii_digit() { *byte } else { b'-' }));
    out.push(b'\n');
}

impl RecordWriter for Zeek {
    fn header(&self, now_ns: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n\
              #path\tconn\n",
        );
        write_log_time("#open", now_ns, out);
        self.write_titles(
            "#fields",
            |column| column.0,
            |field| field.zeek.unwrap_or_default(),
            out,
        );
        self.write_titles("#types", |column| column.1, |field| field.kind.zeek(), out);
    }

    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        write_conn(record, out);
        for field in &self.ours {
            out.push(b'\t');
            write_value((field.get)(record), out);
        }
        out.push(b'\n');
    }

    fn footer(&self, now_ns: i64, out: &mut Vec<u8>) {
        write_log_time("#close", now_ns, out);
    }

    fn states_time(&self) -> bool {
        true
    }
}

/// Appends Zeek's own columns.
fn write_conn(record: &FlowRecord, out: &mut Vec<u8>) {
    let FlowRecord { source, destination, .. } = record;
    digits::write_seconds(record.start_ns, 6, out);
    out.push(b'\t');
    write_uid(record, out);
    for end in [source, destination] {
        out.push(b'\t');
        digits::write_addr(end.addr, out);
        out.push(b'\t');
        digits::write_u64(end.port.into(), out);
    }
    out.push(b'\t');
    out.extend_from_slice(proto(record.protocol).as_bytes());
    out.push(b'\t');
    out.extend_from_slice(service(record).as_bytes());

    let duration_ns = schema::duration_ns(record);
    let lasted = duration_ns > 0;
    out.push(b'\t');
    if lasted {
        digits::write_seconds(i64::try_from(duration_ns).unwrap_or(i64::MAX), 6, out);
    } else {
        out.push(b'-');
    }
    write_count(source.payload_bytes.filter(|_| lasted), out);
    write_count(destination.payload_bytes.filter(|_| lasted), out);

    out.push(b'\t');
    out.extend_from_slice(record.conn_state.as_str().as_bytes());
    for end in [source, destination] {
        let local = end.addr.is_local() && !end.addr.is_multicast_or_broadcast();
        out.extend_from_slice(if local { b"\tT" } else { b"\tF" });
    }
    write_count(Some(source.missed_bytes.saturating_add(destination.missed_bytes)), out);
    out.push(b'\t');
    let history = if record.history.is_empty() { "-" } else { &record.history };
    out.extend_from_slice(history.as_bytes());
    for count in [source.packets, source.ip_bytes, destination.packets, destination.ip_bytes] {
        write_count(Some(count), out);
    }
    out.extend_from_slice(b"\t-"); // tunnel_parents
    write_count(Some(record.protocol.into()), out);
}

/// Appends a tab and a number, or `-`.
fn write_count(count: Option<u64>, out: &mut Vec<u8>) {
    out.push(b'\t');
    match count {
        Some(count) => digits::write_u64(count, out),
        None => out.push(b'-'),
    }
}

fn proto(protocol: u8) -> &'static str {
    match protocol {
        1 | 58 => "icmp",
        6 => "tcp",
        17 => "udp",
        _ => "unknown_transport",
    }
}

/// Zeek's word for the application protocol. A QUIC flow whose ClientHello could be read is also
/// TLS to Zeek.
fn service(record: &FlowRecord) -> &'static str {
    match record.app {
        None => "-",
        Some(App::Dns | App::Mdns | App::Llmnr | App::Nbns) => "dns",
        Some(App::Dhcp) => "dhcp",
        Some(App::Tls) => "ssl",
        Some(App::Dtls) => "dtls",
        Some(App::Quic) if record.tls_server_name.is_some() => "quic,ssl",
        Some(App::Quic) => "quic",
        Some(App::Http) => "http",
    }
}

/// Appends the value of an added column.
fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Absent => out.push(b'-'),
        Value::Flag(flag) => out.push(if flag { b'T' } else { b'F' }),
        Value::Time(ns) => digits::write_seconds(ns, 6, out),
        Value::Name(_) => {
            let start = out.len();
            schema::write_plain(value, out);
            escape_reserved(start, out);
        }
        Value::Names(names) => {
            let list = out.len();
            names.for_each(|name| {
                if out.len() > list {
                    out.push(b',');
                }
                let start = out.len();
                schema::write_name(name, out);
                escape_commas(start, out);
                escape_reserved(start, out);
            });
        }
        Value::Words(words) => {
            for (i, word) in words.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(word.as_bytes());
            }
        }
        Value::Word(_)
        | Value::CommunityId(_)
        | Value::Uid(_)
        | Value::Ip(_)
        | Value::Ips(_)
        | Value::Number(_)
        | Value::Id(_) => {
            schema::write_plain(value, out);
        }
    }
}

/// Escapes the text after `start` if it would read as absent or empty.
fn escape_reserved(start: usize, out: &mut Vec<u8>) {
    match &out[start..] {
        b"-" => out.splice(start..=start, *b"\\x2d"),
        b"(empty)" => out.splice(start..=start, *b"\\x28"),
        _ => return,
    };
}

/// Escapes the commas after `start`: within a list they would separate names.
fn escape_commas(start: usize, out: &mut Vec<u8>) {
    if !out[start..].contains(&b',') {
        return;
    }
    for byte in out.split_off(start) {
        match byte {
            b',' => out.extend_from_slice(b"\\x2c"),
            other => out.push(other),
        }
    }
}

/// Appends a `C` and 17 digits of base 62 (101 bits): a hash of the 5-tuple, the network and the start.
pub(super) fn write_uid(record: &FlowRecord, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let (mut high, mut low) = hash(record);
    let mut uid = [b'C'; 18];
    for digit in &mut uid[1..=10] {
        *digit = DIGITS[(high % 62) as usize];
        high /= 62;
    }
    for digit in &mut uid[11..] {
        *digit = DIGITS[(low % 62) as usize];
        low /= 62;
    }
    out.extend_from_slice(&uid);
}

/// Two independent hashes. Each word is folded in by a 64 x 64 -> 128 bit multiplication whose
/// halves are combined (as in wyhash). It need not withstand an attacker, who gains nothing from
/// two flows with one uid, but flows that differ in one bit must not collide.
fn hash(record: &FlowRecord) -> (u64, u64) {
    let [source, destination] = [record.source.addr.0, record.destination.addr.0].map(|addr| {
        let addr = u128::from_be_bytes(addr);
        [(addr >> 64) as u64, addr as u64]
    });
    let ports = u64::from(record.source.port) << 32
        | u64::from(record.destination.port) << 16
        | u64::from(record.protocol);
    // Without a network the uid is the same as in versions that did not distinguish networks.
    let start = record.start_ns as u64 ^ fold(record.scope.bits()) ^ fold(0);
    let words = [source[0], source[1], destination[0], destination[1], ports, start];
    let lane = |seed: u64| {
        let folded = words.iter().fold(seed, |state, word| fold(state ^ word));
        fold(folded ^ seed)
    };
    (lane(0x9e37_79b9_7f4a_7c15), lane(0xd1b5_4a32_d192_ed03))
}

#[inline]
fn fold(word: u64) -> u64 {
    const ODD: u64 = 0xa076_1d64_78bd_642f;
    let product = u128::from(word ^ 0xe703_7ed1_a0b4_28db) * u128::from(ODD);
    (product >> 64) as u64 ^ product as u64
}
