//! `--eve` and `--zeek-log`: writes a log of another program again, with names.
//!
//! Every byte of the log stays, in order. Lines that name a flow get columns or keys: those fields
//! of the schema ([`FIELDS`]) that are about names. Names come from `--zeek-dns`, `--dnstap`,
//! `--names-load` and, in an EVE log, from its own DNS events.
//!
//! **A line gets the name that was valid at its own time** (rule 7), which for a connection is its
//! start; logs are in the order in which flows end. So a file is read in three passes:
//!
//! ```text
//! ask      read the log; the ends and names of each line go to a sorter, by time      -> look up
//! look up  in order of time: learn names that are not later, look up; by line number  -> write
//! write    read the log again; each line gets its names                               -> done
//! ```
//!
//! A pipe can be read once, and a reader may wait for its lines: each line gets its names as it
//! comes, from all names so far; a name learned after the line's own time is marked late. The
//! output is flushed whenever no whole line is left to read.
//!
//! Bounds: a line ([`LINE_BYTES_MAX`](super::LINE_BYTES_MAX)); two sorters ([`MEMORY_BYTES_MAX`]
//! each, and disk); the names' budget. A log that grows between the passes is written as far as the
//! first pass read it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_io::output::Output;
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use super::dns_observation::{DnsObservation, time_key};
use super::external_names::{self, ExternalNames};
use super::flow_log::{Form, Item, Reader};
use super::forms::{Answer, Query};
use super::input;
use super::zeek::Column;
use super::{Said, Value};
use crate::evidence::{
    self, Budgets, Evidence, FlowStart, Meaning, Observer, Parties, Subject, Trial,
};
use crate::files::{
    make_directory, names_without_networks, open_output, save_all_names, save_stats,
};
use crate::format::fields::FIELDS;
use crate::format::schema::{self, Field};
use crate::names::{Key, LearnedMarks, Names, give_name};
use crate::options::{
    Damages, Endpoint, NameSources, Options, OutputFormat, Rules, Summary, Unresolved,
};
use crate::record::{End, FlowRecord, NameSource, UnnamedReason};
use crate::sort::{MEMORY_BYTES_MAX, Sorter};
use crate::stated::{choose, state};
use crate::{Error, Progress};

/// Observations between two commits to the engine. Bounds the memory of an overlay.
const OBSERVATIONS_PER_COMMIT: u32 = 1 << 12;
/// Lines between two checks of the stop flag.
const LINES_A_LOOK: u64 = 1 << 10;
/// The lookup of a line this soon after the log's first may have been before the log.
const BEFORE_LOG_NS: i64 = 10_000_000_000;
/// What flows state up to this long after a line counts for the choice of its name.
const DECIDED_AFTER_NS: i64 = 5_000_000_000;
/// Lines that wait for that, at most.
const PENDING_MAX: usize = 1 << 14;

/// True when the options name a log to annotate.
pub fn is_wanted(options: &Options) -> bool {
    options.eve.is_some() || options.zeek_log.is_some()
}

/// Annotates the log of the options, to its end (or until `progress.stop`).
pub fn run(
    options: &Options,
    progress: &Arc<Progress>,
    observer: Option<Observer>,
) -> Result<Summary, Error> {
    let (endpoint, form) = check(options)?;
    let text = input::open(endpoint, progress)?;
    let name = text.name.clone();
    let streams = text.live || *endpoint == Endpoint::Pipe;
    let external_names = ExternalNames::open(options, streams, progress)?;
    let names_bytes = Budgets::of(options.names_budget_bytes).names;
    let names = names_without_networks(options, names_bytes)?;
    if let Some(directory) = &options.directory {
        make_directory(directory, "-d", options.access)?;
    }
    let mut out = open_output(&options.output, options.access)?;
    let fields = fields(form);
    let mut annotator = Annotator {
        learned: names.learned(),
        names,
        external_names,
        sources: options.names,
        rules: options.rules,
        evidence: Evidence::new(options, observer),
        min_confidence: options.min_confidence,
        pending: VecDeque::new(),
        uncommitted: 0,
        observations_learned: 0,
        first_ns: None,
        summary: Summary::default(),
        damaged: Damages::new(),
    };
    let reader = Reader::new(form, text.reader);
    let mut write = Write { fields, out: &mut out, line: Vec::new(), options, progress };
    if streams {
        annotator.stream(reader, &name, &mut write)?;
    } else {
        let (mut asked, lines) = annotator.ask(reader, &name, progress)?;
        let answers = annotator.look_up(&mut asked)?;
        drop(asked);
        let reader = Reader::new(form, input::open(endpoint, progress)?.reader);
        write.file(reader, lines, answers)?;
    }
    if options.names_save.is_some() || options.directory.is_some() {
        annotator.learn_until(i64::MAX)?;
    }
    out.finish()?;
    annotator.finish(options, progress)
}

