//! One core of the server: it decides what to do with each message. It has no sockets, no clock and
//! no threads.
//!
//! ```text
//! queries(batch) --hit--------------------------------> Net::respond
//!                --miss--> pending --> Net::query_udp   one query in flight for all clients with the same query
//! response(bytes) -------> render, store -------------> Net::respond for each client that waits
//! tick() ----------------> another upstream, a stale response, or a failure
//! ```
//!
//! The event loop calls in each turn: [`Core::begin`] with the time of the turn, then the methods
//! for what arrived, [`Core::tick`], and [`Core::finish`], which makes stored responses visible to
//! other cores.
//!
//! Life of a query in flight (`core/miss.rs`, `core/in_flight.rs`, `core/upstream.rs`,
//! `core/response.rs`, `core/complete.rs`)
//! ```text
//! sent over UDP --response--> complete: stored, sent to all waiting clients
//!   | no response in time, or a useless one: another upstream, up to `attempts_max`
//!   | TC: the same upstream over TCP
//!   | too many packets that do not match: over TCP, into which an attacker cannot write
//!   | no response in time, but a stale one is cached: clients get the stale one (RFC 8767); the query continues
//! failed --> complete: the failure is cached for some seconds (RFC 9520); clients get the stale response, or SERVFAIL
//! ```
//!
//! Invariants
//! 1. A response is accepted for a query only from the socket that sent the query, with its ID and
//!    the same question. Any other packet only changes counters.
//! 2. A client that was responded to no longer waits. A client that waits is responded to in the
//!    end, since each query in flight has a timer.
//! 3. Nothing grows without bound: queries in flight have limits. At the limit a client gets the
//!    stale response, or SERVFAIL.
//!
//! Cost of a hit: one pass over the query, one lookup in a batch of up to [`BATCH`], a copy.
//! Nothing is allocated.

mod admission;
mod alias;
mod answer;
mod complete;
mod in_flight;
mod local;
mod miss;
mod nxdomain_cut;
mod response;
mod settings;
mod upstream;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use larder::{Cache, Entry, Error, KeyHash, Reader, Writer};
use larder_io::random::{self, Random};
use larder_io::timer::Timers;
use larder_io::udp::Route;
use larder_wire::dns::query::{KeyBuf, Query};
use larder_wire::dns::rendered::{self, Renderer, Reply};
use larder_wire::dns::{class, rtype};
use larder_wire::udp_frame::FrameAddresses;

use self::admission::add_cookie;
use self::answer::Options;
pub use self::in_flight::ATTEMPTS_MAX;
use self::in_flight::{AttemptId, QueryState};
use self::local::InForce;
pub use self::miss::random_case;
pub use self::settings::{NxdomainCut, Settings};
pub use self::upstream::{Flags, QUERY_BYTES_MAX, write_query};
use crate::choice::Measured;
pub use crate::clock::Now;
use crate::cookie::Cookies;
use crate::dnstap::Protocol;
use crate::key;
use crate::limit::Limiter;
use crate::metrics::Counts;
use crate::pending::{AsIs, Pending, QueryId};
use crate::policy::Admission;
use crate::zones::{Upstream, Zones};

/// Queries that are looked up together.
pub const BATCH: usize = 32;

/// Bytes of the longest message on a stream.
const STREAM_BYTES_MAX: usize = 65_535;

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// The cache.
    Hit,
    /// An upstream, or the failure of all upstreams.
    Miss,
    /// The cache, after its TTL.
    Stale,
    /// A cached failure, or a limit.
    Failed,
    /// A blocklist or a response policy zone.
    Blocked,
    /// This server: local data, refusals.
    #[default]
    Local,
}

impl Source {
    /// All of them, in their order.
    pub(crate) const ALL: [Source; 6] =
        [Source::Hit, Source::Miss, Source::Stale, Source::Failed, Source::Blocked, Source::Local];

    /// The word of the query log, in which blocked responses are local ones.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Source::Hit => "hit",
            Source::Miss => "miss",
            Source::Stale => "stale",
            Source::Failed => "failed",
            Source::Blocked | Source::Local => "local",
        }
    }
}

