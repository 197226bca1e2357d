//! `--eve` and `--zeek-log`: a log of another program comes out again, with names.
//!
//! Every octet of the log stays, in order; lines that name a flow get our columns or keys: those of
//! the schema ([`FIELDS`]) that are about names. Names come from `--zeek-dns`, `--dnstap`,
//! `--names-load` and, in an EVE log, from its own DNS events.
//!
//! **A line gets the name that was valid at its own time** (rule 7), which for a connection is its
//! start; logs are in the order in which flows end. So a file is gone through three times:
//!
//! ```text
//! ask      read the log; what each line asks or teaches goes to a sorter, by time   -> look up
//! look up  in order of time: learn what is not later, look up; by line number       -> write
//! write    read the log again; each line gets its answer                            -> done
//! ```
//!
//! A pipe can be read once, and somebody may be waiting for its lines: each is answered as it comes,
//! with what is known by then; a name learned after the line's own time is marked late. The output
//! is flushed whenever no whole line is left to be read.
//!
//! Bounds: a line ([`LINE_BYTES_MAX`](super::LINE_BYTES_MAX)); two sorters
//! ([`MEMORY_BYTES_MAX`] each, and disk); the names' budget. A log that grows between the readings
//! is written as far as it was read first.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_io::output::Output;
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use super::dns_observation::{
    DnsObservation, read_addr, read_name, read_number, read_octets, read_time, time_key,
    write_addr, write_name, write_number,
};
use super::external_names::{self, Damages, ExternalNames};
use super::input::{self, Octets};
use super::zeek::Column;
use super::{FlowEnds, Said, Value, eve, zeek};
use crate::files::{load_names, make_directory, open_output, save_names};
use crate::flow::protocol;
use crate::format::schema::{self, FIELDS, Field};
use crate::names::{Found, Key, LearnedMarks, Names};
use crate::options::{Endpoint, NameSources, Options, OutputFormat, Rules, Summary, Unresolved};
use crate::record::{
    ConflictGrade, ConnState, End, EndReason, FlowRecord, NameFlags, NameSource, Naming,
    UnnamedReason,
};
use crate::sort::{MEMORY_BYTES_MAX, Sorter};
use crate::stated::{choose, is_resolver_traffic, state};
use crate::{Error, Progress};

/// ExternalNames between two commits to the engine. Bounds what an overlay holds.
const OBSERVATIONS_PER_COMMIT: u32 = 1 << 12;
/// Lines between two looks at the stop flag.
const LINES_A_LOOK: u64 = 1 << 10;
/// A line this soon after the log's first may have had its lookup before it.
const BEFORE_LOG_NS: i64 = 10_000_000_000;

/// True when the options name a log to annotate.
pub fn is_wanted(options: &Options) -> bool {
    options.eve.is_some() || options.zeek_log.is_some()
}

/// Annotates the log that the options name, to its end (or until `progress.stop`).
pub fn run(options: &Options, progress: &Arc<Progress>) -> Result<Summary, Error> {
    let (endpoint, form) = check(options)?;
    let text = input::open(endpoint, progress)?;
    let name = text.name.clone();
    let streams = text.live || *endpoint == Endpoint::Pipe;
    let external_names = ExternalNames::open(options, streams, progress)?;
    let (mut names, _) = Names::new(
        options.names_budget_bytes,
        0,
        options.seed,
        options.candidates_max,
        options.rules,
    )?;
    if let Some(path) = &options.names_load {
        // Logs say no networks.
        load_names(&mut names, path, true, &mut || ())?;
    }
    if let Some(directory) = &options.directory {
        make_directory(directory, options.access)?;
    }
    let mut out = open_output(&options.output, options.access)?;
    let fields = fields(form);
    let mut annotator = Annotator {
        learned: names.learned(),
        names,
        external_names,
        sources: options.names,
        rules: options.rules,
        uncommitted: 0,
        observations_learned: 0,
        first_ns: None,
        summary: Summary::default(),
        damaged: Damages::new(),
    };
    let reader = Reader::new(form, text.octets);
    let mut write = Write { fields, out: &mut out, line: Vec::new(), options, progress };
    if streams {
        annotator.stream(reader, &name, &mut write)?;
    } else {
        let (mut asked, lines) = annotator.ask(reader, &name, progress)?;
        let answers = annotator.look_up(&mut asked)?;
        drop(asked);
        let reader = Reader::new(form, input::open(endpoint, progress)?.octets);
        write.file(reader, lines, answers)?;
    }
    if options.names_save.is_some() || options.directory.is_some() {
        annotator.learn_until(i64::MAX)?;
    }
    out.finish()?;
    annotator.finish(options, progress)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Zeek,
    Eve,
}

