//! Interleavings of the protocol, explored by loom over the crate's own code: two log records, four
//! slots.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p larder-mem --release --test loom`
//!
//! Each scenario holds for the crate as it is. Each deliberate mistake (`Fault`) must break the
//! scenario named for it, or the scenario would prove nothing.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use larder_mem::sync::Arc;
use larder_mem::{Config, Fault, IndexMode, Reader, Shard, View};
use loom::thread;

type Small = Arc<Shard<()>>;

fn small(fault: Fault) -> Small {
    small_with(IndexMode::Replicated, fault)
}

fn small_with(index_mode: IndexMode, fault: Fault) -> Small {
    let config = Config {
        page_bytes: 64,
        pages: 1,
        buckets: 2,
        log_records: 2,
        readers_max: 2,
        index_mode,
        copy_buckets: 1,
        lease_bytes_max: 64,
        lease_slot_bytes: 16,
        fault,
    };
    Arc::new(Shard::new(config, ()).unwrap())
}

/// Fills a slot outside the lock and publishes it in way 0 of a bucket; false if there is no room.
fn put(shard: &Small, bucket: usize, value: u8) -> bool {
    let slot = {
        let mut guard = shard.lock().unwrap();
        let (mut main, ()) = guard.parts();
        if main.reserve(1).is_err() {
            return false;
        }
        main.alloc(0)
    };
    let Some(mut slot) = slot else { return false };
    shard.fill(&mut slot, b"k", &[value], 0, None);
    let mut guard = shard.lock().unwrap();
    let (mut main, ()) = guard.parts();
    if main.reserve(1).is_err() {
        main.free(slot);
        return false;
    }
    main.put(bucket, 0, 4, slot);
    true
}

/// The value in way 0 of a bucket, 0 for none.
fn get(reader: &Reader<()>, bucket: usize) -> u8 {
    reader.slot(bucket, 0).map_or(0, |slot| slot.value()[0])
}

/// Explores `scenario` under a fault; true if every execution held.
fn holds(preemptions: usize, fault: Fault, scenario: fn(Fault)) -> bool {
    let mut builder = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS asks for more.
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    catch_unwind(AssertUnwindSafe(|| builder.check(move || scenario(fault)))).is_ok()
}

fn proves(scenario: fn(Fault), faults: &[Fault]) {
    proves_within(3, scenario, faults);
}

fn proves_within(preemptions: usize, scenario: fn(Fault), faults: &[Fault]) {
    assert!(holds(preemptions, Fault::None, scenario), "the protocol as it is");
    for &fault in faults {
        assert!(!holds(preemptions, fault, scenario), "{fault:?} went unnoticed");
    }
}

/// A reader that syncs sees values in order, complete, and finally the last one; a writer never
/// reuses what the reader may read.
fn sync(fault: Fault) {
    let shard = small(fault);
    let mut reader = Reader::register(&shard).unwrap();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        let done = (1..=5).filter(|&value| put(&writing, 0, value));
        done.last().unwrap_or(0)
    });
    reader.refresh();
    let first = get(&reader, 0);
    reader.refresh();
    let second = get(&reader, 0);
    reader.sync();
    let third = get(&reader, 0);
    assert!(first <= second && second <= third);
    let last = writer.join().unwrap();
    reader.sync();
    assert_eq!(get(&reader, 0), last);
}

#[test]
fn sync_and_its_mutants() {
    proves(sync, &[Fault::CursorRelaxed, Fault::TailRelaxed, Fault::Lap]);
}

/// Two views taken at different positions stay readable across refreshes, until a sync.
fn view_across_refresh(fault: Fault) {
    let shard = small(fault);
    put(&shard, 0, 1);
    let mut reader = Reader::register(&shard).unwrap();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        for value in 2..=5 {
            put(&writing, 0, value);
        }
    });
    {
        let old = reader.slot(0, 0).unwrap();
        reader.refresh();
        let new = reader.slot(0, 0).unwrap();
        reader.refresh();
        assert_eq!(old.value()[0], 1);
        assert!(new.value()[0] >= 1);
    }
    reader.sync();
    get(&reader, 0);
    writer.join().unwrap();
}

#[test]
fn view_across_refresh_and_its_mutants() {
    proves(view_across_refresh, &[Fault::Lap]);
}

