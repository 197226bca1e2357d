//! Bodies from filler to reader through the public interface: what is read is what was written, all
//! memory is freed, and each failure of a body is reported as what it is.
#![cfg(not(loom))]

use std::sync::{Arc, Mutex};

use larder_mem::object::*;

/// Collects notices for the test.
#[derive(Default)]
struct Inbox(Mutex<Vec<Notice>>);

impl Post for Inbox {
    fn post(&self, notice: Notice) {
        self.0.lock().unwrap().push(notice);
    }
}

impl Inbox {
    fn take(&self) -> Vec<(u32, ObjectId, News)> {
        let notices = std::mem::take(&mut *self.0.lock().unwrap());
        notices.into_iter().map(|notice| (notice.loop_number, notice.object, notice.news)).collect()
    }
}

const CHUNK: u64 = CHUNK_BYTES_MAX as u64;
const UNIT: u64 = UNIT_BYTES as u64;

fn store(bytes: u64) -> (ObjectStore, Arc<Inbox>) {
    let inbox = Arc::new(Inbox::default());
    let options = StoreOptions::of(bytes);
    (ObjectStore::new(options, inbox.clone()).unwrap(), inbox)
}

fn kept(loop_number: u32, bytes: Option<u64>) -> Plan {
    Plan { loop_number, bytes, kind: Kind::Stored }
}

fn transit(window_bytes: u64) -> Plan {
    Plan { loop_number: 0, bytes: None, kind: Kind::Transit { window_bytes } }
}

fn on(loop_number: u32) -> ReaderOptions {
    ReaderOptions { loop_number, lease_bytes_max: u64::MAX }
}

/// The byte of every test's body at a position.
fn byte(position: u64) -> u8 {
    (position ^ position >> 8 ^ position >> 16) as u8
}

/// Writes up to `bytes` without publishing; returns how many fit.
fn write(filler: &mut Filler, bytes: u64) -> u64 {
    let mut written = 0;
    while written < bytes {
        let start = filler.written();
        let Room::Memory(data) = filler.room((bytes - written) as usize) else { break };
        for (index, place) in data.iter_mut().enumerate() {
            *place = byte(start + index as u64);
        }
        let len = data.len();
        filler.wrote(len);
        written += len as u64;
    }
    written
}

fn check(leases: &[Lease], mut position: u64) {
    for lease in leases {
        assert!(lease.len() > 0);
        for &found in lease.as_bytes() {
            assert_eq!(found, byte(position), "at {position}");
            position += 1;
        }
    }
}

fn is_empty(store: &ObjectStore) {
    store.validate().unwrap();
    let stats = store.stats();
    assert_eq!((stats.free_bytes, stats.objects, stats.leased_bytes), (stats.bytes, 0, 0));
}

/// A body of known and of unknown length, larger than any chunk, is read whole and by ranges; it
/// takes exactly its units once sealed, and all are freed.
#[test]
fn from_filler_to_reader() {
    for announced in [true, false] {
        let bytes = 3 * CHUNK + 12_345;
        let (store, _) = store(8 * CHUNK);
        let mut filler = store.create(kept(0, announced.then_some(bytes)));
        let object = filler.object().clone();
        assert_eq!(write(&mut filler, bytes), bytes);
        assert_eq!(object.published(), 0);
        filler.publish();
        assert_eq!(object.published(), bytes);
        filler.seal();
        assert_eq!(object.phase(), Phase::Sealed);
        assert_eq!(object.bytes_held(), bytes.next_multiple_of(UNIT));
        assert_eq!(store.stats().free_bytes, store.stats().bytes - object.bytes_held());
        for range in [0..u64::MAX, 0..1, CHUNK - 1..CHUNK + 1, bytes - 1..bytes + 9, 5..5] {
            let mut reader = object.open(range.clone(), on(3)).unwrap();
            let mut leases = Vec::new();
            let expected = range.end.min(bytes) - range.start;
            if expected > 0 {
                let is_end = true;
                let all = Leased::Some { bytes: expected, is_end };
                assert_eq!(reader.lease(&mut leases, u64::MAX), all);
                assert_eq!(store.stats().leased_bytes, expected);
            }
            assert_eq!(reader.lease(&mut leases, u64::MAX), Leased::End);
            assert_eq!(leases.iter().map(|lease| lease.len() as u64).sum::<u64>(), expected);
            check(&leases, range.start);
            drop(reader);
            check(&leases, range.start);
        }
        assert_eq!(store.stats().leased_bytes, 0);
        drop(object);
        is_empty(&store);
    }
}

