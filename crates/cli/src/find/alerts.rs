//! `larder find --alerts FILE`: the packets around each alert of Suricata (`eve.json`) or each
//! notice of Zeek (`notice.log`, as a table or JSON), in a file of its own.
//!
//! ```text
//! line -> alert: time, flow, title -> query: the flow, from --around before to --around after
//!      -> DIR/2026-11-01T10-00-00.123456Z_2013028_ET-POLICY-curl.pcapng
//! ```
//!
//! The same log gives the same file names again, so a second run replaces the files of the first.
//! Alerts without packets get no file. Lines that cannot be read, and alerts without an address, are
//! counted.
//!
//! Bounds: a line of [`larder_annotate::feeds::LINE_BYTES_MAX`]; one alert at a time. Cost: one
//! search for each alert.

use std::collections::HashMap;
use std::io::BufRead;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_annotate::Progress;
use larder_annotate::feeds::zeek::{Item, Log};
use larder_annotate::feeds::{input, parse_time_ns};
use larder_annotate::options::Endpoint;
use larder_settings::amounts::grouped;
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::terminal;
use larder_settings::terminal::eprint_quietly;
use larder_store::Query;
use larder_store::many::{self, Limits, Place, Question};
use larder_wire::civil::Civil;
use larder_wire::json::write_string;
use serde_json::Value;

use super::{LazyOutput, find_options, outcome_lines, packets, plural};
use crate::annotate::failed;
use crate::settings::Find;

/// Characters of a title in a file name.
const TITLE_CHARS_MAX: usize = 60;

/// An alert, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alert {
    time_ns: i64,
    /// The flow, as a query.
    flow: String,
    /// The number of its rule; empty if it has none.
    id: String,
    title: String,
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Alert(Alert),
    /// An event of another kind.
    Other,
    /// An alert without addresses, or time.
    Placeless,
}

/// Counts of a run.
#[derive(Debug, Default)]
struct Counts {
    alerts: u64,
    files: u64,
    packets: u64,
    placeless: u64,
    damaged: u64,
}

/// Runs the command with `--alerts`. `question` is the query of the command line, if there is one.
pub fn run(
    settings: &Find,
    log: &Path,
    question: Option<&Question>,
    places: &[Place],
    limits: &Limits,
) -> Outcome {
    let Some(directory) = &settings.write else {
        return Err(Failure::usage("--alerts writes a file for each alert; add -w DIR"));
    };
    if !matches!(Endpoint::from(directory.clone()), Endpoint::Path(_)) {
        let directory = directory.display().to_string();
        return Err(Failure::usage(format!(
            "-w {}: with --alerts, -w names a directory",
            directory.escape_debug()
        )));
    }
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::file(directory.display(), &error, "-w with --alerts wants a directory")
    })?;
    let progress = Arc::new(Progress::default());
    let text = input::open(&Endpoint::from(log.to_owned()), &progress).map_err(failed)?;
    let mut log_reader = Log::new(text.reader);
    let (mut counts, mut names) = (Counts::default(), HashMap::new());
    let (mut is_whole, mut is_empty, mut places) = (true, true, places.to_vec());
    loop {
        let item = log_reader
            .advance()
            .map_err(|error| Failure::file(&text.name, &error, "the log ends early"))?;
        let Some(item) = item else { break };
        is_empty = false;
        if limits.stop.load(Ordering::Acquire) {
            break;
        }
        let alert = match read(&log_reader, item) {
            Some(Line::Alert(alert)) => alert,
            Some(Line::Placeless) => {
                counts.placeless += 1;
                continue;
            }
            Some(Line::Other) => continue,
            None => {
                counts.damaged += 1;
                continue;
            }
        };
        counts.alerts += 1;
        let path = directory.join(file_name(&alert, &mut names));
        let found = search(settings, &alert, question, &mut places, limits, &path)?;
        is_whole &= found.is_whole;
        counts.packets += found.packets;
        counts.files += u64::from(found.packets > 0);
        terminal::print(&row(settings.format, &alert, &path, found.packets))?;
    }
    if !settings.quiet {
        report(&counts);
    }
    if is_empty {
        eprint_quietly(&format!("{}: the log is empty", text.name.escape_debug()));
    }
    Ok(match limits.stop.load(Ordering::Acquire) {
        true => exit::INTERRUPTED,
        _ if counts.files == 0 || !is_whole || counts.damaged > 0 => exit::DAMAGED,
        _ => exit::DONE,
    })
}

