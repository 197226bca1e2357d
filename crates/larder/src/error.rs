//! What can go wrong, and whose turn it is then.

use std::fmt;

/// Why an operation was not done. A miss is no error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The budget can't hold a cache of this shape. Give at least `bytes_min`, or ask for fewer readers.
    BudgetTooSmall {
        /// What was given.
        bytes: u64,
        /// What would do.
        bytes_min: u64,
    },
    /// A setting is out of its range; the text says which, and the range.
    Setting(&'static str),
    /// The system gave no memory. Ask for a smaller budget.
    Memory(std::io::Error),
    /// Keys have 1 to 255 bytes. Use a digest of a longer one, and keep the key in the value.
    KeyLength {
        /// What was given.
        bytes: usize,
    },
    /// The value is larger than a slot of this cache. Give a larger budget, or store a handle.
    ValueTooLarge {
        /// What was given.
        bytes: usize,
        /// The most that fits beside this key.
        bytes_max: usize,
    },
    /// A reader has not synced for so long that the log, or the memory it protects, is used up.
    /// Nothing was changed: sync, park or drop that reader, then try again.
    Stalled {
        /// The number of the reader furthest behind.
        reader: usize,
        /// How many log records it is behind.
        behind: u64,
    },
    /// An insert from within the cache's own eviction listener was not done: what the listener inserts evicts more than
    /// it was called for. Insert less there, or hand entries to another thread.
    ListenerInserts,
    /// Every spare slot is in the hands of other writers, or under a lease. Nothing was changed: flush them or
    /// drop leases, then try again.
    Starved,
    /// As many readers as the cache was built for exist. Drop one, or build for more.
    ReadersExhausted,
    /// A thread panicked while it changed the cache. Reads go on; build a new one to write.
    Poisoned,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BudgetTooSmall { bytes, bytes_min } => write!(
                f,
                "a budget of {bytes} bytes is too small for this cache; give at least {bytes_min} bytes, or ask for fewer readers"
            ),
            Error::Setting(text) => f.write_str(text),
            Error::Memory(error) => {
                write!(f, "the system gave no memory ({error}); ask for a smaller budget")
            }
            Error::KeyLength { bytes } => {
                write!(f, "a key has 1 to 255 bytes, not {bytes}; use a digest of longer ones")
            }
            Error::ValueTooLarge { bytes, bytes_max } => write!(
                f,
                "a value of {bytes} bytes does not fit; at most {bytes_max} do in a cache of this budget"
            ),
            Error::Stalled { reader, behind } => write!(
                f,
                "reader {reader} is {behind} changes behind and holds what a write needs; sync, park or drop it, then try again"
            ),
            Error::Starved => {
                f.write_str("other writers and leases hold every spare slot; flush or drop them, then try again")
            }
            Error::ListenerInserts => f.write_str(
                "the eviction listener inserts more than it is called for; insert less in it, or hand entries to another thread",
            ),
            Error::ReadersExhausted => {
                f.write_str("every reader is taken; drop one, or build the cache for more")
            }
            Error::Poisoned => f.write_str(
                "a panic interrupted a change of this cache; reads go on, build a new one to write",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Memory(error) => Some(error),
            _ => None,
        }
    }
}

impl From<larder_mem::Error> for Error {
    fn from(error: larder_mem::Error) -> Self {
        match error {
            larder_mem::Error::Memory(error) => Error::Memory(error),
            larder_mem::Error::Config(text) => Error::Setting(text),
            larder_mem::Error::Poisoned => Error::Poisoned,
            larder_mem::Error::ReadersExhausted => Error::ReadersExhausted,
            _ => {
                Error::Setting("the memory below refused, for a reason this version does not know")
            }
        }
    }
}

impl From<larder_mem::Stalled> for Error {
    fn from(stalled: larder_mem::Stalled) -> Self {
        Error::Stalled { reader: stalled.reader, behind: stalled.behind }
    }
}
