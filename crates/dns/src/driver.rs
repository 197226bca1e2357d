//! One core's loop: sockets, clock, and the core that decides.
//!
//! ```text
//! turn    wait for what is ready, unless something was a moment ago
//!         answers of upstreams, then questions of clients      in batches, bounded, so that nobody waits for ever
//!         timers
//!         send what was queued; make visible what was stored
//! ```
//!
//! While questions come without a pause and none is in flight, the kernel is not asked what is ready: that would be a
//! third system call beside receiving and sending. Every [`BUSY_TURNS_MAX`] turns it is asked all the same.
//!
//! Nothing in a turn waits. A message that the kernel has no room for is dropped and counted, as UDP would.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use larder_io::event::{Event, Events, Interest, Poller, Waker};
use larder_io::random::Random;
use larder_io::udp::{RecvBatch, Route, SendBatch, UdpSocket};

use crate::core::{Client, Core, Net, Now};
use crate::exchanges::{self, Exchanges, Outcome};
use crate::pool::{Origin, Pool};
use crate::reload::Follower;
use crate::streams::{self, StreamId, Streams};

/// Messages received or sent by one system call.
const BATCH: usize = 64;

/// Octets of the longest question over UDP: what is longer is cut, and so malformed. Buffers of batches are walked from end
/// to end all the time, so they are no longer than they need be.
const QUESTION_BYTES_MAX: usize = 1_232;

/// Batches taken of one socket in a turn.
const BATCHES_MAX: usize = 4;

/// Turns after which the kernel is asked what is ready, however busy a listener is.
const BUSY_TURNS_MAX: u32 = 8;

/// The longest wait, milliseconds: what is idle looks around this often.
const WAIT_MS_MAX: u64 = 1_000;

/// Events of one wait.
const EVENTS_MAX: usize = 256;

/// Tokens of the poller by their upper octet; the rest says which.
const LISTENERS: u8 = 0;
const UPSTREAMS: u8 = 1;
const WAKER: u8 = 2;
const STREAM_LISTENERS: u8 = 3;
const STREAMS: u8 = 4;
const EXCHANGES: u8 = 5;
const SPACE_SHIFT: u32 = 56;

fn token(space: u8, which: u64) -> u64 {
    u64::from(space) << SPACE_SHIFT | which
}

/// A steady clock that also tells the time of day, which steps only between runs of the program.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begun: Instant,
    begun_unix_us: u64,
}

impl Clock {
    /// Starts from the system's time of day.
    pub fn start() -> Clock {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Clock {
            begun: Instant::now(),
            begun_unix_us: since.map_or(0, |since| since.as_micros() as u64),
        }
    }

    /// The moment.
    pub fn now(&self) -> Now {
        let us = self.begun.elapsed().as_micros() as u64;
        let wall_s = (self.begun_unix_us + us) / 1_000_000;
        Now { us, wall_s: u32::try_from(wall_s).unwrap_or(u32::MAX) }
    }
}

/// A listening UDP socket and what is to be sent by it.
struct Listener {
    socket: UdpSocket,
    outgoing: SendBatch,
    /// It had questions when it was last asked.
    is_busy: bool,
}

/// Sockets of a core.
struct Sockets {
    poller: Arc<Poller>,
    listeners: Vec<Listener>,
    pools: Vec<Pool>,
    origin: Origin,
    /// Number of the last upstream socket that was opened.
    numbers: u32,
    random: Random,
    now_ms: u64,
    /// Answers that the kernel did not take, and questions to upstreams that could not be sent.
    unsent: u64,
    unasked: u64,
    /// Times that a stream could not be accepted.
    unaccepted: u64,
}

impl Listener {
    fn flush(&mut self) -> u64 {
        let sent = self.outgoing.send(&self.socket);
        let dropped = sent.failed + self.outgoing.len();
        self.outgoing.clear();
        dropped as u64
    }
}

/// What the core is given to speak through. Streams are apart from the sockets, since they hand out questions and take
/// answers in one call.
struct Lines<'a> {
    sockets: &'a mut Sockets,
    streams: &'a mut Streams,
    exchanges: &'a mut Exchanges,
}

