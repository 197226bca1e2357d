//! The catalog: the existing segments, for readers in the writer's process.
//!
//! ```text
//! segment    Memory(grows) -> Memory(sealed), until the disk has all of it -> Memory, File or Compressed
//!            -> deleted (the budget)
//! ```
//!
//! A reader takes [`Catalog::list`] or [`Catalog::get`], and then either leases from the object or
//! opens the file. An object that was taken stays readable while it is held, also after the catalog
//! has dropped it; so does an open file. [`Gone::Revoked`](larder_mem::object::Gone) on opening an
//! object means that the catalog needed the memory: ask again, and there is the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use larder_mem::object::Object;
use larder_serve::log::Log;

/// The place of a segment's bytes.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory: it grows (its phase is `Filling`), or is closed (`Sealed`) and there was room.
    Memory(Arc<Object>),
    /// In this file, with its length.
    File(PathBuf, u64),
    /// In this file of zstd frames, with the length of the file.
    Compressed(PathBuf, u64),
}

/// The state of a segment's hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hook {
    /// It has not run.
    #[default]
    Waiting,
    /// It runs, or is tried again.
    Running,
    /// It failed, and is not tried again before the next start.
    Failed,
    /// It has succeeded.
    Done,
}

/// The data of a segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its number, as in the name of its file.
    pub number: u64,
    /// Position of its first byte.
    pub first_position: u64,
    /// Time of its first packet, ns; `None` while it has none.
    pub first_ns: Option<i64>,
    /// The latest time of a packet in it.
    pub last_ns: Option<i64>,
    /// Packets in it.
    pub packets: u64,
    /// Bytes, including the header.
    pub bytes: u64,
    /// It does not grow any more.
    pub is_closed: bool,
    /// Its beginning: a section, and its interfaces.
    pub header: Arc<[u8]>,
    /// The place of its bytes.
    pub content: Content,
    /// The file that has all of it, also if it is in memory too.
    pub(crate) file: Option<Content>,
    /// Its file is not compressed any more: it is, or that failed.
    pub(crate) is_final: bool,
    pub(crate) hook: Hook,
}

impl Segment {
    /// Bytes of its file, and whether that is compressed; `None`: the file is not complete.
    pub fn on_disk(&self) -> Option<(u64, bool)> {
        match self.file.as_ref()? {
            Content::Memory(_) => None,
            Content::File(_, bytes) => Some((*bytes, false)),
            Content::Compressed(_, bytes) => Some((*bytes, true)),
        }
    }
}

/// The segments.
#[derive(Debug, Default)]
pub struct Catalog {
    /// `None`: there is no store.
    directory: Option<PathBuf>,
    log: Log,
    segments: Mutex<BTreeMap<u64, Segment>>,
    watchers: Mutex<Vec<Waker>>,
}

impl Catalog {
    /// An empty one, of a folder; `log` is for those who read it.
    pub(crate) fn new(directory: &Path, log: Log) -> Catalog {
        Catalog { directory: Some(directory.to_owned()), log, ..Catalog::default() }
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// The folder of the segments; `None`: there is no store.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Segment>> {
        self.segments.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// All segments, the oldest first; the last one grows as long as the store is open.
    pub fn list(&self) -> Vec<Segment> {
        self.lock().values().cloned().collect()
    }

    /// The segment with this number.
    pub fn get(&self, number: u64) -> Option<Segment> {
        self.lock().get(&number).cloned()
    }

    /// The one that grows, or grew last.
    pub fn last(&self) -> Option<Segment> {
        self.lock().last_key_value().map(|(_, segment)| segment.clone())
    }

    /// The oldest one.
    pub(crate) fn first(&self) -> Option<Segment> {
        self.lock().first_key_value().map(|(_, segment)| segment.clone())
    }

    /// The next one after `number`.
    pub fn after(&self, number: u64) -> Option<Segment> {
        self.lock().range(number + 1..).next().map(|(_, segment)| segment.clone())
    }

    /// Wakes `waker` from now on whenever a segment is begun, or its memory or file is removed.
    pub fn watch(&self, waker: Waker) {
        self.watchers.lock().unwrap_or_else(|poison| poison.into_inner()).push(waker);
    }

    /// The first segment from number `first` on for which `is_wanted` is true.
    pub(crate) fn first_from(
        &self,
        first: u64,
        is_wanted: impl Fn(&Segment) -> bool,
    ) -> Option<Segment> {
        let segments = self.lock();
        segments.range(first..).map(|(_, segment)| segment).find(|it| is_wanted(it)).cloned()
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
                Content::File(..) | Content::Compressed(..) => None,
            });
            let Some((file, segment)) = found else { return false };
            std::mem::replace(&mut segment.content, file)
        };
        // Outside the lock, since its memory goes with it.
        if let Content::Memory(object) = &object {
            object.revoke();
        }
        self.tell();
        true
    }

    /// Removes a segment, and returns what it was.
    pub(crate) fn remove(&self, number: u64) -> Option<Segment> {
        let segment = self.lock().remove(&number);
        if let Some(Segment { content: Content::Memory(object), .. }) = &segment {
            object.revoke();
        }
        self.tell();
        segment
    }
}
