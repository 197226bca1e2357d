//! The learner's step: checks where the records of a batch began, then learns its names.

use std::collections::BTreeMap;

use larder_io::batch::Batch;
use larder_wire::capture::Capture;

use super::{Plan, Work};
use crate::decode::{self, Counts, Decoded, Keying, Tick, decode_from};
use crate::flow::next_cut_ns;
use crate::learn::NameLearner;
use crate::options::Times;

/// Packets whose open flows end in one pseudo-batch: bounds the records that are held at once.
const FINISH_PACKETS: u64 = 1 << 16;

/// The learner, and its state between batches.
pub(super) struct LearnerState {
    pub learner: NameLearner,
    pub packets: u64,
    /// Those of them that were read for names only.
    pub for_names: u64,
    /// Flows that began before this packet have ended; 0 while there is input.
    pub finished_before: u64,
    packets_max: Option<u64>,
    pub time_ns: i64,
    /// Time of the first packet, ns.
    first_ns: Option<i64>,
    /// Time of the last packet that moves the clock with its successor, ns.
    last_ns: Option<i64>,
    /// The last second at which idle flows ended, ns.
    ticked_ns: Option<i64>,
    /// Records are cut at multiples of this time, ns; 0: never.
    cut_every_ns: i64,
    /// See [`Plan`].
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    is_range_over: bool,
    /// See [`Work::logged_after`].
    logged_after: u64,
    /// When the capture began; before the first packet `None`, unless the caller knows.
    pub capture_start_ns: Option<i64>,
    pub previous: Option<Previous>,
    keying: Keying,
    workers: usize,
    pub input_bytes: u64,
    pub damaged: Counts,
    pub damaged_count: u64,
    pub skipped: BTreeMap<&'static str, u64>,
    spare: Decoded,
    /// The batch whose commit stalled.
    pub stalled: Option<Work>,
}

/// The end of the previous batch.
pub(super) struct Previous {
    file: u32,
    end: u64,
    reader: Capture,
}

impl Previous {
    /// The start of the first record of the next batch, and the reader at that place; `None` for a batch of
    /// another file.
    pub fn start_of(&self, batch: &Batch) -> Option<(usize, Capture)> {
        let start = self.end.saturating_sub(batch.base_offset) as usize;
        (self.file == batch.file).then(|| (start, self.reader.clone()))
    }
}

impl LearnerState {
    pub fn new(
        learner: NameLearner,
        workers: usize,
        &Plan { keying, packets_max, capture_began_ns, cut_every_ns, from_ns, to_ns, .. }: &Plan,
    ) -> LearnerState {
        LearnerState {
            learner,
            packets: 0,
            for_names: 0,
            finished_before: 0,
            packets_max,
            time_ns: i64::MIN,
            first_ns: None,
            last_ns: None,
            ticked_ns: None,
            cut_every_ns,
            from_ns,
            to_ns,
            is_range_over: false,
            logged_after: if from_ns.is_some() { u64::MAX } else { 0 },
            capture_start_ns: capture_began_ns,
            previous: None,
            keying,
            workers,
            input_bytes: 0,
            damaged: Counts::new(),
            damaged_count: 0,
            skipped: Default::default(),
            spare: Decoded::default(),
            stalled: None,
        }
    }

    /// Times of the packets so far.
    pub fn times(&self) -> Option<Times> {
        let (first_ns, latest_ns) = (self.first_ns?, self.time_ns);
        let last_ns = self.last_ns.unwrap_or(latest_ns);
        Some(Times { first_ns, latest_ns, last_ns, clock_ns: self.ticked_ns })
    }

    /// Learns a batch. True when no more input is wanted.
    pub fn take(&mut self, work: &mut Work) -> bool {
        let Some(batch) = &work.batch else {
            self.end_open_flows(work);
            return false;
        };
        let decoded = &mut work.decoded;
        self.check_start(batch, decoded);
        let mut is_enough = self.limit_packets(batch, decoded);
        work.cut_ns = self.tick(batch, decoded);
        is_enough |= self.end_range(batch, decoded);
        work.packets_before = self.packets;
        self.for_names += u64::from(self.begin_range(decoded).max(decoded.for_names));
        work.logged_after = self.logged_after;
        self.packets += u64::from(decoded.packets);
        self.move_time(batch, decoded);
        work.time_ns = self.time_ns;
        work.capture_start_ns = self.capture_start_ns.unwrap_or(0);
        if decoded.reader.is_some() {
            self.input_bytes = self.input_bytes.max(batch.base_offset + decoded.end as u64);
        }
        for (kind, found) in &decoded.damaged {
            let entry = self.damaged.entry(kind).or_insert(decode::Count { count: 0, ..*found });
            entry.count += found.count;
            self.damaged_count += found.count;
        }
        for (kind, found) in &decoded.skipped {
            *self.skipped.entry(kind).or_default() += found;
        }
        let (file, base) = (batch.file, batch.base_offset);
        self.learner.check_rules(decoded);
        self.learner.batch(decoded, &batch.bytes, work.packets_before, file, base);
        if let Some(log) = &mut self.learner.log {
            work.answers = std::mem::take(log);
        }
        is_enough
    }

    /// Fills a pseudo-batch after the end of the input.
    fn end_open_flows(&mut self, work: &mut Work) {
        work.packets_before = self.packets;
        work.logged_after = if self.is_range_over { u64::MAX } else { self.logged_after };
        work.time_ns = self.time_ns;
        work.capture_start_ns = self.capture_start_ns.unwrap_or(0);
        if self.finished_before == 0 {
            self.learner.finish(&mut work.decoded);
        }
        let last = self.packets + 1;
        self.finished_before = last.min(self.finished_before + FINISH_PACKETS);
        work.finish_before = self.finished_before;
    }

