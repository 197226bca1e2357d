//! Interleavings of bodies that are read while they are written, explored by loom over the crate's
//! own code: units of two bytes, chunks of eight, an arena of one.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p larder-mem --release --test loom_object`
//!
//! A loop with nothing to do sleeps until a notice, so a lost notice is a deadlock, which loom
//! reports. Each byte of the arena has a shadow, so reading bytes before they are visible, or
//! writing them while they are leased, is a race, which it reports as well. Each deliberate mistake
//! must break the scenario named for it.
#![cfg(loom)]

use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use larder_mem::object::*;
use loom::sync::Notify;
use loom::thread;

/// The sleep of two loops, or of a waker's owner.
#[derive(Clone)]
struct Bells(std::sync::Arc<[Notify; 2]>);

impl Bells {
    fn new() -> Self {
        Bells(std::sync::Arc::new([Notify::new(), Notify::new()]))
    }

    /// Sleeps until a notice.
    fn wait(&self, number: usize) {
        self.0[number].wait();
    }
}

impl Post for Bells {
    fn post(&self, notice: Notice) {
        self.0[notice.loop_number as usize].notify();
    }
}

struct Bell(Bells, usize);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.0[self.1].notify();
    }
}

fn store(fault: ObjectFault) -> (ObjectStore, Bells) {
    let bells = Bells::new();
    let options = StoreOptions { fault, ..StoreOptions::of(8) };
    (ObjectStore::new(options, std::sync::Arc::new(bells.clone())).unwrap(), bells)
}

const KEPT: Plan = Plan { loop_number: 0, bytes: None, kind: Kind::Stored };

fn on(loop_number: u32) -> ReaderOptions {
    ReaderOptions { loop_number, lease_bytes_max: u64::MAX }
}

/// Bytes count up from 1. Waits for room as often as necessary.
fn write(filler: &mut Filler, bells: &Bells, bytes: u64) {
    let end = filler.written() + bytes;
    while filler.written() < end {
        let start = filler.written();
        let Room::Memory(data) = filler.room((end - start) as usize) else {
            bells.wait(0);
            continue;
        };
        let len = data.len();
        (start + 1..).zip(data).for_each(|(value, byte)| *byte = value as u8);
        filler.wrote(len);
    }
}

/// Reads until the end or a failure, sleeping between; returns the number of bytes and the last
/// result.
fn read(reader: &mut Reader, bells: &Bells, number: usize) -> (u64, Leased) {
    let mut leases = Vec::new();
    loop {
        let position = reader.position();
        match reader.lease(&mut leases, u64::MAX) {
            Leased::Later => bells.wait(number),
            Leased::Some { .. } => {
                let data = leases.iter().flat_map(|lease| lease.as_bytes());
                assert!(
                    data.copied().eq((position + 1..=reader.position()).map(|value| value as u8))
                );
                reader.give_back(leases.drain(..));
            }
            end => return (reader.position(), end),
        }
    }
}

fn is_empty(store: &ObjectStore) {
    store.validate().unwrap();
    let stats = store.stats();
    assert_eq!((stats.free_bytes, stats.objects, stats.leased_bytes), (8, 0, 0));
}

/// One thread publishes twice, first without notices, and seals; another reads. It sees each byte
/// as it was written, gets a notice for each wait, and reaches the end.
fn publish_and_lease(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let mut filler = store.create(KEPT);
    let mut reader = Object::open(filler.object(), 0..u64::MAX, on(1)).unwrap();
    let reading = bells.clone();
    let other = thread::spawn(move || assert_eq!(read(&mut reader, &reading, 1), (2, Leased::End)));
    write(&mut filler, &bells, 1);
    filler.publish();
    write(&mut filler, &bells, 1);
    filler.publish_now();
    filler.seal();
    other.join().unwrap();
    is_empty(&store);
}

/// A reader that already knows the chunk sees the byte that is added to it.
fn publish_within_a_chunk(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let mut filler = store.create(KEPT);
    write(&mut filler, &bells, 1);
    filler.publish_now();
    let mut reader = Object::open(filler.object(), 0..u64::MAX, on(1)).unwrap();
    let other = thread::spawn(move || {
        let mut leases = Vec::new();
        for _ in 0..2 {
            let _ = reader.lease(&mut leases, 1);
        }
        assert!(leases.iter().map(|lease| lease.as_bytes()[0]).eq(1..=leases.len() as u8));
    });
    write(&mut filler, &bells, 1);
    filler.publish_now();
    other.join().unwrap();
    drop(filler);
    is_empty(&store);
}

