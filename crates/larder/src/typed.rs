//! A cache of objects: a hook builds them in place, readers read them as `&T`, and they are reset
//! and reused.
//!
//! It is for connections, sessions and parsers: objects that are expensive to build, that own
//! memory, and that would have to be encoded as bytes. They are in a slab and never move. The
//! engine stores the id of an object under each key, and decides which keys stay.
//!
//! ```text
//! make()      builds an object, the first time that a cell is used
//! fill(&mut)  makes it the object of a key, in place          (the hook of one insert)
//! &T          read by many readers at once, without a lock
//! reset(&mut) after the key is removed and every reader has synced: the object is clean, its memory stays
//! drop        once: with the cache, or when a hook panicked and left it in an unknown state
//! ```
//!
//! ```
//! use larder::{Cache, Seconds, Ttl, Typed};
//!
//! let builder = Cache::builder().budget(1 << 20).readers_max(2).entry_bytes_mean(32);
//! let bodies = Typed::build(builder, Vec::<u8>::new, Vec::clear)?;
//! let (mut reader, now) = (bodies.reader()?, Seconds(1));
//!
//! bodies.insert(b"a", Ttl::FOREVER, now, |body| body.extend_from_slice(b"hello"))?;
//! reader.sync();
//! assert_eq!(reader.get(b"a", now).unwrap(), b"hello");
//! # Ok::<(), larder::Error>(())
//! ```
//!
//! The engine does not report removed keys, so they are searched for. `insert` and `remove` look up
//! the object that they replace, and each insert checks the keys of [`SWEEP_CELLS`] more cells, in
//! turn. The slab has a quarter more cells than the engine has entries. A round of the check takes
//! `cells / 8` inserts, so at most a tenth of the cells wait to be found, and a tenth are left for
//! readers that sync late.
//!
//! Invariants
//! 1. An id is in the engine only while its object lives, or is about to be found removed. So an id
//!    without an object is a miss, and never another's object.
//! 2. Hooks run under no lock of ours. A hook that panics loses its object and no cell; nothing is
//!    poisoned.
//!
//! Bounds: the builder's budget, and in addition [`Typed::objects_max`] objects of `size_of::<T>()`
//! + 64 bytes, a copy of each key, and the memory that the objects own.

use std::fmt;
use std::sync::Arc;

use larder_mem::{Slab, SlabId, SlabReader, SlabSlot};
use parking_lot::Mutex;

use crate::build::Builder;
use crate::cache::Cache;
use crate::entry::Entry;
use crate::error::Error;
use crate::evicted::Batch;
use crate::reader::Reader;
use crate::time::{Seconds, Ttl};
use crate::writer::Writer;

/// Cells for every four entries of the engine.
const CELLS_PER_FOUR: usize = 5;

/// Cells whose keys an insert checks.
const SWEEP_CELLS: usize = 8;

/// Objects that one insert resets while others are clean: twice as many as an insert uses.
const RESETS_MAX: usize = 2;

/// Identifies an object until it is replaced, removed or evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId(SlabId);

/// A cache of objects. Cloning is cheap, and a clone is the same cache.
pub struct Typed<T> {
    inner: Arc<Inner<T>>,
}

impl<T> Clone for Typed<T> {
    fn clone(&self) -> Self {
        Typed { inner: self.inner.clone() }
    }
}

impl<T> fmt::Debug for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("cache", &self.inner.cache).finish_non_exhaustive()
    }
}

struct Inner<T> {
    cache: Cache,
    slab: Slab<T>,
    make: Box<dyn Fn() -> T + Send + Sync>,
    reset: Box<dyn Fn(&mut T) + Send + Sync>,
    writer: Mutex<Writer>,
    /// The key and id of each cell's object, from when the key is in the engine until the object is
    /// retired.
    names: Mutex<Names>,
}

struct Names {
    cells: Box<[Option<Name>]>,
    /// The cell that the next insert checks.
    hand: usize,
}

struct Name {
    key: Box<[u8]>,
    id: SlabId,
}

/// One core's handle for lookups. `Send`, not `Sync`.
#[derive(Debug)]
pub struct TypedReader<T> {
    reader: Reader,
    objects: SlabReader<T>,
}

