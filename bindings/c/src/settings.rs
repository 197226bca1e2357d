//! Settings of a cache.

use std::ffi::c_void;

use engine::{Builder, Cause, Map, Seconds};

use crate::arguments::begin;
use crate::handle::Bytes;
use crate::status::{Failure, LARDER_ABI_VERSION, answer, larder_status};

/// Why a value left the cache.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum larder_cause {
    /// The budget was used up.
    LARDER_CAUSE_BUDGET = 0,
    /// As LARDER_CAUSE_BUDGET, of a value that had expired.
    LARDER_CAUSE_EXPIRED = 1,
    /// A caller removed it.
    LARDER_CAUSE_REMOVED = 2,
    /// A caller stored another value under its key.
    LARDER_CAUSE_REPLACED = 3,
    /// All places for its key were full; rare.
    LARDER_CAUSE_CONFLICT = 4,
}

/// Called for a value that left, but for those that are there at larder_free. The bytes are valid
/// until it returns. It runs on a thread that writes, which holds no lock then: after the work of
/// larder_put and its like, within that of larder_put_many, larder_clear and larder_load. It may
/// use the cache, but not free it. Its puts are limited: four for each value that left, and 16. It
/// must not unwind or longjmp.
pub type larder_on_removed = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        cause: larder_cause,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    ),
>;

/// Settings of a cache. Begin with LARDER_SETTINGS_INIT, which sets every member.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct larder_settings {
    /// LARDER_ABI_VERSION of the header.
    pub abi_version: u32,
    /// The size of this structure in the program's header.
    pub struct_bytes: u32,
    /// Bytes that the cache may take, everything counted. The default is 64 MiB.
    pub budget_bytes: u64,
    /// The mean of the bytes of a key and its value together, which decides how much of the budget
    /// is index; 0 for the library's guess.
    pub entry_bytes_mean: u32,
    /// Threads that read at the same moment without waiting for each other; 0 for one per core, up
    /// to 16.
    pub readers_max: u32,
    /// Parts with a lock each, a power of two up to 64; 0 for as many as cores and budget suggest.
    pub shards: u32,
    /// Time stands at this many seconds, and larder_set_time moves it; 0 for the system's clock.
    pub time_s: u32,
    /// Called for values that leave: evicted, removed or replaced. NULL for none.
    pub on_removed: larder_on_removed,
    /// Passed to on_removed. Threads that use the cache share it.
    pub context: *mut c_void,
    /// The longest value, in bytes, up to 32768; of a key with more than 254 bytes, those after the
    /// first 247 count as value, and 4 more. Such values fit, and a budget that is too small for them
    /// is refused; if they are short there are more shards. 0: not stated.
    pub value_bytes_max: u64,
}

/// What a C caller gave for listeners. It says itself that threads may share it.
struct Listener(
    unsafe extern "C" fn(*mut c_void, larder_cause, *const u8, usize, *const u8, usize),
    *mut c_void,
);

// SAFETY: `the-caller-lends`: the comment of `context` says that threads share it.
unsafe impl Send for Listener {}
// SAFETY: the same.
unsafe impl Sync for Listener {}

impl Listener {
    fn call(&self, evicted: engine::Evicted<'_>) {
        let Some((key, value)) = Map::<[u8], Bytes<'static>>::decode(evicted.key, evicted.value)
        else {
            return;
        };
        let cause = match evicted.cause {
            Cause::Budget => larder_cause::LARDER_CAUSE_BUDGET,
            Cause::Expired => larder_cause::LARDER_CAUSE_EXPIRED,
            Cause::Removed => larder_cause::LARDER_CAUSE_REMOVED,
            Cause::Replaced => larder_cause::LARDER_CAUSE_REPLACED,
            _ => larder_cause::LARDER_CAUSE_CONFLICT,
        };
        // SAFETY: `the-caller-lends`: the caller's function, with the caller's context; the bytes live
        // until it returns.
        unsafe { (self.0)(self.1, cause, begin(&key), key.len(), begin(&value), value.len()) }
    }
}

