//! Segments that are being written, shared by writer and disk writer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use larder_mem::object::Object;

use crate::catalog::Catalog;
use crate::files::Identity;
use crate::options::Counts;

/// A segment that is being written.
#[derive(Debug)]
pub(crate) struct Growing {
    pub identity: Identity,
    pub object: Arc<Object>,
    pub state: Mutex<SegmentState>,
}

/// State of a segment that writer and disk writer share.
#[derive(Debug, Default)]
pub(crate) struct SegmentState {
    /// Frames to write to the journal.
    pub journal: Vec<u8>,
    pub packets: u64,
    pub bytes: u64,
    /// The disk has failed: nothing more is written to the file.
    pub is_failed: bool,
}

impl Growing {
    pub fn state(&self) -> MutexGuard<'_, SegmentState> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// A segment that the compressor has finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compressed {
    pub number: u64,
    /// Bytes of the compressed file.
    pub bytes: u64,
}

/// State that writer, disk writer and helpers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub catalog: Arc<Catalog>,
    pub counts: Arc<Counts>,
    pub queue: Mutex<VecDeque<Arc<Growing>>>,
    pub is_ending: AtomicBool,
    /// The compressor and the hook thread end before the disk writer.
    pub helpers_end: AtomicBool,
    /// What the compressor has made, until the disk writer has put it into its place.
    pub compressed: Mutex<Option<Compressed>>,
    /// Threads that look at the catalog after a segment was closed.
    pub helpers: Mutex<Vec<Thread>>,
}

impl Shared {
    pub fn new(catalog: Arc<Catalog>, counts: Arc<Counts>) -> Shared {
        Shared {
            catalog,
            counts,
            queue: Mutex::default(),
            is_ending: AtomicBool::new(false),
            helpers_end: AtomicBool::new(false),
            compressed: Mutex::default(),
            helpers: Mutex::default(),
        }
    }

    /// Wakes the compressor and the hook thread.
    pub fn wake_helpers(&self) {
        let helpers = self.helpers.lock().unwrap_or_else(|poison| poison.into_inner());
        helpers.iter().for_each(Thread::unpark);
    }

    /// The compressor and the hook thread must end.
    pub fn helpers_must_end(&self) -> bool {
        self.helpers_end.load(Ordering::Acquire)
    }

    pub fn compressed(&self) -> MutexGuard<'_, Option<Compressed>> {
        self.compressed.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}
