//! Tests of the resolver with scripted name servers, without sockets and with simulated time.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as ProtoQuery, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use larder_testkit::random::Random;

use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn at(last: u8) -> IpAddr {
    IpAddr::from([9, 9, 9, last])
}

fn record(owner: &str, data: RData) -> Record {
    Record::from_rdata(name(owner), 300, data)
}

fn a(owner: &str, last: u8) -> Record {
    record(owner, RData::A(A(Ipv4Addr::new(9, 9, 9, last))))
}

/// IPv6 addresses of servers have numbers from 200 on.
fn aaaa(owner: &str, last: u8) -> Record {
    assert!(last >= 200);
    let address = Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, last.into());
    record(owner, RData::AAAA(AAAA(address)))
}

fn ns(zone: &str, server: &str) -> Record {
    record(zone, RData::NS(NS(name(server))))
}

fn alias(owner: &str, target: &str) -> Record {
    record(owner, RData::CNAME(CNAME(name(target))))
}

fn soa(zone: &str) -> Record {
    record(zone, RData::SOA(SOA::new(name("ns."), name("admin."), 1, 3_600, 600, 86_400, 60)))
}

/// A scripted response of a server. AA follows from the sections.
#[derive(Clone, Default)]
struct Script {
    code: Option<ResponseCode>,
    is_bare: bool,
    is_truncated: bool,
    recurses: bool,
    /// The delay of the response, milliseconds.
    delay_ms: u64,
    answers: Vec<Record>,
    authorities: Vec<Record>,
    additionals: Vec<Record>,
}

fn data(answers: &[Record]) -> Option<Script> {
    Some(Script { answers: answers.to_vec(), ..Script::default() })
}

fn no_data(zone: &str) -> Option<Script> {
    Some(Script { authorities: vec![soa(zone)], ..Script::default() })
}

fn nxdomain(zone: &str) -> Option<Script> {
    Some(Script { code: Some(ResponseCode::NXDomain), ..no_data(zone)? })
}

fn refused() -> Option<Script> {
    Some(Script { code: Some(ResponseCode::Refused), ..Script::default() })
}

/// A referral to one server with an address.
fn refer(zone: &str, last: u8) -> Option<Script> {
    let server = format!("ns.{zone}");
    let additionals = vec![a(&server, last)];
    Some(Script { authorities: vec![ns(zone, &server)], additionals, ..Script::default() })
}

/// A query as a server received it.
#[derive(Debug, Clone)]
struct Sent {
    server: IpAddr,
    socket: u32,
    tag: Option<u64>,
    message: Message,
}

impl Sent {
    fn summary(&self) -> (u8, String, RecordType) {
        let number = match self.server {
            IpAddr::V4(server) => server.octets()[3],
            IpAddr::V6(server) => server.octets()[15],
        };
        let query = &self.message.queries[0];
        (number, query.name().to_string().to_ascii_lowercase(), query.query_type())
    }
}

/// The simulated network.
#[derive(Default)]
struct Wire {
    sent: Vec<Sent>,
    responses: Vec<(u32, Vec<u8>)>,
    sockets: u32,
    /// Responses in flight: arrival time in microseconds, query, and message.
    in_flight: Vec<(u64, Sent, Vec<u8>)>,
    /// Servers without a route.
    unreachable: Vec<IpAddr>,
}

impl Net<u32> for Wire {
    fn send(&mut self, to: IpAddr, write: impl FnOnce(u32, &mut [u8]) -> Option<usize>) -> bool {
        if self.unreachable.contains(&to) {
            return false;
        }
        self.sockets += 1;
        let mut room = [0; 320];
        let Some(length) = write(self.sockets, &mut room) else { return false };
        let message = Message::from_vec(&room[..length]).unwrap();
        assert!(!message.metadata.recursion_desired, "queries to servers have no RD");
        self.sent.push(Sent { server: to, socket: self.sockets, tag: None, message });
        true
    }

    fn send_tcp(&mut self, server: IpAddr, tag: u64, message: &[u8]) -> bool {
        let message = Message::from_vec(message).unwrap();
        self.sent.push(Sent { server, socket: 0, tag: Some(tag), message });
        true
    }

    fn respond(&mut self, client: u32, message: Vec<u8>, _: &[u8]) {
        self.responses.push((client, message));
    }
}

/// The responses of all servers, by server, name and type; `None` for no response.
type Scripts = fn(u8, &str, RecordType) -> Option<Script>;

struct World {
    resolver: Resolver<u32>,
    wire: Wire,
    scripts: Scripts,
    us: u64,
    /// When a response of a server led to the last response to a client.
    responded_us: u64,
    clients: u32,
    /// All queries that servers received.
    log: Vec<(u8, String, RecordType)>,
    /// The messages of those queries, for the last client.
    messages: Vec<Sent>,
}

impl World {
    fn new(scripts: Scripts) -> World {
        World::of(scripts, Options::default())
    }

