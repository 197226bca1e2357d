//! Compares pairs of responses, and counts the results.
//!
//! A pair is equal in every field; or differs as expected (`known.rs`); or differs. Differences are
//! counted by kind, and the first of each kind are stored as examples, each name and type once.
//! TTLs are not a difference, but are reported as a distribution.
//!
//! Bounds: [`KINDS_MAX`] kinds, the rest in one; [`EXAMPLES_A_KIND`] examples of each, of some
//! kilobytes at most.

use std::collections::BTreeMap;

use larder_serve::histogram::Histogram;
use larder_wire::dns::edns::rcode;

use super::known::{Case, KNOWN, excuse};
use super::pairs::Pair;
use super::spread::SignedSpread;
use crate::compare::{Field, View};
use crate::presentation;

/// Kinds of differences that are counted separately.
const KINDS_MAX: usize = 64;

/// Examples that are stored of each kind.
pub(super) const EXAMPLES_A_KIND: usize = 3;

/// Bytes of an example's response as text.
const EXAMPLE_BYTES_MAX: usize = 2_048;

/// The kind of all further differences.
const REST: &str = "of further kinds";

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The name.
    pub name: String,
    /// The type.
    pub rtype: String,
    /// Larder's response.
    pub ours: String,
    /// The resolver's response.
    pub theirs: String,
}

/// Differences of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Different {
    /// Their number.
    pub count: u64,
    /// The first of them, each name and type once.
    pub examples: Vec<Example>,
}

/// All results.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Queries of clients, without the warm-up.
    pub queries: u64,
    /// Queries during the warm-up.
    pub warm_up: u64,
    /// Queries seen again while they were open.
    pub repeated: u64,
    /// Messages to the resolver that are not valid queries.
    pub malformed: u64,
    /// Queries skipped without room.
    pub passed_over: u64,
    /// Responses of the resolver without a query.
    pub unsolicited: u64,
    /// Queries without a response of the resolver in the copy.
    pub unanswered_theirs: u64,
    /// Queries without a response of larder in time.
    pub unanswered_ours: u64,
    /// Queries to which larder would not have responded, by policy or rate.
    pub ignored_ours: u64,
    /// Pairs of which one response could not be read.
    pub unreadable: u64,
    /// Pairs compared.
    pub compared: u64,
    /// Pairs equal in every field.
    pub equal: u64,
    /// Pairs that differ only as expected.
    pub expected: u64,
    /// Number of pairs for each expected difference.
    pub known: [u64; KNOWN.len()],
    /// Pairs that differ otherwise, by kind.
    pub different: BTreeMap<String, Different>,
    /// Larder's TTL minus the resolver's, seconds, of records that both sent.
    pub ttl_s: SignedSpread,
    /// Larder's response times, microseconds.
    pub ours_us: Histogram,
    /// The resolver's response times, microseconds.
    pub theirs_us: Histogram,
    /// Fast responses of the resolver.
    pub fast_theirs: u64,
    /// Responses of the resolver without a query to an upstream in the copy.
    pub unforwarded_theirs: u64,
    /// Queries of the resolver to its upstreams.
    pub upstream_theirs: u64,
}

