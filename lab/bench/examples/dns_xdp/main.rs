//! `larder dns` by sockets and by AF_XDP, over the same veth pair.
//!
//! ```text
//! cargo build --release -p larder-cli --features xdp
//! cargo run --release -p larder-bench --features xdp --example dns_xdp [-- --larder target/release/larder --rounds 7 --seconds 2 --apart false]
//! ```
//!
//! ```text
//! network of the server, core 0      |      network of the load, core 1
//! larder dns, sockets or --xdp s0 -- s0 ==== c0 -- upstream; questions by sockets or by frames
//! ```
//!
//! Contestants take turns in every round, beginning with another one each time. The server is started again for each
//! turn, since a program at its end of the pair would cost sockets too; it is asked every name once, and then measured.
//!
//! What counts is answers a second of its core: all that core 0 ran, the kernel's own threads included, divided by.
//! The load's core is often the narrower one, so answers by the clock say less. Questions that leave by frames cost
//! the load least.
//!
//! What the server sends is taken in at the other end by the server's core, since that is how a veth pair works: half
//! of the time that an answer by XDP takes is that. With `--apart true` a thread of the kernel on the load's core does
//! it, as another machine would.
//!
//! Needs root and two cores. The networks are removed at the end.

mod frames;
mod testbed;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use larder_bench::dns::query::{self, FRESH_FROM, Mix};
use larder_bench::dns::stub::{StubCounts, StubOptions, stub};
use larder_bench::net::load::{LoadOptions, load};
use larder_bench::sample::Median;
use larder_io::udp::{UdpOptions, UdpSocket};

use frames::Frames;
use testbed::{Server, Span, Testbed};

/// Names that are asked.
const NAMES: u32 = 512;
/// Questions under way.
const IN_FLIGHT: usize = 1024;
/// A question without an answer is given up after this.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// How long a load runs before answers are counted.
const WARM_UP: Duration = Duration::from_millis(300);
/// Where the server is asked, the upstream answers, and frames are sent from.
pub const SERVER: &str = "10.99.0.1:5300";
const UPSTREAM: &str = "10.99.0.2:5301";
const CLIENT: &str = "10.99.0.2:40000";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How the server listens, and how it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contestant {
    by_xdp: bool,
    asked_by_frames: bool,
}

/// What a turn gave.
#[derive(Debug, Clone, Copy)]
struct Figures {
    per_core_s: f64,
    per_s: f64,
    /// Share of the turn that the server's core was at work.
    busy: f64,
    p50_us: f64,
    p99_us: f64,
    lost: f64,
    /// Answers that came after their question was given up.
    late: f64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut rounds, mut seconds, mut is_apart) = (7, 2.0, false);
    let mut larder = PathBuf::from("target/release/larder");
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("a flag without its value")?;
        match name.as_str() {
            "--rounds" => rounds = value.parse()?,
            "--seconds" => seconds = value.parse()?,
            "--larder" => larder = value.into(),
            "--apart" => is_apart = value.parse()?,
            _ => {
                return Err(
                    format!("{name}: there are --larder, --rounds, --seconds, --apart").into()
                );
            }
        }
    }
    run(&larder.canonicalize()?, rounds, seconds, is_apart)
}

