//! An upstream that knows every address at once: one thread, batches in and out.
//!
//! Any question for an address is answered with the one that follows from the name (see
//! [`super::query`]); anything else, which servers ask for reasons of their own, with an empty answer. So
//! what is measured is the server that asks. Answers may come late by a fixed time, or not at all at random.
//! Bound to all addresses, it is also root, top level and domains' servers at the addresses of
//! [`super::hierarchy`].
//!
//! Bounds: [`DELAYED_MAX`] answers that wait; more are dropped. Cost: about that of an echo.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder_io::epoll::{Events, Interest, Poller};
use larder_io::udp::{RecvBatch, Route, SendBatch, UdpSocket};

use super::hierarchy::{self, Role};
use super::query::{HEADER_BYTES, OPT, TYPE_A_CLASS_IN, address, name_end, name_hash};
use super::signed::{NAME_BYTES_MAX, Signer};
use crate::data::mix;
use crate::net::MESSAGE_BYTES_MAX;

/// Most answers that wait for their time.
pub const DELAYED_MAX: usize = 1 << 16;
/// Longest sleep before it looks whether it should stop.
const STOP_CHECK_MS: u64 = 10;
const BATCH: usize = 64;
/// Where an OPT record has its flags, and the one for signatures in them (RFC 3225).
const OPT_FLAGS: usize = 7;
const DO: u8 = 0x80;

/// How the upstream behaves.
#[derive(Debug, Clone)]
pub struct StubOptions {
    /// TTL of answers, in seconds.
    pub ttl_s: u32,
    /// How late answers come. Below a millisecond the thread turns instead of sleeping.
    pub delay: Duration,
    /// Share of the questions that get no answer, 0 to 1.
    pub loss: f64,
    /// Share of the domains whose first server refuses, 0 to 1.
    pub lame: f64,
    /// What signs the zones of the hierarchy.
    pub signer: Option<Arc<Signer>>,
}

impl Default for StubOptions {
    fn default() -> StubOptions {
        StubOptions { ttl_s: 3600, delay: Duration::ZERO, loss: 0.0, lame: 0.0, signer: None }
    }
}

/// The queries that the upstream received. Read while it runs.
#[derive(Debug, Default)]
pub struct StubCounts {
    /// Queries for addresses, also those that got no answer.
    pub queries: AtomicU64,
    /// Anything else.
    pub others: AtomicU64,
}

/// Answers what comes to `socket` until told to stop.
pub fn stub(
    socket: &UdpSocket,
    options: &StubOptions,
    counts: &StubCounts,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut incoming = RecvBatch::new(BATCH, MESSAGE_BYTES_MAX);
    let mut outgoing = SendBatch::new(BATCH, MESSAGE_BYTES_MAX);
    let (poller, mut events) = (Poller::new()?, Events::new(1));
    poller.add(socket, 0, Interest::READ)?;
    let mut delayed: VecDeque<(Instant, Vec<u8>, Route)> = VecDeque::new();
    let lost_below = (options.loss.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
    let mut draws = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let received = incoming.recv(socket)?;
        let (mut queries, mut others) = (0, 0);
        for message in incoming.messages() {
            let Some(slot) = outgoing.slot() else { break };
            let local = message.route.local.map(|local| local.address);
            let Some((length, is_address)) = answer(message.bytes, local, options, slot) else {
                others += 1;
                continue;
            };
            queries += u64::from(is_address);
            others += u64::from(!is_address);
            draws += 1;
            if mix(draws) >> 32 < lost_below {
                continue;
            }
            if options.delay.is_zero() {
                outgoing.commit(length, Some(&message.route));
            } else if delayed.len() < DELAYED_MAX {
                let due = Instant::now() + options.delay;
                delayed.push_back((due, slot[..length].to_vec(), message.route));
            }
        }
        if received > 0 {
            counts.queries.fetch_add(queries, Ordering::Relaxed);
            counts.others.fetch_add(others, Ordering::Relaxed);
        }
        let now = delayed.front().map(|_| Instant::now());
        while let Some((due, bytes, route)) = delayed.front()
            && now.is_some_and(|now| *due <= now)
            && outgoing.push(bytes, Some(route))
        {
            delayed.pop_front();
        }
        let is_idle = received == 0 && outgoing.is_empty();
        outgoing.send(socket);
        outgoing.clear();
        if is_idle {
            let wait = delayed.front().zip(now).map(|((due, ..), now)| due.duration_since(now));
            let wait_ms = wait.map_or(STOP_CHECK_MS, |wait| wait.as_millis() as u64);
            poller.wait(&mut events, Some(wait_ms.min(STOP_CHECK_MS)))?;
        }
    }
    Ok(())
}

