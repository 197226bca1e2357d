//! For any packets of clients, upstreams and attackers, in any order, a core never panics and
//! responds to each client in time. In the end it stores nothing. It sends a client nothing that no
//! upstream sent for its question.
//!
//! Each upstream response has a serial made from the question, so the test notices a response to
//! another question. Packets are intact or have a changed byte; they come to the right socket and
//! with the right ID or not. hickory reads the responses. If it cannot read a packet that the core
//! might accept, the test does not check responses to that question.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use hickory_proto::op::Message;
use hickory_proto::rr::Record;
use larder::{Cache, Seconds};
use larder_dns::core::{Client, Core, Net, Now, QUERY_BYTES_MAX, Settings};
use larder_dns::pending::Limits;
use larder_dns::zones::{Answers, Forward, Upstream, Zones};
use larder_io::udp::Route;
use proptest::prelude::*;

const TYPES: [u16; 3] = [1, 16, 65_280];

/// An event.
#[derive(Debug, Clone)]
enum Event {
    Query { client: u16, name: u8, rtype: usize, flags: u8, case: u8, change: Option<(usize, u8)> },
    Answer { packet: usize, kind: u8, change: Option<(usize, u8)>, fault: u8 },
    BreakStream { packet: usize },
    Unreachable { upstream: usize },
    Reach { upstream: usize },
    Suspect { packet: usize },
    Wait { ms: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let change = || proptest::option::weighted(0.2, (2usize..60, any::<u8>()));
    prop_oneof![
        6 => (0..9u16, 0..5u8, 0..3usize, any::<u8>(), any::<u8>(), change()).prop_map(
            |(client, name, rtype, flags, case, change)| Event::Query {
                client, name, rtype, flags, case, change,
            }
        ),
        8 => (0..6usize, 0..9u8, change(), 0..9u8).prop_map(|(packet, kind, change, fault)| {
            Event::Answer { packet, kind, change, fault }
        }),
        1 => (0..4usize).prop_map(|packet| Event::BreakStream { packet }),
        1 => (0..3usize).prop_map(|upstream| Event::Unreachable { upstream }),
        1 => (0..3usize).prop_map(|upstream| Event::Reach { upstream }),
        1 => (0..4usize).prop_map(|packet| Event::Suspect { packet }),
        3 => (0..400u64).prop_map(|ms| Event::Wait { ms }),
        1 => (0..40_000u64).prop_map(|ms| Event::Wait { ms }),
    ]
}

/// A packet to an upstream.
#[derive(Debug, Clone)]
struct Packet {
    way: Way,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Socket(u32),
    Stream(u64),
}

#[derive(Debug, Default)]
struct World {
    responses: Vec<(u16, Vec<u8>)>,
    ignored: u32,
    queries: Vec<Packet>,
    out_of_reach: HashSet<usize>,
}

fn number(client: &Client) -> u16 {
    match client {
        Client::Udp { route, .. } => route.peer.port(),
        Client::Stream { peer, .. } | Client::Side { peer, .. } => peer.port(),
        Client::Frame { letter, .. } => letter.peer.port(),
    }
}

impl Net for World {
    fn respond(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let mut bytes = vec![0; bytes_max];
        let Some(len) = write(&mut bytes) else { return false };
        bytes.truncate(len);
        self.responses.push((number(client), bytes));
        true
    }

    fn drop_query(&mut self, _: &Client) {
        self.ignored += 1;
    }

    fn query_udp(
        &mut self,
        upstream: usize,
        write: impl FnOnce(u32, &mut [u8]) -> Option<usize>,
    ) -> bool {
        if self.out_of_reach.contains(&upstream) {
            return false;
        }
        let socket = upstream as u32;
        let mut bytes = vec![0; QUERY_BYTES_MAX];
        let Some(length) = write(socket, &mut bytes) else { return false };
        bytes.truncate(length);
        self.queries.push(Packet { way: Way::Socket(socket), bytes });
        true
    }

