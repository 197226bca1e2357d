//! Settings of a core.

use larder_wire::dns::rendered::Rules;

use crate::pending::Limits;
use crate::{cookie, limit};

/// Whether NXDOMAIN for a name counts for all names below it (RFC 8020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NxdomainCut {
    /// Never.
    Never,
    /// If the upstream validated it and is trusted: some servers deny names that have names below
    /// them.
    #[default]
    Validated,
    /// Always.
    Always,
}

/// Settings of a core. The defaults are those of `larder dns`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which parts of a response are cached, and for how long.
    pub rules: Rules,
    /// The largest response over UDP, bytes (RFC 9715: 1,232 pass nearly everywhere unfragmented).
    pub udp_bytes_max: u16,
    /// Respond from the cache only.
    pub cache_only: bool,
    /// Serve the stale response if no other arrives within this time, milliseconds (RFC 8767,
    /// section 5: 1.8 s).
    pub stale_wait_ms: u32,
    /// TTL of stale responses, seconds (RFC 8767, section 5: 30).
    pub stale_ttl_s: u32,
    /// How long an expired response is served as stale, seconds; 0: never. The cache must have been
    /// built with it.
    pub stale_s: u32,
    /// Prefetch an entry that a client queries if less than this share of its lifetime is left,
    /// percent; 0: never.
    pub prefetch_percent: u32,
    /// Time limit of a query, milliseconds.
    pub query_ms_max: u32,
    /// How long a core waits for a response over TCP, milliseconds.
    pub stream_wait_ms: u32,
    /// Attempts for a query, at most [`super::ATTEMPTS_MAX`].
    pub attempts_max: usize,
    /// Limits of queries in flight.
    pub limits: Limits,
    /// Send names in random case, and accept only responses with the same case.
    pub case_random: bool,
    /// Send the query to a second upstream when the first exceeds its usual tail latency.
    pub hedges: bool,
    /// The secret of cookies, the same for all cores and for all servers behind one address;
    /// `None`: no cookies.
    pub cookie_secret: Option<[u8; cookie::SECRET_BYTES]>,
    /// Limits the rate of responses over UDP from a core to a network.
    pub rate: limit::Limits,
    /// Whether NXDOMAIN counts for the names below.
    pub nxdomain_cut: NxdomainCut,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rules: Rules::default(),
            udp_bytes_max: 1_232,
            cache_only: false,
            stale_wait_ms: 1_800,
            stale_ttl_s: 30,
            stale_s: 86_400,
            prefetch_percent: 10,
            query_ms_max: 5_000,
            stream_wait_ms: 2_500,
            attempts_max: 4,
            limits: Limits::default(),
            case_random: false,
            hedges: false,
            cookie_secret: None,
            rate: limit::Limits::default(),
            nxdomain_cut: NxdomainCut::default(),
        }
    }
}
