//! Packets kept on disk, and found again by name.
//!
//! ```text
//! annotate --append(batch)--> Store --fills--> mem::object --leases--> a thread --io_uring--> DIR/N.pcapng
//!                               |                   \--leases--> clients over HTTP (serve)
//!                               +-- events: names of flows --> DIR/N.idx
//! larder find --> Finder: indexes of closed segments, a scan of the one that grows --> pcapng
//! ```
//!
//! A *segment* is a file of pcapng, whole by itself: header, interfaces, packets. A ring of them has a byte budget; the
//! oldest goes first. Its *index* says where the packets of each flow are, which addresses there are, and the names that
//! `annotate` gave to flows.
//!
//! ```text
//! phase      files                                   leaves by
//! growing    N.pcapng.part, N.journal (events)        full, too old, the store's end; a restart
//! closed     N.pcapng, N.idx                         the budget
//! ```
//!
//! # Words
//! * *Position*: octets of all segments before this place, since the store was made: `first position of the segment +
//!   offset in its file`. Positions grow in the order in which packets came, also over restarts; what the disk refused leaves
//!   a gap.
//! * *Run*: from the opening of a store to its end. A flow that has no end lasts no longer than its run.
//! * *FlowEvent*: a flow has names. It is written when they are learned, and again when the flow ends, which says up to
//!   which position packets with its key are its own.
//!
//! # Invariants
//! 1. A packet is in a segment whole or not at all; whoever reads a file that grows reads blocks that are whole.
//! 2. What was flushed stays: a killed writer loses what was not yet written; the next start cuts off a torn end and
//!    closes the segment, with an index as good as any.
//! 3. All segments with their indexes have no more octets than the budget, and a segment's worth beside it while one is
//!    written.
//! 4. The writer of packets never waits for the disk: what there is no room for is dropped and counted.
//! 5. [`find`] gives exactly the packets that a scan of all segments gives, in order of position.
//!
//! The formats are described where they are written: `files` (segments), `journal`, `index`. In a folder are also `lock`, and
//! whatever others put there, which stays as it is.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod block;
pub mod catalog;
mod disk_writer;
mod extras;
mod files;
pub mod find;
pub mod flow_event;
mod flow_names;
mod flows;
mod growing;
mod index;
mod journal;
mod options;
mod packet_offsets;
pub mod privacy;
pub mod query;
mod recover;
pub mod serve;
mod writer;

pub use block::Interface;
pub use catalog::{Catalog, Content, Segment};
#[doc(hidden)]
pub use disk_writer::{Disk, Files};
pub use find::{Damage, FindOptions, Finder, FoundPacket, Summary};
pub use flow_event::{Batch, FlowEvent, NameRole};
pub use larder_wire::flow_key::FlowKey;
pub use options::{
    BATCH_BYTES_MAX, Counts, Options, Reserve, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, StoreError,
};
pub use privacy::Privacy;
pub use query::{Query, QueryError};
pub use writer::{Store, block_bytes};