/// A reader that parks and unparks while the log wraps around never reads a reused slot, and never
/// goes back.
fn park(fault: Fault) {
    let shard = small(fault);
    put(&shard, 0, 1);
    let reader = Reader::register(&shard).unwrap();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        for value in 2..=5 {
            put(&writing, 0, value);
        }
    });
    let before = get(&reader, 0);
    let mut reader = reader.park().unpark().unwrap();
    assert!(get(&reader, 0) >= before);
    reader.sync();
    get(&reader, 0);
    writer.join().unwrap();
}

#[test]
fn park_and_its_mutants() {
    proves(park, &[Fault::UnparkUnlocked]);
}

/// The index is copied one bucket per lock hold while a writer changes both buckets: after the
/// replay the reader sees a prefix of the log, and nothing else.
fn copy_and_replay(fault: Fault) {
    let shard = small(fault);
    put(&shard, 0, 1);
    put(&shard, 1, 10);
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        put(&writing, 1, 11);
        put(&writing, 0, 2);
    });
    let mut reader = Reader::register(&shard).unwrap();
    let seen = (get(&reader, 0), get(&reader, 1));
    assert_ne!(seen, (2, 10), "the second change without the first");
    writer.join().unwrap();
    reader.sync();
    reader.validate().unwrap();
}

#[test]
fn copy_and_replay_and_its_mutants() {
    proves(copy_and_replay, &[Fault::NoReplay]);
}

/// Two readers at different positions: the slower one decides what is reused.
fn two_readers(fault: Fault) {
    let shard = small(fault);
    let mut first = Reader::register(&shard).unwrap();
    let mut second = Reader::register(&shard).unwrap();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        for value in 1..=4 {
            put(&writing, 0, value);
        }
    });
    let other = thread::spawn(move || {
        second.sync();
        get(&second, 0);
        drop(second.park());
    });
    first.sync();
    let before = get(&first, 0);
    first.sync();
    assert!(get(&first, 0) >= before);
    writer.join().unwrap();
    other.join().unwrap();
}

#[test]
fn two_readers_and_their_mutants() {
    proves_within(2, two_readers, &[Fault::Lap, Fault::CursorRelaxed, Fault::LastCursorOnly]);
}

/// A reader held at a position sees that prefix and no more, while the writer runs ahead.
fn stops_at_a_position(fault: Fault) {
    let shard = small(fault);
    let mut reader = Reader::register(&shard).unwrap();
    put(&shard, 0, 1);
    let position = shard.lock().unwrap().parts().0.position();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        put(&writing, 0, 2);
        put(&writing, 0, 3);
    });
    reader.refresh_to(position);
    assert_eq!(get(&reader, 0), 1);
    reader.sync_to(position);
    assert_eq!(get(&reader, 0), 1);
    writer.join().unwrap();
}

#[test]
fn stops_at_a_position_and_its_mutants() {
    proves(stops_at_a_position, &[Fault::Lap]);
}

/// A leased slot does not change while it is replaced, its reader syncs and the writer uses all
/// slots; a third thread reads it and drops the lease; then it is free again.
fn lease(fault: Fault) {
    let shard = small(fault);
    put(&shard, 0, 1);
    let mut reader = Reader::register(&shard).unwrap();
    let held = reader.lease(&reader.slot(0, 0).unwrap()).unwrap();
    assert!(!held.is_copy());
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        for value in 2..=5 {
            put(&writing, 0, value);
        }
    });
    let holder = thread::spawn(move || {
        assert_eq!(held.value()[0], 1);
        drop(held);
    });
    reader.sync();
    get(&reader, 0);
    reader.sync();
    writer.join().unwrap();
    holder.join().unwrap();
    drop(reader.park());
    let mut guard = shard.lock().unwrap();
    let (mut main, ()) = guard.parts();
    main.reclaim();
    assert_eq!(main.leased(), (0, 0));
    main.validate().unwrap();
}

#[test]
fn lease_and_its_mutants() {
    proves(lease, &[Fault::NoLeaseCheck, Fault::LeaseCheckRelaxed]);
}

/// A reader without a replica sees whole slots, never one that is being reused, and values in
/// order; a view that it holds across a change does not change until it syncs.
fn shared_index(fault: Fault) {
    let shard = small_with(IndexMode::Shared, fault);
    put(&shard, 0, 1);
    let mut reader = Reader::register(&shard).unwrap();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        for value in 2..=5 {
            put(&writing, 0, value);
        }
    });
    let first = {
        let held = reader.slot(0, 0).unwrap();
        let second = get(&reader, 0);
        assert!(held.value()[0] <= second);
        second
    };
    reader.sync();
    let third = get(&reader, 0);
    assert!(first <= third);
    writer.join().unwrap();
    reader.sync();
    get(&reader, 0);
}