impl<T: Send + Sync> Typed<T> {
    /// Creates a cache with as many objects as the cache of `builder` has entries. An entry is a
    /// key and 12 bytes, so set `entry_bytes_mean(32)` or so. `make` builds an object. `reset`
    /// prepares a used object for reuse: it should clear the object's content, and keep its memory.
    ///
    /// Objects of more than 64 KiB are refused, because a new object is moved through the stack;
    /// put a larger one into a `Box`.
    pub fn build(
        builder: Builder,
        make: impl Fn() -> T + Send + Sync + 'static,
        reset: impl Fn(&mut T) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let cache = builder.build()?;
        let entries_max = usize::try_from(cache.stats()?.entries_max).unwrap_or(usize::MAX / 8);
        let cells = entries_max / 4 * CELLS_PER_FOUR + CELLS_PER_FOUR;
        let slab = Slab::new(cells, cache.readers_max())?;
        Ok(Typed {
            inner: Arc::new(Inner {
                writer: Mutex::new(cache.writer_in_lock()),
                names: Mutex::new(Names { cells: (0..cells).map(|_| None).collect(), hand: 0 }),
                cache,
                slab,
                make: Box::new(make),
                reset: Box::new(reset),
            }),
        })
    }

    /// Creates a reader for one core.
    pub fn reader(&self) -> Result<TypedReader<T>, Error> {
        let reader = self.inner.cache.reader()?;
        Ok(TypedReader { reader, objects: self.inner.slab.reader()? })
    }

    /// The engine's cache of keys and ids, for its figures.
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// Objects that can exist at once, including those that are reset.
    pub fn objects_max(&self) -> usize {
        self.inner.slab.cells()
    }

    /// Makes an object the value of a key, and replaces an older one. Takes a clean object or makes
    /// one, and `fill` writes it in place. The returned id reads it without a lookup
    /// ([`TypedReader::by_id`]).
    ///
    /// Fails with [`Error::Stalled`] if no object is clean because a reader has not synced: sync or
    /// park it, then try again. `fill` has not run then. On other errors the object is reset, and
    /// nothing was stored.
    pub fn insert(
        &self,
        key: &[u8],
        ttl: Ttl,
        now: Seconds,
        fill: impl FnOnce(&mut T),
    ) -> Result<ObjectId, Error> {
        let inner = &*self.inner;
        inner.sweep(SWEEP_CELLS, now)?;
        for slot in std::iter::from_fn(|| inner.slab.reclaimed()).take(RESETS_MAX) {
            inner.clean(slot);
        }
        let mut slot = inner.obtain(now)?;
        fill(slot.object().get_or_insert_with(&inner.make));
        let id = slot.publish();
        let replaced = inner.id_of(key, now);
        let (stored, evicted) = inner.write(|writer| writer.insert(key, &id.to_bytes(), ttl, now));
        if stored.is_ok() {
            let name = Name { key: key.into(), id };
            let earlier = inner.names.lock().cells[id.index()].replace(name);
            debug_assert!(earlier.is_none(), "a name is forgotten before its cell is used again");
            if let Some(replaced) = replaced {
                inner.retire(replaced);
            }
        } else {
            inner.slab.retire(id);
        }
        // The listener may use this cache and may panic: the insert is complete here.
        inner.cache.report_evicted(evicted);
        stored.map(|()| ObjectId(id))
    }

    /// Removes a key, if it is present. Its object is reset by a later insert, or by
    /// [`Typed::reset_all`].
    pub fn remove(&self, key: &[u8], now: Seconds) -> Result<(), Error> {
        let removed = self.inner.id_of(key, now);
        let (written, evicted) = self.inner.write(|writer| writer.remove(key));
        if written.is_ok()
            && let Some(removed) = removed
        {
            self.inner.retire(removed);
        }
        self.inner.cache.report_evicted(evicted);
        written
    }

    /// Finds every object whose key was evicted or has expired, resets those that no reader can
    /// still hold, and returns their number. For objects that own more than memory. Walks all
    /// cells.
    pub fn reset_all(&self, now: Seconds) -> Result<usize, Error> {
        self.inner.sweep(self.inner.slab.cells(), now)?;
        let reclaimed = std::iter::from_fn(|| self.inner.slab.reclaimed());
        Ok(reclaimed.map(|slot| self.inner.clean(slot)).count())
    }
}