impl larder_settings {
    /// The settings that the library chooses.
    pub fn new() -> larder_settings {
        larder_settings {
            abi_version: LARDER_ABI_VERSION,
            struct_bytes: size_of::<larder_settings>() as u32,
            budget_bytes: 64 << 20,
            entry_bytes_mean: 0,
            readers_max: 0,
            shards: 0,
            time_s: 0,
            on_removed: None,
            context: std::ptr::null_mut(),
            value_bytes_max: 0,
        }
    }

    /// The engine's settings.
    pub fn builder(&self) -> Builder {
        let mut builder = Map::<[u8], Bytes<'static>>::builder().budget(self.budget_bytes);
        if self.entry_bytes_mean > 0 {
            builder =
                builder.entry_bytes_mean((self.entry_bytes_mean as usize + 8).clamp(16, 4096));
        }
        if self.readers_max > 0 {
            builder = builder.readers_max(self.readers_max as usize);
        }
        if self.shards > 0 {
            builder = builder.shards(self.shards as usize);
        }
        if self.value_bytes_max > 0 {
            let bytes = usize::try_from(self.value_bytes_max).unwrap_or(usize::MAX);
            builder = builder.value_bytes_max(bytes);
        }
        if let Some(on_removed) = self.on_removed {
            let listener = Listener(on_removed, self.context);
            builder = builder.on_removed(move |evicted| listener.call(evicted));
        }
        builder
    }

    /// The clock that they choose.
    pub fn clock(&self) -> engine::Clock {
        match self.time_s {
            0 => engine::Clock::system(),
            seconds => engine::Clock::manual(Seconds(seconds)),
        }
    }
}

/// Bytes of the two members that every version begins with.
const HEAD_BYTES: usize = 2 * size_of::<u32>();

/// An error if a caller has another version, or a larger structure than this library knows.
fn check(version: u32, bytes: usize) -> Result<(), Failure> {
    let own = size_of::<larder_settings>();
    // No size of a version ends within a member.
    let is_whole = bytes.is_multiple_of(align_of::<larder_settings>());
    if version == LARDER_ABI_VERSION && (HEAD_BYTES..=own).contains(&bytes) && is_whole {
        return Ok(());
    }
    Err(Failure::new(
        larder_status::LARDER_ERROR_VERSION,
        format!(
            "the settings have version {version} and {bytes} bytes, the library has version \
             {LARDER_ABI_VERSION} and {own} bytes; call LARDER_SETTINGS_INIT, and compile with the \
             header of this library or of an earlier one of this version"
        ),
    ))
}

/// A caller's settings. Members that an earlier header does not have keep their defaults.
///
/// # Safety
/// `the-caller-lends`: NULL, or a `larder_settings` of the size that it states.
pub unsafe fn given(settings: *const larder_settings) -> Result<larder_settings, Failure> {
    let mut own = larder_settings::new();
    if settings.is_null() {
        return Ok(own);
    }
    if !settings.is_aligned() {
        return Err(Failure::argument(format!("the settings are at {settings:p}")));
    }
    // SAFETY: as the function's comment asks; these two members are the first of every version.
    let (version, bytes) = unsafe { ((*settings).abi_version, (*settings).struct_bytes as usize) };
    check(version, bytes)?;
    // SAFETY: as the function's comment asks; not more than either has. What was copied in part, or
    // not at all, is a default, and all members are plain data.
    unsafe { (&raw mut own).cast::<u8>().copy_from(settings.cast(), bytes) };
    Ok(own)
}

/// Sets every member that the caller knows to its default: see LARDER_SETTINGS_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_settings_init(
    settings: *mut larder_settings,
    abi_version: u32,
    struct_bytes: usize,
) -> larder_status {
    answer(|| {
        if settings.is_null() || !settings.is_aligned() {
            return Err(Failure::argument(format!("the settings are at {settings:p}")));
        }
        check(abi_version, struct_bytes)?;
        let mut defaults = larder_settings::new();
        defaults.struct_bytes = struct_bytes as u32;
        // SAFETY: `the-caller-lends`: as many bytes as it says, which are not more than there are.
        unsafe { settings.cast::<u8>().copy_from((&raw const defaults).cast(), struct_bytes) };
        Ok(larder_status::LARDER_OK)
    })
}
