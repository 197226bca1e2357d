//! `larder bench annotate`: larder beside the bare header walk and tshark, interleaved.
//!
//! The walk ([`walk`]) is the limit of what a reader of this file could do on as many cores: it
//! visits every record and header of the file in memory, adds up what it saw, and keeps nothing. Each
//! contestant runs once a round; the table gives the median and the spread over the rounds, so
//! that a busy moment of the machine shows instead of hiding in a mean.
//!
//! Bound: the walk needs the file in memory; annotate does not.

mod walk;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_annotate::options::{Endpoint, LookupPer};
use larder_annotate::{Options, Progress};

use walk::{Seen, Walkable};

use crate::annotate::cores;
use crate::exit::{Failure, Outcome};
use crate::layers::Resolved;
use crate::progress::scaled;
use crate::show::print;

/// One contestant: its name, and what each round gave.
struct Contestant {
    name: String,
    kind: Kind,
    /// Packets a second, a round.
    rates: Vec<f64>,
    /// Lookups of names a second, a round; zeros unless every packet is looked up.
    lookup_rates: Vec<f64>,
    /// The same every round, else the contestant does not do the same work twice.
    packets: Option<u64>,
}

/// What one contestant did in one round.
struct Round {
    packets: u64,
    lookups: u64,
    elapsed: Duration,
}

#[derive(Clone, Copy)]
enum Kind {
    Walk { cores: usize },
    Annotate { cores: usize, lookup_per: LookupPer },
    Tshark { packets: u64 },
}

/// Runs the command.
pub fn bench_annotate(settings: &Resolved) -> Outcome {
    let files: Vec<PathBuf> = settings
        .endpoints("file")
        .into_iter()
        .filter_map(|file| match file {
            Endpoint::Path(path) => Some(path),
            _ => None,
        })
        .collect();
    let mut contents = Vec::with_capacity(files.len());
    for file in &files {
        let next = "name a capture that exists; larder gen capture makes a large one";
        let content = std::fs::read(file)
            .map_err(|error| Failure::file(format!("{file:?}"), &error, next))?;
        contents.push(content);
    }
    let rounds = settings.number_or_default("rounds");
    let many = cores(settings.number_or_default("cores"));
    let tshark_packets = settings.number_or_default("tshark-packets");
    let mut contestants = contestants(many, tshark_packets, &contents);
    for round in 0..rounds {
        for contestant in &mut contestants {
            eprint_quietly(&format!("round {} of {rounds}: {}", round + 1, contestant.name));
            let Round { packets, lookups, elapsed } = contestant.kind.run(&files, &contents)?;
            if contestant.packets.is_some_and(|before| before != packets) {
                return Err(Failure::usage(format!(
                    "{}: {packets} packets in this round, another number before; is the file \
                     being written? Copy it first",
                    contestant.name
                )));
            }
            contestant.packets = Some(packets);
            let seconds = elapsed.as_secs_f64().max(1e-9);
            contestant.rates.push(packets as f64 / seconds);
            contestant.lookup_rates.push(lookups as f64 / seconds);
        }
    }
    print(&table(&mut contestants))
}

fn eprint_quietly(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn contestants(many: usize, tshark_packets: u64, contents: &[Vec<u8>]) -> Vec<Contestant> {
    let new = |name: &str, kind| Contestant {
        name: name.to_owned(),
        kind,
        rates: Vec::new(),
        lookup_rates: Vec::new(),
        packets: None,
    };
    let mut list = Vec::new();
    if contents.iter().all(|content| Walkable::cut(content, 1).is_some()) {
        list.push(new("header walk, 1 core", Kind::Walk { cores: 1 }));
        if many > 1 {
            list.push(new(&format!("header walk, {many} cores"), Kind::Walk { cores: many }));
        }
    } else {
        eprint_quietly(
            "no header walk: it reads plain pcap only; convert with editcap -F nsecpcap",
        );
    }
    let annotate = |cores, lookup_per| Kind::Annotate { cores, lookup_per };
    list.push(new("annotate, 1 core", annotate(1, LookupPer::Flow)));
    if many > 1 {
        list.push(new(&format!("annotate, {many} cores"), annotate(many, LookupPer::Flow)));
    }
    let plural = if many > 1 { "s" } else { "" };
    let name = format!("annotate, {many} core{plural}, --lookup packet");
    list.push(new(&name, annotate(many, LookupPer::Packet)));
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
            list.push(new(&name, Kind::Tshark { packets }));
        }
    }
    list
}

