//! Recursion with servers on loopback addresses, through the mailboxes of larder's cores.

mod hierarchy;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{RData, Record, RecordType};
use larder_dns::backend::{Backend, Backends, Log};
use larder_dns_recursor::dnssec::anchors::Anchors;
use larder_dns_recursor::{Options, Recursor};
use larder_io::epoll::{Events, Interest, Poller, Waker};
use larder_wire::prefix::Prefix;

use hierarchy::{FORGED, Hierarchy, name};

fn servers() -> &'static Hierarchy {
    static SERVERS: OnceLock<Hierarchy> = OnceLock::new();
    SERVERS.get_or_init(hierarchy::start)
}

/// How the recursor handles signatures.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Dnssec {
    Off,
    Pass,
    Validate,
}

/// A core that sends queries to a recursor.
struct Client {
    recursor: Arc<Recursor>,
    backends: Backends,
    waker: Arc<Waker>,
    tags: u64,
}

#[derive(Clone, Copy, Default)]
struct Flags {
    checking_disabled: bool,
}

impl Client {
    fn new(dnssec: Dnssec) -> Client {
        Client::allowing(dnssec, "127.77.0.0/16")
    }

    /// A client of a recursor that may query servers in this network.
    fn allowing(dnssec: Dnssec, network: &str) -> Client {
        let servers = servers();
        let anchors = Anchors(Arc::new(servers.anchors.clone()));
        let recursor = Arc::new(Recursor::new(Options {
            roots: vec![IpAddr::V4(servers.root)],
            passes_dnssec: dnssec == Dnssec::Pass,
            anchors: (dnssec == Dnssec::Validate).then_some(anchors),
            allow_servers: vec![Prefix::parse(network).unwrap()],
            port: servers.port,
            ..Options::default()
        }));
        recursor.start(&Log::default()).unwrap();
        let waker = Arc::new(Waker::new().unwrap());
        let backend: Arc<dyn Backend> = recursor.clone();
        let backends = Backends::new(&[backend], 0, 64, waker.clone());
        Client { recursor, backends, waker, tags: 0 }
    }

    /// Queries to name servers: over UDP and over TCP.
    fn sent(&self) -> (u64, u64) {
        (self.recursor.counts().packets, self.recursor.counts().streams)
    }

    fn query(&mut self, of: &str, rtype: RecordType) -> Message {
        self.query_with(of, rtype, Flags::default())
    }

