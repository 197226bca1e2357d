//! Bodies of HTTP objects: bytes that many readers read while they arrive, leased to senders that
//! never block.
//!
//! An [`ObjectStore`] is one arena of fixed size in a memfd. One [`Filler`] appends to an
//! [`Object`]. Any number of [`Reader`]s lease what has been published, as slices or straight to
//! sockets by `sendfile`, while the rest is still to come. No thread blocks or polls: a reader that
//! finds nothing is notified when there is more.
//!
//! ```text
//! phase      who may access it                            ends by
//! filling    filler appends; readers lease ..published    seal(), fail(), the filler dropped
//! sealed     readers lease all of it                      revoke()
//! failed     readers lease ..published, then the failure  revoke(); it stays failed
//! revoked    present readers; no new one opens it         last handle, reader, lease dropped
//! freed      the arena                                    create()
//!
//! unit       free -> reserved for a waiting filler -> filled -> published -> leased.. -> [punched] -> free
//! by         buddy      a grant                       wrote()   publish()    lease()     if sent by the kernel
//! ```
//!
//! Revocation is independent of the other phases: an object may be revoked while it is filled.
//!
//! # The state word
//!
//! `published length << 8 | revoked | opened | failure | sealed | waiting | wakers`. Every change
//! is one atomic read-modify-write of that word, so all changes have one order, and the value
//! *returned* to each party shows what came before it:
//!
//! 1. *Publish*: the filler adds to the length (Release, after the bytes and the directory's
//!    entry). If the returned value has *waiting*, and it is time to notify, the filler clears the
//!    bit and then takes the whole set of loops, and notifies each loop in it.
//! 2. *Find nothing*: a reader puts its loop into the set, then sets *waiting*, and checks the
//!    returned value. If that has something for the reader, it does not wait. Otherwise the
//!    filler's next change comes later in the one order, and the filler sees *waiting*.
//! 3. So no wake-up is lost: a thread that clears *waiting* takes the set afterwards, and the set
//!    had the loop in it before the bit was set. If another reader's bit is cleared after a loop
//!    entered the set and before that loop set its own, that loop is notified. By then it has begun
//!    to ask, and it asks again on the notice. There can be a notice too many, but not one too few.
//!
//! Bytes are *visible* before they are *posted*. [`Filler::publish`] makes bytes visible at once,
//! and notifies when 64 KiB have come since the last notice. [`Filler::publish_now`] sends pending
//! notices. Wakers of threads and tasks work the same way with a bit of their own, and are woken in
//! the order in which they came.
//!
//! # Transit
//!
//! A body that is not stored ([`Kind::Transit`]) has exactly one reader, and a window: the filler
//! holds at most this much memory, and bytes that the reader has returned, in any order, are free
//! again. This is the only rule of back-pressure, and it needs exactly one reader, so a second one
//! is refused. If there are many such bodies, a window is their share of `transit_bytes`: four
//! hundred slow readers do not hold four hundred full windows.
//!
//! # Invariants (`SAFETY` comments name them)
//! * **O1** A unit has one owner: the buddy allocator, a grant, an object, or the thread that frees
//!   it. It changes owner under the allocator's lock.
//! * **O2** Only the filler accesses an object's bytes from `published` on; there is one filler,
//!   and it returns one room at a time (`&mut`).
//! * **O3** Bytes below `published` do not change as long as the object has their unit. `published`
//!   only grows, and a thread that reads it (Acquire) sees the bytes below it.
//! * **O4** A stored object frees its units when its last handle is dropped; a lease has a handle.
//!   (The tail of its last chunk, which has no published bytes, is freed earlier.) A transit object
//!   frees a chunk when the filler has left it and each of its bytes has been returned by its lease
//!   or was skipped. A lease returns once, and its reader never leases the same bytes twice.
//! * **O5** A unit that [`Lease::send`] passed to the kernel is punched before it is free.
//! * **O6** Fillers that wait for memory are served in order: a filler that asks while others wait
//!   queues behind them.
//! * **O7** A reader gets [`Leased::End`] at the end of its range or of a sealed body, never for a
//!   body that was not sealed.
//! * **O8** A huge page is one chunk, which its object owns whole: nothing of it is trimmed, and it
//!   is punched whole before it is free.
//!
//! Bounds: the arena; a reader's leases (`lease_bytes_max`); a transit object's window. A waiting
//! filler has one entry in a queue. Cost: a lease is one load of the state word, two additions to
//! cache lines of its reader and one to its loop's. A publish is one read-modify-write, however
//! many readers there are. A seek is O(log chunks). An object has 216 bytes besides its body; a
//! body of one page is created, sealed and freed in half a microsecond.
//!
//! The store makes no decisions. Fillers may wait for memory forever if nothing is evicted
//! ([`ObjectStore::shortage_bytes`] tells how much), and an object that is larger than the arena
//! never ends: the caller limits its length.

