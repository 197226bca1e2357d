//! What a core does with messages: no sockets, no clock, no threads.
//!
//! ```text
//! questions(batch) --hit----------------------------------> Net::answer
//!                  --miss--> pending --> Net::ask           one question in flight for all who ask the same
//! answered(octets) ----------> render, store --------------> Net::answer for each who waits
//! tick(now)        ----------> another upstream, an answer that is stale, or a failure
//! ```
//!
//! A turn of the loop that drives a core: [`Core::begin`], then whatever came in, [`Core::tick`],
//! and [`Core::finish`], which makes what was stored visible to other cores.
//!
//! Life of a question in flight (`core/miss.rs`, `core/in_flight.rs`, `core/upstream.rs`,
//! `core/response.rs`, `core/complete.rs`)
//! ```text
//! asked over UDP --answer--> over, stored, told to all
//!   | no answer in time, or one that is of no use: another upstream, while there are attempts
//!   | TC: the same upstream over a stream
//!   | too many packets that do not fit: over a stream, which nobody can forge into
//!   | held past its end, and no answer for some time: those who wait get it so (RFC 8767), and the question goes on
//! failed --> over, remembered for some seconds (RFC 9520); told to all: what is held past its end, or SERVFAIL
//! ```
//!
//! Invariants
//! 1. An answer is taken for a question only from the socket it was sent by, with its ID, and if
//!    its question is the same; anything else changes nothing but counts.
//! 2. Who is told waits no longer; who waits is told in the end, for each question in flight has a
//!    timer.
//! 3. Nothing grows without bound: what is in flight has limits, and at the limit a client gets
//!    what is held past its end, or SERVFAIL.
//!
//! Cost of a hit: one pass over the question, one look-up in a batch of up to [`BATCH`], a copy.
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
use self::in_flight::{Ask, Attempt};
use self::local::InForce;
pub use self::miss::random_case;
pub use self::settings::{NxdomainCut, Settings};
pub use self::upstream::{ASK_BYTES_MAX, Flags, write_question};
pub use crate::clock::Now;
use crate::cookie::Cookies;
use crate::dnstap::Protocol;
use crate::key;
use crate::limit::Limiter;
use crate::metrics::Counts;
use crate::pending::{AsIs, Pending, Question};
use crate::policy::Admission;
use crate::zones::{Upstream, Zones};

/// Questions that are looked up together.
pub const BATCH: usize = 32;

/// Octets of the longest message on a stream.
const STREAM_BYTES_MAX: usize = 65_535;

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// The cache.
    Hit,
    /// An upstream; also that none answered.
    Miss,
    /// The cache, past its end.
    Stale,
    /// A failure that was remembered, or a limit.
    Failed,
    /// This server itself: local data, blocklists, refusals.
    #[default]
    Local,
}

impl Source {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Source::Hit => "hit",
            Source::Miss => "miss",
            Source::Stale => "stale",
            Source::Failed => "failed",
            Source::Local => "local",
        }
    }
}

/// Who asked, and how the answer goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Over UDP, through the listening socket of this number.
    Udp {
        /// The socket.
        socket: u16,
        /// The way back.
        route: Route,
    },
    /// Over UDP, in frames of a queue.
    Frame {
        /// The queue.
        queue: u16,
        /// Both ends.
        letter: FrameAddresses,
    },
    /// Over a stream.
    Stream {
        /// Which one.
        stream: u64,
        /// Its other end.
        peer: SocketAddr,
    },
    /// Over something that is served beside the core, which keeps messages whole and whose client
    /// is where it says.
    Side {
        /// Which of the questions that were handed in.
        slot: u64,
        /// Who asked.
        peer: SocketAddr,
        /// What carried it.
        protocol: Protocol,
    },
}

impl Client {
    /// The client's end.
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

    /// What carries its questions.
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

    /// The longest answer to a query of this client, octets.
    fn bytes_max(&self, query: &Query<'_>, server_max: u16) -> usize {
        if self.is_stream() { STREAM_BYTES_MAX } else { query.udp_bytes_max(server_max) }
    }
}

