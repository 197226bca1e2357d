//! A slab of objects: built in place, read as `&T` by many readers without a lock, reset and
//! reused.
//!
//! ```text
//! cell    clean -> owned -> live(generation) ----> retired(p) -> owned -> clean
//! owner   slab     one      any reader             slab          one
//! by      vacant   publish  retire at p            reclaimed     keep (reset), drop (value dropped)
//! reader  absent -> active <-> parked
//! ```
//!
//! It is the crate's protocol for objects instead of bytes, with *retirements counted* as the
//! clock: an epoch increases by one with every [`Slab::retire`]. There is no replica. A [`SlabId`]
//! names a cell and its generation. A reader compares it with the cell's own state, one word next
//! to the object. So any id may be looked up at any time, and an id of an earlier generation finds
//! nothing.
//!
//! 1. *Publish*: the owner writes the object, then `state.store(live(generation), Release)`.
//! 2. *Read* (`&self`): `state.load(Acquire)` equal to the id's, then `&T`, for as long as `self`
//!    is borrowed.
//! 3. *Retire*, under the lock: `state.store(dead)`, then `epoch.store(p + 1, Release)`; the cell
//!    waits in limbo with `p`.
//! 4. *Sync* (`&mut self`, so no `&T` of this reader is alive): `t = epoch.load(Acquire)`, then
//!    `cursor.store(t, Release)`.
//! 5. *Reclaim*, under the lock: a cell retired at `p` has an owner again when `p < min_active`,
//!    the least `cursor.load(Acquire)` over active readers, the epoch if there are none.
//!
//! Invariants
//! * **S1** A reader whose cursor is above `p` holds no object retired at `p` and reaches none. It
//!   released all (`&mut self`) before it stored the cursor, which by 4 and 5 is before the new
//!   owner; and by 3 and 4 it has since seen the cell dead.
//! * **S2** Between `clean` and `live`, and again from limbo on, a cell has one owner, its
//!   [`SlabSlot`], and no other thread reaches the object.
//! * **S3** An object is dropped once: in place when the slab is dropped, or by the `SlabSlot` that
//!   is dropped with it (a panic while it was built or reset). Its index is clean again before it
//!   is dropped, so a panic in `drop` loses no cell.
//!
//! Bounds: cells and readers are fixed when the slab is built. A reader that never syncs lets cells
//! run out, never grow. Cost: a read is one load and one comparison in addition to the object's own
//! lines; 16 bytes per cell.

use std::collections::VecDeque;

use crate::error::{Error, Stalled};
use crate::log::PARKED;
use crate::sync::{Arc, AtomicU64, CacheLines, Mutex, Ordering, RaceCell};

/// Identifies an object in a slab until it is retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlabId {
    index: u32,
    generation: u64,
}

/// Bytes of a [`SlabId`].
pub const SLAB_ID_BYTES: usize = 12;

/// Bytes of the largest object: a new object is moved through the stack.
pub const SLAB_OBJECT_BYTES_MAX: usize = 64 << 10;

impl SlabId {
    /// The cell: below the slab's length, and the same for every generation.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// The id as bytes, for storing.
    pub fn to_bytes(self) -> [u8; SLAB_ID_BYTES] {
        let mut bytes = [0; SLAB_ID_BYTES];
        bytes[..4].copy_from_slice(&self.index.to_le_bytes());
        bytes[4..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// The id from bytes; `None` for another number of them. A made-up id names nothing, and is
    /// harmless.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (index, generation) = bytes.split_first_chunk()?;
        Some(SlabId {
            index: u32::from_le_bytes(*index),
            generation: u64::from_le_bytes(generation.try_into().ok()?),
        })
    }

    fn live(self) -> u64 {
        self.generation << 1 | 1
    }
}

/// Deliberate mistakes, each of which the model checker must catch.
#[cfg(loom)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlabFault {
    /// None: the protocol as it is.
    None,
    /// A reader publishes its cursor without Release.
    CursorRelaxed,
    /// The epoch is published without Release.
    EpochRelaxed,
    /// An object is published without Release.
    StateRelaxed,
    /// A retired cell has an owner at once.
    NoWait,
}

#[derive(Debug)]
struct Cell<T> {
    /// The generation, and in the lowest bit whether it is live. Written by the cell's owner, and
    /// by `retire` under the lock.
    state: AtomicU64,
    object: RaceCell<Option<T>>,
}

