//! Clients that leave before they have it all.

use crate::support::{KEPT, UNKEPT, assert_octets, body, octets, scenario};

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