/// The log, and its form; contradictions are refused.
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
    if options.store.is_some() {
        return refuse("--store: a log has no packets to store; leave it out");
    }
    if options.packets_max.is_some() {
        return refuse("-c: a log has no packets to count; leave it out");
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
    // Logs have their own columns about tunnels, no exporter, and no cuts.
    let is_ours = |name: &str| {
        let others = ["larder.tunnel.", "larder.exporter.", "larder.continued_since"];
        name.starts_with("larder.") && !others.iter().any(|other| name.starts_with(other))
    };
    let wanted = |field: &&Field| match form {
        Form::Zeek => is_ours(field.name) && field.zeek.is_some(),
        Form::Eve => {
            is_ours(field.name) || matches!(field.name, "source.domain" | "destination.domain")
        }
    };
    FIELDS.iter().filter(wanted).collect()
}

struct Annotator {
    names: Names,
    learned: Arc<LearnedMarks>,
    external_names: Option<ExternalNames>,
    sources: NameSources,
    rules: Rules,
    evidence: Evidence,
    min_confidence: u8,
    pending: VecDeque<Pending>,
    uncommitted: u32,
    observations_learned: u64,
    /// Time of the log's first line, or of its earliest if that is known.
    first_ns: Option<i64>,
    summary: Summary,
    damaged: Damages,
}

impl Annotator {
    fn learn(&mut self, observation: &DnsObservation) -> Result<(), Error> {
        self.observations_learned += 1;
        observation.learn_into(
            self.observations_learned,
            self.sources,
            self.rules,
            &mut self.names,
        );
        self.summary.answers += 1;
        // An observation may have thousands of addresses; each counts.
        self.uncommitted += 1 + observation.addresses.len() as u32;
        if self.uncommitted >= OBSERVATIONS_PER_COMMIT {
            self.uncommitted = 0;
            // The only reader is that of the names, which a stalled commit has synced.
            self.names.commit_all(&mut || ())?;
        }
        Ok(())
    }

    /// Learns the external names up to `time_ns`.
    fn learn_until(&mut self, time_ns: i64) -> Result<(), Error> {
        while let Some(external_names) = &mut self.external_names {
            let Some(observation) = external_names.until(time_ns)? else { break };
            self.learn(&observation)?;
        }
        Ok(())
    }

