//! The delta log and its cursors. The crate's header explains the protocol: order and safety.
//!
//! A record is absolute: it states what one way and the mask of one bucket *are* from its position
//! on, so applying is a blind store, and replaying twice is harmless. It also names the slot that
//! the change retired: the log is the limbo list, and no second structure is needed.

use crate::error::Error;
use crate::region::Memory;
#[cfg(not(loom))]
use crate::region::{Region, Zeroed};
use crate::sync::{AtomicU64, CacheLines, Ordering, RaceCell};
use crate::table::WAYS;

/// A position in the log: all operations before it are applied. Never decreases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition(pub(crate) u64);

impl LogPosition {
    /// After every position: all there is.
    pub const END: LogPosition = LogPosition(u64::MAX);

    /// The place after this many records.
    pub fn after(records: u64) -> LogPosition {
        LogPosition(records)
    }

    /// Records written since the shard was built.
    pub fn records(self) -> u64 {
        self.0
    }
}

/// Bytes of a log record.
pub const RECORD_BYTES: usize = size_of::<Record>();

/// Low bits of a record's place that are its way: one value per way, and one for none of them.
const WAY_BITS: u32 = 4;
const WAY_NONE: u32 = (1 << WAY_BITS) - 1;

/// Buckets that a record can name.
pub(crate) const BUCKETS_MAX: usize = 1 << (u32::BITS - WAY_BITS);

const _: () = assert!(WAYS <= WAY_NONE as usize);

/// The target of a record: a bucket, and one way of it or only its mask.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place(u32);

impl Place {
    #[inline(always)]
    pub fn way(bucket: usize, way: usize) -> Self {
        debug_assert!(bucket < BUCKETS_MAX && way < WAYS);
        Place((bucket as u32) << WAY_BITS | way as u32)
    }

    pub fn mask(bucket: usize) -> Self {
        debug_assert!(bucket < BUCKETS_MAX);
        Place((bucket as u32) << WAY_BITS | WAY_NONE)
    }

    #[inline(always)]
    pub fn bucket(self) -> usize {
        (self.0 >> WAY_BITS) as usize
    }

    /// The way that changes; `None` if only the mask does.
    #[inline(always)]
    pub fn changed_way(self) -> Option<usize> {
        let way = self.0 & WAY_NONE;
        (way != WAY_NONE).then_some(way as usize)
    }
}

/// One change of one bucket: four to a cache line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    pub place: Place,
    /// The slot of the way from now on.
    pub slot: u32,
    /// The slot that this record retires, 0 for none.
    pub retired: u32,
    pub tag: u16,
    pub mask: u16,
}

const _: () = assert!(RECORD_BYTES == 16);

/// The cursor of a reader that holds nothing: it does not count.
pub(crate) const PARKED: u64 = u64::MAX;

#[cfg(not(loom))]
type Ring = Region<RaceCell<Record>>;
#[cfg(loom)]
type Ring = Box<[RaceCell<Record>]>;

// SAFETY: a cell of integers, which zero is a value of, and no drop.
#[cfg(not(loom))]
unsafe impl Zeroed for RaceCell<Record> {}

#[derive(Debug)]
pub(crate) struct Log {
    ring: Ring,
    /// Stored (Release) by main after the records it covers; pairs with `Log::tail`'s Acquire.
    tail: CacheLines<AtomicU64>,
    /// One per reader, stored by that reader (Release) or, under the lock, on its behalf; pairs
    /// with the Acquire in `Log::cursor`.
    cursors: Box<[CacheLines<AtomicU64>]>,
}

// SAFETY: the ring's records are plain memory; by I5 main writes one only when no reader may read it,
// and readers only read those that `tail` published.
unsafe impl Sync for Log {}
// SAFETY: as above.
unsafe impl Send for Log {}

fn ring(memory: &Memory, records: usize) -> Result<Ring, Error> {
    #[cfg(not(loom))]
    return memory.region(records).map_err(Error::Memory);
    #[cfg(loom)]
    let _ = memory;
    #[cfg(loom)]
    return Ok((0..records).map(|_| RaceCell::new(Record::default())).collect());
}

impl Log {
    pub fn new(memory: &Memory, records: usize, cursors: usize) -> Result<Self, Error> {
        if !records.is_power_of_two() {
            return Err(Error::Config("log_records must be a power of two"));
        }
        Ok(Log {
            ring: ring(memory, records)?,
            tail: CacheLines(AtomicU64::new(0)),
            cursors: (0..cursors).map(|_| CacheLines(AtomicU64::new(PARKED))).collect(),
        })
    }

    pub fn records(&self) -> u64 {
        self.ring.len() as u64
    }

    #[inline(always)]
    fn cell(&self, position: u64) -> &RaceCell<Record> {
        &self.ring[position as usize & (self.ring.len() - 1)]
    }

    /// Prefetches the record at `position`, which is to be written.
    #[inline(always)]
    pub fn prefetch(&self, position: u64) {
        crate::prefetch_read(self.cell(position));
    }

    #[inline(always)]
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    pub fn set_tail(&self, tail: u64, order: Ordering) {
        self.tail.0.store(tail, order);
    }

    /// Pairs with every store to the cursor: its reader's earlier reads are done.
    #[inline]
    pub fn cursor(&self, reader: usize) -> u64 {
        self.cursors[reader].0.load(Ordering::Acquire)
    }

    #[inline]
    pub fn set_cursor(&self, reader: usize, position: u64, order: Ordering) {
        self.cursors[reader].0.store(position, order);
    }

    pub fn cursors(&self) -> usize {
        self.cursors.len()
    }

    /// Reads the record at `position`.
    ///
    /// # Safety
    /// The caller holds the lock, or is a reader whose `cursor <= position < tail` (I5).
    #[inline(always)]
    pub unsafe fn read(&self, position: u64) -> Record {
        // SAFETY: by this function's contract no thread writes the record meanwhile.
        self.cell(position).with(|record| unsafe { *record })
    }

    /// Writes the record at `position`.
    ///
    /// # Safety
    /// The caller holds the lock, and `position - R < min_active` (I5).
    #[inline(always)]
    pub unsafe fn write(&self, position: u64, record: Record) {
        // SAFETY: by this function's contract no reader reads the record meanwhile, and the lock
        // keeps other writers away.
        self.cell(position).with_mut(|cell| unsafe { *cell = record });
    }
}