/// What a core asks of the world. Nothing in here waits.
pub trait Net {
    /// Gives `write` room for an answer of `bytes_max` octets, and sends to the client as many as
    /// it says it wrote. False where it wrote none.
    fn answer(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool;

    /// A client gets no answer.
    fn ignore(&mut self, client: &Client);

    /// What the answers that come next come from, and since when their clients wait, microseconds
    /// of [`Now`]; `None`: since this turn began. For those who log.
    fn describe(&mut self, _source: Source, _since_us: Option<u64>) {}

    /// Gives `write` the number of a socket to an upstream and room for [`ASK_BYTES_MAX`] octets,
    /// and sends by it over UDP as many as it says it wrote: only what comes by this socket answers
    /// them. False where nothing was sent.
    fn ask(&mut self, upstream: usize, write: impl FnOnce(u32, &mut [u8]) -> Option<usize>)
    -> bool;

    /// Sends a question to an upstream over a stream, or hands it to a backend;
    /// [`Core::answered_by_stream`] is told its tag. The ID is the stream's to choose. False where
    /// it could not be.
    fn ask_by_stream(&mut self, upstream: usize, tag: u64, message: &[u8]) -> bool;

    /// What was asked of a backend by this tag is waited for no longer.
    fn forget(&mut self, tag: u64);
}

/// One core.
#[derive(Debug)]
pub struct Core {
    settings: Arc<Settings>,
    reader: Reader,
    writer: Writer,
    zones: Zones,
    pending: Pending<Ask, Client>,
    /// Questions by socket and ID.
    by_id: ById,
    timers: Timers<Question>,
    random: Random,
    renderer: Renderer,
    keys: Box<[KeyBuf; BATCH]>,
    hashes: Vec<KeyHash>,
    /// Octets of whoever is told.
    scratch: Vec<u8>,
    in_force: Option<InForce>,
    /// An answer of our own, and what is rendered of it and what stands behind its aliases.
    own: Vec<u8>,
    composer: Renderer,
    /// No failure is remembered beyond this second, as far as this core knows.
    failures_until_s: u32,
    cookies: Option<Cookies>,
    limiter: Option<Limiter>,
    /// What is told past its end.
    stale: Vec<u8>,
    /// Name, type and class of a question that is begun.
    sent: Vec<u8>,
    counts: Counts,
}

/// Questions to upstreams by socket and ID.
type ById = HashMap<u64, Attempt, BuildHasherDefault<AsIs>>;

/// A question of a batch.
struct Asked<'a> {
    client: Client,
    message: &'a [u8],
    query: Query<'a>,
    /// The client's view.
    view: u16,
}

