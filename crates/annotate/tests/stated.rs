//! Names that flows state, through a whole run: which of them name, which flags they set, and which
//! are only logged. Captures are made here, packet by packet.

use std::sync::Arc;

use larder_annotate::options::{Endpoint, Options, OutputFormat};
use larder_annotate::{Progress, run};
use larder_testkit::dns;
use larder_testkit::frames::{self, IPV4, Pcap, ethernet, ipv4_fragment};
use larder_testkit::hello::{hello, hello_body, server_names, vector16};
use serde_json::Value;

const CLIENT: [u8; 4] = [192, 0, 2, 10];
const SERVER: [u8; 4] = [203, 0, 113, 7];
const RESOLVER: [u8; 4] = [192, 0, 2, 53];
const ETHERNET: u16 = 1;

/// A capture that grows by a packet each millisecond.
#[derive(Default)]
struct Made {
    frames: Vec<Vec<u8>>,
}

impl Made {
    fn ip(
        &mut self,
        src: [u8; 4],
        dst: [u8; 4],
        protocol: u8,
        fragment: (u16, u16),
        payload: &[u8],
    ) {
        self.frames.push(ethernet(IPV4, &ipv4_fragment((src, dst), protocol, fragment, payload)));
    }

    fn udp(&mut self, src: ([u8; 4], u16), dst: ([u8; 4], u16), payload: &[u8]) {
        self.ip(src.0, dst.0, 17, (0, 0), &udp(src.1, dst.1, payload));
    }

    /// A segment of the client (distance from the first byte) or of the server.
    fn tcp(&mut self, from_client: bool, port: u16, seq: u32, flags: u8, payload: &[u8]) {
        let (src, dst, ports) = if from_client {
            (CLIENT, SERVER, (50_000, port))
        } else {
            (SERVER, CLIENT, (port, 50_000))
        };
        let segment = frames::tcp(ports, flags, 1000_u32.wrapping_add(seq), payload);
        self.ip(src, dst, 6, (0, 0), &segment);
    }

    /// A connection whose client sends these segments.
    fn connection(&mut self, port: u16, segments: &[(u32, &[u8])]) {
        self.tcp(true, port, 0, 2, b"");
        self.tcp(false, port, 0, 0x12, b"");
        for (distance, data) in segments {
            self.tcp(true, port, 1 + distance, 0x18, data);
        }
        self.tcp(false, port, 1, 0x18, b"the server's answer");
    }

    /// `client` queries `name` on `port`, and gets `addr`.
    fn lookup(&mut self, client: [u8; 4], port: u16, name: &[u8], addr: [u8; 4]) {
        let (query, answer) = lookup(7, name, addr);
        self.udp((client, 40_000), (RESOLVER, port), &query);
        self.udp((RESOLVER, port), (client, 40_000), &answer);
    }

    /// The record of the flow from the client to a port of the server.
    fn record(&self, port: u16) -> Value {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (capture, log) = (folder.path().join("made.pcap"), folder.path().join("log"));
        let mut file = Pcap::new(ETHERNET);
        for (number, frame) in (0..).zip(&self.frames) {
            file.push(1_700_000_000_000_000_000 + number * 1_000_000, frame);
        }
        std::fs::write(&capture, file.bytes).expect("room for a capture");
        let options = Options {
            read: vec![Endpoint::Path(capture)],
            output: Endpoint::Path(log.clone()),
            format: OutputFormat::Ecs,
            names_budget_bytes: 8 << 20,
            ..Options::default()
        };
        run(&options, &Arc::new(Progress::default())).expect("a run");
        let text = std::fs::read_to_string(log).expect("a log");
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let found = records.into_iter().find(|record| {
            record["destination.ip"] == "203.0.113.7" && record["destination.port"] == port
        });
        found.unwrap_or_else(|| panic!("no such flow: {text}"))
    }
}

fn udp(src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    frames::udp((src_port, dst_port), payload)
}

/// A query for the address of `name`, and its response.
fn lookup(id: u16, name: &[u8], addr: [u8; 4]) -> (Vec<u8>, Vec<u8>) {
    let query = dns::query(id, name, dns::A);
    let answer = dns::answer(&query, &[addr], 300);
    (query, answer)
}

fn flag(record: &Value, name: &str) -> bool {
    record[format!("larder.destination.name_{name}")] == true
}