impl Tally {
    /// Compares a pair. The resolver was fast if it took less than `fast_us`.
    pub(super) fn compare(&mut self, pair: &Pair, fast_us: u64) {
        if !pair.is_counted {
            return;
        }
        let Some(bytes) = &pair.ours.bytes else {
            self.ignored_ours += 1;
            return;
        };
        let (Ok(ours), Ok(theirs)) = (View::read(bytes), View::read(&pair.theirs.bytes)) else {
            self.unreadable += 1;
            return;
        };
        self.compared += 1;
        self.time(pair, fast_us);
        ours.ttl_differences(&theirs).into_iter().for_each(|by_s| self.ttl_s.note(by_s));
        let mut fields = ours.differences(&theirs);
        if fields.is_empty() {
            self.equal += 1;
            return;
        }
        let [.., type_high, type_low, class_high, class_low] = *pair.question else { return };
        let qtype = u16::from_be_bytes([type_high, type_low]);
        let qclass = u16::from_be_bytes([class_high, class_low]);
        let recursion_desired = pair.recursion_desired;
        let case = Case { qtype, qclass, recursion_desired, ours: &ours, theirs: &theirs };
        let mut rows = Vec::new();
        excuse(&case, &mut fields, |at| rows.push(at));
        if fields.is_empty() {
            self.expected += 1;
            rows.into_iter().for_each(|at| self.known[at] += 1);
            return;
        }
        let kind = kind(&fields, &ours, &theirs);
        let is_new = !self.different.contains_key(&kind);
        let is_full = self.different.len() >= KINDS_MAX;
        let kind = if is_new && is_full { REST.to_owned() } else { kind };
        let different = self.different.entry(kind).or_default();
        different.count += 1;
        if different.examples.len() < EXAMPLES_A_KIND {
            let example = example(&pair.question, qtype, &ours, &theirs);
            let is_same_query =
                |other: &Example| (&other.name, &other.rtype) == (&example.name, &example.rtype);
            if !different.examples.iter().any(is_same_query) {
                different.examples.push(example);
            }
        }
    }

    fn time(&mut self, pair: &Pair, fast_us: u64) {
        self.ours_us.add(u64::try_from(pair.ours.took.as_micros()).unwrap_or(u64::MAX));
        self.unforwarded_theirs += u64::from(!pair.theirs.has_queried);
        if let Some(took_ns) = pair.theirs.took_ns {
            self.theirs_us.add(took_ns / 1_000);
            self.fast_theirs += u64::from(took_ns / 1_000 < fast_us);
        }
    }

    /// Pairs with unexpected differences.
    pub fn differences(&self) -> u64 {
        self.different.values().map(|different| different.count).sum()
    }
}

/// The name of a difference: by the field that matters most to a client.
fn kind(fields: &[Field], ours: &View, theirs: &View) -> String {
    if fields.contains(&Field::Rcode) {
        let mut text = "larder ".to_owned();
        presentation::push_rcode(&mut text, ours.rcode);
        text.push_str(", the resolver ");
        presentation::push_rcode(&mut text, theirs.rcode);
        return text;
    }
    if fields.contains(&Field::Answer) && ours.rcode == rcode::NOERROR {
        let what = match (ours.answers().is_empty(), theirs.answers().is_empty()) {
            (true, false) => "only the resolver has an answer",
            (false, true) => "only larder has an answer",
            _ if ours.has_same_sets(theirs) => "other data in the answer",
            _ => "other records in the answer",
        };
        return what.to_owned();
    }
    let names: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
    names.join(", ")
}

fn example(question: &[u8], qtype: u16, ours: &View, theirs: &View) -> Example {
    let (mut name, mut rtype) = (String::new(), String::new());
    presentation::push_name(&mut name, question);
    presentation::push_type(&mut rtype, qtype);
    let text = |view: &View| {
        let mut text = format!("{view:?}");
        // ASCII throughout, so it can be cut anywhere.
        if text.len() > EXAMPLE_BYTES_MAX {
            text.truncate(EXAMPLE_BYTES_MAX);
            text.push_str("...");
        }
        text
    };
    Example { name, rtype, ours: text(ours), theirs: text(theirs) }
}

#[cfg(test)]
mod tests {
    use super::super::pairs::{Ours, Theirs};
    use super::*;
    use std::time::Duration;

    const QUESTION: &[u8] = b"\x01a\0\0\x01\0\x01";

