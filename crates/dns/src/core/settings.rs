//! What a core is to do, in numbers.

use larder_wire::dns::rendered::Rules;

use crate::pending::Limits;
use crate::{cookie, limit};

/// Whether a name that does not exist answers for all below it (RFC 8020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NxdomainCut {
    /// Never.
    Never,
    /// Where the upstream validated it, and is believed: there are servers that deny names with
    /// names below.
    #[default]
    Validated,
    /// Always.
    Always,
}

/// Settings of a core. The defaults are those of the command.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is kept of an answer, and for how long.
    pub rules: Rules,
    /// The largest answer over UDP, octets (RFC 9715: 1,232 pass nearly everywhere unfragmented).
    pub udp_bytes_max: u16,
    /// Only what is held is answered.
    pub cache_only: bool,
    /// Serve what is held past its end where there is no answer after so long, milliseconds (RFC
    /// 8767, section 5: 1.8 s).
    pub stale_wait_ms: u32,
    /// TTL of what is served past its end, seconds (RFC 8767, section 5: 30).
    pub stale_ttl_s: u32,
    /// Past its end an answer is of use for so long, seconds; 0: not at all. The cache must have
    /// been built with it.
    pub stale_s: u32,
    /// An answer that has less than this share of its life left and is asked for is fetched anew,
    /// percent; 0: never.
    pub prefetch_percent: u32,
    /// A question is given up after so long, milliseconds.
    pub question_ms_max: u32,
    /// An upstream asked by a stream is waited for so long, milliseconds.
    pub stream_wait_ms: u32,
    /// Upstreams are asked so often for one question, at most [`super::ATTEMPTS_MAX`].
    pub attempts_max: usize,
    /// What may be in flight.
    pub limits: Limits,
    /// Send letters in random case, and take answers only if they came back so.
    pub case_random: bool,
    /// Ask a second upstream where the first takes longer than it does nearly always.
    pub hedges: bool,
    /// The secret that cookies for clients are made with, of all cores and of all servers behind
    /// one address; `None`: no cookies.
    pub cookie_secret: Option<[u8; cookie::SECRET_BYTES]>,
    /// Answers over UDP that a client's network gets from a core.
    pub rate: limit::Limits,
    /// What a name that does not exist says of those below.
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
            question_ms_max: 5_000,
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
