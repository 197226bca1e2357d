//! Threads that send queries to name servers. Each is an event loop with a mailbox for queries, UDP
//! sockets, TCP connections and a resolver.
//!
//! ```text
//! send(query) -> the mailbox of the core's thread; dropped if it is full
//! turn: wait -> UDP responses, TCP, queries -> timers -> queued packets are sent
//! ```
//!
//! The sockets are those of a forwarder: a pool for each server ([`UpstreamUdp`]). Each query to a rarely
//! used server has its own port; queries to a busy server share sixteen ports that change. All sockets are
//! connected, so the kernel reports ICMP errors. There are at most [`POOLS_MAX`] pools; the least recently
//! used one is replaced.
//!
//! A thread drops a query when its turn comes if no client waits for it any more. Resolution ends after
//! nine tenths of a query's timeout. So a core gets SERVFAIL for a name that fails, and does not count the
//! backend as dead.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use larder_dns::backend::BackendQuery;
use larder_dns::clock::Clock;
use larder_dns::core::Now;
use larder_dns::upstream_tcp::{self, Outcome, UpstreamTcp};
use larder_dns::upstream_udp::UpstreamUdp;
use larder_io::epoll::{Event, Events, Interest, Poller, Waker};
use larder_io::random::Random;
use larder_io::udp::RecvBatch;
use larder_serve::counters::{Counters, Published};
use larder_serve::mailbox::Mailbox;

use crate::Options;
use crate::client::Client;
#[cfg(feature = "dnssec")]
use crate::dnssec;
use crate::resolver::{Counts, Net, Resolver};

/// The most servers with sockets.
pub const POOLS_MAX: usize = 512;

/// The most queries that are sent to one server in one call.
const BATCH: usize = 16;

/// The most batches received from one socket in a turn.
const BATCHES_MAX: usize = 4;

/// The most events of one wait, and the longest wait, milliseconds.
const EVENTS_MAX: usize = 256;
const WAIT_MS_MAX: u64 = 1_000;

/// Tokens by their upper byte.
const WAKER: u64 = 0;
const POOLS: u64 = 1;
const STREAMS: u8 = 2;
const SPACE_SHIFT: u32 = larder_io::table::ID_BITS;

/// The state that a thread shares with others.
#[derive(Debug)]
struct Inbox {
    /// Queries, and when they were sent here.
    mailbox: Mailbox<(BackendQuery, Instant), Waker>,
    is_stopping: AtomicBool,
    counts: Published<Counts>,
}

/// All threads.
#[derive(Debug)]
pub struct Threads {
    threads: Vec<(Arc<Inbox>, JoinHandle<()>)>,
}

impl Threads {
    /// Starts the threads.
    pub fn start(options: &Arc<Options>) -> io::Result<Threads> {
        let mut threads = Vec::new();
        for number in 0..options.threads.max(1) {
            let inbox = Arc::new(Inbox {
                mailbox: Mailbox::new(Waker::new()?, options.waiting_max.max(1)),
                is_stopping: AtomicBool::new(false),
                counts: Published::new(1),
            });
            let poller = Arc::new(Poller::new()?);
            poller.add(inbox.mailbox.waker(), WAKER, Interest::READ)?;
            let (thread_inbox, options) = (inbox.clone(), options.clone());
            let run = move || EventLoop::new(thread_inbox, options, poller).run();
            let handle = Builder::new().name(format!("recurse {number}")).spawn(run)?;
            threads.push((inbox, handle));
        }
        Ok(Threads { threads })
    }

    /// Sends a query to its thread. A full mailbox drops it.
    pub fn send(&self, query: BackendQuery) {
        let (inbox, _) = &self.threads[query.core() % self.threads.len()];
        // The drop of a returned query reports the failure to its core.
        let _ = inbox.mailbox.send((query, Instant::now()));
    }

    /// The counts of all threads.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.threads.iter().for_each(|(inbox, _)| sum.add(&inbox.counts.sum()));
        sum
    }

    /// Stops the threads.
    pub fn stop(self) {
        for (inbox, _) in &self.threads {
            inbox.is_stopping.store(true, Ordering::Release);
            let _ = inbox.mailbox.waker().wake();
        }
        for (_, handle) in self.threads {
            // A thread that panicked has ended too.
            let _ = handle.join();
        }
    }
}