#[test]
fn shared_index_and_its_mutants() {
    proves(
        shared_index,
        &[Fault::SlotWordRelaxed, Fault::CursorRelaxed, Fault::TailRelaxed, Fault::Lap],
    );
}

/// Moves the entry in way 0 of one bucket to way 0 of another.
fn relocate(shard: &Small, from: usize, to: usize) {
    let mut guard = shard.lock().unwrap();
    let (mut main, ()) = guard.parts();
    if main.reserve(2).is_ok() {
        main.relocate((from, 0), (to, 0), 4);
    }
}

/// A reader without a replica looks for an entry in its home, bucket 0, then in its second bucket,
/// while it moves from there to home, and back. A search that it need not repeat finds it.
fn moves(fault: Fault) {
    let shard = small_with(IndexMode::Shared, fault);
    put(&shard, 1, 1);
    let mut reader = Reader::register(&shard).unwrap();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        relocate(&writing, 1, 0);
        relocate(&writing, 0, 1);
    });
    for _ in 0..2 {
        let View::Main(main) = reader.view() else { panic!("the index is shared") };
        let before = main.moves();
        let is_in =
            |bucket| main.probe(bucket, 4).candidates == 1 && main.slot(bucket, 0).is_some();
        let is_found = is_in(0) || is_in(1);
        assert!(is_found || !main.is_unmoved(before), "missed, and not repeated");
        reader.sync();
    }
    writer.join().unwrap();
}

#[test]
fn moves_and_their_mutants() {
    proves(moves, &[Fault::MoveUncounted, Fault::MoveUnfenced]);
}

/// A reader without a replica parks and unparks while slots are reused: what it reads then is
/// whole, and not older than before.
fn shared_park(fault: Fault) {
    let shard = small_with(IndexMode::Shared, fault);
    put(&shard, 0, 1);
    let reader = Reader::register(&shard).unwrap();
    let writing = shard.clone();
    let writer = thread::spawn(move || {
        for value in 2..=5 {
            put(&writing, 0, value);
        }
    });
    let before = get(&reader, 0);
    let reader = reader.park().unpark().unwrap();
    assert!(get(&reader, 0) >= before);
    writer.join().unwrap();
    get(&reader, 0);
}

#[test]
fn shared_park_and_its_mutants() {
    proves(shared_park, &[Fault::UnparkUnlocked]);
}

/// Changes the two buckets with more records than the log holds, and the first one's bucket only
/// once: a reader that misses that record shows it.
fn go_round(shard: &Small) {
    for (bucket, value) in [(0, 2), (1, 11), (1, 12), (1, 13)] {
        put(shard, bucket, value);
    }
}

/// A reader is parked for as many records as the log holds, for fewer, and for more; it unparks
/// with the present index.
fn unpark_behind_the_log(fault: Fault) {
    let shard = small(fault);
    put(&shard, 0, 1);
    put(&shard, 1, 10);
    let parked = Reader::register(&shard).unwrap().park();
    let writing = shard.clone();
    let writer = thread::spawn(move || go_round(&writing));
    let mut reader = parked.unpark().unwrap();
    assert!(get(&reader, 0) > 0 && get(&reader, 1) > 0);
    writer.join().unwrap();
    reader.sync();
    reader.validate().unwrap();
}

#[test]
fn unpark_behind_the_log_and_its_mutants() {
    proves(unpark_behind_the_log, &[Fault::UnparkLapped]);
}

/// While a new reader copies the index, one bucket per lock hold, as many records are written as
/// there is room for: a change in a bucket that it has already copied can still be replayed.
fn copy_while_the_log_goes_round(fault: Fault) {
    let shard = small(fault);
    put(&shard, 0, 1);
    put(&shard, 1, 10);
    let writing = shard.clone();
    let writer = thread::spawn(move || go_round(&writing));
    let mut reader = Reader::register(&shard).unwrap();
    assert!(get(&reader, 0) > 0 && get(&reader, 1) > 0);
    writer.join().unwrap();
    reader.sync();
    reader.validate().unwrap();
}

#[test]
fn copy_while_the_log_goes_round_and_its_mutants() {
    proves(copy_while_the_log_goes_round, &[Fault::CopyUnheld]);
}