    fn of(scripts: Scripts, options: Options) -> World {
        let options = Options { roots: vec![at(1)], ..options };
        let now = Now { us: 0, wall_s: 1_000 };
        World {
            resolver: Resolver::new(Arc::new(options), now),
            wire: Wire::default(),
            scripts,
            us: 0,
            responded_us: 0,
            clients: 0,
            log: Vec::new(),
            messages: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now { us: self.us, wall_s: 1_000 + (self.us / 1_000_000) as u32 }
    }

    fn reply(&self, sent: &Sent) -> Option<Vec<u8>> {
        let (server, qname, rtype) = sent.summary();
        let script = (self.scripts)(server, &qname, rtype)?;
        let metadata = &sent.message.metadata;
        let mut reply = Message::new(metadata.id, MessageType::Response, OpCode::Query);
        if !script.is_bare {
            reply.queries = sent.message.queries.clone();
            reply.edns = sent.message.edns.clone();
        }
        let code = script.code.unwrap_or(ResponseCode::NoError);
        reply.metadata.response_code = code;
        reply.metadata.recursion_available = script.recurses;
        reply.metadata.truncation = script.is_truncated && sent.tag.is_none();
        let is_soa = script.authorities.iter().any(|it| it.record_type() == RecordType::SOA);
        reply.metadata.authoritative = !script.recurses && (is_soa || !script.answers.is_empty());
        reply.answers = script.answers;
        reply.authorities = script.authorities;
        reply.additionals = script.additionals;
        Some(reply.to_vec().unwrap())
    }

    /// Delivers all responses, and advances the time until no task waits.
    fn settle(&mut self) {
        loop {
            while !self.wire.sent.is_empty() {
                let sent = self.wire.sent.remove(0);
                self.log.push(sent.summary());
                self.messages.push(sent.clone());
                self.us += 1_000;
                let Some(reply) = self.reply(&sent) else { continue };
                match self.delay_ms(&sent) {
                    0 => assert!(self.deliver(&sent, &reply), "{:?}", sent.summary()),
                    ms => self.wire.in_flight.push((self.us + ms * 1_000, sent, reply)),
                }
            }
            let wait_ms = self.resolver.wait_ms(self.now());
            let due_us = wait_ms.map(|wait_ms| self.us + wait_ms.max(1) * 1_000);
            let next = (0..self.wire.in_flight.len()).min_by_key(|at| self.wire.in_flight[*at].0);
            match (next, due_us) {
                (Some(at), due_us) if due_us.is_none_or(|us| self.wire.in_flight[at].0 <= us) => {
                    let (us, sent, reply) = self.wire.in_flight.remove(at);
                    self.us = us;
                    self.deliver(&sent, &reply);
                }
                (_, Some(us)) => {
                    self.us = us;
                    self.resolver.tick(self.now(), &mut self.wire);
                }
                _ => break,
            }
        }
        assert_eq!(self.resolver.in_flight(), 0);
        let Resolver { tasks, by_udp_key, by_tcp_tag, address_tasks, minimized, timers, .. } =
            &self.resolver;
        assert!(tasks.is_empty() && by_udp_key.is_empty() && by_tcp_tag.is_empty());
        assert!(address_tasks.is_empty() && minimized.is_empty() && timers.is_empty());
        let Resolver { in_zone, at_server, .. } = &self.resolver;
        assert!(in_zone.is_empty() && at_server.is_empty(), "{in_zone:?} {at_server:?}");
    }

    /// The delay of the response.
    fn delay_ms(&self, sent: &Sent) -> u64 {
        let (server, qname, rtype) = sent.summary();
        (self.scripts)(server, &qname, rtype).map_or(0, |script| script.delay_ms)
    }

    /// Delivers a response. Returns whether the resolver accepted it.
    fn deliver(&mut self, sent: &Sent, reply: &[u8]) -> bool {
        let now = self.now();
        let responses = self.wire.responses.len();
        let is_expected = match sent.tag {
            None => self.resolver.receive(now, sent.socket, reply, &mut self.wire),
            Some(tag) => {
                self.resolver.receive_tcp(now, tag, Some(reply), &mut self.wire);
                true
            }
        };
        if self.wire.responses.len() > responses {
            self.responded_us = self.us;
        }
        is_expected
    }

    fn begin(&mut self, qname: &str, rtype: RecordType, dnssec_ok: bool) {
        let mut message = Message::new(0, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(ProtoQuery::query(name(qname), rtype));
        let mut edns = Edns::new();
        edns.set_dnssec_ok(dnssec_ok);
        message.edns = Some(edns);
        self.clients += 1;
        let bytes = message.to_vec().unwrap();
        self.resolver.begin(self.now(), self.clients, &bytes, 4_500, &mut self.wire);
    }

    /// Sends a client query and parses the response with another library.
    fn query(&mut self, qname: &str, rtype: RecordType) -> Message {
        (self.log, self.messages) = (Vec::new(), Vec::new());
        self.begin(qname, rtype, false);
        self.settle();
        let [(client, bytes)] = &self.wire.responses[..] else { panic!("{qname}: not one") };
        assert_eq!(*client, self.clients);
        let message = Message::from_vec(bytes).unwrap();
        self.wire.responses.clear();
        let metadata = &message.metadata;
        assert!(metadata.recursion_available && metadata.recursion_desired);
        assert!(!metadata.authoritative && !metadata.authentic_data && !metadata.truncation);
        assert_eq!(message.queries, [ProtoQuery::query(name(qname), rtype)]);
        assert_eq!(message.queries[0].name().to_string(), qname, "in the case of the client");
        message
    }

    fn queries(&self) -> Vec<(u8, &str)> {
        self.log.iter().map(|(server, name, _)| (*server, name.as_str())).collect()
    }
}

/// The addresses in a response, by their last byte.
fn found(message: &Message) -> Vec<u8> {
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
    let byte = |record: &Record| match &record.data {
        RData::A(address) => Some(address.0.octets()[3]),
        _ => None,
    };
    message.answers.iter().filter_map(byte).collect()
}

fn has_failed(message: &Message) -> bool {
    let options = message.edns.iter().flat_map(|edns| &edns.options().options);
    let reasons: Vec<u16> = options.map(|(code, _)| u16::from(*code)).collect();
    message.metadata.response_code == ResponseCode::ServFail && reasons == [15]
}

/// Regular servers: root 1, top level "test." 2, and domains "good." 3 and "other." 4.
fn plain(server: u8, qname: &str, rtype: RecordType) -> Option<Script> {
    match (server, qname) {
        (1, _) if qname.ends_with("test.") => refer("test.", 2),
        (1, _) => nxdomain("."),
        (2, _) if qname.ends_with("good.test.") => refer("good.test.", 3),
        (2, _) if qname.ends_with("other.test.") => refer("other.test.", 4),
        (2, "test.") => no_data("test."),
        (2, _) => nxdomain("test."),
        (3, "www.good.test." | "host.deep.good.test.") if rtype == RecordType::A => {
            data(&[a(qname, 33)])
        }
        (3, "www.good.test." | "deep.good.test." | "good.test.") => no_data("good.test."),
        (3, "away.good.test.") => {
            data(&[alias("away.good.test.", "www.other.test."), a("www.other.test.", 66)])
        }
        (3, "near.good.test.") => {
            data(&[alias("near.good.test.", "www.good.test."), a("www.good.test.", 33)])
        }
        (3, "lost.good.test.") => data(&[alias("lost.good.test.", "nowhere.other.test.")]),
        (3, _) => nxdomain("good.test."),
        (4, "www.other.test.") => data(&[a(qname, 44)]),
        (4, "round.other.test.") => data(&[alias(qname, "round.good.test.")]),
        (4, _) => nxdomain("other.test."),
        _ => None,
    }
}

/// A resolution begins at the root and passes the top level, with minimized names. Zone cuts are cached
/// until they expire.
#[test]
fn from_the_root_down() {
    let mut world = World::new(plain);
    assert_eq!(found(&world.query("WWW.good.Test.", RecordType::A)), [33]);
    assert_eq!(world.queries(), [(1, "test."), (2, "good.test."), (3, "www.good.test.")]);
    assert!(world.log.iter().all(|(_, _, rtype)| *rtype == RecordType::A));
    assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
    assert_eq!(world.queries(), [(3, "www.good.test.")]);
    assert_eq!(world.query("www.good.test.", RecordType::TXT).answers, []);
    assert_eq!(world.log[0].2, RecordType::TXT);
    assert_eq!(found(&world.query("www.other.test.", RecordType::A)), [44]);
    assert_eq!(world.queries(), [(2, "other.test."), (4, "www.other.test.")]);
    world.us += 300_000_000;
    assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
    assert_eq!(world.queries(), [(1, "test."), (2, "good.test."), (3, "www.good.test.")]);
    assert_eq!(world.resolver.counts().failures, 0);
}

/// A label without a zone cut costs one query, once. A name with many labels is sent in full after a few.
#[test]
fn labels_without_zones() {
    let mut world = World::new(plain);
    world.query("www.good.test.", RecordType::A);
    assert_eq!(found(&world.query("host.deep.good.test.", RecordType::A)), [33]);
    assert_eq!(world.queries(), [(3, "deep.good.test."), (3, "host.deep.good.test.")]);
    let denied = world.query("b.deep.good.test.", RecordType::A);
    assert_eq!(denied.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(world.queries(), [(3, "b.deep.good.test.")], "the label above is known");

    let deep = |server: u8, qname: &str, rtype| match server {
        3 if qname == "a.b.c.d.e.f.g.h.good.test." => data(&[a(qname, 35)]),
        3 => no_data("good.test."),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::new(deep);
    assert_eq!(found(&world.query("a.b.c.d.e.f.g.h.good.test.", RecordType::A)), [35]);
    assert_eq!(world.log.len(), 2 + usize::from(STEPS_MAX) + 1);
}

/// NXDOMAIN from the root ends the resolution, and the response has its SOA. Other servers may deny a name that
/// only has names below it, so the full name is sent. With DNSSEC it is always sent.
#[test]
fn nxdomain_above_the_name() {
    let is_denied_by = |message: &Message, zone: &str| {
        assert_eq!(message.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(message.answers, []);
        let soas: Vec<_> = message.authorities.iter().map(|it| it.name.to_string()).collect();
        soas == [zone]
    };
    let mut world = World::new(plain);
    assert!(is_denied_by(&world.query("a.b.none.good.test.", RecordType::A), "good.test."));
    assert_eq!(world.queries()[2..], [(3, "none.good.test."), (3, "a.b.none.good.test.")]);
    assert!(is_denied_by(&world.query("x.y.wrong.", RecordType::A), "."));
    assert_eq!(world.queries(), [(1, "wrong.")]);
    let empty: Scripts = |server, qname, rtype| match (server, qname) {
        (3, "www.a.b.good.test.") => data(&[a(qname, 33)]),
        _ => plain(server, qname, rtype),
    };
    assert_eq!(found(&World::new(empty).query("www.a.b.good.test.", RecordType::A)), [33]);
    let mut passing = World::of(plain, Options { passes_dnssec: true, ..Options::default() });
    passing.begin("x.y.wrong.", RecordType::A, true);
    passing.settle();
    assert_eq!(passing.queries(), [(1, "wrong."), (1, "x.y.wrong.")]);
    let wants = |sent: &Sent| sent.message.edns.as_ref().unwrap().flags().dnssec_ok;
    assert!(passing.messages.iter().all(wants));
}

/// The server of a zone resolves aliases within it. The resolver follows an alias out of the zone itself, and the
/// alias is first in the response. Records of names in other zones are ignored.
#[test]
fn aliases() {
    let mut world = World::new(plain);
    assert_eq!(found(&world.query("near.good.test.", RecordType::A)), [33]);
    assert_eq!(world.log.len(), 3);
    let away = world.query("Away.good.test.", RecordType::A);
    assert_eq!(found(&away), [44]);
    let owners: Vec<String> = away.answers.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(owners[1..], ["www.other.test."]);
    assert!(owners[0].eq_ignore_ascii_case("away.good.test."));
    let lost = world.query("lost.good.test.", RecordType::A);
    assert_eq!(lost.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!((lost.answers.len(), lost.authorities.len()), (1, 1));
}

/// A loop of aliases fails as soon as it closes: through two zones, in one zone, in one response, to itself.
#[test]
fn alias_loops() {
    let two_zones: Scripts = |server, qname, rtype| match (server, qname) {
        (3, "round.good.test.") => data(&[alias(qname, "round.other.test.")]),
        _ => plain(server, qname, rtype),
    };
    let one_zone: Scripts = |server, qname, rtype| match (server, qname) {
        (3, "round.good.test.") => data(&[alias(qname, "square.good.test.")]),
        (3, "square.good.test.") => data(&[alias(qname, "round.good.test.")]),
        _ => plain(server, qname, rtype),
    };
    let one_answer: Scripts = |server, qname, rtype| match (server, qname) {
        (3, "round.good.test.") => data(&[
            alias(qname, "square.good.test."),
            alias("square.good.test.", "oval.good.test."),
            alias("oval.good.test.", "square.good.test."),
        ]),
        _ => plain(server, qname, rtype),
    };
    let itself: Scripts = |server, qname, rtype| match (server, qname) {
        (3, "round.good.test.") => data(&[alias(qname, "ROUND.good.test.")]),
        _ => plain(server, qname, rtype),
    };
    for (scripts, packets) in [(two_zones, 5), (one_zone, 4), (one_answer, 3), (itself, 3)] {
        let mut world = World::new(scripts);
        assert!(has_failed(&world.query("round.good.test.", RecordType::A)));
        assert_eq!(world.log.len(), packets, "{:?}", world.log);
    }
}

/// Two servers for "good.test.": 3, and 5, which is first in the referral.
fn pair(server: u8, qname: &str, rtype: RecordType) -> Option<Script> {
    match (server, qname) {
        (2, _) if qname.ends_with("good.test.") => Some(Script {
            authorities: vec![
                ns("good.test.", "ns5.good.test."),
                ns("good.test.", "ns3.good.test."),
            ],
            additionals: vec![a("ns5.good.test.", 5), a("ns3.good.test.", 3)],
            ..Script::default()
        }),
        _ => plain(server, qname, rtype),
    }
}

/// If one server is silent, refuses, is lame, refers upward or is unreachable, the other responds. The failed one
/// is tried last the next time.
#[test]
fn failover_to_the_second_server() {
    let silent: Scripts = pair;
    let refusing: Scripts = |server, qname, rtype| match server {
        5 => refused(),
        _ => pair(server, qname, rtype),
    };
    let lost: Scripts = |server, qname, rtype| match server {
        5 => Some(Script { recurses: true, ..data(&[a("www.good.test.", 66)])? }),
        _ => pair(server, qname, rtype),
    };
    let upward: Scripts = |server, qname, rtype| match server {
        5 => Some(Script { authorities: vec![ns("test.", "ns.test.")], ..Script::default() }),
        _ => pair(server, qname, rtype),
    };
    for (scripts, is_lame) in [(silent, false), (refusing, true), (lost, true), (upward, true)] {
        let mut world = World::new(scripts);
        let (mut queries, mut queries_5) = (0, 0);
        // One query in 64 is sent there by chance, if the first did not.
        while queries < 100 || (queries_5 == 0 && queries < 10_000) {
            assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
            queries_5 += world.log.iter().filter(|(server, ..)| *server == 5).count();
            queries += 1;
        }
        assert!((1..queries / 5).contains(&queries_5), "{queries_5} of {queries}");
        let counts = world.resolver.counts();
        assert_eq!(counts.lame > 0, is_lame);
        assert_eq!(counts.timeouts > 0, !is_lame);
    }
    let mut world = World::new(pair);
    world.wire.unreachable.push(at(5));
    assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
    assert_eq!(world.queries(), [(1, "test."), (2, "good.test."), (3, "www.good.test.")]);
}

/// After an ICMP error the query moves to the other server at once.
#[test]
fn icmp_unreachable() {
    let mut world = World::new(pair);
    world.begin("www.good.test.", RecordType::A, false);
    while world.wire.sent.last().is_none_or(|sent| !matches!(sent.summary().0, 3 | 5)) {
        let sent = world.wire.sent.remove(0);
        let reply = world.reply(&sent).unwrap();
        world.resolver.receive(world.now(), sent.socket, &reply, &mut world.wire);
    }
    let first = world.wire.sent.remove(0);
    world.resolver.unreachable(world.now(), first.server, &mut world.wire);
    assert_eq!(world.wire.sent.len(), 1);
    assert_ne!(world.wire.sent[0].server, first.server);
    assert_eq!(world.us, 0, "without a wait");
}

/// If no server responds, each is tried at least twice with longer timeouts, and the client gets SERVFAIL in time.
/// Servers known to be silent are tried twice. Invariant 2.
#[test]
fn all_servers_time_out() {
    let mut world = World::new(|server, qname, rtype| match server {
        3 | 5 => None,
        _ => pair(server, qname, rtype),
    });
    assert!(has_failed(&world.query("www.good.test.", RecordType::A)));
    assert_eq!(world.log.len(), 2 + 6);
    assert!(world.us < 4_600_000, "{}", world.us);
    assert_eq!(world.resolver.counts().failures, 1);
    assert!(has_failed(&world.query("other.good.test.", RecordType::A)));
    assert!((2..=4).contains(&world.log.len()), "{:?}", world.log);
}

/// Servers that become slow get time until the deadline: a response to any of the queries counts.
#[test]
fn servers_become_slow() {
    let slow_400: Scripts = |server, qname, rtype| match server {
        3 | 5 => Some(Script { delay_ms: 400, ..pair(3, qname, rtype)? }),
        _ => pair(server, qname, rtype),
    };
    let slow_1400: Scripts = |server, qname, rtype| match server {
        3 | 5 => Some(Script { delay_ms: 1_400, ..pair(3, qname, rtype)? }),
        _ => pair(server, qname, rtype),
    };
    let fast: Scripts = |server, qname, rtype| match server {
        5 => pair(3, qname, rtype),
        _ => pair(server, qname, rtype),
    };
    for (scripts, ms) in [(slow_400, 400), (slow_1400, 1_400)] {
        let mut world = World::new(fast);
        for _ in 0..30 {
            world.query("www.good.test.", RecordType::A);
        }
        world.scripts = scripts;
        for _ in 0..8 {
            let begun_us = world.us;
            assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33], "{ms}");
            let took_us = world.responded_us - begun_us;
            assert!(took_us <= (ms + 20) * 1_000, "{ms}: {took_us} {:?}", world.log);
            assert!(world.log.len() <= 12, "{ms}: {:?}", world.log);
        }
    }
}

/// A server that is slower than all timeouts still counts before the deadline of the client.
#[test]
fn slower_than_all_timeouts() {
    let mut world = World::new(|server, qname, rtype| match server {
        3 => Some(Script { delay_ms: 4_000, ..plain(server, qname, rtype)? }),
        _ => plain(server, qname, rtype),
    });
    assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
    assert!(world.responded_us < 4_050_000, "{}", world.responded_us);
}

/// A late response to an earlier query has no effect, even if it fits the next query. Invariant 1.
#[test]
fn late_response_is_ignored() {
    // The first server of the top level is slow and wrong; the second refers to a zone that gets
    // the same name.
    let scripts: Scripts = |server, qname, rtype| match server {
        1 => Some(Script {
            authorities: vec![ns("test.", "ns6.test."), ns("test.", "ns2.test.")],
            additionals: vec![a("ns6.test.", 6), a("ns2.test.", 2)],
            ..Script::default()
        }),
        6 => Some(Script { delay_ms: 1_000, ..data(&[a(qname, 66)])? }),
        3 => Some(Script { delay_ms: 900, ..plain(server, qname, rtype)? }),
        _ => plain(server, qname, rtype),
    };
    // Names are not minimized if the full name is one label below the known part.
    let whole: Scripts = |server, qname, rtype| match server {
        2 if qname == "good.test." => refer("good.test.", 3),
        3 if qname == "good.test." => {
            Some(Script { delay_ms: 900, ..data(&[a("good.test.", 33)])? })
        }
        _ => plain(server, qname, rtype),
    };
    for seed in 0..20 {
        let mut world = World::new(if seed % 2 == 0 { scripts } else { whole });
        let qname = if seed % 2 == 0 { "www.good.test." } else { "good.test." };
        assert_eq!(found(&world.query(qname, RecordType::A)), [33]);
    }
}

/// After suspected spoofing at a socket its queries move to TCP at once. Queries on other sockets are unaffected.
#[test]
fn spoofing_at_a_socket() {
    let mut world = World::new(plain);
    for qname in ["www.good.test.", "www.other.test."] {
        world.query(qname, RecordType::A);
    }
    world.begin("a.good.test.", RecordType::A, false);
    world.begin("b.good.test.", RecordType::A, false);
    world.begin("www.other.test.", RecordType::A, false);
    let sockets: Vec<u32> = world.wire.sent.iter().map(|sent| sent.socket).collect();
    assert_eq!(sockets.len(), 3);
    let begun_us = world.us;
    world.resolver.on_spoofing(world.now(), sockets[0], &mut world.wire);
    world.resolver.on_spoofing(world.now(), 999_999, &mut world.wire);
    assert_eq!(world.us, begun_us);
    let [.., last] = &world.wire.sent[..] else { panic!() };
    assert_eq!((world.wire.sent.len(), last.summary().0), (4, 3));
    assert!(last.tag.is_some() && last.summary().1 == "a.good.test.", "{last:?}");
    // The UDP query is cancelled, so a later spoofed response has no effect.
    let guessed = world.wire.sent.remove(0);
    let reply = world.reply(&guessed).unwrap();
    assert!(!world.deliver(&guessed, &reply));
    world.settle();
    assert_eq!(world.wire.responses.len(), 3);
    assert_eq!((world.resolver.counts().timeouts, world.resolver.counts().streams), (0, 1));
}

/// The first server is silent, and spoofing is suspected at the socket of the second: the query moves to TCP with
/// the second server.
#[test]
fn spoofing_at_the_second_server() {
    let mut world = World::new(|server, qname, rtype| match server {
        3 | 5 => None,
        _ => pair(server, qname, rtype),
    });
    world.begin("www.good.test.", RecordType::A, false);
    let mut qname = Vec::new();
    while qname.len() < 2 {
        while let Some(sent) = world.wire.sent.pop() {
            match world.reply(&sent) {
                Some(reply) => assert!(world.deliver(&sent, &reply)),
                None => qname.push(sent),
            }
        }
        if qname.len() < 2 {
            world.us += world.resolver.wait_ms(world.now()).unwrap().max(1) * 1_000;
            world.resolver.tick(world.now(), &mut world.wire);
        }
    }
    // The first query is late: it is cancelled, and the current one stays.
    world.resolver.on_spoofing(world.now(), qname[0].socket, &mut world.wire);
    assert!(world.wire.sent.is_empty());
    world.resolver.on_spoofing(world.now(), qname[1].socket, &mut world.wire);
    let [by_stream] = &world.wire.sent[..] else { panic!() };
    assert!(by_stream.tag.is_some());
    assert_eq!(by_stream.server, qname[1].server);
    world.scripts = |server, qname, rtype| pair(if server == 5 { 3 } else { server }, qname, rtype);
    world.settle();
    assert_eq!(found(&Message::from_vec(&world.wire.responses[0].1).unwrap()), [33]);
}

/// Names below a deleted domain disappear when its delegation expires, with any TTL and any number of referrals
/// from its servers.
#[test]
fn no_zone_outlives_the_one_above() {
    let scripts: Scripts = |server, qname, rtype| {
        let lasting = |zone: &str, ttl_s: u32, last: u8| {
            let server = format!("ns.{zone}");
            let mut script = refer(zone, last)?;
            script.authorities =
                vec![Record::from_rdata(name(zone), ttl_s, RData::NS(NS(name(&server))))];
            Some(script)
        };
        match (server, qname) {
            (2, _) if qname.ends_with("ghost.test.") => lasting("ghost.test.", 60, 3),
            (3, _) if qname.ends_with("deep.sub.ghost.test.") => {
                lasting("deep.sub.ghost.test.", 86_400, 5)
            }
            (3, _) if qname.ends_with("sub.ghost.test.") => lasting("sub.ghost.test.", 86_400, 4),
            (4, _) if qname.ends_with("deep.sub.ghost.test.") => {
                lasting("deep.sub.ghost.test.", 86_400, 5)
            }
            (3..=5, _) => data(&[a(qname, 66)]),
            _ => plain(server, qname, rtype),
        }
    };
    let mut world = World::new(scripts);
    for qname in ["www.sub.ghost.test.", "a.deep.sub.ghost.test."] {
        assert_eq!(found(&world.query(qname, RecordType::A)), [66]);
    }
    // Deleted at the top level. Its servers still respond, and delegate deeper once more.
    world.scripts = |server, qname, rtype| match (server, qname) {
        (2, _) if qname.ends_with("ghost.test.") => nxdomain("test."),
        (5, "b.deep.sub.ghost.test.") => refer("b.deep.sub.ghost.test.", 5),
        (3..=5, _) => data(&[a(qname, 66)]),
        _ => plain(server, qname, rtype),
    };
    world.us += 50_000_000;
    assert_eq!(found(&world.query("x.b.deep.sub.ghost.test.", RecordType::A)), [66]);
    world.us += 11_000_000;
    for qname in ["new.sub.ghost.test.", "new.deep.sub.ghost.test.", "y.b.deep.sub.ghost.test."] {
        let message = world.query(qname, RecordType::A);
        assert_eq!(message.metadata.response_code, ResponseCode::NXDomain, "{qname}");
    }
}

/// A zone "moved.test.": the parent names server 5, and the zone itself names 6.
fn moved(server: u8, qname: &str, rtype: RecordType) -> Option<Script> {
    let own = ns("moved.test.", "ns2.moved.test.");
    match (server, qname) {
        (2, _) if qname.ends_with("moved.test.") => refer("moved.test.", 5),
        (5 | 6, _) if qname.ends_with(".moved.test.") => Some(Script {
            authorities: vec![own],
            // The last address is for a name in another zone.
            additionals: vec![a("ns2.moved.test.", 6), a("ns2.other.test.", 7)],
            ..data(&[a(qname, 33)])?
        }),
        _ => plain(server, qname, rtype),
    }
}

/// If the servers of the delegation are silent, the servers that the zone itself names respond, until the
/// delegation expires.
#[test]
fn own_servers_after_the_delegated() {
    let mut world = World::new(moved);
    assert_eq!(found(&world.query("www.moved.test.", RecordType::A)), [33]);
    // The servers of the delegation come first, also when the choice is random.
    for _ in 0..1_000 {
        assert_eq!(found(&world.query("1.moved.test.", RecordType::A)), [33]);
        assert_eq!(world.queries(), [(5, "1.moved.test.")]);
    }
    world.scripts = |server, qname, rtype| match server {
        5 => None,
        _ => moved(server, qname, rtype),
    };
    assert_eq!(found(&world.query("2.moved.test.", RecordType::A)), [33]);
    assert_eq!(world.queries().last(), Some(&(6, "2.moved.test.")));
    assert!(world.queries().iter().all(|(server, _)| [5, 6].contains(server)), "{:?}", world.log);
    // The delegation has expired, and the parent names the same server.
    world.us += 300_000_000;
    assert!(has_failed(&world.query("3.moved.test.", RecordType::A)));
    assert!(world.queries().iter().all(|(server, _)| *server != 6), "{:?}", world.log);
}

/// A zone may name a server in another zone without a valid address. The other zone then gets a query for the
/// address.
#[test]
fn own_server_in_another_zone() {
    let scripts: Scripts = |server, qname, rtype| match (server, qname) {
        (2, _) if qname.ends_with("moved.test.") => refer("moved.test.", 5),
        (3, "ns9.good.test.") => data(&[a(qname, 9)]),
        (9, _) => data(&[a(qname, 33)]),
        (66, _) => data(&[a(qname, 66)]),
        (5, "1.moved.test.") => Some(Script {
            authorities: vec![ns("moved.test.", "ns9.good.test.")],
            additionals: vec![a("ns9.good.test.", 66)],
            ..data(&[a(qname, 33)])?
        }),
        (5, _) => None,
        _ => plain(server, qname, rtype),
    };
    let mut world = World::new(scripts);
    world.query("1.moved.test.", RecordType::A);
    assert_eq!(found(&world.query("2.moved.test.", RecordType::A)), [33]);
    assert!(world.log.contains(&(9, "2.moved.test.".to_owned(), RecordType::A)), "{:?}", world.log);
}

/// A zone that was evicted during a query changes no other zone: neither its servers nor its lame servers.
#[test]
fn an_evicted_zone_changes_no_other() {
    let is_slow: Scripts = |server, qname, rtype| {
        let delay_ms = if server == 5 { 100 } else { 0 };
        Some(Script { delay_ms, ..moved(server, qname, rtype)? })
    };
    let refuses: Scripts = |server, qname, rtype| match server {
        5 => Some(Script { delay_ms: 100, ..refused()? }),
        _ => moved(server, qname, rtype),
    };
    for scripts in [is_slow, refuses] {
        let mut world = World::of(scripts, Options { zones_max: 1, ..Options::default() });
        for qname in ["www.moved.test.", "www.good.test.", "www.other.test."] {
            world.begin(qname, RecordType::A, false);
        }
        world.settle();
        assert_eq!(world.wire.responses.len(), 3);
        let root = world.resolver.cuts.get_or_root(b"\0");
        assert!(root.own_servers.is_empty() && root.lame.is_empty(), "{root:?}");
    }
}

/// A zone with slow servers does not block others. When half of the maximum is in flight, the zone has at most its
/// share, and other zones get responses. Later the limit does not apply. Invariant 5.
#[test]
fn zone_limit() {
    let scripts: Scripts = |server, qname, rtype| match server {
        4 => Some(Script { delay_ms: 1_200, ..nxdomain("other.test.")? }),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::of(scripts, Options { queries_max: 80, ..Options::default() });
    world.query("www.good.test.", RecordType::A);
    world.query("warm.other.test.", RecordType::A);
    let codes = |world: &mut World| {
        let responses = std::mem::take(&mut world.wire.responses);
        let code =
            |(_, bytes): &(u32, Vec<u8>)| Message::from_vec(bytes).unwrap().metadata.response_code;
        responses.iter().map(code).collect::<Vec<_>>()
    };
    for number in 0..200 {
        world.begin(&format!("w{number}.other.test."), RecordType::A, false);
    }
    let refused = codes(&mut world);
    assert_eq!(refused, vec![ResponseCode::ServFail; 160], "half are sent");
    assert_eq!(world.resolver.counts().crowded, 160);
    for number in 0..8 {
        world.begin(&format!("g{number}.good.test."), RecordType::A, false);
    }
    assert_eq!(codes(&mut world), []);
    world.settle();
    assert_eq!(codes(&mut world), vec![ResponseCode::NXDomain; 40 + 8]);
    world.query("calm.other.test.", RecordType::A);
    assert_eq!(world.resolver.counts().crowded, 160);
}

/// A top level has no limit, since all domains depend on it: all queries to its slow servers wait.
#[test]
fn no_limit_for_a_top_level() {
    let scripts: Scripts = |server, qname, rtype| match server {
        2 => Some(Script { delay_ms: 1_000, ..plain(server, qname, rtype)? }),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::of(scripts, Options { queries_max: 80, ..Options::default() });
    world.query("warm.test.", RecordType::A);
    for number in 0..80 {
        world.begin(&format!("w{number}.test."), RecordType::A, false);
    }
    assert_eq!((world.wire.sent.len(), world.wire.responses.len()), (80, 0));
    world.settle();
    assert_eq!((world.wire.responses.len(), world.resolver.counts().crowded), (80, 0));
}

/// A server of many zones has a limit too. If the zone has another server, that one gets the query. Invariant 5.
#[test]
fn server_limit() {
    // All zones have server 4; those that begin with "two" also have server 3.
    let scripts: Scripts = |server, qname, rtype| {
        let zone = qname.rsplit('.').nth(2).map(|label| format!("{label}.test."));
        match (server, zone) {
            (2, Some(zone)) if zone.starts_with("two") => Some(Script {
                authorities: vec![ns(&zone, "ns4.test."), ns(&zone, "ns3.test.")],
                additionals: vec![a("ns4.test.", 4), a("ns3.test.", 3)],
                ..Script::default()
            }),
            (2, Some(zone)) => Some(Script {
                authorities: vec![ns(&zone, "ns4.test.")],
                additionals: vec![a("ns4.test.", 4)],
                ..Script::default()
            }),
            (4, _) => Some(Script { delay_ms: 1_000, ..data(&[a(qname, 44)])? }),
            (3, _) => data(&[a(qname, 33)]),
            _ => plain(server, qname, rtype),
        }
    };
    let mut world = World::of(scripts, Options { queries_max: 80, ..Options::default() });
    for number in 0..60 {
        world.query(&format!("www.zone{number}.test."), RecordType::A);
    }
    world.query("www.two.test.", RecordType::A);
    for number in 0..60 {
        world.begin(&format!("w.zone{number}.test."), RecordType::A, false);
    }
    let in_time = world.wire.sent.len();
    assert_eq!((in_time, world.wire.responses.len()), (40, 20), "the rest is refused");
    world.wire.responses.clear();
    world.begin("w.two.test.", RecordType::A, false);
    assert_eq!(world.wire.sent.last().unwrap().summary().0, 3);
    world.settle();
    assert_eq!(world.wire.responses.len(), 41);
}

/// A zone with servers in another zone: their addresses are looked up first, and cached.
#[test]
fn servers_without_addresses() {
    let scripts: Scripts = |server, qname, rtype| match (server, qname) {
        (2, _) if qname.ends_with("hosted.test.") => Some(Script {
            authorities: vec![
                ns("hosted.test.", "www.other.test."),
                ns("hosted.test.", "x.other.test."),
            ],
            // This address is invalid: the name is in a zone below "test." with its own servers,
            // and it is no server of this zone.
            additionals: vec![a("y.other.test.", 66)],
            ..Script::default()
        }),
        (44, "www.hosted.test.") => data(&[a(qname, 77)]),
        (44, _) => no_data("hosted.test."),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::new(scripts);
    assert_eq!(found(&world.query("www.hosted.test.", RecordType::A)), [77]);
    let mut qname = world.queries();
    assert_eq!(qname.pop(), Some((44, "www.hosted.test.")));
    assert!(qname.contains(&(4, "www.other.test.")));
    assert_eq!(found(&world.query("www.hosted.test.", RecordType::A)), [77]);
    assert_eq!(world.queries(), [(44, "www.hosted.test.")]);
}

/// A zone "hosted.test." with servers in another zone: "ns1.other.test." and "ns2.other.test.".
fn hosted(server: u8, qname: &str, rtype: RecordType) -> Option<Script> {
    match (server, qname) {
        (2, _) if qname.ends_with("hosted.test.") => Some(Script {
            authorities: vec![
                ns("hosted.test.", "ns1.other.test."),
                ns("hosted.test.", "ns2.other.test."),
            ],
            ..Script::default()
        }),
        (4, "ns1.other.test." | "ns2.other.test.") => no_data("other.test."),
        (44 | 244, "www.hosted.test.") => data(&[a(qname, 77)]),
        _ => plain(server, qname, rtype),
    }
}

/// During the look-up of another server address the client gets no failure. The server gets the query as soon as
/// its address is known.
#[test]
fn server_address_arrives_late() {
    let refuses: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (4, "ns1.other.test.", RecordType::A) => data(&[a(qname, 5)]),
        (4, "ns2.other.test.", RecordType::A) => {
            Some(Script { delay_ms: 200, ..data(&[a(qname, 44)])? })
        }
        (5, ..) => refused(),
        _ => hosted(server, qname, rtype),
    };
    let late: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (4, "ns2.other.test.", RecordType::A) => {
            Some(Script { delay_ms: 1_000, ..data(&[a(qname, 44)])? })
        }
        (5, ..) => refused(),
        _ => refuses_or(server, qname, rtype),
    };
    let silent: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (4, "ns2.other.test.", RecordType::A) => {
            Some(Script { delay_ms: 1_000, ..data(&[a(qname, 44)])? })
        }
        (5, ..) => None,
        _ => refuses_or(server, qname, rtype),
    };
    fn refuses_or(server: u8, qname: &str, rtype: RecordType) -> Option<Script> {
        match (server, qname, rtype) {
            (4, "ns1.other.test.", RecordType::A) => data(&[a(qname, 5)]),
            _ => hosted(server, qname, rtype),
        }
    }
    for (scripts, ms) in [(refuses, 200), (late, 1_000), (silent, 1_000)] {
        let mut world = World::new(scripts);
        assert_eq!(found(&world.query("www.hosted.test.", RecordType::A)), [77]);
        assert!(world.responded_us < (ms + 50) * 1_000, "{ms}: {}", world.responded_us);
    }
}

/// IPv6 addresses of servers are looked up if they have no IPv4 address, if the look-up of it fails, or if they are
/// silent there. Otherwise they are not.
#[test]
fn servers_with_ipv6() {
    let only: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (4, "ns1.other.test.", RecordType::AAAA) => data(&[aaaa(qname, 244)]),
        _ => hosted(server, qname, rtype),
    };
    let failing: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (4, "ns1.other.test." | "ns2.other.test.", RecordType::A) => {
            Some(Script { code: Some(ResponseCode::ServFail), ..Script::default() })
        }
        (4, "ns1.other.test.", RecordType::AAAA) => data(&[aaaa(qname, 244)]),
        _ => hosted(server, qname, rtype),
    };
    let dead: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (4, "ns1.other.test.", RecordType::A) => data(&[a(qname, 5)]),
        (4, "ns1.other.test.", RecordType::AAAA) => data(&[aaaa(qname, 244)]),
        (5, ..) => None,
        _ => hosted(server, qname, rtype),
    };
    for scripts in [only, failing, dead] {
        let mut world = World::new(scripts);
        assert_eq!(found(&world.query("www.hosted.test.", RecordType::A)), [77]);
        assert!(world.us < 1_000_000, "{}", world.us);
    }
    // No route to IPv4 except for the first servers.
    let mut world = World::new(dead);
    world.wire.unreachable.push(at(5));
    assert_eq!(found(&world.query("www.hosted.test.", RecordType::A)), [77]);
    assert!(world.us < 100_000, "{}", world.us);

    let both: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (4, "ns1.other.test.", RecordType::A) => data(&[a(qname, 44)]),
        (4, "ns1.other.test.", RecordType::AAAA) => data(&[aaaa(qname, 244)]),
        _ => hosted(server, qname, rtype),
    };
    let mut world = World::new(both);
    assert_eq!(found(&world.query("www.hosted.test.", RecordType::A)), [77]);
    assert!(world.log.iter().all(|(.., rtype)| *rtype == RecordType::A), "{:?}", world.log);
    // A name that does not exist is looked up once.
    let none: Scripts = |server, qname, rtype| match (server, qname) {
        (4, "ns1.other.test." | "ns2.other.test.") => nxdomain("other.test."),
        _ => hosted(server, qname, rtype),
    };
    let mut world = World::new(none);
    assert!(has_failed(&world.query("www.hosted.test.", RecordType::A)));
    assert!(world.log.iter().all(|(.., rtype)| *rtype == RecordType::A), "{:?}", world.log);
}