/// Readers on two loops that found nothing get one notice each, when enough has come, or at once on
/// request; readers that do not wait get none.
#[test]
fn posts_once_a_loop() {
    let (store, inbox) = store(CHUNK);
    let mut filler = store.create(kept(0, None));
    let object = filler.object().clone();
    let id = object.id();
    let mut readers: Vec<_> =
        [1, 1, 5].map(|number| object.open(0..u64::MAX, on(number)).unwrap()).into();
    let mut leases = Vec::new();
    for reader in &mut readers {
        assert_eq!(reader.lease(&mut leases, u64::MAX), Leased::Later);
    }
    write(&mut filler, 100);
    filler.publish();
    assert_eq!((object.published(), inbox.take()), (100, vec![]));
    filler.publish_now();
    assert_eq!(inbox.take(), [(1, id, News::More), (5, id, News::More)]);
    write(&mut filler, POST_BYTES);
    filler.publish();
    assert_eq!(inbox.take(), [], "no reader has asked since");
    let more = Leased::Some { bytes: 100 + POST_BYTES, is_end: false };
    assert_eq!(readers[0].lease(&mut leases, u64::MAX), more);
    assert_eq!(readers[0].lease(&mut leases, u64::MAX), Leased::Later);
    write(&mut filler, POST_BYTES - 1);
    filler.publish();
    assert_eq!(inbox.take(), []);
    write(&mut filler, 1);
    filler.publish();
    assert_eq!(inbox.take(), [(1, id, News::More)]);
    for reader in &mut readers {
        while reader.lease(&mut leases, u64::MAX) != Leased::Later {}
    }
    filler.seal();
    assert_eq!(inbox.take(), [(1, id, News::More), (5, id, News::More)]);
    for mut reader in readers {
        assert_eq!(reader.lease(&mut leases, u64::MAX), Leased::End);
    }
}

/// A reader whose leases are at their limit has to return some first, and continues by what
/// returned, however it returned.
#[test]
fn leases_are_limited() {
    let (store, _) = store(CHUNK);
    let mut filler = store.create(kept(0, None));
    write(&mut filler, 1000);
    filler.publish();
    let options = ReaderOptions { loop_number: 0, lease_bytes_max: 300 };
    let mut reader = filler.object().open(0..u64::MAX, options).unwrap();
    let mut leases = Vec::new();
    assert_eq!(reader.lease(&mut leases, 200), Leased::Some { bytes: 200, is_end: false });
    assert_eq!(reader.lease(&mut leases, 200), Leased::Some { bytes: 100, is_end: false });
    assert_eq!(reader.lease(&mut leases, 200), Leased::ReturnFirst);
    drop(leases.pop());
    assert_eq!(reader.lease(&mut leases, 200), Leased::Some { bytes: 100, is_end: false });
    reader.give_back(leases.drain(..));
    assert_eq!(store.stats().leased_bytes, 0);
    assert_eq!(reader.lease(&mut leases, u64::MAX), Leased::Some { bytes: 300, is_end: false });
    assert_eq!(reader.position(), 700);
}

/// What was published before a failure is readable, and the failure is never reported as an end. A
/// complete range has an end, and a failed object can't be opened. Invariant O7 of `object`.
#[test]
fn failure_is_not_an_end() {
    type End = fn(Filler);
    let ends: [(End, Failure); 4] = [
        (|filler| filler.fail(Failure::Origin), Failure::Origin),
        (drop, Failure::Abandoned),
        // 1000 bytes of 2000.
        (Filler::seal, Failure::Origin),
        (
            |mut filler| {
                write(&mut filler, 1001);
                filler.seal();
            },
            Failure::TooLong,
        ),
    ];
    for (end, failure) in ends {
        let (store, inbox) = store(CHUNK);
        let mut filler = store.create(kept(0, Some(2000)));
        let object = filler.object().clone();
        write(&mut filler, 1000);
        filler.publish_now();
        let mut whole = object.open(0..u64::MAX, on(0)).unwrap();
        let mut waiting = object.open(1000..2000, on(1)).unwrap();
        let mut complete = object.open(10..1000, on(2)).unwrap();
        let mut leases = Vec::new();
        assert_eq!(waiting.lease(&mut leases, 9), Leased::Later);
        end(filler);
        assert_eq!(inbox.take(), [(1, object.id(), News::More)]);
        for _ in 0..2 {
            assert_eq!(object.phase(), Phase::Failed(failure));
            assert_eq!(waiting.lease(&mut leases, 9), Leased::Failed(failure));
        }
        assert_eq!(whole.lease(&mut leases, u64::MAX), Leased::Some { bytes: 1000, is_end: false });
        assert_eq!(whole.lease(&mut leases, u64::MAX), Leased::Failed(failure));
        assert_eq!(
            complete.lease(&mut leases, u64::MAX),
            Leased::Some { bytes: 990, is_end: true }
        );
        assert_eq!(complete.lease(&mut leases, u64::MAX), Leased::End);
        assert_eq!(object.open(0..1, on(0)).unwrap_err(), Gone::Failed(failure));
        drop((leases, whole, waiting, complete, object));
        is_empty(&store);
    }
}

