//! Calls for one key.

use std::borrow::Cow;
use std::ffi::c_void;

use crate::arguments::{self, bytes, ttl, ttl_s};
use crate::handle::larder_cache;
use crate::status::{answer, larder_status};

/// Gets a value in place. The bytes are valid until it returns. It may read the cache; a write of a
/// key there can fail with LARDER_ERROR_BUSY. It must not unwind or longjmp. Keep it short: writes
/// may need the memory that it looks at.
pub type larder_read =
    Option<unsafe extern "C" fn(context: *mut c_void, value: *const u8, value_bytes: usize)>;

/// A caller's function and its context.
#[derive(Clone, Copy)]
pub struct Read(pub larder_read, pub *mut c_void);

impl Read {
    /// Calls it, if there is one.
    pub fn call(self, value: &[u8]) {
        if let Some(read) = self.0 {
            // SAFETY: `the-caller-lends`: the caller's function, with the caller's context; the bytes
            // live until it returns.
            unsafe { read(self.1, value.as_ptr(), value.len()) }
        }
    }
}

/// A hit or a miss.
pub fn hit(is_hit: bool) -> larder_status {
    if is_hit { larder_status::LARDER_OK } else { larder_status::LARDER_MISS }
}

/// Calls read with the value of a key, in place, without a copy. LARDER_MISS if there is none. NULL
/// for read asks whether there is a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_get(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    read: larder_read,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        let found = cache.map().with(key, |value| Read(read, context).call(value));
        Ok(hit(found.is_some()))
    })
}

/// Copies the value of a key to a buffer, and writes its size to *value_bytes. LARDER_MISS if there
/// is none, with a size of 0. LARDER_BUFFER if the buffer is smaller than the value; nothing is
/// copied then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_get_into(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    buffer: *mut u8,
    buffer_bytes: usize,
    value_bytes: *mut usize,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: room for a size, or NULL.
        unsafe { arguments::set(value_bytes, 0) };
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        // SAFETY: `the-caller-lends`: a buffer of these bytes.
        let buffer = unsafe { arguments::buffer("buffer", buffer, buffer_bytes) }?;
        let copied = cache.map().with(key, |value| {
            // SAFETY: `the-caller-lends`: room for a size, or NULL.
            unsafe { arguments::set(value_bytes, value.len()) };
            match buffer.get_mut(..value.len()) {
                Some(room) => room.copy_from_slice(value),
                None => return larder_status::LARDER_BUFFER,
            }
            larder_status::LARDER_OK
        });
        Ok(copied.unwrap_or(larder_status::LARDER_MISS))
    })
}

/// Stores a value for ttl_s seconds, 0 for as long as there is room. It is seen by every later read
/// on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_put(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    value: *const u8,
    value_bytes: usize,
    ttl_s: u32,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        // SAFETY: `the-caller-lends`: a value of these bytes.
        let value = unsafe { bytes("value", value, value_bytes) }?;
        cache.map().insert_ttl(key, Cow::Borrowed(value), ttl(ttl_s))?;
        Ok(larder_status::LARDER_OK)
    })
}

/// Removes a value, if there is one. larder_take says whether there was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_remove(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        cache.map().remove(key)?;
        Ok(larder_status::LARDER_OK)
    })
}

/// Calls read, if it is not NULL, with the value of a key, and writes the seconds that it has left
/// to *left_s, 0 for a value that does not expire. LARDER_MISS if there is none. The value is
/// copied, under the lock of its part of the cache; the policy does not count it as a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_ttl(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    left_s: *mut u32,
    read: larder_read,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        let found = cache.map().get_with_ttl(key)?;
        if let Some((value, left)) = &found {
            // SAFETY: `the-caller-lends`: room for seconds, or NULL.
            unsafe { arguments::set(left_s, ttl_s(*left)) };
            Read(read, context).call(value);
        }
        Ok(hit(found.is_some()))
    })
}