/// Which log, and of which form; contradictions are refused.
fn check(options: &Options) -> Result<(&Endpoint, Form), Error> {
    let refuse = |text: &str| Err(Error::Options(text.to_owned()));
    if !options.read.is_empty() {
        return refuse(
            "-r and a log to annotate: one run does one of them; learn from the capture first with \
             -r FILE --names-save NAMES, then annotate with --names-load NAMES",
        );
    }
    if options.write_packets.is_some() {
        return refuse("-w: a log has no packets to write; leave it out");
    }
    if options.rotation.is_wanted() {
        return refuse(
            "a log that is annotated comes out as one file; rotate it before, or leave this out",
        );
    }
    let (endpoint, form) = match (&options.eve, &options.zeek_log) {
        (Some(_), Some(_)) => {
            return refuse("--eve and --zeek-log: one run annotates one log; run larder twice");
        }
        (Some(endpoint), None) => (endpoint, Form::Eve),
        (None, Some(endpoint)) => (endpoint, Form::Zeek),
        (None, None) => return refuse("no log to annotate; name one with --eve or --zeek-log"),
    };
    match (form, options.format) {
        (_, OutputFormat::Text)
        | (Form::Zeek, OutputFormat::Zeek)
        | (Form::Eve, OutputFormat::Ecs) => Ok((endpoint, form)),
        _ => refuse("--format: an annotated log keeps its own form; leave --format out"),
    }
}

/// The fields that are added to a line.
fn fields(form: Form) -> Vec<&'static Field> {
    // Of tunnels a log says itself what it knows.
    let is_ours = |name: &str| name.starts_with("larder.") && !name.starts_with("larder.tunnel.");
    let wanted = |field: &&Field| match form {
        Form::Zeek => is_ours(field.name) && field.zeek.is_some(),
        Form::Eve => {
            is_ours(field.name) || matches!(field.name, "source.domain" | "destination.domain")
        }
    };
    FIELDS.iter().filter(wanted).collect()
}

enum Reader {
    Zeek(zeek::Log<Octets>),
    Eve(eve::Log<Octets>),
}

/// What a line is, whichever log it is from.
#[derive(Clone, Copy)]
enum Item {
    Zeek(zeek::Item),
    Eve(eve::Item),
}

impl Reader {
    fn new(form: Form, octets: Octets) -> Reader {
        match form {
            Form::Zeek => Reader::Zeek(zeek::Log::new(octets)),
            Form::Eve => Reader::Eve(eve::Log::new(octets)),
        }
    }

    fn advance(&mut self) -> std::io::Result<Option<Item>> {
        Ok(match self {
            Reader::Zeek(log) => log.advance()?.map(Item::Zeek),
            Reader::Eve(log) => log.advance()?.map(Item::Eve),
        })
    }

    fn line(&self) -> &[u8] {
        match self {
            Reader::Zeek(log) => log.line(),
            Reader::Eve(log) => log.line(),
        }
    }

    /// No whole line waits to be read.
    fn is_drained(&self) -> bool {
        let octets = match self {
            Reader::Zeek(log) => log.input(),
            Reader::Eve(log) => log.input(),
        };
        !octets.buffer().contains(&b'\n')
    }

    fn query(&self, item: Item) -> Query {
        match (self, item) {
            (Reader::Zeek(log), Item::Zeek(item)) => {
                Query { said: log.said(item), ..Query::of(log.flow_ends(item), false) }
            }
            (Reader::Eve(log), Item::Eve(_)) => {
                let event = log.event();
                Query {
                    said: event.said.clone(),
                    observation: event.dns.as_ref().and_then(DnsObservation::of_row),
                    ..Query::of(event.ends, event.from_responder)
                }
            }
            _ => Query::default(),
        }
    }