/// A revoked object can't be opened, and its present readers read it to its end; its memory is
/// freed with the last lease.
#[test]
fn revoke_waits_for_leases() {
    let (store, _) = store(CHUNK);
    let mut filler = store.create(kept(0, Some(5000)));
    let object = filler.object().clone();
    write(&mut filler, 5000);
    filler.seal();
    let mut reader = object.open(0..u64::MAX, on(0)).unwrap();
    object.revoke();
    assert_eq!(object.open(0..1, on(0)).unwrap_err(), Gone::Revoked);
    let mut leases = Vec::new();
    assert_eq!(reader.lease(&mut leases, u64::MAX), Leased::Some { bytes: 5000, is_end: true });
    drop((reader, object));
    assert_eq!(store.stats().free_bytes, CHUNK - 2 * UNIT);
    let lease = leases.pop().unwrap();
    std::thread::spawn(move || check(&[lease], 0)).join().unwrap();
    is_empty(&store);
}

/// Fillers that find no memory are served in the order in which they asked, and new ones do not
/// overtake them. If one is dropped, the next is served, also when memory was reserved for it.
#[test]
fn memory_is_given_in_order() {
    let (store, inbox) = store(CHUNK);
    let object = {
        let mut filler = store.create(kept(0, Some(CHUNK)));
        let object = filler.object().clone();
        write(&mut filler, CHUNK);
        filler.seal();
        object
    };
    let mut fillers: Vec<Filler> =
        (0..5).map(|number| store.create(kept(number, Some(CHUNK / 2)))).collect();
    for filler in &mut fillers {
        assert!(matches!(filler.room(1), Room::Later));
        assert!(matches!(filler.room(1), Room::Later), "it queues once");
    }
    let ids: Vec<_> = fillers.iter().map(|filler| filler.object().id()).collect();
    assert_eq!((store.stats().waiting_fillers, store.shortage_bytes()), (5, 5 * CHUNK / 2));
    drop(fillers.remove(1));
    assert_eq!(store.shortage_bytes(), 4 * CHUNK / 2);
    drop(object);
    assert_eq!(inbox.take(), [(0, ids[0], News::Room), (2, ids[2], News::Room)]);
    assert_eq!((store.stats().reserved_bytes, store.shortage_bytes()), (CHUNK, CHUNK));
    let mut late = store.create(kept(9, Some(1)));
    assert!(matches!(late.room(1), Room::Later), "others were first");
    store.validate().unwrap();
    // Number 2 had its memory reserved and never takes it.
    drop(fillers.remove(1));
    assert_eq!(inbox.take(), [(3, ids[3], News::Room)]);
    assert_eq!(write(&mut fillers[0], CHUNK / 2), CHUNK / 2);
    assert!(matches!(fillers[2].room(1), Room::Later));
    assert!(matches!(fillers[1].room(1), Room::Memory(_)));
    drop(fillers.remove(0));
    assert_eq!(inbox.take().len(), 1);
    drop(fillers.remove(0));
    assert_eq!(inbox.take(), [(9, late.object().id(), News::Room)]);
    assert!(matches!(late.room(1), Room::Memory(_)));
    drop((late, fillers));
    is_empty(&store);
}

/// A reservation that is too small is exchanged for a better one as more is freed, until it is
/// taken.
#[test]
fn reservations_grow() {
    let (store, inbox) = store(CHUNK);
    let mut small: Vec<_> = (0..CHUNK / UNIT)
        .map(|_| {
            let mut filler = store.create(kept(0, Some(1)));
            assert_eq!(write(&mut filler, 1), 1);
            let object = filler.object().clone();
            filler.seal();
            object
        })
        .collect();
    let mut filler = store.create(kept(0, Some(CHUNK)));
    assert!(matches!(filler.room(1), Room::Later));
    small.pop();
    assert_eq!(inbox.take().len(), 1);
    assert_eq!(store.stats().reserved_bytes, UNIT);
    small.truncate(small.len() / 2 + 1);
    small.pop();
    assert_eq!(inbox.take(), []);
    store.validate().unwrap();
    match filler.room(usize::MAX) {
        Room::Memory(data) => assert_eq!(data.len() as u64, CHUNK / 2),
        Room::Later => panic!("it was told"),
    }
}

