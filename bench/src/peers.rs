//! Each cache as a contestant.
//!
//! All maps get the same fast hash (foldhash, without a random seed), so that tables are compared and
//! not hashes; the caches keep what they would choose in everything else. Values that a cache clones on a hit
//! are `Arc<[u8]>`, as its documentation advises; values read in place are `Box<[u8]>`.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use larder_bench::contest::Entrant;
use larder_bench::data::{Key, number_of};
use larder_bench::peer::{Handle, Peer, Shape};

/// Every peer.
pub fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::new("moka", "W-TinyLFU; Arc values", true, Moka::new),
        Entrant::new("quick_cache", "S3-FIFO; Arc values", true, Quick::new),
        Entrant::new("mini-moka", "W-TinyLFU; Arc values", true, MiniMoka::new),
        Entrant::new("scc HashCache", "LRU of 32 entries", true, Scc::new),
        Entrant::new("segcache", "merge eviction", true, |shape| Seg::new(shape, MERGE)),
        Entrant::new("segcache, S3-FIFO", "", true, |shape| Seg::new(shape, S3_FIFO)),
        Entrant::new("lru, 64 locks", "std mutexes", true, |shape| Lru::new(shape, 64)),
        Entrant::new("papaya", "unbounded: evicts nothing", false, Papaya::new),
        Entrant::new("dashmap", "unbounded: evicts nothing", false, Dash::new),
        Entrant::new(
            "left-right",
            "two std maps, published every 1024 puts; unbounded: evicts nothing",
            false,
            LeftRight::new,
        ),
    ]
}

type Infallible<T> = Result<T, std::convert::Infallible>;

/// [`moka::sync::Cache`].
struct Moka(moka::sync::Cache<Key, Arc<[u8]>, FixedState>);

impl Moka {
    fn new(shape: &Shape) -> Infallible<Moka> {
        let builder = moka::sync::Cache::builder().max_capacity(shape.entries as u64);
        Ok(Moka(builder.build_with_hasher(FixedState::default())))
    }
}

impl Peer for Moka {
    type Handle<'a> = &'a Moka;

    fn handle(&self) -> &Moka {
        self
    }
}

impl Handle for &Moka {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.get(key).map(|value| number_of(&value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.insert(*key, value.into());
    }

    fn settle(&mut self) {
        self.0.run_pending_tasks();
    }
}

/// [`mini_moka::sync::Cache`].
struct MiniMoka(mini_moka::sync::Cache<Key, Arc<[u8]>, FixedState>);

impl MiniMoka {
    fn new(shape: &Shape) -> Infallible<MiniMoka> {
        let builder = mini_moka::sync::Cache::builder().max_capacity(shape.entries as u64);
        Ok(MiniMoka(builder.build_with_hasher(FixedState::default())))
    }
}

impl Peer for MiniMoka {
    type Handle<'a> = &'a MiniMoka;

    fn handle(&self) -> &MiniMoka {
        self
    }
}

impl Handle for &MiniMoka {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.get(key).map(|value| number_of(&value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.insert(*key, value.into());
    }

    fn settle(&mut self) {
        use mini_moka::sync::ConcurrentCacheExt;
        self.0.sync();
    }
}

/// [`scc::HashCache`].
struct Scc(scc::HashCache<Key, Box<[u8]>, FixedState>);

impl Scc {
    fn new(shape: &Shape) -> Infallible<Scc> {
        let hasher = FixedState::default();
        Ok(Scc(scc::HashCache::with_capacity_and_hasher(0, shape.entries, hasher)))
    }
}

impl Peer for Scc {
    type Handle<'a> = &'a Scc;

    fn handle(&self) -> &Scc {
        self
    }
}

impl Handle for &Scc {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.read_sync(key, |_, value| number_of(value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        // It refuses a key that it has.
        if let Err((key, value)) = self.0.put_sync(*key, value.into())
            && let Some(mut entry) = self.0.get_sync(&key)
        {
            *entry.get_mut() = value;
        }
    }
}

/// [`papaya::HashMap`].
struct Papaya(papaya::HashMap<Key, Box<[u8]>, FixedState>);

impl Papaya {
    fn new(shape: &Shape) -> Infallible<Papaya> {
        let builder = papaya::HashMap::builder().capacity(shape.entries);
        Ok(Papaya(builder.hasher(FixedState::default()).build()))
    }
}

impl Peer for Papaya {
    type Handle<'a> = &'a Papaya;

    fn handle(&self) -> &Papaya {
        self
    }
}

impl Handle for &Papaya {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.pin().get(key).map(|value| number_of(value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.pin().insert(*key, value.into());
    }
}

/// [`quick_cache::sync::Cache`].
struct Quick(quick_cache::sync::Cache<Key, Arc<[u8]>, quick_cache::UnitWeighter, FixedState>);

impl Quick {
    fn new(shape: &Shape) -> Infallible<Quick> {
        Ok(Quick(quick_cache::sync::Cache::with(
            shape.entries,
            shape.entries as u64,
            quick_cache::UnitWeighter,
            FixedState::default(),
            Default::default(),
        )))
    }
}

impl Peer for Quick {
    type Handle<'a> = &'a Quick;

