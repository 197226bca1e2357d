//! The objects of an [`super::ObjectMap`], each in a cell under an id that no other object ever has.
//!
//! ```text
//! free -> put(): live, under a new generation -> retire(): dropped, the cell is free again
//!                                                  | somebody is cloning it
//!                                                  '-> late: tried again by later calls
//! ```
//!
//! Invariants
//! 1. A cell is in the list of free ones, or below it an object lives, or one thread owns it between both. So an
//!    object is dropped once, by the thread that retires it, and under no lock.
//! 2. The caller's code runs under the lock of a cell only to clone that cell's object, and no thread waits for that
//!    lock but to clone: what retires does not wait ([`Cells::late`]), and what puts has a free cell, whose readers
//!    find nothing to clone. So a `clone` may use the map.
//! 3. An id that was retired late is in the list of late ones until it has ended, even if a `clone` or a `drop`
//!    panics.
//!
//! Bounds: as many cells as objects lived at once, and one chunk of at most 16 KiB, or of one cell; 4 bytes for
//! each that is free, 48 at most for each chunk. Cost: a cell is the object, a lock and a generation; reading is
//! two atomic additions to its line, which threads that read the same object at once share, as they do the count of
//! an `Arc`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::codec::Value;
use crate::engine::WEIGHT_BYTES;

/// Bytes of a chunk of cells, at most, unless one cell is larger.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks that the first directory has room for; each further one has twice as many.
const FIRST_CHUNKS: u32 = 16;
const DIRECTORIES: usize = 28;

/// Names an object until it is retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id {
    index: u32,
    generation: u64,
    /// What its object weighs, in a map that asks. In the form of bytes it is last: the engine reads it there.
    weight: Option<u32>,
}

impl Id {
    pub fn with_weight(self, weight: Option<u32>) -> Self {
        Id { weight, ..self }
    }
}

/// Bytes of an id without a weight.
const PLAIN_BYTES: usize = 12;

impl Value for Id {
    // By hand: a tuple's form has room for parts of any length.
    #[inline]
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = [0; PLAIN_BYTES + WEIGHT_BYTES];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..PLAIN_BYTES].copy_from_slice(&self.index.to_le_bytes());
        let Some(weight) = self.weight else { return with(&bytes[..PLAIN_BYTES]) };
        bytes[PLAIN_BYTES..].copy_from_slice(&weight.to_le_bytes());
        with(&bytes)
    }

    #[inline]
    fn from_value(bytes: &[u8]) -> Option<Self> {
        let (generation, bytes) = bytes.split_first_chunk()?;
        let (index, weight) = bytes.split_first_chunk()?;
        let weight = match weight {
            [] => None,
            weight => Some(u32::from_le_bytes(weight.try_into().ok()?)),
        };
        let index = u32::from_le_bytes(*index);
        Some(Id { index, generation: u64::from_le_bytes(*generation), weight })
    }
}

#[derive(Debug)]
struct Cell<V>(RwLock<Held<V>>);

#[derive(Debug)]
struct Held<V> {
    /// Of the object, or the one before.
    generation: u64,
    object: Option<V>,
}

/// Made when its first cell is needed.
type Chunk<V> = OnceLock<Box<[Cell<V>]>>;

/// Cells, a chunk at a time as they are needed.
#[derive(Debug)]
pub(super) struct Cells<V> {
    directories: [OnceLock<Box<[Chunk<V>]>>; DIRECTORIES],
    free: Mutex<Free>,
    /// Ids whose objects somebody cloned when they were retired.
    late: Mutex<Vec<Id>>,
    has_late: AtomicBool,
}

#[derive(Debug, Default)]
struct Free {
    cells: Vec<u32>,
    /// The first cell that was never used.
    unused: u32,
}

/// The directory of a chunk, and its place there.
fn place(chunk: u32) -> (usize, usize) {
    // Directory d begins at FIRST_CHUNKS * (2^d - 1).
    let from_first = u64::from(chunk) + u64::from(FIRST_CHUNKS);
    let directory = (from_first / u64::from(FIRST_CHUNKS)).ilog2();
    (directory as usize, (from_first - (u64::from(FIRST_CHUNKS) << directory)) as usize)
}

impl<V> Cells<V> {
    pub fn new() -> Self {
        Cells {
            directories: [const { OnceLock::new() }; DIRECTORIES],
            free: Mutex::default(),
            late: Mutex::default(),
            has_late: AtomicBool::new(false),
        }
    }

    /// Cells that can be named: more than a cache may have entries.
    pub const MAX: u64 = (1 << 32) - FIRST_CHUNKS as u64;

    /// The cells of a chunk are 2 to this power.
    const CHUNK_SHIFT: u32 = {
        let cells = CHUNK_BYTES / size_of::<Cell<V>>();
        if cells == 0 { 0 } else { cells.ilog2() }
    };

