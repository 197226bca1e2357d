//! Zeroed memory straight from the kernel: the arena, the bucket arrays, the bitmaps.
//!
//! A large region is aligned to 2 MiB and asks for huge pages: a random read over a gigabyte then
//! misses the TLB a lot less (1.2 to 1.5 times faster). Pages are committed as they are first
//! touched. Length is fixed for life. Under loom and Miri the heap is used instead.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

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
unsafe impl Zeroed for u32 {}
// SAFETY: as above.
unsafe impl Zeroed for u64 {}
// SAFETY: an array is its values and nothing else.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}
// SAFETY: an integer of the same layout, zero when zeroed, and no drop.
#[cfg(not(loom))]
unsafe impl Zeroed for crate::sync::AtomicU32 {}

/// A fixed slice of zeroed values with the address space to itself.
#[derive(Debug)]
pub struct Region<T> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: a region owns its values as a boxed slice does.
unsafe impl<T: Send> Send for Region<T> {}
// SAFETY: as above: `&Region<T>` gives `&[T]` and nothing else.
unsafe impl<T: Sync> Sync for Region<T> {}

impl<T: Zeroed> Region<T> {
    /// Maps `len` zeroed values, committed as they are first touched.
    pub fn new(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes == 0 {
            return Ok(Region { base: NonNull::dangling(), len });
        }
        Ok(Region { base: map_zeroed::<T>(bytes)?, len })
    }
}

impl<T> Region<T> {
    /// The first value's address, with the right to reach the whole region.
    pub(crate) fn base(&self) -> NonNull<T> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
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
fn map_zeroed<T>(bytes: usize) -> io::Result<NonNull<T>> {
    const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to a page, no more") };
    let huge = bytes >= 2 * HUGE_BYTES;
    let slack = if huge { HUGE_BYTES } else { 0 };
    let asked = bytes.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing
    // that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            asked,
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
    // SAFETY: `skip <= slack`, so `base .. base + bytes` lies inside the `asked` bytes just mapped.
    let base = unsafe { start.add(skip) };
    if huge {
        // SAFETY: the head and the tail cut off lie inside our own new mapping, which nobody has
        // seen yet; `unmap` rounds as the kernel does, so `Drop` later gives back the rest.
        unsafe {
            unmap(start, skip);
            let end = page_round_up(skip + bytes);
            unmap(start.add(end), page_round_up(asked).saturating_sub(end));
            // Advice: a kernel without huge pages says no, and we go on without.
            let _ = libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE);
        }
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
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
/// The range must be part of a mapping made by `map_zeroed` that nobody uses any more.
#[cfg(all(unix, not(loom), not(miri)))]
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: by this function's contract. A failure would only leave the range mapped.
        let _ = unsafe { libc::munmap(start.cast(), bytes) };
    }
}

#[cfg(not(all(unix, not(loom), not(miri))))]
fn map_zeroed<T>(bytes: usize) -> io::Result<NonNull<T>> {
    let layout = std::alloc::Layout::from_size_align(bytes, align_of::<T>().max(64))
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the size is not zero (`new` checked).
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        let bytes = self.bytes();
        if bytes == 0 {
            return;
        }
        #[cfg(all(unix, not(loom), not(miri)))]
        // SAFETY: `new` mapped `bytes` at `base`, and the region, so every borrow of it, is gone.
        unsafe {
            unmap(self.base.as_ptr().cast(), bytes);
        }
        #[cfg(not(all(unix, not(loom), not(miri))))]
        // SAFETY: the same layout as in `map_zeroed`, which made this allocation.
        unsafe {
            let align = align_of::<T>().max(64);
            let layout = std::alloc::Layout::from_size_align_unchecked(bytes, align);
            std::alloc::dealloc(self.base.as_ptr().cast(), layout);
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
}
