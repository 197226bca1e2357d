//! A shard from outside: the effects of a panic under its lock, and when slots that leases held are
//! free again.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use larder_mem::{Config, Error, IndexMode, Lease, Reader, Shard};

type Small = Arc<Shard<()>>;

/// Bytes of a value whose slot has a count of leases.
const VALUE_BYTES: usize = 1024 - 9;

/// Slots for such values in the arena's only page.
fn slots(shard: &Small) -> usize {
    shard.classes().slots_per_page(shard.classes().of(1024).unwrap())
}

fn small(index_mode: IndexMode) -> Small {
    let config = Config {
        page_bytes: 64 << 10,
        pages: 1,
        buckets: 64,
        log_records: 1024,
        readers_max: 3,
        index_mode,
        copy_buckets: 16,
        lease_bytes_max: 1 << 20,
        lease_slot_bytes: 1024,
    };
    Arc::new(Shard::new(config, ()).unwrap())
}

/// Publishes a value in way 0 of a bucket; false if there is no slot.
fn put(shard: &Small, bucket: usize, value: u8) -> bool {
    let class = shard.classes().of(1024).unwrap();
    let slot = shard.lock().unwrap().parts().0.alloc(class);
    let Some(mut slot) = slot else { return false };
    shard.fill(&mut slot, b"k", &[value; VALUE_BYTES], 0, None);
    let mut guard = shard.lock().unwrap();
    let (mut main, ()) = guard.parts();
    main.reserve(1).unwrap();
    main.put(bucket, 0, 4, slot);
    true
}

fn get(reader: &Reader<()>, bucket: usize) -> Option<u8> {
    reader.slot(bucket, 0).map(|slot| slot.value()[0])
}

/// A panic in the middle of a change poisons the shard for good: no thread becomes main, registers
/// or unparks. The half-done change is never published. Present readers, leases and slots still
/// work, and can be dropped.
#[test]
fn a_panic_under_the_lock_poisons() {
    let shard = small(IndexMode::Replicated);
    put(&shard, 0, 1);
    let mut reader = Reader::register(&shard).unwrap();
    let parked = Reader::register(&shard).unwrap().park();
    let lease = reader.lease(&reader.slot(0, 0).unwrap()).unwrap();
    let class = shard.classes().of(1024).unwrap();
    let mut slot = shard.lock().unwrap().parts().0.alloc(class).unwrap();
    shard.fill(&mut slot, b"k", &[2; VALUE_BYTES], 0, None);
    let half_done = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = shard.lock().unwrap();
        let (mut main, ()) = guard.parts();
        main.reserve(2).unwrap();
        main.put(0, 0, 4, slot);
        resume_unwind(Box::new(()));
    }));
    assert!(half_done.is_err());
    assert!(matches!(shard.lock().map(drop), Err(Error::Poisoned)));
    assert!(matches!(shard.try_lock().unwrap().map(drop), Err(Error::Poisoned)));
    assert!(matches!(Reader::register(&shard), Err(Error::Poisoned)));
    assert!(matches!(parked.unpark(), Err(Error::Poisoned)));
    assert!(!reader.is_behind(), "nothing was published");
    reader.sync();
    assert_eq!((get(&reader, 0), lease.value()[0]), (Some(1), 1));
    drop(reader);
    assert_eq!(lease.value(), [1; VALUE_BYTES]);
}

/// A thread that is already unwinding makes a change in a destructor and ends it: the panic was not
/// in here. The change is published, and the shard still works.
#[test]
fn a_change_during_a_panic_elsewhere_counts() {
    struct Puts(Small);
    impl Drop for Puts {
        fn drop(&mut self) {
            assert!(put(&self.0, 0, 2));
        }
    }
    let shard = small(IndexMode::Replicated);
    put(&shard, 0, 1);
    let mut reader = Reader::register(&shard).unwrap();
    let puts = Puts(shard.clone());
    let unwinding = catch_unwind(AssertUnwindSafe(move || {
        let _puts = puts;
        resume_unwind(Box::new(()));
    }));
    assert!(unwinding.is_err());
    reader.sync();
    assert_eq!(get(&reader, 0), Some(2));
    assert!(put(&shard, 0, 3));
}

/// Fills all slots, leases those in `leased` buckets, and retires them: they are revoked.
fn revoked(shard: &Small, leased: usize) -> Vec<Lease<()>> {
    for bucket in 0..slots(shard) {
        assert!(put(shard, bucket, bucket as u8));
    }
    assert!(!put(shard, 0, 0), "all slots are live");
    let mut reader = Reader::register(shard).unwrap();
    let leases = (0..leased).map(|bucket| reader.lease(&reader.slot(bucket, 0).unwrap()).unwrap());
    let leases: Vec<_> = leases.collect();
    assert!(leases.iter().all(|lease| !lease.is_copy()));
    {
        let mut guard = shard.lock().unwrap();
        let (mut main, ()) = guard.parts();
        main.reserve(leased as u64).unwrap();
        (0..leased).for_each(|bucket| main.clear(bucket, 0));
    }
    reader.sync();
    drop(reader);
    let mut guard = shard.lock().unwrap();
    let (mut main, ()) = guard.parts();
    main.reclaim();
    assert_eq!(main.leased().0, leased as u64, "every one of them waits for its lease");
    main.validate().unwrap();
    leases
}

/// Revoked slots are checked again, some at each reclaim. Those whose leases are dropped are free
/// in the end, in any order. One that is leased forever blocks no other, and its bytes do not
/// change.
#[test]
fn revoked_slots_are_revisited() {
    let shard = small(IndexMode::Replicated);
    let mut leases = revoked(&shard, 40);
    let (last, first) = (leases.pop().unwrap(), leases.remove(0));
    assert!(!put(&shard, 0, 0), "all are leased yet");
    // The middle ones, then the others.
    leases.drain(10..20);
    leases.clear();
    let mut looks = 0;
    loop {
        let mut guard = shard.lock().unwrap();
        let (mut main, ()) = guard.parts();
        main.reclaim();
        looks += 1;
        main.validate().unwrap();
        if main.leased().0 == 2 {
            break;
        }
        assert!(looks < 10, "{} are revoked after {looks} reclaims", main.leased().0);
    }
    assert!(looks > 1, "not all at once");
    // Their ways are empty: none of these retires another.
    for bucket in 1..39 {
        assert!(put(&shard, bucket, 7), "what was revoked is used again");
    }
    assert!(!put(&shard, 0, 7));
    assert_eq!((first.value()[0], last.value()[0]), (0, 39));
    drop((first, last));
}

/// If no slot is left, all revoked ones are checked before that is reported, not only those whose
/// turn it is.
#[test]
fn the_last_slot_is_found_among_the_revoked() {
    let shard = small(IndexMode::Shared);
    let mut leases = revoked(&shard, slots(&shard));
    drop(leases.pop());
    assert!(put(&shard, 9, 200));
    assert!(!put(&shard, 9, 201));
    for (bucket, lease) in leases.iter().enumerate() {
        assert_eq!(lease.value(), [bucket as u8; VALUE_BYTES]);
    }
}
