//! Clients that leave before they have it all.

use larder_http::options::Abandoned;

use crate::support::{
    Client, Connection, KEPT, Scenario, UNKEPT, World, answer, assert_octets, body, octets,
    scenario,
};

const BYTES: usize = 1 << 20;
const FIRST: usize = 100_000;

/// What may be kept is fetched to its end though nobody reads it any more, and kept.
#[test]
fn what_is_kept_is_finished() {
    for is_reset in [false, true] {
        scenario().loops(&[1, 2]).tell(move |world| {
            let mut client = world.client();
            client.get("/film");
            let mut origin = world.asked("GET /film");
            origin.begins("200 OK", &[KEPT], BYTES);
            origin.send(octets(0, FIRST));
            client.head();
            client.take(FIRST);
            if is_reset {
                client.stop();
            } else {
                drop(client);
            }
            origin.send(octets(FIRST, BYTES - FIRST));
            world.until_counts("it is kept", |it| it.kept == 1 && it.clients_open == 0);
            let kept = world.client().fetch("/film");
            assert!(kept.head.cache_status().contains("hit"), "{kept:?}");
            assert_octets(&kept.body, &body(BYTES));
        });
    }
}

fn by(abandoned: Abandoned) -> Scenario {
    scenario().loops(&[1, 2]).with(move |it| it.abandoned = abandoned)
}

/// A body that may be kept is on its way, its first octets were read, and nobody reads it any more.
fn unread(world: &World, path: &str) -> Connection {
    let mut client = world.client();
    client.get(path);
    let mut origin = world.asked(&format!("GET {path}"));
    origin.begins("200 OK", &[KEPT], BYTES);
    origin.send(octets(0, FIRST));
    client.head();
    client.take(FIRST);
    client.stop();
    world.until_counts("it has left", |it| it.clients_open == 0);
    origin
}

/// By another rule what may be kept is broken off when the last client has left; the next one has it asked for anew.
#[test]
fn what_is_kept_is_dropped() {
    for abandoned in [Abandoned::Drop, Abandoned::FinishUpTo((BYTES - FIRST - 1) as u64)] {
        by(abandoned).tell(|world| {
            let mut origin = unread(world, "/film");
            // It is seen with the next octets.
            origin.send(octets(FIRST, 1));
            world.until_counts("it is broken off", |it| it.fetches_abandoned == 1);
            origin.end();
            let mut next = world.client();
            next.get("/film");
            let mut origin = world.asked("GET /film");
            origin.begins("200 OK", &[KEPT], BYTES);
            origin.send(body(BYTES));
            assert_octets(&next.response().body, &body(BYTES));
            world.until_counts("it is kept", |it| it.kept == 1);
        });
    }
}

/// Where no more is left than the rule allows, or nobody knows how much, it is finished.
#[test]
fn what_is_nearly_whole_is_finished() {
    by(Abandoned::FinishUpTo((BYTES - FIRST) as u64)).tell(|world| {
        let mut origin = unread(world, "/film");
        origin.send(octets(FIRST, BYTES - FIRST));
        world.until_counts("it is kept", |it| it.kept == 1);
        assert_octets(&world.client().fetch("/film").body, &body(BYTES));
    });
    by(Abandoned::FinishUpTo(0)).tell(|world| {
        let mut client = world.client();
        client.get("/stream");
        let mut origin = world.asked("GET /stream");
        origin.begins_chunks("200 OK", &[KEPT]);
        origin.sends_chunk(&octets(0, FIRST));
        client.head();
        client.stop();
        world.until_counts("it has left", |it| it.clients_open == 0);
        origin.sends_chunk(&octets(FIRST, FIRST));
        origin.send("0\r\n\r\n");
        world.until_counts("it is kept", |it| it.kept == 1);
        assert_octets(&world.client().fetch("/stream").body, &body(2 * FIRST));
        assert_eq!(world.server.counts().fetches_abandoned, 0);
    });
}

