//! The arena: slots that a writer fills, all readers read, and main reuses.
//!
//! ```text
//! slot   expires u32 (atomic) | key_len u8 | flags u8 | value_len u16 | key | value | version u64
//!        the version is present if a flag says so, and takes no memory otherwise
//! id     offset in the arena / 4; the first 64 bytes are never a slot, so 0 means "none"
//! ```
//!
//! No reference ever covers another slot, or `expires`. The crate's header states who may access a
//! slot when, and the invariants I1 to I4 named below. Under loom each slot has a shadow cell, so
//! that the model checker sees each plain access.

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::class::SLOT_ALIGN;
use crate::region::{Memory, Region, Zeroed};
use crate::sync::{AtomicU32, Ordering};

/// Bytes of a slot before its key.
pub const HEADER_BYTES: usize = 8;

/// Bytes of a slot's version, after the value.
pub const VERSION_BYTES: usize = 8;

/// Flag of a slot that ends with a version. The other seven bits are its class.
const FLAG_VERSION: u8 = 1;

/// The `expires` of an entry that never expires.
pub const EXPIRES_NEVER: u32 = 0;

/// Where the reads of a lookup roughly end: a header, a key of 16 bytes, 16 more of the value.
const READ_BYTES: usize = HEADER_BYTES + 32;

/// Bytes before the first page. They keep pages on cache lines, and id 0 free to mean "none".
const HEAD_BYTES: usize = 64;

/// The unit of ids; bytes are accessed by raw pointer, never by reference to a granule.
#[derive(Debug)]
#[repr(transparent)]
struct Granule(std::cell::UnsafeCell<u32>);

/// The unit of ids in bytes: slots begin at any word, so that sizes may be finer than 8.
const GRANULE: usize = size_of::<Granule>();

const _: () = assert!(SLOT_ALIGN == GRANULE);

/// The largest arena that ids can address, in bytes.
pub(crate) const ARENA_BYTES_MAX: u64 = (GRANULE as u64) << u32::BITS;

// SAFETY: an integer in a cell of the same layout; zero is valid and there is nothing to drop.
unsafe impl Zeroed for Granule {}

/// The cell that loom checks instead of a slot's memory.
#[cfg(loom)]
#[derive(Debug)]
struct Shadow {
    bytes: loom::cell::UnsafeCell<()>,
    expires: AtomicU32,
}

/// A slot that one writer owns: not yet, or no longer, reachable by any other thread (I2).
///
/// Dropping it loses the slot until the shard is dropped; return it by `Main::free`.
///
/// One word, `shard 24 | class 8 | id 32`, so that it goes through queues and calls in a register.
/// With three fields it was written in pieces and read back as a whole, which a processor can't
/// forward from its store buffer: a tenth of the time of an insert.
#[derive(Debug)]
#[must_use = "a slot that is dropped is lost; put it or free it"]
pub struct OwnedSlot(NonZeroU64);

/// Shards that a process can create.
pub(crate) const SHARDS_EVER: u32 = 1 << 24;

