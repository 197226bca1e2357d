//! Readers that are tasks and threads: woken in order, once, and not at all when they were dropped.
//! Streams and the blocking iterator give the same bytes, and damaged bytes are never leased.
#![cfg(not(loom))]

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use larder_mem::object::*;

/// Ignores the notices of loops.
struct Silence;

impl Post for Silence {
    fn post(&self, _: Notice) {}
}

/// Records its number when it is woken.
struct Numbered(u32, Arc<Mutex<Vec<u32>>>);

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

fn waker(number: u32, woken: &Arc<Mutex<Vec<u32>>>) -> Waker {
    Waker::from(Arc::new(Numbered(number, woken.clone())))
}

fn store(bytes: u64, digest: Option<fn(u32, &[u8]) -> u32>) -> ObjectStore {
    ObjectStore::new(StoreOptions { digest, ..StoreOptions::of(bytes) }, Arc::new(Silence)).unwrap()
}

const KEPT: Plan = Plan { loop_number: 0, bytes: None, kind: Kind::Stored };
const READER: ReaderOptions = ReaderOptions { loop_number: 0, lease_bytes_max: u64::MAX };

/// Writes bytes that count up, all of them.
fn write(filler: &mut Filler, bytes: u64) {
    let end = filler.written() + bytes;
    while filler.written() < end {
        let start = filler.written();
        let Room::Memory(data) = filler.room((end - start) as usize) else { panic!("no room") };
        let len = data.len();
        for (index, place) in data.iter_mut().enumerate() {
            *place = (start + index as u64) as u8;
        }
        filler.wrote(len);
    }
}

/// Wakers are woken in the order in which their readers began to wait. Asking again does not change
/// the order, and the last waker counts. A reader that was dropped, or found something, is not
/// woken.
#[test]
fn woken_in_order_and_once() {
    let store = store(1 << 20, None);
    let woken = Arc::default();
    let mut filler = store.create(KEPT);
    let object = filler.object().clone();
    let mut readers: Vec<_> = (0..5).map(|_| object.open(0..u64::MAX, READER).unwrap()).collect();
    let mut leases = Vec::new();
    let mut poll = |reader: &mut Reader, number: u32| {
        reader.poll_lease(&mut Context::from_waker(&waker(number, &woken)), &mut leases, 10)
    };
    for (number, reader) in readers.iter_mut().enumerate() {
        assert_eq!(poll(reader, number as u32), Poll::Pending);
    }
    assert_eq!(poll(&mut readers[1], 11), Poll::Pending);
    drop(readers.remove(3));
    write(&mut filler, 20);
    filler.publish();
    assert!(woken.lock().unwrap().is_empty(), "visible, not posted");
    let some = Poll::Ready(Leased::Some { bytes: 10, is_end: false });
    assert_eq!(poll(&mut readers[2], 2), some);
    filler.publish_now();
    assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), [0, 11, 4]);
    filler.seal();
    assert!(woken.lock().unwrap().is_empty(), "no reader has asked since");
    assert_eq!(poll(&mut readers[2], 2), Poll::Ready(Leased::Some { bytes: 10, is_end: true }));
    assert_eq!(poll(&mut readers[2], 2), Poll::Ready(Leased::End));
}

/// A stream returns lease after lease, waits for more, and at its limit waits until a lease is
/// dropped, on any thread. It ends once: with `None`, or with the failure before it.
#[test]
fn stream() {
    for failure in [None, Some(Failure::Origin)] {
        let store = store(1 << 20, None);
        let woken = Arc::default();
        let mut filler = store.create(KEPT);
        let options = ReaderOptions { loop_number: 0, lease_bytes_max: 250 };
        let reader = filler.object().open(0..u64::MAX, options).unwrap();
        let mut stream = LeaseStream::new(reader, 100);
        let waker = waker(0, &woken);
        let mut poll = || Pin::new(&mut stream).poll_next(&mut Context::from_waker(&waker));
        let len = |poll: Poll<Option<Result<Lease, Failure>>>| match poll {
            Poll::Ready(Some(Ok(lease))) => (lease.len(), lease),
            other => panic!("{other:?}"),
        };
        assert!(poll().is_pending());
        write(&mut filler, 300);
        filler.publish_now();
        assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), [0]);
        let leases = [len(poll()), len(poll()), len(poll())];
        assert_eq!(leases.each_ref().map(|(len, _)| *len), [100, 100, 50]);
        assert!(poll().is_pending() && woken.lock().unwrap().is_empty());
        std::thread::spawn(move || drop(leases)).join().unwrap();
        assert_eq!(*woken.lock().unwrap(), [0]);
        assert_eq!(len(poll()).0, 50);
        match failure {
            None => filler.seal(),
            Some(failure) => filler.fail(failure),
        }
        if let Some(failure) = failure {
            assert_eq!(
                poll().map(|item| item.map(|lease| lease.unwrap_err())),
                Poll::Ready(Some(failure))
            );
        }
        for _ in 0..2 {
            assert!(matches!(poll(), Poll::Ready(None)));
        }
    }
}

