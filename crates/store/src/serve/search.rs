//! `GET /find?q=QUERY`: a search in a thread of its own, whose result is sent as it is found.
//!
//! ```text
//! q            the query (see `query`)                        required
//! format       pcapng | flows | csv | counts                  pcapng
//! from, to     times, as in a query                           all packets
//! limit        packets, at most                               all
//! flows        flows, at most: those with the most bytes      all
//! candidates, lookups    1: also flows with the name in these roles
//! now          the time from which `-15m` counts, ns since 1970
//! ```
//!
//! `pcapng` is sent while the search goes on. The others need all packets first: `flows` is a line
//! of JSON for each flow, those with the most bytes first, `csv` the same as CSV, and `counts` one
//! line of JSON. Of more than `FLOWS_MAX` flows, the first are counted one by one; `counts` then has
//! `packets_of_other_flows`, and `flows` a line with an error and the packets and bytes of the others.
//!
//! What could not be read is logged (see `reports`). If it is a part of the store, a capture ends
//! with a section whose comment says so, and the other forms with a line `{"error":...}`; CSV has no such line.
//!
//! Life cycle: the request starts the thread, of the lowest priority. It ends with the search, or when
//! it has something to send and the client has gone; between two segments it also looks whether that
//! is so.
//!
//! Bounds: [`SEARCHES_MAX`] searches at once, further ones get status 503; [`PARTS_MAX`] parts of
//! [`PART_BYTES`] wait for a slow client, and the search with them.

use std::io;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use larder_io::cores;
use larder_io::tcp as transfer;
use larder_serve::http_server::Piece;
use larder_serve::log::Log;
use larder_wire::capture::write;
use larder_wire::json::write_string;

use crate::find::{FindOptions, Finder, FoundPacket, Summary, Writer};
use crate::found::{CSV_HEADER, FoundFlows};
use crate::options::StoreError;
use crate::query::{Query, QueryError, time_ns};

use super::reports::Reports;

/// Searches at once.
pub const SEARCHES_MAX: usize = 8;

/// Flows of a search, which wait in memory.
const FLOWS_MAX: usize = 1 << 17;

/// Parts that wait for a client.
const PARTS_MAX: usize = 4;

/// Bytes of a part, about.
const PART_BYTES: usize = 256 << 10;

/// A smaller part is sent after this time.
const PART_TIME: Duration = Duration::from_millis(50);

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The packets, as a capture.
    Pcapng,
    /// A line of JSON for each flow.
    Flows,
    /// The same as CSV.
    Csv,
    /// One line of JSON.
    Counts,
}

impl Format {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Pcapng => "application/x-pcapng",
            Format::Flows => "application/x-ndjson",
            Format::Csv => "text/csv; charset=utf-8",
            Format::Counts => "application/json",
        }
    }
}

/// A request, as it was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub query: Query,
    pub options: FindOptions,
    pub limit: u64,
    pub flows: usize,
    pub format: Format,
}

/// Why a request was not understood, as an object of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub Vec<u8>);

impl Wrong {
    fn value(name: &str, value: &str, expected: &str) -> Wrong {
        let value: String = value.chars().take(64).collect();
        let text = format!("{name}: expected {expected}; found `{}`", value.escape_debug());
        Wrong(error_line(&text, None))
    }

    fn query(error: &QueryError) -> Wrong {
        let place = match error {
            QueryError::Syntax { column, expected, .. } => Some((*column, &expected[..])),
            _ => None,
        };
        Wrong(error_line(&error.to_string(), place))
    }
}

/// An object of JSON with an error; `place`: the column, and what was expected there.
fn error_line(text: &str, place: Option<(usize, &str)>) -> Vec<u8> {
    let mut out = b"{\"error\":".to_vec();
    write_string(text.as_bytes(), &mut out);
    if let Some((column, expected)) = place {
        out.extend_from_slice(format!(",\"column\":{column},\"expected\":").as_bytes());
        write_string(expected.as_bytes(), &mut out);
    }
    out.extend_from_slice(b"}\n");
    out
}