impl OwnedSlot {
    #[inline(always)]
    pub(crate) fn new(id: u32, class: u8, shard: u32) -> Self {
        debug_assert!(shard < SHARDS_EVER);
        let word = u64::from(id) | u64::from(class) << 32 | u64::from(shard) << 40;
        OwnedSlot(NonZeroU64::new(word).expect("id 0 means none"))
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u32 {
        self.0.get() as u32
    }

    /// The slot's size class.
    #[inline(always)]
    pub fn class(&self) -> u8 {
        (self.0.get() >> 32) as u8
    }

    /// The shard it belongs to; checked wherever it is returned.
    #[inline(always)]
    pub(crate) fn shard(&self) -> u32 {
        (self.0.get() >> 40) as u32
    }
}

#[derive(Debug)]
pub(crate) struct Arena {
    memory: Region<Granule>,
    shard: u32,
    #[cfg(loom)]
    shadow: Box<[Shadow]>,
}

// SAFETY: the memory is plain bytes. The protocol's I1 to I3 state which thread may access which
// slot when, and every access below names its invariant.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new(memory: &Memory, bytes: usize, shard: u32) -> std::io::Result<Self> {
        let granules = (HEAD_BYTES + bytes) / GRANULE;
        Ok(Arena {
            memory: memory.region(granules)?,
            shard,
            #[cfg(loom)]
            shadow: (0..granules)
                .map(|_| Shadow {
                    bytes: loom::cell::UnsafeCell::new(()),
                    expires: AtomicU32::new(0),
                })
                .collect(),
        })
    }

    /// The length of an arena's mapping.
    pub fn mapped_bytes(bytes: usize) -> usize {
        Memory::bytes_for::<Granule>(bytes.saturating_add(HEAD_BYTES) / GRANULE)
    }

    /// The id of the slot that starts `offset` bytes into the pages.
    #[inline(always)]
    pub fn id_at(offset: usize) -> u32 {
        ((HEAD_BYTES + offset) / GRANULE) as u32
    }

    /// The inverse of [`Arena::id_at`].
    #[inline(always)]
    pub fn offset_of(id: u32) -> usize {
        id as usize * GRANULE - HEAD_BYTES
    }

    /// The id of the slot of a view; `None` if it belongs to another arena.
    pub fn id_of(&self, slot: &Slot<'_>) -> Option<u32> {
        let base = self.memory.base().as_ptr() as usize;
        let offset = (slot.start.as_ptr() as usize).checked_sub(base)?;
        (offset / GRANULE < self.memory.len()).then_some((offset / GRANULE) as u32)
    }

    #[inline(always)]
    fn pointer(&self, id: u32) -> NonNull<u8> {
        debug_assert!((id as usize) < self.memory.len());
        // SAFETY: ids come from `Pages`, which returns offsets inside the arena it was built for.
        // An id of another shard is refused before this (`OwnedSlot::shard`).
        unsafe { self.memory.base().cast::<u8>().add(id as usize * GRANULE) }
    }

    /// Prefetches the slot's first line. Any id is valid.
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        crate::prefetch(
            self.memory.base().cast::<u8>().as_ptr().wrapping_add(id as usize * GRANULE),
        );
    }

    /// Prefetches the bytes that a lookup reads of a slot: header, key and the beginning of the
    /// value, often in two lines. Any id is valid.
    #[inline(always)]
    pub fn prefetch_entry(&self, id: u32) {
        self.prefetch(id);
        let start = self.memory.base().cast::<u8>().as_ptr().wrapping_add(id as usize * GRANULE);
        crate::prefetch(start.wrapping_add(READ_BYTES));
    }

    /// Prefetches the lines of a slot of `bytes` bytes, the first few if it is large.
    #[inline]
    pub fn prefetch_lines(&self, id: u32, bytes: usize) {
        const LINE_BYTES: usize = 64;
        const LINES_MAX: usize = 4;
        let start = self.memory.base().cast::<u8>().as_ptr().wrapping_add(id as usize * GRANULE);
        for offset in (0..bytes).step_by(LINE_BYTES).take(LINES_MAX) {
            crate::prefetch(start.wrapping_add(offset));
        }
        // Few slots begin at the start of a line, so most reach into one line more.
        crate::prefetch(start.wrapping_add(bytes.saturating_sub(1)));
    }

    #[inline(always)]
    fn expires(&self, id: u32) -> &AtomicU32 {
        #[cfg(loom)]
        return &self.shadow[id as usize].expires;
        #[cfg(not(loom))]
        // SAFETY: the first four bytes of a slot, 4-aligned, are only accessed through this
        // function, so every access to them is atomic; they are mapped as long as `self` lives.
        unsafe {
            AtomicU32::from_ptr(self.pointer(id).as_ptr().cast())
        }
    }

    /// Clears a new slot, so that I4 holds before its writer writes to it.
    pub fn clear(&self, slot: &mut OwnedSlot) {
        self.finish(slot, 0, 0, EXPIRES_NEVER, None);
    }

    /// Writes the key of an owned slot and returns the room after it, `room` bytes, for the value.
    /// The room borrows the arena too, because it is in the arena's memory.
    #[inline]
    pub fn begin<'a>(
        &'a self,
        slot: &'a mut OwnedSlot,
        key: &[u8],
        room: usize,
        size: usize,
    ) -> &'a mut [u8] {
        assert_eq!(slot.shard(), self.shard, "a slot goes back to the shard it came from");
        assert!(HEADER_BYTES + key.len() + room <= size, "key and value fit the slot's class");
        #[cfg(loom)]
        self.shadow[slot.id() as usize].bytes.with_mut(|_| ());
        let start = self.pointer(slot.id());
        // SAFETY: by I2 no other thread accesses these bytes while `slot` is mutably borrowed. The
        // assertion keeps them inside this slot, after the header. They are zeroed or written
        // before, so they are initialized.
        unsafe {
            let body = start.add(HEADER_BYTES).as_ptr();
            std::ptr::copy_nonoverlapping(key.as_ptr(), body, key.len());
            std::slice::from_raw_parts_mut(body.add(key.len()), room)
        }
    }

    /// Writes the header of an owned slot, and its version. The caller has checked the lengths (I4).
    #[inline]
    pub fn finish(
        &self,
        slot: &mut OwnedSlot,
        key_len: u8,
        value_len: u16,
        expires: u32,
        version: Option<u64>,
    ) {
        assert_eq!(slot.shard(), self.shard, "a slot goes back to the shard it came from");
        #[cfg(loom)]
        self.shadow[slot.id() as usize].bytes.with_mut(|_| ());
        self.expires(slot.id()).store(expires, Ordering::Relaxed);
        let flags = slot.class() << 1 | if version.is_some() { FLAG_VERSION } else { 0 };
        let lengths = pack_lengths(key_len, flags, value_len);
        let start = self.pointer(slot.id());
        // SAFETY: by I2 only we access the slot; bytes 4 to 8 of it are its header, 4-aligned.
        unsafe { start.add(4).cast::<u32>().write(lengths) }
        if let Some(version) = version {
            let end = HEADER_BYTES + usize::from(key_len) + usize::from(value_len);
            // SAFETY: by I2 only we access the slot, and by I4 its version is inside it.
            unsafe { start.add(end).cast::<u64>().write_unaligned(version) }
        }
    }

    /// A view of a slot.
    ///
    /// # Safety
    /// For as long as `'a` the slot must be owned by the caller, or protected by I1, or live and the
    /// shard's lock held.
    #[inline(always)]
    pub unsafe fn view<'a>(&'a self, id: u32) -> Slot<'a> {
        Slot {
            start: self.pointer(id),
            lifetime: PhantomData,
            #[cfg(loom)]
            expires: self.expires(id),
            #[cfg(loom)]
            _reading: self.shadow[id as usize].bytes.get(),
        }
    }
}

