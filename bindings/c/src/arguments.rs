//! Pointers of a caller, as references.
//!
//! Invariant `the-caller-lends`: what a function's comment asks for holds during the call: a
//! pointer that is not NULL points to as many bytes, or to one value, as the comment says, and no
//! other thread changes them. Every `unsafe` block of this crate rests on it.

use std::ffi::{CStr, c_char};
use std::path::Path;

use engine::{Expiry, Ttl};

use crate::handle::larder_cache;
use crate::status::Failure;

/// The cache behind a handle.
///
/// # Safety
/// `the-caller-lends`: NULL, or what `larder_new` returned and `larder_free` has not got.
pub unsafe fn cache<'a>(cache: *const larder_cache) -> Result<&'a larder_cache, Failure> {
    // SAFETY: as the function's comment asks.
    unsafe { cache.as_ref() }.ok_or_else(|| Failure::argument("the cache is NULL"))
}

/// Bytes; NULL stands for none.
///
/// # Safety
/// `the-caller-lends`: NULL, or `bytes` bytes.
pub unsafe fn bytes<'a>(what: &str, at: *const u8, bytes: usize) -> Result<&'a [u8], Failure> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if at.is_null() || bytes > isize::MAX as usize {
        return Err(Failure::argument(format!("the {what} has {bytes} bytes and is at {at:p}")));
    }
    // SAFETY: as the function's comment asks; not NULL, and not longer than memory.
    Ok(unsafe { std::slice::from_raw_parts(at, bytes) })
}

/// As [`bytes`], to be written.
///
/// # Safety
/// `the-caller-lends`: NULL, or `bytes` bytes, which only this call uses.
pub unsafe fn buffer<'a, T>(what: &str, at: *mut T, count: usize) -> Result<&'a mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    if at.is_null() || !at.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::argument(format!("the {what} has room for {count} and is at {at:p}")));
    }
    // SAFETY: as the function's comment asks; not NULL, aligned, and not longer than memory.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, count) })
}

/// A list.
///
/// # Safety
/// `the-caller-lends`: NULL, or `count` values.
pub unsafe fn list<'a, T>(what: &str, at: *const T, count: usize) -> Result<&'a [T], Failure> {
    // SAFETY: as the function's comment asks. Nothing is written.
    unsafe { buffer(what, at.cast_mut(), count) }.map(|list| &*list)
}

/// Where bytes begin, for a callback: never an address that only Rust takes for valid, as an empty
/// list has. Runtimes that move stacks stumble over those.
pub fn begin(bytes: &[u8]) -> *const u8 {
    static NONE: u8 = 0;
    if bytes.is_empty() { &raw const NONE } else { bytes.as_ptr() }
}

/// Writes a result, if the caller wants it.
///
/// # Safety
/// `the-caller-lends`: NULL, or room for a `T`.
pub unsafe fn set<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: as the function's comment asks. What is there needs no destructor: it is C's.
        unsafe { at.write(value) }
    }
}

/// A path in the file system.
///
/// # Safety
/// `the-caller-lends`: NULL, or text with a zero byte at its end.
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    if path.is_null() {
        return Err(Failure::argument("the path is NULL"));
    }
    // SAFETY: as the function's comment asks.
    let path = unsafe { CStr::from_ptr(path) };
    #[cfg(unix)]
    return Ok(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
        path.to_bytes(),
    )));
    #[cfg(not(unix))]
    path.to_str().map(Path::new).map_err(|_| Failure::argument("the path is not UTF-8"))
}

/// A time to live: 0 is for ever, as in memcached.
pub fn ttl(ttl_s: u32) -> Expiry {
    if ttl_s == 0 { Expiry::NEVER } else { Ttl::seconds(ttl_s).into() }
}
