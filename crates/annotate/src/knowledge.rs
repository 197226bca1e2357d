//! The names at a moment: all that was learned up to a time, from packets and from other logs.
//!
//! For flows that come long after their packets (`exports`), sorted by their start, and for addresses
//! alone (`names_at`). Packets are learned batch by batch. A batch may reach beyond the moment;
//! its changes are then looked up as of the last packet that is not later.
//!
//! Invariants
//! 1. [`Knowledge::until`] is called with times that never go back; then no lookup sees a name that was
//!    learned later than its moment, except names of packets whose times went backwards.
//!
//! 2. Packets of interfaces and observations of a socket wait for their time, unless too many of them do.
//!
//! Bounds: two batches of packets; of interfaces those that may teach, [`WAITING_BYTES_MAX`]; the names' budget,
//! [`OBSERVATIONS_MAX`] observations between commits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_io::batch::{Batch, Polled, Source, SourceOptions};
use larder_io::frame_filter::FrameFilter;
use larder_io::selection::Selection;
use larder_wire::packet::Packet;
use larder_wire::scope::Scope;

use crate::decode::{self, Counts, Decoded, Keying, Rare, decode};
use crate::feeds::external_names::ExternalNames;
use crate::files::{names_without_networks, open_inputs};
use crate::learn::{NameLearner, OBSERVATIONS_MAX};
use crate::names::{Ends, LearnedMarks, Names};
use crate::options::{Damage, Options, Summary, add_damage};
use crate::record::UnnamedReason;
use crate::{Error, Progress};
use larder_wire::Addr;

/// A flow this soon after the first packet, or after the first flow if there are none, may have been looked up
/// before, ns.
const BEFORE_NS: i64 = 10_000_000_000;
/// Bytes of packets of interfaces that wait for their time, at most.
pub const WAITING_BYTES_MAX: usize = 256 << 20;
/// Bytes of a batch: small, so that few changes wait in memory.
const BATCH_BYTES: usize = 256 << 10;

/// See the module.
pub struct Knowledge {
    learner: NameLearner,
    marks: Arc<LearnedMarks>,
    packets: Option<Packets>,
    /// Observations of logs that were not committed.
    uncommitted: usize,
    /// The moment up to which all is learned, ns.
    pub now_ns: i64,
    /// Time of the first packet or flow, ns.
    pub first_ns: Option<i64>,
    damaged: Counts,
    files: Vec<String>,
}

/// A batch that was decoded and not learned yet.
struct Waiting {
    frames: Frames,
    decoded: Decoded,
    file: u32,
    base_offset: u64,
}

enum Frames {
    /// As it was read.
    Batch(Batch),
    /// Those frames that may teach: the rest of a batch is not kept.
    Kept(Vec<u8>),
}

impl Waiting {
    /// Memory that it takes while it waits for its time: with its own frames, not those of a batch of the source.
    fn kept_bytes(&self) -> usize {
        match &self.frames {
            Frames::Batch(_) => 0,
            Frames::Kept(frames) => {
                size_of::<Waiting>() + frames.len() + self.decoded.rare.len() * size_of::<Rare>()
            }
        }
    }
}

/// Packets that are learned from, and the place in them.
struct Packets {
    source: Source,
    keying: Keying,
    /// One of a file; those that wait for their time of interfaces.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    is_live: bool,
    /// Of the batch that was learned last: the packets that may teach, each with the latest time so far.
    times: Vec<(i64, u64)>,
    before: u64,
    count: u64,
    bytes: u64,
}

impl Knowledge {
    /// Opens the sources of names for flows of the past.
    pub fn open(options: &Options, progress: &Arc<Progress>) -> Result<Knowledge, Error> {
        Knowledge::with(options, None, false, progress)
    }

    /// Opens the sources of names for flows that come as they are exported, with the packets of interfaces, if
    /// there are any.
    pub fn open_live(
        options: &Options,
        interfaces: Option<Source>,
        progress: &Arc<Progress>,
    ) -> Result<Knowledge, Error> {
        Knowledge::with(options, interfaces, true, progress)
    }

