//! The ordered end of the pipeline: log, packets with names, DNS answers.
//!
//! Batches arrive once each, in order, with the outputs of all workers. The records of the workers
//! are merged by (packet that ended the flow, first packet, flow), which no two records share, so
//! the log does not depend on which worker rendered a record.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_io::batch::Purpose;
use larder_io::output::Output;
use larder_wire::capture::write;
use larder_wire::{Addr, Name};

use crate::evidence::{self, Evidence, InOrder, Subject};
use crate::format::Format;
use crate::learn::AnswerLine;
use crate::lines::{Frame, LineLog};
use crate::log::Log;
use crate::names::Standing;
use crate::names_file::escaped;
use crate::options::{Endpoint, Options, Summary};
use crate::packet_file::PacketFile;
use crate::pipeline::{Sink, Work};
use crate::record::FlowRecord;
use crate::seen::Noted;
use crate::sort::Sorter;
use crate::store_sink::StoreSink;
use crate::worker::{Body, Ended, Output as Made, flow_event};
use crate::{Error, Progress};

/// `dns.log` in a folder.
pub struct AnswerLog(LineLog);

impl AnswerLog {
    /// Opens it; nothing is written yet.
    pub fn open(path: PathBuf, options: &Options) -> Result<AnswerLog, Error> {
        let frame = Frame::of_text(ANSWERS_HEADER);
        let log = LineLog::open(&Endpoint::Path(path), options, false, frame)?;
        Ok(AnswerLog(log))
    }
}

/// Where a run writes to.
pub struct Destinations {
    /// The log of flows.
    pub log: Log,
    /// Sorts the log.
    pub sorter: Option<Sorter>,
    /// `-w FILE`: the packets, with names.
    pub packets: Option<Output>,
    /// `dns.log`.
    pub answers: Option<AnswerLog>,
    /// The packet store.
    pub store_sink: Option<StoreSink>,
}

/// See the module.
pub struct Writer {
    log: Log,
    sorter: Option<Sorter>,
    packets: Option<Packets>,
    answers: Option<AnswerLog>,
    store_sink: Option<StoreSink>,
    evidence: Evidence,
    /// Renders the records whose name is chosen here.
    format: Format,
    min_confidence: u8,
    /// The flows whose name is chosen here, and those that the live counts have.
    counted: Summary,
    reported: Summary,
    scratch: Vec<u8>,
    progress: Arc<Progress>,
    /// Live input: the records of a batch are flushed at once.
    is_live: bool,
    /// The latest time in the log, ns.
    now_ns: i64,
}

impl Writer {
    /// Writes the headers of `to`.
    pub fn new(
        mut to: Destinations,
        evidence: Evidence,
        options: &Options,
        progress: &Arc<Progress>,
        is_live: bool,
    ) -> Result<Writer, Error> {
        let packets = to.packets.map(Packets::new).transpose()?;
        to.log.start()?;
        to.answers.iter_mut().try_for_each(|answers| answers.0.start())?;
        Ok(Writer {
            log: to.log,
            sorter: to.sorter,
            packets,
            answers: to.answers,
            store_sink: to.store_sink,
            evidence,
            format: Format::new(options.format, options.ports_numeric)?,
            min_confidence: options.min_confidence,
            counted: Summary::default(),
            reported: Summary::default(),
            scratch: Vec::new(),
            progress: Arc::clone(progress),
            is_live,
            now_ns: 0,
        })
    }

    /// Writes the rest, and the footers. Returns the counts of the flows whose name was chosen here.
    pub fn finish(mut self) -> Result<Summary, Error> {
        if let Some(sorter) = self.sorter.take() {
            sorter.finish(|rendered| self.log.take(rendered, self.now_ns))?;
        }
        if self.progress.stop.load(Ordering::Relaxed) {
            self.log.interrupt();
        }
        self.log.finish(self.now_ns)?;
        if let Some(packets) = self.packets {
            packets.file.finish()?;
        }
        if let Some(answers) = self.answers {
            answers.0.finish(self.now_ns)?;
        }
        if let Some(store_sink) = self.store_sink {
            store_sink.finish()?;
        }
        Ok(self.counted)
    }

