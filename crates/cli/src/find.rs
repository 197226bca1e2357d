//! `larder find`: packets that larder annotate stored, by a query, from one store or several.
//!
//! With `-w` it writes a capture, otherwise it prints flows (`flows`). With `--follow` the reader
//! of a pipe gets each packet at once, otherwise in blocks of a quarter of a mebibyte.

mod alerts;
mod flows;
mod reader;
mod rows;

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use larder_annotate::files::open_output;
use larder_annotate::options::Endpoint;
use larder_io::access::Access;
use larder_io::output::Output;
use larder_serve::http_client;
use larder_settings::amounts::{grouped, size};
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::signals;
use larder_settings::terminal::eprint_quietly;
use larder_store::find::{Writer, segment_name};
use larder_store::many::{self, Limits, Place, Question};
use larder_store::{Damage, FindOptions, Finder, FoundPacket, Query, Summary};

use crate::annotate::failed;
use crate::page;
use crate::queries;
use crate::settings::Find;

/// Runs the command.
pub fn find(settings: &Find) -> Outcome {
    let has_query = !settings.what.is_empty() || settings.community_id.is_some();
    let question = match (&settings.alerts, has_query) {
        (Some(_), false) => None,
        _ => Some(question(settings)?),
    };
    let places = places(settings)?;
    refuse(settings, &places)?;
    let quiet = settings.quiet;
    let stop = Arc::new(AtomicBool::new(false));
    let of_signals = Arc::clone(&stop);
    let text = "stopping; what was found is being written";
    signals::call_on_signals(quiet || settings.follow, text, move || {
        of_signals.store(true, Ordering::Release)
    })
    .map_err(|error| Failure::file("signals", &error, "free some file descriptors or threads"))?;
    let limits = Limits {
        packets: settings.limit.unwrap_or(u64::MAX),
        deadline: Duration::from_secs(settings.deadline),
        stop: Arc::clone(&stop),
    };
    if let Some(log) = &settings.alerts {
        return alerts::run(settings, log, question.as_ref(), &places, &limits);
    }
    let Some(question) = question else { return Ok(exit::DONE) };
    if places.iter().any(|place| matches!(place, Place::Machine(..))) {
        let too_long = |why| Failure::usage(format!("--on: {why}"));
        question.target("pcapng", limits.packets).map_err(too_long)?;
    }
    let started = Instant::now();
    let (summary, outcomes) = match output(settings)? {
        Some(output) => packets(settings, &question, &places, &limits, LazyOutput::Open(output))?,
        None => flows::print(settings, &question, &places, &limits)?,
    };
    let elapsed_s = started.elapsed().as_secs_f64();
    if !quiet {
        report(&summary, &places, elapsed_s);
    }
    // Printed also with --quiet: the result lacks packets.
    let lines = outcome_lines(&places, &summary, &outcomes);
    lines.iter().for_each(|line| eprint_quietly(line));
    let is_whole = summary.segments_without_index.is_empty() && lines.is_empty();
    Ok(match stop.load(Ordering::Acquire) {
        true if !settings.follow => exit::INTERRUPTED,
        _ if summary.packets == 0 || !is_whole => exit::DAMAGED,
        _ => exit::DONE,
    })
}

/// Refuses settings that exclude each other.
fn refuse(settings: &Find, places: &[Place]) -> Result<(), Failure> {
    if settings.follow && !matches!(places, [Place::Directory(_)]) {
        return Err(Failure::usage("--follow: expected one --dir; remove the others, and --on"));
    }
    if settings.follow && settings.scan {
        return Err(Failure::usage("--follow reads new packets one by one; remove --scan"));
    }
    if settings.alerts.is_some() && settings.follow {
        return Err(Failure::usage("--alerts reads a log once; remove --follow"));
    }
    if settings.write.is_some() && settings.alerts.is_none() && settings.format != "table" {
        return Err(Failure::usage(format!(
            "-w writes packets, and --format {} prints flows; remove one of them",
            settings.format
        )));
    }
    if settings.format == "parquet" && !cfg!(feature = "parquet") {
        return Err(Failure::usage(
            "--format parquet: this build cannot write Parquet; build it with `--features parquet`, or \
             take ecs or zeek, which have the same fields",
        ));
    }
    let is_binary = matches!(settings.format, "ipfix" | "parquet");
    if is_binary && std::io::stdout().is_terminal() {
        return Err(Failure::usage(format!(
            "--format {}: standard output is a terminal; redirect it to a file, or pipe it",
            settings.format
        )));
    }
    if settings.alerts.is_some() && !matches!(settings.format, "table" | "jsonl") {
        return Err(Failure::usage(format!(
            "--alerts prints a row for each alert, not as --format {}; use table or jsonl",
            settings.format
        )));
    }
    Ok(())
}

