//! Recursion for `larder dns`: resolves names from the root servers down, on the miss path only. The
//! feature `dnssec` adds validation of signatures.
//!
//! Hits get finished responses from the cache, as with a forwarder. A miss passes through the mailboxes of
//! [`larder_dns::backend`] to a thread. The thread sends queries to name servers and follows their
//! referrals (RFC 1034, section 5.3.3). It returns a DNS message, which larder renders, stores and sends
//! as it does a forwarder's response.
//!
//! ```text
//! core 0 --BackendQuery--> inbox --> thread 0: Resolver, sockets, TCP --> name servers
//! core 1 --BackendQuery--> inbox --> thread 1                             each with its own zone and server caches
//!        <--BackendQuery::answer-- a message: the server's response, with aliases before it, or SERVFAIL
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`resolver`] | chooses servers and queries until there is a response |
//! | [`reading`] | classifies the response of a name server |
//! | `cuts`, `servers`, `recent` | caches of zone cuts and of servers |
//! | `dnssec` | validates responses, by feature |
//! | `thread` | the event loop: queries, sockets, time |
//! | [`roots`], `private` | root server addresses; addresses that get no queries |
//!
//! Bounds, in [`Options`] and the constants of [`resolver`]: queries in flight and waiting for each
//! thread, packets for each client query, cached zones and servers, sockets.
//!
//! Cost: a miss takes the time of its packets and of a change of threads; see
//! `docs/results/dns-recursion.md`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod client;
pub mod cuts;
#[cfg(feature = "dnssec")]
pub mod dnssec;
mod names;
mod private;
pub mod reading;
mod recent;
pub mod resolver;
pub mod roots;
mod servers;
mod thread;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use larder_dns::backend::{Backend, BackendQuery, Log, Running};
use larder_dns::metrics::Metric;
use larder_dns::upstream_udp::QuerySource;
use larder_serve::counters::Counters;
use larder_wire::prefix::Prefix;

use crate::thread::Threads;

/// The port of name servers.
pub const PORT: u16 = 53;

/// Options of the recursor. The defaults are those of the command.
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses of the root servers; see [`roots`].
    pub roots: Vec<IpAddr>,
    /// Request signatures if the client does, and pass them on.
    pub passes_dnssec: bool,
    /// Validate signatures, starting from these keys.
    #[cfg(feature = "dnssec")]
    pub anchors: Option<dnssec::anchors::Anchors>,
    /// Networks with a special purpose whose name servers may get queries. The root servers always
    /// may.
    pub allow_servers: Vec<Prefix>,
    /// Threads, at least 1.
    pub threads: usize,
    /// Queries in flight for each thread, at least 1.
    pub queries_max: usize,
    /// Queries that wait for each thread beyond those; more are dropped.
    pub waiting_max: usize,
    /// Zones, and servers, that each thread caches.
    pub zones_max: usize,
    /// The longest timeout of one server, milliseconds.
    pub server_wait_ms: u32,
    /// The most bytes of a response over UDP.
    pub udp_bytes_max: u16,
    /// Randomize the case of query names, and require the same case in responses (0x20).
    pub case_random: bool,
    /// Source address and ports of queries.
    pub source: QuerySource,
    /// The port of all name servers: [`PORT`] except in tests.
    pub port: u16,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            roots: roots::built_in(),
            passes_dnssec: false,
            #[cfg(feature = "dnssec")]
            anchors: None,
            allow_servers: Vec::new(),
            threads: 1,
            queries_max: 2_000,
            waiting_max: 4_000,
            zones_max: 100_000,
            server_wait_ms: 1_500,
            udp_bytes_max: 1_232,
            case_random: false,
            source: QuerySource::default(),
            port: PORT,
        }
    }
}

impl Options {
    /// True if a server with this address may get queries.
    pub fn may_query(&self, server: IpAddr) -> bool {
        !private::is_special(server) || private::is_in(&self.allow_servers, server)
    }

    /// True if signatures are validated.
    pub fn validates(&self) -> bool {
        #[cfg(feature = "dnssec")]
        {
            self.anchors.is_some()
        }
        #[cfg(not(feature = "dnssec"))]
        {
            false
        }
    }
}

/// A backend that resolves names with name servers. It takes queries from its start to its stop and
/// drops others.
#[derive(Debug)]
pub struct Recursor {
    options: Arc<Options>,
    threads: Running<Threads>,
}

impl Recursor {
    /// A recursor that is not started: no thread runs.
    pub fn new(mut options: Options) -> Recursor {
        options.passes_dnssec |= options.validates();
        Recursor { options: Arc::new(options), threads: Running::nothing() }
    }

    /// The counts since the start, of all threads.
    pub fn counts(&self) -> resolver::Counts {
        self.threads.get().map_or_else(resolver::Counts::default, |threads| threads.counts())
    }
}

impl Backend for Recursor {
    fn start(&self, _: &Log) -> io::Result<()> {
        if self.options.roots.is_empty() {
            let text = "there is no address of a root server to begin with";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let threads = Threads::start(&self.options)?;
        self.threads.begin(threads);
        Ok(())
    }

    fn query(&self, query: BackendQuery) {
        if let Some(threads) = self.threads.get() {
            threads.send(query);
        }
    }

    fn stop(&self) {
        // The cores send no more queries, so no other owner is left.
        if let Some(threads) = self.threads.end() {
            threads.stop();
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        self.counts().metrics()
    }
}
