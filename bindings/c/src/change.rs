//! Calls that depend on the value that is there.

use std::borrow::Cow;
use std::ffi::c_void;

use engine::Change;

use crate::arguments::{self, begin, bytes, ttl};
use crate::handle::{Bytes, larder_cache};
use crate::single::{Read, hit, larder_read};
use crate::status::{Failure, answer, larder_status};

/// What larder_compute does with a key.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum larder_action {
    /// Nothing.
    LARDER_KEEP = 0,
    /// Stores the new value for the new time.
    LARDER_INSERT = 1,
    /// Stores the new value, which expires when the present one would; without one, never.
    LARDER_UPDATE = 2,
    /// Removes the value.
    LARDER_REMOVE = 3,
}

/// A new value, which a function for larder_compute fills. Its bytes must stay as they are until
/// larder_compute returns or calls the function again.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct larder_new_value {
    /// The bytes.
    pub at: *const u8,
    /// How many.
    pub bytes: usize,
    /// The seconds to live, 0 for as long as there is room.
    pub ttl_s: u32,
}

/// Decides what becomes of a value: a copy of the present one, valid until larder_compute returns
/// or calls it again, NULL if there is none. It is called again if another thread changed the key
/// meanwhile, so it must not change that key itself. It must not unwind or longjmp. The result is a
/// larder_action; any other number is an error.
pub type larder_change = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        value: *const u8,
        value_bytes: usize,
        new_value: *mut larder_new_value,
    ) -> i32,
>;

/// Stores a value under a key that has none. If it has one, calls read with a copy of it, if that
/// is not NULL, and returns LARDER_PRESENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_add(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    value: *const u8,
    value_bytes: usize,
    ttl_s: u32,
    read: larder_read,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        // SAFETY: `the-caller-lends`: a value of these bytes.
        let value = unsafe { bytes("value", value, value_bytes) }?;
        let there = cache.map().compute(key, |there| match there {
            Some(_) => Change::Keep,
            None => Change::Insert(Cow::Borrowed(value), ttl(ttl_s)),
        })?;
        Ok(match there {
            Some(there) => {
                Read(read, context).call(&there);
                larder_status::LARDER_PRESENT
            }
            None => larder_status::LARDER_OK,
        })
    })
}

/// As larder_put, and calls read, if it is not NULL, with a copy of the value that was there.
/// LARDER_OK if there was one, LARDER_MISS if not: the new value is stored in both cases.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_exchange(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    value: *const u8,
    value_bytes: usize,
    ttl_s: u32,
    read: larder_read,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        // SAFETY: `the-caller-lends`: a value of these bytes.
        let value = unsafe { bytes("value", value, value_bytes) }?;
        let insert = |_: Option<&Bytes<'_>>| Change::Insert(Cow::Borrowed(value), ttl(ttl_s));
        Ok(passed(cache.map().compute(key, insert)?, Read(read, context)))
    })
}

/// Removes a value, and calls read with a copy of it, if that is not NULL; LARDER_MISS if there was
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_take(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    read: larder_read,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        Ok(passed(cache.map().take(key)?, Read(read, context)))
    })
}

/// Calls change with a copy of the value of a key, and does what it returns, as one step: if
/// another thread changes the key meanwhile, change is called again with the newer value.
/// LARDER_MISS if there was no value when it was done, LARDER_OK if there was. An error of change
/// is LARDER_ERROR_ARGUMENT, and nothing changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_compute(
    cache: *const larder_cache,
    key: *const u8,
    key_bytes: usize,
    change: larder_change,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        let Some(change) = change else {
            return Err(Failure::argument("the function of a change is NULL"));
        };
        // SAFETY: `the-caller-lends`: NULL or a cache; a key of these bytes.
        let (cache, key) = unsafe { (arguments::cache(cache)?, bytes("key", key, key_bytes)?) };
        let mut failed = None;
        let there = cache.map().compute(key, |there| {
            // SAFETY: `the-caller-lends`: the function, its context, and the bytes it gives.
            unsafe { decided(change, context, there) }.unwrap_or_else(|failure| {
                failed = Some(failure);
                Change::Keep
            })
        })?;
        failed.map_or(Ok(hit(there.is_some())), Err)
    })
}

/// Asks the caller's function.
///
/// # Safety
/// `the-caller-lends`: a function for this context, which gives bytes that live while `'v` does.
unsafe fn decided<'v>(
    change: unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut larder_new_value) -> i32,
    context: *mut c_void,
    there: Option<&Bytes<'_>>,
) -> Result<Change<Bytes<'v>>, Failure> {
    let (at, len) = there.map_or((std::ptr::null(), 0), |there| (begin(there), there.len()));
    let mut new = larder_new_value { at: std::ptr::null(), bytes: 0, ttl_s: 0 };
    // SAFETY: as the function's comment asks; the bytes live until it returns.
    let action = unsafe { change(context, at, len, &mut new) };
    // SAFETY: as the function's comment asks.
    let value = || unsafe { bytes("new value", new.at, new.bytes) }.map(Cow::Borrowed);
    match action {
        action if action == larder_action::LARDER_KEEP as i32 => Ok(Change::Keep),
        action if action == larder_action::LARDER_INSERT as i32 => {
            Ok(Change::Insert(value()?, ttl(new.ttl_s)))
        }
        action if action == larder_action::LARDER_UPDATE as i32 => Ok(Change::Update(value()?)),
        action if action == larder_action::LARDER_REMOVE as i32 => Ok(Change::Remove),
        other => Err(Failure::argument(format!(
            "the function of a change returned {other}, which is no larder_action"
        ))),
    }
}

/// Passes on the value that was there.
fn passed(there: Option<Bytes<'_>>, read: Read) -> larder_status {
    if let Some(there) = &there {
        read.call(there);
    }
    hit(there.is_some())
}
