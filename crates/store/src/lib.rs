//! Packets stored on disk, and found again by name.
//!
//! ```text
//! annotate --append(batch)--> Store --fills--> mem::object --leases--> a thread --io_uring--> DIR/N.pcapng
//!                               |                   \--leases--> clients over HTTP (serve)
//!                               +-- events: names of flows --> DIR/N.idx
//! larder find --> Finder: indexes of closed segments, a scan of the one that grows --> pcapng
//! ```
//!
//! A *segment* is a complete file of pcapng: header, interfaces, packets. All segments together
//! have a byte budget; the oldest is deleted first. Its *index* has the places of each flow's
//! packets, all addresses, and the names that `annotate` gave to flows.
//!
//! ```text
//! phase         files                                   ends with
//! growing       N.pcapng.part, N.journal (events)       full, too old, the store's end; a restart
//! closed        N.pcapng, N.idx                         compression, if it is on (`compress`); the budget
//! compressed    N.pcapng.zst, N.idx                     the budget
//! ```
//!
//! `N.hooked` says that the operator's program has run for a closed segment (`hook`).
//!
//! # Terms
//! * *Position*: bytes of all segments before this place, since the store was made: `first position
//!   of the segment + offset in its content`. Positions grow in the order of packets, also over
//!   restarts; bytes that the disk refused leave a gap.
//! * *Run*: from the opening of a store to its end. A flow without an end lasts until the end of
//!   its run.
//! * *Flow event* ([`FlowEvent`]): names of a flow. It is written when they are learned, and again
//!   when the flow ends, with the position up to which packets with its key belong to it.
//!
//! # Invariants
//! 1. A packet is in a segment whole or not at all; a reader of a growing file reads whole blocks.
//! 2. What was flushed stays: a killed writer loses only bytes that it had not written. The next
//!    start cuts off a torn end and closes the segment, with a complete index.
//! 3. All segments with their indexes have no more bytes on the disk than the budget, plus one segment
//!    while it is written, and one while it is compressed.
//! 4. The writer of packets never waits for the disk, for compression or for a hook: packets without
//!    room are dropped and counted.
//! 5. [`find`] returns exactly the packets that a scan of all segments returns, in order of
//!    position.
//!
//! The formats are described in `files` (segments), `compress`, `journal` and `index`. A folder also has
//! `lock`, and other programs' files, which stay unchanged.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod block;
pub mod catalog;
mod compress;
mod disk;
mod disk_writer;
mod extras;
mod files;
pub mod find;
pub mod flow_event;
mod flow_names;
mod flows;
pub mod found;
mod growing;
mod helpers;
mod hook;
mod index;
mod journal;
mod lock;
pub mod many;
mod options;
mod packet_offsets;
mod pins;
pub mod privacy;
pub mod query;
mod recover;
pub mod serve;
mod source;
mod table;
mod writer;

pub use block::Interface;
pub use catalog::{Catalog, Content, Segment};
#[doc(hidden)]
pub use disk::{Disk, Files};
pub use find::{Damage, FindOptions, Finder, FoundPacket, Summary};
pub use flow_event::{Batch, Choice, FlowEvent, NameRole};
pub use larder_wire::flow_key::FlowKey;
pub use options::{
    BATCH_BYTES_MAX, Counts, Hook, Options, PinOptions, Reserve, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, StoreError,
};
pub use privacy::Privacy;
pub use query::{Query, QueryError};
pub use writer::{Store, block_bytes};
