//! Segments over HTTP: what clients get who ask oddly, or read slowly.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::*;
use larder_store::Store;
use larder_store::serve::{Options, Server};

fn serve(store: &Store) -> Server {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options { listen, clients_max: 8 };
    Server::start(&options, store.shelf().clone()).unwrap()
}

/// All that comes for `requests`, up to the end of the connection.
fn ask(server: &Server, requests: &str) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(requests.as_bytes()).unwrap();
    let mut answers = Vec::new();
    socket.read_to_end(&mut answers).unwrap();
    answers
}

/// A path that there is not is refused once, and the next request of the connection is answered; what is asked by HEAD gets no
/// body, also where it is refused.
#[test]
fn what_is_not_there_is_refused_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let server = serve(&store);
    let asked = "GET /favicon.ico HTTP/1.1\r\n\r\n\
        HEAD /segments/7.pcapng HTTP/1.1\r\n\r\n\
        GET /live.pcapng HTTP/1.1\r\n\r\n\
        GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
    let answers = String::from_utf8(ask(&server, asked)).unwrap();
    let statuses: Vec<&str> = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| answer.split(' ').next().unwrap())
        .collect();
    assert_eq!(statuses, ["404", "404", "503", "200"], "{answers}");
    assert_eq!(answers.matches("there are /segments").count(), 1, "HEAD has no body: {answers}");
    let refused = ask(&server, "POST / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with(b"HTTP/1.1 405 ") && refused.len() < 300, "and it ends there");
}

/// The octets of a body in chunks.
fn body_of(answer: &[u8]) -> Vec<u8> {
    let head = answer.windows(4).position(|octets| octets == b"\r\n\r\n").unwrap();
    let (mut rest, mut body) = (&answer[head + 4..], Vec::new());
    loop {
        let end = rest.windows(2).position(|octets| octets == b"\r\n").expect("a chunk");
        let text = std::str::from_utf8(&rest[..end]).unwrap();
        let bytes = usize::from_str_radix(text, 16).unwrap();
        rest = &rest[end + 2..];
        if bytes == 0 {
            assert_eq!(rest, b"\r\n");
            return body;
        }
        body.extend_from_slice(&rest[..bytes]);
        assert_eq!(&rest[bytes..bytes + 2], b"\r\n");
        rest = &rest[bytes + 2..];
    }
}

/// A client asks for the segment that grows and does not read. Its memory is needed, and goes; nothing is dropped for that
/// client. Then it reads, and gets what is in the file, in chunks that fit, from the middle of one on out of the file.
#[test]
fn from_memory_to_the_file_in_the_middle_of_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = options(folder.path());
    (small.segment_bytes, small.memory_bytes) = (16 << 20, 64 << 20);
    let mut store = Store::open(small, &interfaces()).unwrap();
    let server = serve(&store);
    let mut next = 1;
    let mut append = |store: &mut Store, batches: usize| {
        for _ in 0..batches {
            let mut made = Made::default();
            for number in 0..100u8 {
                let payload = [number; 1300];
                made.packet(0, next as i64, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &payload));
            }
            made.append(store, &mut next);
            let counts = store.counts();
            let of = |count: &std::sync::atomic::AtomicU64| {
                count.load(std::sync::atomic::Ordering::Relaxed)
            };
            while of(&counts.bytes) > of(&counts.bytes_written) + (4 << 20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    append(&mut store, 1);
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = "GET /segments/00000000.pcapng HTTP/1.1\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = vec![0; 1000];
    socket.read_exact(&mut answer).unwrap();
    // Eight times what there is memory for.
    append(&mut store, 4000);
    let first = store.shelf().list()[0].clone();
    assert!(matches!(first.content, larder_store::Content::File(..)), "its memory was needed");
    let counts = store.counts().clone();
    assert_eq!(counts.packets_dropped.load(std::sync::atomic::Ordering::Relaxed), 0);
    let ended = answer.len() as u64 + first.bytes;
    let mut piece = vec![0; 256 << 10];
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let bytes = socket.read(&mut piece).unwrap();
        assert!(bytes > 0 && (answer.len() as u64) < ended + (1 << 20));
        answer.extend_from_slice(&piece[..bytes]);
    }
    drop(server);
    store.finish().unwrap();
    let file = std::fs::read(folder.path().join("00000000.pcapng")).unwrap();
    assert!(body_of(&answer) == file, "{} octets", file.len());
}
