//! What an event loop notes for the page: facts of some of its exchanges.
//!
//! ```text
//! an event loop: notes.draw() at the beginning of an exchange, notes.record(exchange) at its end
//!                notes.flush(), ten times a second -> record channel -> the thread of the page
//! ```
//!
//! At low rates each exchange is noted, at high ones a random part, with weights ([`larder_serve::sampling`]).
//!
//! Invariants
//! 1. An event loop never waits: a full channel drops notes, and counts them ([`larder_serve::record_channel`]).
//! 2. A note has a bounded size: a URL is cut at [`URL_BYTES_MAX`] (test `urls_are_cut`).
//!
//! Cost for an exchange without a note: one subtraction. An exchange with a note is copied as for the access log.

use std::net::{IpAddr, Ipv6Addr};

use larder_serve::record_channel::RecordSender;
use larder_serve::sampling::Sampling;

use crate::access_log::format::{Exchange, RequestLine};

/// Bytes of a URL, at most.
pub const URL_BYTES_MAX: usize = 512;

/// What the cache did, by number: those of `Exchange::cache`; the first is for exchanges without it.
const CACHE: [&str; 8] =
    ["none", "hit", "hit-stale", "uri-miss", "vary-miss", "stale", "bypass", "method"];

/// The longest method.
const METHOD_BYTES_MAX: usize = 16;

/// Bytes of a note before its texts.
const HEAD_BYTES: usize = 8 + 8 + 4 + 4 + 16 + 2 + 1 + 1 + 2;

/// The notes of one event loop.
#[derive(Debug)]
pub struct Notes {
    sender: RecordSender,
    sampling: Sampling,
}

impl Notes {
    /// For one event loop; [`Notes::another`] makes those of the others.
    pub fn new(sender: RecordSender) -> Notes {
        Notes { sender, sampling: Sampling::default() }
    }

    /// For another event loop.
    pub fn another(&self) -> Notes {
        Notes::new(self.sender.another())
    }

    /// An exchange begins: the number of exchanges that it stands for; 0: it is not noted.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        self.sampling.draw()
    }

    /// Notes an exchange that has ended.
    pub fn record(&mut self, exchange: &Exchange<'_>, weight: u32) {
        self.sender.record(|out| Note::of(exchange, weight).write(out));
    }

    /// Passes the notes to the thread of the page. Called as often as counters are published.
    pub fn flush(&mut self) {
        self.sampling.begin_window();
        self.sender.flush();
    }

    /// Notes dropped because the channel was full.
    pub fn dropped(&self) -> u64 {
        self.sender.dropped()
    }
}

/// The facts of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When it began, milliseconds since 1970.
    pub unix_ms: u64,
    /// Bytes of the body that were sent.
    pub body_bytes: u64,
    /// From its beginning to the last byte of the response.
    pub duration_us: u32,
    /// The exchanges that this one stands for.
    pub weight: u32,
    /// The client.
    pub client: IpAddr,
    /// The status code; 0: there was no response.
    pub status: u16,
    /// What the cache did: a word of the access log, or `none`.
    pub cache: &'static str,
    /// The method; empty: the request was invalid.
    pub method: Box<[u8]>,
    /// Host and target, or the beginning of an invalid request.
    pub url: Box<[u8]>,
}

impl Note {
    /// True for a response from the cache.
    pub fn is_hit(&self) -> bool {
        matches!(self.cache, "hit" | "hit-stale")
    }

    /// True for an exchange that waited for the origin because the response was not cached, or no longer fresh.
    pub fn is_miss(&self) -> bool {
        matches!(self.cache, "uri-miss" | "vary-miss" | "stale")
    }

