//! Bodies of HTTP objects: bytes that arrive while many already read them, lent to senders that never block.
//!
//! An [`ObjectStore`] is one arena of fixed size in a memfd. One [`Filler`] appends to an [`Object`]; any number of
//! [`Reader`]s lease what has been published, as slices or straight to sockets by `sendfile`, while the rest is
//! still to come. Nobody blocks and nobody polls: who finds nothing has asked to be told by finding nothing.
//!
//! ```text
//! phase      who may touch it                             leaves by
//! filling    filler appends; readers lease ..published    seal(), fail(), the filler dropped
//! sealed     readers lease all of it                      revoke()
//! failed     readers lease ..published, then learn it     revoke(); it stays failed
//! revoked     those who have it; nobody new opens it       last handle, reader, lease dropped
//! freed      the arena                                    create()
//!
//! unit       free -> reserved for a waiting filler -> filled -> published -> leased.. -> [punched] -> free
//! by         buddy      a grant                       wrote()   publish()    lease()     the kernel had it
//! ```
//!
//! Revocation is apart from the other phases: an object may be revoked while it is filled.
//!
//! # The state word
//!
//! `published length << 8 | revoked | opened | failure | sealed | waiting | wakers`. Every change is one atomic
//! read-modify-write of that word, so there is one order of them, and each party sees in what it *got back* what
//! came before it:
//!
//! 1. *Publish*: the filler adds to the length (Release, after the bytes and the directory's entry). If what it got
//!    back has *waiting*, and it is time to post, it takes the bit away and then all of the set of loops, and posts
//!    to each loop in it.
//! 2. *Find nothing*: a reader puts its loop into the set, then sets *waiting*, and looks at what it got back. If
//!    that has something for it, it does not wait. Else whatever the filler does next comes later in the one order,
//!    and the filler sees *waiting*.
//! 3. So no wake-up is lost: whoever takes *waiting* away takes the set afterwards, and the set had the loop in it
//!    before the bit was set. A loop that another's bit carried away before its own was set is posted to; by then it
//!    has begun to ask, and it asks again when the notice comes. A notice too many is possible, one too few is not.
//!
//! *Visible* and *posted* are two things: [`Filler::publish`] makes bytes visible at once and posts when 64 KiB have
//! come since the last post, [`Filler::publish_now`] posts what is pending. Wakers of threads and tasks go the same
//! way by a bit of their own, and are kept in the order in which they came.
//!
//! # Transit
//!
//! A body that is nobody's to keep ([`Kind::Transit`]) has exactly one reader, and a window: the filler holds at most
//! so much memory, and what the reader has given back is free again behind it, in whatever order it is given back.
//! It is the one rule of back-pressure, and it needs exactly one reader; so a second is refused. Where many pass, a
//! window is their share of `transit_bytes`: four hundred slow readers do not hold four hundred windows.
//!
//! # Invariants (`SAFETY` comments name them)
//! * **O1** A unit has one owner: the buddy's books, a grant, an object, or the one that frees it. It moves under the
//!   books' lock.
//! * **O2** An object's bytes from `published` on are its filler's alone; there is one filler, and it lends one room
//!   at a time (`&mut`).
//! * **O3** Bytes below `published` do not change as long as the object has their unit. `published` only grows, and
//!   whoever reads it (Acquire) sees the bytes below it.
//! * **O4** A kept object gives up its units when its last handle goes; a lease has a handle. (The tail of its last
//!   chunk, which holds nothing published, goes earlier.) A transit object gives up a chunk when the filler has left
//!   it and each of its bytes has been given back by its lease or was skipped; a lease gives back once, and its
//!   reader never leases the same bytes twice.
//! * **O5** A unit that the kernel was shown by [`Lease::send`] is punched before it is free.
//! * **O6** Who waits for memory is served in order: whoever asks while others wait, waits behind them.
//! * **O7** A reader hears [`Leased::End`] at the end of its range, or of a sealed body; never of one that was not
//!   sealed.
//! * **O8** A huge page is one chunk, which its object has whole: nothing of it is trimmed, and it is punched whole before
//!   it is free.
//!
//! Bounds: the arena; a reader's leases (`lease_bytes_max`); a transit object's window. A filler that waits holds one
//! place in a queue. Cost: a lease is one load of the state word, two additions to lines of its reader's and one
//! to its loop's; a publish is one read-modify-write however many read; a seek is O(log chunks). An object has 216 bytes
//! beside its body; a body of one page is created, sealed and freed in half a microsecond.
//!
//! What it does not do: decide. Fillers may wait for memory forever if nobody evicts ([`ObjectStore::shortage_bytes`]
//! says how much), and an object that is larger than the arena never ends: who makes the plan limits it.

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

/// What the buddy's books count by: a page.
pub const UNIT_BYTES: usize = if cfg!(loom) { 2 } else { 4096 };

/// Sizes of blocks: one unit, two, and so on to a chunk.
pub(crate) const ORDERS: usize = if cfg!(loom) { 3 } else { 10 };

/// Units of the largest chunk.
pub(crate) const CHUNK_UNITS_MAX: u32 = 1 << (ORDERS - 1);

