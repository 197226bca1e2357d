//! Flows of the packets that were found, of one store or several, as a table, JSON, CSV or counts,
//! or in a format of the log.
//!
//! Each store is searched by a thread of its own, and counts by itself; a machine sends its flows
//! as lines of JSON. Flows that several stores have are joined.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use larder_annotate::options::{Options, OutputFormat};
use larder_annotate::stored;
use larder_serve::http_client;
use larder_settings::amounts::grouped;
use larder_settings::exit::Failure;
use larder_settings::terminal;
use larder_store::found::{self, CSV_HEADER, FLOWS_MAX, FoundFlows, Row, Tally};
use larder_store::many::{Limits, Outcome, Place, Question, refused};
use larder_store::{Finder, FlowKey, FoundPacket, Summary};
use serde_json::Value;

use super::{in_folder, plural, rows};
use crate::annotate::failed;
use crate::settings::Find;

/// The formats of the log.
const LOG_FORMATS: [(&str, OutputFormat); 4] = [
    ("zeek", OutputFormat::Zeek),
    ("ecs", OutputFormat::Ecs),
    ("ipfix", OutputFormat::Ipfix),
    ("parquet", OutputFormat::Parquet),
];

/// Rows of the table at most: the flows with the most bytes.
const FLOWS_SHOWN: usize = 1_000;

/// Names of a flow that the table shows.
const NAMES_SHOWN: usize = 3;

/// Lines of a machine about what is missing.
const LACKS_MAX: usize = 4;

/// Bytes of a line of a machine.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// How long a search that was stopped may take to end.
const STOP_TIME: Duration = Duration::from_secs(1);

/// The flows of one store.
#[derive(Default)]
struct OfPlace {
    rows: Vec<Row>,
    /// Packets of flows that no row has.
    others: Tally,
}

/// Searches the places, and prints their flows.
pub fn print(
    settings: &Find,
    question: &Question,
    places: &[Place],
    limits: &Limits,
) -> Result<(Summary, Vec<Outcome>), Failure> {
    let (found, outcomes) = collect(question, places, limits);
    let mut summary = super::joined(&outcomes);
    if let ([Place::Directory(path)], [Outcome::Failed(error)]) = (places, &outcomes[..]) {
        let error =
            larder_store::StoreError::Io(path.clone(), std::io::Error::other(error.clone()));
        return Err(in_folder(path, &error));
    }
    let others = found.iter().fold(Tally::default(), |all, of_place| all.joined(of_place.others));
    let rows = joined(found);
    let all = rows.iter().fold(others, |all, row| all.joined(row.tally));
    (summary.packets, summary.bytes) = (all.packets, all.bytes);
    if let Some((_, format)) = LOG_FORMATS.iter().find(|(word, _)| *word == settings.format) {
        let options = Options { format: *format, ..Options::default() };
        stored::write(&rows, &options).map_err(failed)?;
        return Ok((summary, outcomes));
    }
    let mut out = Vec::new();
    match settings.format {
        "table" => out = table(&rows, others.packets).into_bytes(),
        "jsonl" => rows.iter().for_each(|row| row.write_json(&mut out)),
        "csv" => {
            out.extend_from_slice(CSV_HEADER.as_bytes());
            rows.iter().for_each(|row| row.write_csv(&mut out));
        }
        _ => {
            let flows = rows.iter().filter(|row| row.key.is_some()).count();
            all.write_counts(flows as u64, others.packets, &mut out);
        }
    }
    terminal::print(&String::from_utf8_lossy(&out))?;
    Ok((summary, outcomes))
}

