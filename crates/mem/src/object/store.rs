//! The store: the arena, its allocations, and the queue of waiting fillers.
//!
//! The allocator is under one lock, which no thread holds while bytes are copied, pages are punched
//! or notices sent. Memory that is freed goes to waiting fillers, in order: an extent is *reserved*
//! for the first, which then gets [`News::Room`] and takes it. A reservation that is smaller than
//! requested is exchanged for a better one until it is taken, so that small objects freed one by
//! one add up to a large chunk.

use std::io;
use std::sync::Arc as Shared;

use super::buddy::{Buddy, Extent};
use super::digest::Digest;
use super::fifo::{Fifo, Ticket};
use super::filler::Filler;
use super::memory::Memory;
use super::{
    CHUNK_BYTES_MAX, LOOPS_MAX, News, Notice, ObjectId, Plan, Post, StoreOptions, UNIT_BYTES,
};
use crate::sync::{Arc, AtomicU64, CacheLines, Mutex, Ordering};

/// Counters of leased bytes, so that loops do not share one.
const STRIPES: usize = if cfg!(loom) { 1 } else { LOOPS_MAX as usize };

/// Bodies of objects, and all their memory. Cloning is cheap, and a clone is the same store.
#[derive(Clone)]
pub struct ObjectStore {
    pub(crate) core: Arc<Store>,
}

/// A store's figures at a moment. Different counters need not add up while others work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStats {
    /// Bytes of the arena.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes that are reserved for waiting fillers.
    pub reserved_bytes: u64,
    /// Bytes that are lost because the kernel refused to release them.
    pub lost_bytes: u64,
    /// Live objects.
    pub objects: u64,
    /// Leased bytes, counted once per lease.
    pub leased_bytes: u64,
    /// Fillers that wait for memory and have none reserved.
    pub waiting_fillers: u64,
    /// Bytes ever punched because they were passed to the kernel.
    pub punched_bytes: u64,
}

pub(crate) struct Store {
    pub memory: Memory,
    pub digest: Option<Digest>,
    pub large_chunks: bool,
    /// Units that bodies in transit have together, about.
    transit_units: u32,
    /// Live bodies in transit.
    transits: AtomicU64,
    #[cfg(loom)]
    pub fault: super::ObjectFault,
    post: Shared<dyn Post>,
    books: Mutex<Books>,
    /// `shortage_bytes`, as of the allocator's last change.
    shortage_bytes: AtomicU64,
    objects_ever: AtomicU64,
    objects_gone: AtomicU64,
    punched_bytes: AtomicU64,
    leased_bytes: Box<[CacheLines<AtomicU64>]>,
}

struct Books {
    buddy: Buddy,
    /// Units that objects have, or that are being returned.
    held_units: u64,
    reserved_units: u64,
    lost_units: u64,
    queue: Fifo<Waiter>,
    /// Waiters without a reservation: their number and their request.
    waiting: usize,
    wanted_units: u64,
}

struct Waiter {
    object: ObjectId,
    loop_number: u32,
    units: u32,
    reserved: Option<Extent>,
}

impl ObjectStore {
    /// An arena of `options.bytes`, empty; memory is committed when it is first written.
    pub fn new(options: StoreOptions, post: Shared<dyn Post>) -> io::Result<ObjectStore> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = options.bytes.max(1).checked_next_multiple_of(CHUNK_BYTES_MAX as u64);
        let bytes = bytes.ok_or_else(too_large)?;
        let units = u32::try_from(bytes / UNIT_BYTES as u64).map_err(|_| too_large())?;
        Ok(ObjectStore {
            core: Arc::new(Store {
                memory: Memory::new(bytes)?,
                digest: options.digest,
                large_chunks: options.large_chunks,
                transit_units: u32::try_from(options.transit_bytes / UNIT_BYTES as u64)
                    .unwrap_or(u32::MAX),
                transits: AtomicU64::new(0),
                #[cfg(loom)]
                fault: options.fault,
                post,
                books: Mutex::new(Books {
                    buddy: Buddy::new(units),
                    held_units: 0,
                    reserved_units: 0,
                    lost_units: 0,
                    queue: Fifo::default(),
                    waiting: 0,
                    wanted_units: 0,
                }),
                shortage_bytes: AtomicU64::new(0),
                objects_ever: AtomicU64::new(0),
                objects_gone: AtomicU64::new(0),
                punched_bytes: AtomicU64::new(0),
                leased_bytes: (0..STRIPES).map(|_| CacheLines(AtomicU64::new(0))).collect(),
            }),
        })
    }

    /// Creates an object, and returns its filler. Takes no memory yet.
    pub fn create(&self, plan: Plan) -> Filler {
        Filler::new(&self.core, plan)
    }

    /// The file that contains all bytes, for tests that damage them. ([`super::Lease::send`] needs
    /// no file.)
    ///
    /// # Safety
    /// As long as the file or a copy of it is open, no thread writes through it to bytes that a
    /// lease, a reader's check or a filler's room accesses at that moment.
    #[doc(hidden)]
    #[cfg(all(target_os = "linux", not(miri), not(loom)))]
    pub unsafe fn memory(&self) -> std::os::fd::BorrowedFd<'_> {
        self.core.memory.file()
    }

    /// The present figures.
    pub fn stats(&self) -> ObjectStats {
        self.core.stats()
    }

    /// The memory that waiting fillers need beyond the free memory: the owner of stored objects
    /// should evict this much. One load.
    pub fn shortage_bytes(&self) -> u64 {
        self.core.shortage_bytes.load(Ordering::Relaxed)
    }

    /// Checks all invariants. Objects may be in use meanwhile.
    pub fn validate(&self) -> Result<(), String> {
        self.core.books.lock().validate()
    }
}

