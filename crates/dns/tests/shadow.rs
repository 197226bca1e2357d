//! Comparisons with a resolver: a scripted one in captures and dnstap, and unbound.
//!
//! For every name `nN` the upstream has the address 192.0.2.N with a TTL of one minute. The tests
//! write the resolver's responses in a copy, right and wrong.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_dns::core::Settings;
use larder_dns::dnstap::{self, Event, Kind, Protocol, Tap, Target};
use larder_dns::policy::PolicyOptions;
use larder_dns::server::Options;
use larder_dns::shadow::{From, Report, Trial, shadow};
use larder_dns::supervisor::Operation;
use larder_dns::upstream_udp::QuerySource;
use larder_dns::zones::Forward;
use larder_dns::{client_tcp, upstream_tcp};
use larder_serve::log::Log;
use larder_serve::start::ServeError;
use larder_testkit::dns::{self, Server, question_end};
use larder_testkit::frames::{self, Pcap, TCP, UDP};
use larder_testkit::skip::skip;
use larder_testkit::unbound::{self, Unbound};
use larder_testkit::wait::{PATIENCE, until_so};
use tempfile::TempDir;

const CLIENT: &str = "10.0.0.7:4242";
const RESOLVER: &str = "192.0.2.53:53";
const SECOND_NS: u64 = 1_000_000_000;
const LINKTYPE_RAW: u16 = 101;
const TTL_S: u32 = 60;

/// `nN IN A`, recursion desired.
fn query(id: u16, number: u8) -> Vec<u8> {
    dns::query(id, format!("n{number}.zone"), dns::A)
}

/// A response with an address that ends with `last`.
fn answer(query: &[u8], last: u8, ttl_s: u32) -> Vec<u8> {
    dns::answer(query, &[[192, 0, 2, last]], ttl_s)
}

/// The number in the name of a query.
fn number(query: &[u8]) -> Option<u8> {
    let length = usize::from(*query.get(12)?);
    std::str::from_utf8(query.get(14..13 + length)?).ok()?.parse().ok()
}

/// A server that has an address for every name.
fn upstream() -> Server {
    Server::start(|query, _| {
        question_end(query)?;
        Some(answer(query, number(query).unwrap_or(0), TTL_S))
    })
}

fn options(upstream: SocketAddr) -> Options {
    Options {
        listen: Vec::new(),
        xdp: larder_dns::xdp::Options::default(),
        backends: Vec::new(),
        beside: None,
        forwards: vec![Forward { zone: vec![0], upstreams: vec![upstream.into()] }],
        cores: 1,
        reuse_port: false,
        cache_bytes: 4 << 20,
        settings: Settings::default(),
        policy: PolicyOptions { exempt: vec![".".into()], ..PolicyOptions::default() },
        origin: QuerySource::default(),
        client_tcp_limits: client_tcp::Limits::default(),
        upstream_tcp_limits: upstream_tcp::Limits::default(),
        operation: Operation::default(),
    }
}

fn trial(resolver: SocketAddr, from: From) -> Trial {
    Trial {
        resolvers: vec![resolver],
        from,
        own: Vec::new(),
        speed: 0,
        warm_up: Duration::ZERO,
        hit_us: 1_000,
        every: Duration::from_secs(3_600),
    }
}

fn run(upstream: &Server, trial: &Trial) -> Result<Report, ServeError> {
    let stop = Arc::new(AtomicBool::new(false));
    shadow(&options(upstream.address), trial, &stop, &Log::default())
}

/// A capture that the test writes.
struct Capture(Pcap);

impl Capture {
    fn new() -> Capture {
        Capture(Pcap::new(LINKTYPE_RAW))
    }

    /// Adds an IPv4 packet of UDP, or of another protocol with the same ports.
    fn packet(&mut self, at_ns: u64, ends: [&str; 2], protocol: u8, payload: &[u8]) {
        let [from, to]: [SocketAddrV4; 2] = ends.map(|end| end.parse().unwrap());
        let ports = (from.port(), to.port());
        let transport = match protocol {
            TCP => frames::tcp(ports, 0, 0, payload),
            _ => frames::udp(ports, payload),
        };
        let ends = (from.ip().octets(), to.ip().octets());
        self.0.push(at_ns, &frames::ipv4(ends, protocol, &transport));
    }

    fn save(&self, folder: &TempDir) -> From {
        let path = folder.path().join("capture");
        fs::write(&path, &self.0.bytes).unwrap();
        From::File(path)
    }
}

