//! `larder find`: packets that larder annotate keeps, by name, address or flow.
//!
//! With `-w` they go to a capture; without it, what was found is told flow by flow. Packets leave as they are found: a pipe's
//! reader sees them at once with `--follow`, and else when a quarter of a mebibyte has come together.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use larder_annotate::feeds::parse_time_ns;
use larder_annotate::options::Endpoint;
use larder_io::output::{Output, OutputError};
use larder_sim::report::grouped;
use larder_store::find::Writer;
use larder_store::{FindOptions, Finder, FoundPacket, Query, Summary};
use larder_wire::flow_key::{FlowKey, protocol};
use larder_wire::packet;

use crate::bench::eprint_quietly;
use crate::exit::{self, Failure, Outcome};
use crate::layers::Resolved;
use crate::progress::size;
use crate::{show, signals};

/// Flows that are told one by one; of more, those with the most octets.
const FLOWS_TOLD: usize = 1_000;

/// Flows that are counted one by one; what others have is counted together.
const FLOWS_MAX: usize = 1 << 20;

/// Runs the command.
pub fn find(settings: &Resolved) -> Outcome {
    let mut words: Vec<&str> = settings.words("what");
    words.extend(settings.word("community-id"));
    let query = Query::parse(&words).map_err(|error| Failure::usage(error.to_string()))?;
    let options = FindOptions {
        from_ns: time(settings, "from")?,
        to_ns: time(settings, "to")?,
        candidates: settings.switch("candidates"),
        lookups: settings.switch("lookups"),
    };
    let directory = settings.path("dir").unwrap_or_else(|| ".".into());
    let mut finder = Finder::open(&directory).map_err(|error| in_folder(&directory, &error))?;
    let follows = settings.switch("follow");
    let output = match settings.endpoint("write") {
        Some(Endpoint::Pipe) if std::io::stdout().is_terminal() => {
            return Err(Failure::usage(
                "-w -: standard output is a terminal; name a file, or pipe it",
            ));
        }
        Some(endpoint) => Some(larder_annotate::run::open_output(&endpoint)?),
        None if follows => {
            return Err(Failure::usage("--follow: say where packets go: -w FILE or -w -"));
        }
        None => None,
    };
    let quiet = settings.switch("quiet");
    let stop = Arc::new(AtomicBool::new(false));
    let of_signals = Arc::clone(&stop);
    let text = "stopping; what was found is being written";
    signals::ask_on_signals(quiet || follows, text, move || {
        of_signals.store(true, Ordering::Release)
    })
    .map_err(|error| Failure::file("signals", &error, "free some file descriptors or threads"))?;
    let mut taker = Taker {
        left: settings.number("limit").unwrap_or(u64::MAX),
        flows: HashMap::new(),
        others: 0,
        output,
        writer: Writer::default(),
        block: Vec::new(),
        failed: None,
        flushes: follows,
    };
    taker.begin();
    let started = Instant::now();
    let mut visit = |found: FoundPacket<'_>| match stop.load(Ordering::Acquire) {
        true => ControlFlow::Break(()),
        false => taker.take(&found),
    };
    let mut idle = || match stop.load(Ordering::Acquire) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let result = match (follows, settings.switch("scan")) {
        (true, _) => finder.follow(&query, options, &mut idle, &mut visit),
        (false, true) => finder.scan(&query, options, &mut visit),
        (false, false) => finder.find(&query, options, &mut visit),
    };
    let summary = result.map_err(|error| in_folder(&directory, &error))?;
    let elapsed_s = started.elapsed().as_secs_f64();
    taker.finish()?;
    if !quiet {
        tell(&summary, elapsed_s);
    }
    Ok(match stop.load(Ordering::Acquire) {
        true if !follows => exit::INTERRUPTED,
        _ if summary.packets == 0 || !summary.segments_without_index.is_empty() => exit::DAMAGED,
        _ => exit::DONE,
    })
}

fn in_folder(directory: &Path, error: &larder_store::StoreError) -> Failure {
    let folder = directory.display().to_string();
    Failure::usage(format!(
        "{error}; --dir {} is to be the folder that larder annotate -w DIR --store writes",
        folder.escape_debug()
    ))
}

/// A time: RFC 3339, seconds since 1970, or so long before now.
fn time(settings: &Resolved, name: &str) -> Result<Option<i64>, Failure> {
    let Some(word) = settings.word(name) else { return Ok(None) };
    let before = word.strip_prefix('-').and_then(|text| {
        let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
        let (text, unit) =
            units.iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, *s)))?;
        text.parse::<i64>().ok()?.checked_mul(unit * 1_000_000_000)
    });
    let now_ns = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as i64);
    match before {
        Some(before_ns) => Ok(Some(now_ns().saturating_sub(before_ns))),
        None => parse_time_ns(word.as_bytes()).map(Some).ok_or_else(|| {
            Failure::usage(format!(
                "--{name} {word:?}: expected a time, as 2026-01-31T12:00:00Z, 1769860800.5 or -15m"
            ))
        }),
    }
}

