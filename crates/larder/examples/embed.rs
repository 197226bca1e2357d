//! A cache in a program, in ten lines: `cargo run -p larder --example embed`.
//!
//! With a [`larder::Map`] nothing has to be owned, synced or flushed, and every thread may use it.

use larder::{Map, Ttl};

fn main() -> Result<(), larder::Error> {
    let names: Map<str, String> = Map::new(8 << 20)?; // bytes, everything counted
    names.insert("192.0.2.1", "www.example.org".into())?;
    names.insert_ttl("192.0.2.2", "short.example.org".into(), Ttl::seconds(60))?;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(names.get("192.0.2.1").as_deref(), Some("www.example.org")));
        }
    });
    // On a miss one caller computes; others that ask meanwhile wait for its result.
    let name = names.get_or_insert_with("192.0.2.3", || "found.example.org".into());
    assert_eq!(names.get("192.0.2.3"), Some(name));
    let bytes = names.with("192.0.2.2", |bytes| bytes.len()); // read in place
    println!("{} names; the second has {} bytes", names.len()?, bytes.unwrap_or_default());
    Ok(())
}