    fn handle(&self) -> &Quick {
        self
    }
}

impl Handle for &Quick {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.get(key).map(|value| number_of(&value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.insert(*key, value.into());
    }
}

const MERGE: segcache::Policy = segcache::Policy::Merge { max: 8, merge: 4, compact: 2 };
const S3_FIFO: segcache::Policy = segcache::Policy::S3Fifo { admission_ratio: 0.1 };

/// [`segcache::Segcache`].
struct Seg {
    cache: segcache::Segcache,
    bytes: u64,
}

/// Bytes that an average entry takes in a segment, header and rounding included.
const SEGMENT_ENTRY_BYTES: usize = 48;

impl Seg {
    fn new(shape: &Shape, policy: segcache::Policy) -> std::io::Result<Seg> {
        // Seven eighths of 2^power words can name an entry; below 0.8 of them buckets seldom overflow.
        let words = (shape.entries * 10 / 7).max(128);
        let power = words.next_power_of_two().trailing_zeros();
        let heap_bytes = shape.entries * SEGMENT_ENTRY_BYTES;
        // As many segments as the megabyte segments of a gigabyte: small caches need small ones.
        let segment_bytes = (heap_bytes / 128).next_power_of_two().clamp(4 << 10, 1 << 20);
        let segments = heap_bytes.div_ceil(segment_bytes).max(32);
        let cache = segcache::Segcache::builder()
            .hash_power(power as u8)
            .heap_size(segments * segment_bytes)
            .segment_size(segment_bytes as i32)
            .eviction(policy)
            .build()?;
        Ok(Seg { cache, bytes: (segments * segment_bytes + (8 << power)) as u64 })
    }
}

impl Peer for Seg {
    type Handle<'a> = &'a Seg;

    fn handle(&self) -> &Seg {
        self
    }

    fn own_bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }
}

impl Handle for &Seg {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        let item = self.cache.get(key)?;
        match item.value() {
            segcache::Value::Bytes(value) => Some(number_of(value)),
            segcache::Value::U64(_) => None,
        }
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        // A bucket may be full: the entry is then not stored, as its users must expect.
        let _ = self.cache.insert(key, value, None, Duration::ZERO);
    }
}

type LruShard = lru::LruCache<Key, Box<[u8]>, FixedState>;

/// [`lru::LruCache`], one or several of them, each under its lock.
struct Lru(Vec<Mutex<LruShard>>);

impl Lru {
    /// So many entries under so many locks.
    fn new(shape: &Shape, locks: usize) -> Infallible<Lru> {
        let each = NonZeroUsize::new(shape.entries.div_ceil(locks)).unwrap_or(NonZeroUsize::MIN);
        let shard = || Mutex::new(lru::LruCache::with_hasher(each, FixedState::default()));
        Ok(Lru((0..locks).map(|_| shard()).collect()))
    }

    /// The shard of a key: its bytes are spread enough for that.
    #[inline]
    fn shard(&self, key: &Key) -> MutexGuard<'_, LruShard> {
        let [.., a, b] = *key;
        let shard = (usize::from(a) * 7 + usize::from(b)) % self.0.len();
        self.0[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Lru {
    type Handle<'a> = &'a Lru;

    fn handle(&self) -> &Lru {
        self
    }
}

impl Handle for &Lru {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.shard(key).get(key).map(|value| number_of(value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        self.shard(key).put(*key, value.into());
    }
}

/// [`dashmap::DashMap`].
struct Dash(dashmap::DashMap<Key, Box<[u8]>, FixedState>);

impl Dash {
    fn new(shape: &Shape) -> Infallible<Dash> {
        Ok(Dash(dashmap::DashMap::with_capacity_and_hasher(shape.entries, FixedState::default())))
    }
}

impl Peer for Dash {
    type Handle<'a> = &'a Dash;

    fn handle(&self) -> &Dash {
        self
    }
}

impl Handle for &Dash {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.get(key).map(|value| number_of(&value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.insert(*key, value.into());
    }
}

/// What left-right keeps two of.
type Map = HashMap<Key, Arc<[u8]>, FixedState>;

/// An operation of left-right's log.
struct Put(Key, Arc<[u8]>);

/// The map that is written in its log's order. left-right asks for a type of our own.
#[derive(Clone)]
struct Side(Map);

impl left_right::Absorb<Put> for Side {
    fn absorb_first(&mut self, put: &mut Put, _other: &Self) {
        self.0.insert(put.0, put.1.clone());
    }

    fn absorb_second(&mut self, put: Put, _other: &Self) {
        self.0.insert(put.0, put.1);
    }

    fn sync_with(&mut self, first: &Self) {
        self.0.clone_from(&first.0);
    }
}

const PUTS_A_PUBLISH: usize = 1024;

/// [`left_right`] over two of std's maps.
struct LeftRight {
    writer: Mutex<(left_right::WriteHandle<Side, Put>, usize)>,
    readers: left_right::ReadHandleFactory<Side>,
}

impl LeftRight {
    fn new(shape: &Shape) -> Infallible<LeftRight> {
        let side = Side(Map::with_capacity_and_hasher(shape.entries, FixedState::default()));
        let (writer, reader) = left_right::new_from_empty::<Side, Put>(side);
        Ok(LeftRight { writer: Mutex::new((writer, 0)), readers: reader.factory() })
    }
}

impl Peer for LeftRight {
    type Handle<'a> = Core<'a>;

    fn handle(&self) -> Core<'_> {
        Core { writer: &self.writer, reader: self.readers.handle() }
    }
}

/// One thread's reader, and the shared writer.
struct Core<'a> {
    writer: &'a Mutex<(left_right::WriteHandle<Side, Put>, usize)>,
    reader: left_right::ReadHandle<Side>,
}

impl Handle for Core<'_> {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.reader.enter()?.0.get(key).map(|value| number_of(value))
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        let mut guard = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (writer, puts) = &mut *guard;
        writer.append(Put(*key, value.into()));
        *puts += 1;
        if *puts >= PUTS_A_PUBLISH {
            *puts = 0;
            writer.publish();
        }
    }

    fn settle(&mut self) {
        let mut guard = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        guard.0.publish();
    }
}