/// A reader that waits for the second byte gets a notice, though the body never ends.
fn publish_without_end(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let mut filler = store.create(KEPT);
    let mut reader = Object::open(filler.object(), 0..2, on(1)).unwrap();
    let reading = bells.clone();
    let other = thread::spawn(move || assert_eq!(read(&mut reader, &reading, 1), (2, Leased::End)));
    write(&mut filler, &bells, 1);
    filler.publish_now();
    write(&mut filler, &bells, 1);
    filler.publish_now();
    other.join().unwrap();
    drop(filler);
    is_empty(&store);
}

/// Two readers on two loops and a body that fails: both get the failure, after what was published,
/// and neither sees an end.
fn two_readers_and_fail(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let mut filler = store.create(KEPT);
    let threads: Vec<_> = (0..2)
        .map(|number| {
            let mut reader = Object::open(filler.object(), 1..u64::MAX, on(number)).unwrap();
            let bells = bells.clone();
            thread::spawn(move || {
                let failed = Leased::Failed(Failure::Origin);
                assert_eq!(read(&mut reader, &bells, number as usize), (1, failed));
            })
        })
        .collect();
    write(&mut filler, &bells, 1);
    filler.publish();
    filler.fail(Failure::Origin);
    for thread in threads {
        thread.join().unwrap();
    }
    is_empty(&store);
}

/// Of two readers with wakers one is dropped while the filler notifies: the other is woken all the
/// same.
fn cancel_and_post(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let mut filler = store.create(KEPT);
    let mut goes = Object::open(filler.object(), 0..u64::MAX, on(0)).unwrap();
    let mut stays = Object::open(filler.object(), 1..u64::MAX, on(0)).unwrap();
    let waiting = bells.clone();
    let other = thread::spawn(move || {
        let waker = |number| Waker::from(std::sync::Arc::new(Bell(waiting.clone(), number)));
        let mut leases = Vec::new();
        let _ = goes.poll_lease(&mut Context::from_waker(&waker(0)), &mut leases, 1);
        let waker = waker(1);
        let mut cx = Context::from_waker(&waker);
        let mut goes = Some(goes);
        while stays.poll_lease(&mut cx, &mut leases, 1) == Poll::Pending {
            drop(goes.take());
            waiting.wait(1);
        }
    });
    write(&mut filler, &bells, 1);
    filler.publish_now();
    filler.seal();
    other.join().unwrap();
    is_empty(&store);
}

/// The last lease of an object, which the kernel got, is dropped while another filler asks for
/// memory and finds none: the filler gets it, and no other thread accesses it any more.
fn free_and_grant(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let mut filler = store.create(Plan { bytes: Some(8), ..KEPT });
    write(&mut filler, &bells, 8);
    let mut reader = Object::open(filler.object(), 0..u64::MAX, on(1)).unwrap();
    filler.seal();
    let mut leases = Vec::new();
    let _ = reader.lease(&mut leases, u64::MAX);
    let _ = leases[0].file_range();
    drop(reader);
    let other = thread::spawn(move || {
        assert_eq!(leases[0].as_bytes()[7], 8);
        drop(leases);
    });
    let mut filler = store.create(Plan { bytes: Some(8), ..KEPT });
    write(&mut filler, &bells, 8);
    other.join().unwrap();
    assert_eq!(store.stats().punched_bytes, 8);
    drop(filler);
    is_empty(&store);
}

/// A body of three chunks passes through a window of one: filler and reader alternate, and no byte
/// is written while it is leased.
fn transit(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let kind = Kind::Transit { window_bytes: 2 };
    let mut filler = store.create(Plan { kind, ..KEPT });
    let mut reader = Object::open(filler.object(), 0..u64::MAX, on(1)).unwrap();
    let reading = bells.clone();
    let other = thread::spawn(move || assert_eq!(read(&mut reader, &reading, 1), (5, Leased::End)));
    for bytes in [2, 2, 1] {
        write(&mut filler, &bells, bytes);
        filler.publish_now();
    }
    assert!(filler.object().bytes_held() <= 2);
    filler.seal();
    other.join().unwrap();
    is_empty(&store);
}

/// A lease in transit is read while the filler, whose window is used up, wants to continue.
fn transit_leased(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let kind = Kind::Transit { window_bytes: 2 };
    let mut filler = store.create(Plan { kind, ..KEPT });
    let mut reader = Object::open(filler.object(), 0..u64::MAX, on(1)).unwrap();
    write(&mut filler, &bells, 2);
    filler.publish_now();
    let mut leases = Vec::new();
    let _ = reader.lease(&mut leases, u64::MAX);
    let other = thread::spawn(move || {
        assert_eq!(leases[0].as_bytes(), [1, 2]);
        drop(leases);
    });
    write(&mut filler, &bells, 2);
    other.join().unwrap();
    drop((filler, reader));
    is_empty(&store);
}

