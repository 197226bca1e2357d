//! Host names that clients send, in real captures, compared with `tshark`.
//!
//! Needs `tshark` on the path; without it the test is skipped with a message.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use larder_testkit::captures as list;
use larder_testkit::process::tshark;
use larder_testkit::skip::skip;
use larder_wire::capture;
use larder_wire::http::{Head, HeadScanner};
use larder_wire::packet::{self, Packet};
use larder_wire::quic::{Assembler, Initial, looks_like_initial};
use larder_wire::stream::{Budget, Stream};
use larder_wire::tls::{Hello, client_hello};

/// Source address and port, destination address and port.
type Direction = (IpAddr, u16, IpAddr, u16);

/// The first name of each connection, with its direction.
type Names = BTreeSet<(Direction, String)>;

const SYN: u8 = 2;
const HEAD_BYTES: usize = 32 << 10;

/// One direction of a TCP connection, until it is decided.
struct Connection {
    stream: Stream,
    head: HeadScanner,
    first_seq: u32,
    is_decided: bool,
}

/// The names that this crate finds in a capture file.
#[derive(Default)]
struct Finder {
    tcp: BTreeMap<Direction, Connection>,
    quic: BTreeMap<Direction, Assembler>,
    names: Names,
}

impl Finder {
    fn take(&mut self, packet: &Packet, payload: &[u8]) {
        let direction = (packet.src.into(), packet.src_port, packet.dst.into(), packet.dst_port);
        let name = match packet.protocol {
            6 => self.tcp_name(direction, packet, payload),
            17 => self.quic_name(direction, payload),
            _ => None,
        };
        if let Some(name) = name {
            self.names.insert((direction, String::from_utf8_lossy(&name).into_owned()));
        }
    }

    fn tcp_name(
        &mut self,
        direction: Direction,
        packet: &Packet,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let mut budget = Budget::new(1 << 20);
        let is_syn = packet.tcp_flags & SYN != 0;
        let fresh = || Connection {
            stream: Stream::new(),
            head: HeadScanner::new(),
            first_seq: packet.tcp_seq,
            is_decided: false,
        };
        let connection = self.tcp.entry(direction).or_insert_with(fresh);
        if is_syn && connection.first_seq != packet.tcp_seq {
            *connection = fresh();
        }
        if connection.is_decided {
            // A proxy's handshake or STARTTLS came first: a hello begins a segment.
            return match client_hello(payload) {
                Hello::Found(hello) => hello.server_name.map(|name| name.into_owned()),
                _ => None,
            };
        }
        connection.stream.push(packet.tcp_seq, packet.tcp_flags, payload, &mut budget);
        let bytes = connection.stream.contiguous();
        let tls = client_hello(bytes);
        let http = connection.head.scan(bytes);
        let may_continue = bytes.len() < HEAD_BYTES
            && (matches!(tls, Hello::NeedMore) || matches!(http, Head::NeedMore));
        let name = match (tls, http) {
            (Hello::Found(hello), _) => hello.server_name.map(|name| name.into_owned()),
            (_, Head::Found(request)) => request.host.map(<[u8]>::to_vec),
            _ if may_continue => return None,
            _ => None,
        };
        connection.is_decided = true;
        name
    }

    fn quic_name(&mut self, direction: Direction, payload: &[u8]) -> Option<Vec<u8>> {
        if !looks_like_initial(payload) {
            return None;
        }
        match self.quic.entry(direction).or_default().push(payload) {
            Initial::Found(hello) => hello.server_name.map(|name| name.into_owned()),
            _ => None,
        }
    }
}

fn found_by_us(path: &Path) -> Names {
    let file = std::fs::read(path).expect("a readable capture");
    let mut finder = Finder::default();
    let records = capture::records(&file).expect("a capture");
    for record in records.filter_map(|(_, record)| record.ok()) {
        if let Ok(packet) = packet::decode(record.link_type, record.frame)
            && packet.fragment.is_none()
        {
            let from = packet.payload_offset as usize;
            finder.take(&packet, &record.frame[from..from + packet.payload_len as usize]);
        }
    }
    finder.names
}

const FIELDS: [&str; 12] = [
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "tcp.stream",
    "http.host",
    "tls.handshake.extensions_server_name",
    "frame.protocols",
];

/// The names that `tshark` finds: the first of each of its streams. `None` if it does not run.
fn found_by_tshark(path: &Path) -> Option<Names> {
    let chosen = "tcp and http.host or tls.handshake.extensions_server_name";
    let lines = tshark(path, &["-E", "aggregator=|", "-Y", chosen], &FIELDS)?;
    let mut streams_seen = BTreeSet::new();
    let mut names = Names::new();
    for line in &lines {
        let columns: Vec<&str> = line.split('\t').collect();
        // The last of several headers is the innermost.
        let last = |at: usize| columns[at].rsplit('|').next().unwrap_or_default();
        let is_v6 = columns[11].split(':').rfind(|layer| layer.starts_with("ip")) == Some("ipv6");
        let address = |v4: usize, v6: usize| -> IpAddr {
            last(if is_v6 { v6 } else { v4 }).parse().expect("an address")
        };
        let port = |tcp: usize, udp: usize| -> Option<u16> {
            if columns[8].is_empty() { last(udp) } else { last(tcp) }.parse().ok()
        };
        let direction = (
            address(0, 2),
            port(4, 6).expect("a port"),
            address(1, 3),
            port(5, 7).expect("a port"),
        );
        let name = if columns[9].is_empty() { columns[10] } else { columns[9] };
        let name = name.split('|').next().unwrap_or_default();
        if columns[8].is_empty() || streams_seen.insert(columns[8].to_owned()) {
            names.insert((direction, name.to_owned()));
        }
    }
    Some(names)
}

/// larder reads every name that `tshark` reads from a client's first message, and reads it alike.
#[test]
fn names_are_those_of_tshark() {
    let mut names = 0;
    for path in list::all() {
        let Some(theirs) = found_by_tshark(&path) else {
            return skip("names_are_those_of_tshark", "tshark does not run");
        };
        let ours = found_by_us(&path);
        let missing: Vec<_> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", path.display());
        // `tshark` selects by port, so larder may find more, but no other name for the same flow.
        for (direction, name) in ours.difference(&theirs) {
            let rival = theirs.iter().find(|(other, _)| other == direction);
            assert_eq!(rival, None, "{}: we read {name}", path.display());
        }
        names += theirs.len();
    }
    assert!(names > 0, "the captures have names");
}