mod body;
mod buddy;
mod digest;
mod directory;
mod fifo;
mod filler;
mod iterate;
mod lease;
mod memory;
mod reader;
mod ring;
mod store;

pub use body::Object;
pub use filler::{Filler, Room};
pub use iterate::LeaseStream;
#[cfg(not(loom))]
pub use iterate::iterate;
pub use lease::Lease;
pub use reader::Reader;
pub use store::{ObjectStats, ObjectStore};

/// The unit of allocation: a page.
pub const UNIT_BYTES: usize = if cfg!(loom) { 2 } else { 4096 };

/// Sizes of blocks: one unit, two, and so on to a chunk.
pub(crate) const ORDERS: usize = if cfg!(loom) { 3 } else { 10 };

/// Units of the largest chunk.
pub(crate) const CHUNK_UNITS_MAX: u32 = 1 << (ORDERS - 1);

/// Bytes of the largest chunk, and so of the longest single lease.
pub const CHUNK_BYTES_MAX: usize = UNIT_BYTES * CHUNK_UNITS_MAX as usize;

/// Units of the first chunk of a body of unknown length; each further chunk has twice as many.
pub(crate) const FIRST_CHUNK_UNITS: u32 = if cfg!(loom) { 1 } else { 16 };

/// Bounds of a transit object's chunks, which are otherwise a third of its window.
pub(crate) const TRANSIT_CHUNK_UNITS: (u32, u32) = if cfg!(loom) { (1, 2) } else { (4, 64) };

/// Bytes published before [`Filler::publish`] sends a notice.
pub const POST_BYTES: u64 = if cfg!(loom) { 2 } else { 64 << 10 };

/// Limit of loop numbers.
pub const LOOPS_MAX: u32 = 64;

/// Identifies an object within its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(crate) u64);

impl ObjectId {
    /// The id as a number, for storing. No two objects of a store ever have the same.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The settings of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Bytes of the arena; rounded up to a multiple of [`CHUNK_BYTES_MAX`].
    pub bytes: u64,
    /// A running checksum of bytes. Each page is checked when it is leased; a mismatch is
    /// [`Failure::Damaged`]. `None` checks nothing and costs nothing.
    pub digest: Option<fn(u32, &[u8]) -> u32>,
    /// Asks for huge pages for whole chunks of bodies of known length, which are filled and sent at
    /// lower cost. See `Memory::enlarge`.
    pub large_chunks: bool,
    /// Bytes that all windows of bodies in transit have together. A window is at most its share
    /// among the live ones, and at least 32 KiB. `u64::MAX` leaves windows as requested.
    pub transit_bytes: u64,
    /// Deliberate mistake, for the model checker.
    #[cfg(loom)]
    pub fault: ObjectFault,
}

