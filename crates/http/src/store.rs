//! What all event loops cache together: records in the engine, long bodies next to it, in-flight
//! fetches, purges.
//!
//! ```text
//! find      URL, fields      -> a cached response, or the key by which to fetch it
//! insert    record           -> in the engine; the body of the record that was there is deleted
//! forget    URL              -> deletes the record of the URL, and with it all of its variants
//! purge     tag, or all      -> what was stored before is gone, or stale; of a URL, stale
//! ```
//!
//! A response that `Vary` selects has a key of its own. The record of its URL has the names of the
//! selecting fields and a generation: other names, or a write to the URL, get another generation,
//! so no older variant is found again.
//!
//! Each event loop has a [`StoreHandle`]: a reader and a writer of the engine, and the purges as it
//! saw them last.
//!
//! Bounds: the memory of [`Memory`]; [`TAGS_MAX`] purged tags, above which all responses with tags
//! count as purged; as many stale URLs, above which all do. Cost: a lookup in the engine, and
//! another for a variant.

mod purges;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use larder::{Cache, Reader, Seconds, Ttl, Writer};
use larder_io::random::Random;
use larder_mem::object::{ObjectStore, Post, StoreOptions};
use larder_serve::metrics::Metric;
use parking_lot::Mutex;

use self::purges::{Before, Purges, Standing};
use crate::bodies::Bodies;
use crate::cacheability::{Selected, Stored};
use crate::coalescing::Flights;
use crate::key::{Key, apart, by_other_scheme, primary, variant};
use crate::pending::{Pending, Ticket};
use crate::record::{Choice, Kept, Record, body_of, push_choice, push_too_long, push_unshared};
use crate::sent::Sent;

/// The part of the memory of bodies that windows of streamed bodies share.
const TRANSIT_PART: u64 = 20;

/// Purged tags that larder records.
pub const TAGS_MAX: usize = 1 << 16;

/// The most fields that select a variant; a response that names more is not stored.
pub const CHOICE_MAX: usize = 16;

/// How memory is divided.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Bytes of records, short bodies among them.
    pub records_bytes: u64,
    /// Bytes of long bodies, cached and in flight.
    pub bodies_bytes: u64,
}

/// The cache.
pub struct Store {
    cache: Cache,
    /// Memory of long bodies, cached and in flight.
    pub objects: ObjectStore,
    /// Long bodies that are cached.
    pub bodies: Arc<Bodies>,
    /// In-flight fetches.
    pub flights: Flights,
    /// Bytes of memory that bodies in flight may still take to be stored.
    promised: Arc<AtomicU64>,
    promised_max: u64,
    /// Receives notices of bodies, for the event loop that each names.
    pub post: Arc<dyn Post>,
    serial: AtomicU64,
    pending: Arc<Pending>,
    purges: Mutex<Arc<Purges>>,
    purges_version: AtomicU64,
    purges_made: AtomicU64,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// Memory promised to a body in flight; dropped, it is given back.
#[derive(Debug)]
pub struct Promise {
    promised: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.promised.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Why the store cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The engine refuses the budget.
    Records(larder::Error),
    /// The kernel gives no memory for bodies.
    Bodies(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Records(error) => write!(f, "memory for records: {error}"),
            OpenError::Bodies(error) => write!(f, "memory for bodies: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The result of a lookup.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one look-up")]
pub enum Found<'a> {
    /// A response for this request.
    Kept {
        /// Its key.
        key: Key,
        /// The response.
        kept: Kept<'a>,
        /// It was purged softly: it is stale, whatever its own lifetime.
        is_purged: bool,
    },
    /// Responses of the URL are not shared: the client gets its own fetch.
    Unshared,
    /// The same, and the response must not be stored: it is too long.
    TooLong,
    /// Nothing is cached: fetch it, and share the fetch by this key.
    Nothing {
        /// Of the URL, or of the variant.
        key: Key,
        /// There are other variants.
        is_variant: bool,
    },
}

/// An event loop's access to the cache.
#[derive(Debug)]
pub struct StoreHandle {
    reader: Reader,
    writer: Writer,
    purges: Arc<Purges>,
    purges_version: u64,
    /// Something was written that other event loops do not see yet.
    is_dirty: bool,
    scratch: Vec<u8>,
}

impl Store {
    /// Memory for this many event loops.
    pub fn open(memory: Memory, loops: usize, post: Arc<dyn Post>) -> Result<Store, OpenError> {
        let bytes = memory.bodies_bytes;
        let transit_bytes = bytes / TRANSIT_PART;
        let options = StoreOptions { transit_bytes, ..StoreOptions::of(bytes) };
        let objects = ObjectStore::new(options, post.clone()).map_err(OpenError::Bodies)?;
        // A shorter body lies in its record.
        const BODY_BYTES_MEAN_MIN: u64 = 16 << 10;
        let bodies_max = usize::try_from(memory.bodies_bytes / BODY_BYTES_MEAN_MIN);
        let bodies = Bodies::new(bodies_max.unwrap_or(usize::MAX)).map_err(OpenError::Records)?;
        let bodies = Arc::new(bodies);
        let evicted = bodies.clone();
        // Clients choose the keys, so their hash needs a random seed.
        let seed = Random::new().u64().map_err(OpenError::Bodies)?;
        let cache = Cache::builder()
            .budget(memory.records_bytes)
            .readers_max(loops + 1)
            .entry_bytes_mean(2_048)
            .seed(seed)
            .on_evicted(move |entry| {
                if let Some(id) = body_of(entry.value) {
                    evicted.remove(id);
                }
            })
            .build()
            .map_err(OpenError::Records)?;
        const FLIGHTS_MAX: usize = 1 << 16;
        Ok(Store {
            cache,
            objects,
            bodies,
            flights: Flights::new(FLIGHTS_MAX),
            promised: Arc::default(),
            promised_max: memory.bodies_bytes / 4 * 3,
            post,
            serial: AtomicU64::new(1),
            purges: Mutex::default(),
            pending: Arc::default(),
            purges_version: AtomicU64::new(0),
            purges_made: AtomicU64::new(0),
        })
    }

