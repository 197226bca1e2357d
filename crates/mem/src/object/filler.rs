//! The filler: the one writer of an object.
//!
//! ```text
//! room() -> Memory(bytes) -> wrote(n) -> publish() -> ... -> seal() | fail() | drop
//!        -> Later, until News::Room
//! ```

use super::body::{Chunks, LENGTH_MAX, Object, State};
use super::buddy::Extent;
use super::digest::Digesting;
use super::fifo::Ticket;
use super::store::Store;
use super::{
    CHUNK_BYTES_MAX, CHUNK_UNITS_MAX, FIRST_CHUNK_UNITS, Failure, POST_BYTES, Plan, UNIT_BYTES,
};
use crate::sync::Arc;

/// Writes an object. If it is dropped before `seal`, the object has failed as abandoned.
pub struct Filler {
    object: Arc<Object>,
    plan: Plan,
    /// The chunk that it writes into.
    current: Option<Extent>,
    /// The chunk is one huge page.
    is_large: bool,
    /// Bytes written to the current chunk.
    used: u64,
    written: u64,
    published: u64,
    /// Bytes published when readers were last notified.
    posted: u64,
    /// Bytes of the last room that are not written yet.
    room_bytes: usize,
    /// Units of the next chunk, for a body of unknown length.
    next_units: u32,
    ticket: Option<Ticket>,
    digesting: Digesting,
    has_ended: bool,
}

/// Where to write.
#[derive(Debug)]
pub enum Room<'a> {
    /// Here; at least one byte, with arbitrary old contents.
    Memory(&'a mut [u8]),
    /// There is no room yet; [`super::News::Room`] comes.
    Later,
}

impl Filler {
    pub(crate) fn new(store: &Arc<Store>, plan: Plan) -> Self {
        Filler {
            object: Arc::new(Object::new(store, plan)),
            plan,
            current: None,
            is_large: false,
            used: 0,
            written: 0,
            published: 0,
            posted: 0,
            room_bytes: 0,
            next_units: FIRST_CHUNK_UNITS,
            ticket: None,
            digesting: Digesting::default(),
            has_ended: false,
        }
    }

    /// The object that it fills.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The present number of its readers.
    pub fn readers(&self) -> usize {
        self.object.readers() as usize
    }

    /// True if filling further is useless, or the object has failed. It is useless if there is no
    /// reader and can be none, because the object is revoked, or in transit and had its reader. A
    /// filler that gets [`super::News::Room`] should check this.
    pub fn is_unwanted(&self) -> bool {
        self.object.is_unwanted()
    }

