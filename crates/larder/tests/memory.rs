//! The budget holds: resident memory under churn of mixed sizes stays within it and a constant.
#![cfg(target_os = "linux")]

mod common;

use common::{Random, bytes, key_of};
use larder::{Cache, Error, Seconds, Ttl};

/// What a process may take besides its caches: stacks, the allocator's own memory, a huge page at
/// each region's end.
const CONSTANT_BYTES: u64 = 12 << 20;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Distinct inserts, many times what fits, in lengths that drift through all classes; three
/// readers, one of which parks, and one of which is recreated all the time.
#[test]
fn budget_holds_under_churn() {
    let before = resident_bytes();
    let budget = 24 << 20;
    let cache = Cache::builder().budget(budget).readers_max(3).build().unwrap();
    let mut readers = [cache.reader().unwrap(), cache.reader().unwrap()];
    let mut parked = Some(cache.reader().unwrap().park());
    let mut writer = cache.writer();
    let mut random = Random(3);
    let mut worst = 0;
    for number in 0..600_000u64 {
        let key = key_of(number);
        let value = bytes(&mut random, if number % 200_000 < 100_000 { 150 } else { 8_000 });
        while let Err(error) = writer.insert(&key, &value, Ttl::FOREVER, Seconds(1)) {
            let Error::Stalled { reader, .. } = error else { panic!("{error}") };
            readers.iter_mut().find(|each| each.number() == reader).unwrap().sync();
        }
        if number % 2_000 == 0 {
            readers[0].sync();
            if number % 50_000 == 0 {
                let reader = parked.take().unwrap().unpark().unwrap();
                reader.validate().unwrap();
                parked = Some(reader.park());
            }
            worst = worst.max(resident_bytes());
        }
    }
    drop(writer);
    cache.validate().unwrap();
    let stats = cache.stats().unwrap();
    assert!(stats.evicted > 300_000 && stats.moved_slots > 0, "{stats:?}");
    let used = worst - before;
    assert!(used <= budget + CONSTANT_BYTES, "{used} bytes resident for a budget of {budget}");
    assert!(used >= budget / 3, "{used} bytes resident: the budget of {budget} is not used");
}

/// Twenty million distinct names through 64 MiB: `cargo test -p larder --release --test memory -- --ignored`.
#[test]
#[ignore = "ten seconds in a release build, minutes in a debug build"]
fn twenty_million_distinct_inserts() {
    let before = resident_bytes();
    let budget = 64 << 20;
    let cache = Cache::builder().budget(budget).readers_max(2).build().unwrap();
    let mut readers = [cache.reader().unwrap(), cache.reader().unwrap()];
    let mut writer = cache.writer();
    let value = [7; 200];
    let mut worst = 0;
    for number in 0..20_000_000u64 {
        let value = &value[..60 + (number as usize * 31) % 141];
        writer.insert(&key_of(number), value, Ttl::FOREVER, Seconds(1)).unwrap();
        if number % 4_000 == 0 {
            let position = writer.flush().unwrap();
            readers.iter_mut().for_each(|reader| assert_eq!(reader.sync_to(position), position));
        }
        if number % 1_000_000 == 0 {
            worst = worst.max(resident_bytes());
        }
    }
    drop(writer);
    cache.validate().unwrap();
    let stats = cache.stats().unwrap();
    assert_eq!(stats.conflicts, 0);
    let used = worst - before;
    println!("{used} bytes resident, {} entries, load {:.2}", stats.entries, stats.index_load);
    assert!(used <= budget + CONSTANT_BYTES, "{used} bytes resident for a budget of {budget}");
}