/// In transit the filler is ahead by a window and no further. Returned leases, in any order, free
/// memory and let the filler continue; the whole body passes through a window's memory.
#[test]
fn transit_frees_behind() {
    let window = 256 << 10;
    let (store, inbox) = store(CHUNK);
    let mut filler = store.create(transit(window));
    let object = filler.object().clone();
    let mut reader = object.open(0..u64::MAX, on(7)).unwrap();
    assert_eq!(object.open(0..1, on(0)).unwrap_err(), Gone::Taken);
    assert_eq!(write(&mut filler, CHUNK), window);
    filler.publish_now();
    let mut leases = Vec::new();
    assert_eq!(reader.lease(&mut leases, u64::MAX), Leased::Some { bytes: window, is_end: false });
    assert_eq!(leases.len(), 3);
    check(&leases, 0);
    // The first lease stays: nothing is free.
    let first = leases.remove(0);
    reader.give_back(leases.drain(1..));
    drop(leases.pop());
    assert_eq!((object.bytes_held(), inbox.take()), (window, vec![]));
    drop(first);
    assert_eq!((object.bytes_held(), inbox.take()), (0, vec![(0, object.id(), News::Room)]));
    let mut position = window;
    let total = 4 * CHUNK + 77;
    while position < total {
        let rest = total - filler.written();
        let written = write(&mut filler, rest.min(50_000));
        filler.publish();
        assert!(written > 0 && object.bytes_held() <= window);
        match reader.lease(&mut leases, 64 << 10) {
            Leased::Some { bytes, .. } => {
                check(&leases, position);
                position += bytes;
                leases.clear();
            }
            other => assert_eq!(other, Leased::Later),
        }
    }
    filler.seal();
    assert_eq!(reader.lease(&mut leases, 1), Leased::End);
    drop((reader, object));
    is_empty(&store);
}

/// With four bodies in transit, each has a quarter of the common limit, also one that was there
/// before and had more. When three are gone, the last gets a notice as soon as half of its new
/// limit is free.
#[test]
fn transit_is_shared() {
    let window = 256 << 10;
    let inbox = Arc::new(Inbox::default());
    let options = StoreOptions { transit_bytes: window, ..StoreOptions::of(CHUNK) };
    let store = ObjectStore::new(options, inbox.clone()).unwrap();
    let mut filler = store.create(transit(window));
    let object = filler.object().clone();
    let mut reader = object.open(0..u64::MAX, on(7)).unwrap();
    assert_eq!(write(&mut filler, CHUNK), window);
    filler.publish_now();
    let mut others: Vec<Filler> = (0..3).map(|_| store.create(transit(window))).collect();
    for other in &mut others {
        assert_eq!(write(other, CHUNK), window / 4);
    }
    let mut leases = Vec::new();
    let mut give_back = |bytes: u64| {
        let all = Leased::Some { bytes, is_end: false };
        assert_eq!(reader.lease(&mut leases, bytes), all);
        leases.clear();
    };
    // What it holds then, its last chunk, is more than half of its share.
    give_back(window / 2);
    give_back(window / 4);
    assert_eq!((object.bytes_held(), inbox.take()), (20 * UNIT, vec![]));
    drop(others);
    inbox.take();
    give_back(window / 4);
    assert_eq!((object.bytes_held(), inbox.take()), (0, vec![(0, object.id(), News::Room)]));
    assert_eq!(write(&mut filler, CHUNK), window);
}

/// A reader in transit that begins far into the body does not wait for itself: what it skips passes
/// through. When it is dropped, the filler gets a notice.
#[test]
fn transit_skips_and_notifies_the_filler() {
    let window = 64 << 10;
    let (store, inbox) = store(CHUNK);
    let mut filler = store.create(transit(window));
    assert_eq!(write(&mut filler, CHUNK), window);
    let mut reader = filler.object().open(3 * CHUNK..u64::MAX, on(0)).unwrap();
    assert_eq!(inbox.take(), [(0, filler.object().id(), News::Room)]);
    let rest = 3 * CHUNK + 10 - window;
    assert_eq!(write(&mut filler, rest), rest);
    filler.publish_now();
    let mut leases = Vec::new();
    assert_eq!(reader.lease(&mut leases, u64::MAX), Leased::Some { bytes: 10, is_end: false });
    check(&leases, 3 * CHUNK);
    assert!(!filler.is_unwanted());
    inbox.take();
    drop(reader);
    assert_eq!(inbox.take(), [(0, filler.object().id(), News::Room)]);
    assert!(filler.is_unwanted() && filler.readers() == 0);
    drop((leases, filler));
    is_empty(&store);
}

