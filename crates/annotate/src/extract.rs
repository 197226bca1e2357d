//! `larder extract`: the packets of captures that teach names or begin flows, as a capture.
//!
//! [`--names-read`](crate::options::Options::names_read) of the result teaches what it would teach of the
//! whole captures. So the names of weeks need not be read again for each hour, and many hours can be
//! annotated at once. With [`cut_every_s`](crate::options::Options::cut_every_s) and
//! [`from_ns`](crate::options::Options::from_ns) it also says which flows are open at a cut, which end of each
//! began, and what name it stated: their records are those of one run over the whole captures.
//!
//! | packets | what is taken |
//! |---|---|
//! | for the name learner (DNS and the like, fragments; `crate::decode`) | all of it |
//! | of a flow with payload, until it stated a name or will state none | what is read: all; others: headers, one byte |
//! | of a flow that may have begun before the input | payload of each end: 64 KiB or 255 packets, over UDP 18 |
//! | the first one of a flow in each minute; over TCP of each end | headers, and one byte |
//! | with SYN, FIN or RST | headers, and one byte |
//! | the first one of the input, which says when the capture began | all of it |
//!
//! Each packet has its number in the input (`epb_packetid`), and its time. Between the packets are notes
//! ([`larder_wire::note`]):
//!
//! | note | where | what it replaces |
//! |---|---|---|
//! | begin, end | first and last | the neighbours of packets in the files before and after |
//! | minute | where the packets' clock comes to a whole minute, or starts | the two packets that show it |
//! | flow | where a flow ends for this input | the flow's last packet |
//! | open | where fragments begin a flow | whether others of its packets are left out |
//!
//! A flow of one input may have begun in an earlier one, where it was closed, say. So a flow that *may* be closed
//! ends after `--linger` here. That is never too late, and a note and the first packet after it let the reader
//! decide, who knows the earlier inputs.
//!
//! Not the same is what is evicted from a full table of flows (`--flows-max`), since fewer packets fill it
//! more slowly, and the order between files whose packets overlap in time.
//!
//! Cost: that of a run without a log: no names are looked up, no records made.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_wire::capture::Record;
use larder_wire::note::{self, Note};

use crate::decode::Keying;
use crate::files::{open_output, save_stats};
use crate::options::{Options, Summary};
use crate::packet_file::PacketFile;
use crate::pipeline::{self, Sink, Work};
use crate::run::{add_damage_of, learner_and_workers, open_feed};
use crate::worker::{Output as Made, Purpose, Teaching};
use crate::{Error, Progress};

/// Cuts of records are at whole minutes.
const MINUTE_S: u32 = 60;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// Writes the packets of `options.read` that teach names to `options.output`, until the end or
/// `progress.stop`. Options of a log have no effect.
pub fn extract(options: &Options, progress: &Arc<Progress>) -> Result<(Summary, Extracted), Error> {
    let options = &Options { cut_every_s: MINUTE_S, ..options.clone() };
    let Some(mut feed) = open_feed(options, progress)? else {
        let summary = Summary { interrupted: true, ..Summary::default() };
        return Ok((summary, Extracted::default()));
    };
    progress.reading.get_or_init(|| feed.source.reading());
    let (learner, mut workers) =
        learner_and_workers(options, feed.live, progress, Purpose::Extract)?;
    let file = PacketFile::new(open_output(&options.output, options.access)?)?;
    let mut sink = Teachers::new(file, options.note_rules());
    let keying = Keying::of_options(options);
    let cut_every_ns = options.cut_every_ns();
    let plan = pipeline::Plan { keying, cut_every_ns, ..pipeline::Plan::default() };
    let counted =
        pipeline::run(&mut feed.source, &mut sink, learner, &mut workers, progress, &plan)?;
    // Without its end, a reader sees that the capture is not whole.
    let is_whole = !progress.stop.load(Ordering::Relaxed);
    let extracted = sink.finish(is_whole)?;
    let mut summary = Summary {
        packets: counted.packets,
        input_bytes: counted.input_bytes,
        times: counted.times,
        interrupted: progress.stop.load(Ordering::Relaxed),
        failure: feed.source.failure().map(str::to_owned),
        ..Summary::default()
    };
    add_damage_of(&counted, &feed.source, &feed.files, &mut summary);
    summary.skipped = counted.skipped;
    summary.input_damaged = !summary.damaged.is_empty();
    save_stats(&summary, options)?;
    Ok((summary, extracted))
}

