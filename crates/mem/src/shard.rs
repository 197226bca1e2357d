//! The shard: the state that all cores share, and main, which changes it. See the crate's header.
//!
//! Every operation that writes records first asks for room ([`Main::reserve`]); if there is none,
//! it has changed nothing. The tail is published when the [`Guard`] is dropped, once for all of its
//! operations. A panic under the lock poisons the shard: its half-done change is never published,
//! later locks fail, reads still work.

mod moves;
mod slots;
mod usage;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32 as PlainAtomicU32;

use crate::arena::{Arena, HEADER_BYTES, OwnedSlot, SHARDS_EVER, Slot, VERSION_BYTES};
use crate::class::Classes;
use crate::config::Config;
#[cfg(loom)]
use crate::config::Fault;
use crate::error::{Error, Stalled};
use crate::leases::Leases;
use crate::log::{Log, LogPosition, PARKED, Place, Record};
use crate::pages::Pages;
use crate::region::Memory;
use crate::sync::{Mutex, MutexGuard, Ordering};
use crate::table::{Bucket, MainTable};

pub use self::moves::ToMove;
pub use self::usage::ReaderLag;

/// Revoked slots checked per reclaim. All are checked before main reports that no slot is left.
const REVOKED_PER_RECLAIM: usize = 16;

/// How many records ahead the log's lines are prefetched.
const LOG_AHEAD: u64 = 24;

#[derive(Debug)]
pub(crate) struct Core {
    pub arena: Arena,
    pub log: Log,
    /// Changed under the lock only.
    pub table: MainTable,
    pub config: Config,
    pub leases: Leases,
    pub classes: Classes,
    id: u32,
}

/// Main's own state, behind the lock.
#[derive(Debug)]
pub(crate) struct Books {
    pages: Pages,
    /// As published, plus the records of this lock hold.
    pub tail: u64,
    /// Records before it may be overwritten: the `min_active` last computed, or less.
    floor: u64,
    /// Records before it have left limbo.
    limbo_head: u64,
    /// Slots retired and not yet free.
    limbo_slots: u64,
    /// Bytes of those slots.
    limbo_bytes: u64,
    /// Slots that no reader can reach any more, and that leases held at main's last check.
    revoked: VecDeque<u32>,
    taken: Box<[bool]>,
    poisoned: bool,
}

impl Books {
    /// Reserves the records from `position` on for a reader that continues there, if all of them
    /// are still there. The slots that they retired may be free already: the reader reads none
    /// before it is at the tail.
    pub fn hold_log(&mut self, position: u64, records: u64) -> bool {
        let there = self.tail - position <= records;
        if there {
            self.floor = self.floor.min(position);
        }
        there
    }
}

#[derive(Debug)]
struct Inner<S> {
    books: Books,
    state: S,
}

/// One shard with the engine's own state `S` behind the same lock.
#[derive(Debug)]
pub struct Shard<S> {
    pub(crate) core: Core,
    main: Mutex<Inner<S>>,
}

static NEXT_ID: PlainAtomicU32 = PlainAtomicU32::new(0);

impl<S> Shard<S> {
    /// Maps all memory that the shard will ever use, except readers' replicas.
    pub fn new(config: Config, state: S) -> Result<Self, Error> {
        config.check()?;
        Shard::new_in(&Memory::new(config.main_bytes()).map_err(Error::Memory)?, config, state)
    }

    /// As [`Shard::new`], in [`Config::main_bytes`] of the caller's mapping.
    pub fn new_in(memory: &Memory, config: Config, state: S) -> Result<Self, Error> {
        config.check()?;
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let id = NEXT_ID
            .fetch_update(relaxed, relaxed, |id| (id < SHARDS_EVER).then_some(id + 1))
            .map_err(|_| Error::Config("a process makes at most 16 million shards"))?;
        let classes = Classes::new(config.page_bytes);
        let books = Books {
            pages: Pages::new(memory, &classes, config.pages)?,
            tail: 0,
            floor: 0,
            limbo_head: 0,
            limbo_slots: 0,
            limbo_bytes: 0,
            revoked: VecDeque::new(),
            taken: vec![false; config.readers_max].into_boxed_slice(),
            poisoned: false,
        };
        Ok(Shard {
            core: Core {
                arena: Arena::new(memory, config.pages * config.page_bytes, id)
                    .map_err(Error::Memory)?,
                log: Log::new(memory, config.log_records, config.readers_max)?,
                table: MainTable::new(memory, &config)?,
                config,
                leases: Leases::new(memory, &config, &classes)?,
                classes,
                id,
            },
            main: Mutex::new(Inner { books, state }),
        })
    }