/// As long as one of several reads it, it comes; and what was asked for without a client is finished by any rule.
#[test]
fn what_somebody_reads_is_finished() {
    by(Abandoned::Drop).tell(|world| {
        let mut first = world.client();
        first.get("/film");
        let mut origin = world.asked("GET /film");
        origin.begins("200 OK", &[KEPT, "ETag: \"a\""], BYTES);
        origin.send(octets(0, FIRST));
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
        origin.send(octets(FIRST, BYTES - FIRST));
        assert_octets(&last.take(BYTES - FIRST), &octets(FIRST, BYTES - FIRST));
        world.until_counts("it is kept", |it| it.kept == 1);

        let stale = "Cache-Control: max-age=0, stale-while-revalidate=600";
        last.get("/page");
        let mut known = vec![origin];
        let mut origin = world.asking_of(&mut known);
        origin.asked("GET /page");
        origin.answers("200 OK", &[stale], "old");
        assert_eq!(last.response().text(), "old");
        assert_eq!(last.fetch("/page").text(), "old");
        known.push(origin);
        let mut origin = world.asking_of(&mut known);
        origin.asked("GET /page");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(octets(0, FIRST));
        origin.send(octets(FIRST, BYTES - FIRST));
        world.until_counts("it is kept too", |it| it.kept == 3);
        assert_octets(&last.fetch("/page").body, &body(BYTES));
        assert_eq!(world.server.counts().fetches_abandoned, 0);
    });
}

/// Who comes just as the last one leaves gets all of it, whether it joins or has it asked for anew, and is never cut off with
/// what is dropped.
#[test]
fn as_the_last_one_leaves() {
    by(Abandoned::Drop).tell(|world| {
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
            assert_octets(&next.response().body, &body(BYTES));
        }
    });
}

/// What is one client's own is of no use when that one has left: the origin's connection is closed.
#[test]
fn what_is_private_is_abandoned() {
    for is_reset in [false, true] {
        scenario().tell(move |world| {
            let mut client = world.client();
            client.get("/own");
            let mut origin = world.asked("GET /own");
            origin.begins("200 OK", &[UNKEPT], 1 << 40);
            origin.send(octets(0, FIRST));
            client.head();
            client.take(FIRST);
            if is_reset {
                client.stop();
                world.until_counts("it is abandoned", |it| it.fetches_abandoned == 1);
            } else {
                drop(client);
            }
            while origin.try_send(octets(FIRST, FIRST)) {}
            world
                .until_counts("nothing is open", |it| it.origins_open == 0 && it.clients_open == 0);
        });
    }
}

/// A client that leaves while others wait with it, before a head came: the others get what they wait for.
#[test]
fn who_asked_first_leaves() {
    scenario().loops(&[1, 2]).tell(|world| {
        let mut first = world.client();
        first.get("/film");
        let mut origin = world.asked("GET /film");
        let mut others = world.clients(4);
        others.iter_mut().for_each(|it| it.get("/film"));
        world.until_counts("all wait", |it| it.collapsed == 4);
        first.stop();
        world.until_counts("one has left", |it| it.clients_open == 4);
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(body(BYTES));
        for other in &mut others {
            assert_octets(&other.response().body, &body(BYTES));
        }
    });
}

/// A client that leaves before a head came: what may be kept is kept, and of what may not the origin's connection is closed.
#[test]
fn before_the_head() {
    scenario().tell(|world| {
        let mut client = world.client();
        client.get("/film");
        let mut origin = world.asked("GET /film");
        client.stop();
        world.until_counts("it has left", |it| it.connections == 1 && it.clients_open == 0);
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(body(BYTES));
        world.until_counts("it is kept", |it| it.kept == 1);
        let mut client = world.client();
        assert_octets(&client.fetch("/film").body, &body(BYTES));
        drop(origin);
        world.until_counts("the connection is gone", |it| it.origins_open == 0);

        client.get("/own");
        let mut origin = world.asked("GET /own");
        client.stop();
        world.until_counts("it has left too", |it| it.connections == 2 && it.clients_open == 0);
        origin.begins("200 OK", &[UNKEPT], BYTES);
        origin.is_closed();
    });
}

/// A client that has sent all that it wants to say may end its side, and gets its answer all the same.
#[test]
fn half_closed() {
    scenario().tell(|world| {
        let mut client = world.client();
        client.get("/film");
        client.finish();
        let mut origin = world.asked("GET /film");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(body(BYTES));
        assert_octets(&client.response().body, &body(BYTES));
        client.end();
    });
}