/// A copy in a capture: everything in it is compared or counted. Wrong responses of the resolver
/// are found, and reported with the name and both responses.
#[test]
fn a_capture_is_compared() {
    let (upstream, folder, mut capture) = (upstream(), TempDir::new().unwrap(), Capture::new());
    let mut id = 0;
    // Queries each name twice; the second time both caches have it.
    for round in 0..2_u64 {
        for name in 0..50 {
            id += 1;
            let at_ns = (1_700_000_000 + round * 5) * SECOND_NS + u64::from(name) * 1_000_000;
            let query = query(id, name);
            capture.packet(at_ns, [CLIENT, RESOLVER], UDP, &query);
            let took_ns = if round == 0 { 5_000_000 } else { 50_000 };
            let mut answered = answer(&query, name, 45);
            match name {
                13 => *answered.last_mut().unwrap() = 99,
                14 => {
                    answered = query.clone();
                    (answered[2], answered[3]) = (0x81, 0x83);
                }
                15 => continue,
                // The resolver's own OPT, which is not a difference.
                16 => {
                    answered[11] = 1;
                    answered.extend_from_slice(&[0, 0, 41, 2, 0, 0, 0, 0, 0, 0, 0]);
                }
                _ => {}
            }
            capture.packet(at_ns + took_ns, [RESOLVER, CLIENT], UDP, &answered);
        }
    }
    let (late, last) = (1_700_000_030 * SECOND_NS, query(7_000, 1));
    capture.packet(late, [CLIENT, RESOLVER], UDP, &last);
    capture.packet(late + 1, [CLIENT, RESOLVER], UDP, &last);
    capture.packet(late + 2, [CLIENT, RESOLVER], UDP, b"no question");
    capture.packet(late + 3, [CLIENT, RESOLVER], TCP, b"");
    capture.packet(late + 4, [CLIENT, "192.0.2.99:53"], UDP, &last);
    capture.packet(late + 5, [RESOLVER, CLIENT], UDP, &answer(&query(7_001, 1), 1, 9));
    capture.packet(late + 6, [RESOLVER, CLIENT], UDP, &answer(&last, 1, 50));
    capture.0.bytes.extend_from_slice(&[9; 30]);
    let report = run(&upstream, &trial(RESOLVER.parse().unwrap(), capture.save(&folder))).unwrap();
    let text = report.text();
    let tally = &report.tally;
    assert_eq!(
        (tally.queries, tally.unanswered_theirs, tally.unanswered_ours),
        (101, 2, 0),
        "{text}"
    );
    assert_eq!((tally.repeated, tally.malformed, tally.unsolicited), (1, 1, 1), "{text}");
    assert_eq!((report.copy.tcp_packets, report.copy.foreign, report.copy.damaged), (1, 1, 1));
    assert_eq!((tally.compared, tally.differences(), tally.unreadable), (99, 6, 0), "{text}");
    // OPT in only one of two responses is a difference of its own kind.
    assert_eq!(tally.different["OPT"].count, 2, "{text}");
    assert_eq!(tally.different["other data in the answer"].count, 2, "{text}");
    let wrong = &tally.different["larder NOERROR, the resolver NXDOMAIN"];
    assert_eq!((wrong.count, wrong.examples[0].name.as_str()), (2, "n14.zone."));
    assert!(wrong.examples[0].ours.contains("n14.zone. 60 A 192.0.2.14"), "{wrong:?}");
    assert_eq!(tally.equal, 93);
    // The replay runs at full speed, so larder's TTL is unchanged or a second or two lower.
    assert!((10..=15).contains(&tally.ttl_s.percentile(0.5)), "{text}");
    assert_eq!((tally.fast_theirs, tally.theirs_us.max()), (50, 5_000));
    assert_eq!(report.counts.upstream_queries_udp, 50);
    assert!(!report.is_live && text.contains("replayed"), "{text}");
    let json = report.json();
    assert_eq!(
        (&json["compared"], &json["different"], &json["equal"]),
        (&99.into(), &6.into(), &93.into())
    );
}

