//! Caches as files, for a warm start.

use std::ffi::c_char;

use crate::arguments::{self, path};
use crate::handle::larder_cache;
use crate::status::{answer, larder_status};

/// Saves all live entries to a file, which replaces an older one when it is complete. Writes their
/// number to *entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_save(
    cache: *const larder_cache,
    file: *const c_char,
    entries: *mut u64,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; NULL or a path.
        let (cache, file) = unsafe { (arguments::cache(cache)?, path(file)?) };
        let saved = cache.map().save(file)?;
        // SAFETY: `the-caller-lends`: room for a number, or NULL.
        unsafe { arguments::set(entries, saved) };
        Ok(larder_status::LARDER_OK)
    })
}

/// Stores the entries of a file of larder_save; a smaller cache keeps those that were to be evicted
/// last, and leaves out values that it does not take. Writes their number to *entries. LARDER_MISS
/// if there is no such file: a first start. After LARDER_ERROR_DAMAGED the entries before the
/// damage are stored, and counted; after other errors some may be, uncounted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_load(
    cache: *const larder_cache,
    file: *const c_char,
    entries: *mut u64,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache; NULL or a path.
        let (cache, file) = unsafe { (arguments::cache(cache)?, path(file)?) };
        // SAFETY: `the-caller-lends`: room for a number, or NULL.
        unsafe { arguments::set(entries, 0) };
        let loaded = match cache.map().load(file) {
            Ok(loaded) => loaded.entries,
            Err(engine::SaveError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(larder_status::LARDER_MISS);
            }
            Err(error) => {
                if let engine::SaveError::Damaged(damage) = &error {
                    // SAFETY: `the-caller-lends`: room for a number, or NULL.
                    unsafe { arguments::set(entries, damage.loaded) };
                }
                return Err(error.into());
            }
        };
        // SAFETY: `the-caller-lends`: room for a number, or NULL.
        unsafe { arguments::set(entries, loaded) };
        Ok(larder_status::LARDER_OK)
    })
}
