//! Too little memory: nothing hangs, and a client can recognize each failure.

use std::thread;

use larder_http::options::Options;

use crate::support::{
    Client, KEPT, Scenario, UNKEPT, World, answer, assert_bytes, body, chunk, pattern, scenario,
};

/// All memory for bodies, which is a multiple of this.
const MEMORY: usize = 4 << 20;
const MIB: usize = 1 << 20;

fn small() -> Scenario {
    scenario().with(|it: &mut Options| {
        it.memory.bodies_bytes = MEMORY as u64;
        it.window_bytes = 256 << 10;
        it.lease_bytes_max = 128 << 10;
    })
}

/// The path states the number of bytes and the framing.
fn serve(world: &World) {
    world.origin().answers_by(|head| {
        let path = head.line.split(' ').nth(1).unwrap();
        let mut words = path.split('/').skip(1);
        let (kind, bytes) = (words.next().unwrap(), words.next().unwrap().parse().unwrap());
        let body = body(bytes);
        match kind {
            "length" => answer("200 OK", &[KEPT], body),
            "own" => answer("200 OK", &[UNKEPT], body),
            _ => {
                let head =
                    format!("HTTP/1.1 200 OK\r\n{KEPT}\r\nTransfer-Encoding: chunked\r\n\r\n");
                let chunks = body.chunks(50_000).map(chunk).collect::<Vec<_>>().concat();
                [head.into_bytes(), chunks, b"0\r\n\r\n".to_vec()].concat()
            }
        }
    });
}

/// True if the body is complete; false after an error response, or if the body was aborted.
fn all_or_broken(client: &mut Client, bytes: usize) -> bool {
    let Some(head) = client.try_head() else { return false };
    if head.status() != 200 {
        // An error response.
        assert!(head.status() >= 500, "{head:?}");
        client.try_body(&head).unwrap();
        return false;
    }
    match client.try_body(&head) {
        Ok(found) => {
            assert_bytes(&found, &body(bytes));
            true
        }
        Err((part, _)) => {
            assert_bytes(&part, &pattern(0, part.len()));
            false
        }
    }
}

/// A body that exceeds the memory is sent to one client, and to all that request it at once, though
/// it cannot be cached.
#[test]
fn longer_than_all() {
    small().loops(&[1, 2]).run(|world| {
        serve(world);
        let bytes = 4 * MEMORY;
        let path = format!("/length/{bytes}");
        let clients: Vec<_> = world
            .clients(4)
            .into_iter()
            .map(|mut client| {
                let path = path.clone();
                client.get(&path);
                thread::spawn(move || {
                    for _ in 0..2 {
                        assert!(all_or_broken(&mut client, bytes));
                        client.get(&path);
                    }
                    assert!(all_or_broken(&mut client, bytes));
                })
            })
            .collect();
        clients.into_iter().for_each(|it| it.join().unwrap());
        world.until_counts("nothing was kept", |it| it.kept == 0 && it.clients_open == 0);
    });
}

/// A body without a length that exceeds the memory is streamed to its end. One client reads it,
/// then several with different speeds, of which one disconnects. Memory stays within its bounds,
/// and all is freed afterwards. Invariant 1 of `parts`.
#[test]
fn longer_than_all_as_it_turns_out() {
    small().loops(&[1, 2]).run(|world| {
        let (parts, part) = (4 * MEMORY / 50_000, 50_000);
        for (path, readers) in [("/one", 1), ("/some", 4)] {
            let mut clients = world.clients(readers);
            clients[0].get(path);
            let mut origin = world.receive(&format!("GET {path}"));
            origin.begins_chunks("200 OK", &[KEPT]);
            origin.sends_chunk(&pattern(0, part));
            let mut heads = vec![clients[0].head()];
            for client in &mut clients[1..] {
                client.get(path);
                heads.push(client.head());
            }
            let sends = thread::spawn(move || {
                (1..parts).for_each(|at| origin.sends_chunk(&pattern(at * part, part)));
                origin.send("0\r\n\r\n");
                origin
            });
            // One disconnects in the middle, and the others read to the end, one after the other.
            if readers > 1 {
                let mut leaver = clients.pop().unwrap();
                leaver.take(20 * part);
                leaver.stop();
            }
            let reads: Vec<_> = clients
                .into_iter()
                .zip(heads)
                .map(|(mut client, head)| {
                    thread::spawn(move || client.try_body(&head).expect("all of it"))
                })
                .collect();
            for read in reads {
                assert_bytes(&read.join().unwrap(), &body(parts * part));
            }
            drop(sends.join().unwrap());
        }
        world.until_counts("it was streamed", |it| it.too_long == 2 && it.kept == 0);
        // A client that requests it within the time of `unshared` gets it without a shared fetch.
        let mut client = world.client();
        client.get("/one");
        let mut origin = world.receive("GET /one");
        origin.begins_chunks("200 OK", &[KEPT]);
        origin.send("0\r\n\r\n");
        assert_eq!(client.response().text(), "");
    });
}