#[derive(Debug)]
struct Core<T> {
    cells: Box<[Cell<T>]>,
    epoch: CacheLines<AtomicU64>,
    cursors: Box<[CacheLines<AtomicU64>]>,
    books: Mutex<Books>,
    #[cfg(loom)]
    fault: SlabFault,
}

// SAFETY: an object is accessed by one owner (S2), who may be on any thread, hence `Send`; or,
// shared, by readers on many, hence `Sync`; never by both (S1).
unsafe impl<T: Send + Sync> Sync for Core<T> {}

#[derive(Debug)]
struct Books {
    clean: Vec<u32>,
    limbo: VecDeque<(u64, u32)>,
    /// As published.
    epoch: u64,
    taken: Box<[bool]>,
}

/// A fixed number of cells for objects. Cloning is cheap, and a clone is the same slab.
#[derive(Debug)]
pub struct Slab<T> {
    core: Arc<Core<T>>,
}

impl<T> Clone for Slab<T> {
    fn clone(&self) -> Self {
        Slab { core: self.core.clone() }
    }
}

impl<T: Send + Sync> Slab<T> {
    /// Creates room for `cells` objects of at most [`SLAB_OBJECT_BYTES_MAX`], and for `readers_max`
    /// readers. No object is built yet, but the memory for all is mapped; too little memory is an
    /// error.
    pub fn new(cells: usize, readers_max: usize) -> Result<Self, Error> {
        if size_of::<T>() > SLAB_OBJECT_BYTES_MAX {
            return Err(Error::Config(
                "an object has at most 65536 bytes; keep larger ones in a Box",
            ));
        }
        let Ok(count) = u32::try_from(cells) else {
            return Err(Error::Config("a slab has at most 2^32 - 1 cells"));
        };
        let cell = |_| Cell { state: AtomicU64::new(0), object: RaceCell::new(None) };
        let too_much = |_| Error::Memory(std::io::ErrorKind::OutOfMemory.into());
        let mut objects = Vec::new();
        objects.try_reserve_exact(cells).map_err(too_much)?;
        objects.extend((0..cells).map(cell));
        Ok(Slab {
            core: Arc::new(Core {
                cells: objects.into_boxed_slice(),
                epoch: CacheLines(AtomicU64::new(0)),
                cursors: (0..readers_max).map(|_| CacheLines(AtomicU64::new(PARKED))).collect(),
                books: Mutex::new(Books {
                    // Taken from the back: the first cells first.
                    clean: (0..count).rev().collect(),
                    limbo: VecDeque::with_capacity(cells),
                    epoch: 0,
                    taken: vec![false; readers_max].into_boxed_slice(),
                }),
                #[cfg(loom)]
                fault: SlabFault::None,
            }),
        })
    }

    /// A slab that makes a deliberate mistake.
    #[cfg(loom)]
    pub fn faulty(cells: usize, readers_max: usize, fault: SlabFault) -> Self {
        let mut slab = Slab::new(cells, readers_max).expect("a handful of cells");
        Arc::get_mut(&mut slab.core).expect("it is not shared yet").fault = fault;
        slab
    }

    /// The number of cells.
    pub fn cells(&self) -> usize {
        self.core.cells.len()
    }

    /// Creates a reader.
    pub fn reader(&self) -> Result<SlabReader<T>, Error> {
        let mut books = self.core.books.lock();
        let number = books.taken.iter().position(|&taken| !taken);
        let number = number.ok_or(Error::ReadersExhausted)?;
        books.taken[number] = true;
        // Under the lock: no cell is reclaimed between our read of the epoch and this.
        self.core.cursors[number].0.store(books.epoch, Ordering::Release);
        Ok(SlabReader { core: self.core.clone(), number })
    }

