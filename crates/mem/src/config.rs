//! The shape of a shard.

/// Which index readers look keys up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexMode {
    /// A replica per reader, which the reader updates from the log. No other thread writes to a
    /// cache line that the reader reads.
    #[default]
    Replicated,
    /// Main's index, which all readers share. It needs no memory and no work per sync, but each
    /// change of a bucket takes its cache line from the cores that read it. Lookups always show the
    /// present.
    Shared,
}

/// The shape of a shard, which never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a page: a power of two from 64 to 64 KiB; also the largest slot.
    pub page_bytes: usize,
    /// Pages of the arena.
    pub pages: usize,
    /// Buckets of the index.
    pub buckets: usize,
    /// Records of the delta log, a power of two.
    pub log_records: usize,
    /// Readers that may exist at once.
    pub readers_max: usize,
    /// Which index they look keys up in.
    pub index_mode: IndexMode,
    /// Buckets copied per lock hold when a reader registers.
    pub copy_buckets: usize,
    /// Bytes that all leases may hold; 0 for no leases.
    pub lease_bytes_max: u64,
    /// Bytes of the smallest slot that is leased in place; smaller values are copied.
    pub lease_slot_bytes: usize,
    /// The deliberate mistake, for the model checker.
    #[cfg(loom)]
    pub fault: Fault,
}

impl Config {
    /// Lease counts that the arena needs.
    pub(crate) fn lease_counts(&self) -> usize {
        self.pages.saturating_mul(self.page_bytes).div_ceil(self.lease_slot_bytes.max(1))
    }
}

/// Deliberate mistakes, each of which the model checker must catch.
#[cfg(loom)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None: the protocol as it is.
    None,
    /// A reader publishes its cursor without Release.
    CursorRelaxed,
    /// Main publishes the tail without Release.
    TailRelaxed,
    /// A reader that was lapped no longer holds back reclamation.
    Lap,
    /// Unparking takes no lock.
    UnparkUnlocked,
    /// Registering copies the index but does not replay the log.
    NoReplay,
    /// Only the last active reader's cursor counts.
    LastCursorOnly,
    /// A slot is freed without checking its leases.
    NoLeaseCheck,
    /// The lease count is read without Acquire.
    LeaseCheckRelaxed,
    /// Main stores slot words without Release.
    SlotWordRelaxed,
    /// A parked reader continues at its position although the first record that it needs was just
    /// overwritten.
    UnparkLapped,
    /// Main moves an entry between ways without counting it.
    MoveUncounted,
    /// The count of moves is not ordered before the move.
    MoveUnfenced,
    /// A reader that copies the index holds the log from its last chunk on, not from its first.
    CopyUnheld,
}