impl Kind {
    /// Does the work once.
    fn run(self, files: &[PathBuf], contents: &[Vec<u8>]) -> Result<Round, Failure> {
        // Cutting is not what is measured; only the walk needs it.
        let walkable: Vec<Walkable<'_>> = match self {
            Kind::Walk { cores } => {
                contents.iter().filter_map(|content| Walkable::cut(content, cores)).collect()
            }
            _ => Vec::new(),
        };
        let started = Instant::now();
        let (packets, lookups) = match self {
            Kind::Walk { .. } => {
                let seen: Seen = walkable.iter().map(Walkable::walk).sum();
                // So that the optimiser cannot remove the walk.
                std::hint::black_box(seen.checksum);
                (seen.packets, 0)
            }
            Kind::Annotate { cores, lookup_per } => {
                let options = Options {
                    read: files.iter().cloned().map(Endpoint::Path).collect(),
                    output: Endpoint::Path("/dev/null".into()),
                    cores,
                    lookup_per,
                    ..Options::default()
                };
                let summary = larder_annotate::run(&options, &Arc::new(Progress::default()))?;
                (summary.packets, summary.lookups)
            }
            Kind::Tshark { packets } => (tshark(files, packets)?, 0),
        };
        Ok(Round { packets, lookups, elapsed: started.elapsed() })
    }
}

/// Runs tshark over the beginning of the first file, as a person who wants names would.
fn tshark(files: &[PathBuf], packets: u64) -> Result<u64, Failure> {
    let output = Command::new("tshark")
        .args(["-N", "nd", "-c", &packets.to_string(), "-T", "fields"])
        .args(["-e", "ip.src_host", "-e", "ip.dst_host", "-r"])
        .args(files.first())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| Failure::file("tshark", &error, "or leave it out: --tshark-packets 0"))?;
    if !output.status.success() {
        return Err(Failure::usage("tshark failed on this file; leave it out: --tshark-packets 0"));
    }
    Ok(output.stdout.iter().filter(|octet| **octet == b'\n').count() as u64)
}

fn table(contestants: &mut [Contestant]) -> String {
    let mut text = format!(
        "{:<38} {:>12} {:>12} {:>12} {:>12} {:>9}\n",
        "contestant", "packets", "median pps", "least", "most", "of walk"
    );
    for contestant in contestants.iter_mut() {
        contestant.rates.sort_by(f64::total_cmp);
        contestant.lookup_rates.sort_by(f64::total_cmp);
    }
    let limit_of = |cores: usize| {
        let walk = contestants.iter().find(
            |contestant| matches!(contestant.kind, Kind::Walk { cores: of } if of == cores),
        )?;
        Some(median(&walk.rates))
    };
    for contestant in contestants.iter() {
        let median = median(&contestant.rates);
        let limit = match contestant.kind {
            Kind::Walk { cores } | Kind::Annotate { cores, .. } => limit_of(cores),
            Kind::Tshark { .. } => limit_of(1),
        };
        let least = contestant.rates.first().copied().unwrap_or(0.0);
        let most = contestant.rates.last().copied().unwrap_or(0.0);
        let share = limit.map_or("-".to_owned(), |limit: f64| format!("{:.4}", median / limit));
        let _ = writeln!(
            text,
            "{:<38} {:>12} {:>12} {:>12} {:>12} {share:>9}",
            contestant.name,
            contestant.packets.unwrap_or(0),
            scaled(median),
            scaled(least),
            scaled(most)
        );
    }
    for contestant in contestants.iter().filter(|contestant| {
        matches!(contestant.kind, Kind::Annotate { lookup_per: LookupPer::Packet, .. })
    }) {
        let rates = &contestant.lookup_rates;
        let [least, most] = [rates.first(), rates.last()].map(|rate| rate.copied().unwrap_or(0.0));
        let _ = writeln!(
            text,
            "{}: {} lookups/s ({} to {})",
            contestant.name,
            scaled(median(rates)),
            scaled(least),
            scaled(most)
        );
    }
    text
}

/// The middle of a sorted list; of the two in the middle, their mean.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        len if len.is_multiple_of(2) => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
        len => sorted[len / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median is the middle, and of nothing it is nothing.
    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
