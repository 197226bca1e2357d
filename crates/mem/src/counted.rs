//! Atomics that count what this thread does with them, so that a test can say what an operation costs other
//! cores: read-modify-writes, and stores to memory that others may read. Built for tests and with the
//! `counting` feature only; otherwise [`crate::sync`] has the plain ones.
//!
//! A lock counts as one read-modify-write, a log record written as one store. The slots of a reader's own copy
//! count when the log is applied, though no other core reads them: the types are the same.

use std::cell::Cell;
use std::sync::atomic::{self, Ordering};

/// What a thread has done since it began.
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

/// What `act` makes this thread do.
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

            /// Not counted: a line that is only read stays with all its readers.
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
