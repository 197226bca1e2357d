//! Aligned columns for people: the default format.
//!
//! ```text
//! #time                     duration proto source                -> destination           app    sent  rcvd name [source,confidence,flags] <- name of the source
//! 2024-01-02T03:04:05.123Z    12.345 tcp   10.0.0.5:49152        -> 93.184.216.34:https   tls    1.2k 34.5k www.example.com [dns_pair,98%,stale]
//! 2024-01-02T03:04:06.000Z     0.000 tcp   10.0.0.6:49153        -> 198.51.100.7:https    -        60     0 - [no_lookup_seen] <- laptop.local [mdns,90%]
//! ```
//!
//! Widths are fixed, so each line can be written at once: a value longer than its column pushes the rest
//! of its line to the right, and names, which have no usual length, come last. No value has a space, so
//! `awk '{print $10}'` gives the destination's name; the header begins with `#`, so `grep -v '^#'` removes
//! it. Byte counts are in thousands. The line of a flow in a VLAN or an overlay network ends with that
//! network: ` vlan=10`, ` vlan=10,20`, ` vni=5`, ` gre=7`.
//!
//! Invariants
//! 1. Both ends are always addresses. A name never replaces an address, since hosts choose their own
//!    names: one that calls itself `10.0.0.99` must not be mistaken for that address.
//! 2. Only printable ASCII is written, for any name in a packet.

use larder_wire::civil::Civil;
use larder_wire::digits::{self, Right};
use larder_wire::scope::Scope;

use super::{RecordWriter, schema};
use crate::record::{App, End, FlowRecord, NameFlags, Naming};

/// Columns end here, counted from the start of the line; the next value follows one space later.
const TIME_END: usize = 24;
const DURATION_END: usize = 34;
const PROTO_END: usize = 40;
const SOURCE_END: usize = 62;
const DESTINATION_END: usize = 87;
const APP_END: usize = 93;
const SENT_END: usize = 99;
const RECEIVED_END: usize = 105;

/// Titles of numbers are aligned to the right, as the numbers are.
const HEADER: &str = concat!(
    "#time                     duration proto source                -> destination           ",
    "app    sent  rcvd name [source,confidence,flags] <- name of the source\n",
);

/// Writes aligned lines.
#[derive(Debug)]
pub struct Text {
    numeric_ports: bool,
}

impl Text {
    /// A writer; `numeric_ports` writes 443 rather than https.
    pub fn new(numeric_ports: bool) -> Text {
        Text { numeric_ports }
    }

    fn put_end(&self, record: &FlowRecord, end: &End, line: &mut Line<'_>) {
        let with_port = schema::has_ports(record.protocol);
        match end.addr.octets().first_chunk::<4>() {
            Some(bytes) if end.addr.is_v4() => {
                let (text, len) = digits::v4(bytes);
                line.put_filled(&text, len);
            }
            _ => {
                if with_port {
                    line.put(b"[");
                }
                line.long(|out| digits::write_addr(end.addr, out));
                if with_port {
                    line.put(b"]");
                }
            }
        }
        if !with_port {
            return;
        }
        line.put(b":");
        match service(end.port).filter(|_| !self.numeric_ports) {
            Some(service) => line.put(service.as_bytes()),
            None => {
                let (text, len) = digits::left(end.port);
                line.put_filled(&text, len);
            }
        }
    }
}

impl RecordWriter for Text {
    fn header(&self, _now_ns: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(HEADER.as_bytes());
    }

    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        let mut line = Line::new(out);
        line.put(&Civil::from_ns(record.start_ns).rfc3339_ms());

        let duration = i64::try_from(schema::duration_ns(record)).unwrap_or(i64::MAX);
        let mut field = Right::new();
        field.milliseconds(duration);
        line.put_right::<{ DURATION_END - TIME_END }>(DURATION_END, &field);

        line.put(b" ");
        match record.protocol {
            58 => line.put(b"icmp6"),
            protocol => match schema::transport(protocol) {
                Some(transport) => line.put(transport.as_bytes()),
                None => {
                    let (text, len) = digits::left(protocol.into());
                    line.put_filled(&text, len);
                }
            },
        }
        line.pad(PROTO_END);

