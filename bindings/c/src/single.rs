//! Calls for one key.

use std::borrow::Cow;
use std::ffi::c_void;

use engine::Seconds;

use crate::arguments::{self, begin, bytes, ttl};
use crate::handle::larder_cache;
use crate::status::{Failure, answer, larder_status};

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
            unsafe { read(self.1, begin(value), value.len()) }
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
/// copied then. The buffer may overlap the key.
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
        if buffer.is_null() && buffer_bytes > 0 {
            return Err(Failure::argument(format!(
                "the buffer has {buffer_bytes} bytes and is NULL"
            )));
        }
        // What is written must not be what a reference reads.
        let range = key.as_ptr_range();
        let overlaps = range.start < buffer.cast_const().wrapping_add(buffer_bytes)
            && buffer.cast_const() < range.end;
        let key = if overlaps { Cow::Owned(key.to_vec()) } else { Cow::Borrowed(key) };
        let copied = cache.map().with(&*key, |value| {
            // SAFETY: `the-caller-lends`: room for a size, or NULL.
            unsafe { arguments::set(value_bytes, value.len()) };
            if value.len() > buffer_bytes {
                return larder_status::LARDER_BUFFER;
            }
            // SAFETY: `the-caller-lends`: a buffer of that many bytes, outside of the cache's
            // memory.
            unsafe { buffer.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
            larder_status::LARDER_OK
        });
        Ok(copied.unwrap_or(larder_status::LARDER_MISS))
    })
}

/// Stores a value for ttl_s seconds, 0 for as long as there is room. Time is in whole seconds, so a
/// value expires up to a second early. It is seen by every later read on any thread.
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

/// How long a value lives.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct larder_life {
    /// The seconds that it has left, 0 if it does not expire.
    pub left_s: u32,
    /// The first second in which it has expired, by the cache's clock, 0 if it does not expire. The
    /// system's clock counts from 1970.
    pub expires_s: u32,
}

impl larder_life {
    /// Of a value that has not expired by `now`.
    pub fn of(expires: Option<Seconds>, now: Seconds) -> larder_life {
        let expires_s = expires.map_or(0, |expires| expires.0);
        // It may have come to its end since it was found.
        let left = expires_s.saturating_sub(now.0).max(1);
        larder_life { left_s: if expires_s == 0 { 0 } else { left }, expires_s }
    }
}

/// Calls read, if it is not NULL, with a copy of the value of a key, and writes to *life how long
/// it lives. LARDER_MISS if there is none. It takes the lock of the key's part of the cache.
/// Neither the figures nor the policy count it as a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_peek(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    life: *mut larder_life,
    read: larder_read,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        let found = cache.map().get_with_expiry(key)?;
        if let Some((value, expires)) = &found {
            // SAFETY: `the-caller-lends`: room for a life, or NULL.
            unsafe { arguments::set(life, larder_life::of(*expires, cache.map().now())) };
            Read(read, context).call(value);
        }
        Ok(hit(found.is_some()))
    })
}

/// Makes a value expire ttl_s seconds from now, 0 for as long as there is room; LARDER_MISS if
/// there is none. The value stays where it is: on_removed is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_touch(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    ttl_s: u32,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        Ok(hit(cache.map().touch(key, ttl(ttl_s))?))
    })
}
