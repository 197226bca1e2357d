//! Calls for many keys at once: their memory is fetched together, and one call crosses the border
//! for all.

use std::borrow::Cow;
use std::ffi::c_void;

use crate::arguments::{self, begin, ttl};
use crate::handle::larder_cache;
use crate::status::{Failure, answer, larder_status};

/// Bytes of a caller.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct larder_bytes {
    /// Where they begin; may be NULL if there are none.
    pub at: *const u8,
    /// How many.
    pub bytes: usize,
}

/// Gets the value of one of many keys in place: the number of the key, and its value, or NULL for a
/// miss. As for larder_read otherwise.
pub type larder_read_many = Option<
    unsafe extern "C" fn(context: *mut c_void, key: usize, value: *const u8, value_bytes: usize),
>;

/// Where a value lies in a buffer, or that there is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct larder_place {
    /// The first byte, from the buffer's begin; LARDER_NOWHERE for a miss.
    pub at: usize,
    /// The bytes of the value.
    pub bytes: usize,
}

/// The place of a value that is not there.
pub const LARDER_NOWHERE: usize = usize::MAX;

/// Keys that are looked up together, as `larder` does.
const KEYS_TOGETHER: usize = 32;

/// Keys that lie one behind the other.
///
/// # Safety
/// `the-caller-lends`: `count` ends, and as many bytes as the last of them says.
unsafe fn joined<'a>(
    keys: *const u8,
    ends: *const usize,
    count: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: as the function's comment asks.
    let ends = unsafe { arguments::list("list of key ends", ends, count) }?;
    // SAFETY: as the function's comment asks.
    let all = unsafe { arguments::bytes("keys", keys, ends.last().copied().unwrap_or(0)) }?;
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let keys = starts.zip(ends).map(|(start, &end)| {
        all.get(start..end).ok_or_else(|| Failure::argument("the ends of keys do not ascend"))
    });
    keys.collect()
}

/// Calls each for every key, in order, with its value in place. A table that is larger than the
/// CPU's cache is read two to four times as fast as by larder_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_get_many(
    cache: *const larder_cache,
    keys: *const larder_bytes,
    keys_count: usize,
    each: larder_read_many,
    context: *mut c_void,
) -> larder_status {
    answer(|| {
        let Some(each) = each else {
            return Err(Failure::argument("the function for values is NULL"));
        };
        // SAFETY: `the-caller-lends`: NULL or a cache; that many keys.
        let (cache, keys) = unsafe {
            (arguments::cache(cache)?, arguments::list("list of keys", keys, keys_count)?)
        };
        // SAFETY: `the-caller-lends`: each key has as many bytes as it says.
        let keys = keys.iter().map(|key| unsafe { arguments::bytes("key", key.at, key.bytes) });
        let keys: Vec<&[u8]> = keys.collect::<Result<_, _>>()?;
        cache.map().with_many(&keys, |number, value| {
            let (at, bytes) =
                value.map_or((std::ptr::null(), 0), |value| (begin(value), value.len()));
            // SAFETY: `the-caller-lends`: the caller's function, with the caller's context; the bytes
            // live until it returns.
            unsafe { each(context, number, at, bytes) }
        });
        Ok(larder_status::LARDER_OK)
    })
}

/// As larder_get_many, for languages in which a call back is dear: keys lie one behind the other,
/// and keys_ends has the end of each. Copies values to a buffer, one behind the other, writes the
/// place of each to places, which has room for all keys, and the number of keys that are done to
/// *done. LARDER_BUFFER if the buffer is full before all are done: call it again for the keys
/// behind those, with a larger buffer if none was done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_get_many_into(
    cache: *const larder_cache,
    keys: *const u8,
    keys_ends: *const usize,
    keys_count: usize,
    buffer: *mut u8,
    buffer_bytes: usize,
    places: *mut larder_place,
    done: *mut usize,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: room for a number, or NULL.
        unsafe { arguments::set(done, 0) };
        // SAFETY: `the-caller-lends`: NULL or a cache; that many ends of keys, and their bytes.
        let (cache, keys) =
            unsafe { (arguments::cache(cache)?, joined(keys, keys_ends, keys_count)?) };
        // SAFETY: `the-caller-lends`: a buffer of these bytes, and a place for each key.
        let (buffer, places) = unsafe {
            let buffer = arguments::buffer("buffer", buffer, buffer_bytes)?;
            (buffer, arguments::buffer("list of places", places, keys_count)?)
        };
        let (mut len, mut count, mut is_full) = (0, 0, false);
        // A few at a time: what is behind a full buffer is asked for again, and would count twice.
        for keys in keys.chunks(KEYS_TOGETHER) {
            cache.map().with_many(keys, |_, value| {
                let room = value.and_then(|value| buffer.get_mut(len..)?.get_mut(..value.len()));
                is_full |= value.is_some() && room.is_none();
                if is_full {
                    return;
                }
                places[count] = match (value, room) {
                    (Some(value), Some(room)) => {
                        room.copy_from_slice(value);
                        len += value.len();
                        larder_place { at: len - value.len(), bytes: value.len() }
                    }
                    _ => larder_place { at: LARDER_NOWHERE, bytes: 0 },
                };
                count += 1;
            });
            if is_full {
                break;
            }
        }
        // SAFETY: `the-caller-lends`: room for a number, or NULL.
        unsafe { arguments::set(done, count) };
        Ok(if is_full { larder_status::LARDER_BUFFER } else { larder_status::LARDER_OK })
    })
}

/// Stores many values for ttl_s seconds, 0 for as long as there is room, with fewer locks than
/// larder_put. Both lists have count members. An argument out of range stores nothing. On another
/// error, those before the refused one are stored, or any if it is LARDER_ERROR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_put_many(
    cache: *const larder_cache,
    keys: *const larder_bytes,
    values: *const larder_bytes,
    count: usize,
    ttl_s: u32,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; that many keys and values.
        let (cache, keys, values) = unsafe {
            let keys = arguments::list("list of keys", keys, count)?;
            (arguments::cache(cache)?, keys, arguments::list("list of values", values, count)?)
        };
        let entries = keys.iter().zip(values).map(|(key, value)| {
            // SAFETY: `the-caller-lends`: each has as many bytes as it says.
            unsafe {
                let key = arguments::bytes("key", key.at, key.bytes)?;
                let value = arguments::bytes("value", value.at, value.bytes)?;
                Ok::<_, Failure>((key, Cow::Borrowed(value)))
            }
        });
        let entries: Vec<_> = entries.collect::<Result<_, _>>()?;
        cache.map().insert_many(entries, ttl(ttl_s))?;
        Ok(larder_status::LARDER_OK)
    })
}
