//! The generator against servers that do well, and servers that do not. Waits are bounded by the load's
//! own end.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::net::Served;
use crate::net::echo::echo;
use crate::net::relay::relay;

fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
    let address = socket.local_address().unwrap();
    (socket, address)
}

/// A load that ends with its queries, and in any case after a while.
fn short(server: SocketAddr) -> LoadOptions {
    LoadOptions {
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(20),
        lost_after: Duration::from_secs(20),
        in_flight_max: 32,
        batch: 8,
        ..LoadOptions::new(server)
    }
}

/// Queries of ten bytes, numbered, `count` of them.
fn numbered(count: u64) -> impl FnMut(u16, &mut [u8]) -> Option<Query> {
    let mut number = 0u64;
    move |id, room| {
        number += 1;
        room[..2].copy_from_slice(&id.to_be_bytes());
        room[2..10].copy_from_slice(&number.to_be_bytes());
        (number <= count).then_some(Query { length: 10, tag: number })
    }
}

fn repeats(tag: u64, answer: &[u8]) -> bool {
    answer.get(2..10) == Some(&tag.to_be_bytes())
}

/// Runs a server and a load at the same time.
fn with_load<S: Send>(
    server: impl FnOnce(&AtomicBool) -> S + Send,
    load: impl FnOnce() -> Load,
) -> (S, Load) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| server(&stop));
        let load = load();
        stop.store(true, Ordering::Relaxed);
        (server.join().unwrap(), load)
    })
}

/// An echo answers every query of several sockets, and each answer is matched, checked and timed.
#[test]
fn every_answer_is_counted() {
    let (socket, address) = bound();
    let options = LoadOptions { sockets: 3, ..short(address) };
    let (served, load) = with_load(
        |stop| echo(&socket, 8, |_| 120, stop).unwrap(),
        || load(&options, numbered(1000), repeats).unwrap(),
    );
    assert_eq!(
        (load.answers, load.sent, load.wrong, load.unexpected, load.lost),
        (1000, 1000, 0, 0, 0)
    );
    assert_eq!((load.latency.count(), served.answers), (1000, 1000));
    assert!(served.rounds >= 1000 / 8 && served.rounds <= 1000);
    assert!(load.latency.percentile(0.5) <= load.latency.max());
    assert!(load.answers_per_s() > 0.0);
}

/// A relay gives each client its own answers, under its own IDs.
#[test]
fn a_relay_is_transparent() {
    let (upstream, upstream_at) = bound();
    let (socket, address) = bound();
    let options = LoadOptions { sockets: 3, ..short(address) };
    let ((echoed, relayed), load) = with_load(
        |stop| {
            std::thread::scope(|scope| {
                let echo = scope.spawn(|| echo(&upstream, 8, |_| 100, stop).unwrap());
                let relayed = relay(&socket, upstream_at, 8, stop).unwrap();
                (echo.join().unwrap(), relayed)
            })
        },
        || load(&options, numbered(1000), repeats).unwrap(),
    );
    assert_eq!((load.answers, load.wrong, load.unexpected, load.lost), (1000, 0, 0, 0));
    assert_eq!((echoed.answers, relayed.answers), (1000, 1000));
}

/// A server whose every fourth answer is missing, every fourth twice, and every fourth false is recognized
/// from one that answers: what is missing or false is given up, and nothing hangs. Invariant 1.
#[test]
fn bad_servers_are_found_out() {
    let (socket, address) = bound();
    // All under way at once, so that the lost ones are waited for once.
    let lost_after = Duration::from_secs(2);
    let options = LoadOptions { lost_after, in_flight_max: 200, ..short(address) };
    let serve = |stop: &AtomicBool| {
        socket.as_std().set_nonblocking(false).unwrap();
        socket.as_std().set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut bytes = [0; 100];
        while !stop.load(Ordering::Relaxed) {
            let Ok((length, peer)) = socket.as_std().recv_from(&mut bytes) else { continue };
            let send = |bytes: &[u8]| {
                socket.as_std().send_to(bytes, peer).unwrap();
            };
            match bytes[9] % 4 {
                0 => {}
                1 => (0..2).for_each(|_| send(&bytes[..length])),
                2 => send(&[bytes[0], bytes[1], 9, 9]),
                _ => send(&bytes[..length]),
            }
        }
        Served::default()
    };
    let (_, load) = with_load(serve, || load(&options, numbered(200), repeats).unwrap());
    assert_eq!((load.sent, load.answers, load.lost, load.wrong), (200, 100, 100, 50));
    // The last second answers may come after the end.
    assert!((1..=50).contains(&load.unexpected), "{}", load.unexpected);
}

/// Nobody is there: refusals are counted, everything is given up, and the load ends.
#[test]
fn nobody_is_there() {
    let (socket, address) = bound();
    drop(socket);
    let options = LoadOptions { lost_after: Duration::from_millis(50), ..short(address) };
    let load = load(&options, numbered(40), repeats).unwrap();
    assert_eq!((load.answers, load.sent, load.lost), (0, 40, 40));
    assert!(load.refused > 0);
}

/// An open load sends by its clock: the last of a hundred queries is sent no sooner than it is due, however
/// fast answers come.
#[test]
fn an_open_load_keeps_its_rate() {
    let (socket, address) = bound();
    let options = LoadOptions { rate_per_s: Some(1000), ..short(address) };
    let start = Instant::now();
    let (_, load) = with_load(
        |stop| echo(&socket, 8, |length| length, stop).unwrap(),
        || load(&options, numbered(100), repeats).unwrap(),
    );
    assert!(start.elapsed() >= Duration::from_millis(99), "{:?}", start.elapsed());
    assert_eq!((load.sent, load.answers, load.wrong, load.lost), (100, 100, 0, 0));
}