/// Queries during the warm-up get responses and are not counted, and their names are cached
/// afterwards.
#[test]
fn a_warm_up_is_not_counted() {
    let (upstream, folder, mut capture) = (upstream(), TempDir::new().unwrap(), Capture::new());
    // One second between the rounds, also for larder, so that all is cached by then.
    for round in 0..2_u64 {
        for name in 0..20_u8 {
            let at_ns = (1_700_000_000 + round) * SECOND_NS;
            let query = query(u16::from(name) + 100 * round as u16, name);
            capture.packet(at_ns, [CLIENT, RESOLVER], UDP, &query);
            capture.packet(at_ns + 1_000, [RESOLVER, CLIENT], UDP, &answer(&query, name, 60));
        }
    }
    let resolver = RESOLVER.parse().unwrap();
    let warm_up = Duration::from_secs(1);
    let trial = Trial { warm_up, speed: 1, ..trial(resolver, capture.save(&folder)) };
    let report = run(&upstream, &trial).unwrap();
    let tally = &report.tally;
    let text = report.text();
    assert_eq!((tally.warm_up, tally.queries, tally.equal), (20, 20, 20), "{text}");
    assert_eq!((report.counts.hits, report.counts.upstream_queries_udp), (20, 0), "{text}");
}

/// Writes a record of a copy.
fn record(tap: &mut Tap, kind: Kind, ends: [&str; 2], at_ns: u64, message: &[u8]) {
    let [query_address, response_address] = ends.map(|end| Some(end.parse().unwrap()));
    let is_response = matches!(kind, Kind::ClientResponse | Kind::ForwarderResponse);
    let (query_ns, response_ns) = match is_response {
        true => (None, Some(at_ns)),
        false => (Some(at_ns), None),
    };
    let protocol = Protocol::Tcp;
    tap.record(&Event {
        kind,
        protocol,
        query_address,
        response_address,
        query_ns,
        response_ns,
        message,
    });
}

/// Queries 1 to 20: for each one the resolver queries its own upstream once; later it responds
/// again from its cache. larder's own queries are among them.
fn record_all(tap: &mut Tap) {
    const UPSTREAM: [&str; 2] = ["192.0.2.53:9999", "192.0.2.99:53"];
    for round in 0..2 {
        for name in 1..=20 {
            let at_ns = (1_700_000_000 + round) * SECOND_NS;
            let query = query(u16::from(name) + 100 * round as u16, name);
            record(tap, Kind::ClientQuery, [CLIENT, RESOLVER], at_ns, &query);
            record(tap, Kind::ClientQuery, ["10.0.0.9:1", RESOLVER], at_ns, &query);
            if round == 0 {
                record(tap, Kind::ForwarderQuery, UPSTREAM, at_ns + 10, &query);
                let answered = answer(&query, name, 60);
                record(tap, Kind::ForwarderResponse, UPSTREAM, at_ns + 1_000, &answered);
            }
            record(
                tap,
                Kind::ClientResponse,
                [CLIENT, RESOLVER],
                at_ns + 2_000,
                &answer(&query, name, 60),
            );
            tap.flush();
        }
    }
}

