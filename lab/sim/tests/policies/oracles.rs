//! The same streams through other people's caches.

use std::num::NonZeroUsize;

use larder_sim::policy::{Kind, Lirs};

use super::{Act, Cache, Hits, stream, with_cache};

/// LRU of the `lru` crate: the same hits, at every size.
#[test]
fn lru_as_the_crate_lru() {
    let stream = stream(30_000);
    for capacity in [1, 7, 100, 1_000] {
        let mut peer = lru::LruCache::new(NonZeroUsize::new(capacity).unwrap());
        let hits = stream.iter().filter(|&&key| peer.put(key, ()).is_some()).count() as u64;
        assert_eq!(with_cache(Kind::Lru, capacity as u32, Hits(&stream)), hits, "{capacity}");
    }
}

/// libCacheSim, the simulator that SIEVE's and S3-FIFO's authors published their results with; its hits on
/// the same stream are in a table that `oracle_libcachesim.py` makes. The same number, hit for hit, but for
/// two policies that it defines otherwise:
///
/// * S3-FIFO fills main first until somebody has to leave, where the paper's Algorithm 1 lets small grow, which
///   shows the longer the larger the cache is; and has no room for a single entry in the smallest;
/// * W-TinyLFU counts in another sketch.
#[test]
fn each_as_libcachesim() {
    let stream = stream(200_000);
    let rows = include_str!("libcachesim.tsv").lines().filter(|line| !line.starts_with('#'));
    let mut exact = 0;
    for row in rows {
        let fields: Vec<&str> = row.split('\t').collect();
        let [name, capacity, peer] = fields[..] else { panic!("{row}") };
        let (capacity, peer): (u32, u64) = (capacity.parse().unwrap(), peer.parse().unwrap());
        let points_max = match name {
            "s3-fifo" if (100..=1_000).contains(&capacity) => 0.3,
            "w-tinylfu" if capacity >= 100 => 1.0,
            "s3-fifo" | "w-tinylfu" => continue,
            _ => 0.0,
        };
        let hits = with_cache(name.parse().unwrap(), capacity, Hits(&stream));
        let points = (hits as f64 - peer as f64).abs() * 100.0 / stream.len() as f64;
        assert!(points <= points_max, "{name} of {capacity}: {hits}, libCacheSim {peer}");
        exact += u32::from(hits == peer);
    }
    assert!(exact >= 40, "{exact}");
}

/// LIRS as in the simulator of its authors (`lirs.c`, Song Jiang, 2002), which forgets no key and lets a
/// request for the key just asked for pass as a hit that changes nothing: its hits on the same stream, and so
/// ours without those requests. It has two HIR entries at least, we one, so that small caches differ.
#[test]
fn lirs_as_its_authors() {
    let mut keys = stream(200_000);
    let requests = keys.len();
    keys.dedup();
    let repeated = (requests - keys.len()) as u64;
    for (capacity, peer) in [(320, 24_927), (1_000, 50_038), (5_000, 122_056)] {
        let cache = Cache::new(Lirs::new(capacity as usize, 200).unwrap(), capacity);
        assert_eq!(Hits(&keys).act(cache) + repeated, peer, "{capacity}");
    }
}
