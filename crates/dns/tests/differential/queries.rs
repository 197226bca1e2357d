//! Queries drawn from a seed; many of them repeat earlier ones.

use std::fmt;

use larder_testkit::random::Random;

use super::answer::{UpstreamQuery, rtype};
use super::shape::{Flag, Kind, Name, Shape};

/// The OPT record of a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edns {
    pub udp_bytes: u16,
    pub version: u8,
    pub dnssec_ok: bool,
    /// Reserved bits of the flags.
    pub reserved: u16,
    /// In wire format.
    pub options: Vec<u8>,
}

/// A query.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientQuery {
    pub name: Name,
    pub qtype: u16,
    pub qclass: u16,
    pub opcode: u8,
    /// Bytes 2 and 3 of the header, without the opcode.
    pub flags: [u8; 2],
    pub edns: Option<Edns>,
    /// True to send it over TCP.
    pub by_stream: bool,
}

/// Bits of the header.
pub const TC: u8 = 2;
pub const RD: u8 = 1;
pub const RA: u8 = 0x80;
pub const AD: u8 = 0x20;
pub const CD: u8 = 0x10;

impl Default for ClientQuery {
    fn default() -> ClientQuery {
        ClientQuery {
            name: Name::default(),
            qtype: rtype::A,
            qclass: 1,
            opcode: 0,
            flags: [RD, 0],
            edns: None,
            by_stream: false,
        }
    }
}

impl fmt::Debug for ClientQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientQuery { opcode, flags, edns, by_stream, .. } = self;
        write!(f, "opcode {opcode} flags {flags:x?} by stream {by_stream} {edns:?}")
    }
}

impl ClientQuery {
    /// In wire format, with this ID.
    pub fn message(&self, id: u16) -> Vec<u8> {
        let [high, low] = id.to_be_bytes();
        let additional = u8::from(self.edns.is_some());
        let flags = self.flags[0] | self.opcode << 3;
        let mut message = vec![high, low, flags, self.flags[1], 0, 1, 0, 0, 0, 0, 0, additional];
        message.extend(self.name.wire());
        message.extend_from_slice(&self.qtype.to_be_bytes());
        message.extend_from_slice(&self.qclass.to_be_bytes());
        if let Some(edns) = &self.edns {
            message.extend_from_slice(&[0, 0, 41]);
            message.extend_from_slice(&edns.udp_bytes.to_be_bytes());
            message.extend_from_slice(&[0, edns.version]);
            let flags = u16::from(edns.dnssec_ok) << 15 | edns.reserved;
            message.extend_from_slice(&flags.to_be_bytes());
            message.extend_from_slice(&(edns.options.len() as u16).to_be_bytes());
            message.extend_from_slice(&edns.options);
        }
        message
    }

    /// True if both ask for the same name, type and class.
    pub fn is_same(&self, other: &ClientQuery) -> bool {
        let (ours, theirs) = (self.name.lower(), other.name.lower());
        ours == theirs && (self.qtype, self.qclass) == (other.qtype, other.qclass)
    }

    /// The query as a server sends it to the upstream.
    pub fn passed_on(&self, dnssec_ok: bool) -> Option<UpstreamQuery> {
        let edns = Some(Edns { udp_bytes: 1_232, dnssec_ok, ..Edns::default() });
        let query = ClientQuery { flags: [RD, 0], opcode: 0, edns, ..self.clone() };
        UpstreamQuery::read(&query.message(0))
    }

    pub fn has(&self, byte: usize, flag: u8) -> bool {
        self.flags[byte] & flag != 0
    }

    pub fn dnssec_ok(&self) -> bool {
        self.edns.as_ref().is_some_and(|edns| edns.dnssec_ok)
    }

    pub fn shape(&self) -> Shape {
        self.name.shape().0
    }
}

/// Queried types; common ones are more frequent.
const TYPES: [u16; 40] = [
    1, 1, 1, 1, 1, 1, 28, 28, 28, 28, 65, 65, 64, 16, 16, 16, 16, 16, 15, 15, 33, 2, 2, 6, 12, 12,
    5, 39, 13, 257, 44, 52, 43, 48, 47, 46, 99, 255, 35, 65_280,
];

/// Types without data, queried rarely.
const ODD_TYPES: [u16; 9] = [0, 41, 128, 249, 250, 251, 252, 253, 254];