/// The sockets to one server.
struct ServerSockets {
    server: IpAddr,
    pool: UpstreamUdp,
    used_ms: u64,
    is_dirty: bool,
}

/// The sockets to all servers.
struct Sockets {
    options: Arc<Options>,
    poller: Arc<Poller>,
    by_server: HashMap<IpAddr, u32>,
    sockets: Vec<ServerSockets>,
    /// Servers with queued packets.
    dirty: Vec<u32>,
    /// The server whose old sockets are checked next.
    next: usize,
    numbers: u32,
    random: Random,
    now_ms: u64,
    /// Events for the validator.
    #[cfg(feature = "dnssec")]
    resolver_events: Vec<dnssec::ResolverEvent>,
}

impl Sockets {
    fn at(&self, server: IpAddr) -> SocketAddr {
        SocketAddr::new(server, self.options.port)
    }

    /// The number of a server's sockets, which it creates if necessary.
    fn slot(&mut self, server: IpAddr) -> u32 {
        if let Some(&number) = self.by_server.get(&server) {
            return number;
        }
        let at = if self.sockets.len() < POOLS_MAX {
            self.sockets.len()
        } else {
            let used = |&at: &usize| (self.sockets[at].is_dirty, self.sockets[at].used_ms);
            (0..self.sockets.len()).min_by_key(used).unwrap_or(0)
        };
        let token = POOLS << SPACE_SHIFT | (at as u64) << u32::BITS;
        let pool = UpstreamUdp::of_batches(self.at(server), token, BATCH);
        let slot = ServerSockets { server, pool, used_ms: self.now_ms, is_dirty: false };
        match self.sockets.get_mut(at) {
            Some(old) => {
                self.by_server.remove(&old.server);
                *old = slot;
            }
            None => self.sockets.push(slot),
        }
        self.by_server.insert(server, at as u32);
        at as u32
    }

    /// Sends queued packets, and closes sockets without a query in flight.
    fn flush(&mut self) {
        for number in self.dirty.drain(..) {
            let slot = &mut self.sockets[number as usize];
            slot.is_dirty = false;
            slot.pool.flush();
        }
        if !self.sockets.is_empty() {
            self.next = (self.next + 1) % self.sockets.len();
            self.sockets[self.next].pool.tick(self.now_ms);
        }
    }
}

/// The network, as the resolver uses it.
struct ThreadNet<'a> {
    sockets: &'a mut Sockets,
    upstream_tcp: &'a mut UpstreamTcp,
}

impl Net<Client> for ThreadNet<'_> {
    fn send(
        &mut self,
        server: IpAddr,
        write: impl FnOnce(u32, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let number = self.sockets.slot(server);
        let Sockets { sockets, dirty, options, poller, numbers, random, now_ms, .. } = self.sockets;
        let slot = &mut sockets[number as usize];
        slot.used_ms = *now_ms;
        if !slot.is_dirty {
            slot.is_dirty = true;
            dirty.push(number);
        }
        slot.pool.query(*now_ms, &options.source, numbers, random, poller, write).is_ok()
    }

    fn send_tcp(&mut self, server: IpAddr, tag: u64, message: &[u8]) -> bool {
        let Sockets { options, poller, now_ms, .. } = &*self.sockets;
        let server = self.sockets.at(server);
        let local = options.source.address_for(server);
        self.upstream_tcp.query(server, local, tag, message, poller, *now_ms).is_ok()
    }

    #[cfg_attr(
        not(feature = "dnssec"),
        expect(unused_variables, reason = "only the validator uses the zone")
    )]
    fn respond(&mut self, client: Client, message: Vec<u8>, zone: &[u8]) {
        match client {
            Client::Core(query) => query.answer(message),
            #[cfg(feature = "dnssec")]
            Client::Validator(part) => {
                let (bytes, zone) = (message, zone.into());
                self.sockets.resolver_events.push(dnssec::ResolverEvent::Response {
                    part,
                    bytes,
                    zone,
                });
            }
        }
    }

    #[cfg(feature = "dnssec")]
    fn note_referral(&mut self, zone: &[u8], bytes: &[u8], until_ms: u64) {
        if self.sockets.options.validates() {
            let (zone, bytes) = (zone.into(), bytes.into());
            self.sockets.resolver_events.push(dnssec::ResolverEvent::Referral {
                zone,
                bytes,
                until_ms,
            });
        }
    }
}