        line.put(b" ");
        self.put_end(record, &record.source, &mut line);
        line.pad(SOURCE_END);

        line.put(b" -> ");
        self.put_end(record, &record.destination, &mut line);
        line.pad(DESTINATION_END);

        line.put(b" ");
        line.put(record.app.map_or("-", short_app).as_bytes());
        line.pad(APP_END);

        let sent = thousands(record.source.ip_bytes);
        line.put_right::<{ SENT_END - APP_END }>(SENT_END, &sent);
        let received = thousands(record.destination.ip_bytes);
        line.put_right::<{ RECEIVED_END - SENT_END }>(RECEIVED_END, &received);

        line.put(b" ");
        line.end();
        write_end_naming(&record.destination, out);
        if let Some(naming) = &record.source.naming {
            out.extend_from_slice(b" <- ");
            write_naming(naming, out);
        }
        if !record.scope.is_none() {
            write_scope(record.scope, out);
        }
        out.push(b'\n');
    }
}

/// Appends `name [source,flags]`, or `- [reason]`.
pub(crate) fn write_end_naming(end: &End, out: &mut Vec<u8>) {
    if let Some(naming) = &end.naming {
        return write_naming(naming, out);
    }
    out.push(b'-');
    if let Some(reason) = end.unnamed_reason {
        out.extend_from_slice(b" [");
        out.extend_from_slice(reason.as_str().as_bytes());
        out.push(b']');
    }
}

/// Appends the flow's network: ` vlan=10`, ` vlan=10,20`, ` vni=5`, ` gre=7`.
#[cold]
fn write_scope(scope: Scope, out: &mut Vec<u8>) {
    if let Some(id) = scope.vlan() {
        out.extend_from_slice(b" vlan=");
        digits::write_u64(id.into(), out);
    }
    if let Some(id) = scope.inner_vlan() {
        out.push(b',');
        digits::write_u64(id.into(), out);
    }
    for (title, id) in [(&b" vni="[..], scope.vni()), (b" gre=", scope.gre_key())] {
        if let Some(id) = id {
            out.extend_from_slice(title);
            digits::write_u64(id.into(), out);
        }
    }
}

/// Appends `name [source,confidence,flags]`.
fn write_naming(naming: &Naming, out: &mut Vec<u8>) {
    schema::write_name(&naming.name, out);
    out.extend_from_slice(b" [");
    out.extend_from_slice(naming.source.as_str().as_bytes());
    out.push(b',');
    digits::write_u64(naming.confidence.into(), out);
    out.push(b'%');
    for (flag, word) in NameFlags::ALL {
        if naming.flags.has(flag) {
            out.push(b',');
            out.extend_from_slice(word.as_bytes());
        }
    }
    out.push(b']');
}

/// A line up to its last column. Most values have a known place and length, and are copied there
/// without a call. A value of any other length is written to the log at once, after the line so
/// far.
///
/// Invariant: from `len` on there are spaces.
struct Line<'a> {
    out: &'a mut Vec<u8>,
    /// Start of the line in `out`.
    start: usize,
    bytes: [u8; LINE_BYTES],
    len: usize,
}

/// More than any line without a long value needs; for longer lines, `out` is written more often.
const LINE_BYTES: usize = 192;