    /// A clean cell, empty or with a reset object; `None` if there is none.
    pub fn vacant(&self) -> Option<SlabSlot<'_, T>> {
        let index = self.core.books.lock().clean.pop()?;
        Some(SlabSlot { core: &self.core, index, given_up: false })
    }

    /// The cell whose object was retired the longest ago, if no reader holds it any more.
    pub fn reclaimed(&self) -> Option<SlabSlot<'_, T>> {
        let mut books = self.core.books.lock();
        let &(retired, index) = books.limbo.front()?;
        let min = self.core.lags().map(|(_, cursor)| cursor).min().unwrap_or(books.epoch);
        let is_free = match () {
            #[cfg(loom)]
            () if self.core.fault == SlabFault::NoWait => true,
            () => retired < min,
        };
        if !is_free {
            return None;
        }
        books.limbo.pop_front();
        Some(SlabSlot { core: &self.core, index, given_up: false })
    }

    /// Retires an object: readers that synchronize with this call no longer find it. False if the
    /// id names no live object.
    pub fn retire(&self, id: SlabId) -> bool {
        let Some(cell) = self.core.cells.get(id.index()) else { return false };
        let mut books = self.core.books.lock();
        if cell.state.load(Ordering::Acquire) != id.live() {
            return false;
        }
        cell.state.store(id.generation << 1, Ordering::Relaxed);
        let retired = books.epoch;
        books.limbo.push_back((retired, id.index));
        books.epoch += 1;
        let order = match () {
            #[cfg(loom)]
            () if self.core.fault == SlabFault::EpochRelaxed => Ordering::Relaxed,
            () => Ordering::Release,
        };
        self.core.epoch.0.store(books.epoch, order);
        true
    }

    /// The reader that is furthest behind, in retirements; `None` if none blocks anything.
    pub fn slowest(&self) -> Option<Stalled> {
        let books = self.core.books.lock();
        self.core
            .lags()
            .map(|(reader, cursor)| Stalled { reader, behind: books.epoch - cursor })
            .filter(|stalled| stalled.behind > 0)
            .max_by_key(|stalled| stalled.behind)
    }
}

impl<T> Core<T> {
    /// The cursors of active readers. Acquire: the reads before each reader's last sync are done.
    fn lags(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (self.cursors.iter().map(|cursor| cursor.0.load(Ordering::Acquire)).enumerate())
            .filter(|&(_, cursor)| cursor != PARKED)
    }
}

/// An owned cell, on its way to `live` or to `clean`. Dropping it drops its object.
#[derive(Debug)]
pub struct SlabSlot<'a, T> {
    core: &'a Core<T>,
    index: u32,
    /// The cell belongs to another owner from now on.
    given_up: bool,
}

impl<T> SlabSlot<'_, T> {
    fn cell(&self) -> &Cell<T> {
        &self.core.cells[self.index as usize]
    }

    /// The object, in place; `None` before it is built.
    pub fn object(&mut self) -> &mut Option<T> {
        // SAFETY: S2: we own the cell, and are borrowed mutably as long as the object is.
        self.cell().object.with_mut(|object| unsafe { &mut *object })
    }

    /// Makes the object readable, under an id that no object had before.
    ///
    /// # Panics
    /// If there is no object.
    pub fn publish(mut self) -> SlabId {
        assert!(self.object().is_some(), "an object is built before it is published");
        // Only the owner writes an owned cell's state.
        let generation = (self.cell().state.load(Ordering::Relaxed) >> 1) + 1;
        let id = SlabId { index: self.index, generation };
        let order = match () {
            #[cfg(loom)]
            () if self.core.fault == SlabFault::StateRelaxed => Ordering::Relaxed,
            () => Ordering::Release,
        };
        self.given_up = true;
        self.cell().state.store(id.live(), order);
        id
    }

    /// Leaves the cell clean, with its object in it, for reuse.
    pub fn keep(mut self) {
        self.given_up = true;
        self.core.books.lock().clean.push(self.index);
    }
}

impl<T> Drop for SlabSlot<'_, T> {
    fn drop(&mut self) {
        if self.given_up {
            return;
        }
        // A race that loom has found would be found again here, within the panic.
        #[cfg(loom)]
        if std::thread::panicking() {
            return;
        }
        // SAFETY: S2, as in `object`.
        let object = self.cell().object.with_mut(|object| unsafe { (*object).take() });
        self.core.books.lock().clean.push(self.index);
        // The index is already clean, so a panic in here loses no cell (S3).
        drop(object);
    }
}

/// One core's handle to read a slab's objects.
#[derive(Debug)]
pub struct SlabReader<T> {
    core: Arc<Core<T>>,
    number: usize,
}

/// A parked reader: it holds no object, and blocks nothing.
#[derive(Debug)]
pub struct ParkedSlabReader<T>(SlabReader<T>);

impl<T: Send + Sync> SlabReader<T> {
    /// The object of an id, if it is live.
    #[inline]
    pub fn get(&self, id: SlabId) -> Option<&T> {
        let cell = self.core.cells.get(id.index())?;
        // Pairs with the store in `publish`.
        if cell.state.load(Ordering::Acquire) != id.live() {
            return None;
        }
        // SAFETY: S1: our cursor is not above the moment at which the object will be retired, if at all, and
        // stays so while `self` is borrowed; so it has no owner, and is shared only.
        cell.object.with(|object| unsafe { (*object).as_ref() })
    }