/// The flows of each place, and how its search ended.
fn collect(question: &Question, places: &[Place], limits: &Limits) -> (Vec<OfPlace>, Vec<Outcome>) {
    let (sender, results) = channel();
    let mut outcomes: Vec<Option<Outcome>> = places.iter().map(|_| None).collect();
    // All of them wait in memory at once.
    let flows_max = (FLOWS_MAX / places.len().max(1)).max(1);
    for (at, place) in places.iter().enumerate() {
        let (place, question, limits) = (place.clone(), question.clone(), limits.clone());
        let sender = sender.clone();
        let search = move || {
            // The command may have ended.
            let _ = sender.send((at, search(&place, &question, &limits, flows_max)));
        };
        if let Err(error) = thread::Builder::new().name("find".to_owned()).spawn(search) {
            outcomes[at] = Some(Outcome::Failed(format!("no thread: {error}")));
        }
    }
    drop(sender);
    let (mut found, started) = (Vec::new(), Instant::now());
    let mut stopped: Option<Instant> = None;
    while outcomes.iter().any(Option::is_none) {
        if limits.stop.load(Ordering::Acquire) {
            // Folders return what they have found so far. Machines cannot, and are not waited for.
            let is_over = stopped.get_or_insert_with(Instant::now).elapsed() >= STOP_TIME;
            for (place, outcome) in places.iter().zip(&mut outcomes) {
                if outcome.is_none() && (is_over || matches!(place, Place::Machine(..))) {
                    let summary = Summary { is_broken_off: true, ..Summary::default() };
                    *outcome = Some(Outcome::Done(summary, None));
                }
            }
        }
        match results.recv_timeout(Duration::from_millis(100)) {
            Ok((at, Ok((of_place, summary, lack)))) => {
                if outcomes[at].is_none() {
                    found.push(of_place);
                    outcomes[at] = Some(Outcome::Done(summary, lack));
                }
            }
            Ok((at, Err(why))) => drop(outcomes[at].get_or_insert(Outcome::Failed(why))),
            Err(RecvTimeoutError::Timeout) if started.elapsed() < limits.deadline => {}
            Err(RecvTimeoutError::Timeout) => {
                let late = places.iter().zip(&mut outcomes);
                for (_, outcome) in late.filter(|(place, outcome)| {
                    matches!(place, Place::Machine(..)) && outcome.is_none()
                }) {
                    let text = format!("no result within {} s", limits.deadline.as_secs());
                    *outcome = Some(Outcome::Failed(text));
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let lost = || Outcome::Failed("the search ended early".to_owned());
    (found, outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(lost)).collect())
}

type Found = Result<(OfPlace, Summary, Option<String>), String>;

fn search(place: &Place, question: &Question, limits: &Limits, flows_max: usize) -> Found {
    match place {
        Place::Directory(path) => {
            let mut finder = Finder::open(path).map_err(|error| error.to_string())?;
            finder.stop_when(limits.stop.clone());
            let (mut flows, mut left) = (FoundFlows::with_limit(flows_max), limits.packets);
            let mut visit = |found: FoundPacket<'_>| {
                flows.take(&found);
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let summary = question.find(&mut finder, &mut visit);
            let summary = summary.map_err(|error| error.to_string())?;
            let rows = flows.rows(&finder).map_err(|error| error.to_string())?;
            let others = flows.others();
            Ok((OfPlace { rows, others }, summary, in_no_row(others)))
        }
        Place::Machine(at, token) => {
            let target = question.target("flows", limits.packets)?;
            let response = http_client::get(at, &target, token.as_deref(), limits.deadline)
                .map_err(|error| error.to_string())?;
            match response.status {
                200 => read(response, flows_max),
                _ => Err(refused(response)),
            }
        }
    }
}

/// The lines of a machine.
fn read(response: impl Read, flows_max: usize) -> Found {
    let mut reader = BufReader::new(response);
    let (mut of_place, mut lacks, mut line) = (OfPlace::default(), Vec::new(), Vec::new());
    let mut beyond = Tally::default();
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|error| error.to_string())? == 0 {
            lacks.extend(in_no_row(beyond));
            of_place.others = of_place.others.joined(beyond);
            let lack = (!lacks.is_empty()).then(|| lacks.join("; "));
            return Ok((of_place, Summary::default(), lack));
        }
        let value: Value = serde_json::from_slice(&line)
            .map_err(|_| "its response is no list of flows".to_owned())?;
        if let Some(error) = value["error"].as_str() {
            if lacks.len() < LACKS_MAX {
                lacks.push(error.to_owned());
            }
            // Of flows beyond its own limit.
            of_place.others = of_place.others.joined(rows::tally(&value).unwrap_or_default());
            continue;
        }
        let row = rows::row(&value).ok_or("its response is no list of flows")?;
        if of_place.rows.len() < flows_max {
            of_place.rows.push(row);
        } else {
            beyond = beyond.joined(row.tally);
        }
    }
}

/// A line about packets that are counted, but not by their flows.
fn in_no_row(others: Tally) -> Option<String> {
    let packets = plural(others.packets, "packet");
    (others.packets > 0).then(|| format!("{packets} of further flows; narrow the search"))
}

/// The rows of all places, those with the most bytes first.
fn joined(of_places: Vec<OfPlace>) -> Vec<Row> {
    let mut of_places = of_places.into_iter();
    let (Some(first), rest) = (of_places.next(), of_places) else { return Vec::new() };
    let mut rows = first.rows;
    // One store has nothing to join with.
    let of_first = rows.iter().enumerate().filter(|_| rest.len() > 0);
    let mut known: HashMap<Option<FlowKey>, usize> =
        of_first.map(|(at, row)| (row.key, at)).collect();
    for row in rest.flat_map(|of_place| of_place.rows) {
        match known.get(&row.key) {
            Some(&at) => rows[at].join(row),
            None => {
                known.insert(row.key, rows.len());
                rows.push(row);
            }
        }
    }
    found::sort(&mut rows);
    rows
}

/// Flows, those with the most bytes first.
fn table(rows: &[Row], others: u64) -> String {
    let mut text = String::new();
    if !rows.is_empty() {
        text += &format!("{:>9} {:>12} {:>11}  FLOW, NAMES\n", "PACKETS", "BYTES", "DURATION");
    }
    for row in rows.iter().take(FLOWS_SHOWN) {
        let Row { tally, names, .. } = row;
        let network = row.network();
        let flow = row.word().unwrap_or_else(|| "no flow (not IP, or malformed)".to_owned());
        let lasted_s = tally.last_ns.saturating_sub(tally.first_ns) as f64 / 1e9;
        // Writing to a string does not fail.
        let _ = write!(text, "{:>9} {:>12} {lasted_s:>10.3}s  {flow}", tally.packets, tally.bytes);
        if !network.is_empty() {
            let _ = write!(text, " and {network}");
        }
        for name in names.iter().take(NAMES_SHOWN) {
            let _ = write!(text, " {name}");
        }
        if names.len() > NAMES_SHOWN {
            let _ = write!(text, " (and {} more)", names.len() - NAMES_SHOWN);
        }
        text.push('\n');
    }
    if rows.len() > FLOWS_SHOWN {
        let more = grouped((rows.len() - FLOWS_SHOWN) as u64);
        let _ = writeln!(text, "and {more} flows more; --format jsonl has them");
    }
    if others > 0 {
        let _ =
            writeln!(text, "and {} of other flows; narrow the search", plural(others, "packet"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use larder_store::{FindOptions, Query};

    use super::*;

    /// A search that is stopped does not wait for a machine that does not respond.
    #[test]
    fn a_stopped_search_waits_for_no_machine() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address").to_string();
        let places = [Place::Machine(http_client::Place::Tcp(address), None)];
        let (query, options) = (Query::read("udp", 0).expect("a query"), FindOptions::default());
        let question =
            Question { query, text: "udp".to_owned(), now_ns: 0, options, is_scan: false };
        let stop = Arc::new(AtomicBool::new(true));
        let limits = Limits { packets: u64::MAX, deadline: Duration::from_secs(5), stop };
        let (found, outcomes) = collect(&question, &places, &limits);
        let is_stopped = |summary: &Summary| summary.is_broken_off;
        assert!(
            matches!(&outcomes[..], [Outcome::Done(summary, None)] if is_stopped(summary)),
            "{outcomes:?}"
        );
        assert!(found.is_empty());
    }

    /// Flows beyond the limit of this program, and those beyond the machine's own, are counted together, and
    /// each is stated. Every line about what is missing is.
    #[test]
    fn flows_of_machines_are_bounded() {
        let times = r#""first":"1970-01-01T00:00:02Z","last":"1970-01-01T00:00:03Z""#;
        let row = |host: u8, network: &str| {
            let end = |host: u8| {
                format!(
                    "{{\"address\":\"10.0.0.{host}\",\"port\":1,\"packets\":1,\"ip_bytes\":36}}"
                )
            };
            let ends = format!("\"source\":{},\"destination\":{}", end(host), end(9));
            let counts = format!("\"packets\":2,\"bytes\":100,{times},\"names\":[]");
            format!("{{\"flow\":\"udp\"{network},{counts},\"protocol\":17,{ends}}}\n")
        };
        let text = [
            row(1, ""),
            row(1, ",\"network\":\"vlan 10\""),
            row(2, ""),
            format!(
                "{{\"error\":\"7 packets of further flows; narrow the search\",\"packets\":7,\"bytes\":70,{times}}}\n"
            ),
            "{\"error\":\"packets could not be read\"}\n".to_owned(),
        ];
        let (of_place, _, lack) = read(text.concat().as_bytes(), 2).expect("a list of flows");
        let networks: Vec<String> = of_place.rows.iter().map(Row::network).collect();
        assert_eq!(networks, ["", "vlan 10"]);
        assert_eq!((of_place.others.packets, of_place.others.bytes), (9, 170));
        let expected = "7 packets of further flows; narrow the search; packets could not be read; \
                        2 packets of further flows; narrow the search";
        assert_eq!(lack.as_deref(), Some(expected));
        let other = read(row(1, "").as_bytes(), 2).expect("a list").0;
        let rows = joined(vec![of_place, other]);
        let packets: Vec<(String, u64)> =
            rows.iter().map(|row| (row.network(), row.tally.packets)).collect();
        let expected = [(String::new(), 4), ("vlan 10".to_owned(), 2)];
        assert_eq!(packets, expected, "VLANs are joined apart");
        let hostile = row(1, ",\"network\":\"vlan \\u001b[2J\"");
        assert!(read(hostile.as_bytes(), 2).is_err());
    }
}
