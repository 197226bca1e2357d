//! An object: the state word, its readers, and the waiting loops and wakers. The module's header
//! has the proof.

use std::ops::Range;
use std::task::Waker;

#[cfg(loom)]
use super::ObjectFault;
use super::buddy::Extent;
use super::digest::Digests;
use super::directory::{Chunk, Directory};
use super::fifo::{Fifo, Ticket};
use super::reader::Reader;
use super::ring::{Ring, Step};
use super::store::Store;
use super::{
    Failure, Gone, Kind, LOOPS_MAX, News, Notice, ObjectId, Phase, Plan, ReaderOptions, UNIT_BYTES,
};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// A body, or the part of it that has arrived. Its handles own its memory, as its readers and
/// leases do.
pub struct Object {
    id: ObjectId,
    pub(crate) store: Arc<Store>,
    state: AtomicU64,
    /// Loops to notify, one bit each.
    loops: AtomicU64,
    /// Threads and tasks to wake, in order.
    wakers: Mutex<Fifo<Waker>>,
    readers: AtomicU64,
    filler_loop: u32,
    pub(crate) chunks: Chunks,
    /// Boxed, since most stores have none.
    pub(crate) digests: Option<Box<Digests>>,
}

/// Where its chunks are.
pub(crate) enum Chunks {
    Stored(Directory),
    Transit(Ring),
}

const WAITING: u64 = 1;
const WAKERS: u64 = 1 << 1;
const SEALED: u64 = 1 << 2;
const FAILURE_SHIFT: u32 = 3;
const FAILURE: u64 = 7 << FAILURE_SHIFT;
const OPENED: u64 = 1 << 6;
const REVOKED: u64 = 1 << 7;
const LENGTH_SHIFT: u32 = 8;

/// The longest body in bytes; at ten gigabytes a second it takes two months.
pub(crate) const LENGTH_MAX: u64 = u64::MAX >> LENGTH_SHIFT;

/// The state word at a moment.
#[derive(Clone, Copy)]
pub(crate) struct State(u64);

impl State {
    pub fn published(self) -> u64 {
        self.0 >> LENGTH_SHIFT
    }

    pub fn phase(self) -> Phase {
        match (self.0 & FAILURE) >> FAILURE_SHIFT {
            0 if self.0 & SEALED != 0 => Phase::Sealed,
            0 => Phase::Filling,
            1 => Phase::Failed(Failure::Origin),
            2 => Phase::Failed(Failure::Abandoned),
            3 => Phase::Failed(Failure::TooLong),
            _ => Phase::Failed(Failure::Damaged),
        }
    }

    fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }
}

fn failure_bits(failure: Failure) -> u64 {
    let code = match failure {
        Failure::Origin => 1,
        Failure::Abandoned => 2,
        Failure::TooLong => 3,
        Failure::Damaged => 4,
    };
    code << FAILURE_SHIFT
}

