//! A cache of objects: built in place by a hook, read as `&T`, reset and used again.
//!
//! Connections, sessions, parsers: objects that are dear to build, own memory of their own, and would have to
//! be encoded to be bytes. They lie in a slab and stay there; the engine holds, under each key, the id of an
//! object, and decides as ever which keys stay.
//!
//! ```text
//! make()      builds an object, the first time that a cell is used
//! fill(&mut)  makes it the object of a key, where it lies     (the hook of one insert)
//! &T          read by many readers at once, without a lock
//! reset(&mut) after the key is gone and every reader has synced: the object is clean, its memory kept
//! drop        once: with the cache, or when a hook panicked and left it in no known state
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
//! That a key is gone is *found out*, for the engine tells nobody: `insert` and `remove` look for the object
//! that they replace, and each insert asks for the names of [`SWEEP_CELLS`] cells more, going round. The slab
//! has a quarter more cells than the engine has entries. While a round goes by there are `cells / 8` inserts,
//! so a tenth of the cells wait to be found at most, and a tenth are there for readers to be late with.
//!
//! Invariants
//! 1. An id is in the engine only while its object lives, or is about to be found gone; so an id that finds no
//!    object is a miss, never another's object.
//! 2. Hooks run under no lock of ours. One that panics loses its object and no cell; nothing is poisoned.
//!
//! Bounds: the builder's budget, and beside it [`Typed::objects_max`] objects of `size_of::<T>()` + 64 bytes
//! and a copy of the key, and what the objects own themselves.

use std::fmt;
use std::sync::Arc;

use larder_mem::{Slab, SlabId, SlabReader, SlabSlot};
use parking_lot::Mutex;

use crate::build::Builder;
use crate::cache::Cache;
use crate::error::Error;
use crate::evicted::Batch;
use crate::reader::Reader;
use crate::time::{Seconds, Ttl};
use crate::writer::Writer;

/// Cells for each four entries of the engine.
const CELLS_PER_FOUR: usize = 5;

/// Cells whose keys an insert asks for.
const SWEEP_CELLS: usize = 8;

/// Objects reset by one insert while others are clean: twice what an insert uses up.
const RESETS_MAX: usize = 2;

/// A cache of objects. Cheap to clone; a clone is the same cache.
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
    /// What each cell was published as, from when its key is in the engine until it is retired.
    names: Mutex<Names>,
}

struct Names {
    cells: Box<[Option<Name>]>,
    /// The cell that the next insert asks for.
    hand: usize,
}

struct Name {
    key: Box<[u8]>,
    id: SlabId,
}

/// One core's way to read. `Send`, not `Sync`.
#[derive(Debug)]
pub struct TypedReader<T> {
    reader: Reader,
    objects: SlabReader<T>,
}

impl<T: Send + Sync> Typed<T> {
    /// A cache of as many objects as the cache described by `builder` has entries: an entry is a key and 12
    /// bytes, so say `entry_bytes_mean(32)` or so. `make` builds an object, `reset` makes a used one as
    /// good as new: it should let go of what the object was for, and keep its memory.
    ///
    /// An object of more than 64 KiB is refused, since it is moved by way of the stack when it is made: keep it in a `Box`.
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

    /// A new reader: one core's way to read.
    pub fn reader(&self) -> Result<TypedReader<T>, Error> {
        let reader = self.inner.cache.reader()?;
        Ok(TypedReader { reader, objects: self.inner.slab.reader()? })
    }

    /// The engine's side of it: keys and ids. For its figures.
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    /// Objects that may exist at once, those apart that were reset included.
    pub fn objects_max(&self) -> usize {
        self.inner.slab.cells()
    }

    /// Makes an object the value of a key, in the place of an older one: takes a clean one, or makes one, and
    /// lets `fill` write it where it lies. Its id reads it without a lookup ([`TypedReader::by_id`]).
    ///
    /// [`Error::Stalled`] when no object is clean because a reader has not synced: sync or park it, then try
    /// again. `fill` is not run then. On other errors the object is reset and nothing was stored.
    pub fn insert(
        &self,
        key: &[u8],
        ttl: Ttl,
        now: Seconds,
        fill: impl FnOnce(&mut T),
    ) -> Result<SlabId, Error> {
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
        // The listener may use this cache, and may panic: all is in its place.
        inner.cache.report_evicted(evicted);
        stored.map(|()| id)
    }

    /// Takes a key out, if it is there. Its object is reset by a later insert, or by [`Typed::reset_all`].
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

    /// Finds every object whose key was evicted or has ended, and resets all that no reader may still hold:
    /// how many. For objects that own more than memory; a walk over all cells.
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
            // All who insert at once may have taken what the others cleaned.
            self.sweep(self.slab.cells(), now)?;
            if let Some(slot) = self.slab.reclaimed() {
                self.clean(slot);
            }
            match (self.slab.vacant(), self.slab.slowest()) {
                (Some(slot), _) => return Ok(slot),
                (None, Some(stalled)) => return Err(stalled.into()),
                // It caught up meanwhile: what it let go of is there to be had now.
                (None, None) if before.is_some() => {}
                (None, None) => return Err(Error::Starved),
            }
        }
    }

    /// Resets an object that nobody reads any more. Should that panic, the slot drops it.
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
                if self.cache.read_at_main(key, now, SlabId::from_bytes)? != Some(Some(*id)) {
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
        // Without its name it was retired already, or is about to be named, and the sweep will find it.
        if name.and_then(|name| name.take_if(|name| name.id == id)).is_some() {
            self.slab.retire(id);
        }
    }

    fn id_of(&self, key: &[u8], now: Seconds) -> Option<SlabId> {
        // A poisoned cache says so when it is written.
        self.cache.read_at_main(key, now, SlabId::from_bytes).ok()??
    }

    /// Writes, and publishes at once. On an error nothing of it happens later. What was evicted is to be reported.
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

impl<T: Send + Sync> TypedReader<T> {
    /// The object of a key, if it is there at `now`. Good until the next sync, whatever becomes of the key.
    #[inline]
    pub fn get(&self, key: &[u8], now: Seconds) -> Option<&T> {
        let id = SlabId::from_bytes(self.reader.get(key, now)?.value())?;
        self.objects.get(id).or_else(|| self.get_refreshed(key, now))
    }

    /// The object has been retired since this reader last looked: its key leads elsewhere by now, or nowhere.
    #[cold]
    fn get_refreshed(&self, key: &[u8], now: Seconds) -> Option<&T> {
        self.reader.refresh();
        let id = SlabId::from_bytes(self.reader.get(key, now)?.value())?;
        self.objects.get(id)
    }

    /// The object that an insert gave this id, if it still is its key's. One line beside the object's own.
    #[inline]
    pub fn by_id(&self, id: SlabId) -> Option<&T> {
        self.objects.get(id)
    }

    /// Shows everything published so far. Objects read before stay as they are.
    #[inline]
    pub fn refresh(&self) {
        self.reader.refresh();
    }

    /// Refreshes, and lets go of objects that were read before, so that they can be used again.
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