/// A client, and how responses reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Over UDP.
    Udp {
        /// Number of the listening socket.
        socket: u16,
        /// Addresses for the response.
        route: Route,
    },
    /// Over UDP, in frames of an AF_XDP queue.
    Frame {
        /// The queue.
        queue: u16,
        /// Addresses of both ends.
        letter: FrameAddresses,
    },
    /// Over TCP.
    Stream {
        /// The connection.
        stream: u64,
        /// The client's address.
        peer: SocketAddr,
    },
    /// Over a transport that other threads serve ([`crate::side_query`]).
    Side {
        /// Number of the query.
        slot: u64,
        /// The client's address.
        peer: SocketAddr,
        /// The transport.
        protocol: Protocol,
    },
}

impl Client {
    /// The client's address and port.
    #[inline]
    pub fn peer(&self) -> SocketAddr {
        match self {
            Client::Udp { route, .. } => route.peer,
            Client::Frame { letter, .. } => letter.peer,
            Client::Stream { peer, .. } | Client::Side { peer, .. } => *peer,
        }
    }

    /// The client's address.
    #[inline]
    pub fn address(&self) -> IpAddr {
        self.peer().ip()
    }

    /// The transport of its queries.
    pub fn protocol(&self) -> Protocol {
        match self {
            Client::Udp { .. } | Client::Frame { .. } => Protocol::Udp,
            Client::Stream { .. } => Protocol::Tcp,
            Client::Side { protocol, .. } => *protocol,
        }
    }

    fn is_stream(&self) -> bool {
        self.protocol() != Protocol::Udp
    }

    /// The longest response to a query of this client, bytes.
    fn bytes_max(&self, query: &Query<'_>, server_max: u16) -> usize {
        if self.is_stream() { STREAM_BYTES_MAX } else { query.udp_bytes_max(server_max) }
    }
}

/// How a core sends messages. No method waits.
pub trait Net {
    /// Calls `write` with room for `bytes_max` bytes, and sends to the client as many bytes as it
    /// returns. False if it returned `None`.
    fn respond(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool;

    /// The client gets no response.
    fn drop_query(&mut self, client: &Client);

    /// Describes the next responses to logs: their source, and since when their clients wait, in
    /// microseconds of [`Now`]; `None`: since the turn began.
    fn describe(&mut self, _source: Source, _since_us: Option<u64>) {}

    /// Calls `write` with the number of a socket to an upstream and room for [`QUERY_BYTES_MAX`]
    /// bytes. Sends as many bytes over UDP as it returns. Only packets that arrive at this socket
    /// are responses. False if nothing was sent.
    fn query_udp(
        &mut self,
        upstream: usize,
        write: impl FnOnce(u32, &mut [u8]) -> Option<usize>,
    ) -> bool;

    /// Sends a query to an upstream over TCP, or to a backend. [`Core::stream_response`] receives
    /// the outcome with this tag. The stream chooses the ID. False if the query could not be sent.
    fn query_stream(&mut self, upstream: usize, tag: u64, message: &[u8]) -> bool;

    /// The response of a backend to the query with this tag is no longer needed.
    fn cancel(&mut self, tag: u64);
}

/// One core.
#[derive(Debug)]
pub struct Core {
    settings: Arc<Settings>,
    /// The time of the turn.
    now: Now,
    reader: Reader,
    writer: Writer,
    zones: Zones,
    pending: Pending<QueryState, Client>,
    attempts: AttemptTable,
    timers: Timers<QueryId>,
    random: Random,
    renderer: Renderer,
    keys: Box<[KeyBuf; BATCH]>,
    hashes: Vec<KeyHash>,
    /// The message of the client that is responded to.
    scratch: Vec<u8>,
    in_force: Option<InForce>,
    /// A response from local data.
    own: Vec<u8>,
    /// Renders local aliases together with the cached response for their target.
    composer: Renderer,
    /// This core cached no failure that lasts beyond this second.
    failures_until_s: u32,
    cookies: Option<Cookies>,
    limiter: Option<Limiter>,
    /// The stale response that is sent.
    stale: Vec<u8>,
    /// Name, type and class of a query that starts.
    question: Vec<u8>,
    counts: Counts,
}

/// Attempts by socket and ID.
type AttemptTable = HashMap<u64, AttemptId, BuildHasherDefault<AsIs>>;

/// A query, and the client that sent it.
struct Request<'a> {
    client: Client,
    query: Query<'a>,
}

