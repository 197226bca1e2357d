//! Values that are written in their final place: `cargo run -p larder --example in_place`.
//!
//! A server that renders responses would render into a buffer, and copy that into the cache. Here
//! the hook of `insert_with` gets the value's final place, and readers get the same bytes: nothing
//! is copied on the way in or out. A hook may write less than it asked for.

use larder::{Build, Cache, Seconds, Ttl};

/// A status line, two header fields and a body, straight into the cache.
fn render(page: &mut Build<'_>, number: u32) {
    let body_len = 64 * (number as usize % 4 + 1);
    page.push(format!("HTTP/1.1 200 OK\r\nContent-Length: {body_len}\r\n\r\n").as_bytes());
    // Room for a source that fills a slice: `socket.read(body)`, in a real server.
    if let Some(body) = page.spare(body_len) {
        body.fill(b'a' + (number % 26) as u8);
    }
}

fn main() -> Result<(), larder::Error> {
    let cache = Cache::builder().budget(4 << 20).readers_max(1).build()?;
    let (mut writer, mut reader) = (cache.writer(), cache.reader()?);
    let now = Seconds(1);
    for number in 0..1_000u32 {
        let key = number.to_be_bytes();
        writer.insert_with(&key, 512, Ttl::FOREVER, now, |page| render(page, number))?;
    }
    writer.flush()?;
    reader.sync();

    let page = reader.get(&7u32.to_be_bytes(), now).expect("the cache is large enough for all");
    assert!(page.starts_with(b"HTTP/1.1 200 OK\r\nContent-Length: 256\r\n\r\nhhhh"));
    assert!(page.ends_with(b"hhhh"));
    let bytes: usize = (0..1_000u32)
        .filter_map(|number| reader.get(&number.to_be_bytes(), now))
        .map(|page| page.len())
        .sum();
    println!("{bytes} bytes in 1000 pages, none of them copied");
    Ok(())
}
