//! Queries for addresses of made-up names, and the check that an answer is the one and right answer.
//!
//! A name follows from its number, and its address from its name, so neither the generator nor the upstream
//! keeps a table, and an answer that belongs to another query is found out. Names are 13 to 51 bytes on
//! the wire, 27 on average, which is about what resolvers see: a domain, most often with a label in front of it.
//! Every domain has two names, 512 numbers apart: where a resolver finds its way by itself, the second one
//! profits from what it learnt of the first, so that a miss costs one and a half queries to others.
//!
//! Invariants
//! 1. Names of different numbers below [`NUMBERS`] differ.
//! 2. Names are in lower case, so that an upstream that folds case hashes the same bytes.
//!
//! Cost: tens of nanoseconds a query and an answer; no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::data::mix;
use crate::net::load::Query;

/// Numbers of names.
pub const NUMBERS: u64 = 1 << (CODE_LETTERS * LETTER_BITS);
/// Numbers from here on are asked once in a run: they are misses.
pub const FRESH_FROM: u64 = 1 << 36;
/// Bytes that an answer has more than its query: an address behind a pointer to the name (RFC 1035,
/// sections 3.2.1 and 4.1.4).
pub const ANSWER_ADDS_BYTES: usize = 16;
/// Bytes of a message before its question (RFC 1035, section 4.1.1).
pub const HEADER_BYTES: usize = 12;
/// Type A, class IN.
pub const TYPE_A_CLASS_IN: [u8; 4] = [0, 1, 0, 1];
/// AD, in the fourth byte: the answer was validated, or its client wants to know (RFC 6840, section 5.7).
pub const AUTHENTIC: u8 = 0x20;

/// An empty OPT record: no options, 1,232 bytes (RFC 6891, section 6.1.2).
pub const OPT: [u8; 11] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];

const CODE_LETTERS: u32 = 8;
const LETTER_BITS: u32 = 5;
const LETTERS: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz234567";
/// Numbers between the two names of a domain: more than are in flight, so that the first is answered before the
/// second is asked.
const PAIR_DISTANCE: u64 = 512;
/// Labels in front of the first name of a domain, and of the second.
const FRONTS: [[&[u8]; 4]; 2] =
    [[b"", b"", b"www", b"mail"], [b"api", b"img", b"a1-edge", b"static-cdn"]];
/// Ends: the labels above a domain.
const ENDS: [&[&[u8]]; 8] = [
    &[b"com"],
    &[b"net"],
    &[b"org"],
    &[b"de"],
    &[b"io"],
    &[b"co", b"uk"],
    &[b"com", b"br"],
    &[b"cloudfront", b"net"],
];

/// Writes labels into room that the caller knows to be there.
struct Labels<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl Labels<'_> {
    fn push(&mut self, label: &[u8]) {
        self.room[self.length] = label.len() as u8;
        self.room[self.length + 1..][..label.len()].copy_from_slice(label);
        self.length += 1 + label.len();
    }
}

/// Where the domain of a name begins: the label of that domain alone and all above it. `None` where there are not
/// as many labels. `name` ends with the root's empty label.
pub fn domain_start(name: &[u8]) -> Option<usize> {
    // The longer ends come last, and win.
    let above = ENDS.iter().rev().find_map(|labels| end_start(name, labels))?;
    // The label before: walked to from the front, since a name cannot be read backwards.
    let mut at = 0;
    while at < above {
        let next = at + 1 + usize::from(*name.get(at)?);
        if next == above {
            return Some(at);
        }
        at = next;
    }
    None
}

/// Where these labels, and no others, are the last ones of a name.
fn end_start(name: &[u8], labels: &[&[u8]]) -> Option<usize> {
    labels.iter().rev().try_fold(name.len().checked_sub(1)?, |before, label| {
        let start = before.checked_sub(label.len() + 1)?;
        let (length, own) = name[start..before].split_first()?;
        (usize::from(*length) == label.len() && own == *label).then_some(start)
    })
}

