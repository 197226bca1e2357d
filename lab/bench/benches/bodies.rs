//! What it costs to go through a body that is in memory: `cargo bench -p larder-bench --bench bodies`. Under `cargo
//! test` a small body is gone through once, to show that it works.
//!
//! Three ways, in rotated order, each over the same body, kept in extents of 16 KiB as the pull request to Varnish had
//! them: its bytes walked where they lie; the synchronous iterator, which is made of the asynchronous one; and leases
//! taken and returned in batches. Without a check, and with a checksum of each page that is compared when it is leased
//! (CRC-32, also in the walk). What is done with the bytes is one addition for each eight.
//!
//! Figures are nanoseconds of the thread's processor time a KiB, medians of the rounds with their 95 % interval.

use std::ops::ControlFlow;
use std::sync::Arc;

use larder_bench::clock::ThreadTime;
use larder_bench::pair::{Way, compare_ways};
use larder_bench::row::Unit;
use larder_mem::object::{
    Kind, Lease, Leased, Notice, Object, ObjectStore, Plan, Post, ReaderOptions, Room,
    StoreOptions, iterate,
};

/// Bytes filled at a time, and taken by one lease.
const EXTENT_BYTES: usize = 16 << 10;
/// Leases returned together.
const BATCH: usize = 16;

/// No thread waits here.
struct Nobody;

impl Post for Nobody {
    fn post(&self, _notice: Notice) {}
}

fn body(bytes: usize, digest: Option<fn(u32, &[u8]) -> u32>) -> (ObjectStore, Arc<Object>) {
    let options = StoreOptions { digest, ..StoreOptions::of(bytes as u64 + (4 << 20)) };
    let store = ObjectStore::new(options, Arc::new(Nobody)).expect("there is memory");
    let plan = Plan { loop_number: 0, bytes: Some(bytes as u64), kind: Kind::Stored };
    let mut filler = store.create(plan);
    let mut word = 1u32;
    let mut filled = 0;
    while filled < bytes {
        let Room::Memory(room) = filler.room(EXTENT_BYTES.min(bytes - filled)) else {
            panic!("the store is as large as the body")
        };
        for byte in room.iter_mut() {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (word >> 24) as u8;
        }
        let count = room.len();
        filler.wrote(count);
        filler.publish();
        filled += count;
    }
    let object = filler.object().clone();
    filler.seal();
    (store, object)
}

fn sum(bytes: &[u8]) -> u64 {
    let words =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
    words.fold(0, u64::wrapping_add)
}

fn iterated(object: &Arc<Object>) -> u64 {
    let mut total = 0u64;
    let ended = iterate(object, 0..u64::MAX, |bytes| {
        for extent in bytes.chunks(EXTENT_BYTES) {
            total = total.wrapping_add(sum(extent));
        }
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(ended, Ok(ControlFlow::Continue(())));
    total
}

fn leased(object: &Arc<Object>) -> u64 {
    let options = ReaderOptions { loop_number: 0, lease_bytes_max: u64::MAX };
    let mut reader = object.open(0..u64::MAX, options).expect("it is kept");
    let (mut total, mut leases) = (0u64, Vec::with_capacity(BATCH));
    loop {
        match reader.lease(&mut leases, EXTENT_BYTES as u64) {
            Leased::Some { is_end, .. } => {
                if leases.len() >= BATCH || is_end {
                    total = leases
                        .iter()
                        .fold(total, |it, lease| it.wrapping_add(sum(lease.as_bytes())));
                    reader.give_back(leases.drain(..));
                }
            }
            Leased::End => return total,
            other => panic!("{other:?}"),
        }
    }
}

/// Leases of the whole body.
fn all(object: &Arc<Object>) -> Vec<Lease> {
    let options = ReaderOptions { loop_number: 0, lease_bytes_max: u64::MAX };
    let mut reader = object.open(0..u64::MAX, options).expect("it is kept");
    let mut leases = Vec::new();
    while let Leased::Some { .. } = reader.lease(&mut leases, u64::MAX) {}
    leases
}

fn main() {
    let is_real = std::env::args().any(|word| word == "--bench");
    let (bytes, rounds) = if is_real { (64 << 20, 20) } else { (256 << 10, 2) };
    let crc: fn(u32, &[u8]) -> u32 = |before, bytes| {
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(bytes);
        hasher.finalize()
    };
    for (work, digest) in [("without a check", None), ("with a check", Some(crc))] {
        let (_store, object) = body(bytes, digest);
        // All of it leased once, for the walk.
        let held = all(&object);
        let extents: Vec<&[u8]> =
            held.iter().flat_map(|lease| lease.as_bytes().chunks(EXTENT_BYTES)).collect();
        let expected = extents.iter().map(|it| sum(it)).fold(0, u64::wrapping_add);
        let ns_per_kib = |run: &dyn Fn() -> u64| {
            let start = ThreadTime::start();
            assert_eq!(run(), expected, "the same bytes");
            start.elapsed_ns() / (bytes >> 10) as f64
        };
        let walked = || {
            let mut total = 0u64;
            for &extent in &extents {
                if let Some(digest) = digest {
                    for page in extent.chunks(4096) {
                        std::hint::black_box(digest(0, page));
                    }
                }
                total = total.wrapping_add(sum(extent));
            }
            total
        };
        let mut ways = [
            Way::new("iterator", "", || ns_per_kib(&|| iterated(&object))),
            Way::new("walk", "bytes where they lie", || ns_per_kib(&walked)),
            Way::new("leases", "16 KiB each, returned 16 at a time", || {
                ns_per_kib(&|| leased(&object))
            }),
        ];
        for row in compare_ways(&format!("iterator, {work}"), Unit::Ns, rounds, &mut ways) {
            println!("{}", row.to_json());
        }
    }
}