    fn write_with(&self, item: Item, columns: &[Column<'_>], out: &mut Vec<u8>) {
        match (self, item) {
            (Reader::Zeek(log), Item::Zeek(item)) => log.write_with(item, columns, out),
            (Reader::Eve(log), Item::Eve(item)) => {
                let keys: Vec<_> =
                    columns.iter().map(|column| (column.name, column.value)).collect();
                log.write_with(item, &keys, out);
            }
            _ => out.extend_from_slice(self.line()),
        }
    }
}

impl Item {
    fn is_damaged(self) -> bool {
        matches!(
            self,
            Item::Zeek(zeek::Item::Damaged { first: true })
                | Item::Eve(eve::Item::Damaged { first: true })
        )
    }
}

/// What a line asks, and what it teaches.
#[derive(Default)]
struct Query {
    /// Time, source, destination.
    ends: Option<(i64, Addr, Addr)>,
    from_responder: bool,
    /// The line is about a lookup: `--unresolved` leaves it out.
    is_lookup: bool,
    said: Said,
    observation: Option<DnsObservation>,
}

const HAS_SERVER_NAME: u8 = 1;
const IS_QUIC: u8 = 2;
const HAS_HOST: u8 = 4;
const FROM_RESPONDER: u8 = 8;
const IS_LOOKUP: u8 = 16;

impl Query {
    /// A query that says nothing but its ends.
    fn of(ends: Option<FlowEnds>, from_responder: bool) -> Query {
        let is_lookup = ends.is_some_and(|ends| {
            let (responder, port) = match from_responder {
                true => (ends.source, ends.source_port),
                false => (ends.destination, ends.destination_port),
            };
            is_resolver_traffic(ends.protocol.unwrap_or(protocol::UDP), responder, port)
        });
        let ends = ends.map(|ends| (ends.time_ns, ends.source, ends.destination));
        Query { ends, from_responder, is_lookup, ..Query::default() }
    }

    fn time_ns(&self) -> Option<i64> {
        self.ends.map(|(time_ns, ..)| time_ns)
    }

    /// The form for a sorter: line, ends, what is said, and a observation at the end.
    fn write(&self, line: u64, out: &mut Vec<u8>) {
        let Some((time_ns, source, destination)) = self.ends else { return };
        out.extend_from_slice(&line.to_le_bytes());
        out.extend_from_slice(&time_ns.to_le_bytes());
        write_addr(source, out);
        write_addr(destination, out);
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        out.push(
            flag(self.said.server_name.is_some(), HAS_SERVER_NAME)
                | flag(self.said.is_quic, IS_QUIC)
                | flag(self.said.http_host.is_some(), HAS_HOST)
                | flag(self.from_responder, FROM_RESPONDER)
                | flag(self.is_lookup, IS_LOOKUP),
        );
        for name in [&self.said.server_name, &self.said.http_host].into_iter().flatten() {
            write_name(name, out);
        }
        if let Some(observation) = &self.observation {
            observation.write(out);
        }
    }

    fn read(mut from: &[u8]) -> Option<(u64, Query)> {
        let from = &mut from;
        let line = u64::from_le_bytes(*read_octets(from, 8)?.first_chunk()?);
        let ends = (read_time(from)?, read_addr(from)?, read_addr(from)?);
        let flags = *read_octets(from, 1)?.first()?;
        let mut said = Said { is_quic: flags & IS_QUIC != 0, ..Said::default() };
        if flags & HAS_SERVER_NAME != 0 {
            said.server_name = Some(read_name(from)?);
        }
        if flags & HAS_HOST != 0 {
            said.http_host = Some(read_name(from)?);
        }
        let observation = if from.is_empty() { None } else { DnsObservation::read(from) };
        let from_responder = flags & FROM_RESPONDER != 0;
        let is_lookup = flags & IS_LOOKUP != 0;
        Some((line, Query { ends: Some(ends), from_responder, is_lookup, said, observation }))
    }
}

struct Annotator {
    names: Names,
    learned: Arc<LearnedMarks>,
    external_names: Option<ExternalNames>,
    sources: NameSources,
    rules: Rules,
    uncommitted: u32,
    observations_learned: u64,
    /// Time of the log's first line, or of its earliest where that is known.
    first_ns: Option<i64>,
    summary: Summary,
    damaged: Damages,
}

impl Annotator {
    fn learn(&mut self, observation: &DnsObservation) -> Result<(), Error> {
        self.observations_learned += 1;
        observation.teach(self.observations_learned, self.sources, self.rules, &mut self.names);
        self.summary.answers += 1;
        // A observation may have thousands of addresses; each counts.
        self.uncommitted += 1 + observation.addresses.len() as u32;
        if self.uncommitted >= OBSERVATIONS_PER_COMMIT {
            self.uncommitted = 0;
            // The only reader is the names' own, which a stalled commit has synced.
            while self.names.commit()?.is_none() {}
        }
        Ok(())
    }

