//! larder and unbound get the same queries with the same upstream. Their responses are the same,
//! except for known and explained differences.
//!
//! | module | purpose |
//! |---|---|
//! | [`shape`] | names that describe their responses |
//! | [`answer`] | the upstream's response, a function of the query |
//! | [`upstream`] | the upstream: threads, UDP and TCP |
//! | [`served`], [`servers`] | larder on a thread, unbound as a child process |
//! | [`client`] | sends many queries at once |
//! | [`queries`] | queries, drawn from a seed |
//! | [`view`] | responses as hickory reads them, compared field by field |
//! | [`known`] | intended differences, each with its reason |
//!
//! `LARDER_SEED` sets another seed, `LARDER_QUESTIONS` another number of queries. With
//! `--nocapture` the test prints the counts that `docs/results/dns-differences.md` has.

mod answer;
mod client;
mod known;
mod queries;
#[path = "../served/mod.rs"]
mod served;
mod servers;
mod shape;
mod upstream;
mod view;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Instant;

use known::{Case, KNOWN, RARE};
use larder_serve::lifecycle::Stage;
use larder_testkit::skip::skip;
use larder_testkit::unbound;
use queries::{ClientQuery, Queries};
use served::Served;
use servers::start_unbound;
use view::{Field, View};

/// The default number of queries.
const QUERIES: u64 = 20_000;

/// Queries sent at once.
const BATCH: usize = 64;

/// TCP connections to unbound for one batch: unbound sometimes resets a connection with pending
/// queries. larder gets only one.
const STREAMS_MAX: usize = 4;

/// Unexplained differences printed for each set of fields.
const PRINTED_MAX: u64 = 2;

fn number(variable: &str, usual: u64) -> u64 {
    let wanted = std::env::var(variable).map(|number| number.parse().expect("a number"));
    wanted.unwrap_or(usual)
}

/// True if `cut` has each record set completely or not at all. A client may cache complete sets of
/// a truncated response (RFC 2181, section 9).
fn has_whole_sets(cut: &View, whole: &View) -> bool {
    cut.answers().iter().all(|kept| {
        let count = |view: &View| view.answers().iter().filter(|e| e.set() == kept.set()).count();
        count(cut) == count(whole)
    })
}

/// Sends all queries to both servers.
#[test]
fn answers_are_those_of_unbound() {
    let Some(about) = unbound::about() else {
        return skip("differential", "unbound is not installed");
    };
    let version = about.lines().next().unwrap_or_default();
    let (upstream, counts) = upstream::start();
    let larder = Served::start(upstream.address.into(), &[]);
    let unbound = start_unbound(upstream.address);
    let (seed, count) = (number("LARDER_SEED", 1), number("LARDER_QUESTIONS", QUERIES));
    let mut queries = Queries::new(seed);
    let mut tally = Tally::default();
    let begun = Instant::now();
    let mut left = count as usize;
    while left > 0 {
        let batch: Vec<ClientQuery> = (0..BATCH.min(left)).map(|_| queries.draw()).collect();
        left -= batch.len();
        let (ours, theirs) =
            (exchange(larder.address, &batch, 1), exchange(unbound.address, &batch, STREAMS_MAX));
        // One server may have cached a response at the start that the other fetches now; the TTLs
        // differ by up to this.
        let ttl_s = begun.elapsed().as_secs() as u32 + 2;
        for ((query, ours), theirs) in batch.iter().zip(&ours).zip(&theirs) {
            let is_same = |other: &&ClientQuery| other.is_same(query);
            let is_queried_at_once = batch.iter().filter(is_same).count() > 1;
            tally.compare(query, [ours, theirs], ttl_s, is_queried_at_once);
        }
    }
    let elapsed = begun.elapsed();
    let did = larder.end(Stage::Ends);
    println!("{count} questions, seed {seed}, {elapsed:.1?}, {version}");
    println!("larder: {did:?}\nupstream: {:?}", counts);
    tally.print();
    assert_eq!(tally.unknown, 0, "unexplained differences; LARDER_SEED={seed}");
    let is_usual = std::env::var_os("LARDER_SEED").is_none() && count == QUERIES;
    assert!(!is_usual || tally.is_varied(&did), "{tally:?}");
}