/// A stream whose leases are at their limit continues when one is dropped elsewhere.
fn returned_elsewhere(fault: ObjectFault) {
    let (store, bells) = store(fault);
    let mut filler = store.create(KEPT);
    write(&mut filler, &bells, 2);
    let options = ReaderOptions { loop_number: 0, lease_bytes_max: 1 };
    let reader = Object::open(filler.object(), 0..u64::MAX, options).unwrap();
    filler.seal();
    let mut stream = LeaseStream::new(reader, 1);
    let waker = Waker::from(std::sync::Arc::new(Bell(bells.clone(), 1)));
    let mut next = || Pin::new(&mut stream).poll_next(&mut Context::from_waker(&waker));
    let Poll::Ready(Some(Ok(first))) = next() else { panic!("two bytes are there") };
    let other = thread::spawn(move || drop(first));
    let second = loop {
        match next() {
            Poll::Pending => bells.wait(1),
            Poll::Ready(item) => break item.unwrap().unwrap(),
        }
    };
    assert_eq!(second.as_bytes(), [2]);
    other.join().unwrap();
    drop((second, stream));
    is_empty(&store);
}

/// Loom's messages for a lost notice, and for bytes that are read before they are visible or
/// written while they are read.
const DEADLOCK: &str = "deadlock; threads = ";
const RACE: &str = "Causality violation";

/// Set to the name of a fault in a process of its own: a deadlock can't be unwound.
const MUTANT: &str = "LARDER_LOOM_MUTANT";

/// The scenario holds for the crate as it is, and each mistake breaks it in the way that is named
/// for it. `test` is the name of the calling test.
fn proves(test: &str, scenario: fn(ObjectFault), faults: &[(ObjectFault, &str)]) {
    let explore = |fault| {
        let mut builder = loom::model::Builder::new();
        // LOOM_MAX_PREEMPTIONS asks for more.
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
        builder.max_branches = 20_000;
        builder.check(move || scenario(fault));
    };
    if let Ok(mutant) = std::env::var(MUTANT) {
        let name = |fault: &ObjectFault| format!("{fault:?}");
        let fault = faults.iter().map(|&(fault, _)| fault).find(|fault| name(fault) == mutant);
        return explore(fault.expect("one of this test's"));
    }
    explore(ObjectFault::None);
    for (fault, reason) in faults {
        let program = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(program);
        child.args(["--exact", test, "--nocapture"]).env(MUTANT, format!("{fault:?}"));
        let output = child.output().unwrap();
        assert!(!output.status.success(), "{fault:?} went unnoticed");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(reason), "{fault:?}: {stderr}");
    }
}

#[test]
fn publish_and_lease_and_its_mutants() {
    proves(
        "publish_and_lease_and_its_mutants",
        publish_and_lease,
        &[(ObjectFault::PublishRelaxed, "the first chunk begins at 0")],
    );
}

#[test]
fn publish_within_a_chunk_and_its_mutants() {
    proves(
        "publish_within_a_chunk_and_its_mutants",
        publish_within_a_chunk,
        &[(ObjectFault::PublishRelaxed, RACE)],
    );
}

#[test]
fn publish_without_end_and_its_mutants() {
    use ObjectFault::*;
    proves(
        "publish_without_end_and_its_mutants",
        publish_without_end,
        &[(NoSecondLook, DEADLOCK), (BitBeforeLoop, DEADLOCK), (SetBeforeBit, DEADLOCK)],
    );
}

#[test]
fn two_readers_and_fail_and_its_mutants() {
    proves(
        "two_readers_and_fail_and_its_mutants",
        two_readers_and_fail,
        &[(ObjectFault::FailInTwoSteps, DEADLOCK)],
    );
}

#[test]
fn cancel_and_post_and_its_mutants() {
    proves(
        "cancel_and_post_and_its_mutants",
        cancel_and_post,
        &[(ObjectFault::TicketsRepeat, DEADLOCK)],
    );
}

#[test]
fn free_and_grant_and_its_mutants() {
    proves(
        "free_and_grant_and_its_mutants",
        free_and_grant,
        &[(ObjectFault::QueueUnlocked, DEADLOCK), (ObjectFault::PunchWhenFree, RACE)],
    );
}

#[test]
fn transit_and_its_mutants() {
    proves("transit_and_its_mutants", transit, &[(ObjectFault::WindowUnlocked, DEADLOCK)]);
}

#[test]
fn transit_leased_and_its_mutants() {
    proves(
        "transit_leased_and_its_mutants",
        transit_leased,
        &[(ObjectFault::FreeUnreturned, RACE)],
    );
}

#[test]
fn returned_elsewhere_and_its_mutants() {
    proves(
        "returned_elsewhere_and_its_mutants",
        returned_elsewhere,
        &[(ObjectFault::NoSecondLook, DEADLOCK)],
    );
}
