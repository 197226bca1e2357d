//! Clients that disconnect before their response is complete.

use larder_http::options::Abandoned;

use crate::support::{
    Client, Connection, KEPT, Scenario, UNKEPT, World, answer, assert_bytes, body, pattern,
    scenario,
};

const BYTES: usize = 1 << 20;
const FIRST: usize = 100_000;

/// A cacheable response is fetched to its end and cached, though no client reads it any more.
#[test]
fn what_is_kept_is_finished() {
    for is_reset in [false, true] {
        scenario().loops(&[1, 2]).run(move |world| {
            let mut client = world.client();
            client.get("/film");
            let mut origin = world.receive("GET /film");
            origin.begins("200 OK", &[KEPT], BYTES);
            origin.send(pattern(0, FIRST));
            client.head();
            client.take(FIRST);
            if is_reset {
                client.stop();
            } else {
                drop(client);
            }
            origin.send(pattern(FIRST, BYTES - FIRST));
            world.until_counts("it is kept", |it| it.kept == 1 && it.clients_open == 0);
            let kept = world.client().fetch("/film");
            assert!(kept.head.cache_status().contains("hit"), "{kept:?}");
            assert_bytes(&kept.body, &body(BYTES));
        });
    }
}

fn by(abandoned: Abandoned) -> Scenario {
    scenario().loops(&[1, 2]).with(move |it| it.abandoned = abandoned)
}

/// A cacheable body is in transit, a client has read its first bytes, and no client reads it any
/// more.
fn unread(world: &World, path: &str) -> Connection {
    let mut client = world.client();
    client.get(path);
    let mut origin = world.receive(&format!("GET {path}"));
    origin.begins("200 OK", &[KEPT], BYTES);
    origin.send(pattern(0, FIRST));
    client.head();
    client.take(FIRST);
    client.stop();
    world.until_counts("it has left", |it| it.clients_open == 0);
    origin
}

/// With another setting, a cacheable fetch is aborted when the last client has disconnected; the
/// next one causes a new fetch.
#[test]
fn what_is_kept_is_dropped() {
    for abandoned in [Abandoned::Drop, Abandoned::FinishUpTo((BYTES - FIRST - 1) as u64)] {
        by(abandoned).run(|world| {
            let mut origin = unread(world, "/film");
            // The server notices with the next bytes.
            origin.send(pattern(FIRST, 1));
            world.until_counts("it is broken off", |it| it.fetches_abandoned == 1);
            origin.end();
            let mut next = world.client();
            next.get("/film");
            let mut origin = world.receive("GET /film");
            origin.begins("200 OK", &[KEPT], BYTES);
            origin.send(body(BYTES));
            assert_bytes(&next.response().body, &body(BYTES));
            world.until_counts("it is kept", |it| it.kept == 1);
        });
    }
}

/// If no more remains than the setting allows, or the length is unknown, the fetch is finished.
#[test]
fn what_is_nearly_whole_is_finished() {
    by(Abandoned::FinishUpTo((BYTES - FIRST) as u64)).run(|world| {
        let mut origin = unread(world, "/film");
        origin.send(pattern(FIRST, BYTES - FIRST));
        world.until_counts("it is kept", |it| it.kept == 1);
        assert_bytes(&world.client().fetch("/film").body, &body(BYTES));
    });
    by(Abandoned::FinishUpTo(0)).run(|world| {
        let mut client = world.client();
        client.get("/stream");
        let mut origin = world.receive("GET /stream");
        origin.begins_chunks("200 OK", &[KEPT]);
        origin.sends_chunk(&pattern(0, FIRST));
        client.head();
        client.stop();
        world.until_counts("it has left", |it| it.clients_open == 0);
        origin.sends_chunk(&pattern(FIRST, FIRST));
        origin.send("0\r\n\r\n");
        world.until_counts("it is kept", |it| it.kept == 1);
        assert_bytes(&world.client().fetch("/stream").body, &body(2 * FIRST));
        assert_eq!(world.server.counts().fetches_abandoned, 0);
    });
}

/// While one of several clients reads it, a fetch continues. A fetch without a client is finished
/// under any setting.
#[test]
fn what_somebody_reads_is_finished() {
    by(Abandoned::Drop).run(|world| {
        let mut first = world.client();
        first.get("/film");
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &[KEPT, "ETag: \"a\""], BYTES);
        origin.send(pattern(0, FIRST));
        first.head();
        let mut others = world.clients(6);
        for other in &mut others {
            other.get("/film");
            other.head();
            other.take(FIRST);
        }
        let mut last = others.pop().unwrap();
        first.stop();
        others.into_iter().for_each(Client::stop);
        world.until_counts("one is left", |it| it.clients_open == 1);
        origin.send(pattern(FIRST, BYTES - FIRST));
        assert_bytes(&last.take(BYTES - FIRST), &pattern(FIRST, BYTES - FIRST));
        world.until_counts("it is kept", |it| it.kept == 1);

        let stale = "Cache-Control: max-age=0, stale-while-revalidate=600";
        last.get("/page");
        let mut known = vec![origin];
        let mut origin = world.with_request(&mut known);
        origin.receive("GET /page");
        origin.answers("200 OK", &[stale], "old");
        assert_eq!(last.response().text(), "old");
        assert_eq!(last.fetch("/page").text(), "old");
        known.push(origin);
        let mut origin = world.with_request(&mut known);
        origin.receive("GET /page");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(pattern(0, FIRST));
        origin.send(pattern(FIRST, BYTES - FIRST));
        world.until_counts("it is kept too", |it| it.kept == 3);
        assert_bytes(&last.fetch("/page").body, &body(BYTES));
        assert_eq!(world.server.counts().fetches_abandoned, 0);
    });
}

