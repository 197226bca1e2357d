//! The places of a transit object's chunks: a queue that its filler extends and its one reader's
//! leases shorten.
//!
//! It has a lock of its own, for two users at most: a chunk is 16 to 256 KiB, so neither takes it
//! often.
//!
//! ```text
//! chunk   current -> complete -> all bytes returned or skipped, and so each chunk before it -> out of the ring
//! by      push       next        give_back, skip                                                first to notice
//! ```
//!
//! The window is counted in units held, so it is the object's memory in the arena, and also the
//! most that the filler can be ahead of what was returned. If there are many bodies in transit, a
//! window is less: its *share* of their common limit, which callers pass each time. A waiting ring
//! is notified when half of its present window is free, or when everything was returned.

use std::collections::VecDeque;

use super::buddy::Extent;
use super::directory::Chunk;
use super::{TRANSIT_CHUNK_UNITS, UNIT_BYTES};
use crate::sync::Mutex;

pub(crate) struct Ring {
    /// Units that it holds, at most.
    pub window_units: u32,
    books: Mutex<Books>,
    #[cfg(loom)]
    fault: super::ObjectFault,
}

struct Books {
    chunks: VecDeque<Passing>,
    /// The number of the first chunk; chunks are counted from the first ever.
    first: u64,
    held_units: u32,
    /// Bytes before this will not be read.
    skipped: u64,
    filler_waits: bool,
    #[cfg(loom)]
    frees_unreturned: bool,
}

struct Passing {
    chunk: Chunk,
    /// Bytes that leases returned.
    returned: u64,
    /// The filler has left it.
    is_complete: bool,
    /// Some of it was passed to the kernel.
    is_shown: bool,
}

/// A returned lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Returned {
    pub chunk: u64,
    pub bytes: u64,
    pub is_shown: bool,
}

/// The result of a step: chunks out of the ring, and whether the filler may continue.
#[derive(Default)]
#[must_use]
pub(crate) struct Step {
    pub freed: Vec<(Extent, bool)>,
    pub is_room: bool,
    /// Units that the next chunk should have.
    pub chunk_units: u32,
}

impl Ring {
    pub fn new(window_bytes: u64, #[cfg(loom)] fault: super::ObjectFault) -> Self {
        let window = u32::try_from(window_bytes / UNIT_BYTES as u64).unwrap_or(u32::MAX / 2);
        Ring {
            window_units: window.max(TRANSIT_CHUNK_UNITS.0),
            books: Mutex::new(Books {
                chunks: VecDeque::new(),
                first: 0,
                held_units: 0,
                skipped: 0,
                filler_waits: false,
                #[cfg(loom)]
                frees_unreturned: fault == super::ObjectFault::FreeUnreturned,
            }),
            #[cfg(loom)]
            fault,
        }
    }

    /// Units that it may hold now, and units of a chunk.
    fn limits(&self, share_units: u32) -> (u32, u32) {
        let (least, most) = TRANSIT_CHUNK_UNITS;
        // At least two chunks, so that one is filled while the other is sent.
        let units = self.window_units.min(share_units.max(2 * least));
        (units, units.div_ceil(3).clamp(least, most))
    }

    /// The filler has left its chunk and needs another. If `is_room` is false the window is used
    /// up, and a notice comes when half of it is free.
    pub fn next(&self, share_units: u32) -> Step {
        let (units, chunk_units) = self.limits(share_units);
        let mut books = self.books.lock();
        if let Some(last) = books.chunks.back_mut() {
            last.is_complete = true;
        }
        let freed = books.shift();
        // The last chunk of a window has the remaining units.
        let rest_units = units.saturating_sub(books.held_units);
        let is_room = rest_units >= TRANSIT_CHUNK_UNITS.0;
        let chunk_units = chunk_units.min(rest_units);
        #[cfg(loom)]
        if self.fault == super::ObjectFault::WindowUnlocked {
            drop(books);
            books = self.books.lock();
        }
        books.filler_waits = !is_room;
        Step { freed, is_room, chunk_units }
    }

    /// Adds a chunk; called by the filler, after `next` had room.
    pub fn push(&self, start: u64, extent: Extent) {
        let mut books = self.books.lock();
        books.held_units += extent.units;
        let chunk = Chunk { start, extent };
        books.chunks.push_back(Passing { chunk, returned: 0, is_complete: false, is_shown: false });
    }

    /// The filler's chunk shrinks to `extent`.
    pub fn trim(&self, extent: Extent) {
        let mut books = self.books.lock();
        if let Some(last) = books.chunks.back_mut() {
            let units = last.chunk.extent.units - extent.units;
            last.chunk.extent = extent;
            books.held_units -= units;
        }
    }

    /// The chunk of a published byte that was not returned.
    pub fn find(&self, position: u64) -> u64 {
        let books = self.books.lock();
        let behind = books.chunks.partition_point(|passing| passing.chunk.start <= position);
        books.first + behind.checked_sub(1).expect("not given back, so it is here") as u64
    }

    /// A chunk with bytes that were not returned.
    pub fn chunk(&self, number: u64) -> Chunk {
        let books = self.books.lock();
        books.chunks[(number - books.first) as usize].chunk
    }

    /// The one reader begins at `position`.
    pub fn skip(&self, position: u64, share_units: u32) -> Step {
        let mut books = self.books.lock();
        books.skipped = position;
        self.settle(&mut books, share_units)
    }

    /// Returns leases, in any order.
    pub fn give_back(&self, leases: impl IntoIterator<Item = Returned>, share_units: u32) -> Step {
        let mut books = self.books.lock();
        for Returned { chunk, bytes, is_shown } in leases {
            let index = (chunk - books.first) as usize;
            let passing = &mut books.chunks[index];
            passing.returned += bytes;
            passing.is_shown |= is_shown;
            assert!(passing.returned <= passing.bytes(), "a lease was given back twice");
        }
        self.settle(&mut books, share_units)
    }

    pub fn held_units(&self) -> u32 {
        self.books.lock().held_units
    }

    /// All remaining extents, and whether the kernel got some of each: for when the object is
    /// dropped.
    pub fn extents(&self) -> Vec<(Extent, bool)> {
        let books = self.books.lock();
        books.chunks.iter().map(|passing| (passing.chunk.extent, passing.is_shown)).collect()
    }

    fn settle(&self, books: &mut Books, share_units: u32) -> Step {
        let freed = books.shift();
        let (units, chunk_units) = self.limits(share_units);
        let is_room = books.filler_waits && books.held_units <= units / 2;
        if is_room {
            books.filler_waits = false;
        }
        Step { freed, is_room, chunk_units }
    }
}

impl Books {
    /// Removes finished chunks from the front.
    fn shift(&mut self) -> Vec<(Extent, bool)> {
        let mut freed = Vec::new();
        while let Some(front) = self.chunks.front() {
            let skipped = self.skipped.saturating_sub(front.chunk.start).min(front.bytes());
            let is_done = match () {
                #[cfg(loom)]
                () if self.frees_unreturned => true,
                () => front.returned + skipped == front.bytes(),
            };
            if !front.is_complete || !is_done {
                break;
            }
            self.held_units -= front.chunk.extent.units;
            freed.push((front.chunk.extent, front.is_shown));
            self.chunks.pop_front();
            self.first += 1;
        }
        freed
    }
}

impl Passing {
    fn bytes(&self) -> u64 {
        self.chunk.end() - self.chunk.start
    }
}