/// What a look into the cache left to be done, a bit for each question.
#[derive(Default)]
struct Looked {
    /// Not held.
    missed: u32,
    /// Of those: held past its end.
    stale: u32,
    /// Answered, and soon to end.
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
        let questions_max = settings.limits.questions_max;
        let limiter = (settings.rate.per_s > 0).then(|| {
            let mut key = [0; 16];
            // Without random numbers somebody might aim at others' buckets, and nothing worse.
            let _ = random::fill(&mut key);
            Limiter::new(settings.rate, &key)
        });
        Ok(Core {
            reader: cache.reader()?,
            writer: cache.writer(),
            zones,
            pending: Pending::new(settings.limits),
            by_id: HashMap::default(),
            timers: Timers::new(questions_max as usize, now.ms()),
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
            sent: Vec::new(),
            counts: Counts::default(),
            settings,
        })
    }

    /// What it did.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The upstreams, by the numbers that [`Net`] is given.
    pub fn upstreams(&self) -> impl ExactSizeIterator<Item = Upstream> + '_ {
        self.zones.upstreams()
    }

    /// What is known of each: its smoothed round trip, microseconds, if it was measured, and
    /// whether it is up.
    pub fn upstream_health(&self) -> impl Iterator<Item = (Option<u32>, bool)> + '_ {
        (0..self.zones.upstreams().len()).map(|number| self.zones.health(number))
    }

    /// The longest message over UDP that comes from here or is asked for, octets.
    pub fn udp_bytes_max(&self) -> u16 {
        self.settings.udp_bytes_max
    }

    /// Questions in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Begins a turn: what other cores stored becomes visible.
    pub fn begin(&mut self) {
        if self.reader.is_behind() {
            self.reader.sync();
        }
    }

    /// Ends a turn: what was stored becomes visible to others. Where the cache takes nothing for
    /// the moment, what was told to clients is not kept.
    pub fn finish(&mut self) {
        if self.writer.pending() > 0 && self.writer.flush().is_err() {
            self.counts.limit_cache_writes += 1;
        }
    }

    /// Answers questions, or sends them upstream.
    pub fn questions<'m>(
        &mut self,
        now: Now,
        mut batch: impl Iterator<Item = (Client, &'m [u8])>,
        net: &mut impl Net,
    ) {
        loop {
            let mut asked: [Option<Asked<'m>>; BATCH] = [const { None }; BATCH];
            let mut count = 0;
            let mut is_over = false;
            self.hashes.clear();
            while count < BATCH {
                let Some((client, message)) = batch.next() else {
                    is_over = true;
                    break;
                };
                if let Some((query, view)) = self.read(now, &client, message, count, net) {
                    asked[count] = Some(Asked { client, message, query, view });
                    count += 1;
                }
            }
            let Looked { missed, stale, ending } = self.look_up(now, &asked[..count], net);
            for (at, asked) in asked[..count].iter().enumerate() {
                let Some(asked) = asked else { continue };
                if missed >> at & 1 == 1 {
                    self.miss(now, at, asked, stale >> at & 1 == 1, net);
                } else if ending >> at & 1 == 1 {
                    self.prefetch(now, at, asked, asked.query.question(), net);
                }
            }
            if is_over {
                return;
            }
        }
    }

    /// Reads a question into the key at `at`; answers it right away where it is none that can be
    /// looked up.
    #[inline]
    fn read<'m>(
        &mut self,
        now: Now,
        client: &Client,
        message: &'m [u8],
        at: usize,
        net: &mut impl Net,
    ) -> Option<(Query<'m>, u16)> {
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
                self.prohibit(now, client, message, net);
                return None;
            }
            Some(Admission::Dropped) => {
                self.counts.dropped_queries += 1;
                net.ignore(client);
                return None;
            }
        };
        let query = match Query::read(message, &mut self.keys[at]) {
            Ok(query) => query,
            Err(refused) => {
                self.refuse(client, message, &refused, net);
                return None;
            }
        };
        if !self.admits(now, client, &query, net) {
            return None;
        }
        if !is_ordinary(&query) && self.answer_odd(now, client, &query, view, net) {
            return None;
        }
        let extra = self.key_extra(&query, view);
        let key = self.keys[at].finish(&extra);
        self.hashes.push(self.reader.hash(key));
        Some((query, view))
    }

    /// Answers what is held, and tells the rest.
    #[inline]
    fn look_up(&mut self, now: Now, asked: &[Option<Asked<'_>>], net: &mut impl Net) -> Looked {
        let Core { settings, reader, keys, hashes, counts, cookies, in_force, .. } = self;
        let Looked { mut missed, mut stale, mut ending } = Looked::default();
        net.describe(Source::Hit, None);
        reader.get_many_stale_hashed(hashes, &keys[..hashes.len()], now.seconds(), |at, entry| {
            let Some(Asked { client, query, view, .. }) = &asked[at] else { return };
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
            add_cookie(cookies.as_ref(), now, client, query, &mut options);
            let bytes_max = client.bytes_max(query, settings.udp_bytes_max);
            let reply = reply(settings, now, bytes_max, &options);
            let write = |out: &mut [u8]| rendered::write(entry.value(), query, &reply, out);
            if !net.answer(client, bytes_max, write) {
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

/// True for nearly all questions; the others have rules of their own.
fn is_ordinary(query: &Query<'_>) -> bool {
    query.qclass == class::IN && query.recursion_desired && !is_meta(query.qtype)
}

/// True for types that are no data (RFC 6895, section 3.1): 0, OPT, and those for queries and
/// protocols.
fn is_meta(qtype: u16) -> bool {
    matches!(qtype, 0 | rtype::OPT | 128..=255)
}

/// True where an answer is in the last part of its life, and to be fetched anew.
#[inline]
fn is_ending(settings: &Settings, now: Now, entry: &Entry<'_>) -> bool {
    let Some(left_s) = entry.seconds_left(now.seconds()) else { return false };
    let age_s = now.wall_s.saturating_sub(key::born_of(entry.value()));
    let life_s = u64::from(left_s) + u64::from(age_s);
    u64::from(left_s) * 100 < life_s * u64::from(settings.prefetch_percent)
}

/// What is sent beside an answer that is not past its end.
fn reply<'a>(settings: &Settings, now: Now, bytes_max: usize, options: &'a Options) -> Reply<'a> {
    Reply {
        now_s: now.wall_s,
        bytes_max,
        udp_bytes: settings.udp_bytes_max,
        // A TTL of 0 stays one.
        stale_ttl_s: 0,
        options: options.as_bytes(),
    }
}