    fn with(
        options: &Options,
        interfaces: Option<Source>,
        is_live: bool,
        progress: &Arc<Progress>,
    ) -> Result<Knowledge, Error> {
        // Exporters rarely state a VLAN, so names of all networks count.
        let options = Options { ignore_vlan: true, ..options.clone() };
        let names = names_without_networks(&options, options.names_budget_bytes)?;
        let marks = names.learned();
        let mut learner = NameLearner::new(names, &options);
        learner.log = None;
        learner.external_names = ExternalNames::open(&options, is_live, progress)?;
        if let Some(external_names) = learner.external_names.as_mut().filter(|_| is_live) {
            external_names.hold();
        }
        let mut files = Vec::new();
        let packets = match interfaces {
            Some(source) => {
                files.push(source.name().to_owned());
                Some(Packets::of(source, &options, true))
            }
            None if options.read.is_empty() => None,
            None => {
                let inputs = open_inputs(&options.read, &options.log, &progress.stop)?;
                files.extend(inputs.iter().map(|input| input.name.clone()));
                let mut packets = Packets::open(inputs, &options, progress)?;
                packets.read(progress);
                Some(packets)
            }
        };
        let first_ns = packets.as_ref().and_then(Packets::next_ns);
        Ok(Knowledge {
            learner,
            marks,
            packets,
            uncommitted: 0,
            now_ns: i64::MIN,
            first_ns,
            damaged: Counts::new(),
            files,
        })
    }

    /// Learns all that is not later than `time_ns`.
    pub fn until(&mut self, time_ns: i64, progress: &Progress) -> Result<(), Error> {
        while let Some(packets) = &mut self.packets
            && (packets.next_ns().is_some_and(|next_ns| next_ns <= time_ns)
                || packets.waiting_bytes > WAITING_BYTES_MAX)
            && let Some(waiting) = packets.waiting.pop_front()
        {
            self.learner.names.commit_all(&mut || ())?;
            self.uncommitted = 0;
            self.learn(waiting);
            if let Some(packets) = &mut self.packets
                && !packets.is_live
            {
                packets.read(progress);
            }
            if let Some(error) = self.learner.failed.take() {
                return Err(error);
            }
        }
        let packet = self.packets.as_ref().map_or(0, |packets| packets.before);
        while let Some(external_names) = &mut self.learner.external_names
            && let Some(observation) = external_names.until(time_ns)?
        {
            self.learner.learn_observation(packet, &observation);
            self.uncommitted += 1 + observation.addresses.len();
            // A commit ends the overlay, and so the lookups as of a packet of it.
            if self.uncommitted >= OBSERVATIONS_MAX && self.packet_at(time_ns) == u64::MAX {
                self.uncommitted = 0;
                self.learner.names.commit_all(&mut || ())?;
            }
        }
        debug_assert!(time_ns >= self.now_ns, "invariant 1: times never go back");
        self.now_ns = time_ns;
        Ok(())
    }

    /// Takes the packets that interfaces have received by now. Does not wait.
    pub fn gather(&mut self, progress: &Progress) {
        let Some(packets) = &mut self.packets else { return };
        packets.gather(progress);
        self.first_ns = self.first_ns.or(packets.next_ns());
    }

    fn learn(&mut self, waiting: Waiting) {
        let Some(packets) = &mut self.packets else { return };
        packets.waiting_bytes -= waiting.kept_bytes();
        let Waiting { frames, mut decoded, file, base_offset } = waiting;
        let bytes: &[u8] = match &frames {
            Frames::Batch(batch) => &batch.bytes,
            Frames::Kept(frames) => frames,
        };
        let before = packets.before;
        packets.times.clear();
        let mut latest_ns = i64::MIN;
        for rare in &decoded.rare {
            latest_ns = latest_ns.max(rare.time_ns);
            packets.times.push((latest_ns, before + u64::from(rare.number)));
        }
        for (kind, found) in &decoded.damaged {
            let entry = self.damaged.entry(kind).or_insert(decode::Count { count: 0, ..*found });
            entry.count += found.count;
        }
        packets.before += u64::from(decoded.packets);
        packets.bytes = packets.bytes.max(base_offset + decoded.end as u64);
        self.learner.batch(&mut decoded, bytes, before, file, base_offset);
    }

    /// The first packet that is later than `time_ns`, and so is not to count; `u64::MAX` for none.
    fn packet_at(&self, time_ns: i64) -> u64 {
        let Some(packets) = &self.packets else { return u64::MAX };
        let at = packets.times.partition_point(|(latest_ns, _)| *latest_ns <= time_ns);
        packets.times.get(at).map_or(u64::MAX, |(_, packet)| *packet)
    }