    /// The configuration that it was built with.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// The size classes of its slots.
    pub fn classes(&self) -> &Classes {
        &self.core.classes
    }

    /// Becomes main, waiting for the lock.
    pub fn lock(&self) -> Result<Guard<'_, S>, Error> {
        self.guard(self.main.lock())
    }

    /// Becomes main if the lock is free; `None` otherwise.
    pub fn try_lock(&self) -> Option<Result<Guard<'_, S>, Error>> {
        self.main.try_lock().map(|inner| self.guard(inner))
    }

    fn guard<'a>(&'a self, inner: MutexGuard<'a, Inner<S>>) -> Result<Guard<'a, S>, Error> {
        if inner.books.poisoned {
            return Err(Error::Poisoned);
        }
        let published = inner.books.tail;
        Ok(Guard { core: &self.core, inner, published, unwinding: std::thread::panicking() })
    }

    /// Writes an owned slot: key, value, expiry, and a version, which takes [`VERSION_BYTES`] more.
    ///
    /// # Panics
    /// If they do not fit the slot's class, or the slot belongs to another shard.
    #[inline]
    pub fn fill(
        &self,
        slot: &mut OwnedSlot,
        key: &[u8],
        value: &[u8],
        expires: u32,
        version: Option<u64>,
    ) {
        self.build(slot, key, value.len()).copy_from_slice(value);
        self.finish(slot, key.len(), value.len(), expires, version);
    }

    /// Writes an owned slot's key and returns the room for a value of up to `room` bytes, with old
    /// contents. [`Shard::finish`] sets how many of them count.
    ///
    /// The room keeps both the shard and the slot borrowed:
    ///
    /// ```compile_fail,E0505
    /// # use larder_mem::{Config, IndexMode, Shard};
    /// # let config = Config {
    /// #     page_bytes: 1024, pages: 1, buckets: 1, log_records: 1, readers_max: 1, index_mode: IndexMode::Replicated,
    /// #     copy_buckets: 1, lease_bytes_max: 0, lease_slot_bytes: 1024,
    /// # };
    /// # let shard = Shard::new(config, ()).unwrap();
    /// # let mut slot = shard.lock().unwrap().parts().0.alloc(0).unwrap();
    /// let room = shard.build(&mut slot, b"k", 4);
    /// drop(shard);
    /// room[0] = 1;
    /// ```
    ///
    /// # Panics
    /// If they do not fit the slot's class, or the slot belongs to another shard.
    #[inline]
    pub fn build<'a>(&'a self, slot: &'a mut OwnedSlot, key: &[u8], room: usize) -> &'a mut [u8] {
        let size = self.core.classes.size(slot.class());
        self.core.arena.begin(slot, key, room, size)
    }

    /// Completes the entry of [`Shard::build`]. A version takes [`VERSION_BYTES`] more.
    ///
    /// # Panics
    /// If the lengths do not fit the slot's class, or the slot belongs to another shard.
    #[inline]
    pub fn finish(
        &self,
        slot: &mut OwnedSlot,
        key_len: usize,
        value_len: usize,
        expires: u32,
        version: Option<u64>,
    ) {
        let size = self.core.classes.size(slot.class());
        let version_bytes = if version.is_some() { VERSION_BYTES } else { 0 };
        let bytes = HEADER_BYTES + key_len + value_len + version_bytes;
        assert!(bytes <= size, "key, value and version fit the slot's class");
        let key_len = u8::try_from(key_len).expect("a key has at most 255 bytes");
        let value_len = u16::try_from(value_len).expect("a value has at most 65535 bytes");
        self.core.arena.finish(slot, key_len, value_len, expires, version);
    }

    /// Prefetches the line of a bucket that will be read soon, under the lock or without it.
    #[inline]
    pub fn prefetch_bucket(&self, bucket: usize) {
        self.core.table.prefetch(bucket);
    }

    /// Prefetches the lines of an owned slot that is about to be written.
    #[inline]
    pub fn prefetch(&self, slot: &OwnedSlot) {
        self.core.arena.prefetch_lines(slot.id(), self.core.classes.size(slot.class()));
    }

    /// The key of an owned slot. (Not a [`Slot`] of it: those can be leased.)
    #[inline]
    pub fn key_of<'a>(&'a self, slot: &'a OwnedSlot) -> &'a [u8] {
        self.read(slot).key()
    }

    /// The value of an owned slot.
    #[inline]
    pub fn value_of<'a>(&'a self, slot: &'a OwnedSlot) -> &'a [u8] {
        self.read(slot).value()
    }

    /// The version of an owned slot.
    #[inline]
    pub fn version_of(&self, slot: &OwnedSlot) -> Option<u64> {
        self.read(slot).version()
    }

    #[inline]
    fn read<'a>(&'a self, slot: &'a OwnedSlot) -> Slot<'a> {
        assert_eq!(slot.shard(), self.core.id, "a slot goes back to the shard it came from");
        // SAFETY: by I2 only the owner reaches the slot, and it is borrowed as long as the view.
        unsafe { self.core.arena.view(slot.id()) }
    }
}

