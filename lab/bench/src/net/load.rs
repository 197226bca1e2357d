//! A load generator: many queries in flight, every answer matched and checked.
//!
//! Closed: a query is sent when a response has come, so that a number of them is always in flight; that
//! finds what a server can do. Open (`rate_per_s`): queries leave by a clock whatever the server does, and
//! a time counts from the moment at which its query was due; that finds how long clients wait. A closed
//! load hides waiting, since it sends less while the server is slow.
//!
//! life of a query      where                             leaves by
//! sent                 in a slot, by its ID              its answer, or `lost_after`
//!
//! Invariants
//! 1. The first two bytes of a query are its ID, and so are those of its answer. The slot of an ID keeps
//!    the ID, so an answer that comes after its query was given up matches none, until all 65,536 IDs
//!    have been used in between; the check then finds it wrong.
//! 2. `in_flight` is the number of slots in use, at most `in_flight_max`.
//!
//! Bounds: slots for four times what is in flight, batches of buffers. Cost: one `sendmmsg` and one
//! `recvmmsg` a batch and what the closures take. Times are taken once a batch.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use larder_io::epoll::{Events, Interest, Poller};
use larder_io::random::Random;
use larder_io::udp::{Ports, RecvBatch, SendBatch, UdpOptions, UdpSocket};
use larder_serve::histogram::Histogram;

use super::{MESSAGE_BYTES_MAX, SOCKET_BUFFER_BYTES};
use crate::clock::ThreadTime;

/// Most queries in flight a socket, so that IDs are not used again too soon.
pub const IN_FLIGHT_MAX: usize = 1 << 14;
/// Most sockets.
pub const SOCKETS_MAX: usize = 1 << 10;

/// How to load a server.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The server.
    pub server: SocketAddr,
    /// Sockets, each with a port of its own: a server that shares its address among cores spreads clients
    /// by port. 1 to [`SOCKETS_MAX`].
    pub sockets: usize,
    /// Queries in flight a socket, 1 to [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// Messages a system call.
    pub batch: usize,
    /// Answers that come before this are checked, and not counted otherwise.
    pub warm_up: Duration,
    /// How long to count.
    pub measured: Duration,
    /// A query without an answer is given up after this.
    pub lost_after: Duration,
    /// Queries a second by the clock, over all sockets; `None`: as fast as answers come.
    pub rate_per_s: Option<u32>,
}

impl LoadOptions {
    /// As fast as answers come, for three seconds after one of warming up.
    pub fn new(server: SocketAddr) -> LoadOptions {
        LoadOptions {
            server,
            sockets: 1,
            in_flight_max: 256,
            batch: 64,
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(3),
            lost_after: Duration::from_secs(1),
            rate_per_s: None,
        }
    }
}

/// A query that was written.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// Its bytes, the ID among them.
    pub length: usize,
    /// What the check needs to know of it.
    pub tag: u64,
}

/// What came of a load.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Right answers that were counted.
    pub answers: u64,
    /// Answers that the check refused, in all the time. More than none is no result but a fault.
    pub wrong: u64,
    /// Answers to nothing that was in flight: late ones, or second ones.
    pub unexpected: u64,
    /// Queries given up.
    pub lost: u64,
    /// Queries that did not leave, and refusals by the server's host.
    pub refused: u64,
    /// Seconds in which `answers` were counted.
    pub seconds: f64,
    /// From query (open load: from when it was due) to answer, of those counted.
    pub latency: Histogram,
    /// Nanoseconds that the generator ran, of all the time.
    pub ran_ns: f64,
    /// Queries sent in all the time.
    pub sent: u64,
}

impl Load {
    /// Answers a second by the clock.
    pub fn answers_per_s(&self) -> f64 {
        self.answers as f64 / self.seconds.max(1e-9)
    }

    /// Adds what came of a load on another thread at the same time.
    pub fn merge(&mut self, other: &Load) {
        self.answers += other.answers;
        self.wrong += other.wrong;
        self.unexpected += other.unexpected;
        self.lost += other.lost;
        self.refused += other.refused;
        self.seconds = self.seconds.max(other.seconds);
        self.latency.merge(&other.latency);
        self.ran_ns += other.ran_ns;
        self.sent += other.sent;
    }
}

