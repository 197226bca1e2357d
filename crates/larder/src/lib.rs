//! larder: a cache that many cores read without contention.
//!
//! ```
//! use larder::{Cache, Seconds, Ttl};
//!
//! let cache = Cache::builder().budget(1 << 20).readers_max(2).build()?;
//! let mut writer = cache.writer(); // one per core that writes
//! let mut reader = cache.reader()?; // one per core that reads
//!
//! let now = Seconds(1000); // the caller's clock: the engine has none
//! writer.insert(b"192.0.2.1", b"www.example.org", Ttl::seconds(300), now)?;
//! writer.flush()?;
//!
//! reader.sync();
//! let name = reader.get(b"192.0.2.1", now).expect("it was just inserted");
//! assert_eq!(&*name, b"www.example.org"); // read in place, not copied
//! assert!(reader.get(b"192.0.2.1", Seconds(1300)).is_none()); // it has expired
//! # Ok::<(), larder::Error>(())
//! ```
//!
//! One authoritative index, *main*, applies operations under a lock, in batches, and writes each
//! change to a log. Every reader has a replica of the index and applies the log when it syncs, or all
//! of them read main's ([`IndexMode`]).
//! Values are stored once, in slots that never change while a reader may look at them. `larder-mem`
//! explains why that is safe. `index` explains where an entry is, `policy` what is evicted, and
//! `build` how the budget is divided.
//!
//! There are four APIs. The engine's own is a [`Reader`] and a [`Writer`] per core. [`Map`] is the simple one, for
//! any thread or task; [`ObjectMap`] is the same for values that are `Clone`. [`Typed`] stores objects instead of
//! bytes. [`flight`] coalesces loads of a key that many callers miss.
//!
//! The engine below these APIs has no clock (time is an argument), no threads and no I/O. A
//! reader's `get` takes no lock and makes no atomic read-modify-write and no shared write. There is
//! no memory beyond the budget. *What is evicted* never depends on the state of memory or on which
//! reader has synced: the same operations, read reports and seed result in the same entries.
//! Readers hand their reports over at a sync; with [`Builder::feedback`] off there are none.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::disallowed_methods))]

/// What can't be derived does not compile.
///
/// ```compile_fail,E0277
/// #[derive(larder::Key)]
/// struct Reading { celsius: f32 }
/// ```
/// ```compile_fail
/// #[derive(larder::Value)]
/// union Either { a: u32, b: f32 }
/// ```
/// ```compile_fail
/// #[derive(larder::Value)]
/// #[larder(name = "x")]
/// struct Unknown { a: u32 }
/// ```
/// ```compile_fail
/// #[derive(larder::Value)]
/// struct Stray { #[larder(skip)] a: u32 }
/// ```
/// ```compile_fail
/// #[derive(larder::Value)]
/// #[repr(C, packed)]
/// struct Packed { a: u8, b: u32 }
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct NotDerived;

/// The code of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod build;
mod cache;
mod clock;
mod codec;
mod condition;
mod decode_key;
#[doc(hidden)]
pub mod derived;
mod direct;
#[cfg(feature = "serde")]
mod encoded;
mod engine;
mod entry;
mod error;
mod evicted;
mod expiry;
mod feedback;
pub mod flight;
mod hash;
mod index;
mod iter;
mod lookups;
mod map;
mod per_shard;
pub mod policy;
mod position;
mod reader;
mod reader_pool;
mod save;
mod shared;
mod snapshot;
mod stats;
mod sync;
mod time;
mod typed;
mod values;
mod writer;

pub use build::Builder;
pub use cache::Cache;
pub use clock::Clock;
pub use codec::{Key, Value};
pub use decode_key::DecodeKey;
#[cfg(feature = "serde")]
pub use encoded::{EncodeError, Encoded};
pub use entry::{Entry, Lease};
pub use error::Error;
pub use evicted::{Cause, Evicted};
pub use expiry::Expiry;
pub use hash::KeyHash;
pub use index::IndexMode;
pub use iter::{Iter, OwnedEntry};
#[cfg(feature = "derive")]
pub use larder_derive::{DecodeKey, Key, Value};
pub use map::{Change, LOADS_MAX, Map, ObjectMap};
pub use policy::Policy;
pub use position::LogPosition;
pub use reader::{Parked, Reader};
pub use save::{Damage, Loaded, SAVE_VERSION, SaveError};
pub use shared::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use stats::{ClassUse, PageUse, ReaderStats, Stats};
pub use time::{Seconds, SyncMode, Ticks, Ttl};
pub use typed::{ObjectId, Typed, TypedReader};
pub use writer::{Build, Writer};