    /// The names of a flow's ends as of the moment; `time_ns` is when the flow began.
    pub fn ends(&self, source: Addr, destination: Addr, time_ns: i64) -> Ends {
        let packet = self.packet_at(self.now_ns);
        self.learner.names.view().ends(source, destination, packet, time_ns)
    }

    /// Why a destination has no name. `is_known`: it has one for some client.
    pub fn why_unnamed(
        &self,
        client: Addr,
        addr: Addr,
        start_ns: i64,
        is_known: bool,
    ) -> UnnamedReason {
        let hash = |addr| self.learner.names.address_hash(Scope::NONE, addr);
        let all = u64::MAX;
        let first_ns = self.first_ns.unwrap_or(start_ns);
        // The batch may reach beyond the moment.
        let is_learned_later = || {
            let view = self.learner.names.view();
            view.ends(client, addr, u64::MAX, start_ns).destination.is_some()
        };
        if addr.is_local() {
            UnnamedReason::Local
        } else if !is_known && self.marks.named.has(hash(addr), all) && !is_learned_later() {
            UnnamedReason::Evicted
        } else if self.marks.encrypted.has(hash(client), all) {
            UnnamedReason::EncryptedDnsSuspected
        } else if start_ns.saturating_sub(first_ns) < BEFORE_NS {
            UnnamedReason::BeforeCapture
        } else {
            UnnamedReason::NoLookupSeen
        }
    }

    /// Adds counts and damage to the summary; returns the names.
    pub fn finish(mut self, summary: &mut Summary) -> Result<Names, Error> {
        self.learner.names.commit_all(&mut || ())?;
        summary.answers += self.learner.answers;
        if let Some(external_names) = &self.learner.external_names {
            external_names.add_damage(summary);
        }
        for (kind, found) in self.damaged.iter().chain(&self.learner.damaged) {
            let first_file = self.files.join(", ");
            let damage =
                Damage { count: found.count, first_offset: found.first_offset, first_file };
            add_damage(&mut summary.damaged, kind, damage);
        }
        if let Some(packets) = &self.packets {
            summary.packets += packets.before;
            summary.input_bytes += packets.bytes;
            packets.add_damage(summary);
        }
        Ok(self.learner.names)
    }
}

impl Packets {
    fn open(
        inputs: Vec<larder_io::input::Input>,
        options: &Options,
        progress: &Progress,
    ) -> Result<Packets, Error> {
        let source = open_packets(inputs, options.filter.trim(), progress)?;
        Ok(Packets::of(source, options, false))
    }

    fn of(source: Source, options: &Options, is_live: bool) -> Packets {
        Packets {
            source,
            keying: Keying::of_options(options),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_live,
            times: Vec::new(),
            before: 0,
            count: 0,
            bytes: 0,
        }
    }

    /// Reads the next batch that has packets.
    fn read(&mut self, progress: &Progress) {
        while let Some(batch) = self.source.next_batch(&progress.stop) {
            let decoded = self.decoded(&batch, progress);
            if decoded.packets > 0 {
                let (file, base_offset) = (batch.file, batch.base_offset);
                self.keep(Waiting { frames: Frames::Batch(batch), decoded, file, base_offset });
                return;
            }
        }
    }

    /// Reads what interfaces have received, and keeps the frames that may teach.
    fn gather(&mut self, progress: &Progress) {
        // A reader that is told to stop gives what it has and then ends.
        while let Polled::Batch(batch) = self.source.poll_batch_now(&progress.stop) {
            let mut decoded = self.decoded(&batch, progress);
            // The learner adds events to lanes; nobody reads them.
            decoded.lanes.iter_mut().for_each(|lane| *lane = Vec::new());
            let mut frames = Vec::new();
            for rare in &mut decoded.rare {
                let start = rare.frame_offset as usize;
                let end = start + bytes_read(&rare.packet);
                rare.frame_offset = frames.len() as u32;
                frames.extend_from_slice(batch.bytes.get(start..end).unwrap_or_default());
            }
            if decoded.packets > 0 {
                let (file, base_offset) = (batch.file, batch.base_offset);
                self.keep(Waiting { frames: Frames::Kept(frames), decoded, file, base_offset });
            }
        }
    }

