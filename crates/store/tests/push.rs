//! Packets over TCP without a request (PCAP-over-IP): each client gets the bytes of the segments, whatever others do.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::*;
use larder_store::Store;
use larder_store::serve::{Options, Server};
use larder_testkit::wait::until_so;

const SEGMENT_BYTES: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 8 << 20;

fn open(folder: &Path) -> Store {
    let mut small = options(folder);
    (small.segment_bytes, small.memory_bytes) = (SEGMENT_BYTES, MEMORY_BYTES);
    small.budget_bytes = 1 << 30;
    Store::open(small, &interfaces()).expect("a store")
}

fn serve(store: &Store, clients_max: usize) -> Server {
    let options = Options::pushing(Some(SocketAddr::from(([127, 0, 0, 1], 0))));
    let options = Options { clients_max, ..options };
    Server::start(&options, store.catalog().clone()).expect("a free port")
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.push_address().expect("it listens")).expect("it accepts")
}

/// Appends batches of 100 packets, as fast as the disk writes them.
fn append(store: &mut Store, next: &mut u64, batches: usize) {
    for _ in 0..batches {
        let mut made = Made::default();
        for number in 0..100u8 {
            let payload = [number; 1300];
            made.packet(0, *next as i64, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &payload));
        }
        made.append(store, next);
        let counts = store.counts();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        while of(&counts.bytes) > of(&counts.bytes_written) + MEMORY_BYTES / 4 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads on a thread of its own, up to the end of the connection.
fn read(mut socket: TcpStream) -> (Arc<AtomicU64>, JoinHandle<Vec<u8>>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let reading = thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), vec![0; 256 << 10]);
        while let Ok(bytes) = socket.read(&mut piece)
            && bytes > 0
        {
            all.extend_from_slice(&piece[..bytes]);
            counted.store(all.len() as u64, Ordering::Release);
        }
        all
    });
    (count, reading)
}

/// The segments of a folder, one after the other.
fn segments(folder: &Path) -> Vec<u8> {
    let names = files(folder).into_iter().filter(|name| name.ends_with(".pcapng"));
    names.flat_map(|name| std::fs::read(folder.join(name)).expect("a segment")).collect()
}

/// A client that was there before the first packet gets all bytes of all segments. So does one that ends its side,
/// one that sends bytes, and one that reads nothing until the memory of its segment was needed: it delays no other
/// client, and no packet is dropped for it. A client that comes later gets the packets from then on.
#[test]
fn clients_get_the_bytes_of_the_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    let server = serve(&store, 16);
    let mut next = 1;
    let slow = connect(&server);
    let half = connect(&server);
    half.shutdown(Shutdown::Write).expect("it is connected");
    let mut talks = connect(&server);
    talks.write_all(&[b'?'; 100_000]).expect("it reads");
    let clients = [connect(&server), half, talks].map(read);
    until_so("all are accepted", || server.counts().bodies.load(Ordering::Relaxed) == 4);
    append(&mut store, &mut next, 1);
    until_so("the first packets are sent", || {
        clients.iter().all(|(count, _)| count.load(Ordering::Acquire) > 0)
    });
    let late = read(connect(&server));
    until_so("it is accepted", || server.counts().bodies.load(Ordering::Relaxed) == 5);
    // Five times the memory.
    append(&mut store, &mut next, 300);
    let first = store.catalog().list()[0].clone();
    assert!(matches!(first.content, larder_store::Content::File(..)), "its memory was needed");
    let dropped = store.counts().packets_dropped.load(Ordering::Relaxed);
    store.finish().expect("room on the disk");
    let stored = segments(folder.path());
    assert_eq!((dropped, stored.len() as u64 > 4 * MEMORY_BYTES), (0, true));
    let has = |count: &AtomicU64, bytes: u64| count.load(Ordering::Acquire) >= bytes;
    for (count, _) in &clients {
        until_so("all bytes are sent, though one client reads nothing", || {
            has(count, stored.len() as u64)
        });
    }
    let slow = read(slow);
    until_so("the slow one gets all", || has(&slow.0, stored.len() as u64));
    let packets_before = 100;
    let frames_stored = frames(&stored);
    let late_bytes = stored.len() as u64 - 200 * 1_500;
    until_so("the late one gets the rest", || has(&late.0, late_bytes));
    drop(server);
    for (_, reading) in clients.into_iter().chain([slow]) {
        assert!(reading.join().expect("it read") == stored);
    }
    let late = frames(&late.1.join().expect("it read"));
    assert_eq!(late.len(), frames_stored.len() - packets_before);
    assert!(late == frames_stored[packets_before..]);
}

/// As many clients as are allowed get packets; further ones are closed, and a place that is free again is taken.
#[test]
fn clients_are_bounded() {
    const CLIENTS: usize = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path());
    let server = serve(&store, CLIENTS);
    let mut next = 1;
    append(&mut store, &mut next, 1);
    let begins_as_capture = |socket: &mut TcpStream| {
        let mut begin = [0; 4];
        socket.read_exact(&mut begin).is_ok_and(|()| begin == [0x0a, 0x0d, 0x0d, 0x0a])
    };
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
    assert!(clients.iter_mut().all(begins_as_capture));
    assert!(!begins_as_capture(&mut connect(&server)), "one too many");
    assert_eq!(server.counts().closed.load(Ordering::Relaxed), 1);
    clients.truncate(1);
    // A client that has ended shows when something is sent to it.
    until_so("a place is free", || {
        append(&mut store, &mut next, 1);
        begins_as_capture(&mut connect(&server))
    });
    drop(server);
    store.finish().expect("room on the disk");
}

/// A server without an address to serve at is no server of packets, and an address that is taken is an error that
/// says what to do.
#[test]
fn an_address_that_is_taken_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let server = serve(&store, 1);
    assert_eq!((server.address(), server.places().len()), (None, 1));
    let error = Server::start(&Options::pushing(server.push_address()), store.catalog().clone());
    let error = error.err().expect("it is taken").to_string();
    assert!(error.contains("name another address"), "{error}");
}
