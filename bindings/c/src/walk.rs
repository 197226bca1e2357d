//! Walks over all entries.

use std::borrow::Cow;

use engine::{Iter, Map};

use crate::arguments::{self, begin};
use crate::handle::{Bytes, larder_cache};
use crate::single::larder_life;
use crate::status::{Failure, answer, larder_status};

/// A walk over all entries of a cache. One thread uses it at a time.
pub struct larder_walk {
    // Before the map that it borrows, so that it is dropped first.
    entries: Iter<'static>,
    /// The key and value that the caller looks at.
    shown: (Vec<u8>, Bytes<'static>),
    map: Map<[u8], Bytes<'static>>,
}

/// An entry of a walk, valid until the next call with that walk.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct larder_entry {
    /// The key.
    pub key: *const u8,
    /// Its bytes.
    pub key_bytes: usize,
    /// The value.
    pub value: *const u8,
    /// Its bytes.
    pub value_bytes: usize,
    /// How long it lives.
    pub life: larder_life,
}

/// Begins a walk over all live entries, in no order, and writes it to *walk. It blocks no other
/// call. While the cache is used, any entry may be shown once, twice or not at all. On an error
/// *walk is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_walk_new(
    cache: *const larder_cache,
    walk: *mut *mut larder_walk,
) -> larder_status {
    answer(|| {
        if walk.is_null() {
            return Err(Failure::argument("the place for the walk is NULL"));
        }
        // SAFETY: `the-caller-lends`: room for a pointer.
        unsafe { arguments::set(walk, std::ptr::null_mut()) };
        // SAFETY: `the-caller-lends`: NULL or a cache.
        let map = unsafe { arguments::cache(cache) }?.to_map();
        let entries = map.cache().iter(map.now());
        // SAFETY: the walk borrows the cache, which lies behind a shared pointer in the map and so does
        // not move; the map is kept as long, and dropped later.
        let entries = unsafe { std::mem::transmute::<Iter<'_>, Iter<'static>>(entries) };
        let made = larder_walk { entries, shown: (Vec::new(), Cow::Borrowed(&[])), map };
        // SAFETY: `the-caller-lends`: room for a pointer.
        unsafe { arguments::set(walk, Box::into_raw(Box::new(made))) };
        Ok(larder_status::LARDER_OK)
    })
}

/// Writes the next entry to *entry, or returns LARDER_MISS at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_walk_next(
    walk: *mut larder_walk,
    entry: *mut larder_entry,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL, or a walk that only this thread uses now.
        let walk = unsafe { walk.as_mut() }.ok_or_else(|| Failure::argument("the walk is NULL"))?;
        let now = walk.map.now();
        for next in walk.entries.by_ref() {
            let Some(shown) = Map::<[u8], Bytes<'static>>::decode(next.key(), next.value()) else {
                continue;
            };
            // The walk began earlier.
            if next.expires().is_some_and(|expires| expires <= now) {
                continue;
            }
            walk.shown = shown;
            let (key, value) = &walk.shown;
            let shown = larder_entry {
                key: begin(key),
                key_bytes: key.len(),
                value: begin(value),
                value_bytes: value.len(),
                life: larder_life::of(next.expires(), now),
            };
            // SAFETY: `the-caller-lends`: room for an entry, or NULL.
            unsafe { arguments::set(entry, shown) };
            return Ok(larder_status::LARDER_OK);
        }
        walk.entries.was_whole()?;
        Ok(larder_status::LARDER_MISS)
    })
}

/// Ends a walk. The cache may have been freed before. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_walk_free(walk: *mut larder_walk) {
    answer(|| {
        if !walk.is_null() {
            // SAFETY: `the-caller-lends`: what `larder_walk_new` made, and no call uses any more.
            drop(unsafe { Box::from_raw(walk) });
        }
        Ok(larder_status::LARDER_OK)
    });
}