/// A line for each part of the result that is missing.
fn outcome_lines(places: &[Place], summary: &Summary, outcomes: &[many::Outcome]) -> Vec<String> {
    let mut lines: Vec<String> = summary.damaged.iter().map(lacking).collect();
    for (place, outcome) in places.iter().zip(outcomes) {
        let text = match outcome {
            many::Outcome::Done(_, None) => continue,
            many::Outcome::Done(_, Some(lack)) => lack.clone(),
            many::Outcome::Failed(why) => format!("{why}; packets of it are missing"),
        };
        lines.push(format!("{}: {}", place.to_string().escape_debug(), text.escape_debug()));
    }
    lines
}

fn find_options(settings: &Find) -> FindOptions {
    FindOptions {
        from_ns: settings.from,
        to_ns: settings.to,
        candidates: settings.candidates,
        lookups: settings.lookups,
    }
}

/// The query of the command line.
fn question(settings: &Find) -> Result<Question, Failure> {
    let words: Vec<&str> = settings.what.iter().map(|word| &**word).collect();
    let mut text = words.join(" ");
    if let Some(id) = &settings.community_id {
        text = match text.trim().is_empty() {
            true => format!("community_id {}", &**id),
            false => format!("({text}) or community_id {}", &**id),
        };
    }
    let now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as i64);
    let query =
        Query::read(&text, now_ns).map_err(|error| queries::wrong("query", &text, &error))?;
    let options = find_options(settings);
    Ok(Question { query, text, now_ns, options, is_scan: settings.scan })
}

