//! Nanoseconds per operation, and bytes per entry.
//!
//! `cargo bench -p larder` is for measurements; `cargo test` runs it tiny, so that it keeps
//! working. Parameters, as `--name value` after `--`: entries, operations, value-bytes, batch,
//! feedback (0 or 1); the word fifo chooses that policy.
//!
//! Every figure comes with a checksum of the work done, the same on every machine.

use std::hint::black_box;
use std::time::Instant;

use larder::{Cache, IndexMode, Policy, Reader, Seconds, Ttl, Writer};

const NOW: Seconds = Seconds(1);

struct Parameters {
    entries: u64,
    operations: u64,
    value_bytes: usize,
    batch: usize,
    feedback: bool,
    policy: Policy,
}

fn parameters() -> Parameters {
    let arguments: Vec<String> = std::env::args().collect();
    let real = arguments.iter().any(|argument| argument == "--bench");
    let read = |name: &str, real_default: u64, tiny_default: u64| {
        let position = arguments.iter().position(|argument| argument == name);
        let given = position.and_then(|at| arguments.get(at + 1)).map(|text| {
            text.parse().unwrap_or_else(|_| panic!("{name} wants a number, not {text}"))
        });
        given.unwrap_or(if real { real_default } else { tiny_default })
    };
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    Parameters {
        feedback: read("--feedback", 1, 1) == 1,
        policy: if named("fifo") { Policy::Fifo } else { Policy::Partitioned },
        entries: read("--entries", 1_000_000, 2_000),
        operations: read("--operations", 4_000_000, 10_000),
        value_bytes: read("--value-bytes", 22, 22) as usize,
        batch: read("--batch", 32, 32) as usize,
    }
}

/// Keys of 16 bytes, as an address pair has.
fn key(number: u64) -> [u8; 16] {
    (u128::from(number) | (u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64))
        .to_be_bytes()
}

/// A number below `limit`, uniform, from a counter.
fn scatter(counter: u64, limit: u64) -> u64 {
    let mixed = (counter ^ (counter >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(mixed ^ (mixed >> 32)) * u128::from(limit)) >> 64) as u64
}

/// Nanoseconds that this thread has run, if the system tells: on a busy machine more precise than
/// wall-clock time.
fn ran_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn report(name: &str, operations: u64, act: impl FnOnce() -> u64) {
    std::thread::yield_now();
    let (start, ran) = (Instant::now(), ran_ns());
    let checksum = act();
    let wall = start.elapsed().as_nanos() as f64 / operations as f64;
    std::thread::yield_now();
    let ran =
        ran_ns().zip(ran).map_or(f64::NAN, |(end, start)| (end - start) as f64 / operations as f64);
    println!("{name:24} {ran:8.1} ns/op run {wall:8.1} wall   checksum {checksum:016x}");
}

fn insert_range(
    writer: &mut Writer,
    reader: &mut Reader,
    range: std::ops::Range<u64>,
    value: &[u8],
) -> u64 {
    let mut inserted = 0;
    for number in range {
        while writer.insert(&key(number), value, Ttl::FOREVER, NOW).is_err() {
            reader.sync();
        }
        inserted += 1;
        if inserted % 1024 == 0 {
            reader.sync();
        }
    }
    while writer.flush().is_err() {
        reader.sync();
    }
    inserted
}

/// Two threads that insert, by the number of shards (in wall-clock time, since thread time is that
/// of the thread that waits for them); and lookups in the two index modes.
fn shards_and_readers(entries: u64, operations: u64, budget: u64, slot: usize, value: &[u8]) {
    for shards in [1, 2, 4] {
        let cache = Cache::builder().budget(budget).readers_max(1).shards(shards);
        let cache = cache.entry_bytes_mean(slot).build().expect("the parameters make a cache");
        report(&format!("2 writers, {shards} shards"), operations, || {
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let mut writer = cache.writer();
                    scope.spawn(move || {
                        for number in 0..operations / 2 {
                            let number = (number * 2 + thread) % (2 * entries);
                            let _ = writer.insert(&key(number), value, Ttl::FOREVER, NOW);
                        }
                    });
                }
            });
            operations
        });
    }
    for index_mode in [IndexMode::Replicated, IndexMode::Shared] {
        let cache = Cache::builder().budget(budget).readers_max(1).index_mode(index_mode);
        let cache = cache.entry_bytes_mean(slot).build().expect("the parameters make a cache");
        let mut reader = cache.reader().expect("the first reader");
        let live = insert_range(&mut cache.writer(), &mut reader, 0..entries * 3 / 4, value);
        reader.sync();
        report(&format!("get hit, {index_mode:?}"), operations, || {
            (0..operations).fold(0u64, |sum, i| {
                let entry = reader.get(&key(scatter(i, live)), NOW);
                sum.wrapping_add(entry.map_or(0, |entry| entry.len() as u64))
            })
        });
    }
}