/// Loads a server from the calling thread.
///
/// `write_query` writes the next query, which begins with the given ID; `None` means that there are no more, and
/// the load ends when all are answered or given up. `check` states whether bytes are the response to the
/// query with this tag; that IDs agree has been seen.
pub fn load(
    options: &LoadOptions,
    mut write_query: impl FnMut(u16, &mut [u8]) -> Option<Query>,
    mut check: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<Load> {
    let mut generator = Generator::new(options)?;
    let time = ThreadTime::start();
    let end_ns = generator.count_from_ns.saturating_add(nanoseconds(options.measured));
    let mut now_ns = 0;
    while now_ns < end_ns && !generator.is_done() {
        let mut moved = 0;
        for socket in 0..generator.sockets.len() {
            moved += generator.send(socket, &mut write_query)?;
            moved += generator.receive(socket, &mut check)?;
        }
        now_ns = generator.now_ns();
        generator.give_up(now_ns);
        if moved == 0 {
            let wait_ms = generator.wait_ms(now_ns);
            generator.poller.wait(&mut generator.events, Some(wait_ms))?;
        }
    }
    let counted_ns = now_ns.saturating_sub(generator.count_from_ns);
    generator.found.seconds = counted_ns as f64 / 1e9;
    generator.found.ran_ns = time.elapsed_ns();
    Ok(generator.found)
}

/// A query under way.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// When it left, or was due; `FREE` where there is none.
    since_ns: u64,
    tag: u64,
    id: u16,
}

/// No time is 0: the clock begins at 1.
const FREE: u64 = 0;

struct Client {
    socket: UdpSocket,
    slots: Box<[Slot]>,
    next_id: u16,
    in_flight: usize,
}

struct Generator {
    start: Instant,
    sockets: Vec<Client>,
    incoming: RecvBatch,
    outgoing: SendBatch,
    poller: Poller,
    /// Which socket is ready is not looked at: the loop reads them all.
    events: Events,
    in_flight_max: usize,
    lost_after_ns: u64,
    next_give_up_ns: u64,
    count_from_ns: u64,
    /// Nanoseconds between queries; 0 for a closed load.
    every_ns: f64,
    /// No more queries.
    sent_all: bool,
    found: Load,
}

impl Generator {
    fn new(options: &LoadOptions) -> io::Result<Generator> {
        let in_flight_max = options.in_flight_max.clamp(1, IN_FLIGHT_MAX);
        let slots = (in_flight_max * 4).next_power_of_two().max(1024);
        let udp = UdpOptions {
            receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
            send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
            ..UdpOptions::default()
        };
        let poller = Poller::new()?;
        let mut random = Random::new();
        let sockets = (0..options.sockets.clamp(1, SOCKETS_MAX))
            .map(|token| {
                let ports = Ports::UNPRIVILEGED;
                let socket = UdpSocket::connect(options.server, None, ports, &mut random, &udp)?;
                poller.add(&socket, token as u64, Interest::READ)?;
                let slots = vec![Slot::default(); slots].into_boxed_slice();
                Ok(Client { socket, slots, next_id: random.u16()?, in_flight: 0 })
            })
            .collect::<io::Result<Vec<Client>>>()?;
        Ok(Generator {
            start: Instant::now(),
            sockets,
            incoming: RecvBatch::new(options.batch, MESSAGE_BYTES_MAX),
            outgoing: SendBatch::new(options.batch, MESSAGE_BYTES_MAX),
            poller,
            events: Events::new(1),
            in_flight_max,
            lost_after_ns: nanoseconds(options.lost_after).max(1),
            next_give_up_ns: 0,
            count_from_ns: nanoseconds(options.warm_up),
            every_ns: options.rate_per_s.map_or(0.0, |rate| 1e9 / f64::from(rate.max(1))),
            sent_all: false,
            found: Load::default(),
        })
    }

