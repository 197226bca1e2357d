//! Counters of a resolver.

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Queries sent over UDP.
    pub packets: u64,
    /// Queries sent over TCP.
    pub streams: u64,
    /// Referrals.
    pub referrals: u64,
    /// Responses of servers that do not serve the zone (lame).
    pub lame: u64,
    /// Queries to servers that timed out.
    pub timeouts: u64,
    /// UDP messages that match no query.
    pub misfits: u64,
    /// Client queries that failed.
    pub failures: u64,
    /// Queries refused because their zone was at its limit.
    pub crowded: u64,
}

impl Counts {
    /// The sum of both.
    pub fn and(self, other: Counts) -> Counts {
        Counts {
            packets: self.packets + other.packets,
            streams: self.streams + other.streams,
            referrals: self.referrals + other.referrals,
            lame: self.lame + other.lame,
            timeouts: self.timeouts + other.timeouts,
            misfits: self.misfits + other.misfits,
            failures: self.failures + other.failures,
            crowded: self.crowded + other.crowded,
        }
    }
}