    fn query_stream(&mut self, upstream: usize, tag: u64, message: &[u8]) -> bool {
        let is_taken = !self.out_of_reach.contains(&upstream);
        if is_taken {
            self.queries.push(Packet { way: Way::Stream(tag), bytes: message.to_vec() });
        }
        is_taken
    }

    fn cancel(&mut self, _: u64) {}
}

/// Name, type and class in lower case, of a message with a complete question.
fn question(message: &[u8]) -> Option<Vec<u8>> {
    let name = message.get(12..)?;
    let end = name.iter().position(|&byte| byte == 0)? + 5;
    Some(name.get(..end)?.to_ascii_lowercase())
}

/// Four bytes made from a question, for the responses of upstreams.
fn serial(question: &[u8], count: u8) -> [u8; 4] {
    let mixed = question
        .iter()
        .chain([&count])
        .fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    mixed.to_be_bytes()
}

fn query(client: u16, id: u16, event: &Event) -> (Client, Vec<u8>) {
    let Event::Query { name, rtype, flags, case, change, .. } = event else { unreachable!() };
    let [id0, id1] = id.to_be_bytes();
    // RD in most queries; CD; EDNS; DO; over TCP.
    let rd = u8::from(flags & 0xc0 != 0);
    let (cd, edns, dnssec_ok) = (flags & 1, flags >> 1 & 1, flags >> 2 & 1);
    let mut bytes = vec![id0, id1, rd, cd << 4, 0, 1, 0, 0, 0, 0, 0, edns];
    bytes.extend([2, b'n', b'0' + name, 7]);
    bytes.extend(b"example".iter().enumerate().map(|(at, byte)| byte ^ (case >> at & 1) << 5));
    bytes.push(0);
    bytes.extend(TYPES[*rtype].to_be_bytes());
    bytes.extend([0, 1]);
    if edns == 1 {
        bytes.extend([0, 0, 41, 5, 0, 0, 0, dnssec_ok << 7, 0, 0, 0]);
    }
    if let Some((at, by)) = change {
        let at = at % bytes.len();
        // The ID does not change: it identifies the response.
        bytes[at.max(2)] ^= by;
    }
    let peer = SocketAddr::from(([198, 51, 100, 1], client));
    let client = if flags & 8 != 0 {
        Client::Stream { stream: client.into(), peer }
    } else {
        Client::Udp { socket: 0, route: Route { peer, local: None } }
    };
    (client, bytes)
}

/// A response of this kind to a packet.
fn answer(packet: &Packet, kind: u8, count: u8) -> Vec<u8> {
    let query = &packet.bytes;
    let own = question(query).expect("the core asks whole questions");
    let question_end = 12 + own.len();
    let rcode = match kind {
        3 => 3,
        4 => 2,
        5 => 1,
        _ => 0,
    };
    let truncated = u8::from(kind == 6) << 1;
    let mut bytes =
        vec![query[0], query[1], 0x81 | truncated, 0x80 | rcode, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&query[12..question_end]);
    let data = serial(&own, count);
    let rtype = [own[own.len() - 4], own[own.len() - 3]];
    let content = if rtype == [0, 16] { [&[4], &data[..]].concat() } else { data.to_vec() };
    let ttl_s = [60, 0, 20][usize::from(kind) % 3];
    let mut record = |owner: &[u8], rtype: [u8; 2], content: &[u8]| {
        bytes.extend_from_slice(owner);
        bytes.extend_from_slice(&rtype);
        bytes.extend_from_slice(&[0, 1, 0, 0, 0, ttl_s, 0, content.len() as u8]);
        bytes.extend_from_slice(content);
    };
    let counts = match kind {
        0..=2 => {
            record(&[0xc0, 12], rtype, &content);
            [1, 0]
        }
        3 | 7 => {
            let soa = [&[0, 0][..], &data, &[0; 12], &[0, 0, 0, 30]].concat();
            record(&[0xc0, 15], [0, 6], &soa);
            [0, 1]
        }
        8 => {
            let alias = [&[4][..], &data.map(|byte| b'a' + byte % 26), &[0xc0, 15]].concat();
            record(&[0xc0, 12], [0, 5], &alias);
            // The alias leads to a name that follows the question and the fixed part of the first
            // record.
            record(&[0xc0, question_end as u8 + 12], rtype, &content);
            [2, 0]
        }
        _ => [0, 0],
    };
    bytes[7] = counts[0];
    bytes[9] = counts[1];
    bytes
}

/// The content of a message, without TTLs and case.
fn said(message: &Message) -> Vec<String> {
    let line = |record: &Record| format!("{} {}", record.record_type(), record.data).to_lowercase();
    message.answers.iter().chain(&message.authorities).map(line).collect()
}

/// The upstreams' responses to each question.
#[derive(Debug, Default)]
struct Said {
    lines: HashMap<Vec<u8>, HashSet<String>>,
    unreadable: HashSet<Vec<u8>>,
}

impl Said {
    fn note(&mut self, bytes: &[u8]) {
        let Some(question) = question(bytes) else { return };
        match Message::from_vec(bytes) {
            Ok(message) => self.lines.entry(question).or_default().extend(said(&message)),
            Err(_) => {
                self.unreadable.insert(question);
            }
        }
    }