/// `key_len | flags | value_len` as they are in memory.
#[inline(always)]
fn pack_lengths(key_len: u8, flags: u8, value_len: u16) -> u32 {
    let [low, high] = value_len.to_le_bytes();
    u32::from_le_bytes([key_len, flags, low, high])
}

/// A view of one published slot: key, value, expiry, straight from the arena.
#[cfg_attr(not(loom), derive(Clone, Copy))]
pub struct Slot<'a> {
    start: NonNull<u8>,
    lifetime: PhantomData<&'a Arena>,
    #[cfg(loom)]
    expires: &'a AtomicU32,
    #[cfg(loom)]
    _reading: loom::cell::ConstPtr<()>,
}

// SAFETY: a view only reads, and what it reads (I3) any thread may read while `'a` lasts.
#[cfg(not(loom))]
unsafe impl Send for Slot<'_> {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Slot<'_> {}

impl<'a> Slot<'a> {
    #[inline(always)]
    fn header(&self) -> [u8; 4] {
        // SAFETY: the slot's header, plain and unchanging while the view lives (I3).
        unsafe { self.start.add(4).cast::<u32>().read() }.to_le_bytes()
    }

    #[inline(always)]
    fn lengths(&self) -> (usize, usize) {
        let [key_len, _flags, low, high] = self.header();
        (key_len as usize, u16::from_le_bytes([low, high]) as usize)
    }

    /// The slot's size class.
    #[inline]
    pub fn class(&self) -> u8 {
        let [_, flags, ..] = self.header();
        flags >> 1
    }

    /// The entry's version, if it has one.
    #[inline]
    pub fn version(&self) -> Option<u64> {
        let [_, flags, ..] = self.header();
        if flags & FLAG_VERSION == 0 {
            return None;
        }
        let (key_len, value_len) = self.lengths();
        // SAFETY: inside the slot by I4, unchanging while the view lives by I3.
        Some(unsafe {
            self.start.add(HEADER_BYTES + key_len + value_len).cast::<u64>().read_unaligned()
        })
    }

    /// The key.
    #[inline(always)]
    pub fn key(&self) -> &'a [u8] {
        let (key_len, _) = self.lengths();
        // SAFETY: inside the slot by I4, unchanging while the view lives by I3.
        unsafe { std::slice::from_raw_parts(self.start.add(HEADER_BYTES).as_ptr(), key_len) }
    }

    /// The value.
    #[inline(always)]
    pub fn value(&self) -> &'a [u8] {
        let (key_len, value_len) = self.lengths();
        // SAFETY: inside the slot by I4, unchanging while the view lives by I3.
        unsafe {
            let value = self.start.add(HEADER_BYTES + key_len);
            std::slice::from_raw_parts(value.as_ptr(), value_len)
        }
    }

    #[inline(always)]
    fn expires_word(&self) -> &AtomicU32 {
        #[cfg(loom)]
        return self.expires;
        #[cfg(not(loom))]
        // SAFETY: as in `Arena::expires`: only ever reached atomically, mapped while `'a` lasts.
        unsafe {
            AtomicU32::from_ptr(self.start.as_ptr().cast())
        }
    }

    /// The second in which the entry expires, [`EXPIRES_NEVER`] for never.
    #[inline(always)]
    pub fn expires(&self) -> u32 {
        self.expires_word().load(Ordering::Relaxed)
    }

    /// Changes the entry's expiry. Every reader sees it soon, at no particular log position.
    #[inline]
    pub fn set_expires(&self, expires: u32) {
        self.expires_word().store(expires, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Slot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("key", &self.key())
            .field("value_len", &self.value().len())
            .field("expires", &self.expires())
            .finish()
    }
}