impl<T: Send + Sync> Inner<T> {
    /// A cell to build in: clean, or cleaned now.
    fn obtain(&self, now: Seconds) -> Result<SlabSlot<'_, T>, Error> {
        if let Some(slot) = self.slab.vacant() {
            return Ok(slot);
        }
        loop {
            let before = self.slab.slowest();
            // Concurrent inserts may have taken the objects that this one cleaned.
            self.sweep(self.slab.cells(), now)?;
            if let Some(slot) = self.slab.reclaimed() {
                self.clean(slot);
            }
            match (self.slab.vacant(), self.slab.slowest()) {
                (Some(slot), _) => return Ok(slot),
                (None, Some(stalled)) => return Err(stalled.into()),
                // The reader caught up meanwhile, so its objects are free now.
                (None, None) if before.is_some() => {}
                (None, None) => return Err(Error::Starved),
            }
        }
    }

    /// Resets an object that no reader can read. If that panics, the slot drops the object.
    fn clean(&self, mut slot: SlabSlot<'_, T>) {
        if let Some(object) = slot.object() {
            (self.reset)(object);
        }
        slot.keep();
    }

    /// Retires those of the next `cells` objects whose keys no longer lead to them.
    fn sweep(&self, cells: usize, now: Seconds) -> Result<(), Error> {
        for step in (0..cells).step_by(SWEEP_CELLS) {
            let mut names = self.names.lock();
            for _ in step..cells.min(step + SWEEP_CELLS) {
                let hand = names.hand;
                names.hand = (hand + 1) % self.slab.cells();
                let Some(Name { key, id }) = &names.cells[hand] else { continue };
                if self.cache.read_at_main(key, now, id_in)? != Some(Some(*id)) {
                    self.slab.retire(*id);
                    names.cells[hand] = None;
                }
            }
        }
        Ok(())
    }

    fn retire(&self, id: SlabId) {
        let mut names = self.names.lock();
        let name = names.cells.get_mut(id.index());
        // Without its key it is already retired, or it is about to get its key, and a sweep will
        // find it.
        if name.and_then(|name| name.take_if(|name| name.id == id)).is_some() {
            self.slab.retire(id);
        }
    }

    fn id_of(&self, key: &[u8], now: Seconds) -> Option<SlabId> {
        // A poisoned cache reports that on a write.
        self.cache.read_at_main(key, now, id_in).ok()??
    }

    /// Writes and publishes at once. On an error nothing of it is applied later. The caller reports
    /// the evictions.
    fn write(
        &self,
        operate: impl FnOnce(&mut Writer) -> Result<(), Error>,
    ) -> (Result<(), Error>, Batch) {
        let mut writer = self.writer.lock();
        let written = operate(&mut writer).and_then(|()| writer.flush());
        if written.is_err() {
            *writer = self.cache.writer_in_lock();
        }
        (written.map(drop), writer.take_evicted())
    }
}

/// The id that an entry's value is.
fn id_in(entry: Entry<'_>) -> Option<SlabId> {
    SlabId::from_bytes(entry.value())
}

impl<T: Send + Sync> TypedReader<T> {
    /// The object of a key, if it is present at `now`. Valid until the next sync, whatever happens
    /// to the key.
    #[inline]
    pub fn get(&self, key: &[u8], now: Seconds) -> Option<&T> {
        let id = SlabId::from_bytes(self.reader.get(key, now)?.value())?;
        self.objects.get(id).or_else(|| self.get_refreshed(key, now))
    }

    /// The object was retired since this reader's last refresh: its key leads to another object
    /// now, or to none.
    #[cold]
    fn get_refreshed(&self, key: &[u8], now: Seconds) -> Option<&T> {
        self.reader.refresh();
        let id = SlabId::from_bytes(self.reader.get(key, now)?.value())?;
        self.objects.get(id)
    }

    /// The object that an insert gave this id, if it still belongs to its key. Reads one cache line
    /// in addition to the object's own.
    #[inline]
    pub fn by_id(&self, id: ObjectId) -> Option<&T> {
        self.objects.get(id.0)
    }

    /// Shows everything published so far. Borrowed objects stay unchanged.
    #[inline]
    pub fn refresh(&self) {
        self.reader.refresh();
    }

    /// Refreshes, and releases objects that were read before, so that they can be reused.
    #[inline]
    pub fn sync(&mut self) {
        self.reader.sync();
        self.objects.sync();
    }

    /// The engine's reader, for its figures.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
}