fn tell(summary: &Summary, elapsed_s: f64) {
    eprint_quietly(&format!(
        "{} packets ({}) in {} segments, {:.1} ms",
        grouped(summary.packets),
        size(summary.bytes),
        grouped(summary.segments),
        elapsed_s * 1e3
    ));
    if !summary.segments_without_index.is_empty() {
        let numbers: Vec<String> =
            summary.segments_without_index.iter().map(u64::to_string).collect();
        eprint_quietly(&format!(
            "no sound index for segments {}: they were looked through, and names of flows in them may be missing",
            numbers.join(", ")
        ));
    }
}

/// What one flow has.
#[derive(Clone, Copy, Default)]
struct Tally {
    packets: u64,
    bytes: u64,
    first_ns: i64,
    last_ns: i64,
}

/// Takes what is found.
struct Taker {
    left: u64,
    /// `None`: not IP.
    flows: HashMap<Option<FlowKey>, Tally>,
    /// Packets of flows for which that has no room.
    others: u64,
    output: Option<Output>,
    writer: Writer,
    block: Vec<u8>,
    failed: Option<OutputError>,
    flushes: bool,
}

impl Taker {
    /// A capture has its head, also where nothing is found.
    fn begin(&mut self) {
        self.writer.begin(&mut self.block);
        self.write();
    }

    fn take(&mut self, found: &FoundPacket<'_>) -> ControlFlow<()> {
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        self.left -= 1;
        if self.output.is_some() {
            self.writer.packet(found, &mut self.block);
            self.write();
        } else {
            let packet = packet::decode(found.link_type(), found.frame).ok();
            let key = packet.map(|packet| FlowKey::of(&packet).0);
            if self.flows.len() < FLOWS_MAX || self.flows.contains_key(&key) {
                let tally = self.flows.entry(key).or_default();
                tally.packets += 1;
                tally.bytes += u64::from(found.original_len);
                if tally.packets == 1 {
                    tally.first_ns = found.ts_ns;
                }
                tally.last_ns = found.ts_ns;
            } else {
                self.others += 1;
            }
        }
        match self.failed.is_some() || self.left == 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn write(&mut self) {
        if let Some(output) = &mut self.output {
            let written = output.write_all(&self.block);
            let written =
                if self.flushes { written.and_then(|()| output.flush()) } else { written };
            self.failed = written.err();
        }
        self.block.clear();
    }

    fn finish(self) -> Result<(), Failure> {
        if let Some(error) = self.failed {
            return Err(larder_annotate::Error::from(error).into());
        }
        match self.output {
            Some(output) => {
                output.finish().map_err(|error| larder_annotate::Error::from(error).into())
            }
            None => show::print(&table(self.flows, self.others)).map(|_| ()),
        }
    }
}

/// Flows, those with the most octets first.
fn table(flows: HashMap<Option<FlowKey>, Tally>, others: u64) -> String {
    let mut rows: Vec<_> = flows.into_iter().collect();
    let count = rows.len();
    rows.sort_unstable_by_key(|(_, tally)| (std::cmp::Reverse(tally.bytes), tally.first_ns));
    let mut text = String::new();
    for (flow, tally) in rows.into_iter().take(FLOWS_TOLD) {
        let name = match flow {
            Some(key) => word(&key),
            None => "not IP".to_owned(),
        };
        let lasted_s = tally.last_ns.saturating_sub(tally.first_ns) as f64 / 1e9;
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "{:>9} {:>12} {lasted_s:>10.3}s  {name}", tally.packets, tally.bytes);
    }
    if count > FLOWS_TOLD {
        let _ = writeln!(text, "and {} flows more", grouped((count - FLOWS_TOLD) as u64));
    }
    if others > 0 {
        let _ = writeln!(text, "and {} packets of others; narrow the search", grouped(others));
    }
    text
}

/// A flow as `larder find` takes it again.
fn word(key: &FlowKey) -> String {
    let has_ports = matches!(key.protocol, protocol::TCP | protocol::UDP);
    let end = |addr: larder_wire::Addr, port: u16| match (std::net::IpAddr::from(addr), has_ports) {
        (ip, true) => std::net::SocketAddr::new(ip, port).to_string(),
        (ip, false) => ip.to_string(),
    };
    let protocol = match key.protocol {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::ICMP => "icmp".to_owned(),
        protocol::ICMP6 => "icmp6".to_owned(),
        other => other.to_string(),
    };
    format!("{}-{}/{protocol}", end(key.low, key.low_port), end(key.high, key.high_port))
}