    /// Decodes a batch again if its first record is not where the previous batch ended. A worker that
    /// began in the middle of a file guesses that place: a wrong guess costs time, never the result.
    fn check_start(&mut self, batch: &Batch, decoded: &mut Decoded) {
        if let (None, Some(previous)) = (batch.start, self.previous.take())
            && let Some((expected, reader)) = previous.start_of(batch)
            && decoded.start != expected
        {
            std::mem::swap(&mut self.spare, decoded);
            let start = Some(expected);
            decode_from(batch, start, reader, u32::MAX, self.workers, self.keying, decoded);
        }
        self.previous = decoded.reader.clone().map(|reader| Previous {
            file: batch.file,
            end: batch.base_offset + decoded.end as u64,
            reader,
        });
    }

    /// Cuts a batch after the last packet that is wanted. True when that packet is in it or before it.
    fn limit_packets(&mut self, batch: &Batch, decoded: &mut Decoded) -> bool {
        let Some(packets_max) = self.packets_max else { return false };
        let left = packets_max.saturating_sub(self.packets);
        if left == 0 {
            // Read ahead of the last packet wanted: as though it had not been read.
            decoded.clear(self.workers);
        } else if u64::from(decoded.packets) > left
            && let Some(reader) = decoded.reader_before.clone()
        {
            // Once a run: decoded again, and no further, so that no later packet's time or damage counts.
            let start = Some(decoded.start);
            let last = left as u32;
            decode_from(batch, start, reader, last, self.workers, self.keying, decoded);
        }
        u64::from(decoded.packets) >= left
    }

    /// Moves the time to that of the batch. After the clock was set, the time goes on from there.
    fn move_time(&mut self, batch: &Batch, decoded: &Decoded) {
        self.first_ns = self.first_ns.or(decoded.first_ns);
        self.capture_start_ns = self.capture_start_ns.or(decoded.first_ns);
        let is_set = batch.clock_step_ns != 0;
        let later = |time_ns: i64, of_batch_ns: i64, is_set: bool| match is_set {
            true => of_batch_ns,
            false => time_ns.max(of_batch_ns),
        };
        self.time_ns = later(self.time_ns, decoded.latest_ns, is_set && decoded.packets > 0);
        if let Some(silent_at_ns) = batch.silent_at_ns {
            self.time_ns = later(self.time_ns, silent_at_ns, is_set);
        }
    }

    /// Completes the ticks of a batch: the predecessor of its first packet is in an earlier one, and each second counts
    /// once. Returns the next cut at its start.
    fn tick(&mut self, batch: &Batch, decoded: &mut Decoded) -> i64 {
        let step_ns = batch.clock_step_ns;
        let shifted = |time_ns: i64| time_ns.saturating_add(step_ns);
        self.ticked_ns = self.ticked_ns.map(shifted);
        let last_ns = self.last_ns.map(shifted);
        let cut_ns =
            self.ticked_ns.map_or(i64::MAX, |time_ns| next_cut_ns(time_ns, self.cut_every_ns));
        self.last_ns = decoded.last_of_clock_ns.or(last_ns);
        if let (Some((packet, first_ns)), Some(last_ns)) = (decoded.first_of_clock, last_ns) {
            let at = decoded.ticks.partition_point(|tick| tick.packet < packet);
            decoded.ticks.insert(at, Tick::at(packet, first_ns.min(last_ns)));
        }
        if let Some(silent_at_ns) = batch.silent_at_ns {
            // Idle flows end in silence, too: before the next packet.
            decoded.ticks.push(Tick::at(1, silent_at_ns));
        }
        decoded.ticks.retain_mut(|tick| {
            let Some(before_ns) = self.ticked_ns.replace(tick.time_ns) else { return true };
            self.ticked_ns = Some(before_ns.max(tick.time_ns));
            tick.is_cut = tick.time_ns >= next_cut_ns(before_ns, self.cut_every_ns);
            tick.time_ns > before_ns
        });
        cut_ns
    }

    /// Begins the log at the first cut of the range. Returns how many packets of the batch are before it.
    fn begin_range(&mut self, decoded: &Decoded) -> u32 {
        let Some(from_ns) = self.from_ns else { return 0 };
        let Some(tick) = decoded.ticks.iter().find(|tick| tick.time_ns >= from_ns) else {
            return decoded.packets;
        };
        self.from_ns = None;
        // Without a cut the input begins in the range.
        self.logged_after = if tick.is_cut { self.packets + u64::from(tick.packet) } else { 0 };
        if tick.is_cut { tick.packet - 1 } else { 0 }
    }

    /// Ends the input at the first cut behind the range. True if it is in the batch.
    fn end_range(&mut self, batch: &Batch, decoded: &mut Decoded) -> bool {
        let Some(to_ns) = self.to_ns else { return false };
        let Some(at) = decoded.ticks.iter().position(|tick| tick.time_ns >= to_ns) else {
            return false;
        };
        let mut ticks = std::mem::take(&mut decoded.ticks);
        ticks.truncate(at + 1);
        // Without a cut the input begins behind the range.
        let packets = if ticks[at].is_cut { ticks[at].packet - 1 } else { 0 };
        self.packets_max = Some(self.packets + u64::from(packets));
        self.to_ns = None;
        self.is_range_over = true;
        self.limit_packets(batch, decoded);
        decoded.ticks = ticks;
        true
    }
}