    /// Bytes written so far, visible or not.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Room for up to `bytes_max` bytes, in one piece. It includes the unwritten part of the last
    /// room.
    pub fn room(&mut self, bytes_max: usize) -> Room<'_> {
        self.room_bytes = 0;
        if self.left() == 0 && !self.next_chunk() {
            return Room::Later;
        }
        let current = self.current.expect("it has a chunk with room");
        let len = usize::try_from(self.left()).unwrap_or(usize::MAX).min(bytes_max.max(1));
        let offset = u64::from(current.unit) * UNIT_BYTES as u64 + self.used;
        self.room_bytes = len;
        let data = self.object.store.memory.at(offset, len);
        // SAFETY: the chunk is the object's (O1), nothing of it from `used` on is published, so it
        // is ours alone, and `&mut self` returns it once at a time (O2). Memory of the arena is
        // always initialized: it began as zeroes.
        Room::Memory(unsafe { std::slice::from_raw_parts_mut(data, len) })
    }

    /// The first `bytes` of the last room are part of the object now, not yet visible.
    pub fn wrote(&mut self, bytes: usize) {
        assert!(bytes <= self.room_bytes, "{bytes} bytes in a room of {}", self.room_bytes);
        let current = self.current.expect("a room was in a chunk");
        let offset = u64::from(current.unit) * UNIT_BYTES as u64 + self.used;
        let memory = &self.object.store.memory;
        memory.note_write(offset, bytes);
        if let Some(digests) = &self.object.digests {
            // SAFETY: as in `room`, whose borrow is over.
            let data = unsafe { std::slice::from_raw_parts(memory.at(offset, bytes), bytes) };
            self.digesting.wrote(digests.digest, data);
        }
        self.room_bytes -= bytes;
        self.used += bytes as u64;
        self.written += bytes as u64;
    }

    /// Makes all written bytes visible. Waiting readers are notified if [`POST_BYTES`] have come
    /// since the last notice.
    pub fn publish(&mut self) {
        if self.written - self.posted >= POST_BYTES {
            self.publish_now();
        } else if self.written > self.published {
            self.show();
        }
    }

    /// Makes all written bytes visible, and notifies waiting readers, however few bytes there are.
    pub fn publish_now(&mut self) {
        if self.written == self.posted {
            return;
        }
        let before = match self.written - self.published {
            // The bytes are visible already, but waiting readers are not notified.
            0 => self.object.load(),
            _ => self.show(),
        };
        self.posted = self.written;
        self.object.notify_readers(before);
    }

    fn show(&mut self) -> State {
        self.publish_digests(false);
        let before = self.object.publish(self.written - self.published);
        self.published = self.written;
        before
    }

    fn publish_digests(&mut self, is_last: bool) {
        if let Some(digests) = &self.object.digests {
            self.digesting.publish(digests, is_last);
        }
    }

    /// Completes the body with all written bytes. If another length was announced, the body has
    /// failed.
    pub fn seal(mut self) {
        self.end(match self.plan.bytes {
            Some(bytes) if self.written < bytes => Some(Failure::Origin),
            Some(bytes) if self.written > bytes => Some(Failure::TooLong),
            _ => None,
        });
    }

    /// Fails the body. Published bytes stay readable; unpublished ones are lost.
    pub fn fail(mut self, failure: Failure) {
        self.end(Some(failure));
    }

    /// Unwritten bytes of the current chunk.
    fn left(&self) -> u64 {
        self.current.map_or(0, |extent| u64::from(extent.units) * UNIT_BYTES as u64 - self.used)
    }

    /// Gets a chunk; false if there is none now, and then a notice comes.
    fn next_chunk(&mut self) -> bool {
        if LENGTH_MAX - self.written < (UNIT_BYTES * CHUNK_UNITS_MAX as usize) as u64 {
            self.object.abort(Failure::TooLong);
            return false;
        }
        let units = match &self.object.chunks {
            Chunks::Transit(ring) => {
                let step = ring.next(self.object.store.share_units());
                self.object.store.give_back(step.freed);
                if !step.is_room {
                    return false;
                }
                step.chunk_units
            }
            Chunks::Stored(_) => {
                match self.plan.bytes.map(|bytes| bytes.saturating_sub(self.written)) {
                    Some(rest) if rest > 0 => {
                        rest.div_ceil(UNIT_BYTES as u64).min(u64::from(CHUNK_UNITS_MAX)) as u32
                    }
                    _ => self.next_units,
                }
            }
        };
        let (id, loop_number) = (self.object.id(), self.plan.loop_number);
        let Some(extent) = self.object.store.take(&mut self.ticket, id, loop_number, units) else {
            return false;
        };
        self.object.push(self.written, extent);
        self.is_large = self.is_to_be_whole(extent) && self.enlarge(extent);
        self.current = Some(extent);
        self.used = 0;
        self.next_units = (self.next_units * 2).min(CHUNK_UNITS_MAX);
        true
    }

    /// True for a chunk of the largest size that a body of known length fills.
    fn is_to_be_whole(&self, extent: Extent) -> bool {
        let is_filled =
            self.plan.bytes.is_some_and(|bytes| bytes >= self.written + CHUNK_BYTES_MAX as u64);
        self.object.store.large_chunks && is_filled && extent.units == CHUNK_UNITS_MAX
    }

    fn enlarge(&self, extent: Extent) -> bool {
        let Chunks::Stored(directory) = &self.object.chunks else { return false };
        // SAFETY: the chunk is the object's (O1), nothing of it is published, and no room of it is
        // borrowed (O2). It stays whole (`end`), and is punched when it is freed, as if the kernel
        // had it.
        let is_large =
            unsafe { self.object.store.memory.enlarge(u64::from(extent.unit) * UNIT_BYTES as u64) };
        if is_large {
            directory.note_shown(directory.count() - 1);
        }
        is_large
    }

    fn end(&mut self, failure: Option<Failure>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if let Some(ticket) = self.ticket.take() {
            self.object.store.leave(ticket);
        }
        // A huge page is not cut (O8).
        let current = self.current.take().filter(|_| !self.is_large);
        let tail = current.map(|mut extent| {
            let tail = extent.split_off(self.used.div_ceil(UNIT_BYTES as u64) as u32);
            self.object.trim(extent);
            tail
        });
        let before = match failure {
            None => {
                self.publish_digests(true);
                self.object.seal(self.written - self.published)
            }
            Some(failure) => self.object.fail(failure),
        };
        self.object.notify_readers(before);
        // None of it was ever published, so it is not leased, and was never passed to the kernel.
        self.object.store.give_back(tail.map(|tail| (tail, false)).into_iter().collect());
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.end(Some(Failure::Abandoned));
    }
}

impl std::fmt::Debug for Filler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filler")
            .field("object", &self.object)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}