fn run(larder: &std::path::Path, rounds: usize, seconds: f64, is_apart: bool) -> Result<()> {
    let testbed = Testbed::new(is_apart)?;
    let all = [(false, true), (true, true), (false, false), (true, false)];
    // Without a program at the load's end there is no thread that could be apart.
    let all = &all[..if is_apart { 2 } else { 4 }];
    let contestant = |&(by_xdp, asked_by_frames)| Contestant { by_xdp, asked_by_frames };
    let all: Vec<Contestant> = all.iter().map(contestant).collect();
    let mut rows: Vec<Vec<Figures>> = vec![Vec::new(); all.len()];
    for round in 0..rounds {
        for turn in 0..all.len() {
            let at = (turn + round) % all.len();
            let figures = measure(&testbed, larder, all[at], seconds)?;
            eprintln!("{round} {:?} {figures:?}", all[at]);
            rows[at].push(figures);
        }
    }
    println!(
        "{:<10}{:<10}{:>16}{:>22}{:>12}{:>8}{:>9}{:>9}{:>7}{:>7}",
        "server",
        "asked by",
        "a core second",
        "(lowest, highest)",
        "a second",
        "busy",
        "p50 us",
        "p99 us",
        "lost",
        "late"
    );
    for (contestant, rows) in all.iter().zip(&rows) {
        let median =
            |of: fn(&Figures) -> f64| Median::of(&rows.iter().map(of).collect::<Vec<f64>>());
        let per_core_s = median(|row| row.per_core_s);
        println!(
            "{:<10}{:<10}{:>16.0}{:>22}{:>12.0}{:>7.0}%{:>9.0}{:>9.0}{:>7.0}{:>7.0}",
            if contestant.by_xdp { "xdp" } else { "sockets" },
            if contestant.asked_by_frames { "frames" } else { "sockets" },
            per_core_s.value,
            format!("({:.0}, {:.0})", per_core_s.low, per_core_s.high),
            median(|row| row.per_s).value,
            median(|row| row.busy).value * 100.0,
            median(|row| row.p50_us).value,
            median(|row| row.p99_us).value,
            median(|row| row.lost).value,
            median(|row| row.late).value,
        );
    }
    for (at, by) in [(0, "frames"), (2, "sockets")].into_iter().filter(|(at, _)| *at < all.len()) {
        let of =
            |rows: &[Figures], of: fn(&Figures) -> f64| rows.iter().map(of).collect::<Vec<f64>>();
        for (what, get) in [
            ("a core second", (|row: &Figures| row.per_core_s) as fn(&Figures) -> f64),
            ("a second", |row| row.per_s),
        ] {
            let ratio = Median::of_ratios(&of(&rows[at + 1], get), &of(&rows[at], get));
            println!(
                "xdp / sockets, asked by {by}, answers {what}: {:.2} ({:.2} to {:.2}, {} rounds)",
                ratio.value, ratio.low, ratio.high, ratio.runs
            );
        }
    }
    Ok(())
}

/// One turn of one contestant.
fn measure(
    testbed: &Testbed,
    larder: &std::path::Path,
    contestant: Contestant,
    seconds: f64,
) -> Result<Figures> {
    let server = Server::start(testbed, larder, contestant.by_xdp)?;
    let upstream = UdpSocket::bind(UPSTREAM.parse()?, &UdpOptions::default())?;
    let (stop, counts) = (AtomicBool::new(false), StubCounts::default());
    thread::scope(|scope| {
        scope.spawn(|| stub(&upstream, &StubOptions::default(), &counts, &stop));
        let result = query_server(testbed, &server, contestant.asked_by_frames, seconds);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Asks a server.
fn query_server(
    testbed: &Testbed,
    server: &Server,
    by_frames: bool,
    seconds: f64,
) -> Result<Figures> {
    let options = LoadOptions {
        in_flight_max: IN_FLIGHT,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(20),
        // A machine that others use may stand still for a while.
        lost_after: Duration::from_secs(10),
        ..LoadOptions::new(SERVER.parse()?)
    };
    let mut next = 0;
    // Each name once: what was not held is now.
    let each = |id, room: &mut [u8]| {
        next += 1;
        (next <= u64::from(NAMES)).then(|| query::write(id, next - 1, false, room))
    };
    let warm = load(&options, each, query::is_answer)?;
    if warm.answers < u64::from(NAMES) {
        let (answers, lost) = (warm.answers, warm.lost);
        return Err(format!("the server answers {answers} names, {lost} late or not").into());
    }
    let mut mix = Mix::new(NAMES, 1.0, &Arc::new(AtomicU64::new(FRESH_FROM)), 7);
    let options = LoadOptions {
        warm_up: WARM_UP,
        measured: Duration::from_secs_f64(seconds),
        lost_after: LOST_AFTER,
        ..options
    };
    let write_query = |id, room: &mut [u8]| Some(query::write(id, mix.draw(), false, room));
    let (load, span) = if by_frames {
        let mut frames = Frames::open("c0", CLIENT.parse()?, options.server)?;
        testbed.settle()?;
        let span = Span::begin(server)?;
        (frames.load(&options, write_query, query::is_answer)?, span)
    } else {
        let span = Span::begin(server)?;
        (load(&options, write_query, query::is_answer)?, span)
    };
    let busy = span.busy(server)?;
    if load.wrong > 0 || load.answers == 0 {
        return Err(format!("{} wrong answers, {} right ones", load.wrong, load.answers).into());
    }
    let per_s = load.answers_per_s();
    let us = |share| load.latency.percentile(share) as f64 / 1e3;
    Ok(Figures {
        per_core_s: per_s / busy,
        per_s,
        busy,
        p50_us: us(0.5),
        p99_us: us(0.99),
        lost: load.lost as f64,
        late: load.unexpected as f64,
    })
}