/// Bytes that `sendfile` has put into a socket do not change, though the object is gone and its
/// memory was reused and overwritten. Tested for a stored object in a huge page (if the machine
/// gives one), where one was, and in small pages, of its whole length and aborted early, and for
/// one in transit.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn memory_in_a_socket_is_not_written() {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    let part = CHUNK / 2 + UNIT;
    for (large_chunks, plan, bytes) in [
        (true, kept(0, Some(CHUNK)), CHUNK),
        (true, kept(0, Some(CHUNK)), part),
        (true, kept(0, Some(part)), part),
        (false, kept(0, Some(CHUNK)), CHUNK),
        (false, kept(0, Some(CHUNK)), part),
        (false, transit(CHUNK), CHUNK),
    ] {
        let options = StoreOptions { large_chunks, ..StoreOptions::of(CHUNK) };
        let store = ObjectStore::new(options, Arc::new(Inbox::default())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        // What was there first is never read.
        write(&mut store.create(kept(0, Some(CHUNK))), CHUNK);
        let mut filler = store.create(plan);
        let object = filler.object().clone();
        assert_eq!(write(&mut filler, bytes), bytes);
        filler.publish();
        let mut reader = object.open(0..u64::MAX, on(0)).unwrap();
        let mut leases = Vec::new();
        let _ = reader.lease(&mut leases, u64::MAX);
        // An aborted body is aborted before it is sent.
        filler.seal();
        let mut sent = 0;
        for lease in &leases {
            let count = lease.send(&socket, 0).unwrap_or(0);
            sent += count as u64;
            if count < lease.len() {
                break;
            }
        }
        assert!(sent >= 64 << 10, "the socket took {sent}");
        drop((leases, reader, object));
        is_empty(&store);
        assert!(store.stats().punched_bytes >= sent);
        // Others take it in small pieces, overwrite it, and free it.
        let others = (0..CHUNK / UNIT).map(|_| store.create(kept(0, Some(UNIT))));
        let mut others: Vec<Filler> = others.collect();
        for other in &mut others {
            let Room::Memory(data) = other.room(usize::MAX) else { panic!("all is free") };
            data.fill(0xff);
        }
        drop(socket);
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        assert_eq!(received.len() as u64, sent);
        let wrong = (0..sent).filter(|&at| received[at as usize] != byte(at)).count();
        assert_eq!(wrong, 0, "of {sent} bytes");
    }
}

/// Damage that a reader finds while the body is still being filled ends it for the filler too,
/// which gets a notice.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn damage_is_reported_to_the_filler() {
    use std::os::unix::fs::FileExt;

    let sum =
        |before: u32, data: &[u8]| data.iter().fold(before, |sum, &byte| sum + u32::from(byte));
    let inbox = Arc::new(Inbox::default());
    let options = StoreOptions { digest: Some(sum), ..StoreOptions::of(CHUNK) };
    let store = ObjectStore::new(options, inbox.clone()).unwrap();
    let mut filler = store.create(kept(4, None));
    let id = filler.object().id();
    write(&mut filler, UNIT);
    filler.publish_now();
    let mut waiting = filler.object().open(UNIT..u64::MAX, on(1)).unwrap();
    let mut leases = Vec::new();
    assert_eq!(waiting.lease(&mut leases, 1), Leased::Later);
    // SAFETY: what is written was not leased yet, and no reader checks it meanwhile.
    let memory = unsafe { store.memory() }.try_clone_to_owned().unwrap();
    let file = std::fs::File::from(memory);
    // The arena's first unit is the first that is allocated.
    file.write_all_at(&[0xee], 5).unwrap();
    let mut reader = filler.object().open(0..u64::MAX, on(2)).unwrap();
    assert!(!filler.is_unwanted());
    assert_eq!(reader.lease(&mut leases, 1), Leased::Failed(Failure::Damaged));
    assert_eq!(inbox.take(), [(1, id, News::More), (4, id, News::Room)]);
    assert!(filler.is_unwanted());
    // Sealed or not, it has failed.
    filler.seal();
    assert_eq!(waiting.lease(&mut leases, 1), Leased::Failed(Failure::Damaged));
    drop((reader, waiting));
    is_empty(&store);
}
