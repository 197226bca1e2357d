//! `larder-lab bench annotate`: larder compared with the bare header walk and tshark, interleaved.
//!
//! The walk ([`mod@walk`]) is the limit of what a reader of this file could do on as many cores: it
//! visits every record and header of the mapped file, adds up what it saw, and keeps nothing. Each
//! round maps the file again and ends the mapping inside the measured time, for the walk as for
//! annotate, so that both pay for the same page faults. Where the parts for several cores begin is
//! found once, before the first round; that also brings the file into the system's cache.
//!
//! Each contestant runs once a round; the table ([`table`]) gives the median and the spread over
//! the rounds, so that a busy moment of the machine shows instead of hiding in a mean.
//!
//! The cache by itself is measured in [`mod@engine`], DNS servers in [`mod@dns`], HTTP caches in
//! [`mod@http`], live capture in [`mod@live`].

pub mod dns;
mod engine;
mod http;
mod live;
mod memory;
pub mod printer;
mod table;
mod walk;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_annotate::options::{Endpoint, LookupPer};
use larder_annotate::{Options, Progress};
use larder_io::input::{Content, Input};
use larder_io::mapped::Mapped;
use larder_serve::histogram::Histogram;
use larder_settings::exit::{Failure, Outcome};
use larder_settings::terminal::{eprint_quietly, print};

pub use dns::bench_dns;
pub use engine::bench_engine;
pub use http::bench_http;
pub use live::bench_live;
use walk::{Plan, Seen};

use crate::settings::bench::BenchAnnotate;

/// One contestant: its name, and what each round gave.
struct Contestant {
    name: String,
    kind: Kind,
    /// Packets a second, a round.
    rates: Vec<f64>,
    /// Lookups of names a second, a round; zeros unless every packet is looked up.
    lookup_rates: Vec<f64>,
    /// Single lookups, those of all rounds.
    lookup_times: Histogram,
    /// Most memory in any round, bytes.
    peak_bytes: Option<u64>,
    /// The same every round, else the contestant does not do the same work twice.
    packets: Option<u64>,
}

/// What one contestant did in one round.
struct Round {
    packets: u64,
    lookups: u64,
    lookup_times: Histogram,
    elapsed: Duration,
    /// Most memory, bytes; `None` where it is unknown.
    peak_bytes: Option<u64>,
}

enum Kind {
    /// A plan for each file.
    Walk {
        cores: usize,
        plans: Vec<Plan>,
    },
    Annotate {
        cores: usize,
        lookup_per: LookupPer,
    },
    Tshark {
        packets: u64,
    },
}

/// Runs the command.
pub fn bench_annotate(settings: &BenchAnnotate) -> Outcome {
    let BenchAnnotate { file: files, rounds, cores, tshark_packets } = settings;
    let mut contestants = contestants(files, *cores, *tshark_packets)?;
    for round in 1..=*rounds {
        for contestant in &mut contestants {
            eprint_quietly(&format!("round {round} of {rounds}: {}", contestant.name));
            contestant.run(files)?;
        }
    }
    print(&table::text(&contestants))
}

fn contestants(
    files: &[PathBuf],
    many: usize,
    tshark_packets: u64,
) -> Result<Vec<Contestant>, Failure> {
    let plural = if many > 1 { "s" } else { "" };
    let mut list = Vec::new();
    for cores in [1, many] {
        match plans(files, cores)? {
            Some(plans) => {
                let name = format!("header walk, {cores} core{}", if cores > 1 { "s" } else { "" });
                list.push(Contestant::new(name, Kind::Walk { cores, plans }));
            }
            None => {
                let advice = "it reads plain pcap only; convert with editcap -F nsecpcap";
                eprint_quietly(&format!("no header walk: {advice}"));
            }
        }
        if many == 1 || list.is_empty() {
            break;
        }
    }
    let annotate = |cores, lookup_per| Kind::Annotate { cores, lookup_per };
    list.push(Contestant::new("annotate, 1 core", annotate(1, LookupPer::Flow)));
    if many > 1 {
        let name = format!("annotate, {many} cores");
        list.push(Contestant::new(name, annotate(many, LookupPer::Flow)));
    }
    let name = format!("annotate, {many} core{plural}, --lookup packet");
    list.push(Contestant::new(name, annotate(many, LookupPer::Packet)));
    let installed = Command::new("tshark")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    match (tshark_packets, installed) {
        (0, _) => {}
        (_, false) => eprint_quietly("no tshark row: it is not installed"),
        (packets, true) => {
            let name = format!("tshark -N nd, first {packets}");
            list.push(Contestant::new(name, Kind::Tshark { packets }));
        }
    }
    Ok(list)
}