    fn query_with(&mut self, of: &str, rtype: RecordType, flags: Flags) -> Message {
        let mut message = Message::new(0, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.metadata.checking_disabled = flags.checking_disabled;
        message.add_query(Query::query(name(of), rtype));
        let mut edns = Edns::new();
        edns.set_max_payload(1_232).set_dnssec_ok(true);
        message.edns = Some(edns);
        self.tags += 1;
        assert!(self.backends.query(0, self.tags, &message.to_vec().unwrap(), 8_000));
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(1));
        poller.add(&*self.waker, 0, Interest::READ).unwrap();
        loop {
            self.waker.clear().unwrap();
            if let Some((tag, bytes)) = self.backends.take() {
                assert_eq!(tag, self.tags);
                let bytes = bytes.unwrap_or_else(|| panic!("{of}: the query was dropped"));
                let answer = Message::from_vec(&bytes).unwrap();
                assert_eq!(answer.queries, message.queries);
                return answer;
            }
            let count = poller.wait(&mut events, Some(20_000)).unwrap();
            assert!(count > 0, "{of}: no response");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.recursor.stop();
    }
}

fn addresses(message: &Message) -> Vec<Ipv4Addr> {
    let address = |data: &RData| match data {
        RData::A(address) => Some(address.0),
        _ => None,
    };
    message.answers.iter().filter_map(|record| address(&record.data)).collect()
}

fn extended_error(message: &Message) -> Option<u16> {
    let mut options = message.edns.iter().flat_map(|edns| &edns.options().options);
    options.find_map(|(code, option)| match option {
        EdnsOption::Unknown(15, bytes) => bytes.first_chunk().map(|code| u16::from_be_bytes(*code)),
        _ if u16::from(*code) == 15 => panic!("read as something else"),
        _ => None,
    })
}

/// A response in short: code, AD, extended error, addresses.
fn summary(message: &Message) -> (ResponseCode, bool, Option<u16>, Vec<Ipv4Addr>) {
    let header = &message.metadata;
    (header.response_code, header.authentic_data, extended_error(message), addresses(message))
}

fn www(number: u8) -> Vec<Ipv4Addr> {
    vec![Ipv4Addr::new(192, 0, 2, 10 + number)]
}

const OK: ResponseCode = ResponseCode::NoError;
const FAILED: ResponseCode = ResponseCode::ServFail;
const DENIED: ResponseCode = ResponseCode::NXDomain;

/// Records signed from the root on have AD and their signatures. So has a proven absence, with the
/// proof. Names below an unsigned delegation resolve without AD.
#[test]
fn secure_and_insecure() {
    let mut client = Client::new(Dnssec::Validate);
    let found = client.query("www.good.test.", RecordType::A);
    assert_eq!(summary(&found), (OK, true, None, www(0)));
    assert!(found.answers.iter().any(|record| record.record_type() == RecordType::RRSIG));
    let denied = client.query("nx.good.test.", RecordType::A);
    assert_eq!(summary(&denied), (DENIED, true, None, vec![]));
    for needed in [RecordType::SOA, RecordType::NSEC, RecordType::RRSIG] {
        assert!(denied.authorities.iter().any(|record| record.record_type() == needed), "{needed}");
    }
    assert_eq!(
        summary(&client.query("www.good.test.", RecordType::AAAA)),
        (OK, true, None, vec![])
    );
    assert_eq!(summary(&client.query("www.plain.test.", RecordType::A)), (OK, false, None, www(1)));
    assert_eq!(
        summary(&client.query("nx.plain.test.", RecordType::A)),
        (DENIED, false, None, vec![])
    );
}

/// Aliases are followed and come before their target. AD is set only if all records on the way are
/// secure.
#[test]
fn aliases() {
    let mut client = Client::new(Dnssec::Validate);
    let found = client.query("alias.good.test.", RecordType::A);
    assert_eq!(summary(&found), (OK, true, None, www(0)));
    assert_eq!(found.answers[0].name, name("alias.good.test."));
    assert_eq!(summary(&client.query("away.good.test.", RecordType::A)), (OK, false, None, www(1)));
    let lost = client.query("lost.good.test.", RecordType::A);
    assert_eq!(summary(&lost), (DENIED, true, None, vec![]));
    assert_eq!(lost.answers[0].name, name("lost.good.test."));
    assert_eq!(
        summary(&client.query("lost.plain.test.", RecordType::A)),
        (DENIED, false, None, vec![])
    );
    let (code, _, why, found) = summary(&client.query("lost.expired.test.", RecordType::A));
    assert_eq!((code, found), (FAILED, vec![]));
    assert!([Some(6), Some(7)].contains(&why), "{why:?}");
}

/// Validation costs one query for each signed zone, for its keys; delegations come with referrals.
/// It costs none for an unsigned zone.
#[test]
fn few_queries() {
    for (dnssec, keys) in [(Dnssec::Off, 0), (Dnssec::Validate, 1)] {
        let mut client = Client::new(dnssec);
        client.query("www.plain.test.", RecordType::A);
        let mut costs = |of, expected| {
            let sent = |client: &Client| {
                client.recursor.counts().packets - client.recursor.counts().timeouts
            };
            let before = sent(&client);
            assert_eq!(summary(&client.query(of, RecordType::A)).0, OK, "{of}");
            assert_eq!(sent(&client) - before, expected, "{of} {dnssec:?}");
        };
        costs("ns0.plain.test.", 1);
        costs("www.good.test.", 2 + keys);
        costs("ns0.good.test.", 1);
        costs("alias.good.test.", 2);
        costs("www.evil.test.", 2);
    }
}

/// Forged, expired and missing signatures give SERVFAIL with the reason. A client that sets CD gets
/// the records.
#[test]
fn bogus() {
    let mut client = Client::new(Dnssec::Validate);
    for (domain, number, reason) in
        [("expired", 2, None), ("forged", 3, Some(6)), ("bare", 4, Some(10))]
    {
        let of = format!("www.{domain}.test.");
        let checked = client.query(&of, RecordType::A);
        let (code, is_secure, why, found) = summary(&checked);
        assert_eq!((code, is_secure, found), (FAILED, false, vec![]), "{of}");
        match reason {
            Some(reason) => assert_eq!(why, Some(reason), "{of}"),
            None => assert!([Some(6), Some(7)].contains(&why), "{of}: {why:?}"),
        }
        let flags = Flags { checking_disabled: true };
        let unchecked = client.query_with(&of, RecordType::A, flags);
        let address = if domain == "forged" { vec![FORGED] } else { www(number) };
        assert_eq!(summary(&unchecked), (OK, false, None, address), "{of}");
        assert!(unchecked.metadata.checking_disabled);
    }
}

/// Without validation, forged records are passed on and no response has AD. Signatures are included
/// with `pass` only.
#[test]
fn not_validated() {
    for (dnssec, has_signatures) in [(Dnssec::Off, false), (Dnssec::Pass, true)] {
        let mut client = Client::new(dnssec);
        assert_eq!(
            summary(&client.query("www.forged.test.", RecordType::A)),
            (OK, false, None, vec![FORGED])
        );
        let found = client.query("www.good.test.", RecordType::A);
        assert_eq!(summary(&found), (OK, false, None, www(0)));
        let signed = found.answers.iter().any(|record| record.record_type() == RecordType::RRSIG);
        assert_eq!(signed, has_signatures, "{dnssec:?}");
        let away = client.query("away.good.test.", RecordType::A);
        let types: Vec<RecordType> = away.answers.iter().map(Record::record_type).collect();
        let of_alias = [RecordType::CNAME, RecordType::RRSIG];
        assert_eq!(types[..types.len() - 1], of_alias[..1 + usize::from(has_signatures)]);
        assert_eq!(types.last(), Some(&RecordType::A), "from a zone without signatures");
        assert_eq!(
            summary(&client.query("nx.good.test.", RecordType::A)),
            (DENIED, false, None, vec![])
        );
    }
}

/// Slow servers get time, of two servers the working one responds in time, and silent or refusing
/// servers lead to SERVFAIL.
#[test]
fn slow_silent_lame() {
    for dnssec in [Dnssec::Off, Dnssec::Validate] {
        let is_secure = dnssec == Dnssec::Validate;
        let mut client = Client::new(dnssec);
        let mut expect =
            |of, expected| assert_eq!(summary(&client.query(of, RecordType::A)), expected);
        expect("www.slow.test.", (OK, is_secure, None, www(5)));
        expect("www.half.test.", (OK, false, None, www(6)));
        expect("www.halflame.test.", (OK, false, None, www(9)));
        expect("www.lame.test.", (FAILED, false, Some(22), vec![]));
        expect("www.dead.test.", (FAILED, false, Some(22), vec![]));
    }
}

/// Loops of aliases and of delegations end soon, with few packets and without an address. Invariant
/// 2 of `dnssec`.
#[test]
fn loops_end() {
    for (dnssec, packets_max) in [(Dnssec::Off, 60), (Dnssec::Validate, 70)] {
        let mut client = Client::new(dnssec);
        let begun = Instant::now();
        for of in ["loop-a.plain.test.", "www.circle-a.test.", "www.circle-b.test."] {
            assert_eq!(addresses(&client.query(of, RecordType::A)), [] as [Ipv4Addr; 0], "{of}");
        }
        assert_eq!(summary(&client.query("www.circle-a.test.", RecordType::A)).0, FAILED);
        let (packets, connections) = client.sent();
        assert!(packets < packets_max && connections == 0, "{packets} {connections}");
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

/// A server's records of names in other zones appear neither in the rendered response nor later.
#[test]
fn out_of_bailiwick() {
    for dnssec in [Dnssec::Off, Dnssec::Validate] {
        let mut client = Client::new(dnssec);
        let mut found = client.query("www.evil.test.", RecordType::A);
        // Rendering removes records that do not belong to the question.
        found.answers.retain(|record| record.name == name("www.evil.test."));
        assert_eq!(addresses(&found), www(10));
        assert_eq!(addresses(&client.query("www.good.test.", RecordType::A)), www(0));
    }
}

/// Servers with special addresses get no queries unless allowed: only the root server does, since
/// it is configured.
#[test]
fn private_servers_are_not_queried() {
    for dnssec in [Dnssec::Off, Dnssec::Validate] {
        let mut client = Client::allowing(dnssec, "127.78.0.0/16");
        let found = client.query("www.good.test.", RecordType::A);
        assert_eq!(summary(&found), (FAILED, false, Some(22), vec![]));
    }
}

/// After suspected spoofing at the port of a query, the query moves to TCP at once. A hundred wrong
/// packets neither fail nor delay it.
#[test]
fn spoofed_queries_move_to_tcp() {
    let mut client = Client::new(Dnssec::Off);
    for of in ["www.guessed.test.", "ns0.guessed.test."] {
        assert_eq!(summary(&client.query(of, RecordType::A)).0, OK, "{of}");
    }
    let (_, streams) = client.sent();
    assert_eq!(streams, 2);
}

/// A configuration error is reported at the start. A stopped recursor takes no queries. A second
/// query costs less than the first.
#[test]
fn start_and_stop() {
    let none = Options { roots: Vec::new(), ..Options::default() };
    assert!(Recursor::new(none).start(&Log::default()).unwrap_err().to_string().contains("root"));
    for dnssec in [Dnssec::Off, Dnssec::Validate] {
        let mut client = Client::new(dnssec);
        client.query("www.good.test.", RecordType::A);
        let (first, _) = client.sent();
        client.query("ns0.good.test.", RecordType::A);
        let (both, _) = client.sent();
        assert!(both - first < first && both > first, "{first} {both}");
        client.recursor.stop();
        let message = Message::new(0, MessageType::Query, OpCode::Query).to_vec().unwrap();
        assert!(client.backends.query(0, 99, &message, 100));
        assert_eq!(client.backends.take(), Some((99, None)), "at once");
    }
}