    /// A handle for an event loop.
    pub fn handle(&self) -> Result<StoreHandle, larder::Error> {
        Ok(StoreHandle {
            reader: self.cache.reader()?,
            writer: self.cache.writer(),
            purges: self.purges.lock().clone(),
            purges_version: self.purges_version.load(Ordering::Acquire),
            is_dirty: false,
            scratch: Vec::new(),
        })
    }

    /// The engine, for its statistics.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Statistics.
    pub fn metrics(&self) -> Vec<Metric> {
        let objects = self.objects.stats();
        let (bodies, bodies_evicted) = self.bodies.counts();
        let mut figures = vec![
            ("bodies", "Cached bodies stored apart from their records", bodies as f64),
            ("bodies_evicted_total", "Bodies evicted to make room", bodies_evicted as f64),
            ("objects", "Bodies, cached and in flight", objects.objects as f64),
            ("memory_bytes", "Memory for bodies, bytes", objects.bytes as f64),
            ("memory_free_bytes", "Free memory for bodies, bytes", objects.free_bytes as f64),
            ("memory_leased_bytes", "Bytes of bodies being sent", objects.leased_bytes as f64),
            (
                "memory_lost_bytes",
                "Bytes that the kernel did not take back",
                objects.lost_bytes as f64,
            ),
            ("memory_waits", "Bodies that wait for memory", objects.waiting_fillers as f64),
            ("purges_total", "Purges", self.purges_made.load(Ordering::Relaxed) as f64),
            ("flights", "In-flight fetches", self.flights.len() as f64),
        ];
        // Statistics fail only for a damaged cache; its users see that too.
        if let Ok(stats) = self.cache.stats() {
            figures.extend([
                (
                    "records",
                    "Cached responses and variants, expired ones included",
                    stats.entries as f64,
                ),
                ("records_max", "Limit of cached records", stats.entries_max as f64),
                ("records_bytes", "Bytes of cached records", stats.charge_bytes as f64),
                (
                    "records_bytes_max",
                    "Limit of the bytes of cached records",
                    stats.charge_bytes_max as f64,
                ),
                ("records_evicted_total", "Records evicted to make room", stats.evicted as f64),
            ]);
        }
        figures.into_iter().map(|(name, help, value)| Metric::new(name, help, value)).collect()
    }

    /// Memory for a body that is to be stored, of this length, if it is known. `None`: too many
    /// such bodies are in flight. Each body in flight holds its memory until the rest has come; if
    /// all did that at once, none would become complete.
    pub fn promise(&self, body_bytes: Option<u64>) -> Option<Promise> {
        /// The length that is assumed where none is stated.
        const UNKNOWN_BYTES: u64 = 2 << 20;
        // Chunks are powers of two, up to the largest.
        const CHUNK_BYTES_MAX: u64 = larder_mem::object::CHUNK_BYTES_MAX as u64;
        let bytes = body_bytes.unwrap_or(UNKNOWN_BYTES);
        let bytes = match bytes {
            0..CHUNK_BYTES_MAX => bytes.next_power_of_two(),
            _ => bytes.div_ceil(CHUNK_BYTES_MAX) * CHUNK_BYTES_MAX,
        };
        let before = self.promised.fetch_add(bytes, Ordering::Relaxed);
        // On drop it gives back the bytes that it took.
        let promise = Promise { promised: self.promised.clone(), bytes };
        (before + bytes <= self.promised_max).then_some(promise)
    }

