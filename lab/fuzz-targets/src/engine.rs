//! The engine against the slow and obvious cache of its own tests, step by step by the input.

use larder::{Cache, Error, Policy, Seconds, Ttl};

#[path = "../../../crates/larder/tests/common/mod.rs"]
mod model;

use super::Cut;
use model::{Model, assert_same, key_of};

/// Small, so that entries are evicted.
const BUDGET_BYTES: u64 = 200_000;

const READERS: usize = 2;

/// Steps of five bytes: what to do; which key (2); size, in units that the first byte chooses;
/// lifetime. The second reader syncs only when the writer is stalled.
pub fn engine(input: &[u8]) {
    let cache = Cache::builder()
        .budget(BUDGET_BYTES)
        .readers_max(READERS)
        .policy(Policy::Fifo)
        .seed(1)
        .build()
        .expect("a budget that does");
    let mut readers: [_; READERS] = std::array::from_fn(|_| cache.reader().expect("a free number"));
    let mut writer = cache.writer();
    let mut model = Model::of(&cache);
    let value_max = cache.value_bytes_max(40);
    let mut now = Seconds(1);
    let mut input = Cut(input);
    let mut value = Vec::new();
    while !input.is_empty() {
        let action = input.u8();
        let key = key_of(u64::from(input.u16() % 1024));
        let size = usize::from(input.u8()) << (action >> 4 & 7);
        let lifetime = input.u8();
        let ttl = if lifetime == 0 { Ttl::FOREVER } else { Ttl::seconds(u32::from(lifetime)) };
        let kind = action & 15;
        value.clear();
        value.resize(size.min(value_max), lifetime ^ action);
        match kind {
            0 => now.0 += u32::from(lifetime),
            1 => _ = readers[0].sync(),
            _ => {}
        }
        loop {
            let done = match kind {
                0 | 1 => Ok(()),
                2 => writer.flush().map(|_| ()),
                3 | 4 => writer.remove(&key),
                5 => writer.touch(&key, ttl, now),
                6 => writer.insert_with(&key, value.len(), ttl, now, |build| {
                    let (head, tail) = value.split_at(value.len() / 2);
                    assert!(build.push(head) && build.push(tail) && !build.push(&[0]));
                }),
                _ => writer.insert(&key, &value, ttl, now),
            };
            match done {
                Ok(()) => break,
                Err(Error::Stalled { reader, .. }) => _ = readers[reader].sync(),
                Err(error) => panic!("{error}"),
            }
        }
        match kind {
            0..=2 => {}
            3 | 4 => model.remove(&key),
            5 => model.touch(&key, ttl, now),
            _ => model.insert(&key, &value, ttl, now),
        }
        if action & 128 != 0 && kind == 2 {
            cache.validate().expect("an engine in order");
        }
    }
    while let Err(error) = writer.flush() {
        let Error::Stalled { reader, .. } = error else { panic!("{error}") };
        readers[reader].sync();
    }
    for reader in &mut readers {
        reader.sync();
        reader.validate().expect("a reader in order");
        cache.validate().expect("an engine in order");
        assert_same(&cache, reader, &model, now, 0);
    }
}