/// Writes the name of a number in the wire's form; its bytes. `room` has at least 64.
fn write_name(number: u64, room: &mut [u8]) -> usize {
    let (block, within) = (number / (2 * PAIR_DISTANCE), number % (2 * PAIR_DISTANCE));
    let domain = block * PAIR_DISTANCE + within % PAIR_DISTANCE;
    let shape = mix(domain ^ 0x5eed);
    let mut labels = Labels { room, length: 0 };
    let front = FRONTS[(within / PAIR_DISTANCE) as usize][(shape & 3) as usize];
    if !front.is_empty() {
        labels.push(front);
    }
    // An odd factor and a shifted xor are one to one: the code identifies the domain.
    let code = domain.wrapping_mul(0x9e_3779_b97f_4a7d) % NUMBERS;
    let code = code ^ (code >> 19);
    let mut own = [0u8; CODE_LETTERS as usize + 15];
    for (at, letter) in own.iter_mut().enumerate() {
        *letter = match at as u32 {
            at if at < CODE_LETTERS => LETTERS[(code >> (at * LETTER_BITS)) as usize % 32],
            at => LETTERS[(shape >> (at % 12 * LETTER_BITS)) as usize % 26],
        };
    }
    labels.push(&own[..CODE_LETTERS as usize + (shape >> 8) as usize % 16]);
    for label in ENDS[(shape >> 16) as usize % ENDS.len()] {
        labels.push(label);
    }
    labels.room[labels.length] = 0;
    labels.length + 1
}

/// Where the name that begins at `at` ends; `None` where it has no end, or is too long, or is compressed.
pub fn name_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let most = at + 255;
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length if length < 64 && at < most => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

/// A hash of a name's bytes.
pub fn name_hash(name: &[u8]) -> u64 {
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    };
    let mut words = name.chunks_exact(8);
    let mut hash = name.len() as u64 ^ 0x243f_6a88_85a3_08d3;
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        hash = fold(hash, u64::from_le_bytes(bytes));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    fold(hash, u64::from_le_bytes(last))
}

/// The address of a name with this hash, in 10.0.0.0/8.
pub fn address(hash: u64) -> [u8; 4] {
    [10, (hash >> 40) as u8, (hash >> 48) as u8, (hash >> 56) as u8]
}

/// Writes the query for a number's address, with an OPT record or without: what `load` wants to know of it. RD
/// is set, as stubs do.
pub fn write(id: u16, number: u64, edns: bool, room: &mut [u8]) -> Query {
    room[..2].copy_from_slice(&id.to_be_bytes());
    room[2..HEADER_BYTES].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let end = HEADER_BYTES + write_name(number, &mut room[HEADER_BYTES..]);
    room[end..end + 4].copy_from_slice(&TYPE_A_CLASS_IN);
    let mut length = end + 4;
    if edns {
        room[HEADER_BYTES - 1] = 1;
        room[length..length + OPT.len()].copy_from_slice(&OPT);
        length += OPT.len();
    }
    Query { length, tag: name_hash(&room[HEADER_BYTES..end]) }
}

/// Whether bytes hold the question with this tag, as asked: name in its case, type and class. Where they do,
/// the place after it.
fn question_end(tag: u64, bytes: &[u8]) -> Option<usize> {
    let end = name_end(bytes, HEADER_BYTES)?;
    let right = name_hash(&bytes[HEADER_BYTES..end]) == tag
        && bytes.get(end..end + 4) == Some(&TYPE_A_CLASS_IN);
    right.then_some(end + 4)
}

