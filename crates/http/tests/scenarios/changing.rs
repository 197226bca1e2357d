//! Reloaded settings while the server runs.

use larder_http::options::{Options, OriginAddress};

use crate::support::{End, KEPT, Origin, UNKEPT, World, answer, assert_bytes, pattern, scenario};

const BYTES: usize = 200_000;
const FIRST: usize = 50_000;

/// The current settings, with these origins.
fn with_origins(world: &World, origins: &[&Origin]) -> Options {
    let named = |it: &&Origin| OriginAddress {
        address: it.address,
        name: it.address.to_string(),
        is_secure: false,
    };
    let origins = origins.iter().map(named).collect();
    Options { origins, ..(*world.server.options()).clone() }
}

/// A reload replaces the origin. The old one completes its responses, client connections stay, and
/// later requests go to the new one. Headers read before stay valid, though larger than the new
/// limit.
#[test]
fn origins() {
    scenario().origins(2).with(|it| it.origins.truncate(1)).loops(&[1, 2]).run(|world| {
        let [mut reading, mut joined, mut waiting, mut idle] =
            std::array::from_fn(|_| world.client());
        reading.get("/film");
        let mut film = world.receive("GET /film");
        film.begins("200 OK", &[KEPT], BYTES);
        film.send(pattern(0, FIRST));
        joined.get("/film");
        let long = format!("X-Long: {}", "x".repeat(2_000));
        waiting.request("GET", "/own", &[&long]);
        let mut own = world.receive("GET /own");
        idle.get("/a");
        let mut unused = world.receive("GET /a");
        unused.answers("200 OK", &[UNKEPT], "a");
        assert_eq!(idle.response().text(), "a");

        let mut options = with_origins(world, &[world.origin_at(1)]);
        options.limits.head_bytes_max = 1_024;
        world.server.replace(options).unwrap();
        assert_eq!(unused.end(), End::Clean, "it is of no use any more");
        idle.get("/b");
        let mut other = world.origin_at(1).receive("GET /b");
        other.answers("200 OK", &[UNKEPT], "b");
        assert_eq!(idle.response().text(), "b");
        own.answers("200 OK", &[UNKEPT], "own");
        assert_eq!(waiting.response().text(), "own");
        assert_eq!(own.end(), End::Clean);
        film.send(pattern(FIRST, BYTES - FIRST));
        for reader in [&mut reading, &mut joined] {
            reader.head();
            assert_bytes(&reader.take(BYTES), &pattern(0, BYTES));
        }
        assert_eq!(film.end(), End::Clean);
        world.until_counts("the film is kept", |it| it.kept == 1);
        // All connections are still open, and one request now exceeds the limit.
        for client in [&mut reading, &mut joined, &mut idle] {
            assert!(client.fetch("/film").head.cache_status().contains("hit"));
        }
        waiting.request("GET", "/film", &[&long]);
        waiting.is_refused(431);
    });
}

/// A request that waits for a connection to a removed origin gets one to the other. Invariant 2 of
/// `origins`.
#[test]
fn queues() {
    let one = |it: &mut Options| {
        it.origins.truncate(1);
        it.origin_connections_max = 1;
    };
    scenario().origins(2).with(one).run(|world| {
        let (mut first, mut second) = (world.client(), world.client());
        first.get("/a");
        let mut busy = world.receive("GET /a");
        second.get("/b");
        world.until_counts("both are there", |it| it.requests == 2);
        world.server.replace(with_origins(world, &[world.origin_at(1)])).unwrap();
        world.origin_at(1).receive("GET /b").answers("200 OK", &[UNKEPT], "b");
        assert_eq!(second.response().text(), "b");
        busy.answers("200 OK", &[UNKEPT], "a");
        assert_eq!(first.response().text(), "a");
    });
}

/// Origins change many times. Requests always go to the current ones in turn, and there are no
/// connections to others.
#[test]
fn many_times() {
    scenario().origins(3).run(|world| {
        for at in 0..3 {
            world.origin_at(at).answers_by(move |_| answer("200 OK", &[UNKEPT], at.to_string()));
        }
        let mut client = world.client();
        for round in 0..20_usize {
            let there: Vec<usize> = (0..3).filter(|at| ((round % 7 + 1) >> at) & 1 == 1).collect();
            let origins: Vec<&Origin> = there.iter().map(|&at| world.origin_at(at)).collect();
            world.server.replace(with_origins(world, &origins)).unwrap();
            let mut found: Vec<usize> =
                (0..there.len()).map(|_| client.fetch("/a").text().parse().unwrap()).collect();
            found.sort_unstable();
            assert_eq!(found, there, "round {round}");
            let count = there.len() as u64;
            world.until_counts("the others are closed", |it| it.origins_open == count);
        }
    });
}