/// A query of a batch.
struct BatchQuery<'a> {
    request: Request<'a>,
    message: &'a [u8],
    /// The client's view.
    view: u16,
}

/// The queries of a batch that need more work after a lookup: one bit for each query.
#[derive(Default)]
struct Looked {
    /// Not in the cache.
    missed: u32,
    /// Of those: in the cache, but stale.
    stale: u32,
    /// Responded to, but the entry expires soon.
    ending: u32,
}

impl Core {
    /// A core of a cache.
    pub fn new(
        settings: Arc<Settings>,
        cache: &Cache,
        zones: Zones,
        now: Now,
    ) -> Result<Core, Error> {
        let queries_max = settings.limits.queries_max;
        let limiter = (settings.rate.per_s > 0).then(|| {
            let mut key = [0; 16];
            // Without random numbers an attacker could choose addresses that share a bucket with
            // others, but nothing else.
            let _ = random::fill(&mut key);
            Limiter::new(settings.rate, &key)
        });
        Ok(Core {
            now,
            reader: cache.reader()?,
            writer: cache.writer(),
            zones,
            pending: Pending::new(settings.limits),
            attempts: HashMap::default(),
            timers: Timers::new(queries_max as usize, now.ms()),
            random: Random::new(),
            renderer: Renderer::new(),
            keys: Box::new([const { KeyBuf::new() }; BATCH]),
            hashes: Vec::with_capacity(BATCH),
            scratch: Vec::new(),
            in_force: None,
            own: Vec::new(),
            composer: Renderer::new(),
            failures_until_s: 0,
            cookies: settings.cookie_secret.as_ref().map(Cookies::new),
            limiter,
            stale: Vec::new(),
            question: Vec::new(),
            counts: Counts::default(),
            settings,
        })
    }