    /// The next serial number.
    pub fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// A fetch of a URL begins. Its ticket states whether the URL was written since.
    pub fn enter(&self, url: &[u8], serial: u64) -> Ticket {
        self.pending.enter(primary(url), serial)
    }

    /// Purges all responses with a tag that are stored by now; softly: they are stale.
    pub fn purge_tag(&self, tag: u64, is_soft: bool) {
        self.purge(is_soft, |purges| {
            let is_full = purges.tags.len() >= TAGS_MAX && !purges.tags.contains_key(&tag);
            if !is_full {
                return purges.tags.entry(tag).or_default();
            }
            purges.tags.clear();
            // No tag is recorded any more, so all responses with tags are purged.
            &mut purges.tagged
        });
    }

    /// Makes a URL stale, by both schemes and with all variants.
    pub fn purge_url(&self, url: &[u8]) {
        let keys = [primary(url), primary(&by_other_scheme(url))];
        self.change_purges(|purges, serial| {
            for key in keys {
                if purges.urls.len() >= TAGS_MAX && !purges.urls.contains_key(&key) {
                    // No URL is recorded any more, so all are stale.
                    purges.urls.clear();
                    purges.all.stale = serial;
                } else {
                    purges.urls.insert(key, serial);
                }
            }
        });
    }

    /// Purges all responses that are stored by now.
    pub fn purge_all(&self, is_soft: bool) {
        self.purge(is_soft, |purges| &mut purges.all);
    }

    fn purge(&self, is_soft: bool, which: impl FnOnce(&mut Purges) -> &mut Before) {
        self.change_purges(|purges, serial| {
            let before = which(purges);
            if is_soft {
                before.stale = serial;
            } else {
                before.gone = serial;
            }
        });
    }

    fn change_purges(&self, change: impl FnOnce(&mut Purges, u64)) {
        let mut purges = self.purges.lock();
        let serial = self.next_serial();
        change(Arc::make_mut(&mut purges), serial);
        self.purges_version.fetch_add(1, Ordering::Release);
        self.note_purge();
    }

    /// Deletes records that would mean something else in another process: those with a body outside
    /// the engine, and purged ones, since purges are not saved. Returns how many are left. Serial
    /// numbers continue after the highest of them. Invariants 1 and 3 of `snapshot`.
    pub fn settle(&self, now: Seconds) -> Result<u64, larder::Error> {
        let purges = self.purges.lock().clone();
        let mut writer = self.cache.writer();
        let (mut stay, mut serial_max) = (0, 0);
        for entry in self.cache.iter(now) {
            let (is_good, serial) = match Record::read(entry.value()) {
                Some(Record::Response(kept)) => {
                    let standing = purges.standing(&primary(kept.url), &kept);
                    (standing == Standing::Good && kept.body_id.is_none(), kept.serial)
                }
                Some(Record::Choice(choice)) => (true, choice.generation),
                Some(Record::Unshared | Record::TooLong) => (true, 0),
                None => (false, 0),
            };
            if is_good {
                stay += 1;
                serial_max = serial_max.max(serial);
            } else {
                writer.remove(entry.key())?;
            }
        }
        writer.flush()?;
        self.serial.fetch_max(serial_max.saturating_add(1), Ordering::Relaxed);
        Ok(stay)
    }

    /// Counts a purge; the caller of [`StoreHandle::forget`] counts that one.
    pub fn note_purge(&self) {
        self.purges_made.fetch_add(1, Ordering::Relaxed);
    }
}

impl StoreHandle {
    /// Makes visible what other event loops have stored and purged. The caller does so at the
    /// beginning of a turn.
    pub fn sync(&mut self, store: &Store) {
        self.reader.sync();
        self.see_purges(store);
    }

    /// Makes new purges visible.
    pub fn see_purges(&mut self, store: &Store) {
        let version = store.purges_version.load(Ordering::Acquire);
        if version != self.purges_version {
            (self.purges_version, self.purges) = (version, store.purges.lock().clone());
        }
    }

    /// Looks for a response to a request for a URL ([`crate::key::push_url`]).
    pub fn find(&self, url: &[u8], sent: &Sent<'_>, now: Seconds) -> Found<'_> {
        let primary = primary(url);
        let key = primary;
        match self.read(&key, now) {
            Some(Record::Response(kept)) => self.judge(&primary, key, kept, url, false),
            Some(Record::Choice(choice)) => {
                let key = variant(&key, choice.generation, choice.names(), sent);
                match self.read(&key, now) {
                    Some(Record::Response(kept)) => self.judge(&primary, key, kept, url, true),
                    Some(Record::Unshared) => Found::Unshared,
                    Some(Record::TooLong) => Found::TooLong,
                    _ => Found::Nothing { key, is_variant: true },
                }
            }
            Some(Record::Unshared) => Found::Unshared,
            Some(Record::TooLong) => Found::TooLong,
            None => Found::Nothing { key, is_variant: false },
        }
    }

    /// True where a note states that responses to one kind of request are not shared ([`apart`]).
    pub fn is_unshared_for(&self, key: &Key, kind: &str, now: Seconds) -> bool {
        matches!(self.read(&apart(key, kind), now), Some(Record::Unshared))
    }

    fn read(&self, key: &Key, now: Seconds) -> Option<Record<'_>> {
        Record::read(self.reader.get(key, now)?.value())
    }