impl Net for Lines<'_> {
    #[inline]
    fn answer(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        match client {
            Client::Udp { socket, route } => self.sockets.answer(*socket, route, bytes_max, write),
            Client::Stream { stream, .. } => {
                self.streams.answer(StreamId::from_bits(*stream), bytes_max, write)
            }
        }
    }

    fn ignore(&mut self, client: &Client) {
        if let Client::Stream { stream, .. } = client {
            self.streams.drop_question(StreamId::from_bits(*stream));
        }
    }

    fn ask(&mut self, upstream: usize, message: &[u8]) -> Option<u32> {
        let Sockets { pools, origin, numbers, random, poller, now_ms, .. } = &mut *self.sockets;
        let asked = pools.get_mut(upstream)?.ask(message, *now_ms, origin, numbers, random, poller);
        if asked.is_err() {
            self.sockets.unasked += 1;
        }
        asked.ok()
    }

    fn ask_by_stream(&mut self, upstream: usize, tag: u64, message: &[u8]) -> bool {
        let Sockets { pools, origin, poller, now_ms, .. } = &mut *self.sockets;
        let Some(address) = pools.get(upstream).map(Pool::address) else { return false };
        let local = origin.address_for(address);
        // What it may still wait for on another stream is not waited for any longer.
        self.exchanges.cancel(tag);
        self.exchanges.ask(address, local, tag, message, poller, *now_ms).is_ok()
    }
}

impl Sockets {
    #[inline]
    fn answer(
        &mut self,
        socket: u16,
        route: &Route,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Some(listener) = self.listeners.get_mut(usize::from(socket)) else { return false };
        if listener.outgoing.len() == listener.outgoing.capacity() {
            self.unsent += listener.flush();
        }
        let Some(room) = listener.outgoing.slot() else { return false };
        let bytes_max = bytes_max.min(room.len());
        let Some(length) = write(&mut room[..bytes_max]) else { return false };
        listener.outgoing.commit(length, Some(route));
        true
    }
}

/// What a core is made of.
pub struct Parts {
    /// What decides.
    pub core: Core,
    /// Bound sockets to be asked by.
    pub listeners: Vec<UdpSocket>,
    /// Listening sockets for streams.
    pub stream_listeners: Vec<TcpListener>,
    /// What streams of clients may do.
    pub stream_limits: streams::Limits,
    /// What streams to upstreams may do.
    pub exchange_limits: exchanges::Limits,
    /// Addresses of the upstreams, as the core numbers them.
    pub upstreams: Vec<SocketAddr>,
    /// How upstreams are asked.
    pub origin: Origin,
    /// The longest answer over UDP, octets.
    pub udp_bytes_max: u16,
    /// The policy, and those that come after it.
    pub policy: Follower,
    /// The clock, the same for all cores.
    pub clock: Clock,
    /// Ends the loop once it is set and the waker called.
    pub stop: Arc<AtomicBool>,
    /// Interrupts a wait.
    pub waker: Arc<Waker>,
}

/// One core's loop.
pub struct Driver {
    core: Core,
    sockets: Sockets,
    stream_listeners: Vec<TcpListener>,
    streams: Streams,
    exchanges: Exchanges,
    incoming: RecvBatch,
    answers: RecvBatch,
    events: Events,
    policy: Follower,
    clock: Clock,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    busy_turns: u32,
}

impl Driver {
    /// Takes the parts and registers the sockets.
    pub fn new(parts: Parts) -> io::Result<Driver> {
        let poller = Arc::new(Poller::new()?);
        poller.add(&*parts.waker, token(WAKER, 0), Interest::READ)?;
        let mut listeners = Vec::new();
        for (at, socket) in parts.listeners.into_iter().enumerate() {
            poller.add(&socket, token(LISTENERS, at as u64), Interest::READ)?;
            let outgoing = SendBatch::new(BATCH, usize::from(parts.udp_bytes_max));
            listeners.push(Listener { socket, outgoing, is_busy: false });
        }
        for (at, listener) in parts.stream_listeners.iter().enumerate() {
            poller.add(listener, token(STREAM_LISTENERS, at as u64), Interest::READ)?;
        }
        let pools = (parts.upstreams.iter().enumerate())
            .map(|(at, &address)| Pool::new(address, token(UPSTREAMS, (at as u64) << 32)))
            .collect();
        let sockets = Sockets {
            poller,
            listeners,
            pools,
            origin: parts.origin,
            numbers: 0,
            random: Random::new(),
            now_ms: 0,
            unsent: 0,
            unasked: 0,
            unaccepted: 0,
        };
        Ok(Driver {
            core: parts.core,
            sockets,
            stream_listeners: parts.stream_listeners,
            streams: Streams::new(parts.stream_limits, STREAMS),
            exchanges: Exchanges::new(parts.exchange_limits, EXCHANGES),
            incoming: RecvBatch::new(BATCH, QUESTION_BYTES_MAX),
            answers: RecvBatch::new(BATCH, usize::from(parts.udp_bytes_max)),
            events: Events::new(EVENTS_MAX),
            policy: parts.policy,
            clock: parts.clock,
            stop: parts.stop,
            waker: parts.waker,
            busy_turns: 0,
        })
    }