/// Four threads iterate while a fifth fills in steps of all sizes: each gets its range, whole; one
/// breaks early; and when the body fails, all get the failure.
#[test]
fn threads_iterate() {
    const BYTES: u64 = 3_000_000;
    for failure in [None, Some(Failure::Origin)] {
        let store = store(4 << 20, None);
        let mut filler = store.create(KEPT);
        let object = filler.object().clone();
        let threads: Vec<_> = [(0, u64::MAX), (1, BYTES), (999_999, u64::MAX), (7, u64::MAX)]
            .into_iter()
            .map(|(start, end)| {
                let object = object.clone();
                std::thread::spawn(move || {
                    let mut position = start;
                    let came_to = iterate(&object, start..end, |data| {
                        for &byte in data {
                            assert_eq!(byte, position as u8);
                            position += 1;
                        }
                        match start == 7 && position > 1_000_000 {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        }
                    });
                    (start, position, came_to)
                })
            })
            .collect();
        while filler.readers() < threads.len() {
            std::thread::yield_now();
        }
        let mut step = 1;
        while filler.written() < BYTES {
            let bytes = step.min(BYTES - filler.written());
            write(&mut filler, bytes);
            filler.publish();
            step = step * 7 % 100_003;
            if step.is_multiple_of(3) {
                filler.publish_now();
                std::thread::yield_now();
            }
        }
        match failure {
            None => filler.seal(),
            Some(failure) => filler.fail(failure),
        }
        for thread in threads {
            let (start, position, came_to) = thread.join().unwrap();
            match (start, failure) {
                (7, _) => assert_eq!(came_to, Ok(ControlFlow::Break(()))),
                // The range of thread 1 is complete.
                (_, None) | (1, _) => {
                    assert_eq!((position, came_to), (BYTES, Ok(ControlFlow::Continue(()))));
                }
                (_, Some(failure)) => assert_eq!(came_to, Err(Gone::Failed(failure))),
            }
        }
        drop(object);
        store.validate().unwrap();
        assert_eq!(store.stats().free_bytes, store.stats().bytes);
    }
}

/// Any checksum will do.
fn sum(before: u32, data: &[u8]) -> u32 {
    data.iter().fold(before, |sum, &byte| sum.rotate_left(1) ^ u32::from(byte))
}

/// One byte changed behind the store's back: the lease that would have it is refused, the body has
/// failed for all readers, and can't be opened again. Other bodies, sealed or still being filled,
/// stored or in transit, are leased as before.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn damage_is_found() {
    use std::os::unix::fs::FileExt;

    let window_bytes = 1 << 20;
    for kind in [Kind::Stored, Kind::Transit { window_bytes }] {
        for (damaged, is_found) in
            [(None, false), (Some(0), true), (Some(9999), true), (Some(10_000), false)]
        {
            let store = store(1 << 20, Some(sum));
            let mut filler = store.create(Plan { kind, ..KEPT });
            let object = filler.object().clone();
            let mut reader = object.open(0..u64::MAX, READER).unwrap();
            let mut leases = Vec::new();
            // The second page is not complete yet.
            for bytes in [5000, 4000, 1000] {
                write(&mut filler, bytes);
                filler.publish();
            }
            assert_eq!(reader.lease(&mut leases, 100), Leased::Some { bytes: 100, is_end: false });
            let (offset, _) = leases[0].file_range();
            filler.seal();
            // SAFETY: what is damaged below was not leased yet except byte 0, which is not read any
            // more.
            let memory = unsafe { store.memory() }.try_clone_to_owned().unwrap();
            let file = std::fs::File::from(memory);
            if let Some(position) = damaged {
                file.write_all_at(&[0xee], offset + position).unwrap();
            }
            let leased = reader.lease(&mut leases, u64::MAX);
            if is_found {
                assert_eq!(leased, Leased::Failed(Failure::Damaged), "{damaged:?}");
                assert_eq!(object.phase(), Phase::Failed(Failure::Damaged));
                assert_eq!(leases.len(), 1);
                assert_eq!(object.open(0..1, READER).unwrap_err(), Gone::Failed(Failure::Damaged));
            } else {
                assert_eq!(leased, Leased::Some { bytes: 9900, is_end: true }, "{damaged:?}");
            }
            drop((leases, reader, object));
            assert_eq!(store.stats().leased_bytes, 0);
            assert_eq!(store.stats().free_bytes, store.stats().bytes);
        }
    }
}

/// A long body in transit is checked throughout, in pieces that do not end with pages.
#[test]
fn transit_is_checked() {
    let store = store(2 << 20, Some(sum));
    let mut filler = store.create(Plan { kind: Kind::Transit { window_bytes: 64 << 10 }, ..KEPT });
    let mut reader = filler.object().open(0..u64::MAX, READER).unwrap();
    let (mut leases, mut read) = (Vec::new(), 0);
    for _ in 0..300 {
        write(&mut filler, 10_007);
        filler.publish();
        while let Leased::Some { bytes, .. } = reader.lease(&mut leases, 3001) {
            read += bytes;
            leases.clear();
        }
    }
    assert_eq!(read, 300 * 10_007);
}