/// Whether a message answers the question with this tag: a response without error or truncation, the question,
/// one address, and that of the name. What is behind it is not looked at.
pub fn is_answer(tag: u64, bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    // QR, opcode and TC; RCODE; one question, one answer.
    if header[2] & 0xfa != 0x80 || header[3] & 15 != 0 || header[4..8] != [0, 1, 0, 1] {
        return false;
    }
    let Some(at) = question_end(tag, bytes) else { return false };
    let at = match bytes.get(at..at + 2) {
        Some([0xc0, 12]) => at + 2,
        // The whole name again is right too.
        _ => match name_end(bytes, at) {
            Some(end) if name_hash(&bytes[at..end]) == tag => end,
            _ => return false,
        },
    };
    bytes.get(at..at + 4) == Some(&TYPE_A_CLASS_IN)
        && bytes.get(at + 8..at + 10) == Some(&[0, 4])
        && bytes.get(at + 10..at + 14) == Some(&address(tag))
}

/// The same, and whether the server states that it validated.
pub fn is_validated(tag: u64, bytes: &[u8]) -> bool {
    is_answer(tag, bytes) && bytes[3] & AUTHENTIC != 0
}

/// Whether a message is the echo of the question with this tag, as long as an answer would be.
pub fn is_echo(tag: u64, bytes: &[u8]) -> bool {
    question_end(tag, bytes).is_some_and(|end| {
        let longer = bytes.len().checked_sub(end + ANSWER_ADDS_BYTES);
        longer == Some(usize::from(bytes[HEADER_BYTES - 1]) * OPT.len())
    })
}

/// Numbers to ask: a hot set at random, evenly, and in between names that were not queried before.
#[derive(Debug)]
pub struct Mix {
    hot: u32,
    /// Below this a draw of 32 bits is hot.
    hot_below: u64,
    fresh: Arc<AtomicU64>,
    draws: u64,
    seed: u64,
    /// Fresh names that were asked.
    pub misses: u64,
}