/// If all readers of such a body disconnect, at any position in it, the origin is no longer read.
/// Invariant 2 of `parts`.
#[test]
fn longer_than_all_for_nobody() {
    small().loops(&[1, 2]).run(|world| {
        let mut clients = world.clients(2);
        clients[0].get("/long");
        let mut origin = world.receive("GET /long");
        origin.begins_chunks("200 OK", &[KEPT]);
        let part = pattern(0, 50_000);
        origin.sends_chunk(&part);
        clients[0].head();
        clients[1].get("/long");
        clients[1].head();
        let sends = thread::spawn(move || {
            let line = format!("{:x}\r\n", part.len());
            let chunk = [line.as_bytes(), &part, b"\r\n"].concat();
            while origin.try_send(&chunk) {}
        });
        // One reads a part of it and the other nothing, so that the origin is blocked.
        clients[0].take(MEMORY / 2);
        world.until_counts("it is too long", |it| it.too_long == 1);
        clients.into_iter().for_each(Client::stop);
        world.until_counts("it was given up", |it| it.fetches_abandoned >= 1);
        sends.join().unwrap();
    });
}

/// A reader that does not read such a body holds a few parts of it, and leaves memory for other
/// bodies.
#[test]
fn longer_than_all_and_not_read() {
    small().loops(&[1, 2]).run(|world| {
        let mut client = world.client();
        client.get("/long");
        let mut origin = world.receive("GET /long");
        origin.begins_chunks("200 OK", &[KEPT]);
        let part = pattern(0, 50_000);
        origin.sends_chunk(&part);
        client.head();
        let sends = thread::spawn(move || {
            let line = format!("{:x}\r\n", part.len());
            let chunk = [line.as_bytes(), &part, b"\r\n"].concat();
            while origin.try_send(&chunk) {}
        });
        world.until_counts("it is too long", |it| it.too_long == 1);
        let taken_bytes = world.until_still(|| MEMORY as u64 - world.objects().free_bytes);
        assert!(taken_bytes <= MEMORY as u64 / 8 * 7, "{taken_bytes}");
        let mut other = world.client();
        for path in ["/a", "/b"] {
            other.get(path);
            let mut origin = world.receive(&format!("GET {path}"));
            origin.answers("200 OK", &[KEPT, "Connection: close"], body(300_000));
            assert_bytes(&other.response().body, &body(300_000));
        }
        client.stop();
        world.until_counts("it was given up", |it| it.fetches_abandoned >= 1);
        sends.join().unwrap();
    });
}

/// Cached objects are evicted for new ones, and each body is complete.
#[test]
fn makes_room() {
    small().loops(&[1, 2]).run(|world| {
        serve(world);
        let mut clients = world.clients(3);
        for round in 0..30 {
            let bytes = MIB + round * 1000;
            let client = &mut clients[round % 3];
            let kind = if round % 2 == 0 { "length" } else { "chunks" };
            let response = client.fetch(&format!("/{kind}/{bytes}"));
            assert_bytes(&response.body, &body(bytes));
        }
        let (bodies, evicted) = world.server.store().bodies.counts();
        assert!(bodies >= 1 && evicted >= 20, "{bodies} bodies, {evicted} evicted");
        let kept = clients[0].fetch(&format!("/chunks/{}", MIB + 29 * 1000));
        assert!(kept.head.cache_status().contains("hit"), "{:?}", kept.head);
    });
}

/// Many more bodies arrive at once than fit in memory. Each ends, complete or visibly aborted, and
/// most are complete.
#[test]
fn many_at_once() {
    small().loops(&[1, 2]).run(|world| {
        serve(world);
        let clients: Vec<_> = (0..40)
            .map(|number| {
                let bytes = MIB + number * 100;
                let kind = ["length", "chunks", "own"][number % 3];
                let mut client = world.client();
                client.get(&format!("/{kind}/{bytes}"));
                thread::spawn(move || all_or_broken(&mut client, bytes))
            })
            .collect();
        let whole = clients.into_iter().map(|it| it.join().unwrap()).filter(|&it| it).count();
        assert!(whole >= 30, "{whole} of 40");
    });
}

/// The same with clients that do not read while others need memory: a client that then reads gets
/// the complete body.
#[test]
fn slow_ones_among_them() {
    small().loops(&[1, 2]).run(|world| {
        serve(world);
        // Each holds only one window; together they hold a quarter of the memory.
        let mut slow: Vec<Client> = world.clients(4);
        for (number, client) in slow.iter_mut().enumerate() {
            client.get(&format!("/own/{}", 8 * MIB + number));
            client.head();
        }
        let mut quick = world.client();
        for number in 0..10 {
            let bytes = MIB + number;
            let response = quick.fetch(&format!("/length/{bytes}"));
            assert_bytes(&response.body, &body(bytes));
        }
        for (number, client) in slow.iter_mut().enumerate() {
            let bytes = 8 * MIB + number;
            assert_bytes(&client.take(bytes), &body(bytes));
        }
    });
}