    /// Learns the names of a line, and looks up its ends.
    fn answer(&mut self, line: u64, query: &Query) -> Result<Option<Pending>, Error> {
        let Some((time_ns, source, destination)) = query.ends else { return Ok(None) };
        self.learn_until(time_ns)?;
        if let Some(observation) = &query.observation {
            self.learn(observation)?;
        }
        self.first_ns.get_or_insert(time_ns);
        let [source, destination] = [source, destination].map(End::of);
        let (mut initiator, mut responder) = (source, destination);
        [initiator.port, responder.port] = query.ports;
        if query.from_responder {
            std::mem::swap(&mut initiator, &mut responder);
        }
        let (client, server) = (initiator.addr, responder.addr);
        let view = self.names.view();
        let (mut has_no_lookup, mut has_no_name) = (false, false);
        let mut trial = None;
        if !server.is_multicast_or_broadcast() {
            let found = view.destination(client, server, u64::MAX, time_ns);
            let support = found.as_ref().map(|found| found.support).unwrap_or_default();
            let why = self.why_unnamed(server, time_ns, found.is_some());
            let Said { server_name, is_quic, http_host } = &query.said;
            let stated = choose(server_name.as_ref(), *is_quic, http_host.as_ref(), self.sources);
            if let Some((name, _)) = stated {
                let looked_up = found.as_ref().filter(|found| {
                    evidence::teaches(found, name, || view.is_alias(name, &found.name, u64::MAX))
                });
                let meaning = looked_up.map(|found| Meaning::new(name, &found.name));
                let hashes = self.evidence.hashes();
                let parties = Parties::of(hashes, Scope::NONE, client, (server, responder.port));
                let keys = parties.keys(hashes, name);
                let own = FlowStart { flow: line, start_ns: time_ns };
                self.evidence.learn(Scope::NONE, client, own, &keys, meaning.as_ref());
            }
            give_name(&mut responder, found, time_ns);
            // Rule 6: the name that a flow states names it, and names by DNS are listed next to it.
            if let Some(stated) = stated {
                trial = trial_of(&initiator, &responder, stated.0, (time_ns, line));
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
        }
        give_name(&mut initiator, view.host(client, u64::MAX, time_ns), time_ns);
        let unresolved = match query.is_lookup {
            true => [false; 2],
            false => [has_no_lookup, has_no_name],
        };
        let from_responder = query.from_responder;
        Ok(Some(Pending { line, time_ns, initiator, responder, from_responder, unresolved, trial }))
    }

    /// Chooses the name of a line's flow, or tries the choice out if the flow states its name.
    fn decide(&mut self, pending: Pending) -> Answer {
        let Pending {
            mut initiator,
            mut responder,
            trial,
            unresolved,
            from_responder,
            time_ns,
            ..
        } = pending;
        match trial {
            Some(mut trial) => self.evidence.judge(&mut trial),
            None if responder.naming.as_ref().is_some_and(evidence::is_by_lookup) => {
                let server = (responder.addr, responder.port);
                let subject = Subject::new(Scope::NONE, time_ns, initiator.addr, server);
                self.evidence.decide(&subject, &mut responder);
            }
            None => {}
        }
        evidence::leave_out([&mut initiator, &mut responder], self.min_confidence);
        self.summary.flows += 1;
        if !responder.addr.is_multicast_or_broadcast() {
            self.summary.count_destination(&responder);
        }
        let (source, destination) =
            if from_responder { (responder, initiator) } else { (initiator, responder) };
        Answer { source, destination, unresolved }
    }

    fn why_unnamed(&self, addr: Addr, time_ns: i64, is_known: bool) -> UnnamedReason {
        let hash = self.names.cache().hash(Key::address(Scope::NONE, addr).as_bytes()).get();
        let first_ns = self.first_ns.unwrap_or(time_ns);
        if addr.is_local() {
            UnnamedReason::Local
        } else if !is_known && self.learned.named.has(hash, u64::MAX) {
            UnnamedReason::Evicted
        } else if time_ns.saturating_sub(first_ns) < BEFORE_LOG_NS {
            UnnamedReason::BeforeCapture
        } else {
            UnnamedReason::NoLookupSeen
        }
    }

    /// Annotates a pipe, line by line.
    fn stream(&mut self, mut log: Reader, name: &str, write: &mut Write<'_>) -> Result<(), Error> {
        let (mut offset, mut line) = (0, 0);
        while !write.progress.stop.load(Ordering::Relaxed)
            && let Some(item) = self.next(&mut log, name, offset)
        {
            let pending = self.answer(line, &log.query(item))?;
            line += 1;
            let answer = pending.map(|pending| self.decide(pending));
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

    /// The next line; `None` at the end, and if the log cannot be read further.
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

    /// First pass over a file: the queries of lines, by time, and the number of lines.
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

    /// Second pass: answers in order of time, sorted by line. The choice of a name waits for what
    /// flows state in the next [`DECIDED_AFTER_NS`].
    fn look_up(&mut self, asked: &mut crate::sort::Sorted) -> Result<crate::sort::Sorted, Error> {
        let mut sorter = Sorter::new(MEMORY_BYTES_MAX, None);
        while let Some((_, record)) = asked.advance()? {
            let Some((line, query)) = Query::read(record) else { continue };
            let Some(pending) = self.answer(line, &query)? else { continue };
            let due_ns = pending.time_ns.saturating_sub(DECIDED_AFTER_NS);
            self.pending.push_back(pending);
            self.decide_until(due_ns, &mut sorter)?;
        }
        self.decide_until(i64::MAX, &mut sorter)?;
        sorter.sorted()
    }

    /// Decides the lines up to `time_ns`, and the oldest if too many wait.
    fn decide_until(&mut self, time_ns: i64, sorter: &mut Sorter) -> Result<(), Error> {
        let mut scratch = Vec::new();
        while let Some(first) = self.pending.front()
            && (first.time_ns <= time_ns || self.pending.len() > PENDING_MAX)
            && let Some(pending) = self.pending.pop_front()
        {
            let line = pending.line;
            scratch.clear();
            self.decide(pending).write(&mut scratch);
            sorter.push(line, &scratch)?;
        }
        Ok(())
    }

    fn finish(mut self, options: &Options, progress: &Progress) -> Result<Summary, Error> {
        self.names.commit_all(&mut || ())?;
        let mut summary = self.summary;
        save_all_names(&self.names, options, &mut summary)?;
        external_names::add(&self.damaged, &mut summary);
        if let Some(external_names) = &self.external_names {
            external_names.add_damage(&mut summary);
        }
        summary.input_damaged = !summary.damaged.is_empty();
        summary.interrupted = progress.stop.load(Ordering::Relaxed);
        save_stats(&summary, options)?;
        Ok(summary)
    }
}

/// A line whose name is not chosen yet.
struct Pending {
    line: u64,
    time_ns: i64,
    initiator: End,
    responder: End,
    from_responder: bool,
    unresolved: [bool; 2],
    /// The flow states its name.
    trial: Option<Box<Trial>>,
}

/// The trial of a flow that states a name, and whose responder has names by lookups so far.
fn trial_of(
    initiator: &End,
    responder: &End,
    stated: &Name,
    (time_ns, line): (i64, u64),
) -> Option<Box<Trial>> {
    let naming = responder.naming.as_ref().filter(|naming| evidence::is_by_lookup(naming))?;
    Some(Box::new(Trial {
        packet: line,
        start_ns: time_ns,
        scope: Scope::NONE,
        client: (initiator.addr, initiator.port),
        server: (responder.addr, responder.port),
        naming: naming.clone(),
        candidates: responder.candidates.clone(),
        origins: responder.origins.clone(),
        features: Vec::new(),
        stated: stated.clone(),
    }))
}

/// Writes the log.
struct Write<'a> {
    fields: Vec<&'static Field>,
    out: &'a mut Output,
    line: Vec<u8>,
    options: &'a Options,
    progress: &'a Progress,
}

impl Write<'_> {
    /// Last pass over a file.
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
            // Errors were counted in the first pass.
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

/// A record with names only, for the getters of the schema.
fn record_of(answer: &Answer) -> FlowRecord {
    FlowRecord {
        source: answer.source.clone(),
        destination: answer.destination.clone(),
        ..FlowRecord::blank()
    }
}

fn write_line(
    log: &Reader,
    item: Item,
    fields: &[&'static Field],
    record: Option<&FlowRecord>,
    out: &mut Vec<u8>,
) {
    // Columns borrow lists, so the lists are made first.
    let values: Vec<schema::Value<'_>> = fields
        .iter()
        .map(|field| record.map_or(schema::Value::Absent, |record| (field.get)(record)))
        .collect();
    let lists: Vec<Vec<&[u8]>> = values
        .iter()
        .map(|value| {
            let mut list = Vec::new();
            if let schema::Value::Names(names) = value {
                names.for_each(|name: &Name| list.push(schema::name_bytes(name)));
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
