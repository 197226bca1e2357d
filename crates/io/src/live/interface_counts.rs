//! Counters of an interface.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// Counts of one interface, from its opening on.
#[derive(Debug, Default)]
pub struct InterfaceCounts {
    /// Its name.
    pub name: String,
    /// Frames that the kernel put into rings, or gave by AF_XDP: after the filter, without those
    /// dropped. At `any` those of the loopback count twice.
    pub received: AtomicU64,
    /// Frames that were delivered in batches; the others of `received` are still in the rings.
    pub delivered: AtomicU64,
    /// Frames for which the rings had no room.
    pub dropped: AtomicU64,
    /// How often the rings were full.
    pub freezes: AtomicU64,
    /// Blocks of a ring that contradicted themselves.
    pub malformed: AtomicU64,
    /// The interface exists, and is up.
    pub is_up: AtomicBool,
    /// How often it went down.
    pub downs: AtomicU64,
    /// How often it was made again, and found.
    pub reopened: AtomicU64,
}
