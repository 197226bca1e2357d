//! The catalog: the segments that there are, for readers in the writer's process.
//!
//! ```text
//! segment    Memory(grows) -> Memory(sealed), while the disk has not all of it -> Memory or File -> gone (the budget)
//! ```
//!
//! A reader takes [`Catalog::list`] or [`Catalog::get`], and then either leases from the object or opens the file. An object
//! that was taken stays readable as long as it is held, also when the catalog has let go of it; a file that was opened, too.
//! [`Gone::Revoked`](larder_mem::object::Gone) on opening an object: the catalog needed the memory; ask again, and there is
//! the file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use larder_mem::object::Object;

/// Where a segment's octets are.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory: it grows (its phase is `Filling`), or is closed (`Sealed`) and there was room.
    Memory(Arc<Object>),
    /// In this file, of so many octets.
    File(PathBuf, u64),
}

/// What is known of a segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its number, which its file is called by.
    pub number: u64,
    /// Where its first octet is.
    pub first_position: u64,
    /// Time of its first packet, ns; `None` as long as it has none.
    pub first_ns: Option<i64>,
    /// The latest time of a packet in it.
    pub last_ns: Option<i64>,
    /// Packets in it.
    pub packets: u64,
    /// Octets, with the header.
    pub bytes: u64,
    /// Nothing is added to it any more.
    pub is_closed: bool,
    /// What it begins with: a section, and its interfaces.
    pub header: Arc<[u8]>,
    /// Where they are.
    pub content: Content,
    /// It is in this file, whole, wherever else it is.
    pub(crate) file: Option<(PathBuf, u64)>,
}

/// The segments.
#[derive(Debug, Default)]
pub struct Catalog {
    segments: Mutex<BTreeMap<u64, Segment>>,
    watchers: Mutex<Vec<Waker>>,
}

impl Catalog {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Segment>> {
        self.segments.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// All segments, the oldest first; the last one grows as long as the store is open.
    pub fn list(&self) -> Vec<Segment> {
        self.lock().values().cloned().collect()
    }

    /// One of them.
    pub fn get(&self, number: u64) -> Option<Segment> {
        self.lock().get(&number).cloned()
    }

    /// The one that grows, or grew last.
    pub fn last(&self) -> Option<Segment> {
        self.lock().last_key_value().map(|(_, segment)| segment.clone())
    }

    /// The one after `number`, for who reads on.
    pub fn after(&self, number: u64) -> Option<Segment> {
        self.lock().range(number + 1..).next().map(|(_, segment)| segment.clone())
    }

    /// `waker` is woken from now on whenever a segment is begun, or its memory or file goes.
    pub fn watch(&self, waker: Waker) {
        self.watchers.lock().unwrap_or_else(|poison| poison.into_inner()).push(waker);
    }

    pub(crate) fn tell(&self) {
        let watchers = self.watchers.lock().unwrap_or_else(|poison| poison.into_inner());
        watchers.iter().for_each(Waker::wake_by_ref);
    }

    pub(crate) fn put(&self, segment: Segment) {
        self.lock().insert(segment.number, segment);
        self.tell();
    }

    pub(crate) fn change(&self, number: u64, change: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.lock().get_mut(&number) {
            change(segment);
        }
    }

    /// Lets go of the memory of the oldest segment that is in a file; false when there is none.
    pub(crate) fn let_go(&self) -> bool {
        let object = {
            let mut segments = self.lock();
            let found = segments.values_mut().find_map(|segment| match &segment.content {
                Content::Memory(_) => Some((segment.file.clone()?, segment)),
                Content::File(..) => None,
            });
            let Some(((path, bytes), segment)) = found else { return false };
            std::mem::replace(&mut segment.content, Content::File(path, bytes))
        };
        // Outside the lock, since its memory goes with it.
        if let Content::Memory(object) = &object {
            object.revoke();
        }
        self.tell();
        true
    }

    pub(crate) fn remove(&self, number: u64) {
        let segment = self.lock().remove(&number);
        if let Some(Segment { content: Content::Memory(object), .. }) = segment {
            object.revoke();
        }
        self.tell();
    }
}