    /// Time since the start, from 1.
    fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed()) + 1
    }

    fn is_done(&self) -> bool {
        self.sent_all && self.sockets.iter().all(|client| client.in_flight == 0)
    }

    /// When the next query is due; at once in a closed load.
    fn due_ns(&self) -> u64 {
        (self.found.sent as f64 * self.every_ns) as u64 + 1
    }

    /// How long nothing need be done: until the next query is due, or one may be lost. Below a
    /// millisecond the loop turns, since the kernel does not wait for less.
    fn wait_ms(&self, now_ns: u64) -> u64 {
        let mut until_ns = self.next_give_up_ns;
        let open = self.every_ns > 0.0 && !self.sent_all;
        if open && self.sockets.iter().any(|client| client.in_flight < self.in_flight_max) {
            until_ns = until_ns.min(self.due_ns());
        }
        (until_ns.saturating_sub(now_ns) / 1_000_000).min(10)
    }

    /// Sends what may leave now by one socket, a batch at most: how many queries.
    fn send(
        &mut self,
        socket: usize,
        write_query: &mut impl FnMut(u16, &mut [u8]) -> Option<Query>,
    ) -> io::Result<usize> {
        let now_ns = self.now_ns();
        while !self.sent_all && self.sockets[socket].in_flight < self.in_flight_max {
            let due_ns = self.due_ns();
            if self.every_ns > 0.0 && due_ns > now_ns {
                break;
            }
            let Some(room) = self.outgoing.slot() else { break };
            let client = &mut self.sockets[socket];
            let mask = client.slots.len() - 1;
            // At most a quarter of the slots is in use, so one is near.
            while client.slots[usize::from(client.next_id) & mask].since_ns != FREE {
                client.next_id = client.next_id.wrapping_add(1);
            }
            let id = client.next_id;
            let Some(Query { length, tag }) = write_query(id, room) else {
                self.sent_all = true;
                break;
            };
            let since_ns = if self.every_ns > 0.0 { due_ns } else { now_ns };
            client.slots[usize::from(id) & mask] = Slot { since_ns, tag, id };
            client.next_id = id.wrapping_add(1);
            client.in_flight += 1;
            debug_assert!(client.in_flight <= self.in_flight_max, "invariant 2");
            self.outgoing.commit(length.min(MESSAGE_BYTES_MAX), None);
            self.found.sent += 1;
        }
        if self.outgoing.is_empty() {
            return Ok(0);
        }
        let sent = self.outgoing.send(&self.sockets[socket].socket);
        // What did not leave stays in its slot, and is given up in time.
        self.found.refused += (sent.failed + self.outgoing.len()) as u64;
        self.outgoing.clear();
        Ok(sent.sent)
    }

    /// Receives what has come to one socket: how many messages.
    fn receive(
        &mut self,
        socket: usize,
        check: &mut impl FnMut(u64, &[u8]) -> bool,
    ) -> io::Result<usize> {
        let mut received = 0;
        loop {
            let count = match self.incoming.recv(&self.sockets[socket].socket) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.found.refused += 1;
                    return Ok(received);
                }
                Err(error) => return Err(error),
            };
            let now_ns = self.now_ns();
            let Client { slots, in_flight, .. } = &mut self.sockets[socket];
            let mask = slots.len() - 1;
            for message in self.incoming.messages() {
                let id = message.bytes.first_chunk().map(|id| u16::from_be_bytes(*id));
                let slot = id.map(|id| (id, &mut slots[usize::from(id) & mask]));
                let Some((_, slot)) = slot.filter(|(id, s)| s.since_ns != FREE && s.id == *id)
                else {
                    self.found.unexpected += 1;
                    continue;
                };
                if !check(slot.tag, message.bytes) {
                    // It stays in flight: the right answer may come yet.
                    self.found.wrong += 1;
                    continue;
                }
                if now_ns >= self.count_from_ns {
                    self.found.answers += 1;
                    self.found.latency.add(now_ns.saturating_sub(slot.since_ns));
                }
                slot.since_ns = FREE;
                *in_flight -= 1;
            }
            received += count;
            if count < self.incoming.capacity() {
                return Ok(received);
            }
        }
    }

    /// Gives up what has waited too long; looks four times in that time.
    fn give_up(&mut self, now_ns: u64) {
        if now_ns < self.next_give_up_ns {
            return;
        }
        self.next_give_up_ns = now_ns + self.lost_after_ns.div_ceil(4);
        for Client { slots, in_flight, .. } in &mut self.sockets {
            for slot in slots.iter_mut() {
                if slot.since_ns != FREE
                    && now_ns.saturating_sub(slot.since_ns) > self.lost_after_ns
                {
                    slot.since_ns = FREE;
                    *in_flight -= 1;
                    self.found.lost += 1;
                }
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests;
