//! A proxy: one core's way to read, without a lock, a read-modify-write, or a write that others see.
//!
//! `refresh*` shows the proxy newer entries and leaves [`Entry`]s as they are; `sync*` also gives back
//! what it no longer needs, and the borrow checker sees to it that no `Entry` is alive then. A proxy that
//! does neither reads an unchanging picture and, in the end, stalls the writers: sync now and then,
//! or park.
//!
//! A sync also tells the policy what was read, where the cache was built with feedback: see `feedback`.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use larder_mem::{LogPosition, Parked as ParkedReader, Reader, Slot};

use crate::cache::{Shared, with_engine};
use crate::engine::State;
use crate::error::Error;
use crate::feedback::{Feedback, Report, mark_at};
use crate::hash::KeyHash;
use crate::index::{Found, find, mask_bit};
use crate::time::{Seconds, end_of, is_expired};

/// Keys whose memory is fetched together in [`Proxy::get_many`].
const BATCH: usize = 16;

/// Reports whose lines are fetched before their turn.
const REPORT_AHEAD: usize = 8;

/// One core's way to read. `Send`, not `Sync`: make one a core.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    reader: Reader<State>,
    feedback: Feedback,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

/// A proxy at rest: it reads nothing and holds nobody up.
#[derive(Debug)]
pub struct Parked {
    shared: Arc<Shared>,
    reader: ParkedReader<State>,
    feedback: Feedback,
    hits: u64,
    misses: u64,
}

/// A value in the cache, read where it lies. Alive, it keeps its proxy from syncing:
///
/// ```compile_fail
/// # let cache = larder::Cache::builder().build().unwrap();
/// let mut proxy = cache.proxy().unwrap();
/// let entry = proxy.get(b"key", larder::Seconds(0));
/// proxy.sync();
/// drop(entry);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    slot: Slot<'a>,
}

impl<'a> Entry<'a> {
    /// The key it was stored under.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.slot.key()
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.slot.value()
    }

    /// The first second in which the entry is gone; `None` for never.
    #[inline]
    pub fn expires(&self) -> Option<Seconds> {
        end_of(self.slot.expires())
    }
}

impl Deref for Entry<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.slot.value()
    }
}

impl Proxy {
    pub(crate) fn register(shared: &Arc<Shared>) -> Result<Self, Error> {
        let reader = Reader::register(&shared.shard)?;
        let (hits, misses) = shared.counters[reader.number()].0.read();
        Ok(Proxy {
            shared: shared.clone(),
            reader,
            feedback: Feedback::new(shared.report_shift.is_some()),
            hits: Cell::new(hits),
            misses: Cell::new(misses),
        })
    }

    /// This proxy's number, as [`Error::Stalled`] and the statistics name it.
    pub fn number(&self) -> usize {
        self.reader.number()
    }