/// A server name longer than DNS allows, and an address as one, are logged unchanged and name
/// nothing; the name that was looked up stays, without a conflict.
#[test]
fn no_host_name() {
    let long = [b"a".repeat(60), b".".to_vec()].concat().repeat(5);
    for stated in [&long[..long.len() - 1], b"198.51.100.9", b"2001:db8::9"] {
        for is_known in [false, true] {
            let mut made = Made::default();
            if is_known {
                made.lookup(CLIENT, 53, b"good.example", SERVER);
            }
            made.connection(443, &[(0, &hello(stated, false))]);
            let record = made.record(443);
            let text = std::str::from_utf8(stated).expect("ASCII");
            assert_eq!(record["tls.client.server_name"], text);
            let name = if is_known { Value::from("good.example") } else { Value::Null };
            assert_eq!(record["destination.domain"], name, "{text}");
            assert!(!flag(&record, "conflict"));
        }
    }
}

/// A decoy ClientHello, a second Host, and a Host that differs from the request's target set
/// `conflict`, and both names are candidates.
#[test]
fn contradictions_set_conflict() {
    let (decoy, truth) = (hello(b"www.decoy.example", false), hello(b"evil.example", false));
    let two = b"GET / HTTP/1.1\r\nHost: www.decoy.example\r\nHost: evil.example\r\n\r\n";
    let absolute = b"GET http://evil.example/ HTTP/1.1\r\nHost: www.decoy.example\r\n\r\n";
    for segments in
        [vec![(0, &decoy[..]), (0, &truth[..])], vec![(0, &two[..])], vec![(0, &absolute[..])]]
    {
        let mut made = Made::default();
        made.connection(443, &segments);
        let record = made.record(443);
        assert!(flag(&record, "conflict"), "{record}");
        let mut names: Vec<&str> = record["larder.destination.candidates"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["evil.example", "www.decoy.example"]);
    }
    let mut made = Made::default();
    made.connection(443, &[(0, &truth), (0, &truth)]);
    assert!(!flag(&made.record(443), "conflict"), "sent again");
}

/// Bytes before the stream's first byte, which the server never takes, name nothing.
#[test]
fn old_bytes_name_nothing() {
    let (decoy, truth) = (hello(b"www.decoy.example", false), hello(b"evil.example", false));
    let mut made = Made::default();
    made.connection(443, &[(10_000_u32.wrapping_neg(), &decoy), (0, &truth)]);
    let record = made.record(443);
    assert_eq!(record["destination.domain"], "evil.example");
    assert!(!flag(&record, "conflict"), "{record}");
}

/// A name is read behind the header of a PROXY protocol, and from unencrypted HTTP/2, where a Host
/// that differs from `:authority` sets `conflict`.
#[test]
fn behind_proxies_and_in_http2() {
    let hello = hello(b"site.example", false);
    let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n";
    let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x01\x0a\0\0\x02\0\x01\0\x02";
    let field = |name: &[u8], value: &[u8]| {
        [&[0, name.len() as u8][..], name, &[value.len() as u8], value].concat()
    };
    let http2 = |block: &[u8]| {
        let head = [&[0, 0, block.len() as u8, 1, 4, 0, 0, 0, 1][..], block].concat();
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], &head].concat()
    };
    let authority = field(b":authority", b"site.example");
    let host = field(b"host", b"other.example");
    for (what, head, is_conflict) in [
        ("PROXY version 1", [&line[..], &hello].concat(), false),
        ("PROXY version 2", [&binary[..], &hello].concat(), false),
        ("HTTP/2", http2(&authority), false),
        ("HTTP/2 with another Host", http2(&[authority.clone(), host].concat()), true),
    ] {
        let mut made = Made::default();
        made.connection(443, &[(0, &head)]);
        let record = made.record(443);
        assert_eq!(record["destination.domain"], "site.example", "{what}");
        assert_eq!(flag(&record, "conflict"), is_conflict, "{what}");
    }
}

/// With an encrypted ClientHello the name that this client looked up wins over the server name, which
/// is the provider's; where there is none, or it is the same, the server name counts. The flag is
/// logged either way.
#[test]
fn encrypted_hello() {
    for (looked_up, ech, name) in [
        (Some((CLIENT, "hidden.example")), true, "hidden.example"),
        (Some((CLIENT, "hidden.example")), false, "public.example"),
        (Some((CLIENT, "public.example")), true, "public.example"),
        (Some(([192, 0, 2, 77], "hidden.example")), true, "public.example"),
        (None, true, "public.example"),
    ] {
        let mut made = Made::default();
        if let Some((client, name)) = looked_up {
            made.lookup(client, 53, name.as_bytes(), SERVER);
        }
        made.connection(443, &[(0, &hello(b"public.example", ech))]);
        let record = made.record(443);
        assert_eq!(record["destination.domain"], name, "{looked_up:?} {ech}");
        assert_eq!(record["tls.client.ech"], ech);
        assert_eq!(record["tls.client.server_name"], "public.example");
        let is_alarm =
            name == "public.example" && looked_up.is_some_and(|(_, name)| name != "public.example");
        assert_eq!(flag(&record, "conflict"), is_alarm, "{looked_up:?} {ech}");
    }
}