/// Bytes of the largest chunk: the longest single lease.
pub const CHUNK_BYTES_MAX: usize = UNIT_BYTES * CHUNK_UNITS_MAX as usize;

/// Units of the first chunk of a body whose length nobody knows; each further one has twice as many.
pub(crate) const FIRST_CHUNK_UNITS: u32 = if cfg!(loom) { 1 } else { 16 };

/// Bounds of a transit object's chunks, which are else a third of its window.
pub(crate) const TRANSIT_CHUNK_UNITS: (u32, u32) = if cfg!(loom) { (1, 2) } else { (4, 64) };

/// So much is published before [`Filler::publish`] posts it.
pub const POST_BYTES: u64 = if cfg!(loom) { 2 } else { 64 << 10 };

/// Loops are numbered below this.
pub const LOOPS_MAX: u32 = 64;

/// Names an object for as long as its store lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(crate) u64);

impl ObjectId {
    /// For keeping where numbers are kept. No two objects of a store have the same, also one after the other.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// How a store is made.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Bytes of the arena; rounded up to a multiple of [`CHUNK_BYTES_MAX`].
    pub bytes: u64,
    /// A running checksum of bytes, by which each page is checked when it is leased; what does not match is
    /// [`Failure::Damaged`]. `None` checks nothing and costs nothing.
    pub digest: Option<fn(u32, &[u8]) -> u32>,
    /// Whole chunks of bodies whose length is known are asked to be huge pages: filled and sent for less. See `Memory::enlarge`.
    pub large_chunks: bool,
    /// Bytes that the windows of bodies in transit have together: a window is no more than its share among those that live, and
    /// no less than 32 KiB. `u64::MAX` leaves them as they are.
    pub transit_bytes: u64,
    /// Deliberate mistake, for the model checker.
    #[cfg(loom)]
    pub fault: ObjectFault,
}

impl StoreOptions {
    /// So many bytes, nothing checked, large chunks, windows as they are asked for.
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
    /// A reader that asked does not look at what it got back.
    NoSecondLook,
    /// A reader sets the bit before its loop is in the set.
    BitBeforeLoop,
    /// The filler takes the set of loops before the bit.
    SetBeforeBit,
    /// A failure is a load and a store.
    FailInTwoSteps,
    /// Places among the wakers are numbered anew each time they are taken.
    TicketsRepeat,
    /// A filler looks for memory and queues under two locks.
    QueueUnlocked,
    /// Memory is punched when it is free already.
    PunchWhenFree,
    /// A filler looks at its window and says that it waits under two locks.
    WindowUnlocked,
    /// A chunk in transit is free when the filler has left it.
    FreeUnreturned,
}

/// Told of news; called with no lock of the store held.
pub trait Post: Send + Sync {
    /// `notice.loop_number` has something to do. It may be called from any thread that has a part in the store, and
    /// at any time until the last part is gone; what is named may be gone by then. It should put the notice into a
    /// queue and return: a loop that leases looks at its notices after the lease that found nothing has returned. The
    /// store keeps it, so it should not keep the store.
    fn post(&self, notice: Notice);
}

/// Something has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// For this loop.
    pub loop_number: u32,
    /// About this object.
    pub object: ObjectId,
    /// What.
    pub news: News,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Its readers on this loop: lease again, or learn the end. One at most until one of them found nothing again.
    More,
    /// Its filler, which lives on this loop: write again, or find that it is not wanted any more
    /// ([`Filler::is_unwanted`]). One too many does no harm.
    Room,
}

/// What is to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The filler lives on this loop; below [`LOOPS_MAX`].
    pub loop_number: u32,
    /// The length that was announced. A body sealed with another one has failed.
    pub bytes: Option<u64>,
    /// Whose it is to keep.
    pub kind: Kind,
}

/// Whose an object is to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All of it stays until the object goes; any number of readers.
    Kept,
    /// Exactly one reader; memory behind it is free as leases return.
    Transit {
        /// Bytes of the arena that it holds at most; one chunk at least.
        window_bytes: u64,
    },
}

/// Why a body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Its origin went away, or sent less than it had announced.
    Origin,
    /// Its filler was dropped.
    Abandoned,
    /// It is longer than announced, or than anything may be.
    TooLong,
    /// What lies in memory is not what was written.
    Damaged,
}

/// Where an object is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// More may come.
    Filling,
    /// It is complete.
    Sealed,
    /// It will never be.
    Failed(Failure),
}

/// Why there is no reader of it: ask elsewhere.
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

/// How a reader reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Its loop, below [`LOOPS_MAX`].
    pub loop_number: u32,
    /// Bytes that its leases hold at most, whoever has them.
    pub lease_bytes_max: u64,
}

/// What a lease came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Leased {
    /// So many bytes were added; the last ones of the reader's range if `is_end`.
    Some {
        /// At least 1.
        bytes: u64,
        /// Nothing comes after them.
        is_end: bool,
    },
    /// Nothing is there yet. A notice (or the waker) comes when that changes.
    Later,
    /// There is something, but the reader's leases hold all that they may: give some back and ask again. No notice.
    ReturnFirst,
    /// All of the range was leased.
    End,
    /// The rest never comes.
    Failed(Failure),
}
