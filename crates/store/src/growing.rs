//! Segments that are being written, shared by writer and disk writer.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

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

/// State that writer and disk writer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub catalog: Arc<Catalog>,
    pub counts: Arc<Counts>,
    pub queue: Mutex<VecDeque<Arc<Growing>>>,
    pub is_ending: AtomicBool,
}