/// A datagram in IP fragments of `step` bytes, in the given order.
fn in_fragments(made: &mut Made, protocol: u8, datagram: &[u8], step: usize, order: &[usize]) {
    for &at in order {
        let (from, to) = (at * step, datagram.len().min((at + 1) * step));
        let more = if to < datagram.len() { 0x2000 } else { 0 };
        made.ip(CLIENT, SERVER, protocol, (77, more | (from / 8) as u16), &datagram[from..to]);
    }
}

/// A flow whose first datagram came in IP fragments, in any order, is named by the ClientHello in
/// it, and its packets and bytes are counted as captured.
#[test]
fn fragments() {
    let body = {
        // Of DTLS: version, random value, no session, no cookie, a suite, no compression, the name.
        let names = server_names(&[(0, b"split.example")]);
        hello_body([0xfe, 0xfd], &[0, 0, 0, 2, 0x13, 1, 1, 0], &[names])
    };
    let message =
        [&[1, 0, 0, body.len() as u8, 0, 0, 0, 0, 0, 0, 0, body.len() as u8][..], &body].concat();
    let dtls = [&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0][..], &vector16(&message)].concat();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut made = Made::default();
        in_fragments(&mut made, 17, &udp(50_000, 4433, &dtls), 48, &order);
        let record = made.record(4433);
        assert_eq!(record["destination.domain"], "split.example", "{order:?}");
        assert_eq!(record["network.protocol"], "dtls");
        assert_eq!(
            (&record["source.packets"], &record["source.bytes"]),
            (&3.into(), &(60 + 8 + dtls.len()).into())
        );

        let hello = hello(b"split.example", false);
        let mut made = Made::default();
        made.tcp(true, 443, 0, 2, b"");
        made.tcp(false, 443, 0, 0x12, b"");
        let mut segment = [50_000, 443].map(u16::to_be_bytes).concat();
        segment.extend([0, 0, 3, 233, 0, 0, 0, 1, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0]);
        segment.extend(&hello);
        in_fragments(&mut made, 6, &segment, 40, &order[..3]);
        let record = made.record(443);
        assert_eq!(record["destination.domain"], "split.example", "{order:?}");
    }
}

/// DNS on another port gives names when a query is followed by its response, between the same ends;
/// a response alone, one to another query, and one from another port give none.
#[test]
fn dns_on_other_ports() {
    let (query, answer) = lookup(7, b"good.example", SERVER);
    let (_, other) = lookup(8, b"good.example", SERVER);
    let (_, name) = lookup(7, b"evil.example", SERVER);
    let from_client = |payload: &Vec<u8>| ((CLIENT, 40_000), (RESOLVER, 5300), payload.clone());
    let from_server =
        |port, payload: &Vec<u8>| ((RESOLVER, port), (CLIENT, 40_000), payload.clone());
    for (what, packets, is_named) in [
        ("both", vec![from_client(&query), from_server(5300, &answer)], true),
        ("answer first", vec![from_server(5300, &answer), from_client(&query)], false),
        ("no query", vec![from_server(5300, &answer)], false),
        ("another ID", vec![from_client(&query), from_server(5300, &other)], false),
        ("another name", vec![from_client(&query), from_server(5300, &name)], false),
        ("another port", vec![from_client(&query), from_server(5301, &answer)], false),
        (
            "damaged",
            vec![from_client(&query), from_server(5300, &answer[..answer.len() - 3].to_vec())],
            false,
        ),
    ] {
        let mut made = Made::default();
        for (src, dst, payload) in &packets {
            made.udp(*src, *dst, payload);
        }
        made.connection(9000, &[(0, b"nothing of interest")]);
        let record = made.record(9000);
        let expected = if is_named { Value::from("good.example") } else { Value::Null };
        assert_eq!(record["destination.domain"], expected, "{what}");
    }
}