    fn answer(rcode: u8, last: &[u8], ttl_s: u8) -> Vec<u8> {
        let mut out = vec![0, 1, 0x81, 0x80 | rcode, 0, 1, 0, last.len() as u8, 0, 0, 0, 0];
        out.extend_from_slice(QUESTION);
        for last in last {
            out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, ttl_s, 0, 4, 192, 0, 2, *last]);
        }
        out
    }

    fn pair(ours: Option<Vec<u8>>, theirs: Vec<u8>) -> Pair {
        let took = Duration::from_micros(100);
        Pair {
            question: QUESTION.into(),
            recursion_desired: true,
            is_counted: true,
            theirs: Theirs { bytes: theirs.into(), took_ns: Some(900_000), has_queried: true },
            ours: Ours { bytes: ours, took },
        }
    }

    /// Each pair is counted once, with its times, and differences are named by the field that
    /// matters most.
    #[test]
    fn pairs_are_counted_as_one_thing() {
        let mut tally = Tally::default();
        let same = pair(Some(answer(0, &[1, 2], 60)), answer(0, &[2, 1], 50));
        tally.compare(&same, 1_000);
        assert_eq!((tally.compared, tally.equal, tally.ttl_s.percentile(0.5)), (1, 1, 10));
        assert_eq!((tally.fast_theirs, tally.unforwarded_theirs), (1, 0));
        assert_eq!((tally.ours_us.max(), tally.theirs_us.max()), (100, 900));
        tally.compare(&Pair { is_counted: false, ..same }, 1_000);
        for (ours, theirs, kind) in [
            (answer(0, &[1], 1), answer(3, &[], 1), "larder NOERROR, the resolver NXDOMAIN"),
            (answer(0, &[1], 1), answer(0, &[2], 1), "other data in the answer"),
            (answer(0, &[1], 1), answer(0, &[], 1), "only larder has an answer"),
            (answer(0, &[], 1), answer(0, &[2], 1), "only the resolver has an answer"),
        ] {
            tally.compare(&pair(Some(ours), theirs), 1_000);
            assert_eq!(tally.different.get(kind).map(|found| found.count), Some(1), "{kind}");
        }
        let example = &tally.different["other data in the answer"].examples[0];
        assert_eq!((example.name.as_str(), example.rtype.as_str()), ("a.", "A"));
        assert!(example.ours.contains("a. 1 A 192.0.2.1"), "{example:?}");
        tally.compare(&pair(None, answer(0, &[1], 1)), 1_000);
        tally.compare(&pair(Some(vec![1, 2, 3]), answer(0, &[1], 1)), 1_000);
        assert_eq!((tally.ignored_ours, tally.unreadable, tally.differences()), (1, 1, 4));
        assert_eq!(tally.compared, tally.equal + tally.expected + tally.differences());
    }

    /// Kinds and their examples are bounded.
    #[test]
    fn kinds_are_bounded() {
        let mut tally = Tally::default();
        for upper in 0..=255_u8 {
            let mut theirs = answer(3, &[], 1);
            theirs[11] = 1;
            theirs.extend_from_slice(&[0, 0, 41, 4, 208, upper, 0, 0, 0, 0, 0]);
            for _ in 0..EXAMPLES_A_KIND + 1 {
                tally.compare(&pair(Some(answer(0, &[], 1)), theirs.clone()), 1_000);
            }
        }
        assert_eq!((tally.differences(), tally.different.len()), (1_024, KINDS_MAX + 1));
        assert!(
            tally.different.values().all(|kind| kind.examples.len() == 1),
            "one name, one example"
        );
        for name in b'b'..=b'z' {
            let mut other = pair(Some(answer(0, &[], 1)), answer(3, &[], 1));
            other.question[1] = name;
            tally.compare(&other, 1_000);
        }
        assert!(tally.different.values().all(|kind| kind.examples.len() <= EXAMPLES_A_KIND));
        assert_eq!(
            tally.different["larder NOERROR, the resolver NXDOMAIN"].examples.len(),
            EXAMPLES_A_KIND
        );
    }
}