    fn holds(&self, bytes: &[u8]) -> bool {
        let Some(question) = question(bytes) else { return true };
        // ANY needs no upstream.
        if self.unreadable.contains(&question) || question.ends_with(&[0, 255, 0, 1]) {
            return true;
        }
        let message = Message::from_vec(bytes).expect("an answer can be read");
        let known = self.lines.get(&question);
        said(&message).iter().all(|line| known.is_some_and(|known| known.contains(line)))
    }
}

struct Stage {
    core: Core,
    world: World,
    now: Now,
    said: Said,
    /// Client and time of each pending query, by its ID.
    waiting: HashMap<u16, (u16, u64)>,
    query_us_max: u64,
}

impl Stage {
    fn new(case_random: bool) -> Stage {
        let settings = Settings {
            limits: Limits { queries_max: 4, waiters_max: 6, waiters_each_max: 3 },
            case_random,
            stale_s: 120,
            ..Settings::default()
        };
        let query_us_max = u64::from(settings.query_ms_max) * 1_000;
        let cache = Cache::builder().budget(2 << 20).readers_max(1).stale(Seconds(120));
        let upstream = |last| SocketAddr::from(([192, 0, 2, last], 53)).into();
        let answers = Answers { number: 0, wait_ms: 3_000, is_believed: true };
        let backend = Upstream::Backend(answers);
        let forwards = [
            Forward { zone: vec![0], upstreams: vec![upstream(1), upstream(2)] },
            Forward {
                zone: b"\x02n0\x07example\0".to_vec(),
                upstreams: vec![upstream(3), backend],
            },
        ];
        let now = Now { us: 1_000_000, wall_s: 1_000_000 };
        let zones = Zones::new(&forwards).unwrap();
        let core = Core::new(Arc::new(settings), &cache.build().unwrap(), zones, now).unwrap();
        let (world, said, waiting) = (World::default(), Said::default(), HashMap::new());
        Stage { core, world, now, said, waiting, query_us_max }
    }

    /// The `packet`-th of the last packets.
    fn packet(&self, packet: usize) -> Option<Packet> {
        self.world.queries.iter().rev().nth(packet).cloned()
    }