    /// Its counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The upstreams, by the numbers that [`Net`] is given.
    pub fn upstreams(&self) -> impl ExactSizeIterator<Item = Upstream> + '_ {
        self.zones.upstreams()
    }

    /// What is known of each upstream.
    pub fn upstream_health(&self) -> impl Iterator<Item = Measured> + '_ {
        (0..self.zones.upstreams().len()).map(|number| self.zones.health(number))
    }

    /// The longest message over UDP that this server sends or accepts, bytes.
    pub fn udp_bytes_max(&self) -> u16 {
        self.settings.udp_bytes_max
    }

    /// Queries in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Begins a turn at `now`: responses that other cores stored become visible.
    pub fn begin(&mut self, now: Now) {
        self.now = now;
        self.sync();
    }

    /// Makes visible the responses of other cores, and those that this core stored before
    /// [`Core::finish`].
    pub fn sync(&mut self) {
        if self.reader.is_behind() {
            self.reader.sync();
        }
    }

    /// Makes this core's stored responses visible to other cores. If the cache accepts no writes at
    /// the moment, the responses of this turn are not cached.
    pub fn finish(&mut self) {
        if self.writer.pending() > 0 && self.writer.flush().is_err() {
            self.counts.limit_cache_writes += 1;
        }
    }

    /// Responds to queries, or sends them to upstreams.
    pub fn queries<'m>(
        &mut self,
        mut batch: impl Iterator<Item = (Client, &'m [u8])>,
        net: &mut impl Net,
    ) {
        loop {
            let mut queries: [Option<BatchQuery<'m>>; BATCH] = [const { None }; BATCH];
            let mut count = 0;
            let mut is_over = false;
            self.hashes.clear();
            while count < BATCH {
                let Some((client, message)) = batch.next() else {
                    is_over = true;
                    break;
                };
                if let Some(query) = self.read(client, message, count, net) {
                    queries[count] = Some(query);
                    count += 1;
                }
            }
            let Looked { missed, stale, ending } = self.look_up(&queries[..count], net);
            for (at, query) in queries[..count].iter().enumerate() {
                let Some(query) = query else { continue };
                if missed >> at & 1 == 1 {
                    self.miss(at, query, stale >> at & 1 == 1, net);
                } else if ending >> at & 1 == 1 {
                    self.prefetch(at, query, query.request.query.question(), net);
                }
            }
            if is_over {
                return;
            }
        }
    }

    /// Reads a query into the key at `at`. A query that is not looked up gets its response here.
    #[inline]
    fn read<'m>(
        &mut self,
        client: Client,
        message: &'m [u8],
        at: usize,
        net: &mut impl Net,
    ) -> Option<BatchQuery<'m>> {
        let queries = match client {
            Client::Frame { .. } => &mut self.counts.queries_xdp,
            other => self.counts.queries(other.protocol()),
        };
        *queries += 1;
        let admission = self.in_force.as_ref().map(|force| force.policy.admit(client.address()));
        let view = match admission {
            None => 0,
            Some(Admission::Allowed { view }) => view,
            Some(Admission::Refused) => {
                self.refuse_client(client, message, net);
                return None;
            }
            Some(Admission::Dropped) => {
                self.counts.dropped_queries += 1;
                net.drop_query(&client);
                return None;
            }
        };
        let query = match Query::read(message, &mut self.keys[at]) {
            Ok(query) => query,
            Err(refused) => {
                self.reject(&client, message, &refused, net);
                return None;
            }
        };
        let request = Request { client, query };
        if !self.admits(&request, net) {
            return None;
        }
        if !is_ordinary(&query) && self.respond_odd(&request, view, net) {
            return None;
        }
        let extra = self.key_extra(&query, view);
        let key = self.keys[at].finish(&extra);
        self.hashes.push(self.reader.hash(key));
        Some(BatchQuery { request, message, view })
    }

    /// Responds from the cache, and returns the queries that need more work.
    #[inline]
    fn look_up(&mut self, queries: &[Option<BatchQuery<'_>>], net: &mut impl Net) -> Looked {
        let Core { settings, now, reader, keys, hashes, counts, cookies, in_force, .. } = self;
        let now = *now;
        let Looked { mut missed, mut stale, mut ending } = Looked::default();
        net.describe(Source::Hit, None);
        reader.get_many_stale_hashed(hashes, &keys[..hashes.len()], now.seconds(), |at, entry| {
            let Some(BatchQuery { request, view, .. }) = &queries[at] else { return };
            let Request { client, query } = request;
            let is_overruled = |entry: &Entry<'_>| {
                in_force.as_ref().is_some_and(|force| force.overrules(entry, *view, query))
            };
            let Some(entry) = entry.filter(|entry| !is_overruled(entry)) else {
                missed |= 1 << at;
                return;
            };
            if entry.is_stale(now.seconds()) {
                missed |= 1 << at;
                stale |= 1 << at;
                return;
            }
            let mut options = Options::new();
            add_cookie(cookies.as_ref(), now, request, &mut options);
            let bytes_max = client.bytes_max(query, settings.udp_bytes_max);
            let reply = reply(settings, now, bytes_max, &options);
            let write = |out: &mut [u8]| rendered::write(entry.value(), query, &reply, out);
            if !net.respond(client, bytes_max, write) {
                missed |= 1 << at;
                return;
            }
            counts.hits += 1;
            ending |= u32::from(is_ending(settings, now, &entry)) << at;
        });
        net.describe(Source::Local, None);
        Looked { missed, stale, ending }
    }
}

/// True for nearly all queries. The others have rules of their own.
fn is_ordinary(query: &Query<'_>) -> bool {
    query.qclass == class::IN && query.recursion_desired && !is_meta(query.qtype)
}

/// True for types that are not data (RFC 6895, section 3.1): 0, OPT, and those for queries and
/// protocols.
fn is_meta(qtype: u16) -> bool {
    matches!(qtype, 0 | rtype::OPT | 128..=255)
}

/// True if an entry is in the last part of its lifetime, and is prefetched.
#[inline]
fn is_ending(settings: &Settings, now: Now, entry: &Entry<'_>) -> bool {
    let Some(left_s) = entry.seconds_left(now.seconds()) else { return false };
    let age_s = now.wall_s.saturating_sub(key::born_of(entry.value()));
    let lifetime_s = u64::from(left_s) + u64::from(age_s);
    u64::from(left_s) * 100 < lifetime_s * u64::from(settings.prefetch_percent)
}

/// How a response that is not stale is written.
fn reply<'a>(settings: &Settings, now: Now, bytes_max: usize, options: &'a Options) -> Reply<'a> {
    Reply {
        now_s: now.wall_s,
        bytes_max,
        udp_bytes: settings.udp_bytes_max,
        // A TTL of 0 stays 0.
        stale_ttl_s: 0,
        options: options.as_bytes(),
    }
}
