//! Recursion for `larder dns`: from the root's servers to an answer, on the miss path only. By the
//! feature `dnssec` signatures are validated.
//!
//! What is held, larder answers from finished responses, whoever found them. What is not held goes,
//! by the mailboxes of [`larder_dns::backend`], to a thread that asks name servers, one after the
//! other as they refer to one another (RFC 1034, section 5.3.3), and comes back as a DNS message
//! which is rendered, stored and told as a forwarder's answer would be.
//!
//! ```text
//! core 0 --BackendQuery--> desk --> thread 0: Walker, sockets, streams --> name servers
//! core 1 --BackendQuery--> desk --> thread 1                               each with what it knows of zones and servers
//!        <--BackendQuery::answer-- a message: as the server gave it, with aliases before it, or SERVFAIL
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`resolver`] | what is asked of whom, until there is an answer |
//! | [`reading`] | what a response says to who was asked for a zone |
//! | `cuts`, `servers`, `recent` | what is known of zones, of servers, and for how long |
//! | `dnssec` | which of it is believed, by feature |
//! | `thread` | the loop: queries, sockets, time |
//! | [`roots`], `private` | where the root is; who is never asked |
//!
//! Bounds, in [`Options`] and the constants of [`resolver`]: questions in flight and waiting for each
//! thread, packets for each question, zones and servers that are remembered, sockets.
//!
//! Cost: a miss takes what its packets take, and a change of threads; see
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
use larder_dns::metrics::Gauge;
use larder_dns::upstream_udp::QuerySource;
use larder_wire::prefix::Prefix;

use crate::thread::Threads;

/// The port of name servers.
pub const PORT: u16 = 53;

/// How it asks. The defaults are those of the command.
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses of the root's servers; see [`roots`].
    pub roots: Vec<IpAddr>,
    /// Signatures are asked for where clients ask for them, and passed on.
    pub passes_dnssec: bool,
    /// Signatures are validated, from these keys on.
    #[cfg(feature = "dnssec")]
    pub anchors: Option<dnssec::anchors::Anchors>,
    /// Networks whose name servers are asked although they have a special purpose. The root's
    /// always are.
    pub allow_servers: Vec<Prefix>,
    /// Threads; 1 at least.
    pub threads: usize,
    /// Questions in flight for each thread; 1 at least.
    pub queries_max: usize,
    /// Questions that wait for each thread beyond those; what is more is not taken.
    pub waiting_max: usize,
    /// Zones, and servers, that are remembered by each thread.
    pub zones_max: usize,
    /// How long one server is waited for before the next one is asked, milliseconds, at most.
    pub server_wait_ms: u32,
    /// Bytes that a server may answer in over UDP.
    pub udp_bytes_max: u16,
    /// Names are sent in random case, and must come back so (0x20).
    pub case_random: bool,
    /// Where questions are sent from.
    pub source: QuerySource,
    /// The port of all name servers, [`PORT`] but in tests.
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
    /// True where a server with this address may be asked.
    pub fn may_query(&self, server: IpAddr) -> bool {
        !private::is_special(server) || private::is_in(&self.allow_servers, server)
    }

    /// True where signatures are validated.
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

/// A backend that asks name servers. It takes questions from its start to its stop, and drops
/// others.
#[derive(Debug)]
pub struct Recursor {
    options: Arc<Options>,
    threads: Running<Threads>,
}

impl Recursor {
    /// Not started yet; no thread runs, nothing is sent.
    pub fn new(mut options: Options) -> Recursor {
        options.passes_dnssec |= options.validates();
        Recursor { options: Arc::new(options), threads: Running::nothing() }
    }

    /// What happened since the start, of all threads.
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

    fn ask(&self, query: BackendQuery) {
        if let Some(threads) = self.threads.get() {
            threads.send(query);
        }
    }

    fn stop(&self) {
        // Nobody asks any more, so nobody else has them.
        if let Some(threads) = self.threads.end() {
            threads.stop();
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let counts = self.counts();
        let figures = [
            ("recursion_packets_total", "Queries to name servers over UDP", counts.packets),
            ("recursion_streams_total", "Queries to name servers over TCP", counts.streams),
            ("recursion_referrals_total", "Referrals to zones", counts.referrals),
            ("recursion_lame_total", "Servers found not to serve their zone (lame)", counts.lame),
            ("recursion_timeouts_total", "Queries to name servers that timed out", counts.timeouts),
            ("recursion_misfits_total", "Packets that matched no query", counts.misfits),
            (
                "recursion_failures_total",
                "Queries of clients that found no response",
                counts.failures,
            ),
            (
                "recursion_crowded_total",
                "Queries of clients refused because too many of their zone were in flight",
                counts.crowded,
            ),
        ];
        let gauge = |(name, help, value)| Gauge { name, help, label: None, value: value as f64 };
        figures.map(gauge).into()
    }
}
