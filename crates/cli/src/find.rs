//! `larder find`: packets that larder annotate stored, by name, address or flow.
//!
//! With `-w` it writes a capture; without it, a table of flows. With `--follow` the reader of a pipe
//! gets each packet at once, otherwise in blocks of a quarter of a mebibyte.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use larder_annotate::files::open_output;
use larder_annotate::options::Endpoint;
use larder_io::access::Access;
use larder_io::output::{Output, OutputError};
use larder_settings::amounts::{grouped, size};
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::terminal::eprint_quietly;
use larder_settings::{signals, terminal};
use larder_store::find::Writer;
use larder_store::{Damage, FindOptions, Finder, FoundPacket, Query, Summary};
use larder_wire::flow_key::{FlowKey, protocol};
use larder_wire::packet;

use crate::annotate::failed;
use crate::settings::Find;

/// Rows of the table at most: the flows with the most bytes.
const FLOWS_SHOWN: usize = 1_000;

/// Flows that are counted one by one; packets of other flows are counted together.
const FLOWS_MAX: usize = 1 << 20;

/// Runs the command.
pub fn find(settings: &Find) -> Outcome {
    let words = settings.what.iter().chain(&settings.community_id);
    let words: Vec<&str> = words.map(|word| &**word).collect();
    if let Some(text) = filter_hint(&words) {
        return Err(Failure::usage(text));
    }
    let query = Query::parse(&words).map_err(|error| Failure::usage(error.to_string()))?;
    let options = FindOptions {
        from_ns: settings.from,
        to_ns: settings.to,
        candidates: settings.candidates,
        lookups: settings.lookups,
    };
    let directory = &settings.dir;
    let mut finder = Finder::open(directory).map_err(|error| in_folder(directory, &error))?;
    let follows = settings.follow;
    let output = output(settings)?;
    let quiet = settings.quiet;
    let stop = Arc::new(AtomicBool::new(false));
    let of_signals = Arc::clone(&stop);
    let text = "stopping; what was found is being written";
    signals::call_on_signals(quiet || follows, text, move || {
        of_signals.store(true, Ordering::Release)
    })
    .map_err(|error| Failure::file("signals", &error, "free some file descriptors or threads"))?;
    let mut taker = Taker {
        left: settings.limit.unwrap_or(u64::MAX),
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
    let result = match (follows, settings.scan) {
        (true, _) => finder.follow(&query, options, &mut idle, &mut visit),
        (false, true) => finder.scan(&query, options, &mut visit),
        (false, false) => finder.find(&query, options, &mut visit),
    };
    let summary = result.map_err(|error| in_folder(directory, &error))?;
    let elapsed_s = started.elapsed().as_secs_f64();
    taker.finish()?;
    if !quiet {
        report(&summary, elapsed_s);
    }
    // Printed also with --quiet: the result lacks packets.
    summary.damaged.iter().for_each(|damage| eprint_quietly(&lacking(damage)));
    let is_whole = summary.segments_without_index.is_empty() && summary.damaged.is_empty();
    Ok(match stop.load(Ordering::Acquire) {
        true if !follows => exit::INTERRUPTED,
        _ if summary.packets == 0 || !is_whole => exit::DAMAGED,
        _ => exit::DONE,
    })
}

/// Where packets go, if anywhere.
fn output(settings: &Find) -> Result<Option<Output>, Failure> {
    Ok(match settings.write.clone().map(Endpoint::from) {
        Some(Endpoint::Pipe) if std::io::stdout().is_terminal() => {
            return Err(Failure::usage(
                "-w -: standard output is a terminal; name a file, or pipe it",
            ));
        }
        Some(endpoint) => Some(open_output(&endpoint, Access::PRIVATE).map_err(failed)?),
        None if settings.follow => {
            return Err(Failure::usage("--follow: no output; add -w FILE or -w -"));
        }
        None => None,
    })
}

/// One line about a segment of which something could not be read.
fn lacking(damage: &Damage) -> String {
    let Damage { segment, packets, bytes } = *damage;
    let what = match packets {
        Some(packets) => plural(packets, "packet"),
        None => format!("{} of packets", size(bytes)),
    };
    format!(
        "segment {segment} is damaged: {what} in it cannot be read; the other packets were searched"
    )
}

fn plural(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Words of tcpdump's filters, which are no search terms of larder find.
const FILTER_WORDS: [&str; 20] = [
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "proto",
    "and",
    "or",
    "not",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "ip",
    "ip6",
    "arp",
    "ether",
    "vlan",
    "less",
];

/// If the words are a filter of tcpdump: what to write instead.
fn filter_hint(words: &[&str]) -> Option<String> {
    let parts: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    let has_space = words.iter().any(|word| word.contains(char::is_whitespace));
    let has_filter_word = parts.len() > 1 && parts.iter().any(|part| FILTER_WORDS.contains(part));
    if !has_space && !has_filter_word {
        return None;
    }
    let filter = parts.join(" ");
    let filter = filter.escape_debug();
    let next = match parts[..] {
        ["host" | "net", word] => format!("larder find {word}"),
        ["port", port] => format!("larder find '*:{port}'"),
        [protocol @ ("tcp" | "udp"), "port", port] => format!("larder find '*:{port}/{protocol}'"),
        _ if !has_filter_word => {
            return Some(format!(
                "'{filter}' has a space: give each name, address, network, flow or Community ID as a word of its own"
            ));
        }
        _ => format!("larder find ADDRESS -w - | tcpdump -n -r - '{filter}'"),
    };
    Some(format!(
        "'{filter}' is a filter of tcpdump; larder find takes names, addresses, networks, flows and Community IDs; use: {next}"
    ))
}

fn in_folder(directory: &Path, error: &larder_store::StoreError) -> Failure {
    let folder = directory.display().to_string();
    Failure::usage(format!(
        "{error}; name the -w directory of larder annotate with --dir (now: {})",
        folder.escape_debug()
    ))
}

fn report(summary: &Summary, elapsed_s: f64) {
    eprint_quietly(&format!(
        "{} ({}) in {}, {:.1} ms",
        plural(summary.packets, "packet"),
        size(summary.bytes),
        plural(summary.segments, "segment"),
        elapsed_s * 1e3
    ));
    if !summary.segments_without_index.is_empty() {
        let numbers: Vec<String> =
            summary.segments_without_index.iter().map(u64::to_string).collect();
        eprint_quietly(&format!(
            "no sound index for segments {}: larder scanned them, and names of their flows may be missing",
            numbers.join(", ")
        ));
    }
}

/// Packets and bytes of one flow.
#[derive(Clone, Copy, Default)]
struct Tally {
    packets: u64,
    bytes: u64,
    first_ns: i64,
    last_ns: i64,
}

/// Writes or counts the packets that were found.
struct Taker {
    left: u64,
    /// `None`: packets that have no flow.
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
    /// A capture has its header even if no packet is found.
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
            return Err(failed(error.into()));
        }
        match self.output {
            Some(output) => output.finish().map_err(|error| failed(error.into())),
            None => terminal::print(&table(self.flows, self.others)).map(|_| ()),
        }
    }
}