/// Classes other than IN: CHAOS, HESIOD, NONE, ANY, unknown.
const CLASSES: [u16; 5] = [3, 4, 254, 255, 999];

const ZONES: [&str; 5] =
    ["zone", "example.org", "a.b.c.d.e.f.g.h.example", "", "2.0.192.x-addr.arpa"];

const TTLS_S: [u32; 10] =
    [0, 60, 300, 3_600, 3_600, 86_400, 86_401, 604_800, 0x7fff_ffff, 0x8000_0000];

const SIZES: [u16; 10] = [0, 511, 512, 513, 900, 1_232, 1_232, 1_400, 4_096, 65_535];

/// The largest response of the upstream, in bytes.
const ANSWER_BYTES_MAX: usize = 65_535;

/// Draws queries.
pub struct Queries {
    draw: Random,
    number: u32,
    drawn: Vec<ClientQuery>,
}

impl Queries {
    pub fn new(seed: u64) -> Queries {
        Queries { draw: Random(seed), number: 0, drawn: Vec::new() }
    }

    /// A new query, or an earlier one by another client.
    pub fn draw(&mut self) -> ClientQuery {
        let draw = &mut self.draw;
        let is_new = self.drawn.is_empty() || draw.percent(50);
        let mut query = if !is_new {
            // Some repeat the previous query.
            let from = if draw.percent(10) { self.drawn.len() - 1 } else { 0 };
            draw.of(&self.drawn[from..])
        } else {
            self.number += 1;
            let mut query = new(draw, self.number);
            while query.passed_on(true).is_none_or(|drawn| drawn.answer().len() > ANSWER_BYTES_MAX)
            {
                query = new(draw, self.number);
            }
            self.drawn.push(query.clone());
            query
        };
        let draw = &mut self.draw;
        query.flags = [if draw.percent(97) { RD } else { 0 }, 0];
        if draw.percent(20) {
            query.flags[1] |= AD;
        }
        if draw.percent(15) {
            query.flags[1] |= CD;
        }
        if draw.percent(1) {
            // AA and TC in the first byte, RA and the reserved bit in the second.
            query.flags[0] |= draw.of(&[4, TC, 4 | TC, 0]);
            query.flags[1] |= draw.of(&[RA, 0x40, 0]);
        }
        if draw.percent(1) {
            query.opcode = draw.of(&[1, 2, 3, 4, 5, 6, 15]);
        }
        query.edns = draw.percent(70).then(|| edns(draw));
        query.by_stream = draw.percent(15);
        for label in &mut query.name.0 {
            for byte in label {
                if draw.percent(10) {
                    byte.make_ascii_uppercase();
                }
            }
        }
        query
    }
}

fn edns(draw: &mut Random) -> Edns {
    let mut edns =
        Edns { udp_bytes: draw.of(&SIZES), dnssec_ok: draw.percent(40), ..Edns::default() };
    if draw.percent(2) {
        edns.version = draw.of(&[1, 2, 255]);
    }
    if draw.percent(3) {
        edns.reserved = draw.of(&[1, 0x4000, 0x7fff]);
    }
    if draw.percent(30) {
        for _ in 0..draw.index(3) + 1 {
            edns.options.extend(option(draw));
        }
    }
    edns
}

/// NSID, an unknown option, padding, client subnet, key tags, keepalive: none of them changes a
/// response.
fn option(draw: &mut Random) -> Vec<u8> {
    let (number, content): (u16, Vec<u8>) = match draw.index(6) {
        0 => (3, Vec::new()),
        1 => (65_001, vec![7; draw.index(40)]),
        2 => (12, vec![0; draw.index(60)]),
        3 => (8, vec![0, 1, 24, 0, 192, 0, 2]),
        4 => (14, vec![0x4f, 0x66]),
        _ => (11, Vec::new()),
    };
    let length = content.len() as u16;
    [&number.to_be_bytes()[..], &length.to_be_bytes(), &content].concat()
}

