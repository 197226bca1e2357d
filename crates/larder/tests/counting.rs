//! What operations cost other cores: counted, not timed.
//!
//! `cargo test -p larder --features counting --test counting`

mod common;

use common::key_of;
use larder::{Cache, Clock, IndexMode, Map, Policy, Seconds, SyncMode, Ttl};
use larder_mem::counted::{Counts, count};

const NOW: Seconds = Seconds(1);
const NOTHING: Counts = Counts { read_modify_writes: 0, stores: 0 };

/// A lookup of any kind, hit or miss, in either index mode and sync mode, in one shard or four,
/// does no atomic read-modify-write and no store that another core could see, whether reads are
/// reported or not. Operations that do are counted, so the zero means something.
#[test]
fn look_ups_write_nothing_shared() {
    for index_mode in [IndexMode::Replicated, IndexMode::Shared] {
        for (shards, sync, policy) in [
            (1, SyncMode::Periodic(Default::default()), Policy::Partitioned),
            (4, SyncMode::Immediate, Policy::Partitioned),
            (2, SyncMode::Immediate, Policy::Partitioned),
            (1, SyncMode::Immediate, Policy::Fifo),
        ] {
            let has_reports = policy != Policy::Fifo;
            let cache = Cache::builder()
                .budget(8 << 20)
                .shards(shards)
                .index_mode(index_mode)
                .sync(sync)
                .policy(policy)
                .stale(Seconds(5))
                .lease_bytes_max(1 << 20)
                .build()
                .unwrap();
            let mut writer = cache.writer();
            let keys: Vec<_> = (0..400).map(key_of).collect();
            for key in &keys[..200] {
                writer.insert(key, &[7; 2000], Ttl::seconds(3), NOW).unwrap();
            }
            assert!(count(|| _ = writer.flush().unwrap()).read_modify_writes >= shards as u64);
            let mut reader = cache.reader().unwrap();
            let mut hits = 0;
            let mut buf = Vec::new();
            let done = count(|| {
                for now in [NOW, Seconds(5), Seconds(50)] {
                    for key in &keys {
                        let hash = reader.hash(key);
                        reader.prefetch(hash);
                        hits +=
                            usize::from(reader.get(key, now).is_some_and(|entry| entry[0] == 7));
                        hits += usize::from(reader.get_hashed(hash, key, now).is_some());
                        hits += usize::from(reader.get_stale(key, now).is_some());
                        hits += usize::from(reader.get_into(key, now, &mut buf));
                    }
                    reader.get_many(&keys, now, |_, entry| hits += usize::from(entry.is_some()));
                }
            });
            assert_eq!((done, hits), (NOTHING, 5 * 200 + 200), "{index_mode:?}, {shards} shards");
            // The first sync reports reads, under each shard's lock; the next has none to report.
            let synced = count(|| _ = reader.sync());
            let is_reported = cache.stats().unwrap().reported > 0;
            assert_eq!((synced.read_modify_writes > 0, is_reported), (has_reports, has_reports));
            let synced = count(|| _ = reader.sync());
            assert!(synced.read_modify_writes == 0 && synced.stores >= shards as u64, "{synced:?}");
            let entry = reader.get(&keys[0], NOW).unwrap();
            let leased = count(|| drop(reader.lease(&entry).unwrap()));
            assert_eq!(leased, Counts { read_modify_writes: 4, stores: 0 });
        }
    }
}

/// A write of a map takes the lock of its own shard, however many there are, and seldom another one.
#[test]
fn a_write_takes_one_lock() {
    for (index_mode, shards) in [(IndexMode::Replicated, 8), (IndexMode::Shared, 64)] {
        let builder = Cache::builder().index_mode(index_mode).budget(64 << 20).shards(shards);
        let map: Map<u64, u64> = Map::build(builder, Clock::manual(NOW)).unwrap();
        let write = || (0..1000).for_each(|number| map.insert(&number, number).unwrap());
        write();
        let counts = count(write);
        assert!((1000..1300).contains(&counts.read_modify_writes), "{shards} shards: {counts:?}");
    }
}
