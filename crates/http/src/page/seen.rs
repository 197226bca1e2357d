//! What notes of exchanges show: URLs, clients, status codes, times, and the last exchanges.
//!
//! ```text
//! table      key                     window               rows of a slice
//! urls       host and target         six times 10 min     4,096, the most requests
//! missed     the same, if it missed  six times 10 min     4,096, the most misses
//! clients    address                 six times 10 min     4,096, the most requests
//! statuses   status code             six times 10 min     1,024
//! tail       none                    none                 100, the latest
//! ```
//!
//! Invariants
//! 1. Each table has the bound above, whatever clients send (test `tables_are_bounded`).
//!
//! Time is an argument.

use std::collections::VecDeque;
use std::net::IpAddr;

use larder_serve::durations::Durations;
use larder_serve::recent::{Recent, Row};

use crate::notes::Note;

/// The exchanges that are listed.
pub const TAIL_MAX: usize = 100;

/// Seconds over which times are counted.
const TIMES_S: usize = 60;

/// A URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrlRow {
    /// Requests.
    pub requests: u64,
    /// Of them, those from the cache.
    pub hits: u64,
    /// Of them, those that waited for the origin and may be cached.
    pub misses: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// The last status code.
    pub status: u16,
    /// What orders the table.
    weight: u64,
}

impl Row for UrlRow {
    fn weight(&self) -> u64 {
        self.weight
    }

    fn merge(&mut self, later: UrlRow) {
        self.requests += later.requests;
        self.hits += later.hits;
        self.misses += later.misses;
        self.bytes = self.bytes.saturating_add(later.bytes);
        self.status = later.status;
        self.weight += later.weight;
    }
}

/// A client, or a status code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountRow {
    /// Requests.
    pub requests: u64,
    /// Of them, those with a status code of 400 or more, or without a response.
    pub errors: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}

impl Row for CountRow {
    fn weight(&self) -> u64 {
        self.requests
    }

    fn merge(&mut self, later: CountRow) {
        self.requests += later.requests;
        self.errors += later.errors;
        self.bytes = self.bytes.saturating_add(later.bytes);
    }
}

/// Times of a second.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Of responses from the cache.
    pub hits: Durations,
    /// Of misses.
    pub misses: Durations,
    /// The largest weight of a note.
    pub weight_max: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Seen {
    /// By URL.
    pub urls: Recent<Box<[u8]>, UrlRow>,
    /// Those that missed.
    pub missed: Recent<Box<[u8]>, UrlRow>,
    /// By client.
    pub clients: Recent<IpAddr, CountRow>,
    /// By status code.
    pub statuses: Recent<u16, CountRow>,
    /// The last exchanges, the latest last.
    pub tail: VecDeque<Note>,
    seconds: VecDeque<Times>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            urls: Recent::new(600, 6, 4_096),
            missed: Recent::new(600, 6, 4_096),
            clients: Recent::new(600, 6, 4_096),
            statuses: Recent::new(600, 6, 1_024),
            tail: VecDeque::new(),
            seconds: VecDeque::from([Times::default()]),
        }
    }
}

impl Seen {
    /// Begins a second.
    pub fn advance(&mut self) {
        self.seconds.push_back(Times::default());
        while self.seconds.len() > TIMES_S {
            self.seconds.pop_front();
        }
    }

    /// Adds an exchange at `now_s`.
    pub fn take(&mut self, note: Note, now_s: u64) {
        let requests = u64::from(note.weight);
        let bytes = note.body_bytes.saturating_mul(requests);
        let of = |is: bool| if is { requests } else { 0 };
        let errors = of(note.status >= 400 || note.status == 0);
        let count = CountRow { requests, errors, bytes };
        self.clients.add(note.client, count, now_s);
        self.statuses.add(note.status, count, now_s);
        if let Some(times) = self.seconds.back_mut() {
            times.weight_max = times.weight_max.max(note.weight);
            if note.is_hit() {
                times.hits.note_many(note.duration_us.into(), requests);
            } else if note.is_miss() {
                times.misses.note_many(note.duration_us.into(), requests);
            }
        }
        if !note.method.is_empty() {
            let (hits, misses) = (of(note.is_hit()), of(note.is_miss()));
            let status = note.status;
            let row = UrlRow { requests, hits, misses, bytes, status, weight: requests };
            self.urls.add(note.url.clone(), row, now_s);
            if misses > 0 {
                self.missed.add(note.url.clone(), UrlRow { weight: misses, ..row }, now_s);
            }
        }
        if self.tail.len() >= TAIL_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(note);
    }

    /// Times of the last minute.
    pub fn times(&self) -> Times {
        let mut sum = Times::default();
        let add = |sum: &mut Durations, one: &Durations| {
            sum.words().zip(one.values()).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
        };
        for second in &self.seconds {
            add(&mut sum.hits, &second.hits);
            add(&mut sum.misses, &second.misses);
            sum.weight_max = sum.weight_max.max(second.weight_max);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(url: &[u8], cache: &'static str, weight: u32) -> Note {
        Note {
            unix_ms: 1,
            body_bytes: 10,
            duration_us: 3,
            weight,
            client: IpAddr::from([192, 0, 2, 1]),
            status: if cache == "method" { 404 } else { 200 },
            cache,
            method: b"GET"[..].into(),
            url: url.into(),
        }
    }

    /// Exchanges are counted by URL, by client, by status code and by what the cache did.
    #[test]
    fn exchanges_are_counted() {
        let mut seen = Seen::default();
        seen.take(note(b"a/", "hit", 4), 60);
        seen.take(note(b"a/", "uri-miss", 1), 60);
        seen.take(note(b"b/", "method", 2), 60);
        seen.take(Note { method: Box::default(), ..note(b"\x16", "none", 1) }, 60);
        let urls = seen.urls.merged(60, 9);
        let UrlRow { requests, hits, misses, bytes, status, .. } = urls[0].1;
        assert_eq!((urls.len(), requests, hits, misses, bytes, status), (2, 5, 4, 1, 50, 200));
        assert_eq!(seen.missed.merged(60, 9).len(), 1);
        let client = seen.clients.merged(60, 9)[0].1;
        assert_eq!(client, CountRow { requests: 8, errors: 2, bytes: 80 });
        let statuses = seen.statuses.merged(60, 9);
        assert_eq!((statuses[0].0, statuses[1].0, statuses[1].1.requests), (200, 404, 2));
        let times = seen.times();
        assert_eq!((times.hits.count(), times.misses.count(), times.weight_max), (4, 1, 4));
        for _ in 0..TIMES_S {
            seen.advance();
        }
        assert_eq!(seen.times().hits.count(), 0);
    }

    /// Invariant 1.
    #[test]
    fn tables_are_bounded() {
        let mut seen = Seen::default();
        for number in 0..40_000_u32 {
            let [_, a, b, c] = number.to_be_bytes();
            let mut note = note(&number.to_be_bytes(), "uri-miss", 1);
            (note.client, note.status) = (IpAddr::from([10, a, b, c]), number as u16);
            seen.take(note, u64::from(number / 8));
            assert!(seen.urls.rows() <= 6 * 4_096 && seen.missed.rows() <= 6 * 4_096);
            assert!(seen.clients.rows() <= 6 * 4_096 && seen.statuses.rows() <= 6 * 1_024);
            assert!(seen.tail.len() <= TAIL_MAX);
        }
    }
}
