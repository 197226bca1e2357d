//! Counts of leases, and the bytes that all leases hold; `lease.rs` explains their use.

use crate::arena::Arena;
use crate::class::Classes;
use crate::config::Config;
#[cfg(loom)]
use crate::config::Fault;
use crate::error::Error;
use crate::region::Memory;
#[cfg(not(loom))]
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, CacheLines, Ordering};

#[cfg(loom)]
type Counts = Box<[AtomicU32]>;
#[cfg(not(loom))]
type Counts = Region<AtomicU32>;

/// Bytes of a lease count.
pub(crate) const COUNT_BYTES: usize = size_of::<u32>();

#[derive(Debug)]
pub(crate) struct Leases {
    slot_bytes_min: usize,
    /// The smallest class with counts; greater than any class if there are none.
    class_min: u8,
    counts: Counts,
    /// Bytes that leases hold.
    pub bytes: CacheLines<AtomicU64>,
    bytes_max: u64,
    #[cfg(loom)]
    fault: Fault,
}

impl Leases {
    pub fn new(memory: &Memory, config: &Config, classes: &Classes) -> Result<Self, Error> {
        #[cfg(loom)]
        let _ = memory;
        if config.lease_slot_bytes == 0 {
            return Err(Error::Config("lease_slot_bytes must not be 0"));
        }
        let is_on = config.lease_bytes_max > 0;
        let count = if is_on { config.lease_counts() } else { 0 };
        let class = (0..classes.count() as u8)
            .find(|&class| classes.size(class) >= config.lease_slot_bytes && is_on);
        Ok(Leases {
            slot_bytes_min: config.lease_slot_bytes,
            class_min: class.unwrap_or(u8::MAX),
            #[cfg(loom)]
            counts: (0..count).map(|_| AtomicU32::new(0)).collect(),
            #[cfg(not(loom))]
            counts: memory.region(count).map_err(Error::Memory)?,
            bytes: CacheLines(AtomicU64::new(0)),
            bytes_max: config.lease_bytes_max,
            #[cfg(loom)]
            fault: config.fault,
        })
    }

    /// True if slots of `class` have a lease count.
    #[inline]
    pub fn counts(&self, class: u8) -> bool {
        class >= self.class_min
    }

    pub fn count(&self, id: u32) -> &AtomicU32 {
        &self.counts[Arena::offset_of(id) / self.slot_bytes_min]
    }

    /// True if a slot of a class with counts must not be freed. Pairs with the Release in
    /// `Lease::drop`.
    pub fn holds(&self, id: u32) -> bool {
        let order = match () {
            #[cfg(loom)]
            () if self.fault == Fault::NoLeaseCheck => return false,
            #[cfg(loom)]
            () if self.fault == Fault::LeaseCheckRelaxed => Ordering::Relaxed,
            () => Ordering::Acquire,
        };
        self.count(id).load(order) != 0
    }

    /// Bytes that leases hold.
    pub fn bytes(&self) -> u64 {
        self.bytes.0.load(Ordering::Relaxed)
    }

    /// Counts bytes against the limit; false if they would exceed it.
    pub fn book(&self, bytes: u64) -> bool {
        let fits = self.bytes.0.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.bytes_max;
        if !fits {
            self.bytes.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}
