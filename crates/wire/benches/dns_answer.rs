//! What answering from a cache costs beside the cache: `cargo bench -p larder-wire --bench
//! dns_answer`. Under `cargo test` it runs a few rounds to stay sound.
//!
//! A question is read and folded; two answers, of about 120 and 500 bytes, are rendered and
//! written. Beside them, in the same run: hickory-proto reads and writes the same bytes as
//! records, and memory is copied. Every measurement takes its turn in every pass, so that what
//! disturbs the machine disturbs all of them alike.

use std::hint::black_box;
use std::time::Instant;

use hickory_proto::op::Message as Theirs;
use larder_wire::dns::query::{KeyBuf, Query};
use larder_wire::dns::rendered::{QueryInfo, Renderer, Reply, Rules, write};

const QUESTION: &[u8] = b"\x03www\x07example\x03com\0\0\x01\0\x01";

const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

/// An alias and some addresses, as a resolver sends them.
fn answer(addresses: u8, is_in_order: bool) -> Vec<u8> {
    let mut bytes = b"\x12\x34\x81\x80\0\x01\0".to_vec();
    bytes.extend([addresses + 1, 0, 0, 0, 1]);
    bytes.extend(QUESTION);
    let alias = b"\xc0\x0c\0\x05\0\x01\0\0\x01\x2c\0\x11\x03cdn\x07example\x03net\0";
    let alias_bytes = alias.len();
    // The alias owns the addresses by a pointer to its target, or they by name where they stand
    // before it.
    let mut records = vec![alias.to_vec()];
    for last in 0..addresses {
        let owner = 12 + QUESTION.len() + alias_bytes - 17;
        let mut record = (0xc000 | owner as u16).to_be_bytes().to_vec();
        record.extend(b"\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02");
        record.push(last);
        records.push(record);
    }
    if !is_in_order {
        records.iter_mut().skip(1).for_each(|record| {
            record.splice(..2, *b"\x03cdn\x07example\x03net\0");
        });
        records.rotate_left(1);
    }
    bytes.extend(records.concat());
    bytes.extend(OPT);
    bytes
}

/// A measurement: what it is called, and what it does once, with a number that depends on it.
type Case<'a> = (String, Box<dyn FnMut() -> u64 + 'a>);

fn main() {
    let is_real = std::env::args().any(|arg| arg == "--bench");
    let (passes, rounds) = if is_real { (101, 5_000) } else { (2, 3) };

    let query: Vec<u8> = [b"\xbe\xef\x01\0\0\x01\0\0\0\0\0\x01", QUESTION, OPT].concat();
    let info = QueryInfo { question: QUESTION, is_case_random: false, dnssec_ok: false };
    let rules = Rules::default();
    let mut key = KeyBuf::new();
    let client = Query::read(&query, &mut key).expect("a good query");
    let answers = [answer(3, true), answer(27, true)];
    let disordered = answer(3, false);
    let mut renderers = [const { None }; 3];
    let mut cases: Vec<Case<'_>> = Vec::new();
    cases.push((
        "query: read, fold, finish the key".to_owned(),
        Box::new(|| {
            let query = Query::read(black_box(&query), &mut key).expect("a good query");
            u64::from(query.id) + key.finish(black_box(&[1; 8])).len() as u64
        }),
    ));
    cases.push((
        "query: read by hickory".to_owned(),
        Box::new(|| {
            Theirs::from_vec(black_box(&query)).expect("a good query").queries.len() as u64
        }),
    ));
    for (bytes, renderer) in answers.iter().chain([&disordered]).zip(&mut renderers) {
        let renderer = renderer.insert(Renderer::new());
        renderer.render(bytes, &info, 7, &rules).expect("a good answer");
        let stored = renderer.stored().to_vec();
        let order = if bytes == &disordered { ", out of order" } else { "" };
        println!("answer of {} bytes{order}: {} stored", bytes.len(), stored.len());
        cases.push((
            format!("answer of {}{order}: render", bytes.len()),
            Box::new(move || {
                let facts = renderer.render(black_box(bytes), &info, 7, &rules);
                u64::from(facts.expect("a good answer").ttl_s) + renderer.stored().len() as u64
            }),
        ));
        if bytes == &disordered {
            continue;
        }
        let mut out = vec![0; 1232];
        cases.push((
            format!("answer of {}: write", bytes.len()),
            Box::new(move || {
                let reply = Reply {
                    now_s: black_box(20),
                    bytes_max: client.udp_bytes_max(1232),
                    udp_bytes: 1232,
                    stale_ttl_s: 0,
                    options: &[],
                };
                let len = write(black_box(&stored), &client, &reply, &mut out).expect("room");
                len as u64 + u64::from(out[len - 1])
            }),
        ));
        let mut copy = vec![0; bytes.len()];
        cases.push((
            format!("answer of {}: copy of memory", bytes.len()),
            Box::new(move || {
                copy.copy_from_slice(black_box(bytes));
                u64::from(black_box(&copy)[copy.len() / 2])
            }),
        ));
        cases.push((
            format!("answer of {}: read and written by hickory", bytes.len()),
            Box::new(move || {
                let message = Theirs::from_vec(black_box(bytes)).expect("a good answer");
                message.to_vec().expect("a message that fits").len() as u64
            }),
        ));
    }
    measure(&mut cases, passes, rounds);
}

/// Runs each case for `rounds` in each of `passes`, and prints the best and the middle pass, ns a
/// round.
fn measure(cases: &mut [Case<'_>], passes: usize, rounds: u32) {
    let mut costs_ns = vec![Vec::new(); cases.len()];
    let mut checksums = vec![0u64; cases.len()];
    for _ in 0..passes {
        for (at, (_, work)) in cases.iter_mut().enumerate() {
            let start = Instant::now();
            for _ in 0..rounds {
                checksums[at] = checksums[at].wrapping_add(work());
            }
            costs_ns[at].push(start.elapsed().as_nanos() as f64 / f64::from(rounds));
        }
    }
    println!("{:<46} {:>8} {:>8}  checksum", "", "best ns", "middle");
    for (((name, _), costs), checksum) in cases.iter().zip(&mut costs_ns).zip(checksums) {
        costs.sort_by(f64::total_cmp);
        let (best, middle) = (costs[0], costs[costs.len() / 2]);
        println!("{name:<46} {best:>8.1} {middle:>8.1}  {checksum:x}");
    }
}