    fn of(exchange: &Exchange<'_>, weight: u32) -> Note {
        let (method, mut url) = match exchange.request_line {
            RequestLine::Request { method, target, .. } => {
                (method.as_bytes(), [exchange.host, target].concat())
            }
            RequestLine::Bytes(bytes) => (&[][..], bytes.to_vec()),
        };
        url.truncate(URL_BYTES_MAX);
        let word = exchange.cache.unwrap_or(CACHE[0]);
        Note {
            unix_ms: exchange.began_ms,
            body_bytes: exchange.body_bytes,
            duration_us: u32::try_from(exchange.duration_us).unwrap_or(u32::MAX),
            weight,
            client: exchange.client.to_canonical(),
            status: exchange.status,
            cache: CACHE.into_iter().find(|known| *known == word).unwrap_or(CACHE[0]),
            method: method.get(..METHOD_BYTES_MAX).unwrap_or(method).into(),
            url: url.into(),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let client = match self.client {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let cache = CACHE.into_iter().position(|known| known == self.cache).unwrap_or(0);
        out.extend_from_slice(&self.unix_ms.to_le_bytes());
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
        out.extend_from_slice(&self.duration_us.to_le_bytes());
        out.extend_from_slice(&self.weight.to_le_bytes());
        out.extend_from_slice(&client.octets());
        out.extend_from_slice(&self.status.to_le_bytes());
        out.extend_from_slice(&[cache as u8, self.method.len() as u8]);
        out.extend_from_slice(&(self.url.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.method);
        out.extend_from_slice(&self.url);
    }

    /// Takes the next note of a batch; `None`: there is none.
    pub fn take(bytes: &mut &[u8]) -> Option<Note> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let mut head = head.as_slice();
        let unix_ms = u64::from_le_bytes(part(&mut head)?);
        let body_bytes = u64::from_le_bytes(part(&mut head)?);
        let duration_us = u32::from_le_bytes(part(&mut head)?);
        let weight = u32::from_le_bytes(part(&mut head)?);
        let client = IpAddr::V6(Ipv6Addr::from(part::<16>(&mut head)?)).to_canonical();
        let status = u16::from_le_bytes(part(&mut head)?);
        let [cache, method] = part(&mut head)?;
        let url = usize::from(u16::from_le_bytes(part(&mut head)?));
        let cache = *CACHE.get(usize::from(cache))?;
        let (method, rest) = rest.split_at_checked(usize::from(method))?;
        let (url, rest) = rest.split_at_checked(url)?;
        *bytes = rest;
        let (method, url) = (method.into(), url.into());
        Some(Note { unix_ms, body_bytes, duration_us, weight, client, status, cache, method, url })
    }
}

fn part<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (part, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*part)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use larder_serve::record_channel::channel;

    /// An exchange of a URL.
    pub fn exchange<'a>(target: &'a [u8], cache: Option<&'a str>) -> Exchange<'a> {
        let protocol = "HTTP/1.1";
        Exchange {
            client: IpAddr::from([192, 0, 2, 1]),
            began_ms: 1_800_000_000_000,
            user: None,
            request_line: RequestLine::Request { method: "GET", target, protocol },
            host: b"www.example.org",
            referer: None,
            user_agent: None,
            status: 200,
            body_bytes: 1_000,
            duration_us: 70,
            cache,
            origin_status: None,
            origin_us: None,
            error: None,
        }
    }

    /// A note has the facts of its exchange; invalid requests, and unknown words, too.
    #[test]
    fn notes_are_read_again() {
        let (sender, received) = channel();
        let mut notes = Notes::new(sender);
        assert_eq!(notes.draw(), 1);
        notes.record(&exchange(b"/a?b", Some("uri-miss")), 3);
        let request_line = RequestLine::Bytes(b"\x16\x03");
        notes.record(&Exchange { request_line, ..exchange(b"", Some("other")) }, 1);
        notes.flush();
        let batch = received.try_recv().expect("a batch");
        let mut bytes = batch.bytes.as_slice();
        let one = Note::take(&mut bytes).expect("a note");
        assert_eq!((&*one.method, &*one.url), (&b"GET"[..], &b"www.example.org/a?b"[..]));
        assert_eq!((one.status, one.body_bytes, one.duration_us, one.weight), (200, 1_000, 70, 3));
        assert_eq!((one.client, one.is_miss()), (IpAddr::from([192, 0, 2, 1]), true));
        let two = Note::take(&mut bytes).expect("a note");
        assert_eq!((&*two.method, &*two.url, two.cache), (&b""[..], &b"\x16\x03"[..], "none"));
        assert_eq!((Note::take(&mut bytes), notes.dropped()), (None, 0));
        for end in 0..HEAD_BYTES + 10 {
            assert_eq!(Note::take(&mut &batch.bytes[..end]), None, "{end}");
        }
    }

    /// Invariant 2.
    #[test]
    fn urls_are_cut() {
        let long = vec![b'a'; 60_000];
        let note = Note::of(&exchange(&long, Some("hit")), 1);
        assert!(note.is_hit() && note.url.len() == URL_BYTES_MAX);
        let mut bytes = Vec::new();
        note.write(&mut bytes);
        assert_eq!(Note::take(&mut bytes.as_slice()), Some(note));
    }

    /// Invariant 1: a channel that is not read drops notes, and the event loop continues.
    #[test]
    fn a_full_channel_drops() {
        let (sender, received) = channel();
        let mut notes = Notes::new(sender);
        for _ in 0..100 {
            notes.record(&exchange(b"/", Some("hit")), 1);
            notes.flush();
        }
        assert_eq!(received.try_iter().count() as u64 + notes.dropped(), 100);
        assert!(notes.dropped() > 0);
    }
}