/// The held lock, which makes its owner main. Dropping it publishes the changes.
pub struct Guard<'a, S> {
    core: &'a Core,
    inner: MutexGuard<'a, Inner<S>>,
    /// The tail that readers see.
    published: u64,
    /// The thread was already unwinding when it took the lock, so that panic was not in here.
    unwinding: bool,
}

impl<S> Guard<'_, S> {
    /// Main's access to the shard, and the engine's own state.
    pub fn parts(&mut self) -> (Main<'_>, &mut S) {
        let inner = &mut *self.inner;
        (Main { core: self.core, books: &mut inner.books }, &mut inner.state)
    }

    /// The engine's own state.
    pub fn state(&self) -> &S {
        &self.inner.state
    }

    pub(crate) fn books(&mut self) -> &mut Books {
        &mut self.inner.books
    }

    pub(crate) fn table(&self) -> &[Bucket] {
        // SAFETY: a guard is the lock, and the borrow of it ends first.
        unsafe { self.core.table.owned() }
    }
}

impl<S> Drop for Guard<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            self.inner.books.poisoned = true;
            return;
        }
        if self.inner.books.tail == self.published {
            return;
        }
        let order = match () {
            #[cfg(loom)]
            () if self.core.config.fault == Fault::TailRelaxed => Ordering::Relaxed,
            () => Ordering::Release,
        };
        self.core.log.set_tail(self.inner.books.tail, order);
    }
}

/// The authoritative index and the slots that its ways own.
pub struct Main<'a> {
    core: &'a Core,
    books: &'a mut Books,
}