/// One thread.
struct EventLoop {
    inbox: Arc<Inbox>,
    options: Arc<Options>,
    poller: Arc<Poller>,
    clock: Clock,
    resolver: Resolver<Client>,
    #[cfg(feature = "dnssec")]
    validator: Option<dnssec::Validator>,
    sockets: Sockets,
    upstream_tcp: UpstreamTcp,
    responses: RecvBatch,
    /// The start of a response that is too long.
    truncated: Vec<u8>,
    /// Waiting queries, and when they were sent here.
    waiting: VecDeque<(BackendQuery, Instant)>,
}

impl EventLoop {
    fn new(inbox: Arc<Inbox>, options: Arc<Options>, poller: Arc<Poller>) -> EventLoop {
        let clock = Clock::start();
        let sockets = Sockets {
            options: options.clone(),
            poller: poller.clone(),
            by_server: HashMap::new(),
            sockets: Vec::new(),
            dirty: Vec::new(),
            next: 0,
            numbers: 0,
            random: Random::new(),
            now_ms: 0,
            #[cfg(feature = "dnssec")]
            resolver_events: Vec::new(),
        };
        EventLoop {
            #[cfg(feature = "dnssec")]
            validator: options.anchors.as_ref().map(dnssec::Validator::new),
            resolver: Resolver::new(options.clone(), clock.now()),
            upstream_tcp: UpstreamTcp::new(upstream_tcp::Limits::default(), STREAMS),
            responses: RecvBatch::new(BATCH, options.udp_bytes_max.into()),
            truncated: Vec::new(),
            waiting: VecDeque::new(),
            inbox,
            options,
            poller,
            clock,
            sockets,
        }
    }

    /// Runs until the stop.
    fn run(mut self) {
        let mut events = Events::new(EVENTS_MAX);
        while !self.inbox.is_stopping.load(Ordering::Acquire) {
            let now = self.clock.now();
            let now_ms = now.us / 1_000;
            let waits = [self.resolver.wait_ms(now), self.upstream_tcp.wait_ms(now_ms)];
            let wait_ms = waits.into_iter().flatten().fold(WAIT_MS_MAX, u64::min);
            if self.poller.wait(&mut events, Some(wait_ms)).is_err() {
                // A poller fails only for wrong arguments. The drop of the queries reports the
                // failure.
                break;
            }
            self.turn(events.iter());
            self.inbox.counts.publish(0, self.resolver.counts());
        }
        self.inbox.mailbox.close();
    }