/// A client that connects just as the last one disconnects gets the complete body, by a join or a
/// new fetch. An aborted fetch never cuts it off.
#[test]
fn as_the_last_one_leaves() {
    by(Abandoned::Drop).run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], body(BYTES)));
        for number in 0..100 {
            let path = format!("/film/{number}");
            let (mut first, mut next) = (world.client(), world.client());
            first.get(&path);
            first.head();
            if number % 2 == 0 {
                next.get(&path);
                first.stop();
            } else {
                first.stop();
                next.get(&path);
            }
            assert_bytes(&next.response().body, &body(BYTES));
        }
    });
}

/// A private response is useless when its client has disconnected: the origin's connection is
/// closed.
#[test]
fn what_is_private_is_abandoned() {
    for is_reset in [false, true] {
        scenario().run(move |world| {
            let mut client = world.client();
            client.get("/own");
            let mut origin = world.receive("GET /own");
            origin.begins("200 OK", &[UNKEPT], 1 << 40);
            origin.send(pattern(0, FIRST));
            client.head();
            client.take(FIRST);
            if is_reset {
                client.stop();
                world.until_counts("it is abandoned", |it| it.fetches_abandoned == 1);
            } else {
                drop(client);
            }
            while origin.try_send(pattern(FIRST, FIRST)) {}
            world
                .until_counts("nothing is open", |it| it.origins_open == 0 && it.clients_open == 0);
        });
    }
}

/// A client disconnects while others wait with it for the headers: the others get their response.
#[test]
fn the_first_client_leaves() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut first = world.client();
        first.get("/film");
        let mut origin = world.receive("GET /film");
        let mut others = world.clients(4);
        others.iter_mut().for_each(|it| it.get("/film"));
        world.until_counts("all wait", |it| it.collapsed == 4);
        first.stop();
        world.until_counts("one has left", |it| it.clients_open == 4);
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(body(BYTES));
        for other in &mut others {
            assert_bytes(&other.response().body, &body(BYTES));
        }
    });
}

/// A client disconnects before the headers came. A cacheable response is cached; for another one
/// the origin's connection is closed.
#[test]
fn before_the_head() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/film");
        let mut origin = world.receive("GET /film");
        client.stop();
        world.until_counts("it has left", |it| it.connections == 1 && it.clients_open == 0);
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(body(BYTES));
        world.until_counts("it is kept", |it| it.kept == 1);
        let mut client = world.client();
        assert_bytes(&client.fetch("/film").body, &body(BYTES));
        drop(origin);
        world.until_counts("the connection is gone", |it| it.origins_open == 0);

        client.get("/own");
        let mut origin = world.receive("GET /own");
        client.stop();
        world.until_counts("it has left too", |it| it.connections == 2 && it.clients_open == 0);
        origin.begins("200 OK", &[UNKEPT], BYTES);
        origin.is_closed();
    });
}

/// A client that has shut down its sending direction still gets its response.
#[test]
fn half_closed() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/film");
        client.finish();
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(body(BYTES));
        assert_bytes(&client.response().body, &body(BYTES));
        client.end();
    });
}

/// Requests to a slow origin, each of another client that resets its connection once all the
/// origin's connections are in use.
const RESETS: usize = 100;
/// Connections to the origin.
const CONNECTIONS: usize = 4;

/// With few connections to the origin, on one event loop.
fn by_few(abandoned: Abandoned) -> Scenario {
    scenario().with(move |it| {
        it.abandoned = abandoned;
        it.origin_connections_max = CONNECTIONS;
    })
}

/// Clients send requests without a response, all at once, and disconnect before any headers have
/// come.
fn rush(world: &World, request: impl Fn(&mut Client, usize)) {
    let mut clients = world.clients(RESETS);
    for (number, client) in clients.iter_mut().enumerate() {
        request(client, number);
    }
    let requested = RESETS as u64;
    world.until_counts("all have asked", |it| it.misses + it.passed >= requested);
    world.until_counts("connections are taken", |it| it.origins_open == CONNECTIONS as u64);
    clients.into_iter().for_each(Client::stop);
    world.until_counts("they have left", |it| it.clients_open == 0);
}

/// The connection with this request, and the earlier ones, with other requests.
fn request_after(world: &World, line: &str) -> (Vec<Connection>, Connection) {
    let mut before = Vec::new();
    loop {
        let mut connection = world.origin().accept();
        match connection.try_head() {
            Some(head) if head.line.starts_with(line) => return (before, connection),
            Some(_) => before.push(connection),
            None => {}
        }
    }
}

