//! Slow and idle clients: they hold few resources, and others are served.

use crate::support::{End, KEPT, answer, assert_bytes, body, pattern, scenario};

/// The server waits for headers that arrive byte by byte no longer than their time limit, and
/// serves others meanwhile.
#[test]
fn head_by_bytes() {
    scenario().loops(&[1, 2]).with(|it| it.patience.head_ms = 100).run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], "quick"));
        let (mut slow, mut quick) = (world.clients(3), world.client());
        let head =
            format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}\r\n\r\n", "x".repeat(30_000));
        for byte in head.as_bytes() {
            for client in &mut slow {
                client.try_send([*byte]);
            }
            assert_eq!(quick.fetch("/").text(), "quick");
            if slow.iter_mut().all(|it| it.has_news()) {
                break;
            }
        }
        for client in &mut slow {
            client.is_refused(408);
        }
        world.until_counts("all were slow", |it| it.closed_slow == 3);
    });
}

/// A connection without a request is closed without a response.
#[test]
fn nothing_requested() {
    scenario().with(|it| it.patience.idle_ms = 50).run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], "quick"));
        let mut never = world.client();
        let mut once = world.client();
        assert_eq!(once.fetch("/").text(), "quick");
        assert_eq!((never.end(), once.end()), (End::Clean, End::Clean));
        world.until_counts("both were idle", |it| it.closed_idle == 2);
    });
}

/// A client that does not read its body is given up after a timeout: its connection is reset.
#[test]
fn nothing_taken() {
    scenario().with(|it| it.patience.client_ms = 100).run(|world| {
        let bytes = 24 << 20;
        world.origin().answers_by(move |_| answer("200 OK", &[KEPT], body(bytes)));
        let mut client = world.client();
        client.get("/film");
        client.head();
        world.until_counts("it was slow", |it| it.closed_slow == 1 && it.clients_open == 0);
        let mut read = 0;
        while client.has_bytes() {
            read += client.take_some().len();
        }
        assert!(read < bytes);
        assert_eq!(client.end(), End::Reset);
    });
}

/// Three hundred clients read the beginning of one long body, and stop. Leased memory stays within
/// bounds, others are served, and all get the rest when they continue.
#[test]
fn three_hundred_readers() {
    const BYTES: usize = 5 << 20;
    const READERS: usize = 300;
    const LEASE_BYTES_MAX: u64 = 64 << 10;
    scenario().loops(&[1, 2]).with(|it| it.lease_bytes_max = LEASE_BYTES_MAX).run(|world| {
        world.origin().answers_by(|head| match head.line.contains("/film") {
            true => answer("200 OK", &[KEPT], body(BYTES)),
            false => answer("200 OK", &[KEPT], "quick"),
        });
        let whole = body(BYTES);
        let mut readers = world.clients(READERS);
        for reader in &mut readers {
            reader.get("/film");
            assert_eq!(reader.head().length(), Some(BYTES));
            assert_bytes(&reader.take(1024), &whole[..1024]);
        }
        // The kernel buffers some megabytes for each, and then no more.
        world.until_still(|| world.server.counts().sent_bytes);
        let mut quick = world.client();
        for _ in 0..100 {
            assert_eq!(quick.fetch("/quick").text(), "quick");
            let leased = world.objects().leased_bytes;
            assert!(leased <= READERS as u64 * LEASE_BYTES_MAX, "{leased} bytes are leased");
        }
        // One copy of the body is in memory.
        let held = world.objects().bytes - world.objects().free_bytes;
        assert!(held <= (BYTES + (2 << 20)) as u64, "{held} bytes are held");
        for reader in &mut readers {
            assert_bytes(&reader.take(BYTES - 1024), &whole[1024..]);
        }
        assert_eq!(world.origin().answered(), 2);
    });
}

/// A client does not read its private response: the server stops reading from the origin at the
/// window. The rest comes when the client continues.
#[test]
fn behind_a_window() {
    scenario().with(|it| it.window_bytes = 256 << 10).run(|world| {
        let bytes = 24 << 20;
        world
            .origin()
            .answers_by(move |_| answer("200 OK", &["Cache-Control: no-store"], body(bytes)));
        let mut client = world.client();
        client.get("/own");
        client.head();
        let held = || world.objects().bytes - world.objects().free_bytes;
        let received = world.until_still(|| world.server.counts().received_bytes);
        assert!(held() <= 256 << 10, "{} bytes are held", held());
        assert!((1..bytes as u64).contains(&received), "{received} bytes of {bytes}");
        assert_bytes(&client.take(bytes), &body(bytes));
    });
}

/// Connections beyond the limit are closed, and existing ones continue.
#[test]
fn too_many_clients() {
    scenario().with(|it| it.clients_max = 4).run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], pattern(0, 10)));
        let mut clients = world.clients(4);
        clients.iter_mut().for_each(|it| assert_eq!(it.fetch("/").body, pattern(0, 10)));
        let mut beyond = world.client();
        beyond.end();
        clients.iter_mut().for_each(|it| assert_eq!(it.fetch("/").body, pattern(0, 10)));
        drop(clients.pop());
        world.until_counts("one has left", |it| it.clients_open == 3);
        assert_eq!(world.client().fetch("/").body, pattern(0, 10));
    });
}
