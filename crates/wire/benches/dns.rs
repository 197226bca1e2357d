//! What one DNS answer costs: `cargo bench -p larder-wire --bench dns`. Under `cargo test` it runs
//! a few rounds to stay sound.
//!
//! The answer is the usual one of a content network: a question, two aliases, four addresses, an
//! OPT record; compressed as servers do.

use std::hint::black_box;
use std::time::Instant;

use larder_wire::dns::answers::{Extract, extract};
use larder_wire::dns::{HEADER_BYTES, Message, NameBuf};

fn answer() -> Vec<u8> {
    let mut bytes = b"\x12\x34\x81\x80\0\x01\0\x06\0\0\0\x01".to_vec();
    bytes.extend(b"\x03www\x07example\x03com\0\0\x01\0\x01");
    let mut owner = HEADER_BYTES;
    for target in [
        &b"\x03www\x07example\x03com\x07edgekey\x03net\0"[..],
        b"\x05e1234\x01x\x09akamaiedg\xc0\x45",
    ] {
        bytes.extend((0xc000 | owner as u16).to_be_bytes());
        bytes.extend(b"\0\x05\0\x01\0\0\x01\x2c");
        bytes.extend((target.len() as u16).to_be_bytes());
        owner = bytes.len();
        bytes.extend(target);
    }
    for last in 1..=4 {
        bytes.extend((0xc000 | owner as u16).to_be_bytes());
        bytes.extend(b"\0\x01\0\x01\0\0\0\x14\0\x04\xc0\0\x02");
        bytes.push(last);
    }
    bytes.extend(b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
    bytes
}

/// Passes of each measurement: many short ones, so that a busy machine spares at least one.
const PASSES: u32 = 100;

/// Runs `work` for `rounds` a pass and prints the best pass, ns a round.
fn measure(what: &str, rounds: u64, mut work: impl FnMut() -> u64) {
    let mut best_ns = f64::INFINITY;
    let mut checksum = 0u64;
    for _ in 0..PASSES {
        let start = Instant::now();
        for _ in 0..rounds {
            checksum = checksum.wrapping_add(work());
        }
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / rounds as f64);
    }
    println!("{what:<44} {best_ns:>8.1} ns  (checksum {checksum:x})");
}

fn main() {
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 20_000 } else { 5 };
    let bytes = answer();
    let mut out = Extract::new();
    let message = Message::parse(&bytes).expect("the answer is sound");
    extract(&message, &mut out).expect("the answer is sound");
    assert_eq!((out.aliases().len(), out.addresses().len(), out.unrelated()), (2, 4, 0));

    println!("one answer: {} bytes, 2 aliases, 4 addresses", bytes.len());
    measure("extract: chain, addresses, names", rounds, || {
        let message = Message::parse(black_box(&bytes)).expect("sound");
        let outcome = extract(&message, &mut out);
        u64::from(outcome.is_ok()) + out.addresses().map(|a| u64::from(a.ttl_s)).sum::<u64>()
    });
    measure("walk the records", rounds, || {
        let message = Message::parse(black_box(&bytes)).expect("sound");
        message.records().flatten().map(|record| u64::from(record.ttl_raw)).sum()
    });
    let mut name = NameBuf::new();
    measure("read the question's name", rounds, || {
        let message = Message::parse(black_box(&bytes)).expect("sound");
        let end = message.read_name(HEADER_BYTES, &mut name).expect("sound");
        (end + name.as_bytes().len()) as u64
    });
}