    fn judge<'a>(
        &self,
        primary: &Key,
        key: Key,
        kept: Kept<'a>,
        url: &[u8],
        is_variant: bool,
    ) -> Found<'a> {
        if kept.url != url {
            // Two URLs with one digest: this one replaces the other when it is stored.
            return Found::Nothing { key, is_variant };
        }
        match self.purges.standing(primary, &kept) {
            Standing::Good => Found::Kept { key, kept, is_purged: false },
            Standing::Stale => Found::Kept { key, kept, is_purged: true },
            Standing::Gone => Found::Nothing { key, is_variant },
        }
    }

    /// The key of a response, by the fields that select it. If the URL has no choice of fields yet,
    /// this stores their names. `None`: there are too many.
    pub fn key_for(
        &mut self,
        store: &Store,
        url: &[u8],
        stored: &Stored,
        sent: &Sent<'_>,
        now: Seconds,
    ) -> Option<Key> {
        let key = primary(url);
        if stored.vary.is_empty() {
            return Some(key);
        }
        let there = match self.read(&key, now) {
            Some(Record::Choice(choice)) => Some(choice),
            _ => None,
        };
        let is_in = |choice: &Choice<'_>, it: &Selected| choice.names().any(|name| name == it.name);
        if let Some(choice) = there.filter(|it| stored.vary.iter().all(|name| is_in(it, name))) {
            return Some(variant(&key, choice.generation, choice.names(), sent));
        }
        let mut names: Vec<String> =
            there.iter().flat_map(Choice::names).map(str::to_owned).collect();
        for it in &stored.vary {
            if !names.contains(&it.name) {
                names.push(it.name.clone());
            }
        }
        if names.len() > CHOICE_MAX {
            return None;
        }
        let generation = store.next_serial();
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        push_choice(&mut record, generation, names.iter().map(String::as_str));
        self.insert(store, &key, &record, Ttl::FOREVER, now);
        self.scratch = record;
        Some(variant(&key, generation, names.iter().map(String::as_str), sent))
    }

    /// Stores a record; false: the engine has no room for it.
    pub fn insert(
        &mut self,
        store: &Store,
        key: &Key,
        record: &[u8],
        ttl: Ttl,
        now: Seconds,
    ) -> bool {
        let before = self.reader.get(key, now).and_then(|entry| body_of(entry.value()));
        let is_kept = self.writer.insert(key, record, ttl, now).is_ok();
        self.is_dirty = true;
        if let Some(id) = before.filter(|&id| Some(id) != body_of(record)) {
            store.bodies.remove(id);
        }
        is_kept
    }

    /// The longest record, bytes.
    pub fn record_bytes_max(&self, store: &Store) -> usize {
        store.cache.value_bytes_max(crate::key::KEY_BYTES)
    }

    /// Notes for some time that responses for a key are not shared, or are too long to be stored.
    pub fn set_unshared(
        &mut self,
        store: &Store,
        key: &Key,
        is_too_long: bool,
        for_s: u32,
        now: Seconds,
    ) {
        let mut record = Vec::new();
        if is_too_long {
            push_too_long(&mut record)
        } else {
            push_unshared(&mut record)
        }
        self.insert(store, key, &record, Ttl::seconds(for_s), now);
    }

    /// Deletes a record.
    pub fn remove(&mut self, key: &Key) {
        // An error means that it is not there.
        let _ = self.writer.remove(key);
        self.is_dirty = true;
    }

    /// Deletes a URL and its variants. True where it was cached, as far as this event loop sees.
    pub fn forget(&mut self, store: &Store, url: &[u8], now: Seconds) -> bool {
        let key = primary(url);
        let entry = self.reader.get(&key, now);
        let was_there = entry.is_some();
        let body = entry.and_then(|entry| body_of(entry.value()));
        // A response in flight was requested before. Its fetch looks at its ticket after it has
        // stored the record. Either it sees this write, or its record is deleted here.
        store.pending.note_written(&key, store.next_serial());
        store.flights.supersede(&key);
        self.remove(&key);
        if let Some(id) = body {
            store.bodies.remove(id);
        }
        was_there
    }

    /// Makes this event loop's writes visible to other event loops. The caller does so at the end
    /// of a turn.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            // A stall means that another event loop is slow; the next flush makes the writes
            // visible.
            self.is_dirty = self.writer.flush().is_err();
        }
    }
}
