//! What UDP allows on this machine: a bare echo and a bare relay, by batch size, under a checked load.
//!
//! ```text
//! cargo run --release -p larder-bench --example udp_limits [-- --rounds 7 --seconds 2]
//! ```
//!
//! The server runs on one core; the generator, and for the relay its upstream, on another; all in a network
//! of their own, on loopback. Contestants take turns in every round, beginning with another one each time.
//! A line is medians of rounds. "a server second" divides answers by the time that the server's thread ran:
//! the figure to compare, since the two cores need not be the two programs' alone. The others are by the clock.
//!
//! Questions are 36 bytes, as `name12345.example` in DNS would be, and answers 120.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use larder_bench::net::echo::echo;
use larder_bench::net::load::{Load, LoadOptions, Query, load};
use larder_bench::net::relay::relay;
use larder_bench::net::{SOCKET_BUFFER_BYTES, Served};
use larder_bench::sample::Median;
use larder_io::cores::{available_cores, pin_to_core};
use larder_io::netns::enter_private_network;
use larder_io::udp::{UdpOptions, UdpSocket};

const QUERY_BYTES: usize = 36;
const ANSWER_BYTES: usize = 120;
const BATCHES: [usize; 4] = [1, 8, 32, 64];

/// What the server does.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Answers by itself, bound to the address that is asked.
    Echo,
    /// The same, bound to the wildcard address: each message is received and sent with our address.
    Wildcard,
    /// Asks an upstream.
    Relay,
}

/// What is measured: a kind of server, and its batch size.
#[derive(Clone, Copy)]
struct Contestant {
    batch: usize,
    kind: Kind,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (rounds, seconds) = arguments()?;
    let cores = available_cores()?;
    let (Some(&server_core), Some(&load_core)) = (cores.first(), cores.get(1)) else {
        eprintln!("SKIP udp_limits: one core only");
        return Ok(());
    };
    if let Err(error) = enter_private_network() {
        eprintln!("SKIP udp_limits: no private network: {error}");
        return Ok(());
    }
    let contestants: Vec<Contestant> = [Kind::Echo, Kind::Wildcard, Kind::Relay]
        .into_iter()
        .flat_map(|kind| BATCHES.map(|batch| Contestant { batch, kind }))
        .collect();
    let mut rows: Vec<Vec<[f64; 8]>> = vec![Vec::new(); contestants.len()];
    for round in 0..rounds {
        for turn in 0..contestants.len() {
            let index = (turn + round) % contestants.len();
            let (served, load) = measure(contestants[index], server_core, load_core, seconds)?;
            rows[index].push(figures(&served, &load)?);
        }
    }
    println!(
        "{:<10}{:>6}{:>12}{:>16}{:>12}{:>10}{:>10}{:>10}{:>8}{:>18}",
        "server",
        "batch",
        "answers/s",
        "a server second",
        "load us/q",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "lost",
        "answers a round"
    );
    for (contestant, rows) in contestants.iter().zip(&rows) {
        let median = |column: usize| {
            Median::of(&rows.iter().map(|row| row[column]).collect::<Vec<f64>>()).value
        };
        println!(
            "{:<10}{:>6}{:>12.0}{:>16.0}{:>12.2}{:>10.0}{:>10.0}{:>10.0}{:>8.0}{:>18.1}",
            match contestant.kind {
                Kind::Echo => "echo",
                Kind::Wildcard => "wildcard",
                Kind::Relay => "relay",
            },
            contestant.batch,
            median(0),
            median(1),
            median(2),
            median(3),
            median(4),
            median(5),
            median(6),
            median(7),
        );
    }
    Ok(())
}

/// `--rounds` and `--seconds`.
fn arguments() -> Result<(usize, f64), Box<dyn Error>> {
    let (mut rounds, mut seconds) = (7, 2.0);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("a flag without its value")?;
        match name.as_str() {
            "--rounds" => rounds = value.parse()?,
            "--seconds" => seconds = value.parse()?,
            _ => return Err(format!("{name}: there are --rounds and --seconds").into()),
        }
    }
    Ok((rounds, seconds))
}

/// A row's figures; an error where the server answered wrongly.
fn figures(served: &Served, load: &Load) -> Result<[f64; 8], Box<dyn Error>> {
    if load.wrong > 0 || load.answers == 0 {
        return Err(format!("{} wrong answers, {} right ones", load.wrong, load.answers).into());
    }
    let us = |share| load.latency.percentile(share) as f64 / 1e3;
    Ok([
        load.answers_per_s(),
        served.answers as f64 / served.ran_ns * 1e9,
        load.ran_ns / load.sent as f64 / 1e3,
        us(0.5),
        us(0.99),
        us(0.999),
        load.lost as f64,
        served.answers as f64 / served.rounds as f64,
    ])
}

fn measure(
    contestant: Contestant,
    server_core: usize,
    load_core: usize,
    seconds: f64,
) -> Result<(Served, Load), Box<dyn Error>> {
    let here = Ipv4Addr::LOCALHOST;
    let own = if contestant.kind == Kind::Wildcard { Ipv4Addr::UNSPECIFIED } else { here };
    let (socket, port) = bound(own)?;
    let (upstream, upstream_port) = bound(here)?;
    let upstream_at = SocketAddr::from((here, upstream_port));
    let stop = AtomicBool::new(false);
    let batch = contestant.batch;
    let options = LoadOptions {
        warm_up: Duration::from_secs_f64(seconds / 4.0),
        measured: Duration::from_secs_f64(seconds),
        ..LoadOptions::new(SocketAddr::from((here, port)))
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            pin_to_core(server_core)?;
            match contestant.kind {
                Kind::Relay => relay(&socket, upstream_at, batch, &stop),
                _ => echo(&socket, batch, |_| ANSWER_BYTES, &stop),
            }
        });
        let upstream = scope.spawn(|| {
            pin_to_core(load_core)?;
            echo(&upstream, 64, |_| ANSWER_BYTES, &stop)
        });
        let generator = scope.spawn(|| {
            pin_to_core(load_core)?;
            let mut number = 0u64;
            load(
                &options,
                |id, room| {
                    number += 1;
                    room[..QUERY_BYTES].fill(b'n');
                    room[..2].copy_from_slice(&id.to_be_bytes());
                    room[2..10].copy_from_slice(&number.to_be_bytes());
                    Some(Query { length: QUERY_BYTES, tag: number })
                },
                |tag, answer| {
                    answer.len() == ANSWER_BYTES && answer.get(2..10) == Some(&tag.to_be_bytes())
                },
            )
        });
        let loaded = generator.join();
        stop.store(true, Ordering::Relaxed);
        let (served, echoed) = (server.join(), upstream.join());
        let died = |_| io::Error::other("a thread died");
        echoed.map_err(died)??;
        Ok((served.map_err(died)??, loaded.map_err(died)??))
    })
}

/// A socket with room for every question in flight, and its port.
fn bound(address: Ipv4Addr) -> io::Result<(UdpSocket, u16)> {
    let options = UdpOptions {
        receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        ..UdpOptions::default()
    };
    let socket = UdpSocket::bind(SocketAddr::from((address, 0)), &options)?;
    let port = socket.local_address()?.port();
    Ok((socket, port))
}