    /// Learns what flows of a batch stated, and chooses the names of those that state nothing.
    fn decide(&mut self, outputs: &mut [Made], order: &[(usize, usize)]) {
        outputs.iter().for_each(|output| self.evidence.prefetch(&output.statements));
        let mut statements = InOrder::default();
        let is_observed = self.progress.live_stats.is_observed();
        for &(who, at) in order {
            let Ended { place, body, trial, flow_event, .. } = outputs[who].ended[at];
            // Most records take no part.
            if trial.is_none() && !matches!(body, Body::Undecided(_)) {
                continue;
            }
            // A record that time ended, or a cut, was over before that packet.
            let last_packet = place.end_packet.saturating_sub(u64::from(!place.is_by_packet));
            self.learn_until(last_packet, &mut statements, outputs);
            let Made { undecided, trials, flow_events, notes_of_records, .. } = &mut outputs[who];
            if let Some(trial) = trial {
                self.evidence.observe(&mut trials[trial as usize]);
            }
            let Body::Undecided(record) = body else { continue };
            let (record, least) = (&mut *undecided[record], self.min_confidence);
            let began_ns = record.began_ns();
            let FlowRecord { scope, source, destination, .. } = record;
            let server = (destination.addr, destination.port);
            let subject = Subject::new(*scope, began_ns, source.addr, server);
            let is_other = self.evidence.decide(&subject, destination);
            if let (Some(naming), Some(at)) = (&destination.naming, flow_event) {
                flow_event::add_choice(&mut flow_events[at as usize], naming, is_other);
            }
            evidence::leave_out([source, destination], least);
            self.counted.count(record);
            if is_observed {
                // A lookup gave its name.
                notes_of_records.push(Noted::of(record, least, false));
            }
        }
        self.learn_until(u64::MAX, &mut statements, outputs);
        self.progress.live_stats.add(&mut self.reported, &self.counted);
    }

    /// Learns from the statements that came with `packet` or before it.
    fn learn_until(&mut self, packet: u64, statements: &mut InOrder, outputs: &mut [Made]) {
        while let Some(statement) = statements
            .next_until(packet, outputs.iter_mut().map(|output| &mut output.statements[..]))
        {
            self.evidence.take(statement);
        }
    }

    /// Opens the logs again, on request.
    fn reopen(&mut self) -> Result<(), Error> {
        self.log.reopen(self.now_ns)?;
        self.answers.iter_mut().try_for_each(|answers| answers.0.reopen(self.now_ns))
    }
}

impl Sink for Writer {
    fn batch(&mut self, work: &Work, outputs: &mut [Made]) -> Result<(), Error> {
        let order = log_order(outputs);
        self.decide(outputs, &order);
        for output in outputs.iter_mut() {
            self.progress.live_stats.note(&mut output.notes_of_records);
        }
        if let Some(packets) = &mut self.packets {
            packets.batch(work, outputs)?;
        }
        if let Some(store_sink) = &mut self.store_sink {
            store_sink.batch(work, outputs)?;
        }
        // Before the first packet there is no time; if the clock was set back, the time goes on
        // from there.
        let end_ns = work.time_ns.max(0);
        self.now_ns = self.now_ns.min(end_ns);
        if work.packets_before + u64::from(work.decoded.packets) > 0 {
            self.log.begin(work.capture_start_ns)?;
        }
        if self.progress.reopen.swap(false, Ordering::AcqRel) {
            self.reopen()?;
        }
        if let Some(answers) = &mut self.answers {
            for answer in work.answers.iter().filter(|answer| answer.packet >= work.logged_after) {
                self.scratch.clear();
                write_answer(answer, &mut self.scratch);
                answers.0.write(&self.scratch, answer.time_ns.min(end_ns))?;
            }
            answers.0.end_batch(self.is_live, end_ns, &self.progress)?;
        }
        self.log.begin_batch(work);
        for (who, at) in order {
            let output = &outputs[who];
            let ended = &output.ended[at];
            let rendered = match ended.body {
                Body::LeftOut => continue,
                Body::Rendered(start, end) => &output.bytes[start..end],
                Body::Undecided(at) => {
                    self.scratch.clear();
                    self.format.writer().record(&output.undecided[at], &mut self.scratch);
                    &self.scratch
                }
            };
            // The time of a log is that of the latest packet of its flows.
            self.now_ns = self.now_ns.max(ended.end_ns.min(end_ns));
            self.log.come_to(&ended.place)?;
            match &mut self.sorter {
                Some(sorter) => sorter.push(ended.place.first_packet, rendered)?,
                None => self.log.take(rendered, self.now_ns)?,
            }
        }
        if self.is_live {
            self.now_ns = end_ns;
        }
        self.log.end_batch(self.is_live, end_ns, &self.progress)
    }
}