/// Sends a batch to a server, over TCP for queries that require it. If a connection is lost, it
/// opens another, up to `streams_max`.
fn exchange(server: SocketAddr, batch: &[ClientQuery], streams_max: usize) -> Vec<Vec<u8>> {
    let messages: Vec<Vec<u8>> =
        batch.iter().enumerate().map(|(at, each)| each.message(at as u16 + 1)).collect();
    let is_streamed = |at: &usize| batch[*at].by_stream;
    let (by_stream, by_packet): (Vec<usize>, Vec<usize>) = (0..batch.len()).partition(is_streamed);
    let pick = |these: &[usize]| these.iter().map(|&at| &messages[at][..]).collect::<Vec<_>>();
    let mut answers = vec![Vec::new(); batch.len()];
    let packets = client::exchange(server, &pick(&by_packet)).expect("UDP");
    by_packet.iter().zip(packets).for_each(|(&at, answer)| answers[at] = answer);
    if !by_stream.is_empty() {
        let streamed = client::exchange_tcp(server, &pick(&by_stream), streams_max)
            .unwrap_or_else(|error| panic!("TCP to {server}: {error}"));
        by_stream.iter().zip(streamed).for_each(|(&at, answer)| answers[at] = answer);
    }
    answers
}

/// The results.
#[derive(Debug, Default)]
struct Tally {
    equal: u64,
    known: BTreeMap<&'static str, u64>,
    unknown: u64,
    unknown_fields: BTreeMap<String, u64>,
    rcodes: BTreeMap<u16, u64>,
    types: BTreeMap<u16, u64>,
    truncated: u64,
}

impl Tally {
    fn compare(
        &mut self,
        query: &ClientQuery,
        answers: [&[u8]; 2],
        ttl_s: u32,
        is_queried_at_once: bool,
    ) {
        let (ours, theirs) = match (view::read(answers[0]), view::read(answers[1])) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            other => {
                let (ours, theirs) = other;
                return self.report(query, &[], [&ours, &theirs]);
            }
        };
        for (bytes, view) in [(answers[0], &ours), (answers[1], &theirs)] {
            let mut read = View::read(bytes).expect("what hickory reads");
            if let Some(opt) = &mut read.opt {
                // hickory reads a smaller size as 512, as RFC 6891 requires (section 6.2.3).
                opt.udp_bytes = opt.udp_bytes.max(512);
            }
            assert_eq!(read, *view, "{query:?}\n{bytes:02x?}");
        }
        *self.rcodes.entry(ours.rcode).or_default() += 1;
        *self.types.entry(query.qtype).or_default() += 1;
        if ours.is_truncated() {
            self.truncated += 1;
            let whole = query.passed_on(query.dnssec_ok()).map(|query| query.answer());
            let whole = view::read(&whole.expect("a question")).expect("an answer");
            assert!(has_whole_sets(&ours, &whole), "half a set: {query:?}\n{ours:#?}");
        }
        let mut fields = ours.differences(&theirs);
        if ours.ttl_differences(&theirs).iter().any(|by| by.unsigned_abs() > u64::from(ttl_s)) {
            fields.push(Field::Ttl);
        }
        if fields.is_empty() {
            self.equal += 1;
            return;
        }
        let case = Case { query, ours: &ours, theirs: &theirs, is_queried_at_once };
        for known in KNOWN.iter().filter(|known| (known.applies)(&case)) {
            let before = fields.len();
            fields.retain(|field| !known.excuses(*field));
            if fields.len() < before {
                *self.known.entry(known.name).or_default() += 1;
            }
        }
        if !fields.is_empty() {
            self.report(query, &fields, [&ours, &theirs]);
        }
    }

    fn report(&mut self, query: &ClientQuery, fields: &[Field], answers: [&dyn Debug; 2]) {
        self.unknown += 1;
        let seen = self.unknown_fields.entry(format!("{fields:?}")).or_default();
        *seen += 1;
        if *seen <= PRINTED_MAX {
            let name = query.name.wire().escape_ascii().to_string();
            println!("{fields:?}\n{name} TYPE{} CLASS{}", query.qtype, query.qclass);
            println!("{:?} {:?}", query.shape(), query);
            println!("larder:  {:?}\nunbound: {:?}\n", answers[0], answers[1]);
        }
    }

    fn print(&self) {
        println!("equal in every field: {}", self.equal);
        for known in KNOWN {
            println!(
                "{:6} {}: {}",
                self.known.get(known.name).unwrap_or(&0),
                known.name,
                known.why
            );
        }
        println!("response codes {:?}\ntypes {:?}", self.rcodes, self.types);
        println!("cut: {}\nunexplained: {:#?}", self.truncated, self.unknown_fields);
    }

    /// True if the run met the cases that the test is for.
    fn is_varied(&self, did: &larder_dns::metrics::Counts) -> bool {
        let answers: u64 = self.rcodes.values().sum();
        did.hits > answers / 10
            && did.misses > answers / 10
            && self.truncated > 50
            && self.types.len() > 20
            && KNOWN
                .iter()
                .all(|known| self.known.contains_key(known.name) || RARE.contains(&known.name))
    }
}