    fn chunk(index: u32) -> (usize, usize) {
        place(index >> Self::CHUNK_SHIFT)
    }

    fn in_chunk(index: u32) -> usize {
        (index & ((1 << Self::CHUNK_SHIFT) - 1)) as usize
    }

    /// Gives an object an id.
    pub fn put(&self, object: V) -> Id {
        self.retire_late();
        let index = {
            let mut free = self.free.lock();
            free.cells.pop().unwrap_or_else(|| {
                free.unused += 1;
                free.unused - 1
            })
        };
        let (directory, at) = Self::chunk(index);
        let chunks = self.directories[directory]
            .get_or_init(|| (0..FIRST_CHUNKS << directory).map(|_| OnceLock::new()).collect());
        let cells = chunks[at].get_or_init(|| {
            let empty = |_| Cell(RwLock::new(Held { generation: 0, object: None }));
            (0..1 << Self::CHUNK_SHIFT).map(empty).collect()
        });
        // Those who have an old id look into a free cell for a moment.
        let mut held = cells[Self::in_chunk(index)].0.write();
        held.generation += 1;
        held.object = Some(object);
        Id { index, generation: held.generation, weight: None }
    }

    fn cell(&self, id: Id) -> Option<&Cell<V>> {
        let (directory, at) = Self::chunk(id.index);
        let chunk = self.directories.get(directory)?.get()?.get(at)?;
        chunk.get()?.get(Self::in_chunk(id.index))
    }

    /// Ends the life of an id, and drops its object.
    pub fn retire(&self, id: Id) {
        drop(self.end(id));
        self.retire_late();
    }

    /// Ends the life of an id, and returns its object, if it has one; an error if somebody is cloning that.
    fn end(&self, id: Id) -> Result<Option<V>, Late<'_, V>> {
        let Some(cell) = self.cell(id) else { return Ok(None) };
        let Some(mut held) = cell.0.try_write() else {
            return Err(Late { cells: self, ids: vec![id] });
        };
        if held.generation != id.generation {
            return Ok(None);
        }
        let object = held.object.take();
        drop(held);
        // The caller drops it, under no lock (invariant 1).
        if object.is_some() {
            self.free.lock().cells.push(id.index);
        }
        Ok(object)
    }

    /// Drops the objects that are not being cloned any more.
    #[inline]
    pub fn retire_late(&self) {
        if self.has_late.load(Ordering::Acquire) {
            self.retire_all_late();
        }
    }

    #[cold]
    fn retire_all_late(&self) {
        let ids = {
            let mut late = self.late.lock();
            self.has_late.store(false, Ordering::Relaxed);
            std::mem::take(&mut *late)
        };
        let mut rest = Late { cells: self, ids };
        while let Some(id) = rest.ids.pop() {
            drop(self.end(id));
        }
    }
}

/// When it is dropped, these ids are ones to end later: of a clone that is made meanwhile not before that, and of a
/// `drop` that panics, all that come after it.
struct Late<'a, V> {
    cells: &'a Cells<V>,
    ids: Vec<Id>,
}

impl<V> Drop for Late<'_, V> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.cells.late.lock().append(&mut self.ids);
            self.cells.has_late.store(true, Ordering::Release);
        }
    }
}

impl<V: Clone> Cells<V> {
    /// A clone of the object of an id, if that has not ended.
    pub fn get(&self, id: Id) -> Option<V> {
        // Recursive: `clone` may look up the same object (invariant 2).
        let held = self.cell(id)?.0.read_recursive();
        if held.generation == id.generation { held.object.clone() } else { None }
    }