/// The workers' records in the order of the log: worker, and index of the record.
fn log_order(outputs: &[Made]) -> Vec<(usize, usize)> {
    if let [output] = outputs {
        return (0..output.ended.len()).map(|at| (0, at)).collect();
    }
    let mut at = vec![0; outputs.len()];
    let mut order = Vec::with_capacity(outputs.iter().map(|output| output.ended.len()).sum());
    let mut before = None;
    loop {
        let next = outputs
            .iter()
            .enumerate()
            .filter_map(|(who, output)| output.ended.get(at[who]).map(|ended| (ended, who)))
            .min_by_key(|(ended, _)| ended.place);
        let Some((ended, who)) = next else { return order };
        debug_assert!(before < Some(ended.place), "two records have one place in the log");
        before = Some(ended.place);
        order.push((who, at[who]));
        at[who] += 1;
    }
}

const ANSWERS_HEADER: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
    #unset_field\t-\n#path\tlarder_dns\n\
    #fields\tts\tpacket\tclient\tserver\tsource\tquery\taliases\tanswers\tTTLs\tsolicited\n\
    #types\ttime\tcount\taddr\taddr\tstring\tstring\tvector[string]\tvector[addr]\tvector[interval]\tbool\n";

fn write_answer(answer: &AnswerLine, out: &mut Vec<u8>) {
    fn list<T>(items: &[T], out: &mut Vec<u8>, mut write: impl FnMut(&T, &mut Vec<u8>)) {
        if items.is_empty() {
            out.extend_from_slice(b"(empty)");
        }
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write(item, out);
        }
    }
    let (s, ns) =
        (answer.time_ns.div_euclid(1_000_000_000), answer.time_ns.rem_euclid(1_000_000_000));
    let client =
        if answer.client == Addr::UNSPECIFIED { "-".to_owned() } else { answer.client.to_string() };
    let head = format!(
        "{s}.{ns:09}\t{}\t{client}\t{}\t{}\t",
        answer.packet,
        answer.server,
        answer.learned_from.as_str()
    );
    out.extend_from_slice(head.as_bytes());
    if answer.asked.is_root() {
        out.push(b'-');
    } else {
        escaped(answer.asked.as_bytes(), out);
    }
    out.push(b'\t');
    list(&answer.aliases, out, |name, out| escaped(name.as_bytes(), out));
    out.push(b'\t');
    list(&answer.addresses, out, |(addr, _), out| {
        out.extend_from_slice(addr.to_string().as_bytes())
    });
    out.push(b'\t');
    list(&answer.addresses, out, |(_, ttl_s), out| {
        out.extend_from_slice(format!("{ttl_s}.000000").as_bytes());
    });
    let is_solicited = answer.standing != Standing::Unsolicited;
    out.extend_from_slice(if is_solicited { b"\tT\n" } else { b"\tF\n" });
}

/// Addresses whose last written names are remembered; after more of them, names are written again.
const WRITTEN_MAX: usize = 1 << 20;

/// `-w`: the packets, with each flow's names before its first packet if they have changed.
struct Packets {
    file: PacketFile,
    written: HashMap<Addr, Vec<Name>>,
}

impl Packets {
    fn new(out: Output) -> Result<Packets, Error> {
        Ok(Packets { file: PacketFile::new(out)?, written: HashMap::new() })
    }

    fn batch(&mut self, work: &Work, outputs: &[Made]) -> Result<(), Error> {
        let Some(batch) = &work.batch else { return Ok(()) };
        let mut resolved: Vec<_> = outputs.iter().flat_map(|output| &output.resolved).collect();
        resolved.sort_by_key(|resolved| (resolved.packet, resolved.key));
        let mut resolved = resolved.into_iter().peekable();
        for (number, (_, record)) in (1..).zip(work.packets()) {
            let packet = work.packets_before + number;
            if batch.purpose(record.interface) != Purpose::All {
                continue;
            }
            while let Some(names) = resolved.next_if(|names| names.packet <= packet) {
                let known = self.written.get(&names.addr);
                if known.is_some_and(|known| *known == names.names) {
                    continue;
                }
                if self.written.len() >= WRITTEN_MAX {
                    self.written.clear();
                }
                self.written.insert(names.addr, names.names.clone());
                let mut block = write::Names::begin(&mut self.file.blocks);
                block.record(names.addr, names.names.iter().map(printable));
                block.end();
            }
            self.file.packet(&record, record.frame, None);
        }
        self.file.write()
    }
}

/// A name as a block may contain it: UTF-8 without control bytes (hostile ones are escaped).
fn printable(name: &Name) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.as_bytes().len());
    Name::write_escaped(name.as_bytes(), &mut text);
    text
}
