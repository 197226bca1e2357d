//! Errors, and what to do about each.

use std::fmt;

/// Why an operation failed. A miss is no error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The budget is too small for this configuration. Give at least `bytes_min`, or fewer readers.
    BudgetTooSmall {
        /// The given budget.
        bytes: u64,
        /// A sufficient budget.
        bytes_min: u64,
    },
    /// A setting is out of range; the text states which one, and the range.
    Setting(&'static str),
    /// The system refused memory. Use a smaller budget.
    Memory(std::io::Error),
    /// A key has 1 to 255 bytes. Use a digest of a longer key, and store the key in the value.
    KeyLength {
        /// The given length.
        bytes: usize,
    },
    /// The value is larger than any slot of this cache. Use [`crate::Builder::value_bytes_max`] or a larger
    /// budget, or store a handle.
    ValueTooLarge {
        /// The given length.
        bytes: usize,
        /// The longest value that fits with this key.
        bytes_max: usize,
    },
    /// An object weighs more than a shard of the map holds. Give a larger limit to [`crate::Builder::weigher`], or
    /// fewer [`crate::Builder::shards`].
    TooHeavy {
        /// What it weighs.
        weight: u64,
        /// What it may weigh.
        weight_max: u64,
    },
    /// A reader has not synced for so long that the log, or the memory that it protects, is used
    /// up. Nothing has changed, unless objects have weights ([`crate::Builder::weigher`]): then some may
    /// have left for the new one. Sync, park or drop that reader, then try again.
    Stalled {
        /// The number of the reader that is furthest behind.
        reader: usize,
        /// The log records it is behind.
        behind: u64,
    },
    /// An insert from within the cache's own eviction listener was refused: the listener's inserts
    /// evict more entries than it was called for. Insert less there, or pass entries to another
    /// thread.
    ListenerInserts,
    /// Other writers or leases hold every spare slot. Nothing has changed. Flush those writers or
    /// drop leases, then try again.
    Starved,
    /// The cache has as many readers as it was built for. Drop one, or build for more.
    ReadersExhausted,
    /// A thread panicked while it changed the cache. Reads still work; build a new cache to write.
    Poisoned,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BudgetTooSmall { bytes, bytes_min } => write!(
                f,
                "a budget of {bytes} bytes is too small for this cache; \
                 give at least {bytes_min} bytes, or fewer readers"
            ),
            Error::Setting(text) => f.write_str(text),
            Error::Memory(error) => {
                write!(f, "the system refused memory ({error}); give a smaller budget")
            }
            Error::KeyLength { bytes } => {
                write!(f, "a key has 1 to 255 bytes, not {bytes}; use a digest of a longer key")
            }
            Error::ValueTooLarge { bytes, bytes_max } => write!(
                f,
                "a value of {bytes} bytes does not fit; this cache takes at most {bytes_max}; \
                 build it with value_bytes_max (at most 32768), or store a handle"
            ),
            Error::TooHeavy { weight, weight_max } => write!(
                f,
                "an object that weighs {weight} does not fit; a shard of this map holds at most {weight_max}; \
                 build it with a larger limit, or with fewer shards"
            ),
            Error::Stalled { reader, behind } => write!(
                f,
                "reader {reader} is {behind} changes behind and holds memory that a write needs; \
                 sync, park or drop it, then try again"
            ),
            Error::Starved => {
                f.write_str(
                "other writers and leases hold every spare slot; flush or drop them, then try again",
            )
            }
            Error::ListenerInserts => f.write_str(
                "the eviction listener inserts too many entries; \
                 insert fewer, or pass entries to another thread",
            ),
            Error::ReadersExhausted => {
                f.write_str("the cache has no reader left; drop one, or build it for more")
            }
            Error::Poisoned => f.write_str(
                "a panic interrupted a change of this cache; reads still work, build a new one to write",
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
            _ => Error::Setting("larder-mem failed for a reason unknown to this version"),
        }
    }
}

impl From<larder_mem::Stalled> for Error {
    fn from(stalled: larder_mem::Stalled) -> Self {
        Error::Stalled { reader: stalled.reader, behind: stalled.behind }
    }
}