    /// Learns what came to be known by `time_ns`.
    fn learn_until(&mut self, time_ns: i64) -> Result<(), Error> {
        while let Some(external_names) = &mut self.external_names {
            let Some(observation) = external_names.until(time_ns)? else { break };
            self.learn(&observation)?;
        }
        Ok(())
    }

    /// Learns what a line teaches, and answers what it asks.
    fn answer(&mut self, query: &Query) -> Result<Option<Answer>, Error> {
        let Some((time_ns, source, destination)) = query.ends else { return Ok(None) };
        self.learn_until(time_ns)?;
        if let Some(observation) = &query.observation {
            self.learn(observation)?;
        }
        self.first_ns.get_or_insert(time_ns);
        let (client, server) =
            if query.from_responder { (destination, source) } else { (source, destination) };
        let view = self.names.view();
        let at = |addr, found: Option<Found>| verdict(addr, found, time_ns);
        let mut responder = at(server, None);
        let (mut has_no_lookup, mut has_no_name) = (false, false);
        if !server.is_multicast_or_broadcast() {
            let found = view.destination(client, server, u64::MAX, time_ns);
            let support = found.as_ref().map(|found| found.support).unwrap_or_default();
            let why = self.why_unnamed(server, time_ns, found.is_some());
            responder = at(server, found);
            // Rule 6: what a flow says of itself names it, and DNS stands beside it.
            let Said { server_name, is_quic, http_host } = &query.said;
            let stated = choose(server_name.as_ref(), *is_quic, http_host.as_ref(), self.sources);
            if let Some(stated) = stated {
                let support = self.sources.has(NameSource::DnsAddress).then_some(support);
                state(&mut responder, stated, support, |name, others| {
                    view.are_joined(name, others, u64::MAX)
                });
            }
            if responder.naming.is_none() {
                responder.unnamed_reason = Some(why);
            }
            has_no_lookup = !support.has_lookup() && why == UnnamedReason::NoLookupSeen;
            has_no_name = responder.naming.is_none();
            self.summary.count_destination(&responder);
        }
        self.summary.flows += 1;
        let initiator = at(client, view.host(client, u64::MAX, time_ns));
        let (source, destination) =
            if query.from_responder { (responder, initiator) } else { (initiator, responder) };
        let unresolved = match query.is_lookup {
            true => [false; 2],
            false => [has_no_lookup, has_no_name],
        };
        Ok(Some(Answer { source, destination, unresolved }))
    }

    fn why_unnamed(&self, addr: Addr, time_ns: i64, is_known: bool) -> UnnamedReason {
        let hash = self.names.cache().hash(Key::address(Scope::NONE, addr).as_bytes()).get();
        let first_ns = self.first_ns.unwrap_or(time_ns);
        if addr.is_local() {
            UnnamedReason::Local
        } else if !is_known && self.learned.named.has(hash, u64::from(u32::MAX)) {
            UnnamedReason::Evicted
        } else if time_ns.saturating_sub(first_ns) < BEFORE_LOG_NS {
            UnnamedReason::BeforeCapture
        } else {
            UnnamedReason::NoLookupSeen
        }
    }

    /// A pipe: each line as it comes.
    fn stream(&mut self, mut log: Reader, name: &str, write: &mut Write<'_>) -> Result<(), Error> {
        let mut offset = 0;
        while !write.progress.stop.load(Ordering::Relaxed)
            && let Some(item) = self.next(&mut log, name, offset)
        {
            let answer = self.answer(&log.query(item))?;
            write.line(&log, item, answer.as_ref())?;
            offset += log.line().len() as u64;
            write.progress.input_bytes.store(offset, Ordering::Relaxed);
            if log.is_drained() {
                write.out.flush()?;
            }
        }
        self.summary.input_bytes = offset;
        Ok(())
    }

    /// The next line; `None` at the end, and where the log can't be read on.
    fn next(&mut self, log: &mut Reader, name: &str, offset: u64) -> Option<Item> {
        match log.advance() {
            Ok(item) => {
                if item.is_some_and(Item::is_damaged) {
                    external_names::note(&mut self.damaged, "log_line", offset, name);
                }
                item
            }
            Err(_) => {
                external_names::note(&mut self.damaged, "log_cut_short", offset, name);
                None
            }
        }
    }

