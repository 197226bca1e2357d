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
use crate::walker::{Counts, Net, Walker};

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
struct Desk {
    /// Queries, and when they were left.
    mailbox: Mailbox<(BackendQuery, Instant), Waker>,
    has_ended: AtomicBool,
    counts: Mutex<Counts>,
}

impl Desk {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All threads.
#[derive(Debug)]
pub struct Threads {
    threads: Vec<(Arc<Desk>, JoinHandle<()>)>,
}

impl Threads {
    /// Starts them.
    pub fn start(options: &Arc<Options>) -> io::Result<Threads> {
        let mut threads = Vec::new();
        for number in 0..options.threads.max(1) {
            let desk = Arc::new(Desk {
                mailbox: Mailbox::new(Waker::new()?, options.waiting_max.max(1)),
                has_ended: AtomicBool::new(false),
                counts: Mutex::new(Counts::default()),
            });
            let poller = Arc::new(Poller::new()?);
            poller.add(desk.mailbox.waker(), WAKER, Interest::READ)?;
            let (desk_there, options) = (desk.clone(), options.clone());
            let run = move || Loop::new(desk_there, options, poller).run();
            let handle = Builder::new().name(format!("recurse {number}")).spawn(run)?;
            threads.push((desk, handle));
        }
        Ok(Threads { threads })
    }

    /// Leaves a query; drops it where its thread has enough to do.
    pub fn ask(&self, query: BackendQuery) {
        let (desk, _) = &self.threads[query.core() % self.threads.len()];
        // A query that comes back is dropped, and so its core hears of it.
        let _ = desk.mailbox.send((query, Instant::now()));
    }

    /// What they did.
    pub fn counts(&self) -> Counts {
        let each = self.threads.iter().map(|(desk, _)| *desk.counts());
        each.fold(Counts::default(), Counts::and)
    }

    /// Ends them.
    pub fn stop(self) {
        for (desk, _) in &self.threads {
            desk.has_ended.store(true, Ordering::Release);
            let _ = desk.mailbox.waker().wake();
        }
        for (_, handle) in self.threads {
            // One that panicked has ended too.
            let _ = handle.join();
        }
    }
}

/// The sockets to one server.
struct Line {
    server: IpAddr,
    pool: UpstreamUdp,
    used_ms: u64,
    is_dirty: bool,
}

/// Sockets to all servers.
struct Lines {
    options: Arc<Options>,
    poller: Arc<Poller>,
    by_server: HashMap<IpAddr, u32>,
    lines: Vec<Line>,
    /// Those that have something to send.
    dirty: Vec<u32>,
    /// Whose old sockets are looked at next.
    next: usize,
    numbers: u32,
    random: Random,
    now_ms: u64,
    /// What the validator has to hear.
    #[cfg(feature = "dnssec")]
    heard: Vec<dnssec::Heard>,
}

impl Lines {
    fn at(&self, server: IpAddr) -> SocketAddr {
        SocketAddr::new(server, self.options.port)
    }

    /// The number of a server's line, which is there from now on.
    fn line(&mut self, server: IpAddr) -> u32 {
        if let Some(&number) = self.by_server.get(&server) {
            return number;
        }
        let at = if self.lines.len() < POOLS_MAX {
            self.lines.len()
        } else {
            let used = |&at: &usize| (self.lines[at].is_dirty, self.lines[at].used_ms);
            (0..self.lines.len()).min_by_key(used).unwrap_or(0)
        };
        let token = POOLS << SPACE_SHIFT | (at as u64) << u32::BITS;
        let pool = UpstreamUdp::of_batches(self.at(server), token, BATCH);
        let line = Line { server, pool, used_ms: self.now_ms, is_dirty: false };
        match self.lines.get_mut(at) {
            Some(old) => {
                self.by_server.remove(&old.server);
                *old = line;
            }
            None => self.lines.push(line),
        }
        self.by_server.insert(server, at as u32);
        at as u32
    }

    /// Sends what is queued, and closes sockets that are waited for no longer.
    fn flush(&mut self) {
        for number in self.dirty.drain(..) {
            let line = &mut self.lines[number as usize];
            line.is_dirty = false;
            line.pool.flush();
        }
        if !self.lines.is_empty() {
            self.next = (self.next + 1) % self.lines.len();
            self.lines[self.next].pool.tick(self.now_ms);
        }
    }
}

/// What the walker is given to speak through.
struct Ways<'a> {
    lines: &'a mut Lines,
    upstream_tcp: &'a mut UpstreamTcp,
}