fn report(counts: &Counts) {
    let Counts { alerts, files, packets, placeless, damaged } = *counts;
    eprint_quietly(&format!(
        "{}: {} with packets, {}",
        plural(alerts, "alert"),
        grouped(files),
        plural(packets, "packet")
    ));
    for (count, what) in [
        (placeless, "without an address or a time: they lead to no packets"),
        (damaged, "that cannot be read: expected eve.json of Suricata, or notice.log of Zeek"),
    ] {
        if count > 0 {
            eprint_quietly(&format!("{} {what}", plural(count, "line")));
        }
    }
}

/// What was found for an alert.
struct Found {
    packets: u64,
    is_whole: bool,
}

fn search(
    settings: &Find,
    alert: &Alert,
    question: Option<&Question>,
    places: &mut Vec<Place>,
    limits: &Limits,
    path: &Path,
) -> Result<Found, Failure> {
    let text = match question {
        Some(question) => format!("{} and ({})", alert.flow, question.text),
        None => alert.flow.clone(),
    };
    let now_ns = question.map_or(0, |question| question.now_ns);
    let query = Query::read(&text, now_ns)
        .map_err(|error| Failure::usage(format!("{}: {error}", text.escape_debug())))?;
    let around_ns = i64::try_from(settings.around).unwrap_or(0).saturating_mul(1_000_000_000);
    let mut options = find_options(settings);
    let (from_ns, to_ns) =
        (alert.time_ns.saturating_sub(around_ns), alert.time_ns.saturating_add(around_ns));
    options.from_ns = Some(options.from_ns.map_or(from_ns, |own| own.max(from_ns)));
    options.to_ns = Some(options.to_ns.map_or(to_ns, |own| own.min(to_ns)));
    let own = Question { query, text, now_ns, options, is_scan: settings.scan };
    let output = LazyOutput::later(path);
    let (summary, outcomes) = packets(settings, &own, places, limits, output)?;
    let lines = outcome_lines(places, &summary, &outcomes);
    lines.iter().for_each(|line| eprint_quietly(line));
    // A machine that has failed once is not waited for again.
    let mut at = 0;
    places.retain(|place| {
        let outcome = outcomes.get(at);
        at += 1;
        !matches!((place, outcome), (Place::Machine(..), Some(many::Outcome::Failed(_))))
    });
    Ok(Found { packets: summary.packets, is_whole: lines.is_empty() })
}

/// The line about an alert on standard output.
fn row(format: &str, alert: &Alert, path: &Path, packets: u64) -> String {
    let file = path.display().to_string();
    if format == "jsonl" {
        let mut out = b"{\"time\":".to_vec();
        write_string(&Civil::from_ns(alert.time_ns).rfc3339(), &mut out);
        for (key, value) in [("id", &alert.id), ("title", &alert.title), ("query", &alert.flow)] {
            out.extend_from_slice(format!(",\"{key}\":").as_bytes());
            write_string(value.as_bytes(), &mut out);
        }
        out.extend_from_slice(format!(",\"packets\":{packets},\"file\":").as_bytes());
        match packets {
            0 => out.extend_from_slice(b"null"),
            _ => write_string(file.as_bytes(), &mut out),
        }
        out.extend_from_slice(b"}\n");
        return String::from_utf8_lossy(&out).into_owned();
    }
    let file = if packets == 0 { "-".to_owned() } else { file.escape_debug().to_string() };
    format!("{packets:>9}  {file}  {}\n", alert.title.escape_debug())
}

/// A name that no other alert of this run has.
fn file_name(alert: &Alert, names: &mut HashMap<String, u64>) -> PathBuf {
    let time = Civil::from_ns(alert.time_ns).rfc3339();
    // Nanoseconds are more than logs have; colons are no part of names on some systems.
    let time = String::from_utf8_lossy(&time[..26]).replace(':', "-");
    let plain = |text: &str| {
        let mut out = String::new();
        for c in text.chars().take(TITLE_CHARS_MAX) {
            match c {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => out.push(c),
                _ if out.ends_with('-') => {}
                _ => out.push('-'),
            }
        }
        out.trim_matches(['-', '.']).to_owned()
    };
    let parts = [plain(&alert.id), plain(&alert.title)];
    let mut base = format!("{time}Z");
    for part in parts.iter().filter(|part| !part.is_empty()) {
        base += "_";
        base += part;
    }
    let number = names.entry(base.clone()).or_insert(0);
    *number += 1;
    match number {
        1 => format!("{base}.pcapng").into(),
        number => format!("{base}-{number}.pcapng").into(),
    }
}