/// Writes the answer to a message that came to `local`: its bytes, and whether an address was asked for. `None`:
/// not a question.
pub(super) fn answer(
    message: &[u8],
    local: Option<IpAddr>,
    options: &StubOptions,
    room: &mut [u8],
) -> Option<(usize, bool)> {
    let header = message.first_chunk::<HEADER_BYTES>()?;
    // A query of the usual kind, with one question.
    if header[2] & 0xf8 != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let end = name_end(message, HEADER_BYTES)?;
    let kind = message.get(end..end + 4)?;
    let mut folded = [0; 256];
    let name = folded.get_mut(..end - HEADER_BYTES)?;
    name.copy_from_slice(&message[HEADER_BYTES..end]);
    // Lengths are below 64, where no letter is.
    name.make_ascii_lowercase();
    room[..end + 4].copy_from_slice(&message[..end + 4]);
    // QR, and RD as asked.
    room[2] = 0x80 | (header[2] & 1);
    room[3] = 0;
    room[6..HEADER_BYTES].fill(0);
    let mut reply = Reply { room, length: end + 4 };
    let is_address = kind == TYPE_A_CLASS_IN;
    // The additional section of a query holds an OPT record or nothing.
    let opt = message[end + 4..].first_chunk().filter(|_| header[10..12] != [0, 0]);
    let wants_signatures = opt.is_some_and(|opt: &[u8; OPT.len()]| opt[OPT_FLAGS] & DO != 0);
    let signer = options.signer.as_deref();
    let signer = signer.filter(|_| wants_signatures && name.len() <= NAME_BYTES_MAX);
    match local.and_then(Role::of) {
        Some(role) => hierarchy::answer(&mut reply, role, name, kind, options, signer),
        None => {
            reply.room[3] = 0x80; // RA
            if is_address {
                reply.address(
                    Section::Answer,
                    &[0xc0, 12],
                    options.ttl_s,
                    address(name_hash(name)),
                );
            }
        }
    }
    if header[10..12] != [0, 0] {
        let mut opt = OPT;
        opt[OPT_FLAGS] |= if signer.is_some() { DO } else { 0 };
        reply.put(&opt);
        reply.count(Section::Additional);
    }
    Some((reply.length, is_address))
}

/// A section of a message, by the place of its count.
#[derive(Clone, Copy)]
pub(super) enum Section {
    Answer = 6,
    Authority = 8,
    Additional = 10,
}

/// An answer that is being written. A question is at most 271 bytes, and what is added to it below 200; where it is
/// signed, both together are below 1,000.
pub(super) struct Reply<'a> {
    pub(super) room: &'a mut [u8],
    length: usize,
}

