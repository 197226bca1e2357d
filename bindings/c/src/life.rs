//! The beginning and the end of a cache.

use engine::{Map, Seconds};

use crate::arguments;
use crate::handle::larder_cache;
use crate::settings::{given, larder_settings};
use crate::status::{Failure, answer, larder_status};

/// Makes a cache, and writes it to *cache. NULL settings are the defaults. All memory is reserved
/// now, and used as it fills. On an error *cache is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_new(
    settings: *const larder_settings,
    cache: *mut *mut larder_cache,
) -> larder_status {
    answer(|| {
        if cache.is_null() {
            return Err(Failure::argument("the place for the cache is NULL"));
        }
        // SAFETY: `the-caller-lends`: room for a pointer.
        unsafe { arguments::set(cache, std::ptr::null_mut()) };
        // SAFETY: `the-caller-lends`: NULL, or settings.
        let settings = unsafe { given(settings) }?;
        let clock = settings.clock();
        let map = Map::build(settings.builder(), clock.clone())?;
        let made = Box::into_raw(Box::new(larder_cache::new(map, clock)));
        // SAFETY: `the-caller-lends`: room for a pointer.
        unsafe { arguments::set(cache, made) };
        Ok(larder_status::LARDER_OK)
    })
}

/// Frees a cache. No other call may use it then or later, and so no function that it calls may free
/// it; walks over it may continue. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_free(cache: *mut larder_cache) {
    answer(|| {
        if !cache.is_null() {
            // SAFETY: `the-caller-lends`: what `larder_new` made, and no call uses any more.
            drop(unsafe { Box::from_raw(cache) });
        }
        Ok(larder_status::LARDER_OK)
    });
}

/// Sets the time of a cache whose settings had a time_s. LARDER_ERROR_ARGUMENT for a cache with the
/// system's clock. Time may go back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_set_time(cache: *const larder_cache, time_s: u32) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL, or a cache.
        let cache = unsafe { arguments::cache(cache) }?;
        if cache.clock().set(Seconds(time_s)) {
            Ok(larder_status::LARDER_OK)
        } else {
            Err(Failure::argument("the cache has the system's clock; set time_s when you make it"))
        }
    })
}