    fn play(&mut self, event: &Event, at: u16) {
        self.core.begin(self.now);
        let Stage { core, world, now, .. } = self;
        match *event {
            Event::Query { client, .. } => {
                let (who, bytes) = query(client, at, event);
                let ignored = world.ignored;
                self.waiting.insert(at, (client, now.us));
                core.queries(std::iter::once((who, &bytes[..])), world);
                if world.ignored > ignored {
                    self.waiting.remove(&at);
                }
            }
            Event::Answer { packet, kind, change, fault } => {
                let Some(packet) = self.packet(packet) else { return };
                let Stage { core, world, said, .. } = self;
                let mut bytes = answer(&packet, kind, at as u8);
                if let Some((at, by)) = change {
                    let at = at % bytes.len();
                    bytes[at.max(2)] ^= by;
                }
                match packet.way {
                    Way::Socket(socket) if fault < 2 => {
                        // The core must not accept either of these, so no client may get their
                        // content.
                        let wrong = 7 * u32::from(fault);
                        bytes[1] ^= u8::from(fault == 0);
                        core.response(socket + wrong, &bytes, world);
                    }
                    Way::Socket(socket) => {
                        said.note(&bytes);
                        core.response(socket, &bytes, world);
                    }
                    Way::Stream(tag) => {
                        said.note(&bytes);
                        core.stream_response(tag, Some(&bytes), world);
                    }
                }
            }
            Event::BreakStream { packet } => {
                if let Some(Packet { way: Way::Stream(tag), .. }) = self.packet(packet) {
                    self.core.stream_response(tag, None, &mut self.world);
                }
            }
            Event::Unreachable { upstream } => core.unreachable(upstream, world),
            Event::Reach { upstream } => {
                if !world.out_of_reach.remove(&upstream) {
                    world.out_of_reach.insert(upstream);
                }
            }
            Event::Suspect { packet } => {
                if let Some(Packet { way: Way::Socket(socket), .. }) = self.packet(packet) {
                    self.core.suspect_socket(socket, &mut self.world);
                }
            }
            Event::Wait { ms } => self.wait(ms),
        }
        self.core.finish();
        self.receive();
    }

    fn wait(&mut self, ms: u64) {
        let end_us = self.now.us + ms * 1_000;
        loop {
            self.core.begin(self.now);
            self.core.tick(&mut self.world);
            self.core.finish();
            self.receive();
            let wait_us = self.core.wait_ms(self.now).unwrap_or(u64::MAX).saturating_mul(1_000);
            let left_us = end_us - self.now.us;
            if left_us == 0 {
                return;
            }
            assert!(wait_us > 0, "what was due has been done");
            self.now.us += wait_us.min(left_us);
            self.now.wall_s = (self.now.us / 1_000_000) as u32 + 999_999;
        }
    }

    /// Checks the responses to clients: one each, in time, with content from upstreams only.
    fn receive(&mut self) {
        for (client, bytes) in std::mem::take(&mut self.world.responses) {
            let id = u16::from_be_bytes([bytes[0], bytes[1]]);
            let (queried_by, queried_us) = self.waiting.remove(&id).expect("who asked waits");
            assert_eq!(client, queried_by);
            assert!(self.now.us <= queried_us + self.query_us_max, "invariant 2 of `core`");
            let is_said = self.said.holds(&bytes);
            assert!(is_said, "invariant 1 of `core`: {bytes:02x?} is not of {:?}", self.said);
        }
        let now_us = self.now.us;
        let mut waiting = self.waiting.values();
        let is_in_time = |&(_, queried_us): &(_, u64)| now_us <= queried_us + self.query_us_max;
        assert!(waiting.all(is_in_time), "invariant 2 of `core`");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// See the header of this file.
    #[test]
    fn any_packets(case_random: bool, events in proptest::collection::vec(event(), 1..80)) {
        let mut stage = Stage::new(case_random);
        for (at, event) in events.iter().enumerate() {
            stage.play(event, 1 + at as u16);
        }
        stage.wait(5_000);
        prop_assert!(stage.waiting.is_empty());
        prop_assert_eq!(stage.core.in_flight(), 0);
        prop_assert_eq!(stage.core.wait_ms(stage.now), None);
    }
}
