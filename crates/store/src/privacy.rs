//! What is left out of packets before they are kept.

/// What is left out of packets before they are kept. The default keeps all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
