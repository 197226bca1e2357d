//! A cache that survives a restart: `cargo run -p larder --example warm_restart`.
//!
//! The first process fills a map and saves it. The second loads it, with the expiry times of its
//! entries. The third finds a damaged file, reports it, and keeps the good entries. A save replaces
//! the file as a whole, so after a crash within one the previous file is there.

use larder::{Cache, Clock, Map, SaveError, Seconds, Ttl};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("larder-warm-{}", std::process::id()));
    let builder = Cache::builder().budget(16 << 20).readers_max(1);
    let clock = Clock::manual(Seconds(1_000)); // `Clock::system()`, in a program that is not its own test

    let first: Map<u64, String> = Map::build(builder.clone(), clock.clone())?;
    for number in 0..20_000 {
        let ttl = if number % 2 == 0 { Ttl::FOREVER } else { Ttl::seconds(60) };
        first.insert_ttl(&number, format!("value {number}"), ttl)?;
    }
    println!("saved {} values", first.save(&path)?);
    drop(first);

    // Two minutes pass.
    clock.set(Seconds(1_120));
    let (second, loaded) = Map::<u64, String>::build_from(builder.clone(), clock.clone(), &path)?;
    println!("loaded {} values, skipped {} that had expired", loaded.entries, loaded.expired);
    assert_eq!((loaded.entries, loaded.expired), (10_000, 10_000));
    assert_eq!((second.get(&8).as_deref(), second.get(&9)), (Some("value 8"), None));

    let mut bytes = std::fs::read(&path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes)?;
    let third: Map<u64, String> = Map::build(builder, clock)?;
    match third.load(&path) {
        Err(error @ SaveError::Damaged(_)) => println!("as it should: {error}"),
        other => return Err(format!("the damage went unnoticed: {other:?}").into()),
    }
    std::fs::remove_file(&path)?;
    Ok(())
}
