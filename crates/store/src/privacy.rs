//! What is left out of packets before they are kept.
//!
//! | option | of a packet is kept |
//! |---|---|
//! | `snap_bytes` | so many octets |
//! | `headers_only` | link, network and transport headers of all layers; with `keep_dns` DNS messages whole |
//! | `sample` | all of one flow in N, nothing of the others; one in N of packets that are not IP |
//! | `pseudonym_key` | all, with other addresses in the headers of IP |
//!
//! A packet that cannot be decoded is cut behind the link header where `headers_only` or pseudonyms are asked for, since
//! nobody knows what is in it; so is, with `headers_only`, what is not IP.
//!
//! **Pseudonyms** are in the headers of IP, in keys of flows and thereby in indexes. Addresses elsewhere stay: in answers of
//! DNS, ARP, quoted in ICMP errors, in options of IP, in hardware addresses, in tunnels that are none by the rules of
//! [`larder_wire::packet`]. `headers_only` cuts off what is in payloads; names say what they say. An index has the addresses of
//! packets as they are kept.
//!
//! Checksums of IPv4, TCP, UDP and ICMPv6 are changed by as much as the addresses: right ones stay right, wrong ones wrong.
//! A UDP header around a tunnel loses its checksum in IPv4, and has a wrong one in IPv6.
//!
//! A fragment is sampled by addresses and protocol alone, since only the first one has ports.

mod pseudonyms;
mod rewrite;

pub use pseudonyms::Pseudonyms;
pub(crate) use rewrite::Rewriter;

/// What is left out of packets before they are kept. The default keeps all.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Privacy {
    /// Octets of a packet that are kept; 0: all. Its original length is kept.
    pub snap_bytes: u32,
    /// Payloads are left out: link, network and transport headers are kept.
    pub headers_only: bool,
    /// With `headers_only`: DNS messages (ports 53 and 5353) are kept whole.
    pub keep_dns: bool,
    /// One of so many flows is kept; 0 and 1: all. Of packets that are not IP, one of so many.
    pub sample: u32,
    /// What decides which flows those are.
    pub sample_seed: u64,
    /// Addresses are replaced by pseudonyms under this key, which keep prefixes: two addresses that share n bits have
    /// pseudonyms that share n bits.
    pub pseudonym_key: Option<[u8; 32]>,
}

impl Privacy {
    /// True when packets are kept as they came.
    pub fn keeps_all(&self) -> bool {
        self.snap_bytes == 0
            && !self.headers_only
            && self.sample <= 1
            && self.pseudonym_key.is_none()
    }
}

impl std::fmt::Debug for Privacy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Privacy")
            .field("snap_bytes", &self.snap_bytes)
            .field("headers_only", &self.headers_only)
            .field("keep_dns", &self.keep_dns)
            .field("sample", &self.sample)
            // Neither the key, nor what tells which flows are kept.
            .field("has_pseudonyms", &self.pseudonym_key.is_some())
            .finish_non_exhaustive()
    }
}
