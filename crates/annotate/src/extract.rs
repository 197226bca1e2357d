//! `larder extract`: the packets of captures that teach names, as a capture.
//!
//! [`--names-read`](crate::options::Options::names_read) of the result teaches what it would teach of the
//! whole captures. So the names of weeks need not be read again for each hour, and many hours can be
//! annotated at once.
//!
//! | packets | what is taken |
//! |---|---|
//! | for the name learner (DNS and the like, fragments; `crate::decode`) | all of it |
//! | of a flow, until it stated a name or will state none | payload that is read: all; others: headers, and one byte |
//! | with SYN, FIN or RST, of the other flows over TCP | headers |
//! | the first one of the input, which says when the capture began | all of it |
//!
//! The second and third row keep the order in which flows of one 5-tuple begin and end. Each packet has its
//! number in the input (`epb_packetid`), and its time.
//!
//! Not the same is what is evicted from a full table of flows (`--flows-max`), since fewer packets fill it
//! more slowly, and the order between files whose packets overlap in time.
//!
//! Cost: that of a run without a log: no names are looked up, no records made.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_wire::capture::Record;

use crate::decode::Keying;
use crate::files::open_output;
use crate::options::{Options, Summary};
use crate::packet_file::PacketFile;
use crate::pipeline::{self, Sink, Work};
use crate::run::{add_damage_of, learner_and_workers, open_feed};
use crate::worker::{Output as Made, Purpose, Teaching};
use crate::{Error, Progress};

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
    let Some(mut feed) = open_feed(options, progress)? else {
        let summary = Summary { interrupted: true, ..Summary::default() };
        return Ok((summary, Extracted::default()));
    };
    progress.input_bytes_total.store(feed.source.total_bytes().unwrap_or(0), Ordering::Relaxed);
    let (learner, mut workers) =
        learner_and_workers(options, feed.live, progress, Purpose::Extract)?;
    let file = PacketFile::new(open_output(&options.output, options.access)?)?;
    let mut sink = Teachers { file, ends: Vec::new(), extracted: Extracted::default() };
    let plan = pipeline::Plan { keying: Keying::of_options(options), ..pipeline::Plan::default() };
    let counted =
        pipeline::run(&mut feed.source, &mut sink, learner, &mut workers, progress, &plan)?;
    let Teachers { file, extracted, .. } = sink;
    file.finish()?;
    let mut summary = Summary {
        packets: counted.packets,
        input_bytes: counted.input_bytes,
        interrupted: progress.stop.load(Ordering::Relaxed),
        failure: feed.source.failure().map(str::to_owned),
        ..Summary::default()
    };
    add_damage_of(&counted, &feed.source, &feed.files, &mut summary);
    summary.skipped = counted.skipped;
    summary.input_damaged = !summary.damaged.is_empty();
    Ok((summary, extracted))
}

/// Writes the packets.
struct Teachers {
    file: PacketFile,
    /// By packet of the batch: the offset of the end of what is taken; 0: nothing.
    ends: Vec<u32>,
    extracted: Extracted,
}

impl Teachers {
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

    fn take(&mut self, record: &Record<'_>, end: u32, number: u64) {
        let length = (end as usize).saturating_sub(record.frame_offset);
        let frame = &record.frame[..record.frame.len().min(length)];
        self.file.packet(record, frame, Some(number));
        self.extracted.packets += 1;
        self.extracted.bytes += frame.len() as u64;
    }
}

impl Sink for Teachers {
    fn batch(&mut self, work: &Work, outputs: &mut [Made]) -> Result<(), Error> {
        self.choose(work, outputs);
        let ends = std::mem::take(&mut self.ends);
        for ((number, &end), (_, record)) in (1..).zip(&ends).zip(work.packets()) {
            if end > 0 {
                self.take(&record, end, work.packets_before + number);
            }
        }
        self.ends = ends;
        self.file.write()
    }
}