impl Wanted {
    /// Reads the query of a URL.
    pub fn read(url_query: &str) -> Result<Wanted, Wrong> {
        let now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as i64);
        let pairs: Vec<_> = form_urlencoded::parse(url_query.as_bytes()).collect();
        // The last of several counts, as in most servers.
        let value = |wanted: &str| {
            pairs
                .iter()
                .rfind(|(name, value)| name == wanted && !value.is_empty())
                .map(|pair| &*pair.1)
        };
        const KNOWN: [&str; 9] =
            ["q", "format", "from", "to", "limit", "flows", "candidates", "lookups", "now"];
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !KNOWN.contains(&&**name)) {
            return Err(Wrong::value("a parameter", name, &KNOWN.join(", ")));
        }
        let number = |name: &str| match value(name) {
            Some(text) => text.parse::<u64>().ok().map(Some),
            None => Some(None),
        };
        let wrong = |name: &str, expected: &str| {
            Wrong::value(name, value(name).unwrap_or_default(), expected)
        };
        let now_ns = match number("now") {
            Some(now) => now.and_then(|now| i64::try_from(now).ok()).unwrap_or(now_ns),
            None => return Err(wrong("now", "nanoseconds since 1970")),
        };
        let time = |name: &str| match value(name) {
            Some(text) => match time_ns(text, now_ns) {
                Some(ns) => Ok(Some(ns)),
                None => Err(wrong(name, "a time: RFC 3339, seconds since 1970, or -15m")),
            },
            None => Ok(None),
        };
        let switch = |name: &str| match value(name) {
            Some("1" | "true") => Ok(true),
            None | Some("0" | "false") => Ok(false),
            Some(_) => Err(wrong(name, "1 or 0")),
        };
        let format = match value("format") {
            None | Some("pcapng") => Format::Pcapng,
            Some("flows") => Format::Flows,
            Some("csv") => Format::Csv,
            Some("counts") => Format::Counts,
            Some(_) => return Err(wrong("format", "pcapng, flows, csv or counts")),
        };
        let limit = number("limit").ok_or_else(|| wrong("limit", "a number of packets"))?;
        let flows = number("flows").ok_or_else(|| wrong("flows", "a number of flows"))?;
        let query = Query::read(value("q").unwrap_or_default(), now_ns);
        Ok(Wanted {
            query: query.map_err(|error| Wrong::query(&error))?,
            options: FindOptions {
                from_ns: time("from")?,
                to_ns: time("to")?,
                candidates: switch("candidates")?,
                lookups: switch("lookups")?,
            },
            limit: limit.unwrap_or(u64::MAX),
            flows: flows.map_or(usize::MAX, |flows| usize::try_from(flows).unwrap_or(usize::MAX)),
            format,
        })
    }
}

/// The folder that is searched, and the searches that run.
#[derive(Clone, Debug)]
pub struct Searches {
    directory: PathBuf,
    running: Arc<AtomicUsize>,
    reports: Reports,
}

/// A search that runs, and the part of its result that is being sent.
pub struct Search {
    parts: Receiver<Vec<u8>>,
    /// All parts were received, and the result is whole.
    is_whole: Arc<AtomicBool>,
    is_unwanted: Arc<AtomicBool>,
    part: Vec<u8>,
    sent: usize,
}

impl Searches {
    pub fn new(directory: &Path, log: &Log) -> Searches {
        let reports = Reports::new(log.clone());
        Searches { directory: directory.to_owned(), running: Arc::default(), reports }
    }

    /// Starts a search; `waker` is woken when there are bytes. `None`: too many run, or there is no
    /// thread for it.
    pub fn start(&self, wanted: Wanted, waker: Waker) -> Option<Search> {
        let running = Running::begin(&self.running)?;
        let (sender, parts) = sync_channel(PARTS_MAX);
        let is_whole = Arc::new(AtomicBool::new(false));
        let is_unwanted = Arc::new(AtomicBool::new(false));
        let (directory, reports) = (self.directory.clone(), self.reports.clone());
        let (whole, unwanted) = (Arc::clone(&is_whole), Arc::clone(&is_unwanted));
        let search = move || {
            // Packets that arrive come first. If the kernel refuses, it runs as others do.
            let _ = cores::lower_priority();
            let result = run(&directory, wanted, unwanted, &sender, &waker);
            match &result {
                Ok(lack) => lack.iter().for_each(|lack| reports.lacks(lack)),
                Err(Ended::Failed(error)) => reports.failed(error),
                Err(Ended::Gone) => {}
            }
            whole.store(result.is_ok(), Ordering::Release);
            drop(running);
            // The end is seen after the wake, or before it.
            drop(sender);
            waker.wake();
        };
        thread::Builder::new().name("find".to_owned()).spawn(search).ok()?;
        Some(Search { parts, is_whole, is_unwanted, part: Vec::new(), sent: 0 })
    }
}