/// A dnstap file also has the resolver's own queries, and so shows its misses.
#[test]
fn dnstap_shows_what_was_not_known() {
    let (upstream, folder) = (upstream(), TempDir::new().unwrap());
    let path = folder.path().join("tap");
    let (writer, mut tap) =
        dnstap::start(Target::File(path.clone()), "there", &Log::default()).unwrap();
    record_all(&mut tap);
    writer.finish();
    for from in [From::File(path.clone()), From::Dnstap(path.clone())] {
        let own = vec!["10.0.0.9".parse().unwrap()];
        let trial = Trial { own, ..trial(RESOLVER.parse().unwrap(), from) };
        let report = run(&upstream, &trial).unwrap();
        let text = report.text();
        assert_eq!((report.tally.compared, report.tally.equal), (40, 40), "{text}");
        assert_eq!((report.tally.upstream_theirs, report.copy.own), (20, 40), "{text}");
        assert_eq!(report.json()["known_at_once"]["resolver"], 0.5);
        assert_eq!(report.tally.theirs_us.max(), 2);
    }
    // A truncated file counts up to its end, and the report states that.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let cut = run(&upstream, &trial(RESOLVER.parse().unwrap(), From::File(path.clone()))).unwrap();
    assert_eq!(cut.copy.damaged, 1);
    assert!((1..40).contains(&cut.tally.compared));
    fs::write(&path, b"neither").unwrap();
    for (from, expected) in [
        (From::File(path.clone()), "not a pcap or pcapng file"),
        (From::Dnstap(path), "fstrm_capture"),
        (From::File(folder.path().join("none")), "check the path"),
    ] {
        let error = run(&upstream, &trial(RESOLVER.parse().unwrap(), from)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A comparison that runs on a thread until it is stopped.
struct Live {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Report, ServeError>>,
}

impl Live {
    fn start(upstream: &Server, resolver: SocketAddr, socket: &Path) -> Live {
        let stop = Arc::new(AtomicBool::new(false));
        let trial = trial(resolver, From::Socket(socket.to_owned()));
        let (options, ends) = (options(upstream.address), stop.clone());
        let thread = std::thread::spawn(move || shadow(&options, &trial, &ends, &Log::default()));
        until_so("a socket", || socket.exists());
        Live { stop, thread }
    }

    fn end(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic").expect("a report")
    }
}

/// During the comparison, records of a sender that connects to the socket count; those before its
/// end are in the report.
#[test]
fn senders_are_received_live() {
    let (upstream, folder) = (upstream(), TempDir::new().unwrap());
    let path = folder.path().join("tap");
    let live = Live::start(&upstream, RESOLVER.parse().unwrap(), &path);
    let (writer, mut tap) =
        dnstap::start(Target::Socket(path.clone()), "there", &Log::default()).unwrap();
    record_all(&mut tap);
    // The collector confirms that it has received everything.
    writer.finish();
    let report = live.end();
    assert!(report.is_live && !path.exists());
    let text = report.text();
    assert_eq!((report.tally.queries, report.tally.compared), (80, 40), "{text}");
    assert_eq!((report.tally.equal, report.tally.unanswered_theirs), (40, 40), "{text}");
}

/// The configuration of unbound: it writes dnstap, and has local data for one name.
fn configuration(tap: &Path) -> String {
    format!(
        "server:\n  local-zone: \"n9.zone.\" redirect\n  local-data: \"n9.zone. 60 A 192.0.2.99\"\n\
         dnstap:\n  dnstap-enable: yes\n  dnstap-socket-path: \"{}\"\n  \
         dnstap-log-client-query-messages: yes\n  dnstap-log-client-response-messages: yes\n  \
         dnstap-log-forwarder-query-messages: yes\n  dnstap-log-forwarder-response-messages: yes\n",
        tap.display(),
    )
}

/// Sends until a response comes; false if `is_lost` returns true, or if none comes within one
/// minute.
fn exchange(
    socket: &UdpSocket,
    server: SocketAddr,
    (id, name): (u16, u8),
    mut is_lost: impl FnMut() -> bool,
) -> bool {
    let mut bytes = [0; 1_500];
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && !is_lost() {
        socket.send_to(&query(id, name), server).unwrap();
        if socket.recv(&mut bytes).is_ok() && bytes[..2] == id.to_be_bytes() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Next to a running unbound: its responses equal larder's, except for the name from local data.
/// Its own queries show its misses.
#[test]
fn beside_unbound() {
    if !unbound::about().is_some_and(|about| about.contains("--enable-dnstap")) {
        return skip("beside_unbound", "no unbound with dnstap is installed");
    }
    let (upstream, folder) = (upstream(), TempDir::new().unwrap());
    let tap = folder.path().join("tap");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let (live, unbound) = unbound::at_a_free_port(|address| {
        let live = Live::start(&upstream, address, &tap);
        let mut unbound = Unbound::start(address, upstream.address, &configuration(&tap));
        if exchange(&socket, address, (1, 0), || unbound.has_ended()) {
            return Some((live, unbound));
        }
        eprintln!("unbound at {address}: {}", unbound.log());
        live.end();
        None
    });
    for id in 0..100 {
        let is_answered =
            exchange(&socket, unbound.address, (1_000 + id, (id % 20) as u8), || false);
        assert!(is_answered, "unbound does not answer");
    }
    // unbound sends its records once a second, or when there are many.
    std::thread::sleep(Duration::from_secs(2));
    let report = live.end();
    let (tally, text) = (&report.tally, report.text());
    assert!(tally.compared >= 100, "{text}");
    let others: Vec<&String> = tally.different.keys().collect();
    assert_eq!(others, ["other data in the answer"], "{text}");
    assert_eq!(tally.differences(), 5, "{text}");
    let examples = &tally.different["other data in the answer"].examples;
    assert!(examples.iter().all(|example| example.name == "n9.zone."), "{text}");
    assert_eq!(tally.upstream_theirs, 19, "{text}");
    assert!(tally.unforwarded_theirs >= 80, "{text}");
    // unbound sends many records at once. Identical queries wait for the first, and a query in the
    // turn of its response is a hit.
    assert_eq!((tally.ours_us.count(), report.counts.upstream_queries_udp), (101, 20), "{text}");
}