impl Net<Client> for Ways<'_> {
    fn ask(&mut self, server: IpAddr, write: impl FnOnce(u32, &mut [u8]) -> Option<usize>) -> bool {
        let number = self.lines.line(server);
        let Lines { lines, dirty, options, poller, numbers, random, now_ms, .. } = self.lines;
        let line = &mut lines[number as usize];
        line.used_ms = *now_ms;
        if !line.is_dirty {
            line.is_dirty = true;
            dirty.push(number);
        }
        line.pool.ask(*now_ms, &options.origin, numbers, random, poller, write).is_ok()
    }

    fn ask_by_stream(&mut self, server: IpAddr, tag: u64, message: &[u8]) -> bool {
        let Lines { options, poller, now_ms, .. } = &*self.lines;
        let server = self.lines.at(server);
        let local = options.origin.address_for(server);
        self.upstream_tcp.ask(server, local, tag, message, poller, *now_ms).is_ok()
    }

    #[cfg_attr(
        not(feature = "dnssec"),
        expect(unused_variables, reason = "who validates wants it")
    )]
    fn tell(&mut self, client: Client, message: Vec<u8>, zone: &[u8]) {
        match client {
            Client::Core(query) => query.answer(message),
            #[cfg(feature = "dnssec")]
            Client::Validator(part) => {
                let (bytes, zone) = (message, zone.into());
                self.lines.heard.push(dnssec::Heard::Response { part, bytes, zone });
            }
        }
    }

    #[cfg(feature = "dnssec")]
    fn refers(&mut self, zone: &[u8], bytes: &[u8], until_ms: u64) {
        if self.lines.options.validates() {
            let (zone, bytes) = (zone.into(), bytes.into());
            self.lines.heard.push(dnssec::Heard::Referral { zone, bytes, until_ms });
        }
    }
}

/// One thread.
struct Loop {
    desk: Arc<Desk>,
    options: Arc<Options>,
    poller: Arc<Poller>,
    clock: Clock,
    walker: Walker<Client>,
    #[cfg(feature = "dnssec")]
    validator: Option<dnssec::Validator>,
    lines: Lines,
    upstream_tcp: UpstreamTcp,
    answers: RecvBatch,
    /// Of an answer that is too long.
    beginning: Vec<u8>,
    /// Queries whose turn has not come, and when they were left.
    waiting: VecDeque<(BackendQuery, Instant)>,
}

impl Loop {
    fn new(desk: Arc<Desk>, options: Arc<Options>, poller: Arc<Poller>) -> Loop {
        let clock = Clock::start();
        let lines = Lines {
            options: options.clone(),
            poller: poller.clone(),
            by_server: HashMap::new(),
            lines: Vec::new(),
            dirty: Vec::new(),
            next: 0,
            numbers: 0,
            random: Random::new(),
            now_ms: 0,
            #[cfg(feature = "dnssec")]
            heard: Vec::new(),
        };
        Loop {
            #[cfg(feature = "dnssec")]
            validator: options.anchors.as_ref().map(dnssec::Validator::new),
            walker: Walker::new(options.clone(), clock.now()),
            upstream_tcp: UpstreamTcp::new(upstream_tcp::Limits::default(), STREAMS),
            answers: RecvBatch::new(BATCH, options.udp_bytes_max.into()),
            beginning: Vec::new(),
            waiting: VecDeque::new(),
            desk,
            options,
            poller,
            clock,
            lines,
        }
    }

    /// Turns until the end.
    fn run(mut self) {
        let mut events = Events::new(EVENTS_MAX);
        while !self.desk.has_ended.load(Ordering::Acquire) {
            let now = self.clock.now();
            let now_ms = now.us / 1_000;
            let waits = [self.walker.wait_ms(now), self.upstream_tcp.wait_ms(now_ms)];
            let wait_ms = waits.into_iter().flatten().fold(WAIT_MS_MAX, u64::min);
            if self.poller.wait(&mut events, Some(wait_ms)).is_err() {
                // A poller fails where its arguments are wrong, and these are not. Queries are told by being dropped.
                break;
            }
            self.turn(events.iter());
            *self.desk.counts() = self.walker.counts();
        }
        self.desk.mailbox.close();
    }

