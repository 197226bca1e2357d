//! The cost of the simple APIs above the engine: a `Map` compared with an own reader, and loading a
//! saved cache.
//!
//! `cargo bench -p larder --bench map -- ENTRIES ROUNDS`; without arguments, as in `cargo test`, it
//! runs tiny. Each round measures every row once, one after another, so that noise affects all rows
//! alike. It prints the medians, and a checksum of what was read.

use std::time::Instant;

use larder::{Cache, Clock, Map, Seconds, Ttl};

const NOW: Seconds = Seconds(1);
const VALUE_BYTES: usize = 32;

/// Nanoseconds per operation.
fn time(operations: u64, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64() * 1e9 / operations as f64
}

/// The keys in an order that no prefetcher can follow.
fn keys(entries: u64) -> impl Iterator<Item = u64> {
    (0..entries).map(move |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % entries)
}

fn map_for(entries: u64) -> Map<u64, [u8; VALUE_BYTES]> {
    let builder = Map::<u64, [u8; VALUE_BYTES]>::builder().readers_max(2);
    let builder = builder.budget((entries * 160).max(2 << 20));
    Map::build(builder, Clock::system()).expect("a budget of some MiB")
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let entries = arguments.next().unwrap_or(1_000);
    let rounds = arguments.next().unwrap_or(1);
    let builder =
        Cache::builder().budget((entries * 160).max(2 << 20)).readers_max(2).entry_bytes_mean(48);
    let value = [7u8; VALUE_BYTES];

    let cache = builder.clone().build().expect("a budget of some MiB");
    let (mut writer, mut reader) = (cache.writer(), cache.reader().expect("the first of two"));
    let map = map_for(entries);
    let names = [
        "reader get, one's own",
        "map get",
        "map with",
        "writer insert, one's own",
        "map insert",
        "map insert_many",
        "save, per entry",
        "load, per entry",
        "load of 4 KiB values, per MiB",
    ];
    let mut rows = vec![Vec::new(); names.len()];
    let mut sum = 0u64;
    map.insert_many((0..entries).map(|key| (key, value)), Ttl::FOREVER).expect("room for all");
    let large = large_values();
    for _ in 0..rounds {
        let mut round = Vec::with_capacity(names.len());
        let mut note = |ns| round.push(ns);
        let inserted = time(entries, || {
            for (i, key) in keys(entries).enumerate() {
                writer
                    .insert(&key.to_le_bytes(), &value, Ttl::FOREVER, NOW)
                    .expect("a reader that syncs");
                if i % 256 == 0 {
                    reader.sync();
                }
            }
            writer.flush().expect("a reader that syncs");
        });
        reader.sync();
        // Each reads its entries once before it is timed: it has caught up with the last writes,
        // and its cache lines are as near as they will be.
        let mut own = || {
            for key in keys(entries) {
                sum += reader.get(&key.to_le_bytes(), NOW).map_or(0, |entry| u64::from(entry[0]));
            }
        };
        own();
        note(time(entries, own));
        let mut with = || {
            for key in keys(entries) {
                sum += map.with(&key, |bytes| u64::from(bytes[0])).unwrap_or(0);
            }
        };
        with();
        let read_with = time(entries, with);
        note(time(entries, || {
            for key in keys(entries) {
                sum += map.get(&key).map_or(0, |value| u64::from(value[0]));
            }
        }));
        note(read_with);
        note(inserted);
        note(time(entries, || {
            for key in keys(entries) {
                map.insert(&key, value).expect("the pool syncs its readers");
            }
        }));
        note(time(entries, || {
            let all = keys(entries).map(|key| (key, value));
            map.insert_many(all, Ttl::FOREVER).expect("the pool syncs its readers");
        }));
        let mut saved = Vec::new();
        note(time(entries, || {
            cache.save_to(&mut saved, NOW).expect("memory takes all");
        }));
        let other = builder.clone().build().expect("a budget of some MiB");
        note(time(entries, || {
            sum += other.load_from(&mut &*saved, NOW).expect("it was just saved").entries;
        }));
        let other = Cache::builder().budget(96 << 20).readers_max(1).entry_bytes_mean(4096);
        let other = other.build().expect("a budget of some MiB");
        note(time(large.len() as u64 >> 20, || {
            sum += other.load_from(&mut &*large, NOW).expect("it was just saved").entries;
        }));
        rows.iter_mut().zip(round).for_each(|(row, ns)| row.push(ns));
    }
    println!("{entries} entries of 8 + {VALUE_BYTES} bytes, {rounds} rounds, checksum {sum}");
    for (name, mut row) in names.into_iter().zip(rows) {
        row.sort_by(f64::total_cmp);
        println!(
            "{name:32} {:10.1} ns  ({:.1} to {:.1})",
            row[row.len() / 2],
            row[0],
            row[row.len() - 1]
        );
    }
}

/// A saved cache of 64 MiB in values of 4 KiB.
fn large_values() -> Vec<u8> {
    let builder = Cache::builder().budget(96 << 20).readers_max(1).entry_bytes_mean(4096);
    let cache = builder.build().expect("a budget of some MiB");
    let mut writer = cache.writer();
    for key in 0..(64u64 << 20 >> 12) {
        writer
            .insert(&key.to_le_bytes(), &[7; 4000], Ttl::FOREVER, NOW)
            .expect("no reader is there");
    }
    writer.flush().expect("no reader is there");
    let mut saved = Vec::new();
    cache.save_to(&mut saved, NOW).expect("memory takes all");
    saved
}
