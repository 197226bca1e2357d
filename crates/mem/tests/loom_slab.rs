//! Interleavings of the slab's protocol, explored by loom over the crate's own code: one cell, two
//! readers.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p larder-mem --release --test loom_slab`
//!
//! The object is a cell that loom watches: reading it while another thread builds or resets it
//! fails the run. Each deliberate mistake must break a scenario, or the scenarios would prove
//! nothing.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use larder_mem::{Slab, SlabFault, SlabId, SlabReader};
use loom::thread;

/// An object whose every access loom sees.
struct Watched(loom::cell::UnsafeCell<u32>);

// SAFETY: the slab promises that a writer is alone; loom checks the promise.
unsafe impl Sync for Watched {}

impl Watched {
    fn read(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }

    fn write(&mut self, value: u32) {
        // SAFETY: as above.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }
}

/// Builds or resets the object of a cell that is clean, or reclaimed, and publishes it; `None` if
/// no cell is free.
fn put(slab: &Slab<Watched>, value: u32) -> Option<SlabId> {
    let mut slot = slab.vacant().or_else(|| slab.reclaimed())?;
    match slot.object() {
        Some(object) => object.write(value),
        empty => *empty = Some(Watched(loom::cell::UnsafeCell::new(value))),
    }
    Some(slot.publish())
}

fn read(reader: &SlabReader<Watched>, id: SlabId, expected: u32) {
    if let Some(object) = reader.get(id) {
        assert_eq!(object.read(), expected, "an id leads to its own object only");
    }
}

/// A reader reads, syncs and reads while the object is retired, reset and published again.
fn reuse(fault: SlabFault) {
    let slab = Slab::faulty(1, 2, fault);
    let first = put(&slab, 1).unwrap();
    let mut reader = slab.reader().unwrap();
    let other = thread::spawn(move || {
        read(&reader, first, 1);
        reader.sync();
        read(&reader, first, 1);
    });
    assert!(slab.retire(first));
    if let Some(second) = put(&slab, 2) {
        let reader = slab.reader().unwrap();
        read(&reader, first, 1);
        read(&reader, second, 2);
    }
    other.join().unwrap();
}

/// An id that was passed without any memory order: the object behind it is complete.
fn guess(fault: SlabFault) {
    let slab = Slab::faulty(1, 2, fault);
    let first = put(&slab, 1).unwrap();
    let mut bytes = first.to_bytes();
    assert!(slab.retire(first));
    // The next generation of the same cell: the generation is the low byte.
    bytes[4] += 1;
    let second = SlabId::from_bytes(&bytes).unwrap();
    let reader = slab.reader().unwrap();
    let other = thread::spawn(move || read(&reader, second, 2));
    if let Some(id) = put(&slab, 2) {
        assert_eq!(id, second);
    }
    other.join().unwrap();
}

/// A reader parks and unparks while the object is retired and reset.
fn park(fault: SlabFault) {
    let slab = Slab::faulty(1, 1, fault);
    let first = put(&slab, 1).unwrap();
    let reader = slab.reader().unwrap();
    let other = thread::spawn(move || {
        read(&reader, first, 1);
        let reader = reader.park().unpark();
        read(&reader, first, 1);
    });
    assert!(slab.retire(first));
    put(&slab, 2);
    other.join().unwrap();
}

fn holds(fault: SlabFault, scenario: fn(SlabFault)) -> bool {
    let mut builder = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS asks for more.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    catch_unwind(AssertUnwindSafe(|| builder.check(move || scenario(fault)))).is_ok()
}

/// The protocol holds in every interleaving.
#[test]
fn slab_holds() {
    assert!(holds(SlabFault::None, reuse));
    assert!(holds(SlabFault::None, guess));
    assert!(holds(SlabFault::None, park));
}

/// Each mistake is caught.
#[test]
fn faults_are_caught() {
    assert!(!holds(SlabFault::CursorRelaxed, reuse));
    assert!(!holds(SlabFault::NoWait, reuse));
    assert!(!holds(SlabFault::EpochRelaxed, reuse));
    assert!(!holds(SlabFault::StateRelaxed, guess));
}
