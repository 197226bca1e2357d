//! What operations cost other cores: counted, not timed.
//!
//! `cargo test -p larder --features counting --test counting`

mod common;

use std::sync::mpsc;

use common::key_of;
use larder::{Cache, Clock, Expiry, IndexMode, Map, Policy, Seconds, SyncMode, Ttl};
use larder_mem::counted::{Counts, count, on_core};

const NOW: Seconds = Seconds(1);
const NOTHING: Counts =
    Counts { read_modify_writes: 0, stores: 0, lines_taken: 0, lines_fetched: 0, hand_overs: 0 };

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
            assert_eq!(leased, Counts { read_modify_writes: 4, ..NOTHING });
        }
    }
}

/// A write of a map takes the lock of its own shard, however many there are, and seldom another one.
#[test]
fn a_write_takes_one_lock() {
    for (index_mode, shards) in [(IndexMode::Replicated, 8), (IndexMode::Shared, 64)] {
        let builder = Cache::builder().index_mode(index_mode).budget(64 << 20).shards(shards);
        let map: Map<u64, u64> = Map::build(builder, Clock::manual(NOW)).unwrap();
        let insert = |number| map.insert(&number, number).unwrap();
        let insert_many = |number| map.insert_many([(number, number)], Expiry::NEVER).unwrap();
        for write in [&insert as &dyn Fn(u64), &insert_many] {
            let write = || (0..1000).for_each(write);
            write();
            let locks = count(write).read_modify_writes;
            assert!((1000..1300).contains(&locks), "{shards} shards: {locks}");
        }
    }
}

/// One core's operations of a map in [`cores_in_turn`].
type Operate<'a> = &'a (dyn Fn(&Map<u64, u64>, u64) + Sync);

const OPERATIONS: u64 = 20_000;

/// What `OPERATIONS` operations count, of cores that take turns, an operation each.
fn cores_in_turn(cores: u32, map: &Map<u64, u64>, operate: Operate<'_>) -> Counts {
    let (begin, mut turn) = mpsc::channel::<()>();
    let mut to_next = vec![begin.clone()];
    let mut turns = Vec::new();
    for _ in 1..cores {
        let (to, next) = mpsc::channel();
        turns.push(std::mem::replace(&mut turn, next));
        to_next.push(to);
    }
    turns.push(turn);
    // Core n passes the turn to core n + 1, the last one to the first.
    to_next.rotate_left(1);
    begin.send(()).unwrap();
    let of_core = |core: u32, turn: mpsc::Receiver<()>, next: mpsc::Sender<()>| {
        let mut total = NOTHING;
        for number in (u64::from(core)..2 * OPERATIONS).step_by(cores as usize) {
            turn.recv().unwrap();
            let counts = count(|| on_core(core, || operate(map, number)));
            // In the first half each core meets each shard.
            if number >= OPERATIONS {
                total = total + counts;
            }
            // At the end the next one may be gone.
            let _ = next.send(());
        }
        total
    };
    std::thread::scope(|scope| {
        let cores = (0..cores).zip(turns.into_iter().zip(to_next));
        let running: Vec<_> = cores
            .map(|(core, (turn, next))| scope.spawn(move || of_core(core, turn, next)))
            .collect();
        running
            .into_iter()
            .map(|core| core.join().unwrap())
            .fold(NOTHING, |sum, counts| sum + counts)
    })
}

/// On 1 to 16 simulated cores that use one map in turn, a get takes no line and no lock from another core, and a put
/// takes one lock; what it takes from others grows little from 4 cores on. `--nocapture` shows the table.
#[test]
fn what_cores_pay_for_one_another() {
    const KEYS: u64 = 3_000_000;
    println!(
        "cores, operation: lines taken from others, lines fetched from them, locks handed over"
    );
    for cores in [1, 2, 4, 8, 16] {
        let builder =
            Map::<u64, u64>::builder().budget(64 << 20).shards(64).readers_max(16).seed(7);
        let map = Map::build(builder, Clock::manual(NOW)).unwrap();
        // Full, so that puts evict.
        (0..KEYS).for_each(|key| map.insert(&key, key).unwrap());
        let mix = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let get = |map: &Map<u64, u64>, number| _ = map.get(&(mix(number) % KEYS));
        let put = |map: &Map<u64, u64>, number| {
            map.insert(&(mix(number) % (10 * KEYS)), number).unwrap();
        };
        let both = |map: &Map<u64, u64>, number| {
            if mix(number) % 10 < 7 { put(map, number) } else { get(map, number) }
        };
        // Of each: locks, and lines taken, at most.
        let work: [(&str, Operate<'_>, f64, f64); 3] =
            [("get", &get, 0.02, 0.02), ("put", &put, 1.01, 6.5), ("70 % put", &both, 0.72, 3.3)];
        for (name, operate, locks_max, taken_max) in work {
            let counts = cores_in_turn(cores, &map, operate);
            let each = |count: u64| count as f64 / OPERATIONS as f64;
            let (taken, fetched) = (each(counts.lines_taken), each(counts.lines_fetched));
            let (locks, hand_overs) = (each(counts.read_modify_writes), each(counts.hand_overs));
            println!("{cores:>2} {name:<9} {taken:5.2} {fetched:5.2} {hand_overs:5.2}");
            assert!(locks <= locks_max && taken <= taken_max, "{cores} cores, {name}: {counts:?}");
            assert!(cores > 1 || (taken, fetched, hand_overs) == (0.0, 0.0, 0.0), "{counts:?}");
            // Otherwise nothing was followed.
            assert!(cores == 1 || fetched > 0.0, "{cores} cores, {name}: {counts:?}");
        }
    }
}
