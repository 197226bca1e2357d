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
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use larder_io::event::{Event, Events, Interest, Poller, Waker};
use larder_io::random::Random;
use larder_io::udp::{RecvBatch, SendBatch, UdpSocket};

use crate::core::{Client, Core, Net, Now};
use crate::pool::{Origin, Pool};

/// Messages received or sent by one system call.
const BATCH: usize = 64;

/// Octets of the longest question over UDP: what is longer is cut, and so malformed.
const QUESTION_BYTES_MAX: usize = 2_048;

/// Octets of the longest answer of an upstream over UDP.
const ANSWER_BYTES_MAX: usize = 4_096;

/// Batches taken of one socket in a turn.
const BATCHES_MAX: usize = 4;

/// Turns after which the kernel is asked what is ready, however busy a listener is.
const BUSY_TURNS_MAX: u32 = 8;

/// The longest wait, milliseconds: what is idle looks around this often.
const WAIT_MS_MAX: u64 = 1_000;

/// Events of one wait.
const EVENTS_MAX: usize = 256;

/// Tokens of the poller by their upper octet; the rest says which.
const LISTENERS: u64 = 0;
const UPSTREAMS: u64 = 1 << 56;
const WAKER: u64 = 2 << 56;
const SPACE: u64 = 0xff << 56;

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
    poller: Poller,
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
}

impl Listener {
    fn flush(&mut self) -> u64 {
        let sent = self.outgoing.send(&self.socket);
        let dropped = sent.failed + self.outgoing.len();
        self.outgoing.clear();
        dropped as u64
    }
}

impl Net for Sockets {
    #[inline]
    fn answer(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Client::Udp { socket, route } = client else { return false };
        let Some(listener) = self.listeners.get_mut(usize::from(*socket)) else { return false };
        if listener.outgoing.len() == listener.outgoing.capacity() {
            self.unsent += listener.flush();
        }
        let Some(room) = listener.outgoing.slot() else { return false };
        let bytes_max = bytes_max.min(room.len());
        let Some(length) = write(&mut room[..bytes_max]) else { return false };
        listener.outgoing.commit(length, Some(route));
        true
    }

    fn ignore(&mut self, _: &Client) {}

    fn ask(&mut self, upstream: usize, message: &[u8]) -> Option<u32> {
        let Sockets { pools, origin, numbers, random, poller, now_ms, .. } = self;
        let asked = pools.get_mut(upstream)?.ask(message, *now_ms, origin, numbers, random, poller);
        if asked.is_err() {
            self.unasked += 1;
        }
        asked.ok()
    }

    fn ask_by_stream(&mut self, _: usize, _: u64, _: &[u8]) -> bool {
        false
    }
}

/// What a core is made of.
pub struct Parts {
    /// What decides.
    pub core: Core,
    /// Bound sockets to be asked by.
    pub listeners: Vec<UdpSocket>,
    /// Addresses of the upstreams, as the core numbers them.
    pub upstreams: Vec<SocketAddr>,
    /// How upstreams are asked.
    pub origin: Origin,
    /// The longest answer over UDP, octets.
    pub udp_bytes_max: u16,
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
    incoming: RecvBatch,
    answers: RecvBatch,
    events: Events,
    clock: Clock,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    busy_turns: u32,
}

impl Driver {
    /// Takes the parts and registers the sockets.
    pub fn new(parts: Parts) -> io::Result<Driver> {
        let poller = Poller::new()?;
        poller.add(&*parts.waker, WAKER, Interest::READ)?;
        let mut listeners = Vec::new();
        for (at, socket) in parts.listeners.into_iter().enumerate() {
            poller.add(&socket, LISTENERS | at as u64, Interest::READ)?;
            let outgoing = SendBatch::new(BATCH, usize::from(parts.udp_bytes_max));
            listeners.push(Listener { socket, outgoing, is_busy: false });
        }
        let pools = (parts.upstreams.iter().enumerate())
            .map(|(at, &address)| Pool::new(address, UPSTREAMS | (at as u64) << 32))
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
        };
        Ok(Driver {
            core: parts.core,
            sockets,
            incoming: RecvBatch::new(BATCH, QUESTION_BYTES_MAX),
            answers: RecvBatch::new(BATCH, ANSWER_BYTES_MAX),
            events: Events::new(EVENTS_MAX),
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

    fn turn(&mut self) -> io::Result<()> {
        let is_busy = self.sockets.listeners.iter().any(|listener| listener.is_busy);
        let asks_kernel =
            !is_busy || self.core.in_flight() > 0 || self.busy_turns == BUSY_TURNS_MAX;
        let mut ready = 0;
        if asks_kernel {
            self.busy_turns = 0;
            let now = self.clock.now();
            let wait_ms = if is_busy {
                0
            } else {
                self.core.wait_ms(now).unwrap_or(WAIT_MS_MAX).min(WAIT_MS_MAX)
            };
            ready = self.sockets.poller.wait(&mut self.events, Some(wait_ms))?;
        } else {
            self.busy_turns += 1;
        }
        let now = self.clock.now();
        self.sockets.now_ms = now.us / 1_000;
        self.core.begin();
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
        self.core.tick(now, &mut self.sockets);
        for listener in &mut self.sockets.listeners {
            self.sockets.unsent += listener.flush();
        }
        for pool in &mut self.sockets.pools {
            pool.flush();
            pool.tick(self.sockets.now_ms);
        }
        self.core.finish();
        Ok(())
    }

    fn handle(&mut self, now: Now, event: Event) {
        let which = event.token & !SPACE;
        match event.token & SPACE {
            LISTENERS => {
                if let Some(listener) = self.sockets.listeners.get_mut(which as usize) {
                    listener.is_busy = true;
                }
            }
            UPSTREAMS => self.hear(now, (which >> 32) as usize, which as u32),
            // An eventfd that cannot be read would wake again: it is asked for an end each turn anyway.
            WAKER => drop(self.waker.clear()),
            _ => {}
        }
    }

    /// Takes what clients asked by one socket.
    fn serve(&mut self, now: Now, at: usize) {
        for _ in 0..BATCHES_MAX {
            let received = self.incoming.recv(&self.sockets.listeners[at].socket).unwrap_or(0);
            self.sockets.listeners[at].is_busy = received > 0;
            if received == 0 {
                return;
            }
            let batch = self.incoming.messages().map(|message| {
                let client = Client::Udp { socket: at as u16, route: message.route };
                (client, message.octets)
            });
            self.core.questions(now, batch, &mut self.sockets);
            if received < BATCH {
                return;
            }
            self.sockets.unsent += self.sockets.listeners[at].flush();
        }
    }

    /// Takes what an upstream answered by one socket.
    fn hear(&mut self, now: Now, upstream: usize, number: u32) {
        for _ in 0..BATCHES_MAX {
            let pool = self.sockets.pools.get(upstream);
            let Some(socket) = pool.and_then(|pool| pool.socket(number)) else { return };
            let received = match self.answers.recv(socket) {
                Ok(received) => received,
                // What ICMP says of a question that was sent before.
                Err(_) => return self.core.unreachable(now, upstream, &mut self.sockets),
            };
            for message in self.answers.messages() {
                let fits = !message.is_truncated()
                    && self.core.answered(now, number, message.octets, &mut self.sockets);
                if !fits && self.sockets.pools[upstream].stray(number) {
                    self.core.suspect(now, number, &mut self.sockets);
                }
            }
            if received < BATCH {
                return;
            }
        }
    }
}
