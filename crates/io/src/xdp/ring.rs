//! Rings that are shared with the kernel: one side writes entries, the other takes them, and
//! neither waits.
//!
//! ```text
//!            consumer            producer
//!   taken       |   to be taken     |   free         counters run on past the end; an entry's place is the counter,
//! --------------+-------------------+-------------   masked
//! ```
//!
//! Invariants
//! 1. A ring's memory has both counters, the flags and a power of two of entries, as was checked
//!    when it was mapped, and exists while the ring does.
//! 2. Entries from consumer to producer belong to the taker, the others to the writer. Each side
//!    writes its own counter only, with Release after it has finished with entries, and reads the
//!    other's with Acquire before it touches them.
//! 3. The kernel is one side of each ring, and exactly one value, [`Writer`] or [`Taker`], the
//!    other.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory that the kernel gave, until it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the value; what is done with it is argued where it is done.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives no more than the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New memory of zeros, all of it there from the beginning.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new private mapping at an address that the kernel chooses aliases nothing.
        unsafe { Mapping::new(bytes, flags, -1, 0) }
    }

    /// # Safety
    /// As mmap(2) with an address that the kernel chooses; what the descriptor shares is for the
    /// caller to know.
    unsafe fn new(
        bytes: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        offset: libc::off_t,
    ) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the contract.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Mapping { start, bytes })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The start of the mapping.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no borrow of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// An entry: plain data, any bytes of which are a value.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// A ring's memory, and where things are in it.
#[derive(Debug)]
struct Ring<T> {
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    count: u32,
}

impl<T: Entry> Ring<T> {
    /// Maps the ring of a socket at the offset of its kind; the socket was configured with `count`
    /// entries.
    fn map(
        socket: &impl AsFd,
        offset: libc::off_t,
        places: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Ring<T>> {
        let other =
            |what: &str| io::Error::other(format!("the kernel's rings are unlike ours: {what}"));
        let entries = usize::try_from(places.desc).map_err(|_| other("entries"))?;
        let bytes = (size_of::<T>() * count as usize)
            .checked_add(entries)
            .filter(|_| count.is_power_of_two() && entries.is_multiple_of(align_of::<T>()))
            .ok_or_else(|| other("size"))?;
        let word = |at: u64| {
            let at = usize::try_from(at).ok()?;
            (at.is_multiple_of(4) && at.checked_add(4)? <= bytes).then_some(at)
        };
        let [producer, consumer, flags] = [places.producer, places.consumer, places.flags]
            .map(|at| word(at).ok_or_else(|| other("counters")));
        let (producer, consumer, flags) = (producer?, consumer?, flags?);
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: shares a ring with the kernel, which keeps to the rules of the file's head.
        let mapping =
            unsafe { Mapping::new(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset)? };
        let start = mapping.start;
        // SAFETY: each of the offsets was found inside the mapping above, and a multiple of the
        // alignment.
        unsafe {
            Ok(Ring {
                producer: start.add(producer).cast(),
                consumer: start.add(consumer).cast(),
                flags: start.add(flags).cast(),
                entries: start.add(entries).cast(),
                _mapping: mapping,
                count,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: invariant 1; the kernel uses it as an atomic too.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn wants_call(&self) -> bool {
        // SAFETY: as above.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, counter: u32) -> NonNull<T> {
        // SAFETY: masked, so below `count`: invariant 1.
        unsafe { self.entries.add((counter & (self.count - 1)) as usize) }
    }
}

/// The writing side of a ring.
#[derive(Debug)]
pub(super) struct Writer<T> {
    ring: Ring<T>,
    /// Entries written so far, shown to the kernel or not.
    written: u32,
    /// Entries that the kernel had taken at the last check.
    taken: u32,
}

// SAFETY: the pointers are to the ring's own mapping, and by invariant 3 used by this value only.
unsafe impl<T: Entry> Send for Writer<T> {}

impl<T: Entry> Writer<T> {
    /// Maps the ring.
    pub fn map(
        socket: &impl AsFd,
        offset: libc::off_t,
        places: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Writer<T>> {
        let ring = Ring::map(socket, offset, places, count)?;
        Ok(Writer { ring, written: 0, taken: 0 })
    }

    /// Writes an entry; false where the ring is full. The kernel sees it after [`Writer::show`].
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        if self.waiting() == self.ring.count {
            // Pairs with the kernel's Release: it has done with what it took.
            self.taken = self.ring.consumer().load(Ordering::Acquire);
            if self.waiting() == self.ring.count {
                return false;
            }
        }
        // SAFETY: the entry is free, and so ours: invariant 2.
        unsafe { self.ring.entry(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
        true
    }

    fn waiting(&self) -> u32 {
        self.written.wrapping_sub(self.taken)
    }

    /// Makes the written entries visible to the kernel.
    #[inline]
    pub fn show(&self) {
        // Pairs with the kernel's Acquire: entries are there when it sees the counter.
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Entries that the kernel has not yet taken.
    #[inline]
    pub fn untaken(&mut self) -> u32 {
        self.taken = self.ring.consumer().load(Ordering::Acquire);
        self.waiting()
    }

    /// Whether the kernel reads the ring only when it is called.
    #[inline]
    pub fn wants_call(&self) -> bool {
        self.ring.wants_call()
    }
}

/// The taking side of a ring.
#[derive(Debug)]
pub(super) struct Taker<T> {
    ring: Ring<T>,
    /// Entries taken so far.
    taken: u32,
    /// Entries that the kernel had written at the last check.
    written: u32,
}

// SAFETY: as for `Writer`.
unsafe impl<T: Entry> Send for Taker<T> {}

impl<T: Entry> Taker<T> {
    /// Maps the ring.
    pub fn map(
        socket: &impl AsFd,
        offset: libc::off_t,
        places: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Taker<T>> {
        let ring = Ring::map(socket, offset, places, count)?;
        Ok(Taker { ring, taken: 0, written: 0 })
    }

    /// Takes an entry, if there is one. Its place is free for the kernel after [`Taker::free`].
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.taken == self.written {
            // Pairs with the kernel's Release: entries are there when we see the counter.
            self.written = self.ring.producer().load(Ordering::Acquire);
            if self.taken == self.written {
                return None;
            }
        }
        // SAFETY: the entry is between the counters, and so ours (invariant 2); any bytes are a
        // value.
        let value = unsafe { self.ring.entry(self.taken).read() };
        self.taken = self.taken.wrapping_add(1);
        Some(value)
    }

    /// Gives the entries that were taken back to the kernel.
    #[inline]
    pub fn free(&self) {
        // Pairs with the kernel's Acquire: we have read what was taken.
        self.ring.consumer().store(self.taken, Ordering::Release);
    }
}