/// Many queries that need the same server address cause one look-up.
#[test]
fn one_address_lookup_for_many_queries() {
    let scripts: Scripts = |server, qname, rtype| match (server, qname) {
        (2, _) if qname.ends_with("hosted.test.") => Some(Script {
            authorities: vec![ns("hosted.test.", "www.other.test.")],
            ..Script::default()
        }),
        (44, _) => data(&[a(qname, 77)]),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::new(scripts);
    for number in 0..50 {
        world.begin(&format!("h{number}.hosted.test."), RecordType::A, false);
    }
    world.settle();
    assert_eq!(world.wire.responses.len(), 50);
    for (_, bytes) in &world.wire.responses {
        assert_eq!(found(&Message::from_vec(bytes).unwrap()), [77]);
    }
    let lookups = world.log.iter().filter(|(server, ..)| *server == 4).count();
    assert_eq!(lookups, 1);
}

/// Many queries for names in an unknown zone cause one query for the zone, also if its first server is silent.
#[test]
fn one_minimized_query_for_many_queries() {
    let silent: Scripts = |server, qname, rtype| match server {
        1 => Some(Script {
            authorities: vec![ns("test.", "ns6.test."), ns("test.", "ns2.test.")],
            additionals: vec![a("ns6.test.", 6), a("ns2.test.", 2)],
            ..Script::default()
        }),
        6 => None,
        _ => plain(server, qname, rtype),
    };
    for (scripts, queries_to_6_max) in [(plain as Scripts, 0), (silent, 2)] {
        let mut world = World::new(scripts);
        for number in 0..50 {
            world.begin(&format!("h{number}.good.test."), RecordType::A, false);
        }
        world.settle();
        assert_eq!(world.wire.responses.len(), 50);
        let qname = |server| world.log.iter().filter(|(it, ..)| *it == server).count();
        assert_eq!((qname(1), qname(2), qname(3)), (1, 1, 50));
        assert!(qname(6) <= queries_to_6_max, "{}", qname(6));
    }
}

/// Delegations that depend on each other fail soon. Invariant 3.
#[test]
fn delegation_loops() {
    let mut world = World::new(|server, qname, rtype| match (server, qname) {
        (2, _) if qname.ends_with("one.test.") => {
            Some(Script { authorities: vec![ns("one.test.", "ns.two.test.")], ..Script::default() })
        }
        (2, _) if qname.ends_with("two.test.") => {
            Some(Script { authorities: vec![ns("two.test.", "ns.one.test.")], ..Script::default() })
        }
        _ => plain(server, qname, rtype),
    });
    assert!(has_failed(&world.query("www.one.test.", RecordType::A)));
    assert!(world.log.len() < 20 && world.us < 100_000, "{} {}", world.log.len(), world.us);
}

/// A referral to many servers without addresses, in zones of the same kind, costs few packets. Invariant 4.
#[test]
fn referrals_to_many_servers() {
    let mut world = World::new(|server, qname, rtype| match (server, qname) {
        (1, _) => plain(server, qname, rtype),
        (2, "test.") => no_data("test."),
        (2, _) => {
            let zone = qname.rsplit('.').nth(2).unwrap_or("x");
            let zone = format!("{zone}.test.");
            let names = (0..40).map(|number| format!("ns.{number}x{}", &zone[zone.len() / 2..]));
            let servers = names.map(|server| ns(&zone, &server));
            Some(Script { authorities: servers.collect(), ..Script::default() })
        }
        _ => None,
    });
    assert!(has_failed(&world.query("www.many.test.", RecordType::A)));
    let packets = world.log.len();
    assert!(packets <= PACKETS_MAX as usize, "{packets}");
    let mut again = World::new(world.scripts);
    for number in 0..20 {
        again.begin(&format!("www.many{number}.test."), RecordType::A, false);
    }
    again.settle();
    assert!(again.log.len() <= 20 * PACKETS_MAX as usize);
}

/// A message on another socket, with another ID or another question has no effect; the right response still counts.
/// A response with another letter case leads to a retry over TCP. Invariant 1.
#[test]
fn spoofed_responses() {
    let mut world = World::of(plain, Options { case_random: true, ..Options::default() });
    world.begin("www.good.test.", RecordType::A, false);
    let sent = world.wire.sent.remove(0);
    let right = world.reply(&sent).unwrap();
    let now = world.now();
    let mut recv =
        |socket, bytes: &[u8]| world.resolver.receive(now, socket, bytes, &mut world.wire);
    let changed = |at: usize, by: u8| {
        let mut bytes = right.clone();
        bytes[at] ^= by;
        bytes
    };
    assert!(!recv(sent.socket + 1, &right), "socket");
    assert!(!recv(sent.socket, &changed(1, 1)), "ID");
    assert!(!recv(sent.socket, &changed(2, 0x80)), "a question");
    assert!(!recv(sent.socket, &changed(13, 1)), "name");
    assert!(!recv(sent.socket, &changed(19, 2)), "type");
    assert!(!recv(sent.socket, &right[..5]) && !recv(sent.socket, &[]));
    assert!(recv(sent.socket, &right));
    assert!(!recv(sent.socket, &right), "once");
    assert_eq!(world.resolver.counts().misfits, 8);

    let mut world = World::of(plain, Options { case_random: true, ..Options::default() });
    world.begin("abcdefghijklmnopqrstuvwxyz.", RecordType::A, false);
    let sent = world.wire.sent.remove(0);
    let mut other = world.reply(&sent).unwrap();
    let letters = &mut other[13..39];
    assert_ne!(letters, b"abcdefghijklmnopqrstuvwxyz", "one of 2^26");
    letters[0] ^= 0x20;
    assert!(world.resolver.receive(now, sent.socket, &other, &mut world.wire));
    assert!(world.wire.sent[0].tag.is_some(), "by a stream");
    world.settle();
    assert_eq!(world.wire.responses.len(), 1);
}

/// A truncated response leads to a retry over TCP; if TCP fails, to one more attempt.
#[test]
fn truncation_retries_over_tcp() {
    let scripts: Scripts = |server, qname, rtype| match server {
        3 => Some(Script { is_truncated: true, ..plain(server, qname, rtype)? }),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::new(scripts);
    assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
    assert_eq!(world.resolver.counts().streams, 1);

    let mut world = World::new(scripts);
    world.begin("www.good.test.", RecordType::A, false);
    while world.wire.sent[0].tag.is_none() {
        let sent = world.wire.sent.remove(0);
        let reply = world.reply(&sent).unwrap();
        world.resolver.receive(world.now(), sent.socket, &reply, &mut world.wire);
    }
    let tag = world.wire.sent.remove(0).tag.unwrap();
    world.resolver.receive_tcp(world.now(), tag, None, &mut world.wire);
    world.settle();
    assert_eq!(found(&Message::from_vec(&world.wire.responses[0].1).unwrap()), [33]);
    assert_eq!((world.resolver.counts().streams, world.resolver.counts().lame), (2, 0));
}

/// A server without EDNS support gets the query again without EDNS, and later queries too.
#[test]
fn edns_fallback() {
    let mut world = World::new(plain);
    let bare = Script { code: Some(ResponseCode::FormErr), is_bare: true, ..Script::default() };
    for is_first in [true, false] {
        world.messages.clear();
        world.begin("www.good.test.", RecordType::A, false);
        while !world.wire.sent.is_empty() {
            let sent = world.wire.sent.remove(0);
            world.messages.push(sent.clone());
            let mut reply = world.reply(&sent).unwrap();
            if sent.summary().0 == 3 && sent.message.edns.is_some() {
                let mut message =
                    Message::new(sent.message.metadata.id, MessageType::Response, OpCode::Query);
                message.metadata.response_code = bare.code.unwrap();
                reply = message.to_vec().unwrap();
            }
            assert!(world.resolver.receive(world.now(), sent.socket, &reply, &mut world.wire));
        }
        let to_3 = world.messages.iter().filter(|sent| sent.summary().0 == 3);
        let with: Vec<bool> = to_3.map(|sent| sent.message.edns.is_some()).collect();
        assert_eq!(with, if is_first { vec![true, false] } else { vec![false] });
    }
    assert_eq!(world.wire.responses.len(), 2);
}

/// Sends "www.good.test." twice. Server 3 responds with `code` and OPT to queries with EDNS, and with `plain_code`
/// to others. Returns the responses, and for each client whether the queries to 3 had EDNS.
fn query_twice(code: ResponseCode, plain_code: ResponseCode) -> (Vec<Message>, Vec<Vec<bool>>) {
    let mut world = World::new(plain);
    let mut with = Vec::new();
    for _ in 0..2 {
        world.begin("www.good.test.", RecordType::A, false);
        let mut here = Vec::new();
        while !world.wire.sent.is_empty() {
            let sent = world.wire.sent.remove(0);
            let mut reply = Message::from_vec(&world.reply(&sent).unwrap()).unwrap();
            let has_edns = sent.message.edns.is_some();
            if sent.summary().0 == 3 {
                here.push(has_edns);
                reply.metadata.response_code = if has_edns { code } else { plain_code };
                if reply.metadata.response_code != ResponseCode::NoError {
                    reply.answers.clear();
                }
                if let Some(edns) = &mut reply.edns {
                    edns.set_rcode_high((u16::from(reply.metadata.response_code) >> 4) as u8);
                }
            }
            assert!(world.deliver(&sent, &reply.to_vec().unwrap()));
        }
        with.push(here);
    }
    world.settle();
    let responses = world.wire.responses.iter().map(|(_, bytes)| Message::from_vec(bytes).unwrap());
    (responses.collect(), with)
}

/// A server that repeats an OPT record it does not understand gets the query without EDNS. If it then responds,
/// later queries have no EDNS. If not, EDNS was not the cause, and the next query has EDNS.
#[test]
fn edns_fallback_after_formerr_with_opt() {
    for code in [ResponseCode::FormErr, ResponseCode::BADVERS] {
        let (responses, with) = query_twice(code, ResponseCode::NoError);
        assert!(responses.iter().all(|message| found(message) == [33]));
        assert_eq!(with, [vec![true, false], vec![false]]);
        let (responses, with) = query_twice(code, ResponseCode::FormErr);
        assert!(responses.iter().all(has_failed));
        assert!(with.iter().all(|with| with[..2] == [true, false] && with.len() <= 4), "{with:?}");
    }
}

/// If all servers of a zone recurse without authority, their results are the last resort.
#[test]
fn all_servers_recurse() {
    let scripts: Scripts = |server, qname, rtype| match server {
        3 | 5 => Some(Script { recurses: true, ..data(&[a(qname, 60 + server)])? }),
        _ => pair(server, qname, rtype),
    };
    let mut world = World::new(scripts);
    let last = found(&world.query("www.good.test.", RecordType::A));
    assert!([vec![63], vec![65]].contains(&last), "{last:?}");
    assert_eq!(world.log.len(), 2 + 3);
    // An authoritative server always has priority.
    let one: Scripts = |server, qname, rtype| match server {
        5 => Some(Script { recurses: true, ..data(&[a(qname, 65)])? }),
        3 => Some(Script { delay_ms: 250, ..pair(server, qname, rtype)? }),
        _ => pair(server, qname, rtype),
    };
    for _ in 0..20 {
        assert_eq!(found(&World::new(one).query("www.good.test.", RecordType::A)), [33]);
    }
}

/// YXDOMAIN counts only with the DNAME that makes the name too long (RFC 6672, section 2.2).
#[test]
fn yxdomain_needs_dname() {
    use hickory_proto::rr::rdata::NULL;
    let too_long = |answers: &[Record]| {
        Some(Script { code: Some(ResponseCode::YXDomain), ..data(answers).unwrap() })
    };
    let rdata = || NULL::with(b"\x09elsewhere\x07example\0".to_vec());
    let dname = |owner: &str| {
        record(owner, RData::Unknown { code: RecordType::Unknown(39), rdata: rdata() })
    };
    fn resolve(scripts: impl Fn() -> Option<Script>) -> Message {
        let mut world = World::new(plain);
        world.begin("www.good.test.", RecordType::A, false);
        while !world.wire.sent.is_empty() {
            let sent = world.wire.sent.remove(0);
            world.scripts = plain;
            let mut reply = Message::from_vec(&world.reply(&sent).unwrap()).unwrap();
            if sent.summary().0 == 3 {
                let script = scripts().unwrap();
                reply.metadata.response_code = script.code.unwrap();
                reply.answers = script.answers;
            }
            world.deliver(&sent, &reply.to_vec().unwrap());
        }
        Message::from_vec(&world.wire.responses[0].1).unwrap()
    }
    let message = resolve(|| too_long(&[dname("good.test.")]));
    assert_eq!(message.metadata.response_code, ResponseCode::YXDomain);
    for owner in ["test.", "www.good.test.", "other.good.test."] {
        assert!(has_failed(&resolve(|| too_long(&[dname(owner)]))), "{owner}");
    }
    assert!(has_failed(&resolve(|| too_long(&[]))));
}

/// DS queries go to the zone above (RFC 4035, section 3.1.4.1).
#[test]
fn ds_goes_to_the_parent() {
    let scripts: Scripts = |server, qname, rtype| match (server, qname, rtype) {
        (2, "good.test.", RecordType::DS) => no_data("test."),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::new(scripts);
    world.query("www.good.test.", RecordType::A);
    world.query("good.test.", RecordType::DS);
    assert_eq!(world.queries(), [(2, "good.test.")]);
}

/// Servers with special addresses get no queries, unless allowed. Root servers always do.
#[test]
fn special_servers() {
    let scripts: Scripts = |server, qname, rtype| match server {
        2 if qname.ends_with("good.test.") => Some(Script {
            authorities: vec![ns("good.test.", "ns.good.test.")],
            additionals: vec![record("ns.good.test.", RData::A(A::new(10, 0, 0, 3)))],
            ..Script::default()
        }),
        _ => plain(server, qname, rtype),
    };
    let mut world = World::new(scripts);
    assert!(has_failed(&world.query("www.good.test.", RecordType::A)));
    assert_eq!(world.log.len(), 2);
    let allow_servers = vec![larder_wire::prefix::Prefix::parse("10.0.0.0/8").unwrap()];
    let mut world = World::of(scripts, Options { allow_servers, ..Options::default() });
    assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
}

/// With any messages from servers, each client gets one response, and the root servers stay. Invariant 2.
#[test]
fn random_responses() {
    let mut random = Random(1);
    let mut next = move |below: usize| random.index(below);
    let mut world = World::new(pair);
    let names = ["www.good.test.", "away.good.test.", "a.b.none.good.test.", "round.other.test."];
    let mut rtypes = HashMap::new();
    for turn in 0..4_000 {
        let qname = names[next(names.len())];
        let rtype = [RecordType::A, RecordType::TXT, RecordType::DS][next(3)];
        *rtypes.entry(rtype).or_insert(0) += 1;
        world.begin(qname, rtype, turn % 2 == 0);
        while !world.wire.sent.is_empty() {
            let sent = world.wire.sent.remove(0);
            let Some(mut reply) = world.reply(&sent) else { break };
            for _ in 0..next(4) {
                let at = next(reply.len());
                reply[at] = next(256) as u8;
            }
            reply.truncate(reply.len() - next(2) * next(reply.len()));
            world.deliver(&sent, &reply);
        }
        world.us += 50_000;
        world.resolver.tick(world.now(), &mut world.wire);
    }
    world.wire.sent.clear();
    while let Some(wait_ms) = world.resolver.wait_ms(world.now()) {
        world.us += wait_ms.max(1) * 1_000;
        world.resolver.tick(world.now(), &mut world.wire);
        world.wire.sent.clear();
    }
    assert_eq!((world.wire.responses.len(), world.resolver.in_flight()), (4_000, 0));
    assert_eq!(rtypes.len(), 3);
    world.wire.responses.clear();
    // Past the lifetime of all entries, which is at most a day.
    world.us += 86_400_000_000;
    assert_eq!(found(&world.query("www.good.test.", RecordType::A)), [33]);
}