impl Object {
    pub(crate) fn new(store: &Arc<Store>, plan: Plan) -> Self {
        assert!(plan.loop_number < LOOPS_MAX, "loops are numbered below {LOOPS_MAX}");
        let chunks = match plan.kind {
            Kind::Stored => Chunks::Stored(Directory::new()),
            Kind::Transit { window_bytes } => Chunks::Transit(Ring::new(
                window_bytes,
                #[cfg(loom)]
                store.fault,
            )),
        };
        if matches!(chunks, Chunks::Transit(_)) {
            store.passes(true);
        }
        let units_max = match &chunks {
            Chunks::Stored(_) => usize::MAX,
            Chunks::Transit(ring) => ring.window_units as usize,
        };
        Object {
            id: store.born(),
            store: store.clone(),
            state: AtomicU64::new(0),
            loops: AtomicU64::new(0),
            wakers: Mutex::new(Fifo::default()),
            readers: AtomicU64::new(0),
            filler_loop: plan.loop_number,
            chunks,
            digests: store.digest.map(|digest| Box::new(Digests::new(digest, units_max))),
        }
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Its phase.
    pub fn phase(&self) -> Phase {
        self.load().phase()
    }

    /// Bytes that readers may lease.
    pub fn published(&self) -> u64 {
        self.load().published()
    }

    /// Bytes of the arena that it holds.
    pub fn bytes_held(&self) -> u64 {
        let units = match &self.chunks {
            Chunks::Stored(directory) => directory.units(),
            Chunks::Transit(ring) => u64::from(ring.held_units()),
        };
        units * UNIT_BYTES as u64
    }

    /// Makes the object unavailable to new readers. Its memory is freed with the last handle,
    /// reader and lease.
    pub fn revoke(&self) {
        let before = State(self.state.fetch_or(REVOKED, Ordering::AcqRel));
        if !before.has(REVOKED) && before.phase() == Phase::Filling && self.readers() == 0 {
            self.notify_filler();
        }
    }

    /// True after `revoke`.
    pub fn is_revoked(&self) -> bool {
        self.load().has(REVOKED)
    }

    /// Opens a reader of `range`, which may begin and end beyond the published bytes; `u64::MAX`
    /// ends at the body's end.
    #[cfg(not(loom))]
    pub fn open(
        self: &Arc<Self>,
        range: Range<u64>,
        options: ReaderOptions,
    ) -> Result<Reader, Gone> {
        Object::open_reader(self, range, options)
    }

    /// As the method; loom's `Arc` cannot be a receiver.
    #[cfg(loom)]
    pub fn open(
        this: &Arc<Self>,
        range: Range<u64>,
        options: ReaderOptions,
    ) -> Result<Reader, Gone> {
        Object::open_reader(this, range, options)
    }

    fn open_reader(
        this: &Arc<Self>,
        range: Range<u64>,
        options: ReaderOptions,
    ) -> Result<Reader, Gone> {
        assert!(options.loop_number < LOOPS_MAX, "loops are numbered below {LOOPS_MAX}");
        this.readers.fetch_add(1, Ordering::AcqRel);
        let state = match &this.chunks {
            Chunks::Stored(_) => this.load(),
            Chunks::Transit(_) => State(this.state.fetch_or(OPENED, Ordering::AcqRel)),
        };
        let gone = match state.phase() {
            Phase::Failed(failure) => Some(Gone::Failed(failure)),
            _ if state.has(REVOKED) => Some(Gone::Revoked),
            _ if state.has(OPENED) => Some(Gone::Taken),
            _ => None,
        };
        if let Some(gone) = gone {
            this.close();
            return Err(gone);
        }
        if let Chunks::Transit(ring) = &this.chunks {
            this.take_step(ring.skip(range.start, this.store.share_units()));
        }
        Ok(Reader::new(this, range, options))
    }

    /// Acquire: pairs with the Release of `publish`, and so shows the bytes and the directory.
    pub(crate) fn load(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn readers(&self) -> u64 {
        self.readers.load(Ordering::Acquire)
    }

    /// True if filling it further is useless.
    pub(crate) fn is_unwanted(&self) -> bool {
        let state = self.load();
        state.phase() != Phase::Filling || state.has(REVOKED | OPENED) && self.readers() == 0
    }

    /// Called by others than the filler, or while it continues: the object has failed, and all are
    /// notified.
    pub(crate) fn abort(&self, failure: Failure) {
        let before = self.fail(failure);
        self.notify_readers(before);
        if before.phase() == Phase::Filling {
            self.notify_filler();
        }
    }

    /// Called when a reader is dropped.
    pub(crate) fn close(&self) {
        if self.readers.fetch_sub(1, Ordering::AcqRel) == 1 && self.phase() == Phase::Filling {
            self.notify_filler();
        }
    }

    /// Called by a reader that found nothing: its loop will be notified. The caller must check the
    /// returned value (2 in the header).
    pub(crate) fn register(&self, loop_bit: u64) -> State {
        #[cfg(loom)]
        if self.store.fault == ObjectFault::BitBeforeLoop {
            let state = State(self.state.fetch_or(WAITING, Ordering::AcqRel));
            self.loops.fetch_or(loop_bit, Ordering::Relaxed);
            return state;
        }
        // Before the bit, whose Release carries it to the thread that clears the bit.
        self.loops.fetch_or(loop_bit, Ordering::Relaxed);
        State(self.state.fetch_or(WAITING, Ordering::AcqRel))
    }

    /// The same for a thread or a task; `ticket` is its place in the queue, which it has until it
    /// is woken.
    pub(crate) fn register_waker(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> State {
        // Cloned and dropped outside the lock, because a waker runs foreign code.
        let mut waker = waker.clone();
        {
            let mut wakers = self.wakers.lock();
            match ticket.and_then(|ticket| wakers.get_mut(ticket)) {
                Some(place) => std::mem::swap(place, &mut waker),
                None => *ticket = Some(wakers.push(waker)),
            }
        }
        State(self.state.fetch_or(WAKERS, Ordering::AcqRel))
    }

    /// Removes a waker that no longer waits.
    pub(crate) fn remove_waker(&self, ticket: Ticket) {
        let waker = self.wakers.lock().remove(ticket);
        drop(waker);
    }

    /// Called by the filler: `bytes` more are visible. The returned value states whether a reader
    /// waits.
    pub(crate) fn publish(&self, bytes: u64) -> State {
        let order = match () {
            #[cfg(loom)]
            () if self.store.fault == ObjectFault::PublishRelaxed => Ordering::Relaxed,
            () => Ordering::AcqRel,
        };
        State(self.state.fetch_add(bytes << LENGTH_SHIFT, order))
    }

    /// Called by the filler, once: the last `bytes` are visible, and no more come.
    pub(crate) fn seal(&self, bytes: u64) -> State {
        State(self.state.fetch_add(bytes << LENGTH_SHIFT | SEALED, Ordering::AcqRel))
    }

    /// The first failure stays.
    pub(crate) fn fail(&self, failure: Failure) -> State {
        let mut state = self.state.load(Ordering::Acquire);
        #[cfg(loom)]
        if self.store.fault == ObjectFault::FailInTwoSteps {
            self.state.store(state | failure_bits(failure), Ordering::Release);
            return State(state);
        }
        while state & FAILURE == 0 {
            let failed = state | failure_bits(failure);
            match self.state.compare_exchange(state, failed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        State(state)
    }

    /// Notifies all that wait, if `before` states that there are any (3 in the header).
    pub(crate) fn notify_readers(&self, before: State) {
        if !before.has(WAITING | WAKERS) {
            return;
        }
        #[cfg(loom)]
        if self.store.fault == ObjectFault::SetBeforeBit {
            self.notify_loops();
            self.state.fetch_and(!WAITING, Ordering::AcqRel);
            return;
        }
        let taken = State(self.state.fetch_and(!(WAITING | WAKERS), Ordering::AcqRel));
        if taken.has(WAITING) {
            self.notify_loops();
        }
        if taken.has(WAKERS) {
            let mut waiting = match () {
                #[cfg(loom)]
                () if self.store.fault == ObjectFault::TicketsRepeat => {
                    std::mem::take(&mut *self.wakers.lock())
                }
                () => self.wakers.lock().take(),
            };
            while let Some(waker) = waiting.pop() {
                waker.wake();
            }
        }
    }

    fn notify_loops(&self) {
        let mut loops = self.loops.swap(0, Ordering::Relaxed);
        while loops != 0 {
            let loop_number = loops.trailing_zeros();
            loops &= loops - 1;
            self.store.post(Notice { loop_number, object: self.id, news: News::More });
        }
    }

    /// Notifies its filler.
    pub(crate) fn notify_filler(&self) {
        let loop_number = self.filler_loop;
        self.store.post(Notice { loop_number, object: self.id, news: News::Room });
    }

    /// Performs the result of a step of the ring, without its lock.
    pub(crate) fn take_step(&self, step: Step) {
        self.store.give_back(step.freed);
        if step.is_room {
            self.notify_filler();
        }
    }

    /// The number of the chunk of a published byte.
    pub(crate) fn find(&self, position: u64) -> u64 {
        match &self.chunks {
            Chunks::Stored(directory) => directory.find(position) as u64,
            Chunks::Transit(ring) => ring.find(position),
        }
    }

    pub(crate) fn chunk(&self, number: u64) -> Chunk {
        match &self.chunks {
            Chunks::Stored(directory) => directory.chunk(number as usize),
            Chunks::Transit(ring) => ring.chunk(number),
        }
    }

    pub(crate) fn push(&self, start: u64, extent: Extent) {
        match &self.chunks {
            Chunks::Stored(directory) => {
                directory.push(start, extent);
            }
            Chunks::Transit(ring) => ring.push(start, extent),
        }
    }

    /// The filler's chunk shrinks to `extent`.
    pub(crate) fn trim(&self, extent: Extent) {
        match &self.chunks {
            Chunks::Stored(directory) => directory.trim(directory.count() - 1, extent),
            Chunks::Transit(ring) => ring.trim(extent),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.store.free_all(match &self.chunks {
            Chunks::Stored(directory) => directory.extents(),
            Chunks::Transit(ring) => {
                self.store.passes(false);
                ring.extents()
            }
        });
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.load();
        f.debug_struct("Object")
            .field("id", &self.id)
            .field("phase", &state.phase())
            .field("published", &state.published())
            .field("is_revoked", &state.has(REVOKED))
            .finish_non_exhaustive()
    }
}