    /// The hash of a key, for the `_hashed` forms.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.shared.hasher.hash(key)
    }

    /// Looks a key up; an entry whose life is over at `now` is a miss.
    #[inline]
    pub fn get(&self, key: &[u8], now: Seconds) -> Option<Entry<'_>> {
        self.get_hashed(self.hash(key), key, now)
    }

    /// As [`Proxy::get`], for a key hashed before.
    #[inline]
    pub fn get_hashed(&self, hash: KeyHash, key: &[u8], now: Seconds) -> Option<Entry<'_>> {
        let found = find(&self.reader, &self.shared.placement, hash, key)
            .filter(|found| !is_expired(found.slot.expires(), now));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.set(counter.get() + 1);
        found.map(|found| {
            self.note(&found);
            Entry { slot: found.slot }
        })
    }

    /// Notes a read for the policy, once an epoch. Writes to this proxy's own lines alone.
    #[inline(always)]
    fn note(&self, found: &Found<'_>) {
        let Some(shift) = self.shared.report_shift.filter(|_| !self.feedback.is_full()) else {
            return;
        };
        let seen = self.reader.position().records();
        let Found { bucket, way, .. } = *found;
        if self.reader.mark(bucket, way, mark_at(seen, shift)) {
            let tag = self.reader.bucket(bucket).tag(way);
            self.feedback.note(Report { bucket: bucket as u32, tag, way: way as u8, seen });
        }
    }

    /// Tells the policy what was read, unless somebody has the lock.
    #[cold]
    fn hand_over(&self) {
        // A poisoned cache has no more use for reports.
        let Some(Ok(mut guard)) = self.shared.shard.try_lock() else { return };
        with_engine(&self.shared, &mut guard, |engine| {
            let reports = self.feedback.take();
            for (i, report) in reports.iter().enumerate() {
                if let Some(ahead) = reports.get(i + REPORT_AHEAD) {
                    engine.prefetch_report(&ahead.get());
                }
                engine.reported(&report.get());
            }
        });
    }

    /// Brings near what a look-up of this hash reads first.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.reader.prefetch_bucket(self.shared.placement.home(hash));
    }

    /// Looks many keys up at once, so that their memory is fetched in parallel; calls `each` with the
    /// index of a key and what was found, in order.
    pub fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        now: Seconds,
        mut each: impl FnMut(usize, Option<Entry<'a>>),
    ) {
        let mut hashes = [KeyHash(0); BATCH];
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.hash(key.as_ref());
                self.prefetch(*hash);
            }
            self.get_staged(&hashes[..keys.len()], keys, now, |i, entry| {
                each(batch * BATCH + i, entry)
            });
        }
    }

    /// As [`Proxy::get_many`], for keys hashed before; both slices have the same length.
    pub fn get_many_hashed<'a, K: AsRef<[u8]>>(
        &'a self,
        hashes: &[KeyHash],
        keys: &[K],
        now: Seconds,
        mut each: impl FnMut(usize, Option<Entry<'a>>),
    ) {
        assert_eq!(hashes.len(), keys.len(), "a hash for each key");
        for (batch, (hashes, keys)) in hashes.chunks(BATCH).zip(keys.chunks(BATCH)).enumerate() {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            self.get_staged(hashes, keys, now, |i, entry| each(batch * BATCH + i, entry));
        }
    }

    /// The stages after the hash: with the home lines on their way, fetch the slots they name, then
    /// look up as usual.
    #[inline]
    fn get_staged<'a, K: AsRef<[u8]>>(
        &'a self,
        hashes: &[KeyHash],
        keys: &[K],
        now: Seconds,
        mut each: impl FnMut(usize, Option<Entry<'a>>),
    ) {
        let placement = &self.shared.placement;
        for &hash in hashes {
            let (home, tag_word) = (placement.home(hash), placement.tag_word(hash));
            let line = self.reader.bucket(home);
            let candidates = line.matches(tag_word);
            if candidates != 0 {
                self.reader.prefetch_slot(home, candidates.trailing_zeros() as usize);
            } else if line.mask() >> mask_bit(tag_word) & 1 == 1 {
                self.reader.prefetch_bucket(placement.second(home, tag_word));
            }
        }
        for (i, (&hash, key)) in hashes.iter().zip(keys).enumerate() {
            each(i, self.get_hashed(hash, key.as_ref(), now));
        }
    }

    /// Where in the log this proxy is: it shows exactly what was applied before.
    #[inline]
    pub fn position(&self) -> LogPosition {
        self.reader.position()
    }

    /// True when writers have published more than this proxy shows.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.reader.is_behind()
    }

    /// Shows everything published so far. Entries read before stay valid.
    #[inline]
    pub fn refresh(&self) -> LogPosition {
        self.reader.refresh()
    }

    /// Shows exactly what was applied before `position` (from [`crate::Writer::flush`]), however far the
    /// writers have run ahead; all there is, if that is less. Never goes back. Only the new ends that
    /// `touch` gave are seen at once, whatever the position.
    #[inline]
    pub fn refresh_to(&self, position: LogPosition) -> LogPosition {
        self.reader.refresh_to(position)
    }

    /// Refreshes, and lets writers reuse what this proxy held.
    #[inline]
    pub fn sync(&mut self) -> LogPosition {
        self.sync_to(LogPosition::END)
    }

    /// As [`Proxy::sync`], no further than `position`.
    #[inline]
    pub fn sync_to(&mut self, position: LogPosition) -> LogPosition {
        let position = self.reader.sync_to(position);
        self.publish_counters();
        if self.feedback.is_due() {
            self.hand_over();
        }
        position
    }

    fn publish_counters(&self) {
        self.shared.counters[self.number()].0.publish(self.hits.get(), self.misses.get());
    }

    /// Look-ups that found a live entry.
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// Look-ups that did not.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// Rests: the proxy holds nobody up until it is unparked.
    pub fn park(self) -> Parked {
        self.publish_counters();
        let Proxy { shared, reader, feedback, hits, misses } = self;
        Parked { shared, reader: reader.park(), feedback, hits: hits.get(), misses: misses.get() }
    }

    /// Compares this proxy's index with main's, if it shows all there is. For tests.
    pub fn validate(&self) -> Result<(), String> {
        self.reader.validate()
    }
}

impl Parked {
    /// Takes the proxy up again, showing everything published so far. Costs what changed since it was
    /// parked, at most a copy of the index.
    pub fn unpark(self) -> Result<Proxy, Error> {
        let Parked { shared, reader, feedback, hits, misses } = self;
        let reader = reader.unpark()?;
        Ok(Proxy { shared, reader, feedback, hits: Cell::new(hits), misses: Cell::new(misses) })
    }
}