    /// First reading of a file: what lines ask, by time. Also says how many lines there are.
    fn ask(
        &mut self,
        mut log: Reader,
        name: &str,
        progress: &Progress,
    ) -> Result<(crate::sort::Sorted, u64), Error> {
        let mut sorter = Sorter::new(MEMORY_BYTES_MAX, None);
        let (mut scratch, mut offset, mut lines) = (Vec::new(), 0, 0);
        while let Some(item) = self.next(&mut log, name, offset) {
            let query = log.query(item);
            if let Some(time_ns) = query.time_ns() {
                scratch.clear();
                query.write(lines, &mut scratch);
                sorter.push(time_key(time_ns), &scratch)?;
            }
            lines += 1;
            offset += log.line().len() as u64;
            if lines % LINES_A_LOOK == 0 {
                progress.input_bytes.store(offset, Ordering::Relaxed);
                if progress.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        self.summary.input_bytes = offset;
        Ok((sorter.sorted()?, lines))
    }

    /// Answers in order of time, given back by line.
    fn look_up(&mut self, asked: &mut crate::sort::Sorted) -> Result<crate::sort::Sorted, Error> {
        let mut sorter = Sorter::new(MEMORY_BYTES_MAX, None);
        let mut scratch = Vec::new();
        while let Some((_, record)) = asked.advance()? {
            let Some((line, query)) = Query::read(record) else { continue };
            if let Some(answer) = self.answer(&query)? {
                scratch.clear();
                answer.write(&mut scratch);
                sorter.push(line, &scratch)?;
            }
        }
        sorter.sorted()
    }

    fn finish(mut self, options: &Options, progress: &Progress) -> Result<Summary, Error> {
        while self.names.commit()?.is_none() {}
        let in_directory =
            |name: &str| options.directory.as_ref().map(|directory| directory.join(name));
        let saved: [Option<PathBuf>; 2] = [options.names_save.clone(), in_directory("names.log")];
        for path in saved.into_iter().flatten() {
            save_names(&self.names, &path, options.access)?;
        }
        let mut summary = self.summary;
        (summary.names_known, summary.names_evicted) = self.names.counts();
        summary.names_refused = self.names.refused();
        external_names::add(&self.damaged, &mut summary);
        if let Some(external_names) = &self.external_names {
            external_names.add_damage(&mut summary);
        }
        summary.input_damaged = !summary.damaged.is_empty();
        summary.interrupted = progress.stop.load(Ordering::Relaxed);
        if let Some(path) = in_directory("stats.json") {
            let mut out = Output::create_for(&path, options.access)?;
            out.write_all(summary.to_json().as_bytes())?;
            out.finish()?;
        }
        Ok(summary)
    }
}

/// An end with what was found for it.
fn verdict(addr: Addr, found: Option<Found>, time_ns: i64) -> End {
    let mut end = End::of(addr);
    if let Some(found) = found {
        let late = found.time_ns > time_ns;
        end.naming = Some(Naming {
            name: found.name.clone(),
            source: found.source,
            age_ms: (time_ns.saturating_sub(found.time_ns).max(0) / 1_000_000) as u64,
            flags: match late {
                true => found.flags.without(NameFlags::STALE).with(NameFlags::LATE),
                false => found.flags,
            },
            conflict_grade: None,
        });
        end.candidates.push(found.name);
        end.candidates.extend(found.rivals);
    }
    end
}

/// What a line gets.
struct Answer {
    source: End,
    destination: End,
    /// The line is one of [`Unresolved::True`]; it is one of [`Unresolved::All`].
    unresolved: [bool; 2],
}

/// Stands for "no name" and "no reason".
const NONE: u8 = u8::MAX;

/// Every reason, at the number that stands for it in a sorter.
const REASONS: [UnnamedReason; 5] = [
    UnnamedReason::NoLookupSeen,
    UnnamedReason::BeforeCapture,
    UnnamedReason::EncryptedDnsSuspected,
    UnnamedReason::Evicted,
    UnnamedReason::Local,
];

impl Answer {
    /// The form for a sorter: for either end its source of the name (or the reason for none),
    /// flags, age, names.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.unresolved.map(u8::from));
        for end in [&self.source, &self.destination] {
            let reason = end.unnamed_reason.and_then(|why| REASONS.iter().position(|r| *r == why));
            out.push(reason.map_or(NONE, |reason| reason as u8));
            let Some(naming) = &end.naming else {
                out.push(NONE);
                continue;
            };
            out.push(naming.source as u8);
            out.extend_from_slice(&naming.flags.bits().to_le_bytes());
            out.push(naming.conflict_grade.map_or(NONE, |grade| grade as u8));
            out.extend_from_slice(&naming.age_ms.to_le_bytes());
            write_number(end.candidates.len() as u32, out);
            for name in &end.candidates {
                write_name(name, out);
            }
        }
    }

    fn read(mut from: &[u8]) -> Option<Answer> {
        let from = &mut from;
        let unresolved = read_octets(from, 2)?.first_chunk::<2>()?.map(|octet| octet != 0);
        Some(Answer { source: read_end(from)?, destination: read_end(from)?, unresolved })
    }
}

fn read_end(from: &mut &[u8]) -> Option<End> {
    let mut end = verdict(Addr::UNSPECIFIED, None, 0);
    let [reason, source] = *read_octets(from, 2)?.first_chunk()?;
    end.unnamed_reason = REASONS.get(usize::from(reason)).copied();
    if source == NONE {
        return Some(end);
    }
    let flags = u16::from_le_bytes(*read_octets(from, 2)?.first_chunk()?);
    let grade = *read_octets(from, 1)?.first()?;
    let age_ms = u64::from_le_bytes(*read_octets(from, 8)?.first_chunk()?);
    for _ in 0..read_number(from)? {
        end.candidates.push(read_name(from)?);
    }
    end.naming = Some(Naming {
        // The chosen name is the first candidate.
        name: end.candidates.first()?.clone(),
        source: *NameSource::ALL.get(usize::from(source))?,
        age_ms,
        flags: NameFlags::from_bits(flags),
        conflict_grade: ConflictGrade::ALL.get(usize::from(grade)).copied(),
    });
    Some(end)
}

/// The writing half.
struct Write<'a> {
    fields: Vec<&'static Field>,
    out: &'a mut Output,
    line: Vec<u8>,
    options: &'a Options,
    progress: &'a Progress,
}

impl Write<'_> {
    /// Second reading of a file.
    fn file(
        &mut self,
        mut log: Reader,
        lines: u64,
        mut answers: crate::sort::Sorted,
    ) -> Result<(), Error> {
        let next = |answers: &mut crate::sort::Sorted| -> Result<_, Error> {
            let record = answers.advance()?;
            Ok(record.and_then(|(line, record)| Some((line, Answer::read(record)?))))
        };
        let mut answer = next(&mut answers)?;
        for number in 0..lines {
            // What could not be read was counted at the first reading.
            let Ok(Some(item)) = log.advance() else { break };
            match answer.take_if(|(line, _)| *line == number) {
                Some((_, own)) => {
                    self.line(&log, item, Some(&own))?;
                    answer = next(&mut answers)?;
                }
                None => self.line(&log, item, None)?,
            }
        }
        Ok(())
    }

