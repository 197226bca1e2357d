//! Atomics that count this thread's operations, so that a test can state what an operation costs
//! other cores: read-modify-writes, and stores to memory that others may read. Built only for tests
//! and with the `counting` feature; otherwise [`crate::sync`] has the plain ones.
//!
//! A lock counts as one read-modify-write, and a written log record as one store. Slots of a
//! reader's own replica count when the log is applied, though no other core reads them, because the
//! types are the same.

use std::cell::Cell;
use std::sync::atomic::{self, Ordering};

/// A thread's operations since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Atomic read-modify-writes, locks included.
    pub read_modify_writes: u64,
    /// Stores to memory that other cores may read.
    pub stores: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { read_modify_writes: 0, stores: 0 }) };
}

/// The operations of this thread in `act`.
pub fn count(act: impl FnOnce()) -> Counts {
    let before = COUNTS.get();
    act();
    let after = COUNTS.get();
    Counts {
        read_modify_writes: after.read_modify_writes - before.read_modify_writes,
        stores: after.stores - before.stores,
    }
}

pub(crate) fn note_read_modify_write() {
    let counts = COUNTS.get();
    let read_modify_writes = counts.read_modify_writes + 1;
    COUNTS.set(Counts { read_modify_writes, ..counts });
}

pub(crate) fn note_store() {
    let counts = COUNTS.get();
    COUNTS.set(Counts { stores: counts.stores + 1, ..counts });
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

            /// Not counted: a line that is only read stays in all readers' caches.
            pub fn load(&self, order: Ordering) -> $integer {
                self.0.load(order)
            }

            /// Counted as a store.
            pub fn store(&self, value: $integer, order: Ordering) {
                note_store();
                self.0.store(value, order);
            }

            /// Counted as a read-modify-write.
            pub fn fetch_add(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write();
                self.0.fetch_add(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn fetch_sub(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write();
                self.0.fetch_sub(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn fetch_or(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write();
                self.0.fetch_or(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn fetch_and(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write();
                self.0.fetch_and(value, order)
            }

            /// Counted as a read-modify-write.
            pub fn swap(&self, value: $integer, order: Ordering) -> $integer {
                note_read_modify_write();
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
                note_read_modify_write();
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

counted!(AtomicU32, u32);
counted!(AtomicU64, u64);