/// The alert of a line; `None`: it cannot be read.
fn read<R: BufRead>(log: &Log<R>, item: Item) -> Option<Line> {
    match item {
        Item::Damaged { first: true } => None,
        Item::Damaged { first: false } | Item::Fields | Item::Types | Item::Header => {
            Some(Line::Other)
        }
        Item::Json => {
            let value: Value = serde_json::from_slice(log.line()).ok()?;
            Some(match value.get("event_type") {
                Some(kind) if kind == "alert" => of_eve(&value),
                Some(_) => Line::Other,
                None => of_zeek(&|key| match &value[key] {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(number) => Some(number.to_string()),
                    _ => None,
                }),
            })
        }
        Item::Row => Some(of_zeek(&|key| {
            let column = log.column(log.index_of(key)?)?;
            let text = str::from_utf8(column).ok().filter(|text| !matches!(*text, "-" | "(empty)"));
            text.map(str::to_owned)
        })),
    }
}

fn of_eve(value: &Value) -> Line {
    let text = |key: &str| value[key].as_str();
    let addr = |key: &str| text(key)?.parse::<IpAddr>().ok();
    let port = |key: &str| value[key].as_u64().and_then(|port| u16::try_from(port).ok());
    let time_ns = text("timestamp").and_then(|text| parse_time_ns(text.as_bytes()));
    let ends = addr("src_ip").zip(addr("dest_ip"));
    let (Some(time_ns), Some((source, destination))) = (time_ns, ends) else {
        return Line::Placeless;
    };
    let ports = port("src_port").zip(port("dest_port"));
    let alert = &value["alert"];
    Line::Alert(Alert {
        time_ns,
        flow: flow([source, destination], ports, text("proto").unwrap_or_default()),
        id: alert["signature_id"].as_u64().map_or(String::new(), |id| id.to_string()),
        title: alert["signature"].as_str().unwrap_or("alert").to_owned(),
    })
}

/// A notice; other logs of Zeek have no `note`.
fn of_zeek(value: &dyn Fn(&str) -> Option<String>) -> Line {
    let Some(note) = value("note") else { return Line::Other };
    let time_ns = value("ts").and_then(|text| parse_time_ns(text.as_bytes()));
    let addr = |key: &str| value(key)?.parse::<IpAddr>().ok();
    let port = |key: &str| value(key)?.parse::<u16>().ok();
    let ends = addr("id.orig_h").zip(addr("id.resp_h"));
    let flow = match (ends, addr("src"), addr("dst")) {
        (Some((source, destination)), ..) => {
            let ports = port("id.orig_p").zip(port("id.resp_p"));
            let proto = value("proto").unwrap_or_default();
            Some(flow([source, destination], ports, &proto))
        }
        (None, Some(source), Some(destination)) => {
            Some(format!("(host {source} and host {destination})"))
        }
        // A scan, for example: all packets of the host.
        (None, Some(host), None) | (None, None, Some(host)) => Some(format!("host {host}")),
        (None, None, None) => None,
    };
    let (Some(time_ns), Some(flow)) = (time_ns, flow) else { return Line::Placeless };
    let title = match value("msg") {
        Some(text) => format!("{note} {text}"),
        None => note,
    };
    Line::Alert(Alert { time_ns, flow, id: String::new(), title })
}

/// A flow as a query. ICMP has types in place of ports, which logs write in several ways.
fn flow(ends: [IpAddr; 2], ports: Option<(u16, u16)>, protocol: &str) -> String {
    let protocol = protocol.to_ascii_lowercase();
    let [source, destination] = ends;
    let has_ports = matches!(&protocol[..], "tcp" | "udp" | "sctp");
    match ports.filter(|_| has_ports) {
        Some((from, to)) => format!(
            "flow {}-{}/{protocol}",
            SocketAddr::new(source, from),
            SocketAddr::new(destination, to)
        ),
        None => {
            let word = match &protocol[..] {
                "ipv6-icmp" | "icmpv6" | "icmp6" => "/icmp6",
                "icmp" if source.is_ipv6() => "/icmp6",
                "icmp" => "/icmp",
                "tcp" => "/tcp",
                "udp" => "/udp",
                "sctp" => "/sctp",
                _ => "",
            };
            format!("flow {source}-{destination}{word}")
        }
    }
}