    fn line(&mut self, log: &Reader, item: Item, answer: Option<&Answer>) -> Result<(), Error> {
        let is_wanted = match (self.options.unresolved, answer) {
            (Unresolved::False, _) | (_, None) => true,
            (Unresolved::True, Some(answer)) => answer.unresolved[0],
            (Unresolved::All, Some(answer)) => answer.unresolved[1],
        };
        if !is_wanted {
            return Ok(());
        }
        let record = answer.map(record_of);
        self.line.clear();
        write_line(log, item, &self.fields, record.as_ref(), &mut self.line);
        Ok(self.out.write_all(&self.line)?)
    }
}

/// A record that says nothing but names, for the schema's getters.
fn record_of(answer: &Answer) -> FlowRecord {
    FlowRecord {
        first_packet: 0,
        end_packet: 0,
        start_ns: 0,
        end_ns: 0,
        protocol: 0,
        tunnel: None,
        scope: Scope::NONE,
        source: answer.source.clone(),
        destination: answer.destination.clone(),
        app: None,
        tls_server_name: None,
        tls_ech: None,
        http_host: None,
        no_names: crate::record::NoNames::default(),
        conn_state: ConnState::OTH,
        history: String::new(),
        end_reason: EndReason::InputEnd,
    }
}

fn write_line(
    log: &Reader,
    item: Item,
    fields: &[&'static Field],
    record: Option<&FlowRecord>,
    out: &mut Vec<u8>,
) {
    // Lists are borrowed by their columns, so they are made first.
    let values: Vec<schema::Value<'_>> = fields
        .iter()
        .map(|field| record.map_or(schema::Value::Absent, |record| (field.get)(record)))
        .collect();
    let lists: Vec<Vec<&[u8]>> = values
        .iter()
        .map(|value| {
            let mut list = Vec::new();
            if let schema::Value::Names(names) = value {
                names.for_each(|name: &Name| list.push(schema::name_octets(name)));
            }
            list
        })
        .collect();
    let columns: Vec<Column<'_>> = fields
        .iter()
        .zip(values.iter().zip(&lists))
        .map(|(field, (value, list))| Column {
            name: match log {
                Reader::Zeek(_) => field.zeek.unwrap_or(field.name),
                Reader::Eve(_) => field.name,
            },
            kind: field.kind.zeek(),
            value: match *value {
                schema::Value::Word(word) => Value::Text(word.as_bytes()),
                schema::Value::Name(name) => Value::Text(name),
                schema::Value::Names(_) => Value::List(list),
                schema::Value::Number(number) => Value::Count(number),
                schema::Value::Flag(flag) => Value::Bool(flag),
                // No field about names has one of these.
                schema::Value::Absent
                | schema::Value::Time(_)
                | schema::Value::Words(_)
                | schema::Value::CommunityId(_)
                | schema::Value::Uid(_)
                | schema::Value::Ip(_)
                | schema::Value::Ips(_)
                | schema::Value::Id(_) => Value::Unset,
            },
        })
        .collect();
    log.write_with(item, &columns, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Name> {
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|name| Name::from_canonical(&name))
    }

    proptest! {
        /// What goes to a sorter comes back as it was, and no other octets panic the readers.
        #[test]
        fn sorted_forms_read_back(
            line: u64,
            time_ns: i64,
            addr: [u8; 16],
            server_name in proptest::option::of(name()),
            http_host in proptest::option::of(name()),
            candidates in proptest::collection::vec(name(), 0..6),
            flags: [bool; 2],
            name_flags: u16,
            grade in 0..=ConflictGrade::ALL.len(),
            source in 0..NameSource::ALL.len(),
            reason in 0..REASONS.len(),
            age_ms: u64,
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let query = Query {
                ends: Some((time_ns, Addr(addr), Addr::UNSPECIFIED)),
                from_responder: flags[0],
                is_lookup: flags[1],
                said: Said { server_name, is_quic: flags[1], http_host },
                observation: None,
            };
            let mut out = Vec::new();
            query.write(line, &mut out);
            let (read_line, read) = Query::read(&out).expect("a query");
            prop_assert_eq!((read_line, read.ends, read.said), (line, query.ends, query.said));
            prop_assert_eq!((read.from_responder, read.is_lookup), (flags[0], flags[1]));
            prop_assert_eq!(read.observation, None);

            let mut end = verdict(Addr::UNSPECIFIED, None, 0);
            match candidates.first() {
                None => end.unnamed_reason = Some(REASONS[reason]),
                Some(name) => {
                    end.naming = Some(Naming {
                        name: name.clone(),
                        source: NameSource::ALL[source],
                        age_ms,
                        flags: NameFlags::from_bits(name_flags),
                        conflict_grade: ConflictGrade::ALL.get(grade).copied(),
                    });
                }
            }
            end.candidates = candidates;
            let source = verdict(Addr::UNSPECIFIED, None, 0);
            let answer = Answer { source, destination: end, unresolved: flags };
            let mut out = Vec::new();
            answer.write(&mut out);
            let read = Answer::read(&out).expect("an answer");
            prop_assert_eq!(read.unresolved, answer.unresolved);
            prop_assert_eq!(read.source, answer.source);
            prop_assert_eq!(read.destination, answer.destination);
            let _ = (Query::read(&noise), Answer::read(&noise));
        }
    }

    /// The number of a source or a grade in a sorter is its place in the list of all.
    #[test]
    fn sources_are_at_their_numbers() {
        for (place, grade) in ConflictGrade::ALL.into_iter().enumerate() {
            assert_eq!(grade as usize, place);
        }
        for (place, source) in NameSource::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, place);
        }
    }
}