    /// Ends the life of an id, and returns its object, or a clone if somebody else is cloning it.
    pub fn take(&self, id: Id) -> Option<V> {
        self.end(id).unwrap_or_else(|_late| self.get(id))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Each chunk has one place, without a gap, up to the last that fits.
    #[test]
    fn places_have_no_gap() {
        let mut next = (0, 0);
        for chunk in 0..40_000 {
            assert_eq!(place(chunk), next, "{chunk}");
            next.1 += 1;
            if next.1 == (FIRST_CHUNKS as usize) << next.0 {
                next = (next.0 + 1, 0);
            }
        }
        let last = u32::try_from(Cells::<u8>::MAX - 1).unwrap();
        let last_place = (DIRECTORIES - 1, ((FIRST_CHUNKS as usize) << (DIRECTORIES - 1)) - 1);
        assert_eq!(place(last), last_place);
    }

    /// Small objects and large ones: each is under its id, and there are no more cells than are needed, but for a
    /// chunk.
    #[test]
    fn chunks_are_no_larger_than_needed() {
        fn fill<V: Clone + From<u16> + PartialEq + std::fmt::Debug>(chunk_bytes: usize) {
            let cells = Cells::<V>::new();
            let ids: Vec<Id> = (0..3000).map(|n| cells.put(n.into())).collect();
            for (n, id) in (0u16..).zip(&ids) {
                assert_eq!(cells.get(*id), Some(V::from(n)));
            }
            let chunks = cells.directories.iter().filter_map(OnceLock::get).flatten();
            let lens: Vec<usize> = chunks.filter_map(|chunk| Some(chunk.get()?.len())).collect();
            let bytes = lens[0] * size_of::<Cell<V>>();
            assert!(bytes <= chunk_bytes && bytes * 2 > chunk_bytes, "{bytes}");
            let count: usize = lens.iter().sum();
            assert!(count >= 3000 && count - lens[0] < 3000, "{count} cells in {}", lens.len());
        }
        #[derive(Clone, PartialEq, Debug)]
        struct Large([u16; 10_000]);
        impl From<u16> for Large {
            fn from(n: u16) -> Self {
                Large([n; 10_000])
            }
        }
        fill::<u64>(CHUNK_BYTES);
        fill::<Large>(size_of::<Cell<Large>>());
    }

    /// An object is found under its id alone, until that is retired, and dropped then; the cell is used again.
    #[test]
    fn lives_of_a_cell() {
        let cells = Cells::new();
        let object = Arc::new(7);
        let first = cells.put(object.clone());
        assert_eq!(cells.get(first), Some(object.clone()));
        cells.retire(first);
        cells.retire(first);
        assert_eq!((cells.get(first), Arc::strong_count(&object)), (None, 1));
        let second = cells.put(Arc::new(8));
        assert_eq!(
            (second.index, cells.get(first), cells.get(second)),
            (first.index, None, Some(Arc::new(8)))
        );
        cells.retire(first);
        assert!(cells.get(second).is_some(), "an old id retires no other object");
        let unknown = Id { index: u32::MAX, generation: 1, weight: None };
        cells.retire(unknown);
        assert_eq!(cells.get(unknown), None);
        assert_eq!(Id::from_value(&second.with_value(<[u8]>::to_vec)), Some(second));
    }

    /// What an object of these tests does when it is cloned, or dropped.
    #[derive(Default)]
    struct Hooks {
        cells: Cells<Hooked>,
        /// Retired when an object is cloned.
        retires: Mutex<Option<Id>>,
        /// Drops that panic, of the next ones.
        panics: AtomicU32,
        dropped: AtomicU32,
    }

    struct Hooked(Arc<Hooks>);

    impl Clone for Hooked {
        fn clone(&self) -> Self {
            let id = *self.0.retires.lock();
            id.iter().for_each(|id| self.0.cells.retire(*id));
            Hooked(self.0.clone())
        }
    }

    impl Drop for Hooked {
        fn drop(&mut self) {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            let left = self.0.panics.load(Ordering::Relaxed);
            if left > 0 {
                self.0.panics.store(left - 1, Ordering::Relaxed);
                panic!("told to");
            }
        }
    }

    impl<V> Default for Cells<V> {
        fn default() -> Self {
            Self::new()
        }
    }

    /// An object that is retired while it is cloned is dropped by a later call, once.
    #[test]
    fn retired_within_a_clone() {
        let hooks = Arc::new(Hooks::default());
        let id = hooks.cells.put(Hooked(hooks.clone()));
        *hooks.retires.lock() = Some(id);
        drop(hooks.cells.get(id).expect("it lived when the clone began"));
        assert_eq!(hooks.dropped.load(Ordering::Relaxed), 1, "the clone");
        hooks.cells.retire_late();
        assert_eq!(hooks.dropped.load(Ordering::Relaxed), 2);
        assert!(hooks.cells.get(id).is_none());
        assert_eq!(hooks.cells.free.lock().cells, [id.index]);
    }

    /// A `drop` that panics loses its own object, and no other one (invariant 3).
    #[test]
    fn a_drop_that_panics() {
        let hooks = Arc::new(Hooks::default());
        let ids: Vec<Id> = (0..5).map(|_| hooks.cells.put(Hooked(hooks.clone()))).collect();
        let late = |ids: &[Id]| drop(Late { cells: &hooks.cells, ids: ids.to_vec() });
        let panics = |call: &dyn Fn()| {
            hooks.panics.store(1, Ordering::Relaxed);
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
            hooks.dropped.load(Ordering::Relaxed)
        };
        late(&ids[..3]);
        assert_eq!(panics(&|| hooks.cells.retire_late()), 1);
        hooks.cells.retire_late();
        assert_eq!(hooks.dropped.load(Ordering::Relaxed), 3);
        // The object of a call ends before late ones do.
        late(&ids[3..4]);
        assert_eq!(panics(&|| hooks.cells.retire(ids[4])), 4);
        assert!(hooks.cells.get(ids[4]).is_none());
        hooks.cells.retire_late();
        assert_eq!(hooks.dropped.load(Ordering::Relaxed), 5);
        assert!(ids.iter().all(|id| hooks.cells.get(*id).is_none()));
    }
}