impl Mix {
    /// `hot` names (at least 1) for a share of the questions from 0 to 1. `fresh` is the next number that was not
    /// queried, from [`FRESH_FROM`]; loads of one run share it. `seed` makes loads differ.
    pub fn new(hot: u32, hot_share: f64, fresh: &Arc<AtomicU64>, seed: u64) -> Mix {
        let hot_below = (hot_share.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        Mix { hot: hot.max(1), hot_below, fresh: Arc::clone(fresh), draws: 0, seed, misses: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.draws += 1;
        let random = mix(self.seed ^ self.draws.wrapping_mul(0xd134_2543_de82_ef95));
        if random >> 32 < self.hot_below {
            return ((random & 0xffff_ffff) * u64::from(self.hot)) >> 32;
        }
        self.misses += 1;
        self.fresh.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn query(number: u64) -> (Vec<u8>, u64) {
        let mut room = [0xff; 100];
        let Query { length, tag } = write(0x1234, number, false, &mut room);
        (room[..length].to_vec(), tag)
    }

    fn answered(number: u64) -> (Vec<u8>, u64) {
        let (mut bytes, tag) = query(number);
        bytes[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4]);
        bytes.extend(address(tag));
        (bytes, tag)
    }

    /// Names, and their hashes, differ for many numbers of both kinds, are in lower case, and as long as stated.
    /// Invariants 1 and 2.
    #[test]
    fn names_are_names() {
        let mut seen = HashSet::new();
        let (mut total, count) = (0, 200_000);
        for number in (0..count / 2).chain(FRESH_FROM..FRESH_FROM + count / 2) {
            let (bytes, tag) = query(number);
            let name = &bytes[HEADER_BYTES..bytes.len() - 4];
            assert!((13..=51).contains(&name.len()), "{number}: {}", name.len());
            assert_eq!(name_end(name, 0), Some(name.len()));
            assert!(!name.iter().any(u8::is_ascii_uppercase));
            assert!(seen.insert(tag) && name_hash(name) == tag);
            total += name.len() as u64;
        }
        assert_eq!(total / count, 27);
    }

    /// A domain is what its two names have in common and no other name has; any other name has none.
    #[test]
    fn two_names_share_a_domain() {
        let domain = |number| {
            let (bytes, _) = query(number);
            let name = bytes[HEADER_BYTES..bytes.len() - 4].to_vec();
            name[domain_start(&name).unwrap()..].to_vec()
        };
        let domains: HashSet<Vec<u8>> = (0..8192).map(domain).collect();
        assert_eq!(domains.len(), 4096);
        assert_eq!(domain(7), domain(7 + PAIR_DISTANCE));
        for (name, start) in [
            (&b"\x03www\x01a\x03com\0"[..], Some(4)),
            (b"\x03www\x01a\x02co\x02uk\0", Some(4)),
            (b"\x02co\x02uk\0", None),
            (b"\x03com\0", None),
            (b"\x01a\x07example\0", None),
            (b"\0", None),
            (b"", None),
        ] {
            assert_eq!(domain_start(name), start, "{name:?}");
        }
    }

    /// The right answer is right, with the name behind a pointer or whole, and with more behind it; an answer with
    /// any one bit of what counts changed is not.
    #[test]
    fn every_bit_counts() {
        let (bytes, tag) = answered(77);
        assert!(is_answer(tag, &bytes));
        let answer_at = bytes.len() - ANSWER_ADDS_BYTES;
        let mut whole = bytes[..answer_at].to_vec();
        whole.extend(&bytes[HEADER_BYTES..answer_at - 4]);
        whole.extend(&bytes[answer_at + 2..]);
        whole.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        assert!(is_answer(tag, &whole) && !is_validated(tag, &whole));
        whole[3] |= AUTHENTIC;
        assert!(is_validated(tag, &whole) && !is_validated(tag ^ 1, &whole));
        for bit in 16..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 0x80 >> (bit % 8);
            // AA, RD, RA, AD, CD and the reserved bit may be as they like; so may counts behind, and the TTL.
            let free = matches!(bit, 21 | 23 | 24..=27) || (64..96).contains(&bit);
            let ttl = (answer_at + 6) * 8..(answer_at + 10) * 8;
            assert_eq!(is_answer(tag, &changed), free || ttl.contains(&bit), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|length| !is_answer(tag, &bytes[..length])));
    }

    /// An echo is the query and as many bytes more as an answer has.
    #[test]
    fn an_echo_is_no_answer() {
        let (mut bytes, tag) = query(5);
        bytes.extend([0; ANSWER_ADDS_BYTES]);
        assert!(is_echo(tag, &bytes) && !is_answer(tag, &bytes));
        assert!(!is_echo(tag ^ 1, &bytes) && !is_echo(tag, &bytes[..bytes.len() - 1]));
        let mut room = [0; 200];
        let Query { length, tag } = write(1, 5, true, &mut room);
        assert_eq!(length + ANSWER_ADDS_BYTES, bytes.len() + OPT.len());
        assert!(is_echo(tag, &room[..length + ANSWER_ADDS_BYTES]));
        assert!(!is_echo(tag, &room[..bytes.len()]));
    }

    /// A mix has its share of hot names, all of them, and its fresh names never come again.
    #[test]
    fn a_mix_has_its_share() {
        let fresh = Arc::new(AtomicU64::new(FRESH_FROM));
        let mut mix = Mix::new(100, 0.9, &fresh, 1);
        let numbers: Vec<u64> = (0..20_000).map(|_| mix.draw()).collect();
        let misses: Vec<u64> = numbers.iter().copied().filter(|n| *n >= FRESH_FROM).collect();
        assert_eq!(misses.len() as u64, mix.misses);
        assert!((1800..2200).contains(&misses.len()), "{}", misses.len());
        assert!(misses.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(numbers.iter().filter(|n| **n < 100).collect::<HashSet<_>>().len(), 100);
        let mut hot = Mix::new(1, 1.0, &fresh, 2);
        assert!((0..1000).all(|_| hot.draw() == 0) && hot.misses == 0);
        let mut cold = Mix::new(1, 0.0, &fresh, 3);
        assert!((0..1000).all(|_| cold.draw() >= FRESH_FROM) && cold.misses == 1000);
    }
}