    /// Serves until told to stop. An error is the poller's, and there is no going on.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            self.turn()?;
        }
        Ok(())
    }

    /// What the core did.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// How long nothing is to be done if nothing comes, milliseconds.
    fn wait_ms(&self, now: Now) -> u64 {
        let now_ms = now.us / 1_000;
        let waits =
            [self.core.wait_ms(now), self.streams.wait_ms(now_ms), self.exchanges.wait_ms(now_ms)];
        waits.into_iter().flatten().fold(WAIT_MS_MAX, u64::min)
    }

    fn turn(&mut self) -> io::Result<()> {
        let is_busy = self.sockets.listeners.iter().any(|listener| listener.is_busy);
        let asks_kernel =
            !is_busy || self.core.in_flight() > 0 || self.busy_turns == BUSY_TURNS_MAX;
        let mut ready = 0;
        if asks_kernel {
            self.busy_turns = 0;
            let wait_ms = if is_busy { 0 } else { self.wait_ms(self.clock.now()) };
            ready = self.sockets.poller.wait(&mut self.events, Some(wait_ms))?;
        } else {
            self.busy_turns += 1;
        }
        let now = self.clock.now();
        self.sockets.now_ms = now.us / 1_000;
        self.core.begin();
        if let Some(policy) = self.policy.take_next() {
            self.core.set_policy(now, policy);
        }
        if ready > 0 {
            let events = std::mem::replace(&mut self.events, Events::new(1));
            for event in events.iter() {
                self.handle(now, event);
            }
            self.events = events;
        }
        for at in 0..self.sockets.listeners.len() {
            if self.sockets.listeners[at].is_busy {
                self.serve(now, at);
            }
        }
        self.finish(now);
        Ok(())
    }

    /// The end of a turn: timers, and what was queued leaves.
    fn finish(&mut self, now: Now) {
        let Driver { core, sockets, streams, exchanges, .. } = self;
        let (poller, now_ms) = (sockets.poller.clone(), sockets.now_ms);
        core.tick(now, &mut Lines { sockets, streams, exchanges });
        if !exchanges.is_empty() {
            let mut hear = |exchanges: &mut Exchanges, tag: u64, outcome: Outcome<'_>| {
                let octets = octets_of(outcome);
                let lines = &mut Lines { sockets, streams, exchanges };
                core.answered_by_stream(now, tag, octets, lines);
            };
            exchanges.expire(&poller, now_ms, &mut hear);
            exchanges.flush(&poller, now_ms, &mut hear);
        }
        if !streams.is_empty() {
            streams.expire(now_ms);
            streams.flush(&poller, now_ms, |streams, id, peer, question| {
                let client = Client::Stream { stream: id.to_bits(), peer };
                let batch = std::iter::once((client, question));
                core.questions(now, batch, &mut Lines { sockets, streams, exchanges });
            });
            // What was read only now may have to be asked by a stream.
            exchanges.flush(&poller, now_ms, |exchanges, tag, outcome| {
                let octets = octets_of(outcome);
                let lines = &mut Lines { sockets, streams, exchanges };
                core.answered_by_stream(now, tag, octets, lines);
            });
        }
        for listener in &mut sockets.listeners {
            sockets.unsent += listener.flush();
        }
        for pool in &mut sockets.pools {
            pool.flush();
            pool.tick(now_ms);
        }
        core.finish();
    }

    fn handle(&mut self, now: Now, event: Event) {
        let which = event.token & ((1 << SPACE_SHIFT) - 1);
        match (event.token >> SPACE_SHIFT) as u8 {
            LISTENERS => {
                if let Some(listener) = self.sockets.listeners.get_mut(which as usize) {
                    listener.is_busy = true;
                }
            }
            UPSTREAMS => self.hear(now, (which >> 32) as usize, which as u32),
            // An eventfd that cannot be read would wake again: it is asked for an end each turn anyway.
            WAKER => drop(self.waker.clear()),
            STREAM_LISTENERS => self.accept(which as usize),
            STREAMS => self.serve_stream(now, event),
            EXCHANGES => self.hear_exchange(now, event),
            _ => {}
        }
    }

    /// Takes streams of clients. Where the machine has no more descriptors they wait, and the poller tells of them again.
    fn accept(&mut self, at: usize) {
        let Some(listener) = self.stream_listeners.get(at) else { return };
        let now_ms = self.sockets.now_ms;
        if self.streams.accept(listener, &self.sockets.poller, now_ms).is_err() {
            self.sockets.unaccepted += 1;
        }
    }

    /// Takes what a client asked by a stream.
    fn serve_stream(&mut self, now: Now, event: Event) {
        let Driver { core, sockets, streams, exchanges, .. } = self;
        streams.ready(event, |streams, id, peer, question| {
            let client = Client::Stream { stream: id.to_bits(), peer };
            let batch = std::iter::once((client, question));
            core.questions(now, batch, &mut Lines { sockets, streams, exchanges });
        });
    }

    /// Takes what an upstream answered by a stream.
    fn hear_exchange(&mut self, now: Now, event: Event) {
        let Driver { core, sockets, streams, exchanges, .. } = self;
        let (poller, now_ms) = (sockets.poller.clone(), sockets.now_ms);
        exchanges.ready(event, &poller, now_ms, |exchanges, tag, outcome| {
            let octets = octets_of(outcome);
            let lines = &mut Lines { sockets, streams, exchanges };
            core.answered_by_stream(now, tag, octets, lines);
        });
    }

    /// Takes what clients asked by one socket.
    fn serve(&mut self, now: Now, at: usize) {
        for _ in 0..BATCHES_MAX {
            let received = self.incoming.recv(&self.sockets.listeners[at].socket).unwrap_or(0);
            self.sockets.listeners[at].is_busy = received > 0;
            if received == 0 {
                return;
            }
            let Driver { core, sockets, streams, exchanges, incoming, .. } = self;
            let batch = incoming.messages().map(|message| {
                let client = Client::Udp { socket: at as u16, route: message.route };
                (client, message.octets)
            });
            core.questions(now, batch, &mut Lines { sockets, streams, exchanges });
            if received < BATCH {
                return;
            }
            self.sockets.unsent += self.sockets.listeners[at].flush();
        }
    }

    /// Takes what an upstream answered by one socket.
    fn hear(&mut self, now: Now, upstream: usize, number: u32) {
        let Driver { core, sockets, streams, exchanges, answers, .. } = self;
        for _ in 0..BATCHES_MAX {
            let pool = sockets.pools.get(upstream);
            let Some(socket) = pool.and_then(|pool| pool.socket(number)) else { return };
            let received = answers.recv(socket);
            let lines = &mut Lines { sockets, streams, exchanges };
            // An error is what ICMP says of a question that was sent before.
            let Ok(received) = received else { return core.unreachable(now, upstream, lines) };
            for message in answers.messages() {
                let fits = if message.is_truncated() {
                    core.answered_in_part(now, number, message.octets, lines)
                } else {
                    core.answered(now, number, message.octets, lines)
                };
                if !fits && lines.sockets.pools[upstream].stray(number) {
                    core.suspect(now, number, lines);
                }
            }
            if received < BATCH {
                return;
            }
        }
    }
}

/// What an outcome brought.
fn octets_of(outcome: Outcome<'_>) -> Option<&[u8]> {
    match outcome {
        Outcome::Answer(octets) => Some(octets),
        Outcome::Failed(_) => None,
    }
}