/// A query that was not sent before.
fn new(draw: &mut Random, number: u32) -> ClientQuery {
    let mut query = ClientQuery {
        qtype: if draw.percent(1) { draw.of(&ODD_TYPES) } else { draw.of(&TYPES) },
        qclass: if draw.percent(1) { draw.of(&CLASSES) } else { 1 },
        ..ClientQuery::default()
    };
    if draw.index(500) == 0 {
        return query;
    }
    let shape = shape(draw, number, query.qtype);
    // A separate zone for each query: unbound caches one SOA per zone, and these SOA records
    // differ.
    let zone = Name::of(draw.of(&ZONES)).child(format!("z{number}").as_bytes());
    let mut name = zone.child(&shape.label());
    if shape.has(Flag::Dname) || draw.percent(20) {
        name = name.child(b"www");
    }
    if draw.percent(4) && shape.aliases < 3 {
        lengthen(&mut name, draw);
    }
    query.name = name;
    query
}

/// Adds labels until the name has nearly the maximum length.
fn lengthen(name: &mut Name, draw: &mut Random) {
    let longest = 255 - draw.index(40);
    loop {
        let room = longest.saturating_sub(name.wire().len() + 1).min(63);
        if room == 0 {
            return;
        }
        let mut label = vec![b'l'; room.min(1 + draw.index(63))];
        // Labels may have bytes that are not letters.
        label[0] = draw.of(&[b'l', b'_', b'.', b'\\', 0, 0xff, b' ']);
        *name = name.child(&label);
    }
}

fn shape(draw: &mut Random, number: u32, qtype: u16) -> Shape {
    let mut shape = Shape { number, ..Shape::default() };
    shape.kind = match draw.index(100) {
        0..70 => Kind::Data,
        70..80 => Kind::NoName,
        80..90 => Kind::NoData,
        90..96 => Kind::Code(draw.of(&[1, 2, 4, 5, 6, 9, 10])),
        96..98 => Kind::Referral,
        _ => Kind::Empty,
    };
    if draw.percent(30) {
        shape.ttl_s = draw.of(&TTLS_S);
    }
    if draw.percent(30) {
        shape.minimum_s = draw.of(&TTLS_S);
    }
    if draw.percent(40) {
        shape.records = draw.of(&[1, 2, 3, 4, 8, 13, 30]);
    }
    if qtype == rtype::A && draw.percent(5) {
        shape.records = draw.of(&[28, 29, 72, 73, 74, 75, 90, 150]);
    }
    if draw.percent(50) {
        shape.text_bytes =
            draw.of(&[0, 255, 256, 400, 440, 480, 1_100, 1_180, 1_300, 2_000, 20_000]);
    }
    if shape.text_bytes > 40 && !is_known(qtype) {
        shape.records = draw.of(&[1, 1, 2, 3]);
    }
    if draw.percent(15) {
        shape.aliases = draw.of(&[1, 1, 2, 3, 5, 8]);
    }
    for (flag, share) in [
        (Flag::Dname, 8),
        (Flag::NoSoa, 5),
        (Flag::NoOpt, 3),
        (Flag::Authentic, 10),
        (Flag::Authoritative, 10),
        (Flag::Extra, 30),
        (Flag::Uncompressed, 10),
        (Flag::MixedCase, 5),
        (Flag::Reversed, 4),
        (Flag::Unrelated, 4),
        (Flag::Twice, 5),
        (Flag::Signed, 40),
        (Flag::Wildcard, 10),
        (Flag::Truncated, 2),
    ] {
        if draw.percent(share) {
            shape.set(flag);
        }
    }
    if draw.percent(10) {
        shape.extended_error = Some(draw.of(&[0, 6, 15, 22]));
    }
    shape
}

/// Types whose data has its own format, and not the length that the name states.
fn is_known(qtype: u16) -> bool {
    matches!(
        qtype,
        1 | 2 | 5 | 6 | 12 | 13 | 15 | 28 | 33 | 39 | 43 | 44 | 46 | 47 | 48 | 52 | 64 | 65 | 257
    )
}

/// The seed determines the queries; some of them repeat.
#[test]
fn queries_are_drawn_again() {
    let draw = |seed| {
        let mut queries = Queries::new(seed);
        (0..500).map(|_| queries.draw()).collect::<Vec<_>>()
    };
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
    let names: std::collections::HashSet<Name> =
        draw(3).iter().map(|query| query.name.lower()).collect();
    assert!((200..400).contains(&names.len()), "{}", names.len());
    for query in draw(5) {
        assert!(query.name.wire().len() <= 255, "{query:?}");
    }
}