    fn turn(&mut self, events: impl Iterator<Item = Event>) {
        let now = self.clock.now();
        self.sockets.now_ms = now.us / 1_000;
        let mut is_woken = false;
        for event in events {
            match event.token >> SPACE_SHIFT {
                WAKER => is_woken = true,
                POOLS => self.receive(
                    now,
                    (event.token >> u32::BITS) as u32 & 0xf_ffff,
                    event.token as u32,
                ),
                _ => self.receive_tcp(now, event),
            }
        }
        if is_woken {
            // Clear the waker before the look at the mailbox: a later sender wakes the thread
            // again.
            let _ = self.inbox.mailbox.waker().clear();
            while !self.inbox.mailbox.may_sleep() {
                self.inbox.mailbox.take(usize::MAX, &mut self.waiting);
            }
        }
        self.begin(now);
        let EventLoop { resolver, sockets, upstream_tcp, .. } = self;
        let now_ms = sockets.now_ms;
        resolver.tick(now, &mut ThreadNet { sockets, upstream_tcp });
        #[cfg(feature = "dnssec")]
        self.validate(now);
        let EventLoop { resolver, sockets, upstream_tcp, poller, .. } = self;
        if !upstream_tcp.is_empty() {
            let mut receive = |upstream_tcp: &mut UpstreamTcp, tag: u64, outcome: Outcome<'_>| {
                resolver.receive_tcp(
                    now,
                    tag,
                    outcome.answer(),
                    &mut ThreadNet { sockets, upstream_tcp },
                );
            };
            upstream_tcp.expire(poller, now_ms, &mut receive);
            upstream_tcp.flush(poller, now_ms, &mut receive);
            #[cfg(feature = "dnssec")]
            self.validate(now);
        }
        self.sockets.flush();
    }

    /// Passes responses to the validator, and runs its look-ups, until it waits.
    #[cfg(feature = "dnssec")]
    fn validate(&mut self, now: Now) {
        let EventLoop {
            validator: Some(validator), resolver, sockets, upstream_tcp, options, ..
        } = self
        else {
            return;
        };
        loop {
            let events = std::mem::take(&mut sockets.resolver_events);
            if events.is_empty() && validator.is_idle() {
                return;
            }
            let net = &mut ThreadNet { sockets, upstream_tcp };
            let udp_bytes = options.udp_bytes_max;
            validator.advance_jobs(events, &mut dnssec::Context { now, resolver, net, udp_bytes });
        }
    }

    /// Client queries in flight.
    fn in_flight(&self) -> usize {
        #[cfg(feature = "dnssec")]
        if let Some(validator) = &self.validator {
            return validator.in_flight();
        }
        self.resolver.in_flight()
    }

    /// Starts waiting queries while there is room.
    fn begin(&mut self, now: Now) {
        while self.in_flight() < self.options.queries_max.max(1)
            && let Some((query, left)) = self.waiting.pop_front()
        {
            let wait_ms =
                u64::from(query.wait_ms()).saturating_sub(left.elapsed().as_millis() as u64);
            if wait_ms == 0 || !query.is_wanted() {
                continue;
            }
            let wait_ms = wait_ms * 9 / 10;
            #[cfg(feature = "dnssec")]
            if let Some(validator) = &mut self.validator {
                validator.begin(now, query, wait_ms);
                continue;
            }
            let message = query.message().to_vec();
            let EventLoop { resolver, sockets, upstream_tcp, .. } = self;
            let net = &mut ThreadNet { sockets, upstream_tcp };
            resolver.begin(now, Client::Core(query), &message, wait_ms, net);
        }
    }

    /// Receives the responses on one socket.
    fn receive(&mut self, now: Now, slot: u32, number: u32) {
        let EventLoop { resolver, sockets, upstream_tcp, responses, truncated, .. } = self;
        for _ in 0..BATCHES_MAX {
            let Some(ServerSockets { server, pool, .. }) = sockets.sockets.get(slot as usize)
            else {
                return;
            };
            let server = *server;
            let Some(socket) = pool.socket(number) else { return };
            // An error is an ICMP message about an earlier query.
            let Ok(received) = responses.recv(socket) else {
                return resolver.unreachable(now, server, &mut ThreadNet { sockets, upstream_tcp });
            };
            for message in responses.messages() {
                let bytes = if message.is_truncated() {
                    // Longer than the advertised size: handle it as truncated.
                    truncated.clear();
                    truncated.extend_from_slice(message.bytes);
                    truncated.get_mut(2).into_iter().for_each(|flags| *flags |= 2);
                    truncated.as_slice()
                } else {
                    message.bytes
                };
                let is_expected =
                    resolver.receive(now, number, bytes, &mut ThreadNet { sockets, upstream_tcp });
                // If another server has this slot now, the socket is not its own.
                let slot = sockets.sockets.get_mut(slot as usize).filter(|_| !is_expected);
                if slot.is_some_and(|slot| slot.pool.stray(number)) {
                    resolver.on_spoofing(now, number, &mut ThreadNet { sockets, upstream_tcp });
                }
            }
            if received < BATCH {
                return;
            }
        }
    }

    fn receive_tcp(&mut self, now: Now, event: Event) {
        let EventLoop { resolver, sockets, upstream_tcp, poller, .. } = self;
        let now_ms = sockets.now_ms;
        upstream_tcp.ready(event, poller, now_ms, |upstream_tcp, tag, outcome| {
            resolver.receive_tcp(
                now,
                tag,
                outcome.answer(),
                &mut ThreadNet { sockets, upstream_tcp },
            );
        });
    }
}