/// Counts a search while it runs.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(running: &Arc<AtomicUsize>) -> Option<Running> {
        let more = |count: usize| (count < SEARCHES_MAX).then_some(count + 1);
        running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Running(Arc::clone(running)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why a search ended early.
enum Ended {
    /// The client has gone.
    Gone,
    /// The store cannot be read.
    Failed(StoreError),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Ended {
        Ended::Failed(error)
    }
}

/// Searches; a line about what could not be read.
fn run(
    directory: &Path,
    wanted: Wanted,
    is_unwanted: Arc<AtomicBool>,
    sender: &SyncSender<Vec<u8>>,
    waker: &Waker,
) -> Result<Option<String>, Ended> {
    let send = |part: Vec<u8>| {
        sender.send(part).map_err(|_| Ended::Gone)?;
        waker.wake_by_ref();
        Ok(())
    };
    let mut finder = Finder::open(directory)?;
    // The visitor waits for the client.
    finder.keep_little();
    finder.stop_when(is_unwanted);
    let mut left = wanted.limit;
    if wanted.format != Format::Pcapng {
        let mut flows = FoundFlows::with_limit(FLOWS_MAX);
        let mut visit = |found: FoundPacket<'_>| {
            flows.take(&found);
            left = left.saturating_sub(1);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let summary = match wanted.limit {
            0 => Summary::default(),
            _ => finder.find(&wanted.query, wanted.options, &mut visit)?,
        };
        send_flows(&flows, &finder, &wanted, &summary, send)?;
        return Ok(summary.lack());
    }
    let (mut writer, mut part) = (Writer::default(), Vec::new());
    writer.begin(&mut part);
    send(std::mem::take(&mut part))?;
    let (mut since, mut is_gone) = (Instant::now(), false);
    let mut visit = |found: FoundPacket<'_>| {
        writer.packet(&found, &mut part);
        if part.len() >= PART_BYTES || since.elapsed() >= PART_TIME {
            is_gone = send(std::mem::take(&mut part)).is_err();
            since = Instant::now();
        }
        left = left.saturating_sub(1);
        if left == 0 || is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let summary = match wanted.limit {
        0 => Summary::default(),
        _ => finder.find(&wanted.query, wanted.options, &mut visit)?,
    };
    let lack = summary.lack();
    if let Some(lack) = &lack {
        write::section_with_comment(&mut part, concat!("larder ", env!("CARGO_PKG_VERSION")), lack);
    }
    if !part.is_empty() {
        send(part)?;
    }
    Ok(lack)
}

fn send_flows(
    flows: &FoundFlows,
    finder: &Finder,
    wanted: &Wanted,
    summary: &Summary,
    mut send: impl FnMut(Vec<u8>) -> Result<(), Ended>,
) -> Result<(), Ended> {
    let (mut part, format) = (Vec::new(), wanted.format);
    match format {
        Format::Counts | Format::Pcapng => {
            let (count, others) = (flows.flows() as u64, flows.others().packets);
            flows.all().write_counts(count, others, &mut part);
        }
        Format::Flows | Format::Csv => {
            if format == Format::Csv {
                part.extend_from_slice(CSV_HEADER.as_bytes());
            }
            for row in flows.rows(finder)?.iter().take(wanted.flows) {
                match format {
                    Format::Csv => row.write_csv(&mut part),
                    _ => row.write_json(&mut part),
                }
                if part.len() >= PART_BYTES {
                    send(std::mem::take(&mut part))?;
                }
            }
        }
    }
    let others = flows.others();
    if others.packets > 0 && format == Format::Flows {
        let text = format!("{} packets of further flows; narrow the search", others.packets);
        let mut line = error_line(&text, None);
        // Before the bracket and the end of the line.
        line.truncate(line.len() - 2);
        others.write_fields(&mut line);
        part.extend_from_slice(&line);
        part.extend_from_slice(b"}\n");
    }
    if let Some(lack) = summary.lack().filter(|_| format != Format::Csv) {
        part.extend_from_slice(&error_line(&lack, None));
    }
    if part.is_empty() { Ok(()) } else { send(part) }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.is_unwanted.store(true, Ordering::Release);
    }
}

impl Search {
    /// The bytes that can be sent now.
    pub fn next(&mut self, bytes_max: u64) -> Piece {
        while self.sent == self.part.len() {
            match self.parts.try_recv() {
                Ok(part) => (self.part, self.sent) = (part, 0),
                Err(TryRecvError::Empty) => return Piece::Later,
                Err(TryRecvError::Disconnected) if self.is_whole.load(Ordering::Acquire) => {
                    return Piece::End;
                }
                Err(TryRecvError::Disconnected) => return Piece::Broken,
            }
        }
        let bytes = ((self.part.len() - self.sent) as u64).min(bytes_max);
        NonZeroU64::new(bytes).map_or(Piece::End, Piece::Bytes)
    }

    /// Sends from the piece, of which `bytes_left` are left.
    pub fn send(&mut self, socket: BorrowedFd<'_>, bytes_left: u64) -> io::Result<usize> {
        let end = self.part.len().min(self.sent.saturating_add(bytes_left as usize));
        let bytes = transfer::write(&socket, &self.part[self.sent..end])?;
        self.sent += bytes;
        Ok(bytes)
    }
}
