//! A body without a length that turned out too long to be cached: a chain of parts, of which few
//! are in memory.
//!
//! ```text
//! the cached object, too long -> a part -> a part -> ...      one filler; each reader walks from one to the next
//! ```
//!
//! Readers that have begun keep their position. Each part is read like any object, and its memory
//! is free once no reader is in it or before it. The filler begins another part only while at most
//! [`BEHIND_MAX`] parts before it have readers. So the slowest reader sets the pace, and all
//! readers together hold a bounded amount of memory. A reader that ends a part notifies the
//! filler's event loop.
//!
//! Invariants
//! 1. A part has its successor before its object is sealed: a reader that sees the object's end sees
//!    whether the body continues.
//! 2. A part is held by its readers, by the part before it and, while it is filled, by its filler. So a
//!    filler that holds its part alone has no reader, and gets none.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use larder_mem::object::{News, Notice, Object, ObjectId, Post};
use parking_lot::Mutex;

/// Parts before the one that is filled that may have readers.
pub const BEHIND_MAX: usize = 2;

/// A position in such a body: its last reader drops it, which notifies the filler.
pub struct Part {
    next: OnceLock<(Arc<Object>, Arc<Part>)>,
    stream: Arc<Stream>,
}

/// The filler, as all parts of a body know it.
struct Stream {
    post: Arc<dyn Post>,
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
        let Stream { post, loop_number, filling } = &*self.stream;
        let notice =
            Notice { loop_number: *loop_number, object: *filling.lock(), news: News::Room };
        post.post(notice);
    }
}

/// The filler's side.
#[derive(Debug)]
pub struct Parts {
    current: Arc<Part>,
    behind: Vec<Weak<Part>>,
}

impl Parts {
    /// For a body whose first object this event loop fills.
    pub fn new(post: Arc<dyn Post>, loop_number: u32, object: &Arc<Object>) -> Parts {
        let stream = Arc::new(Stream { post, loop_number, filling: Mutex::new(object.id()) });
        let current = Arc::new(Part { next: OnceLock::new(), stream });
        Parts { current, behind: Vec::new() }
    }

    /// The part that is filled, for a reader.
    pub fn current(&self) -> Arc<Part> {
        self.current.clone()
    }

    /// True where it has no reader, and gets none.
    pub fn is_unread(&self) -> bool {
        Arc::strong_count(&self.current) == 1
    }

    /// True where another part may begin. Otherwise this event loop gets a notice when an earlier
    /// part has no reader any more.
    pub fn may_go_on(&mut self) -> bool {
        self.behind.retain(|part| part.strong_count() > 0);
        self.behind.len() < BEHIND_MAX
    }

    /// The body continues in another object. The caller does so before it seals the object before
    /// (invariant 1).
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
