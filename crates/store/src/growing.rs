//! Segments on their way to the disk, as writer and disk_writer share them.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use larder_mem::object::Object;

use crate::catalog::Catalog;
use crate::files::Identity;
use crate::options::Counts;

/// A segment on its way to the disk.
#[derive(Debug)]
pub(crate) struct Growing {
    pub identity: Identity,
    pub object: Arc<Object>,
    pub books: Mutex<Books>,
}

/// What writer and disk_writer say to each other of a segment.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Frames that are to be written to the journal.
    pub journal: Vec<u8>,
    pub packets: u64,
    pub bytes: u64,
    /// The disk refused: nothing more comes into the file.
    pub is_failed: bool,
}

impl Growing {
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// What writer and disk_writer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub catalog: Arc<Catalog>,
    pub counts: Arc<Counts>,
    pub queue: Mutex<VecDeque<Arc<Growing>>>,
    pub is_ending: AtomicBool,
}