fn main() {
    let Parameters { entries, operations, value_bytes, batch, feedback, policy } = parameters();
    let value = vec![7u8; value_bytes];
    // Room for the entries and no more: slot, index at main, a replica, side tables, rounding.
    let slot = (8 + 16 + value_bytes).next_multiple_of(8) as u64;
    let budget = entries * (slot + 40) * 17 / 16 + (1 << 20);
    let cache = Cache::builder()
        .budget(budget)
        .readers_max(1)
        .entry_bytes_mean(slot as usize)
        .policy(policy)
        .feedback(feedback)
        .build()
        .expect("the parameters make a cache");
    let mut reader = cache.reader().expect("the first reader");
    let mut writer = cache.writer();

    report("insert, empty table", entries, || {
        insert_range(&mut writer, &mut reader, 0..entries, &value)
    });
    let first = 3 * entries;
    report("insert, full table", 2 * entries, || {
        insert_range(&mut writer, &mut reader, entries..first, &value)
    });
    reader.sync();
    let stats = cache.stats().expect("unpoisoned");
    let live = stats.entries;
    // The newest entries are live, with a margin for batches.
    let oldest = first - live;

    report("get hit, independent", operations, || {
        (0..operations).fold(0u64, |sum, i| {
            // Reports are handed over here.
            if i % 1024 == 0 {
                reader.sync();
            }
            let entry = reader.get(&key(oldest + scatter(i, live)), NOW);
            sum.wrapping_add(entry.map_or(0, |entry| entry.len() as u64))
        })
    });
    report("get hit, dependent", operations, || {
        (0..operations).fold(0u64, |sum, i| {
            let entry = reader.get(&key(oldest + scatter(i ^ (sum << 40), live)), NOW);
            sum.wrapping_add(entry.map_or(0, |entry| u64::from(entry[0])))
        })
    });
    let mut keys = vec![[0u8; 16]; batch];
    report(&format!("get hit, batch of {batch}"), operations, || {
        let mut sum = 0u64;
        for start in (0..operations).step_by(batch) {
            for (i, slot) in keys.iter_mut().enumerate() {
                *slot = key(oldest + scatter(start + i as u64, live));
            }
            reader.get_many(&keys, NOW, |_, entry| {
                sum = sum.wrapping_add(entry.map_or(0, |entry| entry.len() as u64));
            });
        }
        sum
    });
    report("get miss", operations, || {
        (0..operations).filter(|&i| black_box(reader.get(&key(!i), NOW)).is_some()).count() as u64
    });
    let newer = first + entries / 4;
    report("insert, after reads", newer - first, || {
        insert_range(&mut writer, &mut reader, first..newer, &value)
    });
    let (first, oldest) = (newer, oldest + entries / 4);
    report("update, full table", operations, || {
        for i in 0..operations {
            while writer.insert(&key(oldest + scatter(i, live)), &value, Ttl::FOREVER, NOW).is_err()
            {
                reader.sync();
            }
            if i % 1024 == 0 {
                reader.sync();
            }
        }
        while writer.flush().is_err() {
            reader.sync();
        }
        operations
    });
    let start = cache.position().expect("unpoisoned").records();
    insert_range(&mut writer, &mut reader, first..first + 64, &value);
    reader.sync();
    let burst = (stats.log_records / 8).min(entries);
    for number in 0..burst {
        if writer.insert(&key(first + 100 + number), &value, Ttl::FOREVER, NOW).is_err() {
            break;
        }
    }
    let _ = writer.flush();
    let records = cache.position().expect("unpoisoned").records() - reader.position().records();
    report("apply a log record", records.max(1), || reader.sync().records() - start);

    shards_and_readers(entries, operations, budget, slot as usize, &value);

    let stats = cache.stats().expect("unpoisoned");
    let payload = (16 + value_bytes) as f64;
    println!(
        "{} entries (load {:.2}), {:.1} bytes an entry above its {payload} of payload, {} conflicts, {} slots moved, page {} KiB",
        stats.entries,
        stats.index_load,
        budget as f64 / stats.entries as f64 - payload,
        stats.conflicts,
        stats.moved_slots,
        stats.classes.last().map_or(0, |class| class.slot_bytes / 1024),
    );
}
