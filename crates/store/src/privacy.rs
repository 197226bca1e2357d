//! The parts of packets that are not stored.
//!
//! | option | stored of a packet |
//! |---|---|
//! | `snap_bytes` | this number of bytes |
//! | `headers_only` | link, network and transport headers of all layers; with `keep_dns` whole DNS messages |
//! | `sample` | all packets of one flow in N, none of the others; one in N of packets that are not IP |
//! | `pseudonym_key` | all, with other addresses in the headers of IP |
//!
//! A packet that cannot be decoded is cut after the link header with `headers_only` or pseudonyms,
//! since its content is unknown. So is a packet that is not IP, with `headers_only`.
//!
//! **Pseudonyms** are in the headers of IP, in keys of flows and so in indexes. Other addresses
//! stay: in DNS responses, ARP, quotations in ICMP errors, options of IP, hardware addresses, and
//! tunnels that [`larder_wire::packet`] does not decode. `headers_only` removes payloads; names
//! stay unchanged. An index has the addresses of the stored packets.
//!
//! Checksums of IPv4, TCP, UDP and ICMPv6 change with the addresses: right ones stay right, wrong
//! ones wrong. A UDP header around a tunnel loses its checksum in IPv4, and has a wrong one in
//! IPv6.
//!
//! A fragment is sampled by addresses and protocol only, since only the first one has ports.

mod pseudonyms;
mod rewrite;

pub use pseudonyms::Pseudonyms;
pub(crate) use rewrite::Rewriter;

/// The parts of packets that are not stored. By default packets are stored whole.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Privacy {
    /// Bytes of a packet that are stored; 0: all. Its original length is stored.
    pub snap_bytes: u32,
    /// Payloads are not stored, only link, network and transport headers.
    pub headers_only: bool,
    /// With `headers_only`: DNS messages (ports 53 and 5353) are stored whole.
    pub keep_dns: bool,
    /// One flow in this many is stored; 0 and 1: all. The same for packets that are not IP.
    pub sample: u32,
    /// Seed of the choice of flows.
    pub sample_seed: u64,
    /// Addresses are replaced by pseudonyms under this key, which preserve prefixes: two addresses
    /// that share n bits have pseudonyms that share n bits.
    pub pseudonym_key: Option<[u8; 32]>,
}

impl Privacy {
    /// True when packets are stored unchanged.
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
            // Neither the key nor the seed.
            .field("has_pseudonyms", &self.pseudonym_key.is_some())
            .finish_non_exhaustive()
    }
}