/// Flows, those with the most bytes first.
fn table(flows: HashMap<Option<FlowKey>, Tally>, others: u64) -> String {
    let mut rows: Vec<_> = flows.into_iter().collect();
    let count = rows.len();
    rows.sort_unstable_by_key(|(_, tally)| (std::cmp::Reverse(tally.bytes), tally.first_ns));
    let mut text = String::new();
    if count > 0 {
        text += &format!("{:>9} {:>12} {:>11}  FLOW\n", "PACKETS", "BYTES", "DURATION");
    }
    for (flow, tally) in rows.into_iter().take(FLOWS_SHOWN) {
        let name = match flow {
            Some(key) => word(&key),
            None => "no flow (not IP, or malformed)".to_owned(),
        };
        let lasted_s = tally.last_ns.saturating_sub(tally.first_ns) as f64 / 1e9;
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "{:>9} {:>12} {lasted_s:>10.3}s  {name}", tally.packets, tally.bytes);
    }
    if count > FLOWS_SHOWN {
        let _ = writeln!(text, "and {} flows more", grouped((count - FLOWS_SHOWN) as u64));
    }
    if others > 0 {
        let _ = writeln!(text, "and {} packets of others; narrow the search", grouped(others));
    }
    text
}

/// A flow as a search term of `larder find`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter of tcpdump is refused, with the command that finds the same packets. A name is searched for,
    /// also if it is a word of such filters.
    #[test]
    fn filters_are_explained() {
        for (words, next) in [
            (&["tcp port 443"][..], "larder find '*:443/tcp'"),
            (&["tcp", "port", "443"], "larder find '*:443/tcp'"),
            (&["port", "53"], "larder find '*:53'"),
            (&["host", "192.0.2.1"], "larder find 192.0.2.1"),
            (&["net 192.0.2.0/24"], "larder find 192.0.2.0/24"),
            (
                &["host", "192.0.2.1", "and", "not", "port", "22"],
                "| tcpdump -n -r - 'host 192.0.2.1 and",
            ),
            (&["a.example b.example"], "a word of its own"),
        ] {
            let text = filter_hint(words).expect("a hint");
            assert!(text.contains(next), "{text}");
        }
        for words in [&["host"][..], &["a.example", "192.0.2.1"], &["*"], &["tcp"]] {
            assert_eq!(filter_hint(words), None, "{words:?}");
        }
    }
}