/// The stores.
fn places(settings: &Find) -> Result<Vec<Place>, Failure> {
    let token = settings.token.as_deref().map(|path| page::token("--token", path)).transpose()?;
    let mut places: Vec<Place> =
        settings.dir.iter().map(|path| Place::Directory(path.clone())).collect();
    for word in &settings.on[..] {
        let Some(place) = http_client::Place::parse(word) else {
            return Err(Failure::usage(format!(
                "--on {}: expected HOST:PORT or unix:PATH, such as sensor1:8053",
                word.escape_debug()
            )));
        };
        places.push(Place::Machine(place, token.clone()));
    }
    if settings.scan && places.iter().any(|place| matches!(place, Place::Machine(..))) {
        return Err(Failure::usage("--scan reads directories only; remove --on or --scan"));
    }
    if places.is_empty() {
        places.push(Place::Directory(".".into()));
    }
    // A directory without packets is a mistake of the user, also next to others.
    for place in &places {
        if let Place::Directory(path) = place {
            Finder::open(path).map_err(|error| in_folder(path, &error))?;
        }
    }
    Ok(places)
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

/// Writes the packets. The summary is of all directories.
fn packets(
    settings: &Find,
    question: &Question,
    places: &[Place],
    limits: &Limits,
    output: LazyOutput,
) -> Result<(Summary, Vec<many::Outcome>), Failure> {
    let mut taker = Taker {
        left: limits.packets,
        output,
        writer: Writer::default(),
        block: Vec::new(),
        failed: None,
        flushes: settings.follow,
        packets: 0,
        bytes: 0,
    };
    if let LazyOutput::Open(_) = &taker.output {
        taker.begin();
    }
    let stopped = || limits.stop.load(Ordering::Acquire);
    let mut visit = |found: FoundPacket<'_>| match stopped() {
        true => ControlFlow::Break(()),
        false => taker.take(&found),
    };
    let (mut summary, outcomes) = match places {
        [Place::Directory(path)] => {
            let mut finder = Finder::open(path).map_err(|error| in_folder(path, &error))?;
            let (query, options) = (&question.query, question.options);
            let is_pipe = settings.write.as_deref() == Some(Path::new("-"));
            let (mut reader, mut has_gone) = (reader::Reader::new(is_pipe), false);
            let mut idle = || {
                has_gone = reader.has_gone();
                match has_gone || stopped() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            finder.stop_when(Arc::clone(&limits.stop));
            let found = match settings.follow {
                true => finder.follow(query, options, &mut idle, &mut visit),
                false => question.find(&mut finder, &mut visit),
            };
            if has_gone {
                return Err(Failure::closed_pipe());
            }
            (found.map_err(|error| in_folder(path, &error))?, Vec::new())
        }
        places => {
            let outcomes = many::find(places, question, limits, &mut visit);
            (joined(&outcomes), outcomes)
        }
    };
    (summary.packets, summary.bytes) = (taker.packets, taker.bytes);
    taker.finish()?;
    Ok((summary, outcomes))
}

/// The summary of several stores; what could not be read is in their outcomes.
fn joined(outcomes: &[many::Outcome]) -> Summary {
    let mut all = Summary::default();
    for outcome in outcomes {
        if let many::Outcome::Done(summary, _) = outcome {
            all.segments += summary.segments;
            all.damaged.extend_from_slice(&summary.damaged);
            all.segments_without_index.extend_from_slice(&summary.segments_without_index);
        }
    }
    all
}

/// One line about a segment of which something could not be read.
fn lacking(damage: &Damage) -> String {
    let Damage { segment, packets, bytes } = *damage;
    let segment = segment_name(segment);
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

fn in_folder(directory: &Path, error: &larder_store::StoreError) -> Failure {
    let folder = directory.display().to_string();
    Failure::usage(format!(
        "{error}; name the -w directory of larder annotate with --dir (now: {})",
        folder.escape_debug()
    ))
}

fn report(summary: &Summary, places: &[Place], elapsed_s: f64) {
    let of = match places {
        [Place::Directory(_)] => plural(summary.segments, "segment"),
        places => plural(places.len() as u64, "store"),
    };
    eprint_quietly(&format!(
        "{} ({}) in {of}, {:.1} ms",
        plural(summary.packets, "packet"),
        size(summary.bytes),
        elapsed_s * 1e3
    ));
    if !summary.segments_without_index.is_empty() {
        let numbers: Vec<String> =
            summary.segments_without_index.iter().map(|number| segment_name(*number)).collect();
        eprint_quietly(&format!(
            "no sound index or journal for segments {}: larder scanned them, and names of their flows may be missing",
            numbers.join(", ")
        ));
    }
}

/// An output that is created when there is something to write, or at once.
enum LazyOutput {
    Later(PathBuf),
    Open(Output),
}

impl LazyOutput {
    /// A file of this name, for packets only.
    fn later(path: &Path) -> LazyOutput {
        LazyOutput::Later(path.to_owned())
    }

    fn open(&mut self) -> Result<&mut Output, larder_annotate::Error> {
        if let LazyOutput::Later(path) = self {
            let endpoint = Endpoint::Path(path.clone());
            *self = LazyOutput::Open(open_output(&endpoint, Access::PRIVATE)?);
        }
        match self {
            LazyOutput::Open(output) => Ok(output),
            LazyOutput::Later(_) => unreachable!("it was opened above"),
        }
    }
}

/// Writes the packets that were found.
struct Taker {
    left: u64,
    output: LazyOutput,
    writer: Writer,
    block: Vec<u8>,
    failed: Option<larder_annotate::Error>,
    flushes: bool,
    packets: u64,
    bytes: u64,
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
        self.packets += 1;
        self.bytes += found.frame.len() as u64;
        self.writer.packet(found, &mut self.block);
        self.write();
        match self.failed.is_some() || self.left == 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn write(&mut self) {
        let (block, flushes) = (&self.block, self.flushes);
        let written = self.output.open().and_then(|output| {
            output.write_all(block)?;
            if flushes {
                output.flush()?;
            }
            Ok(())
        });
        self.failed = written.err();
        self.block.clear();
    }

    fn finish(self) -> Result<(), Failure> {
        match (self.failed, self.output) {
            (Some(error), _) => Err(failed(error)),
            (None, LazyOutput::Open(output)) => {
                output.finish().map_err(|error| failed(error.into()))
            }
            (None, LazyOutput::Later(_)) => Ok(()),
        }
    }
}
