//! What a call returns, and the text of the last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::{Error, SaveError};

/// The version of this interface. It grows when a function or a structure changes so that a program
/// must be compiled again. New functions, and new members at the end of larder_settings and
/// larder_stats, do not change it.
pub const LARDER_ABI_VERSION: u32 = 1;

/// What a call returns. Errors are negative: larder_last_error has their text.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum larder_status {
    /// It was done.
    LARDER_OK = 0,
    /// The key has no value, or a walk is at its end. Not an error.
    LARDER_MISS = 1,
    /// The key has a value already, which stays. Not an error.
    LARDER_PRESENT = 2,
    /// A buffer is too small. Not an error.
    LARDER_BUFFER = 3,
    /// An argument or a setting is out of range, or NULL.
    LARDER_ERROR_ARGUMENT = -1,
    /// The value, with the part of its key beyond 254 bytes, is larger than this cache takes.
    LARDER_ERROR_TOO_LARGE = -2,
    /// Memory that the write needs is in use by a read that lasts. Nothing has changed, but that
    /// larder_clear, larder_load and larder_put_many may have done a part. Try again, except within
    /// a function that larder calls: the read may be that one.
    LARDER_ERROR_BUSY = -3,
    /// The system refused memory.
    LARDER_ERROR_MEMORY = -4,
    /// A panic interrupted a change of this cache, which is a defect of larder. Make a new one.
    LARDER_ERROR_POISONED = -5,
    /// A file could not be read or written.
    LARDER_ERROR_IO = -6,
    /// A file is no saved cache, or it is damaged.
    LARDER_ERROR_DAMAGED = -7,
    /// A defect of larder: a call panicked. The text is on standard error; please report it.
    LARDER_ERROR_PANIC = -8,
    /// The caller was compiled for another version of this interface.
    LARDER_ERROR_VERSION = -9,
    /// A put within on_removed was refused: such puts make more values leave than it was called
    /// for. Trying again there can't help.
    LARDER_ERROR_LISTENER = -10,
}

/// An error: its status and its text.
pub struct Failure {
    status: larder_status,
    text: String,
}

impl Failure {
    /// An argument out of range.
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(larder_status::LARDER_ERROR_ARGUMENT, text)
    }

    /// An error with any status.
    pub fn new(status: larder_status, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        use larder_status::*;
        let status = match error {
            Error::ValueTooLarge { .. } => LARDER_ERROR_TOO_LARGE,
            Error::Stalled { .. } | Error::Starved => LARDER_ERROR_BUSY,
            Error::ListenerInserts => LARDER_ERROR_LISTENER,
            Error::Memory(_) => LARDER_ERROR_MEMORY,
            Error::Poisoned => LARDER_ERROR_POISONED,
            _ => LARDER_ERROR_ARGUMENT,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<SaveError> for Failure {
    fn from(error: SaveError) -> Failure {
        let status = match error {
            SaveError::Cache(error) => return error.into(),
            // A walk over a poisoned cache ends the save with the cache's error.
            SaveError::Io(error) => match error.downcast::<Error>() {
                Ok(error) => return error.into(),
                Err(error) => {
                    let text = SaveError::Io(error).to_string();
                    return Failure::new(larder_status::LARDER_ERROR_IO, text);
                }
            },
            _ => larder_status::LARDER_ERROR_DAMAGED,
        };
        Failure::new(status, error.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs the body of a call. What it returns as an error becomes this thread's last one.
pub fn answer(body: impl FnOnce() -> Result<larder_status, Failure>) -> larder_status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            larder_status::LARDER_ERROR_PANIC,
            "a call of larder panicked: please report it",
        ),
    };
    // None in a text of ours; one in a path would end the text too early.
    let text = CString::new(failure.text.replace('\0', "?")).unwrap_or_default();
    // A thread that ends has none left.
    let _ = LAST_ERROR.try_with(|last| last.replace(text));
    failure.status
}

/// The text of the last error of a call on this thread, without a line end; "" if there was none.
/// It is valid until the next call with an error on this thread. Calls without an error do not
/// change it.
#[unsafe(no_mangle)]
pub extern "C" fn larder_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A short text for any larder_status, for a program whose calls change threads, as
/// larder_last_error does not fit there. It is valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn larder_status_text(status: i32) -> *const c_char {
    use larder_status::*;
    let texts: [(larder_status, &CStr); 14] = [
        (LARDER_OK, c"done"),
        (LARDER_MISS, c"no value, or the end of a walk"),
        (LARDER_PRESENT, c"there is a value already"),
        (LARDER_BUFFER, c"the buffer is too small"),
        (LARDER_ERROR_ARGUMENT, c"an argument or a setting is out of range"),
        (LARDER_ERROR_TOO_LARGE, c"the value is larger than this cache takes; use a larger budget"),
        (LARDER_ERROR_BUSY, c"a read holds memory that the write needs; try again"),
        (LARDER_ERROR_MEMORY, c"the system refused memory; use a smaller budget"),
        (
            LARDER_ERROR_POISONED,
            c"a panic interrupted a change of this cache; make a new one to write",
        ),
        (LARDER_ERROR_IO, c"a file could not be read or written"),
        (LARDER_ERROR_DAMAGED, c"a file is no saved cache, or it is damaged"),
        (LARDER_ERROR_PANIC, c"a call of larder panicked: please report it"),
        (LARDER_ERROR_VERSION, c"compiled for another version of the interface; compile again"),
        (
            LARDER_ERROR_LISTENER,
            c"the listener of removed values stores too many; store fewer there",
        ),
    ];
    let text = texts.iter().find(|(known, _)| *known as i32 == status);
    text.map_or(c"an unknown status", |(_, text)| text).as_ptr()
}

/// The version of the interface that the library has: compare with LARDER_ABI_VERSION of the
/// header.
#[unsafe(no_mangle)]
pub extern "C" fn larder_abi_version() -> u32 {
    LARDER_ABI_VERSION
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn larder_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero byte"),
        };
    VERSION.as_ptr()
}