    /// Prefetches what [`SlabReader::get`] reads.
    #[inline]
    pub fn prefetch(&self, id: SlabId) {
        crate::prefetch_slice(&self.core.cells, id.index());
    }

    /// Releases every object that was retired.
    #[inline]
    pub fn sync(&mut self) {
        let epoch = self.core.epoch.0.load(Ordering::Acquire);
        let order = match () {
            #[cfg(loom)]
            () if self.core.fault == SlabFault::CursorRelaxed => Ordering::Relaxed,
            () => Ordering::Release,
        };
        self.core.cursors[self.number].0.store(epoch, order);
    }

    /// Parks the reader.
    pub fn park(self) -> ParkedSlabReader<T> {
        self.core.cursors[self.number].0.store(PARKED, Ordering::Release);
        ParkedSlabReader(self)
    }
}

impl<T: Send + Sync> ParkedSlabReader<T> {
    /// Returns to an active reader.
    pub fn unpark(self) -> SlabReader<T> {
        let books = self.0.core.books.lock();
        // Under the lock, as for a new reader.
        self.0.core.cursors[self.0.number].0.store(books.epoch, Ordering::Release);
        drop(books);
        self.0
    }
}

impl<T> Drop for SlabReader<T> {
    fn drop(&mut self) {
        self.core.cursors[self.number].0.store(PARKED, Ordering::Release);
        self.core.books.lock().taken[self.number] = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An id finds its object until it is retired, and never the cell's next one; a reader that has not
    /// synced keeps the cell from being used again.
    #[test]
    fn lives_of_a_cell() {
        let slab = Slab::new(1, 2).unwrap();
        let mut reader = slab.reader().unwrap();
        let mut slot = slab.vacant().unwrap();
        *slot.object() = Some(String::from("first"));
        let first = slot.publish();
        let held = reader.get(first).unwrap();
        assert!(slab.retire(first) && !slab.retire(first));
        assert!(slab.reclaimed().is_none() && slab.vacant().is_none());
        assert_eq!(slab.slowest(), Some(Stalled { reader: 0, behind: 1 }));
        assert_eq!(held, "first", "what is held stays as it is");
        reader.sync();
        assert_eq!(slab.slowest(), None);
        let mut slot = slab.reclaimed().unwrap();
        slot.object().as_mut().unwrap().clear();
        slot.keep();
        let mut slot = slab.vacant().unwrap();
        slot.object().as_mut().unwrap().push_str("second");
        let second = slot.publish();
        assert_eq!(reader.get(first), None);
        assert_eq!(reader.get(second).unwrap(), "second");
        assert_eq!(SlabId::from_bytes(&second.to_bytes()), Some(second));
        let beyond = SlabId { index: 9, generation: 1 };
        assert!(reader.get(beyond).is_none() && !slab.retire(beyond));
    }

    /// Objects that would overflow the stack, or more memory than there is, are refused without
    /// ending the process.
    #[test]
    fn too_large_is_refused() {
        let refused = Slab::<[u8; SLAB_OBJECT_BYTES_MAX + 1]>::new(1, 1);
        assert!(matches!(refused, Err(Error::Config(_))));
        // All addresses of a process.
        let refused = Slab::<[u8; SLAB_OBJECT_BYTES_MAX]>::new(u32::MAX as usize, 1);
        assert!(matches!(refused, Err(Error::Memory(_))));
        Slab::<[u8; SLAB_OBJECT_BYTES_MAX]>::new(3, 1).unwrap();
    }

    /// A parked reader and a dropped one block nothing; there are no more readers than allowed.
    #[test]
    fn readers_come_and_go() {
        let slab = Slab::new(1, 1).unwrap();
        let reader = slab.reader().unwrap();
        assert!(matches!(slab.reader(), Err(Error::ReadersExhausted)));
        let publish = |mut slot: SlabSlot<'_, u8>| {
            *slot.object() = Some(1);
            slot.publish()
        };
        let id = publish(slab.vacant().unwrap());
        let parked = reader.park();
        assert!(slab.retire(id));
        let id = publish(slab.reclaimed().unwrap());
        let reader = parked.unpark();
        assert_eq!(reader.get(id), Some(&1));
        assert!(slab.retire(id) && slab.reclaimed().is_none());
        drop(reader);
        assert!(slab.reclaimed().is_some());
        slab.reader().unwrap();
    }
}
