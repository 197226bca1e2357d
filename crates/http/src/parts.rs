//! A body without a length that turned out too long to be cached: a chain of parts, of which few are in memory.
//!
//! ```text
//! the cached object, too long -> a part -> a part -> ...      one filler; each reader walks from one to the next
//! ```
//!
//! Readers that have begun keep their place: each part is read as any object, and its memory is free once no reader is in it or before
//! it. The filler goes on to another part only while at most [`BEHIND_MAX`] before it are still read, so the slowest reader sets the pace,
//! and what all readers together hold is bounded. A reader that leaves a part tells the filler's loop.
//!
//! Invariants
//! 1. A part has its successor before its object is sealed: whoever sees the object's end sees whether the body goes on.
//! 2. A part is held by the readers in it, by the part before it and, while it is filled, by its filler. So a filler that holds its
//!    part alone has no reader, and gets none.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use larder::mem::object::{News, Notice, Object, ObjectId};
use parking_lot::Mutex;

use crate::loop_channel::{LoopChannels, Message};

/// Parts before the one that is filled in which there may be readers.
pub const BEHIND_MAX: usize = 2;

/// A place in such a body: dropped by its last reader, it tells the filler.
pub struct Part {
    next: OnceLock<(Arc<Object>, Arc<Part>)>,
    stream: Arc<Stream>,
}

/// What all parts of a body know of their filler.
struct Stream {
    channels: LoopChannels,
    loop_number: u32,
    filling: Mutex<ObjectId>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("goes_on", &self.goes_on()).finish_non_exhaustive()
    }
}

impl Part {
    /// True where the body does not end with the object of this part.
    pub fn goes_on(&self) -> bool {
        self.next.get().is_some()
    }

    /// The next object, and its part.
    pub fn next(&self) -> Option<(Arc<Object>, Arc<Part>)> {
        self.next.get().cloned()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Stream { channels, loop_number, filling } = &*self.stream;
        let notice =
            Notice { loop_number: *loop_number, object: *filling.lock(), news: News::Room };
        channels.post(*loop_number, Message::Notice(notice));
    }
}

/// The filler's side.
#[derive(Debug)]
pub struct Parts {
    current: Arc<Part>,
    behind: Vec<Weak<Part>>,
}

impl Parts {
    /// Of a body whose first object is filled by this loop.
    pub fn new(channels: LoopChannels, loop_number: u32, object: &Arc<Object>) -> Parts {
        let stream = Arc::new(Stream { channels, loop_number, filling: Mutex::new(object.id()) });
        let current = Arc::new(Part { next: OnceLock::new(), stream });
        Parts { current, behind: Vec::new() }
    }

    /// The part that is filled, for a reader.
    pub fn current(&self) -> Arc<Part> {
        self.current.clone()
    }

    /// True where nobody reads it, and nobody will.
    pub fn is_unread(&self) -> bool {
        Arc::strong_count(&self.current) == 1
    }

    /// True where another part may be begun. Else this loop is told as soon as one behind has no reader any more.
    pub fn may_go_on(&mut self) -> bool {
        self.behind.retain(|part| part.strong_count() > 0);
        self.behind.len() < BEHIND_MAX
    }

    /// The body goes on in another object. Call it before the one before is sealed (invariant 1).
    pub fn go_on(&mut self, object: Arc<Object>) {
        let stream = self.current.stream.clone();
        *stream.filling.lock() = object.id();
        let next = Arc::new(Part { next: OnceLock::new(), stream });
        let before = std::mem::replace(&mut self.current, next.clone());
        // A part has one successor.
        let _ = before.next.set((object, next));
        self.behind.push(Arc::downgrade(&before));
    }
}