impl Main<'_> {
    #[inline(always)]
    fn table(&self) -> &[Bucket] {
        // SAFETY: `self` exists only under the lock, and the borrow of it ends first.
        unsafe { self.core.table.owned() }
    }

    #[inline(always)]
    fn set_way(&self, bucket: usize, way: usize, tag_word: u16, slot: u32) {
        self.table()[bucket].set_way(way, tag_word, slot, self.core.table.store_order());
    }

    /// Makes sure that `records` more records can be written.
    #[inline]
    pub fn reserve(&mut self, records: u64) -> Result<(), Stalled> {
        if self.fits(records) {
            return Ok(());
        }
        self.reclaim();
        if self.fits(records) { Ok(()) } else { Err(self.slowest()) }
    }

    #[inline]
    fn fits(&self, records: u64) -> bool {
        self.books.tail + records - self.books.floor <= self.core.log.records()
    }

    /// Records that can be written without another sync of a reader, as far as main knows.
    pub fn room(&self) -> u64 {
        self.core.log.records() - (self.books.tail - self.books.floor)
    }

    /// The reader that is furthest behind. With `behind` 0 there is none.
    pub fn slowest(&self) -> Stalled {
        let tail = self.books.tail;
        (0..self.core.log.cursors())
            .map(|reader| (reader, self.core.log.cursor(reader)))
            .filter(|&(_, cursor)| cursor != PARKED)
            .map(|(reader, cursor)| Stalled { reader, behind: tail - cursor })
            .max_by_key(|stalled| stalled.behind)
            .unwrap_or(Stalled { reader: 0, behind: 0 })
    }

    /// Frees what no active reader can reach any more (the header's rule 5).
    pub fn reclaim(&mut self) {
        let mut min = self.books.tail;
        for reader in 0..self.core.log.cursors() {
            let cursor = self.core.log.cursor(reader);
            if cursor == PARKED {
                continue;
            }
            #[cfg(loom)]
            if self.core.config.fault == Fault::Lap
                && self.books.tail - cursor >= self.core.log.records()
            {
                continue;
            }
            #[cfg(loom)]
            if self.core.config.fault == Fault::LastCursorOnly {
                min = cursor;
                continue;
            }
            min = min.min(cursor);
        }
        self.books.floor = min;
        while self.books.limbo_head < min {
            // SAFETY: `self` exists only under the lock.
            let record = unsafe { self.core.log.read(self.books.limbo_head) };
            self.books.limbo_head += 1;
            if record.retired != 0 {
                self.books.limbo_slots -= 1;
                self.books.limbo_bytes -= self.books.pages.bytes_of(record.retired);
                // By I1, with `limbo_head - 1 < min_active`.
                self.free_unless_leased(record.retired);
            }
        }
        self.revisit_revoked(REVOKED_PER_RECLAIM);
    }

    /// Frees a slot that no cursor protects, or revokes it (I6).
    fn free_unless_leased(&mut self, slot: u32) {
        let leases = &self.core.leases;
        if leases.counts(self.books.pages.class_of(slot)) && leases.holds(slot) {
            self.books.revoked.push_back(slot);
        } else {
            self.books.pages.free(slot);
        }
    }

    /// Checks up to `count` revoked slots again, the longest waiting first.
    fn revisit_revoked(&mut self, count: usize) {
        for _ in 0..count.min(self.books.revoked.len()) {
            if let Some(slot) = self.books.revoked.pop_front() {
                self.free_unless_leased(slot);
            }
        }
    }

    /// (Always inlined: a record that is passed through memory is written in pieces and read back
    /// as a whole, see [`OwnedSlot`].)
    #[inline(always)]
    fn push(&mut self, mut record: Record) {
        assert!(self.fits(1), "room was reserved for every record");
        record.mask = self.table()[record.place.bucket()].mask();
        if record.retired != 0 {
            self.books.limbo_slots += 1;
            self.books.limbo_bytes += self.books.pages.retire(record.retired);
        }
        // The ring is longer than the nearer caches hold, so each of its lines comes from far away.
        self.core.log.prefetch(self.books.tail + LOG_AHEAD);
        // SAFETY: `self` exists only under the lock, and the assertion is I5: `floor` never
        // passes `min_active`.
        unsafe { self.core.log.write(self.books.tail, record) };
        self.books.tail += 1;
    }

    /// The position after all operations so far.
    pub fn position(&self) -> LogPosition {
        LogPosition(self.books.tail)
    }

    /// The number of buckets.
    pub fn buckets(&self) -> usize {
        self.table().len()
    }

    /// A bucket.
    #[inline]
    pub fn bucket(&self, bucket: usize) -> &Bucket {
        &self.table()[bucket]
    }

    /// The slot that a way leads to; `None` for an empty way.
    #[inline]
    pub fn slot(&self, bucket: usize, way: usize) -> Option<Slot<'_>> {
        let line = &self.table()[bucket];
        if line.tag(way) == 0 {
            return None;
        }
        // SAFETY: the slot is live, and retiring it needs `&mut self`, which the view excludes.
        Some(unsafe { self.core.arena.view(line.slot(way)) })
    }

    /// Prefetches the first line of the slot that a way leads to.
    #[inline]
    pub fn prefetch_slot(&self, bucket: usize, way: usize) {
        self.core.arena.prefetch(self.table()[bucket].slot(way));
    }

    /// The charge of the slot that a way leads to, 0 for an empty way.
    #[inline]
    pub fn charge_at(&self, bucket: usize, way: usize) -> u64 {
        let line = &self.table()[bucket];
        if line.tag(way) == 0 {
            return 0;
        }
        self.books.pages.charge_of(line.slot(way))
    }

    /// The amount that a slot of `class` will add to [`Main::live_charge`]: its charge, and for the
    /// first of its class [`Classes::opening`].
    #[inline]
    pub fn charge(&self, class: u8) -> u64 {
        self.books.pages.charge(class)
    }

    /// The sum of the charges of all live slots and of the cost of opening their classes, in
    /// [`CHARGE_UNITS`](crate::CHARGE_UNITS).
    #[inline]
    pub fn live_charge(&self) -> u64 {
        self.books.pages.live_charge()
    }

    /// Makes a way lead to `slot`, and retires the slot that it led to before. One record.
    #[inline]
    pub fn put(&mut self, bucket: usize, way: usize, tag_word: u16, slot: OwnedSlot) {
        assert_eq!(slot.shard(), self.core.id, "a slot goes back to the shard it came from");
        assert!(tag_word != 0, "0 is the tag word of an empty way");
        self.books.pages.publish(slot.id());
        let line = &self.table()[bucket];
        let retired = if line.tag(way) == 0 { 0 } else { line.slot(way) };
        self.set_way(bucket, way, tag_word, slot.id());
        self.push(Record {
            place: Place::way(bucket, way),
            slot: slot.id(),
            retired,
            tag: tag_word,
            mask: 0,
        });
    }

    /// Empties a way and retires its slot. One record.
    #[inline]
    pub fn clear(&mut self, bucket: usize, way: usize) {
        let line = &self.table()[bucket];
        assert!(line.tag(way) != 0, "only an occupied way is cleared");
        let retired = line.slot(way);
        self.set_way(bucket, way, 0, 0);
        self.push(Record { place: Place::way(bucket, way), retired, ..Record::default() });
    }

    /// Moves a way's slot to an empty way, under a new tag word. Two records: the new place is
    /// written before the old is cleared.
    #[inline]
    pub fn relocate(&mut self, from: (usize, usize), to: (usize, usize), tag_word: u16) {
        let (old, new) = (&self.table()[from.0], &self.table()[to.0]);
        assert!(old.tag(from.1) != 0 && new.tag(to.1) == 0, "from an occupied way to an empty one");
        assert!(tag_word != 0, "0 is the tag word of an empty way");
        let slot = old.slot(from.1);
        self.core.table.moving(|| {
            self.set_way(to.0, to.1, tag_word, slot);
            self.set_way(from.0, from.1, 0, 0);
        });
        let place = Place::way(to.0, to.1);
        self.push(Record { place, slot, tag: tag_word, ..Record::default() });
        self.push(Record { place: Place::way(from.0, from.1), ..Record::default() });
    }

    /// Sets a bucket's mask. One record.
    #[inline]
    pub fn set_mask(&mut self, bucket: usize, mask: u16) {
        self.table()[bucket].set_mask(mask);
        self.push(Record { place: Place::mask(bucket), ..Record::default() });
    }

    pub(crate) fn take_reader(&mut self, number: Option<usize>) -> Result<usize, Error> {
        let taken = &self.books.taken;
        let reader = number
            .or_else(|| taken.iter().position(|&taken| !taken))
            .filter(|&reader| taken.get(reader) == Some(&false))
            .ok_or(Error::ReadersExhausted)?;
        self.books.taken[reader] = true;
        Ok(reader)
    }

    pub(crate) fn leave_reader(&mut self, reader: usize) {
        self.books.taken[reader] = false;
    }
}
