//! larder: a cache that many cores read without meeting each other.
//!
//! ```
//! use larder::{Cache, Seconds, Ttl};
//!
//! let cache = Cache::builder().budget(1 << 20).readers_max(2).build()?;
//! let mut writer = cache.writer(); // one a core that writes
//! let mut reader = cache.reader()?; // one a core that reads
//!
//! let now = Seconds(1000); // the caller's clock: the engine has none
//! writer.insert(b"192.0.2.1", b"www.example.org", Ttl::seconds(300), now)?;
//! writer.flush()?;
//!
//! reader.sync();
//! let name = reader.get(b"192.0.2.1", now).expect("it was just inserted");
//! assert_eq!(&*name, b"www.example.org"); // read where it lies, not copied
//! assert!(reader.get(b"192.0.2.1", Seconds(1300)).is_none()); // its life is over
//! # Ok::<(), larder::Error>(())
//! ```
//!
//! One authoritative index takes operations under a lock, in batches, and writes each change down in a
//! log; every reader has an index copy of its own and applies the log when it likes. Values lie once, in slots
//! that never change while anyone may look at them. How that is safe is told in `larder-mem`; where an entry
//! lies in `index`, what leaves in `policy`, how the budget is divided in `build`.
//!
//! The engine's own face is a [`Reader`] and a [`Writer`] a core. [`Map`] is the easy one, for any thread or task;
//! [`Typed`] holds objects in the place of bytes; [`flight`] lets one load what many miss.
//!
//! What is absent below these faces: a clock (time is an argument), threads, I/O; a lock, an atomic
//! read-modify-write or a shared write in a reader's `get`; memory beyond the budget; any dependence of *what is
//! evicted* on memory's state or on who has synced: the same operations, read reports among them, and seed leave
//! the same entries. Reports are handed over at a sync; with [`Builder::feedback`] off there are none.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::disallowed_methods))]

mod build;
mod cache;
mod clock;
mod codec;
mod engine;
mod entry;
mod error;
mod evicted;
mod feedback;
pub mod flight;
mod hash;
mod index;
mod iter;
mod map;
pub mod policy;
mod position;
mod reader;
mod reader_pool;
mod save;
mod snapshot;
mod stats;
mod sync;
mod time;
mod typed;
mod writer;

pub use build::{Builder, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use cache::Cache;
pub use clock::Clock;
pub use codec::{Key, Value};
pub use entry::{Entry, Lease};
pub use error::Error;
pub use evicted::{Cause, Evicted};
pub use hash::KeyHash;
pub use iter::{Iter, OwnedEntry};
pub use larder_mem as mem;
pub use larder_mem::IndexMode;
pub use larder_mem::{ClassUse, PageUse, SlabId, prefetch_lines, prefetch_read, prefetch_slice};
pub use map::{LOADS_MAX, Map};
pub use policy::{PaperRules, Policy};
pub use position::LogPosition;
pub use reader::{Parked, Reader};
pub use save::{Damage, Loaded, SAVE_VERSION, SaveError};
pub use stats::{ReaderStats, Stats};
pub use time::{Seconds, SyncMode, Ticks, Ttl};
pub use typed::{Typed, TypedReader};
pub use writer::{Build, Writer};
