//! Zeroed memory from the kernel: the arena, the bucket arrays, the bitmaps.
//!
//! A large region is aligned to 2 MiB and asks for huge pages: random reads over a gigabyte then
//! miss the TLB much less (1.2 to 1.5 times faster). Pages are committed when they are first
//! accessed. The length never changes. Under loom and Miri the heap is used instead.

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A huge page.
#[cfg(all(unix, not(loom), not(miri)))]
const HUGE_BYTES: usize = 2 << 20;

/// Types whose all-zero bytes are a valid value, and that need no drop.
///
/// # Safety
/// Zeroed memory of the type's size and alignment must be a valid value of it, and dropping it must
/// do nothing.
pub unsafe trait Zeroed {}

// SAFETY: an integer may be zero and has no drop.
unsafe impl Zeroed for u8 {}
// SAFETY: as above.
unsafe impl Zeroed for u16 {}
// SAFETY: as above.
unsafe impl Zeroed for u32 {}
// SAFETY: as above.
unsafe impl Zeroed for u64 {}
// SAFETY: an array is its values and nothing else.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}
// SAFETY: an integer of the same layout, zero when zeroed, and no drop.
#[cfg(not(loom))]
unsafe impl Zeroed for crate::sync::AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for std::sync::atomic::AtomicU64 {}

/// Zeroed values on the heap: those of a large slice are committed when they are first accessed, in every build. (A
/// zeroed vector whose values are converted one by one is written whole where the compiler doesn't see through it.)
pub fn zeroed<T: Zeroed>(len: usize) -> Box<[T]> {
    // SAFETY: all-zero bytes are a valid `T`, by `Zeroed`.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

/// One mapping for many regions. A shard has many tables and some are small. With a mapping each
/// they would be in small pages, partly or wholly, and their translations would not fit the TLB.
#[derive(Debug)]
pub struct Memory {
    mapping: Option<Arc<Mapping>>,
    used: Cell<usize>,
}

/// Every region begins on its own cache line.
const LINE_BYTES: usize = 64;

impl Memory {
    /// Maps `bytes` bytes, committed when they are first accessed.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let mapping = if bytes == 0 { None } else { Some(Arc::new(Mapping::new(bytes)?)) };
        Ok(Memory { mapping, used: Cell::new(0) })
    }

    /// Bytes that a region of `len` values takes of a mapping.
    pub const fn bytes_for<T>(len: usize) -> usize {
        len.saturating_mul(size_of::<T>()).saturating_add(LINE_BYTES - 1) & !(LINE_BYTES - 1)
    }

    /// The next `len` values, zeroed; in a mapping of their own if this one has no room left.
    pub fn region<T: Zeroed>(&self, len: usize) -> io::Result<Region<T>> {
        const { assert!(align_of::<T>() <= LINE_BYTES, "regions begin on cache lines") };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes == 0 {
            return Ok(Region { base: NonNull::dangling(), len, _mapping: None });
        }
        let start = self.used.get();
        match &self.mapping {
            Some(mapping) if bytes <= mapping.bytes.saturating_sub(start) => {
                self.used.set(start + bytes.next_multiple_of(LINE_BYTES));
                // SAFETY: the range ends inside the mapping, and begins where no other region lies.
                let base = unsafe { mapping.base.add(start) }.cast();
                Ok(Region { base, len, _mapping: Some(mapping.clone()) })
            }
            _ => Memory::new(bytes)?.region(len),
        }
    }
}

/// A fixed slice of zeroed values.
#[derive(Debug)]
pub struct Region<T> {
    base: NonNull<T>,
    len: usize,
    /// The mapping that it is in, which is unmapped with its last region.
    _mapping: Option<Arc<Mapping>>,
}

// SAFETY: a region owns its values as a boxed slice does.
unsafe impl<T: Send> Send for Region<T> {}
// SAFETY: as above: `&Region<T>` gives `&[T]` and nothing else.
unsafe impl<T: Sync> Sync for Region<T> {}

impl<T: Zeroed> Region<T> {
    /// Maps `len` zeroed values in a mapping of their own.
    pub fn new(len: usize) -> io::Result<Self> {
        Memory::new(0)?.region(len)
    }
}

impl<T> Region<T> {
    /// The first value's address, with the right to reach the whole region.
    pub(crate) fn base(&self) -> NonNull<T> {
        self.base
    }
}

