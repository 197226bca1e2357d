//! Threads that ask name servers: each a loop with a mailbox for queries, sockets, streams and a walker.
//!
//! ```text
//! ask(query) -> the mailbox of the core's thread, or dropped where that is full
//! turn: wait -> answers, streams, queries -> timers -> what was queued leaves
//! ```
//!
//! Sockets are a forwarder's, a pool for each server ([`UpstreamUdp`]): so each question to a server that is rarely asked has a
//! port of its own, those to busy ones share sixteen that change, all of them are connected, and what the kernel says of a
//! server that is not there is heard. There are at most [`POOLS_MAX`] pools: whose use lies back longest makes room.
//!
//! A query that nobody waits for any more is dropped when its turn comes. All is over in nine tenths of a query's
//! wait: a name that cannot be found says nothing of who seeks it, and a core that waits in vain would think that dead.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use larder_serve::mailbox::Mailbox;

use crate::Options;
use crate::client::Client;
#[cfg(feature = "dnssec")]
use crate::dnssec;
use crate::resolver::{Counts, Net, Resolver};

/// Servers that there are sockets to.
pub const POOLS_MAX: usize = 512;

/// Questions to one server that leave together.
const BATCH: usize = 16;

/// Batches taken of one socket in a turn.
const BATCHES_MAX: usize = 4;

/// Events of one wait, and the longest wait, milliseconds.
const EVENTS_MAX: usize = 256;
const WAIT_MS_MAX: u64 = 1_000;

/// Tokens by their upper byte.
const WAKER: u64 = 0;
const POOLS: u64 = 1;
const STREAMS: u8 = 2;
const SPACE_SHIFT: u32 = larder_io::table::ID_BITS;

/// What others share with a thread.
#[derive(Debug)]
struct Inbox {
    /// Queries, and when they were left.
    mailbox: Mailbox<(BackendQuery, Instant), Waker>,
    is_stopping: AtomicBool,
    counts: Mutex<Counts>,
}

impl Inbox {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All threads.
#[derive(Debug)]
pub struct Threads {
    threads: Vec<(Arc<Inbox>, JoinHandle<()>)>,
}

impl Threads {
    /// Starts them.
    pub fn start(options: &Arc<Options>) -> io::Result<Threads> {
        let mut threads = Vec::new();
        for number in 0..options.threads.max(1) {
            let inbox = Arc::new(Inbox {
                mailbox: Mailbox::new(Waker::new()?, options.waiting_max.max(1)),
                is_stopping: AtomicBool::new(false),
                counts: Mutex::new(Counts::default()),
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

    /// Leaves a query; drops it where its thread has enough to do.
    pub fn send(&self, query: BackendQuery) {
        let (inbox, _) = &self.threads[query.core() % self.threads.len()];
        // A query that comes back is dropped, and so its core hears of it.
        let _ = inbox.mailbox.send((query, Instant::now()));
    }

    /// What they did.
    pub fn counts(&self) -> Counts {
        let each = self.threads.iter().map(|(inbox, _)| *inbox.counts());
        each.fold(Counts::default(), Counts::and)
    }

    /// Ends them.
    pub fn stop(self) {
        for (inbox, _) in &self.threads {
            inbox.is_stopping.store(true, Ordering::Release);
            let _ = inbox.mailbox.waker().wake();
        }
        for (_, handle) in self.threads {
            // One that panicked has ended too.
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

/// Sockets to all servers.
struct Sockets {
    options: Arc<Options>,
    poller: Arc<Poller>,
    by_server: HashMap<IpAddr, u32>,
    sockets: Vec<ServerSockets>,
    /// Those that have something to send.
    dirty: Vec<u32>,
    /// Whose old sockets are looked at next.
    next: usize,
    numbers: u32,
    random: Random,
    now_ms: u64,
    /// What the validator has to hear.
    #[cfg(feature = "dnssec")]
    resolver_events: Vec<dnssec::ResolverEvent>,
}

impl Sockets {
    fn at(&self, server: IpAddr) -> SocketAddr {
        SocketAddr::new(server, self.options.port)
    }

    /// The number of a server's line, which is there from now on.
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

    /// Sends what is queued, and closes sockets that are waited for no longer.
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

/// What the walker is given to speak through.
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
        slot.pool.ask(*now_ms, &options.source, numbers, random, poller, write).is_ok()
    }

    fn send_tcp(&mut self, server: IpAddr, tag: u64, message: &[u8]) -> bool {
        let Sockets { options, poller, now_ms, .. } = &*self.sockets;
        let server = self.sockets.at(server);
        let local = options.source.address_for(server);
        self.upstream_tcp.ask(server, local, tag, message, poller, *now_ms).is_ok()
    }

    #[cfg_attr(
        not(feature = "dnssec"),
        expect(unused_variables, reason = "who validates wants it")
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
    /// Of an answer that is too long.
    truncated: Vec<u8>,
    /// Queries whose turn has not come, and when they were left.
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

    /// Turns until the end.
    fn run(mut self) {
        let mut events = Events::new(EVENTS_MAX);
        while !self.inbox.is_stopping.load(Ordering::Acquire) {
            let now = self.clock.now();
            let now_ms = now.us / 1_000;
            let waits = [self.resolver.wait_ms(now), self.upstream_tcp.wait_ms(now_ms)];
            let wait_ms = waits.into_iter().flatten().fold(WAIT_MS_MAX, u64::min);
            if self.poller.wait(&mut events, Some(wait_ms)).is_err() {
                // A poller fails where its arguments are wrong, and these are not. Queries are told by being dropped.
                break;
            }
            self.turn(events.iter());
            *self.inbox.counts() = self.resolver.counts();
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
            // Before the mailbox is looked at: whoever sends after that wakes the thread again.
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

    /// Has what was found checked, and what is looked up for that found.
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

    /// Questions of clients that are on their way.
    fn in_flight(&self) -> usize {
        #[cfg(feature = "dnssec")]
        if let Some(validator) = &self.validator {
            return validator.in_flight();
        }
        self.resolver.in_flight()
    }

    /// Begins with what waits, as far as there is room.
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

    /// Takes what a server answered by one socket.
    fn receive(&mut self, now: Now, slot: u32, number: u32) {
        let EventLoop { resolver, sockets, upstream_tcp, responses, truncated, .. } = self;
        for _ in 0..BATCHES_MAX {
            let Some(ServerSockets { server, pool, .. }) = sockets.sockets.get(slot as usize)
            else {
                return;
            };
            let server = *server;
            let Some(socket) = pool.socket(number) else { return };
            // An error is what ICMP says of a question that was sent before.
            let Ok(received) = responses.recv(socket) else {
                return resolver.unreachable(now, server, &mut ThreadNet { sockets, upstream_tcp });
            };
            for message in responses.messages() {
                let bytes = if message.is_truncated() {
                    // Longer than we said we take: as if its sender had said so by TC.
                    truncated.clear();
                    truncated.extend_from_slice(message.bytes);
                    truncated.get_mut(2).into_iter().for_each(|flags| *flags |= 2);
                    truncated.as_slice()
                } else {
                    message.bytes
                };
                let is_expected =
                    resolver.receive(now, number, bytes, &mut ThreadNet { sockets, upstream_tcp });
                // Where the line has been given to another server, the socket is not its own.
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
