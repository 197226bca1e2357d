//! Atomics that count this thread's operations, so that a test can state what an operation costs
//! other cores: read-modify-writes, and stores to memory that others may read. Built only for tests
//! and with the `counting` feature; otherwise [`crate::sync`] has the plain ones.
//!
//! A lock counts as one read-modify-write, and a written log record as one store. Slots of a
//! reader's own replica count when the log is applied, though no other core reads them, because the
//! types are the same.
//!
//! Threads that take turns may also stand for cores ([`on_core`]): then it is followed which core has which cache line,
//! as the protocol MESI would have it with caches that lose nothing. That counts what other cores really pay for: lines
//! that have to come from another core, and locks that another core held before. Plain memory that a lock protects is
//! not followed.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Add;
use std::sync::Mutex;
use std::sync::atomic::{self, Ordering};

/// A thread's operations since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Atomic read-modify-writes, locks included.
    pub read_modify_writes: u64,
    /// Stores to memory that other cores may read.
    pub stores: u64,
    /// On a core: writes of either kind to a line that another core had in its cache.
    pub lines_taken: u64,
    /// On a core: loads of a line that another core has written since.
    pub lines_fetched: u64,
    /// On a core: locks that another core took before.
    pub hand_overs: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts {
        read_modify_writes: 0, stores: 0, lines_taken: 0, lines_fetched: 0, hand_overs: 0,
    }) };
    /// The core that this thread stands for.
    static CORE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The bytes of a cache line.
const LINE_BYTES: usize = 64;

/// The cores that have each line, a bit a core.
static LINES: Mutex<Option<HashMap<usize, u64>>> = Mutex::new(None);

/// Runs `act` with this thread as a core, below 64. Threads that stand for cores must take turns, or the counts depend
/// on the scheduler.
pub fn on_core<R>(core: u32, act: impl FnOnce() -> R) -> R {
    assert!(core < u64::BITS, "a core has a bit");
    let before = CORE.replace(Some(core));
    let result = act();
    CORE.set(before);
    result
}

/// Follows an access of this thread's core to a line.
fn follow(address: usize, is_write: bool, is_lock: bool) {
    let Some(core) = CORE.get() else { return };
    let mut lines = LINES.lock().expect("nothing panics within");
    let lines = lines.get_or_insert_default();
    let (line, own) = (address / LINE_BYTES, 1_u64 << core);
    // A line that no core has touched comes from memory, and costs no other core anything.
    let cores = lines.entry(line).or_insert(own);
    let mut counts = COUNTS.get();
    if is_write {
        counts.lines_taken += u64::from(*cores & !own != 0);
        *cores = own;
    } else {
        counts.lines_fetched += u64::from(*cores & own == 0);
        *cores |= own;
    }
    if is_lock {
        // Its word has a line of this map of its own: neighbours of a lock are no hand-over.
        let holder = lines.entry(usize::MAX - address).or_insert(own);
        counts.hand_overs += u64::from(*holder != own);
        *holder = own;
    }
    COUNTS.set(counts);
}

impl Counts {
    fn with(self, other: Counts, join: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            read_modify_writes: join(self.read_modify_writes, other.read_modify_writes),
            stores: join(self.stores, other.stores),
            lines_taken: join(self.lines_taken, other.lines_taken),
            lines_fetched: join(self.lines_fetched, other.lines_fetched),
            hand_overs: join(self.hand_overs, other.hand_overs),
        }
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        self.with(other, |one, other| one + other)
    }
}

/// The operations of this thread in `act`.
pub fn count(act: impl FnOnce()) -> Counts {
    let before = COUNTS.get();
    act();
    COUNTS.get().with(before, |after, before| after - before)
}

fn note_read_modify_write<T>(place: &T) {
    let counts = COUNTS.get();
    let read_modify_writes = counts.read_modify_writes + 1;
    COUNTS.set(Counts { read_modify_writes, ..counts });
    follow(std::ptr::from_ref(place).addr(), true, false);
}

pub(crate) fn note_lock<T>(place: &T) {
    let counts = COUNTS.get();
    let read_modify_writes = counts.read_modify_writes + 1;
    COUNTS.set(Counts { read_modify_writes, ..counts });
    follow(std::ptr::from_ref(place).addr(), true, true);
}

pub(crate) fn note_store<T>(place: &T) {
    let counts = COUNTS.get();
    COUNTS.set(Counts { stores: counts.stores + 1, ..counts });
    follow(std::ptr::from_ref(place).addr(), true, false);
}

fn note_load<T>(place: &T) {
    follow(std::ptr::from_ref(place).addr(), false, false);
}

macro_rules! counted {
    ($name:ident, $integer:ty) => {
        /// The standard type of this name, counted.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// As the standard type's.
            pub const fn new(value: $integer) -> Self {
                Self(atomic::$name::new(value))
            }

            /// As the standard type's.
            ///
            /// # Safety
            /// As the standard type's.
            pub unsafe fn from_ptr<'a>(pointer: *mut $integer) -> &'a Self {
                // SAFETY: the layout is the standard type's; the rest is this function's contract.
                unsafe { &*pointer.cast::<Self>() }
            }

            /// Not counted, but on a core: a line that is only read stays in all readers' caches.
            pub fn load(&self, order: Ordering) -> $integer {
                note_load(self);
                self.0.load(order)
            }

            /// Counted as a store.
            pub fn store(&self, value: $integer, order: Ordering) {
                note_store(self);
                self.0.store(value, order);
            }

            /// Counted as a read-modify-write.
            pub fn fetch_add(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write(self);
                self.0.fetch_add(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn fetch_sub(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write(self);
                self.0.fetch_sub(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn fetch_or(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write(self);
                self.0.fetch_or(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn fetch_and(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write(self);
                self.0.fetch_and(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn swap(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write(self);
                self.0.swap(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn compare_exchange(
                &self,
                current: $integer,
                new: $integer,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$integer, $integer> {
                note_read_modify_write(self);
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

counted!(AtomicU32, u32);
counted!(AtomicU64, u64);