    fn decoded(&mut self, batch: &Batch, progress: &Progress) -> Decoded {
        let mut decoded = Decoded::default();
        decode(batch, 1, self.keying, &mut decoded);
        self.count += u64::from(decoded.packets);
        progress.packets.store(self.count, Ordering::Relaxed);
        decoded
    }

    fn keep(&mut self, waiting: Waiting) {
        self.waiting_bytes += waiting.kept_bytes();
        self.waiting.push_back(waiting);
    }

    fn next_ns(&self) -> Option<i64> {
        self.waiting.front().and_then(|waiting| waiting.decoded.first_ns)
    }

    fn add_damage(&self, summary: &mut Summary) {
        for damage in self.source.damage() {
            let found = Damage {
                count: damage.count,
                first_offset: damage.offset,
                first_file: damage.file,
            };
            add_damage(&mut summary.damaged, damage.kind.as_str(), found);
        }
    }
}

/// Bytes of a frame up to the last that the learner reads.
fn bytes_read(packet: &Packet) -> usize {
    let payload_end = packet.payload_offset + packet.payload_len;
    let data_end = packet.fragment.map_or(0, |fragment| fragment.data_offset + fragment.data_len);
    payload_end.max(data_end) as usize
}

/// The packets of captures in the order of time, those that the filter selects. Batches have exact starts.
pub fn open_packets(
    inputs: Vec<larder_io::input::Input>,
    filter: &str,
    progress: &Progress,
) -> Result<Source, Error> {
    let filter = FrameFilter::new(filter)
        .map_err(|error| Error::Options(format!("the filter {filter:?}: {error}")))?;
    let of_source = SourceOptions { batch_bytes: BATCH_BYTES, in_flight: 4 };
    let selection = Selection { filter: Some(filter), ..Selection::default() };
    Ok(Source::open_selected(inputs, Vec::new(), selection, of_source, &progress.stop)?)
}

#[cfg(test)]
mod tests {
    use larder_testkit::frames::{Pcap, ethernet, ipv4_fragment, udp};

    use super::*;
    use crate::options::Endpoint;

    /// `ok.example` has the address 203.0.113.9.
    fn response() -> Vec<u8> {
        let name = b"\x02ok\x07example\0";
        let record = b"\xc0\x0c\0\x01\0\x01\0\0\x01\0\0\x04\xcb\0\x71\x09";
        let head = b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0";
        [&head[..], name, b"\0\x01\0\x01", record].concat()
    }

    /// Packets that wait for their time teach what they teach at once: also a response in two fragments, the
    /// later of which comes first.
    #[test]
    fn waiting_packets_teach_the_same() {
        let datagram = udp((53, 4_000), &response());
        let ends = ([10, 0, 0, 53], [10, 0, 0, 7]);
        let (first, rest) = datagram.split_at(24);
        let mut pcap = Pcap::new(1);
        pcap.push(1_000, &ethernet(0x0800, &ipv4_fragment(ends, 17, (7, 24 / 8), rest)));
        pcap.push(2_000, &ethernet(0x0800, &ipv4_fragment(ends, 17, (7, 0x2000), first)));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fragments.pcap");
        std::fs::write(&path, &pcap.bytes).expect("room");
        let read = vec![Endpoint::Path(path)];
        let options = Options { read: read.clone(), ..Options::default() };
        let progress = Arc::new(Progress::default());
        let answers = |mut knowledge: Knowledge| {
            knowledge.gather(&progress);
            knowledge.until(i64::MAX, &progress).expect("sound");
            let ends = knowledge.ends(Addr::v4([10, 0, 0, 7]), Addr::v4([203, 0, 113, 9]), 3_000);
            let left = knowledge.packets.as_ref().map(|packets| packets.waiting_bytes);
            (knowledge.learner.answers, ends.destination.map(|found| found.name), left)
        };
        let at_once = answers(Knowledge::open(&options, &progress).expect("a capture"));
        let inputs = open_inputs(&read, &larder_serve::log::Log::default(), &progress.stop)
            .expect("a capture");
        let source = open_packets(inputs, "", &progress).expect("a capture");
        let options = Options::default();
        let later = Knowledge::open_live(&options, Some(source), &progress).expect("memory");
        let later = answers(later);
        assert_eq!(later, at_once);
        assert_eq!((later.0, later.2), (1, Some(0)));
        assert!(later.1.is_some());
    }
}
