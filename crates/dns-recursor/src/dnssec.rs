//! Recursion for `larder dns`: from the root to an answer, with DNSSEC validation, on the miss path
//! only.
//!
//! What is held, larder answers from finished responses, whoever found them. What is not held goes,
//! by the mailboxes of [`larder_dns::backend`], to a thread that recurses, and comes back as a DNS
//! message which is rendered, stored and told as a forwarder's answer would be. The recursion
//! itself, and every signature, is hickory-resolver's: there is no home-made DNSSEC here.
//!
//! ```text
//! core 0 --BackendQuery--> queue --> thread 0: tokio, one task a question --> Recursor --> name servers
//! core 1 --BackendQuery--> queue --> thread 1                     (one, with its caches, for all threads)
//!        <--BackendQuery::answer-- a message: NOERROR, NXDOMAIN or SERVFAIL, AD where all of it is proven, EDE where not
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`hints`] | where the root is, and which keys it is trusted by |
//! | [`net`] | sockets to name servers, how long they are waited for, how many packets were sent |
//! | [`reply`] | what the recursor found, as a message |
//! | `threads` | threads, queues, and the limit of questions in each |
//!
//! Bounds, all in [`Options`]: questions in flight and waiting for each thread, zones whose servers
//! are remembered, answers that the recursor itself remembers, depth. The library bounds what one
//! question may cost: 200 packets sent, 64 aliases, five names of servers without addresses for
//! each zone, and no zone twice on one way (so a loop ends).
//!
//! Cost: a miss takes some tens of microseconds of a CPU beside larder's own, and validation
//! several times that where keys are not known yet; see `docs/results/dns-recursion.md`.

pub mod hints;
pub mod net;
pub mod reply;
mod threads;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::dnssec::TrustAnchors;
use hickory_resolver::recursor::{DnssecConfig, DnssecPolicy, Recursor, RecursorOptions};
use ipnet::IpNet;
use larder_dns::backend::{Backend, BackendQuery, Running};

use crate::PORT;

use self::net::{Lines, Net};
use self::threads::Threads;

/// How it recurses. The defaults are those of the command.
#[derive(Clone)]
pub struct Options {
    /// Addresses of the root's servers; see [`hints`].
    pub roots: Vec<IpAddr>,
    /// The keys that the root is trusted by; see [`hints`].
    pub anchors: Arc<TrustAnchors>,
    /// Networks whose name servers are asked although they are not public: by default none of those
    /// is, or a domain's owner could have us send packets into our own network.
    pub allow_servers: Vec<IpNet>,
    /// Threads; 1 at least.
    pub threads: usize,
    /// Questions in flight for each thread; 1 at least.
    pub questions_max: usize,
    /// Questions that wait for each thread beyond those; what is more is not taken.
    pub waiting_max: usize,
    /// Zones, and servers, that are remembered.
    pub zones_max: usize,
    /// Answers that are remembered here: delegations, keys, aliases' targets. What clients ask for
    /// is in larder's cache.
    pub answers_max: u64,
    /// Delegations, and aliases, that are followed for one question.
    pub depth_max: u8,
    /// How long one server is waited for before the next one is asked, milliseconds.
    pub server_wait_ms: u32,
    /// Octets that a server may answer in over UDP.
    pub udp_bytes_max: u16,
    /// Names are sent in random case, and must come back so (0x20).
    pub case_random: bool,
    /// A name that does not exist answers for all below it (RFC 8020), while the way there is
    /// sought (RFC 9156). There are servers that deny names with others below them.
    pub is_strict: bool,
    /// The port of all name servers, [`PORT`] but in tests.
    pub port: u16,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            roots: hints::roots(),
            anchors: Arc::new(hints::anchors()),
            allow_servers: Vec::new(),
            threads: 1,
            questions_max: 1_000,
            waiting_max: 4_000,
            zones_max: 20_000,
            answers_max: 50_000,
            depth_max: 24,
            server_wait_ms: 1_500,
            udp_bytes_max: 1_232,
            case_random: false,
            is_strict: false,
            port: PORT,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("roots", &self.roots)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// A backend that recurses. It takes questions from its start to its stop, and refuses others.
#[derive(Debug)]
pub struct Recurse {
    options: Options,
    lines: Arc<Lines>,
    threads: Running<Threads>,
}

impl Recurse {
    /// Not started yet; no thread runs, nothing is sent.
    pub fn new(options: Options) -> Recurse {
        let lines = Lines::new(options.port, options.server_wait_ms);
        Recurse { options, lines: Arc::new(lines), threads: Running::nothing() }
    }

    /// Packets sent to name servers, over UDP, and connections to them.
    pub fn sent(&self) -> (u64, u64) {
        self.lines.sent()
    }
}

impl Backend for Recurse {
    fn start(&self) -> io::Result<()> {
        let recursor = recursor(&self.options, Net::new(self.lines.clone()))?;
        let threads = Threads::start(recursor, &self.options)?;
        self.threads.begin(threads);
        Ok(())
    }

    fn ask(&self, query: BackendQuery) {
        if let Some(threads) = self.threads.get() {
            threads.ask(query);
        }
    }

    fn stop(&self) {
        // Nobody asks any more, so nobody else has them.
        if let Some(threads) = self.threads.end() {
            threads.stop();
        }
    }
}

/// The library's recursor, set up.
fn recursor(options: &Options, net: Net) -> io::Result<Recursor<Net>> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    if options.roots.is_empty() {
        return Err(invalid("there is no address of a root server to begin with".into()));
    }
    let mut config = DnssecConfig::default();
    config.trust_anchor = Some(options.anchors.clone());
    config.validation_cache_size = Some(options.zones_max);
    let policy = DnssecPolicy::ValidateWithStaticKey(config);
    let settings = RecursorOptions {
        ns_cache_size: options.zones_max.max(1),
        response_cache_size: options.answers_max,
        recursion_limit: options.depth_max,
        ns_recursion_limit: options.depth_max,
        allow_server: options.allow_servers.clone(),
        case_randomization: options.case_random,
        edns_payload_len: options.udp_bytes_max,
        qname_minimization: if options.is_strict {
            hickory_resolver::recursor::QNameMinimization::Strict
        } else {
            hickory_resolver::recursor::QNameMinimization::Relaxed
        },
        ..RecursorOptions::default()
    };
    Recursor::new(&options.roots, policy, None, settings, net)
        .map_err(|error| invalid(format!("recursion cannot be set up: {error}")))
}