impl StoreOptions {
    /// This many bytes, no checks, large chunks, windows as requested.
    pub fn of(bytes: u64) -> StoreOptions {
        StoreOptions {
            bytes,
            digest: None,
            large_chunks: true,
            transit_bytes: u64::MAX,
            #[cfg(loom)]
            fault: ObjectFault::None,
        }
    }
}

/// Deliberate mistakes, each of which the model checker must catch.
#[cfg(loom)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFault {
    /// None: the protocol as it is.
    None,
    /// The length is published without Release.
    PublishRelaxed,
    /// A reader that asked does not check the returned value.
    NoSecondLook,
    /// A reader sets the bit before its loop is in the set.
    BitBeforeLoop,
    /// The filler takes the set of loops before the bit.
    SetBeforeBit,
    /// A failure is a load and a store.
    FailInTwoSteps,
    /// Tickets of wakers are numbered from the start each time.
    TicketsRepeat,
    /// A filler searches memory and queues under two locks.
    QueueUnlocked,
    /// Memory is punched when it is already free.
    PunchWhenFree,
    /// A filler checks its window and begins to wait under two locks.
    WindowUnlocked,
    /// A chunk in transit is free when the filler has left it.
    FreeUnreturned,
}

/// Receives notices; called without any lock of the store.
pub trait Post: Send + Sync {
    /// `notice.loop_number` has something to do. The call can come from any thread that uses the
    /// store, until its last handle is dropped; the named object may be freed by then. The
    /// implementation should put the notice into a queue and return. A loop that leases handles its
    /// notices after the lease that found nothing has returned. The store owns this, so this should
    /// not own the store.
    fn post(&self, notice: Notice);
}

/// A notice of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The loop to notify.
    pub loop_number: u32,
    /// The object that changed.
    pub object: ObjectId,
    /// The change.
    pub news: News,
}

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// For readers on this loop: lease again, or get the end. There is at most one until one of
    /// them found nothing again.
    More,
    /// For its filler on this loop: write again, or find that it is unwanted
    /// ([`Filler::is_unwanted`]). An extra one is harmless.
    Room,
}

/// A body to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The filler's loop; below [`LOOPS_MAX`].
    pub loop_number: u32,
    /// The announced length. A body sealed with another length has failed.
    pub bytes: Option<u64>,
    /// Whether the body is stored.
    pub kind: Kind,
}

/// Whether a body is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All of it stays until the object is dropped; any number of readers.
    Stored,
    /// Exactly one reader; memory behind it is free when leases return.
    Transit {
        /// Bytes of the arena that it holds, at most; one chunk at least.
        window_bytes: u64,
    },
}

/// Why a body failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Its origin closed the connection, or sent less than announced.
    Origin,
    /// Its filler was dropped.
    Abandoned,
    /// It is longer than announced, or than the limit.
    TooLong,
    /// The bytes in memory differ from the written ones.
    Damaged,
}

/// The phase of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// More may come.
    Filling,
    /// It is complete.
    Sealed,
    /// It will never be complete.
    Failed(Failure),
}

/// Why an object can't be opened: look elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// It is revoked.
    Revoked,
    /// It has failed.
    Failed(Failure),
    /// It is in transit, and had its reader.
    Taken,
}

/// The settings of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Its loop, below [`LOOPS_MAX`].
    pub loop_number: u32,
    /// The most bytes that its leases hold, whichever thread owns them.
    pub lease_bytes_max: u64,
}

/// The result of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Leased {
    /// This many bytes were added; the last ones of the reader's range if `is_end`.
    Some {
        /// At least 1.
        bytes: u64,
        /// No bytes come after them.
        is_end: bool,
    },
    /// There are no bytes yet. A notice (or the waker) comes when that changes.
    Later,
    /// There are bytes, but the reader's leases are at their limit: return some and try again. No
    /// notice comes.
    ReturnFirst,
    /// All of the range was leased.
    End,
    /// The remaining bytes will never come.
    Failed(Failure),
}