impl Reply<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.room[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn count(&mut self, section: Section) {
        self.room[section as usize + 1] += 1;
    }

    /// Adds a record of class IN.
    pub(super) fn record(
        &mut self,
        section: Section,
        owner: &[u8],
        kind: u8,
        ttl_s: u32,
        data: &[u8],
    ) {
        self.put(owner);
        self.put(&[0, kind, 0, 1]);
        self.put(&ttl_s.to_be_bytes());
        self.put(&(data.len() as u16).to_be_bytes());
        self.put(data);
        self.count(section);
    }

    /// Adds an address.
    pub(super) fn address(&mut self, section: Section, owner: &[u8], ttl_s: u32, address: [u8; 4]) {
        self.record(section, owner, 1, ttl_s, &address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::query;
    use crate::net::load::{Load, LoadOptions, load};
    use larder_io::udp::UdpOptions;

    /// Sends a stub `count` queries; what came of it, and how many the stub counted.
    fn load_stub(options: &StubOptions, count: u64, lost_after: Duration) -> (Load, u64) {
        let socket =
            UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
        let address = socket.local_address().unwrap();
        let (stop, counts) = (AtomicBool::new(false), StubCounts::default());
        let load = std::thread::scope(|scope| {
            let stub = scope.spawn(|| stub(&socket, options, &counts, &stop).unwrap());
            let options = LoadOptions {
                warm_up: Duration::ZERO,
                measured: Duration::from_secs(20),
                in_flight_max: 32,
                lost_after,
                ..LoadOptions::new(address)
            };
            let mut number = 0;
            let write_query = |id, room: &mut [u8]| {
                number += 1;
                (number <= count).then(|| query::write(id, number, false, room))
            };
            let load = load(&options, write_query, query::is_answer).unwrap();
            stop.store(true, Ordering::Relaxed);
            stub.join().unwrap();
            load
        });
        (load, counts.queries.load(Ordering::Relaxed))
    }

    /// Every answer is right, and each question is counted.
    #[test]
    fn it_knows_every_address() {
        let (load, counted) = load_stub(&StubOptions::default(), 500, Duration::from_secs(20));
        assert_eq!((load.answers, load.wrong, load.lost, counted), (500, 0, 0, 500));
    }

    /// Answers come late by the delay, and a share of them does not come.
    #[test]
    fn it_delays_and_loses() {
        let delay = Duration::from_millis(5);
        let options = StubOptions { delay, loss: 0.5, ..StubOptions::default() };
        let (load, counted) = load_stub(&options, 100, Duration::from_millis(500));
        assert_eq!((load.wrong, counted, load.answers + load.lost), (0, 100, 100));
        assert!((20..=80).contains(&load.lost), "{}", load.lost);
        assert!(load.latency.percentile(0.0) >= 5_000_000);
    }

    /// What is no question gets no answer; other types get an empty one; case is kept, and means nothing; an OPT
    /// record is answered with one. Messages cut anywhere do no harm.
    #[test]
    fn it_is_a_server() {
        let (options, mut room) = (StubOptions::default(), [0; MESSAGE_BYTES_MAX]);
        let mut query = [0; 200];
        let length = query::write(7, 1, false, &mut query).length;
        let tag = query::write(7, 1, false, &mut query).tag;
        let (end, is_address) = answer(&query[..length], None, &options, &mut room).unwrap();
        assert!(is_address && query::is_answer(tag, &room[..end]));
        assert_eq!(end, length + query::ANSWER_ADDS_BYTES);
        let right = room[end - 4..end].to_vec();
        for cut in 0..length {
            assert_eq!(answer(&query[..cut], None, &options, &mut room), None);
        }

        query[HEADER_BYTES..length - 4].make_ascii_uppercase();
        query[11] = 1;
        query[length..length + OPT.len()].copy_from_slice(&OPT);
        let (end, _) = answer(&query[..length + OPT.len()], None, &options, &mut room).unwrap();
        assert_eq!(end, length + query::ANSWER_ADDS_BYTES + OPT.len());
        assert_eq!(room[length + 12..length + 16], right);
        assert_eq!(room[HEADER_BYTES..length], query[HEADER_BYTES..length]);

        query[length - 3] = 28;
        let (end, is_address) = answer(&query[..length], None, &options, &mut room).unwrap();
        assert!(!is_address && end == length + OPT.len() && room[6..8] == [0, 0]);
        query[2] |= 0x80;
        assert_eq!(answer(&query[..length], None, &options, &mut room), None);
    }
}