    fn turn(&mut self, events: impl Iterator<Item = Event>) {
        let now = self.clock.now();
        self.lines.now_ms = now.us / 1_000;
        let mut is_called = false;
        for event in events {
            match event.token >> SPACE_SHIFT {
                WAKER => is_called = true,
                POOLS => {
                    self.hear(now, (event.token >> u32::BITS) as u32 & 0xf_ffff, event.token as u32)
                }
                _ => self.hear_stream(now, event),
            }
        }
        if is_called {
            // Before the mailbox is looked at: whoever sends after that wakes the thread again.
            let _ = self.desk.mailbox.waker().clear();
            while !self.desk.mailbox.may_sleep() {
                self.desk.mailbox.take(usize::MAX, &mut self.waiting);
            }
        }
        self.begin(now);
        let Loop { walker, lines, upstream_tcp, .. } = self;
        let now_ms = lines.now_ms;
        walker.tick(now, &mut Ways { lines, upstream_tcp });
        #[cfg(feature = "dnssec")]
        self.validate(now);
        let Loop { walker, lines, upstream_tcp, poller, .. } = self;
        if !upstream_tcp.is_empty() {
            let mut hear = |upstream_tcp: &mut UpstreamTcp, tag: u64, outcome: Outcome<'_>| {
                walker.heard_by_stream(
                    now,
                    tag,
                    outcome.answer(),
                    &mut Ways { lines, upstream_tcp },
                );
            };
            upstream_tcp.expire(poller, now_ms, &mut hear);
            upstream_tcp.flush(poller, now_ms, &mut hear);
            #[cfg(feature = "dnssec")]
            self.validate(now);
        }
        self.lines.flush();
    }

    /// Has what was found checked, and what is looked up for that found.
    #[cfg(feature = "dnssec")]
    fn validate(&mut self, now: Now) {
        let Loop { validator: Some(validator), walker, lines, upstream_tcp, options, .. } = self
        else {
            return;
        };
        loop {
            let heard = std::mem::take(&mut lines.heard);
            if heard.is_empty() && validator.is_idle() {
                return;
            }
            let net = &mut Ways { lines, upstream_tcp };
            let udp_bytes = options.udp_bytes_max;
            validator.go_on(heard, &mut dnssec::Reach { now, walker, net, udp_bytes });
        }
    }

    /// Questions of clients that are on their way.
    fn in_flight(&self) -> usize {
        #[cfg(feature = "dnssec")]
        if let Some(validator) = &self.validator {
            return validator.in_flight();
        }
        self.walker.in_flight()
    }

    /// Begins with what waits, as far as there is room.
    fn begin(&mut self, now: Now) {
        while self.in_flight() < self.options.questions_max.max(1)
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
            let Loop { walker, lines, upstream_tcp, .. } = self;
            let ways = &mut Ways { lines, upstream_tcp };
            walker.begin(now, Client::Core(query), &message, wait_ms, ways);
        }
    }

    /// Takes what a server answered by one socket.
    fn hear(&mut self, now: Now, line: u32, number: u32) {
        let Loop { walker, lines, upstream_tcp, answers, beginning, .. } = self;
        for _ in 0..BATCHES_MAX {
            let Some(Line { server, pool, .. }) = lines.lines.get(line as usize) else { return };
            let server = *server;
            let Some(socket) = pool.socket(number) else { return };
            // An error is what ICMP says of a question that was sent before.
            let Ok(received) = answers.recv(socket) else {
                return walker.unreachable(now, server, &mut Ways { lines, upstream_tcp });
            };
            for message in answers.messages() {
                let bytes = if message.is_truncated() {
                    // Longer than we said we take: as if its sender had said so by TC.
                    beginning.clear();
                    beginning.extend_from_slice(message.bytes);
                    beginning.get_mut(2).into_iter().for_each(|flags| *flags |= 2);
                    beginning.as_slice()
                } else {
                    message.bytes
                };
                let fits = walker.heard(now, number, bytes, &mut Ways { lines, upstream_tcp });
                // Where the line has been given to another server, the socket is not its own.
                let line = lines.lines.get_mut(line as usize).filter(|_| !fits);
                if line.is_some_and(|line| line.pool.stray(number)) {
                    walker.suspect(now, number, &mut Ways { lines, upstream_tcp });
                }
            }
            if received < BATCH {
                return;
            }
        }
    }

    fn hear_stream(&mut self, now: Now, event: Event) {
        let Loop { walker, lines, upstream_tcp, poller, .. } = self;
        let now_ms = lines.now_ms;
        upstream_tcp.ready(event, poller, now_ms, |upstream_tcp, tag, outcome| {
            walker.heard_by_stream(now, tag, outcome.answer(), &mut Ways { lines, upstream_tcp });
        });
    }
}