/// Writes the packets.
struct Teachers {
    file: PacketFile,
    rules: note::Rules,
    /// By packet of the batch: the offset of the end of what is taken; 0: nothing.
    ends: Vec<u32>,
    /// Notes that come before the next packet.
    waiting: Vec<Note>,
    /// The clock has a first second.
    has_clock: bool,
    /// Time of the last packet, ns.
    last_ns: i64,
    frame: Vec<u8>,
    extracted: Extracted,
}

impl Teachers {
    fn new(file: PacketFile, rules: note::Rules) -> Teachers {
        let (ends, waiting, frame) = (Vec::new(), Vec::new(), Vec::new());
        let extracted = Extracted::default();
        Teachers { file, rules, ends, waiting, has_clock: false, last_ns: 0, frame, extracted }
    }

    /// Notes what is taken of each packet of a batch.
    fn choose(&mut self, work: &Work, outputs: &[Made]) {
        self.ends.clear();
        self.ends.resize(work.decoded.packets as usize, 0);
        let mut take = |packet: u32, end: u32| {
            if let Some(taken) = self.ends.get_mut((packet as usize).wrapping_sub(1)) {
                *taken = end.max(*taken);
            }
        };
        if work.packets_before == 0 {
            take(1, u32::MAX);
        }
        work.decoded.rare.iter().for_each(|rare| take(rare.number, u32::MAX));
        for &Teaching { packet, end } in outputs.iter().flat_map(|output| &output.teaching) {
            take(packet, end);
        }
    }

    /// The notes of a batch, each with the packet that it comes before. Those that come before the first packet of the
    /// next batch wait for it.
    fn notes(&mut self, work: &Work, outputs: &[Made]) -> Vec<(u32, Note)> {
        // Those of the batch before come first, as they would in one batch.
        let mut notes: Vec<(u32, Note)> = self.waiting.drain(..).map(|note| (1, note)).collect();
        notes.extend(outputs.iter().flat_map(|output| output.notes.iter().copied()));
        if work.batch.is_some() {
            let waits = |(packet, _): &mut (u32, Note)| *packet > work.decoded.packets;
            self.waiting.extend(notes.extract_if(.., waits).map(|(_, note)| note));
        }
        notes.sort_by_key(|(packet, note)| match note {
            Note::Open(key, _) | Note::Flow(key, _) => (*packet, Some(*key)),
            _ => (*packet, None),
        });
        for tick in &work.decoded.ticks {
            if tick.is_cut || !std::mem::replace(&mut self.has_clock, true) {
                notes.push((tick.packet, Note::Minute(tick.time_ns)));
            }
        }
        // The flows that the second ends come before it, and a packet ends its own flow after it.
        notes.sort_by_key(|(packet, _)| *packet);
        notes
    }

    fn take(&mut self, record: &Record<'_>, end: u32, number: u64) {
        let length = (end as usize).saturating_sub(record.frame_offset);
        let frame = &record.frame[..record.frame.len().min(length)];
        self.file.packet(record, frame, Some(number));
        self.extracted.packets += 1;
        self.extracted.bytes += frame.len() as u64;
    }

    fn note(&mut self, note: &Note, at_ns: i64) {
        self.frame.clear();
        note.write(&mut self.frame);
        self.file.frame(note::LINK_TYPE, at_ns, &self.frame);
    }

    fn finish(mut self, is_whole: bool) -> Result<Extracted, Error> {
        if is_whole && self.extracted.packets > 0 {
            self.note(&Note::End(self.last_ns), self.last_ns);
        }
        self.file.finish()?;
        Ok(self.extracted)
    }
}

impl Sink for Teachers {
    fn batch(&mut self, work: &Work, outputs: &mut [Made]) -> Result<(), Error> {
        self.choose(work, outputs);
        let notes = self.notes(work, outputs);
        let mut notes = notes.iter().peekable();
        let ends = std::mem::take(&mut self.ends);
        for ((number, &end), (_, record)) in (1..).zip(&ends).zip(work.packets()) {
            if work.packets_before == 0 && number == 1 {
                self.note(&Note::Begin(self.rules, record.ts_ns), record.ts_ns);
            }
            while let Some((_, note)) = notes.next_if(|(packet, _)| *packet <= number) {
                self.note(note, record.ts_ns);
            }
            if end > 0 {
                self.take(&record, end, work.packets_before + u64::from(number));
            }
            self.last_ns = record.ts_ns;
        }
        notes.for_each(|(_, note)| self.note(note, self.last_ns));
        self.ends = ends;
        self.file.write()
    }
}