/// The server does not wait for private responses after their clients have disconnected. However
/// many do, no connection to the origin remains, and the next client is served at once.
#[test]
fn private_resets_hold_nothing() {
    by_few(Abandoned::Finish).run(|world| {
        let rests = || world.until_counts("no connection is held", |it| it.origins_open == 0);
        rush(world, |client, number| {
            client.request("POST", &format!("/slow/{number}"), &["Content-Length: 1"]);
            client.send(if number % 2 == 0 { "x" } else { "" });
        });
        rests();

        // The object is known to be uncacheable.
        let mut client = world.client();
        client.get("/own");
        let (_, mut origin) = request_after(world, "GET /own");
        origin.answers("200 OK", &[UNKEPT, "Connection: close"], "own");
        assert_eq!(client.response().text(), "own");
        drop((origin, client));
        let before = world.server.counts().passed;
        let mut clients = world.clients(RESETS);
        clients.iter_mut().for_each(|it| it.get("/own"));
        let all = before + RESETS as u64;
        world.until_counts("all have asked", |it| it.passed == all);
        clients.into_iter().for_each(Client::stop);
        rests();

        let mut client = world.client();
        client.get("/page");
        let (_, mut origin) = request_after(world, "GET /page");
        origin.answers("200 OK", &[KEPT], "page");
        assert_eq!(client.response().text(), "page");
        assert_eq!(world.server.counts().queue_full, 0);
    });
}

/// Of cacheable fetches without a client, the newest continue on half of the origin's connections.
/// With another setting none continues, or all do. The next client is served at once, or joins a
/// fetch.
#[test]
fn shared_resets_hold_half() {
    let rules = [(Abandoned::FinishUpTo(1 << 20), CONNECTIONS / 2), (Abandoned::Drop, 0)];
    for (abandoned, held) in rules {
        by_few(abandoned).run(move |world| {
            rush(world, |client, number| client.get(&format!("/slow/{number}")));
            world.until_counts("few are held", |it| it.origins_open == held as u64);
            assert_eq!(world.server.store().flights.len(), held);
            let mut client = world.client();
            client.get("/page");
            let (mut slow, mut origin) = request_after(world, "GET /page");
            origin.answers("200 OK", &[KEPT, "Connection: close"], "page");
            assert_eq!(client.response().text(), "page");

            slow.retain_mut(|it| !it.has_news());
            assert_eq!(slow.len(), held, "the others were closed");
            for mut origin in slow {
                origin.answers("200 OK", &[KEPT], "slow");
            }
            let kept = 1 + held as u64;
            world.until_counts("it is kept", |it| it.kept == kept);
        });
    }
    by_few(Abandoned::Finish).run(|world| {
        let mut clients = world.clients(CONNECTIONS);
        for (number, client) in clients.iter_mut().enumerate() {
            client.get(&format!("/slow/{number}"));
        }
        let mut slow: Vec<Connection> = clients.iter().map(|_| world.origin().accept()).collect();
        clients.into_iter().for_each(Client::stop);
        world.until_counts("they have left", |it| it.connections == 4 && it.clients_open == 0);
        for origin in &mut slow {
            origin.head();
            origin.answers("200 OK", &[KEPT], "slow");
        }
        world.until_counts("all are kept", |it| it.kept == CONNECTIONS as u64);
    });
}

/// A client may disconnect before the response to its unsafe request. The origin may have made the
/// change, so the cached response is invalidated.
#[test]
fn what_was_changed_is_forgotten() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut client = world.client();
        client.get("/page");
        let mut origin = world.receive("GET /page");
        origin.answers("200 OK", &[KEPT, "Connection: close"], "old");
        assert_eq!(client.response().text(), "old");
        drop(origin);
        let mut changes = world.client();
        changes.request("POST", "/page", &["Content-Length: 0"]);
        let mut origin = world.receive("POST /page");
        changes.stop();
        origin.is_closed();
        client.get("/page");
        let mut origin = world.receive("GET /page");
        origin.answers("200 OK", &[KEPT], "new");
        assert_eq!(client.response().text(), "new");
    });
}

/// The last of several waiting clients disconnects, on any event loop: their fetch is aborted, and
/// a later client causes a new one.
#[test]
fn the_last_who_waits_leaves() {
    by(Abandoned::Drop).run(|world| {
        let mut clients = world.clients(6);
        clients[0].get("/film");
        let mut origin = world.receive("GET /film");
        clients[1..].iter_mut().for_each(|it| it.get("/film"));
        world.until_counts("all wait", |it| it.collapsed == 5);
        clients.into_iter().for_each(Client::stop);
        origin.is_closed();
        let mut next = world.client();
        next.get("/film");
        let mut origin = world.receive("GET /film");
        origin.answers("200 OK", &[KEPT], "film");
        assert_eq!(next.response().text(), "film");
        world.until_counts("one was broken off", |it| it.fetches_abandoned == 1);
    });
}