impl<'a> Line<'a> {
    fn new(out: &'a mut Vec<u8>) -> Line<'a> {
        Line { start: out.len(), out, bytes: [b' '; LINE_BYTES], len: 0 }
    }

    /// Bytes of the line so far.
    fn column(&self) -> usize {
        self.out.len() - self.start + self.len
    }

    /// Appends `value`.
    #[inline(always)]
    fn put(&mut self, value: &[u8]) {
        self.put_filled(value, value.len());
    }

    /// Appends the first `len` bytes of `value`; its other bytes are spaces.
    #[inline(always)]
    fn put_filled(&mut self, value: &[u8], len: usize) {
        if self.bytes.len() - self.len < value.len() {
            self.flush();
        }
        match self.bytes.get_mut(self.len..self.len + value.len()) {
            Some(place) => {
                place.copy_from_slice(value);
                self.len += len;
            }
            None => self.out.extend_from_slice(&value[..len]),
        }
    }

    /// Appends a space and a value, aligned so that the line then ends at `end`. `WIDTH` bytes hold
    /// both in most lines.
    #[inline(always)]
    fn put_right<const WIDTH: usize>(&mut self, end: usize, value: &Right) {
        let column = self.column();
        let len = value.value().len();
        if column + WIDTH == end && len < WIDTH {
            return self.put(&value.bytes()[Right::BYTES - WIDTH..]);
        }
        self.put(b" ");
        self.pad(end.saturating_sub(len));
        self.put(value.value());
    }

    /// Appends spaces until the line is `end` long.
    #[inline]
    fn pad(&mut self, end: usize) {
        let missing = end.saturating_sub(self.column());
        if missing > self.bytes.len() - self.len {
            self.flush();
        }
        // No column is as wide as a line.
        self.len = (self.len + missing).min(LINE_BYTES);
    }

    /// Appends a value of any length.
    fn long(&mut self, write: impl Fn(&mut Vec<u8>)) {
        self.flush();
        write(self.out);
    }

    fn flush(&mut self) {
        self.out.extend_from_slice(&self.bytes[..self.len]);
        self.bytes = [b' '; LINE_BYTES];
        self.len = 0;
    }

    fn end(self) {
        self.out.extend_from_slice(&self.bytes[..self.len]);
    }
}

/// A number in at most five bytes: `999`, `1.2k`, `34.5k`, `678k`, `1.2M` ... truncated, not
/// rounded.
fn thousands(number: u64) -> Right {
    let mut field = Right::new();
    if number < 1000 {
        field.number(number);
        return field;
    }
    let (mut whole, mut tenths, mut unit) = (number, 0, 0);
    while whole >= 1000 {
        (whole, tenths, unit) = (whole / 1000, whole % 1000 / 100, unit + 1);
    }
    field.byte(b" kMGTPE"[unit]);
    if whole < 100 {
        field.byte(b'0' + tenths as u8);
        field.byte(b'.');
    }
    field.number(whole);
    field
}

/// Application protocols in the width of their column.
fn short_app(app: App) -> &'static str {
    match app {
        App::Nbns => "nbns",
        other => other.as_str(),
    }
}

/// IANA's names of ports that are common in logs; other ports are clearer as numbers.
fn service(port: u16) -> Option<&'static str> {
    Some(match port {
        20 => "ftp-data",
        21 => "ftp",
        22 => "ssh",
        23 => "telnet",
        25 => "smtp",
        53 => "domain",
        67 => "bootps",
        68 => "bootpc",
        69 => "tftp",
        80 => "http",
        88 => "kerberos",
        110 => "pop3",
        123 => "ntp",
        137 => "netbios-ns",
        138 => "netbios-dgm",
        139 => "netbios-ssn",
        143 => "imap",
        161 => "snmp",
        162 => "snmptrap",
        179 => "bgp",
        389 => "ldap",
        443 => "https",
        445 => "microsoft-ds",
        465 => "submissions",
        500 => "isakmp",
        514 => "syslog",
        546 => "dhcpv6-client",
        547 => "dhcpv6-server",
        587 => "submission",
        631 => "ipp",
        636 => "ldaps",
        853 => "domain-s",
        993 => "imaps",
        995 => "pop3s",
        1194 => "openvpn",
        1883 => "mqtt",
        1900 => "ssdp",
        3306 => "mysql",
        3389 => "ms-wbt-server",
        3478 => "stun",
        4500 => "ipsec-nat-t",
        5060 => "sip",
        5222 => "xmpp-client",
        5228 => "hpvroom",
        5353 => "mdns",
        5355 => "llmnr",
        5432 => "postgresql",
        8080 => "http-alt",
        8883 => "secure-mqtt",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every size fits its column, up to the largest count.
    #[test]
    fn sizes_fit() {
        for (number, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0k"),
            (34_567, "34.5k"),
            (999_999, "999k"),
            (1_000_000, "1.0M"),
            (u64::MAX, "18.4E"),
        ] {
            let out = thousands(number);
            assert_eq!(String::from_utf8_lossy(out.value()), expected);
            assert!(out.value().len() < RECEIVED_END - SENT_END, "a space stays before it");
        }
    }
}
