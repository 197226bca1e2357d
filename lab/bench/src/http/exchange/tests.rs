//! Responses as they may come, right and wrong.

use super::*;
use crate::http::body::Resource;
use std::io::Write;
use std::net::TcpListener;

/// What comes of a response that is written in pieces.
fn read(resource: &str, pieces: &[&[u8]], checks: bool) -> Result<u64, Fault> {
    let resource = Resource::of_path(resource).unwrap();
    let mut exchange = Exchange::new(resource.body(), resource.bytes);
    exchange.checks = checks;
    exchange.begin();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let client = listener.accept().unwrap().0;
    let (mut room, mut bytes) = (Room::new(), 0);
    let mut took = Took { bytes: 0, is_done: false };
    for piece in pieces {
        let mut left = *piece;
        while !left.is_empty() {
            let (now, rest) = left.split_at(left.len().min(50_000));
            server.write_all(now).unwrap();
            let mut came = 0;
            left = rest;
            // Blocks, so that every piece is taken before the next is written.
            while came < now.len() as u64 {
                let before = exchange.at;
                took = exchange.receive(&client, &mut room)?;
                bytes += took.bytes;
                assert_eq!(exchange.at - before, took.bytes);
                came = if took.bytes == 0 { now.len() as u64 } else { came + took.bytes };
                if took.is_done {
                    break;
                }
                client.set_nonblocking(true).unwrap();
            }
            client.set_nonblocking(false).unwrap();
        }
    }
    drop(server);
    match took.is_done {
        true => Ok(bytes),
        false => exchange.receive(&client, &mut room).map(|_| bytes),
    }
}

fn body(resource: &str) -> Vec<u8> {
    let resource = Resource::of_path(resource).unwrap();
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < resource.bytes {
        let left = (resource.bytes - bytes.len() as u64) as usize;
        let piece = resource.body().piece(bytes.len() as u64);
        bytes.extend_from_slice(&piece[..left.min(piece.len())]);
    }
    bytes
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// Bodies by length and in chunks are taken however they are cut, checked or discarded.
#[test]
fn whole_responses_are_taken() {
    for (path, bytes) in [("/size/1", 1u64), ("/size/1024", 1024), ("/size/300000", 300_000)] {
        let body = body(path);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nX: y\r\n\r\n");
        let all = [head.as_bytes(), &body].concat();
        for checks in [true, false] {
            for cut in [1, 20, head.len() - 1, head.len(), head.len() + 1] {
                let got = read(path, &[&all[..cut], &all[cut..]], checks);
                assert_eq!(got.unwrap(), bytes, "{path} {checks} {cut}");
            }
        }
        let (one, two) = body.split_at(body.len() / 3);
        let mut chunks = CHUNKED.to_vec();
        for part in [one, two].into_iter().filter(|part| !part.is_empty()) {
            write!(chunks, "{:x};x=y\r\n", part.len()).unwrap();
            chunks.extend_from_slice(part);
            chunks.extend_from_slice(b"\r\n");
        }
        chunks.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
        for cut in [1, CHUNKED.len() - 1, CHUNKED.len() + 2, chunks.len() - 9, chunks.len() - 1] {
            let got = read(path, &[&chunks[..cut], &chunks[cut..]], false);
            assert_eq!(got.unwrap(), bytes, "{path} in chunks {cut}");
        }
    }
    let empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(read("/size/0", &[empty], false).unwrap(), 0);
}

/// Each way to be wrong is found out: status, length, bytes, an early end, more than was asked for, no HTTP.
/// Invariant 1 of `http::load`.
#[test]
fn wrong_responses_are_found_out() {
    let own = body("/size/10");
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    let outcome = |parts: &[&[u8]]| match read("/size/10", &[&parts.concat()], true) {
        Ok(bytes) => bytes.to_string(),
        Err(fault) => fault.to_string(),
    };
    let wrong = body("/size/10/1");
    assert_eq!(outcome(&[head, &own]), "10");
    assert_eq!(outcome(&[head, &wrong]), "other bytes");
    assert!(outcome(&[head, &own[..9]]).starts_with("the connection ended"));
    assert!(outcome(&[b"HTTP/1.1 200 OK\r\n"]).starts_with("the connection ended"));
    assert_eq!(outcome(&[head, &own, b"!"]), "no HTTP");
    assert_eq!(outcome(&[b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"]), "another length");
    assert_eq!(outcome(&[b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"]), "status 503");
    assert_eq!(outcome(&[b"HTTP/1.1 200 OK\r\n\r\n"]), "no HTTP");
    assert_eq!(outcome(&[b"\r\n\r\n"]), "no HTTP");
    assert_eq!(outcome(&[CHUNKED, b"b\r\n", &own, b"x"]), "another length");
    assert_eq!(outcome(&[CHUNKED, b"0\r\n\r\n"]), "another length");
    assert_eq!(outcome(&[CHUNKED, b"g\r\n"]), "no HTTP");
    assert_eq!(outcome(&[&vec![b'x'; 40_000]]), "no HTTP");
}