impl std::fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ObjectStore").field(&self.stats()).finish()
    }
}

impl Store {
    pub fn born(&self) -> ObjectId {
        ObjectId(self.objects_ever.fetch_add(1, Ordering::Relaxed))
    }

    /// Frees all memory of an object that is dropped.
    pub fn free_all(&self, extents: Vec<(Extent, bool)>) {
        self.objects_gone.fetch_add(1, Ordering::Relaxed);
        self.give_back(extents);
    }

    /// Counts a body in transit that begins, or ends.
    pub fn passes(&self, begins: bool) {
        if begins {
            self.transits.fetch_add(1, Ordering::Relaxed);
        } else {
            self.transits.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The present share of each body in transit.
    pub fn share_units(&self) -> u32 {
        let transits = self.transits.load(Ordering::Relaxed).max(1);
        self.transit_units / u32::try_from(transits).unwrap_or(u32::MAX)
    }

    pub fn stripe(&self, loop_number: u32) -> &AtomicU64 {
        &self.leased_bytes[loop_number as usize % STRIPES].0
    }

    pub fn post(&self, notice: Notice) {
        self.post.post(notice);
    }

    /// Up to `units` for a filler, or a place in the queue, in `ticket`. The filler must call this
    /// again for the same object until it gets memory, or call `leave`.
    pub fn take(
        &self,
        ticket: &mut Option<Ticket>,
        object: ObjectId,
        loop_number: u32,
        units: u32,
    ) -> Option<Extent> {
        let mut books = self.books.lock();
        let extent = match *ticket {
            Some(place) => {
                let reserved = books.queue.get_mut(place).and_then(|waiter| waiter.reserved)?;
                books.queue.remove(place);
                books.reserved_units -= u64::from(reserved.units);
                *ticket = None;
                reserved
            }
            // A filler that asks while others wait queues behind them (O6).
            None if books.waiting == 0 && books.buddy.free_units() > 0 => {
                books.buddy.alloc(units).expect("something is free")
            }
            None => {
                #[cfg(loom)]
                if self.fault == super::ObjectFault::QueueUnlocked {
                    drop(books);
                    books = self.books.lock();
                }
                let waiter = Waiter { object, loop_number, units, reserved: None };
                *ticket = Some(books.queue.push(waiter));
                books.waiting += 1;
                books.wanted_units += u64::from(units);
                self.note_shortage(&books);
                return None;
            }
        };
        books.held_units += u64::from(extent.units);
        Some(extent)
    }

    /// Removes a waiting filler.
    pub fn leave(&self, ticket: Ticket) {
        let mut news = Vec::new();
        {
            let mut books = self.books.lock();
            let Some(waiter) = books.queue.remove(ticket) else { return };
            match waiter.reserved {
                Some(extent) => {
                    books.reserved_units -= u64::from(extent.units);
                    books.buddy.free(extent);
                }
                None => {
                    books.waiting -= 1;
                    books.wanted_units -= u64::from(waiter.units);
                }
            }
            books.serve(&mut news);
            self.note_shortage(&books);
        }
        self.notify(news);
    }

    /// Frees extents of objects; those passed to the kernel (`true`) are punched first (O5).
    pub fn give_back(&self, mut extents: Vec<(Extent, bool)>) {
        extents.retain(|(extent, _)| extent.units > 0);
        if extents.is_empty() {
            return;
        }
        #[cfg(loom)]
        let mut late = extents.clone();
        #[cfg(loom)]
        if self.fault == super::ObjectFault::PunchWhenFree {
            extents.iter_mut().for_each(|extent| extent.1 = false);
        }
        let lost = self.punch(&mut extents);
        let mut news = Vec::new();
        {
            let mut books = self.books.lock();
            for &(extent, _) in &extents {
                books.buddy.free(extent);
                books.held_units -= u64::from(extent.units);
            }
            books.held_units -= lost;
            books.lost_units += lost;
            books.serve(&mut news);
            self.note_shortage(&books);
        }
        #[cfg(loom)]
        if self.fault == super::ObjectFault::PunchWhenFree {
            self.punch(&mut late);
        }
        self.notify(news);
    }

    /// Punches the marked extents, neighbors in one call. Extents that the kernel refuses to
    /// release are removed and lost; returns their units.
    fn punch(&self, extents: &mut Vec<(Extent, bool)>) -> u64 {
        if extents.iter().all(|&(_, is_shown)| !is_shown) {
            return 0;
        }
        // The marked ones first, in order of place.
        extents.sort_unstable_by_key(|&(extent, is_shown)| (!is_shown, extent.unit));
        let marked = extents.partition_point(|&(_, is_shown)| is_shown);
        let (mut lost, mut kept) = (0, Vec::with_capacity(extents.len()));
        for run in extents[..marked].chunk_by(|(a, _), (b, _)| a.unit + a.units == b.unit) {
            let offset = u64::from(run[0].0.unit) * UNIT_BYTES as u64;
            let units: u64 = run.iter().map(|&(extent, _)| u64::from(extent.units)).sum();
            let bytes = units * UNIT_BYTES as u64;
            // SAFETY: their last owner gave these units up, they are not leased (O4), and they are
            // not free yet (O1).
            match unsafe { self.memory.punch(offset, bytes) } {
                Ok(()) => {
                    self.punched_bytes.fetch_add(bytes, Ordering::Relaxed);
                    kept.extend_from_slice(run);
                }
                Err(_) => lost += units,
            }
        }
        kept.extend_from_slice(&extents[marked..]);
        *extents = kept;
        lost
    }

    fn notify(&self, news: Vec<(u32, ObjectId)>) {
        for (loop_number, object) in news {
            self.post(Notice { loop_number, object, news: News::Room });
        }
    }

    fn note_shortage(&self, books: &Books) {
        let units = books.wanted_units.saturating_sub(u64::from(books.buddy.free_units()));
        self.shortage_bytes.store(units * UNIT_BYTES as u64, Ordering::Relaxed);
    }

    fn stats(&self) -> ObjectStats {
        let gone = self.objects_gone.load(Ordering::Relaxed);
        let leased: u64 = self
            .leased_bytes
            .iter()
            .fold(0, |sum, leased| sum.wrapping_add(leased.0.load(Ordering::Relaxed)));
        let books = self.books.lock();
        let bytes = |units: u64| units * UNIT_BYTES as u64;
        ObjectStats {
            bytes: bytes(u64::from(books.buddy.units())),
            free_bytes: bytes(u64::from(books.buddy.free_units())),
            reserved_bytes: bytes(books.reserved_units),
            lost_bytes: bytes(books.lost_units),
            objects: self.objects_ever.load(Ordering::Relaxed).saturating_sub(gone),
            leased_bytes: leased,
            waiting_fillers: books.waiting as u64,
            punched_bytes: self.punched_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Books {
    /// Gives free memory to waiting fillers, in order; `news` lists those that had nothing before.
    fn serve(&mut self, news: &mut Vec<(u32, ObjectId)>) {
        let mut next = self.queue.first();
        while let Some(ticket) = next {
            if self.buddy.free_units() == 0 {
                return;
            }
            let waiter = self.queue.get_mut(ticket).expect("it is in the queue");
            match waiter.reserved {
                Some(extent) if extent.units == waiter.units => {}
                Some(extent) => {
                    // Joined with memory freed since, it may be a larger piece.
                    self.buddy.free(extent);
                    let better = self.buddy.alloc(waiter.units).expect("it was just freed");
                    waiter.reserved = Some(better);
                    self.reserved_units += u64::from(better.units);
                    self.reserved_units -= u64::from(extent.units);
                }
                None => {
                    let extent = self.buddy.alloc(waiter.units).expect("something is free");
                    waiter.reserved = Some(extent);
                    self.reserved_units += u64::from(extent.units);
                    self.waiting -= 1;
                    self.wanted_units -= u64::from(waiter.units);
                    news.push((waiter.loop_number, waiter.object));
                }
            }
            next = self.queue.after(ticket);
        }
    }

    fn validate(&mut self) -> Result<(), String> {
        self.buddy.validate()?;
        let free = u64::from(self.buddy.free_units());
        let sum = free + self.held_units + self.reserved_units + self.lost_units;
        if sum != u64::from(self.buddy.units()) {
            return Err(format!("{sum} units of {} are accounted for", self.buddy.units()));
        }
        let (mut waiting, mut wanted, mut reserved) = (0, 0, 0);
        let mut next = self.queue.first();
        while let Some(ticket) = next {
            let waiter = self.queue.get_mut(ticket).ok_or("a ticket without a waiter")?;
            match waiter.reserved {
                Some(extent) => reserved += u64::from(extent.units),
                None => {
                    waiting += 1;
                    wanted += u64::from(waiter.units);
                }
            }
            next = self.queue.after(ticket);
        }
        if (waiting, wanted, reserved) != (self.waiting, self.wanted_units, self.reserved_units) {
            return Err(format!("{waiting} wait for {wanted} units, {reserved} are reserved"));
        }
        if waiting > 0 && free > 0 {
            return Err(format!("{waiting} wait though {free} units are free"));
        }
        Ok(())
    }
}
