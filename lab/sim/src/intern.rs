//! Keys to dense numbers, once for all replayed caches.
//!
//! A trace's keys are 64-bit numbers from anywhere; a simulated cache wants them from 0 upwards, so that where
//! a key lies is one look into an array and not into a hash table of each cache. The thread that reads does
//! this once: a key's number is how many different keys came before it. So numbers do not depend on the hash
//! function, which has another seed in each process (a trace made to collide finds nothing to aim at).
//!
//! A [`Batch`] is the result: numbers alone where the trace has no more, and with them a [`Detail`] a
//! request where it has sizes, ends, stores or removals. Once a life with an end was seen all batches have
//! details, because a lookup's time matters from then on.
//!
//! Bounds: [`KEYS_MAX`] keys, some 34 bytes each while the table grows. Cost: one probe of a hash table a request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;

use crate::request::{Op, Request, TTL_NONE};

/// Different keys that a trace may have: 134 million. Beyond, it should be sampled (see [`crate::sample`]).
pub const KEYS_MAX: usize = 1 << 27;

/// A trace has more than [`KEYS_MAX`] different keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyKeys;

/// What a request has next to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// As [`Request::time_s`].
    pub time_s: u32,
    /// As [`Request::ttl_s`].
    pub ttl_s: u32,
    /// As [`Request::bytes`], 1 at least: what takes no room at all could be held without end.
    pub bytes: u32,
    /// As [`Request::op`].
    pub op: Op,
}

impl Detail {
    /// Of a lookup in a trace that has nothing else.
    pub const PLAIN: Detail = Detail { time_s: 0, ttl_s: TTL_NONE, bytes: 1, op: Op::Get };
}

/// Requests in order, their keys numbered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Numbers of the keys.
    pub ids: Vec<u32>,
    /// Parallel to `ids`, or empty where every request is [`Detail::PLAIN`] as far as it matters.
    pub details: Vec<Detail>,
    /// All numbers so far are below.
    pub keys: usize,
}

impl Batch {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.ids[..]) + size_of_val(&self.details[..])
    }
}

/// Numbers keys and sums up what was seen of them.
#[derive(Debug, Default)]
pub struct Intake {
    numbers: HashMap<u64, u32, RandomState>,
    /// A life with an end was seen.
    has_ends: bool,
    has_stores: bool,
    has_sizes: bool,
    distinct_bytes: u64,
    bytes_min: Option<u32>,
}

impl Intake {
    /// Knows no key yet.
    pub fn new() -> Intake {
        Intake::default()
    }

    /// Different keys so far.
    pub fn keys(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes of all different keys so far, each as large as it first was.
    pub fn distinct_bytes(&self) -> u64 {
        self.distinct_bytes
    }

    /// Bytes of the smallest request so far; 1 before the first.
    pub fn bytes_min(&self) -> u32 {
        self.bytes_min.unwrap_or(1)
    }

    /// True once a value came that ends by itself.
    pub fn has_ends(&self) -> bool {
        self.has_ends
    }

    /// True once something else than a lookup came.
    pub fn has_stores(&self) -> bool {
        self.has_stores
    }

    /// True once a request came that is not one byte large.
    pub fn has_sizes(&self) -> bool {
        self.has_sizes
    }

    /// Numbers the keys of `requests`, which come after all that came before.
    pub fn batch(&mut self, requests: &[Request]) -> Result<Batch, TooManyKeys> {
        for request in requests {
            self.has_ends |= request.ttl_s != TTL_NONE;
            self.has_stores |= request.op != Op::Get;
            self.has_sizes |= request.bytes != 1;
            let bytes = request.bytes.max(1);
            self.bytes_min = Some(self.bytes_min.map_or(bytes, |least| least.min(bytes)));
        }
        let mut ids = Vec::with_capacity(requests.len());
        for request in requests {
            ids.push(self.number(request)?);
        }
        let is_plain = !(self.has_ends || self.has_stores || self.has_sizes);
        let details = if is_plain { Vec::new() } else { requests.iter().map(detail).collect() };
        Ok(Batch { ids, details, keys: self.keys() })
    }

    #[inline]
    fn number(&mut self, request: &Request) -> Result<u32, TooManyKeys> {
        let count = self.numbers.len();
        match self.numbers.entry(request.key) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(_) if count >= KEYS_MAX => Err(TooManyKeys),
            Entry::Vacant(new) => {
                self.distinct_bytes += u64::from(request.bytes.max(1));
                Ok(*new.insert(count as u32))
            }
        }
    }
}

fn detail(request: &Request) -> Detail {
    let Request { time_s, ttl_s, bytes, op, .. } = *request;
    Detail { time_s, ttl_s, bytes: bytes.max(1), op }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers count different keys in order of appearance, over batches; plain requests have no details.
    #[test]
    fn numbers_are_dense_and_in_order() {
        let mut intake = Intake::new();
        let gets = |keys: &[u64]| keys.iter().map(|key| Request::get(*key)).collect::<Vec<_>>();
        let batch = intake.batch(&gets(&[u64::MAX, 7, u64::MAX, 0])).unwrap();
        assert_eq!(batch, Batch { ids: vec![0, 1, 0, 2], details: vec![], keys: 3 });
        let batch = intake.batch(&gets(&[0, 9, 7])).unwrap();
        assert_eq!((batch.ids, batch.keys), (vec![2, 3, 1], 4));
        assert_eq!((intake.distinct_bytes(), intake.bytes_min()), (4, 1));
    }

    /// From the first life with an end on, every batch has details, plain lookups too: their time counts.
    #[test]
    fn details_come_when_they_matter() {
        let mut intake = Intake::new();
        assert!(intake.batch(&[Request::get(1)]).unwrap().details.is_empty());
        let ends = Request { ttl_s: 5, bytes: 0, ..Request::get(1) };
        let batch = intake.batch(&[ends]).unwrap();
        assert_eq!(batch.details, [Detail { ttl_s: 5, ..Detail::PLAIN }], "no bytes count as one");
        assert_eq!(intake.batch(&[Request::get(2)]).unwrap().details, [Detail::PLAIN]);
        assert!(intake.has_ends() && !intake.has_stores());
    }
}
