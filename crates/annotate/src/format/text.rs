//! Aligned columns for eyes: the default format.
//!
//! ```text
//! #time                     duration proto source                -> destination           app    sent  rcvd name [how it is known]
//! 2024-01-02T03:04:05.123Z    12.345 tcp   10.0.0.5:49152        -> 93.184.216.34:https   tls    1.2k 34.5k www.example.com [dns_pair,stale]
//! 2024-01-02T03:04:06.000Z     0.000 tcp   laptop.local:49153    -> 198.51.100.7:https    -        60     0 - [no_lookup_seen]
//! ```
//!
//! Lines can be written as they come, because widths are fixed: what is longer than its column
//! pushes the rest of its line to the right, and the name, which has no usual length, stands last.
//! No value holds a space, so `awk '{print $10}'` gives the destination's name; the header begins
//! with `#`, so `grep -v '^#'` drops it. The source shows its name in the place of its address where
//! it has one; the destination shows both. Octets are counted in thousands. Nothing but printable
//! ASCII is written, whatever a packet put in a name.

use super::{RecordWriter, digits, schema};
use crate::record::{App, End, FlowRecord};

/// Columns end here, counted from the start of the line; the next value follows one space later.
const DURATION_END: usize = 34;
const PROTO_END: usize = 40;
const SOURCE_END: usize = 62;
const DESTINATION_END: usize = 87;
const APP_END: usize = 93;
const SENT_END: usize = 99;
const RECEIVED_END: usize = 105;

/// Titles of numbers stand to the right of their columns, as the numbers do.
const HEADER: &str = concat!(
    "#time                     duration proto source                -> destination           ",
    "app    sent  rcvd name [how it is known]\n",
);

/// Writes lines for eyes.
#[derive(Debug)]
pub struct Text {
    numeric_ports: bool,
}

impl Text {
    /// A writer; `numeric_ports` writes 443 rather than https.
    pub fn new(numeric_ports: bool) -> Text {
        Text { numeric_ports }
    }

    fn write_end(&self, record: &FlowRecord, end: &End, out: &mut Vec<u8>) {
        let with_port = schema::has_ports(record.protocol);
        if with_port && !end.addr.is_v4() {
            out.push(b'[');
            digits::write_addr(end.addr, out);
            out.push(b']');
        } else {
            digits::write_addr(end.addr, out);
        }
        self.write_port(record, end.port, out);
    }

    fn write_port(&self, record: &FlowRecord, port: u16, out: &mut Vec<u8>) {
        if !schema::has_ports(record.protocol) {
            return;
        }
        out.push(b':');
        match service(port).filter(|_| !self.numeric_ports) {
            Some(service) => out.extend_from_slice(service.as_bytes()),
            None => digits::write_u64(port.into(), out),
        }
    }
}

impl RecordWriter for Text {
    fn header(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(HEADER.as_bytes());
    }

    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        let start = out.len();
        digits::write_time_ms(record.start_ns, out);

        let duration = i64::try_from(schema::duration_ns(record)).unwrap_or(i64::MAX);
        write_right(start, DURATION_END, out, |out| digits::write_seconds(duration, 3, out));

        out.push(b' ');
        match record.protocol {
            58 => out.extend_from_slice(b"icmp6"),
            protocol => match schema::transport(protocol) {
                Some(transport) => out.extend_from_slice(transport.as_bytes()),
                None => digits::write_u64(protocol.into(), out),
            },
        }
        pad(start, PROTO_END, out);

        out.push(b' ');
        match &record.source.naming {
            Some(naming) => {
                schema::write_name(&naming.name, out);
                self.write_port(record, record.source.port, out);
            }
            None => self.write_end(record, &record.source, out),
        }
        pad(start, SOURCE_END, out);

        out.extend_from_slice(b" -> ");
        self.write_end(record, &record.destination, out);
        pad(start, DESTINATION_END, out);

        out.push(b' ');
        out.extend_from_slice(record.app.map_or("-", short_app).as_bytes());
        pad(start, APP_END, out);

        write_right(start, SENT_END, out, |out| write_thousands(record.source.ip_bytes, out));
        write_right(start, RECEIVED_END, out, |out| {
            write_thousands(record.destination.ip_bytes, out);
        });

        out.push(b' ');
        write_naming(&record.destination, out);
        out.push(b'\n');
    }

    fn footer(&mut self, _out: &mut Vec<u8>) {}
}

/// Appends `name [source,flags]`, or `- [reason]`.
fn write_naming(end: &End, out: &mut Vec<u8>) {
    let Some(naming) = &end.naming else {
        out.push(b'-');
        if let Some(reason) = end.unnamed_reason {
            out.extend_from_slice(b" [");
            out.extend_from_slice(reason.as_str().as_bytes());
            out.push(b']');
        }
        return;
    };
    schema::write_name(&naming.name, out);
    out.extend_from_slice(b" [");
    out.extend_from_slice(naming.source.as_str().as_bytes());
    for (set, flag) in [
        (naming.stale, ",stale"),
        (naming.late, ",late"),
        (naming.ambiguous, ",ambiguous"),
        (naming.conflict, ",conflict"),
    ] {
        if set {
            out.extend_from_slice(flag.as_bytes());
        }
    }
    out.push(b']');
}

/// Appends spaces until the line that began at `start` is `end` long.
fn pad(start: usize, end: usize, out: &mut Vec<u8>) {
    let len = (start + end).max(out.len());
    out.resize(len, b' ');
}

/// Appends a space and a value, moved to the right so that the line then is `end` long.
fn write_right(start: usize, end: usize, out: &mut Vec<u8>, write: impl Fn(&mut Vec<u8>)) {
    let before = out.len();
    out.push(b' ');
    write(out);
    let missing = (start + end).saturating_sub(out.len());
    if missing > 0 {
        out.resize(start + end, b' ');
        out[before..].rotate_right(missing);
    }
}

/// Appends a number in at most five octets: `999`, `1.2k`, `34.5k`, `678k`, `1.2M` ... cut, not
/// rounded.
fn write_thousands(number: u64, out: &mut Vec<u8>) {
    if number < 1000 {
        return digits::write_u64(number, out);
    }
    let (mut whole, mut tenths, mut unit) = (number, 0, 0);
    while whole >= 1000 {
        (whole, tenths, unit) = (whole / 1000, whole % 1000 / 100, unit + 1);
    }
    digits::write_u64(whole, out);
    if whole < 100 {
        out.extend_from_slice(&[b'.', b'0' + tenths as u8]);
    }
    out.push(b" kMGTPE"[unit]);
}

/// Application protocols in the width of their column.
fn short_app(app: App) -> &'static str {
    match app {
        App::Nbns => "nbns",
        other => other.as_str(),
    }
}

/// IANA's names of the ports that a log is full of; others are clearer as numbers.
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

    /// Every size fits its column, from nothing to the most a counter holds.
    #[test]
    fn thousands() {
        for (number, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0k"),
            (34_567, "34.5k"),
            (999_999, "999k"),
            (1_000_000, "1.0M"),
            (u64::MAX, "18.4E"),
        ] {
            let mut out = Vec::new();
            write_thousands(number, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
            assert!(out.len() < RECEIVED_END - SENT_END, "a space stays before it");
        }
    }
}
