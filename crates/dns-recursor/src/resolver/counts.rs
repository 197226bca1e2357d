//! What a walker counts.

/// What happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions sent over UDP.
    pub packets: u64,
    /// Questions sent over streams.
    pub streams: u64,
    /// Zones learned of.
    pub referrals: u64,
    /// Servers that knew nothing of a zone they were said to serve.
    pub lame: u64,
    /// Questions to servers that were waited for in vain.
    pub timeouts: u64,
    /// Packets that answered nothing.
    pub misfits: u64,
    /// Questions of clients that found no answer.
    pub failures: u64,
    /// Questions that were not asked: too many of the same zone were in flight.
    pub crowded: u64,
}

impl Counts {
    /// Both together.
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