/// How to walk each file on `cores` cores; `None` unless all of them can be walked.
fn plans(files: &[PathBuf], cores: usize) -> Result<Option<Vec<Plan>>, Failure> {
    let mut plans = Vec::with_capacity(files.len());
    for file in files {
        let plan = map(file)?.and_then(|mapped| Plan::cut(mapped.bytes(), cores));
        plans.extend(plan);
    }
    Ok((plans.len() == files.len()).then_some(plans))
}

/// Maps a file as annotate does; `None` where annotate would read it instead.
fn map(file: &Path) -> Result<Option<Arc<Mapped>>, Failure> {
    match Input::open(file).map_err(larder_annotate::Error::from).map_err(failed)?.content {
        Content::Mapped(mapped) => Ok(Some(mapped)),
        _ => Ok(None),
    }
}

impl Contestant {
    fn new(name: impl Into<String>, kind: Kind) -> Contestant {
        Contestant {
            name: name.into(),
            kind,
            rates: Vec::new(),
            lookup_rates: Vec::new(),
            lookup_times: Histogram::default(),
            peak_bytes: None,
            packets: None,
        }
    }

    /// Runs one round and keeps what it gave.
    fn run(&mut self, files: &[PathBuf]) -> Result<(), Failure> {
        let round = self.kind.run(files)?;
        if self.packets.is_some_and(|before| before != round.packets) {
            return Err(Failure::usage(format!(
                "{}: {} packets in this round, another number before; is the file being written? \
                 Copy it first",
                self.name, round.packets
            )));
        }
        self.packets = Some(round.packets);
        let seconds = round.elapsed.as_secs_f64().max(1e-9);
        self.rates.push(round.packets as f64 / seconds);
        self.lookup_rates.push(round.lookups as f64 / seconds);
        self.lookup_times.merge(&round.lookup_times);
        self.peak_bytes = self.peak_bytes.max(round.peak_bytes);
        Ok(())
    }
}

impl Kind {
    /// Does the work once.
    fn run(&self, files: &[PathBuf]) -> Result<Round, Failure> {
        memory::forget_peak();
        let started = Instant::now();
        let (packets, lookups, lookup_times) = match self {
            Kind::Walk { plans, .. } => (walk(files, plans)?, 0, Histogram::default()),
            Kind::Annotate { cores, lookup_per } => {
                let options = Options {
                    read: files.iter().cloned().map(Endpoint::Path).collect(),
                    output: Endpoint::Path("/dev/null".into()),
                    cores: *cores,
                    lookup_per: *lookup_per,
                    time_lookups: true,
                    ..Options::default()
                };
                let summary = larder_annotate::run(&options, &Arc::new(Progress::default()))
                    .map_err(failed)?;
                (summary.packets, summary.lookups, summary.lookup_times)
            }
            Kind::Tshark { packets } => (tshark(files, *packets)?, 0, Histogram::default()),
        };
        let elapsed = started.elapsed();
        let peak_bytes = match self {
            Kind::Annotate { .. } => memory::peak_bytes(),
            // The walk keeps nothing but the file's pages, and tshark is another process.
            _ => None,
        };
        Ok(Round { packets, lookups, lookup_times, elapsed, peak_bytes })
    }
}

/// Why a file could not be read.
fn failed(error: larder_annotate::Error) -> Failure {
    Failure::usage(error.to_string())
}

fn walk(files: &[PathBuf], plans: &[Plan]) -> Result<u64, Failure> {
    let mut all = Seen::default();
    for (file, plan) in files.iter().zip(plans) {
        if let Some(mapped) = map(file)? {
            all = all + plan.walk(mapped.bytes());
        }
    }
    // So that the optimiser cannot remove the walk.
    std::hint::black_box(all.checksum);
    Ok(all.packets)
}

/// Runs tshark over the beginning of the first file, as a person does for names.
fn tshark(files: &[PathBuf], packets: u64) -> Result<u64, Failure> {
    let output = Command::new("tshark")
        .args(["-N", "nd", "-c", &packets.to_string(), "-T", "fields"])
        .args(["-e", "ip.src_host", "-e", "ip.dst_host", "-r"])
        .args(files.first())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| Failure::file("tshark", &error, "skip it with --tshark-packets 0"))?;
    if !output.status.success() {
        return Err(Failure::usage("tshark failed on this file; skip it with --tshark-packets 0"));
    }
    Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64)
}