impl<T> Deref for Region<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` mapped `len` values, valid as zeroes by `Zeroed`, and they stay mapped
        // until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> std::ops::DerefMut for Region<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes us the only one.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

#[cfg(all(unix, not(loom), not(miri)))]
fn map_zeroed(bytes: usize) -> io::Result<NonNull<u8>> {
    let huge = bytes >= 2 * HUGE_BYTES;
    let slack = if huge { HUGE_BYTES } else { 0 };
    let requested = bytes.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing
    // that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            requested,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = start.cast::<u8>();
    let skip = if huge { start.align_offset(HUGE_BYTES).min(slack) } else { 0 };
    // SAFETY: `skip <= slack`, so `base .. base + bytes` lies inside the `requested` bytes just mapped.
    let base = unsafe { start.add(skip) };
    if huge {
        // SAFETY: the head and the tail that are cut off are inside our own new mapping, which no
        // other thread has seen yet; `unmap` rounds as the kernel does, so `Drop` later releases
        // the rest.
        unsafe {
            unmap(start, skip);
            let end = page_round_up(skip + bytes);
            unmap(start.add(end), page_round_up(requested).saturating_sub(end));
            // Advice: a kernel without huge pages refuses, which is fine. Others than Linux have no such advice.
            #[cfg(target_os = "linux")]
            let _ = libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE);
        }
    }
    NonNull::new(base).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(all(unix, not(loom), not(miri)))]
fn page_round_up(bytes: usize) -> usize {
    // SAFETY: sysconf reads a constant of the system.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    bytes.next_multiple_of(page)
}

/// Unmaps `bytes` at `start`.
///
/// # Safety
/// The range must be part of a mapping made by `map_zeroed` that is unused from now on.
#[cfg(all(unix, not(loom), not(miri)))]
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: by this function's contract. A failure would only leave the range mapped.
        let _ = unsafe { libc::munmap(start.cast(), bytes) };
    }
}

#[cfg(not(all(unix, not(loom), not(miri))))]
fn map_zeroed(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, LINE_BYTES)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the size is not zero (`Memory::new` checked).
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(base).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Zeroed bytes in their own address range.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; its regions decide who may access what in it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` is not 0.
    fn new(bytes: usize) -> io::Result<Self> {
        Ok(Mapping { base: map_zeroed(bytes)?, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(all(unix, not(loom), not(miri)))]
        // SAFETY: `new` mapped `bytes` at `base`, and every region in it, so every borrow of one, is gone.
        unsafe {
            unmap(self.base.as_ptr(), self.bytes);
        }
        #[cfg(not(all(unix, not(loom), not(miri))))]
        // SAFETY: the same layout as in `map_zeroed`, which made this allocation.
        unsafe {
            let layout = std::alloc::Layout::from_size_align_unchecked(self.bytes, LINE_BYTES);
            std::alloc::dealloc(self.base.as_ptr(), layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region is zeroed, writable to its last value, and large ones are aligned to 2 MiB.
    #[test]
    fn zeroed_and_aligned() {
        for len in [0usize, 1, 1000, (5 << 20) / 8 + 3] {
            let mut region = Region::<u64>::new(len).unwrap();
            assert!(region.iter().all(|&value| value == 0));
            assert!(zeroed::<u64>(len).iter().eq(region.iter()));
            if let Some(last) = region.last_mut() {
                *last = 7;
            }
            assert_eq!(region.last().copied(), (len > 0).then_some(7));
            #[cfg(not(any(loom, miri)))]
            if len * 8 >= 2 * HUGE_BYTES {
                assert_eq!(region.base().as_ptr() as usize % HUGE_BYTES, 0);
            }
        }
    }

    /// Regions of one mapping do not overlap, outlive the handle, and one that does not fit gets its own.
    #[test]
    fn regions_share_a_mapping() {
        let memory =
            Memory::new(Memory::bytes_for::<u64>(100) + Memory::bytes_for::<u8>(7)).unwrap();
        let mut words = memory.region::<u64>(100).unwrap();
        let mut bytes = memory.region::<u8>(7).unwrap();
        let mut beyond = memory.region::<u32>(1 << 20).unwrap();
        drop(memory);
        words.fill(u64::MAX);
        beyond.fill(3);
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(1);
        assert!(words.iter().all(|&word| word == u64::MAX));
        assert!(words.as_ptr_range().end as usize <= bytes.as_ptr() as usize);
        assert!(beyond.iter().all(|&word| word == 3));
    }
}
