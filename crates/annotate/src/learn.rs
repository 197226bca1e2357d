//! The name learner: handles packets that can teach names, serially, in packet order, batch by batch.
//!
//! Few packets come here (see [`crate::decode`]). [`NameLearner`] holds the state that spans flows:
//! queries without a response yet, DNS streams over TCP, fragments, DHCP exchanges. It writes to
//! [`Names`], and it gives the events of fragments to their flows. Any worker that is free runs it, for
//! one batch at a time and in batch order, so the result is that of a single core.
//!
//! A packet that teaches names waits for memory several times: for its payload, for the index lines of
//! its names, for the entries behind them. So the learner prefetches payloads some packets ahead, reads
//! DNS datagrams (module `reading`) a few packets ahead of their turn, and then prefetches what they
//! will touch.
//!
//! Bounds: [`QUESTIONS_MAX`] queries (`ELSEWHERE_MAX` on other ports than those of DNS) and
//! [`EXCHANGES_MAX`] DHCP exchanges; the oldest is removed for a new one. Clients are in a sieve, which
//! forgets none: once it is full, each response without a query counts as unsolicited. Streams and
//! fragments are bounded by bytes.

mod carrier;
mod fragments;
mod messages;
mod reading;
mod ring;

use larder_mem::prefetch_lines;
use larder_wire::dns::NameBuf;
use larder_wire::fragment::Reassembler;
use larder_wire::note;
use larder_wire::packet::Packet;
use larder_wire::scope::Scope;
use larder_wire::stream::{Budget, Stream};
use larder_wire::{Addr, Name};

use crate::decode::{Counts, Decoded, Keying, Rare, count};
use crate::feeds::dns_observation::DnsObservation;
use crate::feeds::external_names::ExternalNames;
use crate::flow::protocol;
use crate::names::{Ends, NameProtocol, Names, Standing};
use crate::options::{NameSources, Options, Rules};
use carrier::{Carrier, hop_limit};
use fragments::Injected;
use reading::Reading;
use ring::Ring;

/// Rare packets between the reading of a DNS datagram and its turn. Meanwhile the memory that it will
/// touch arrives.
const READ_AHEAD: usize = 4;
/// Rare packets between the prefetch of a payload and its reading.
const FETCH_AHEAD: usize = 8;
/// Cache lines of a payload that are prefetched at most: a response of a few hundred bytes.
const FETCH_LINES_MAX: usize = 8;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Queries without a response that are remembered.
pub const QUESTIONS_MAX: usize = 1 << 16;
/// DHCP exchanges that are remembered.
pub const EXCHANGES_MAX: usize = 1 << 12;
/// Fragments without ports whose addresses had a name on arrival, and that are remembered with it.
const HELD_NAMED_MAX: usize = 1 << 10;
/// Queries on other ports than those of DNS that are remembered.
const ELSEWHERE_MAX: usize = 1 << 12;
/// DNS streams over TCP that are followed.
const STREAMS_MAX: usize = 1 << 14;

/// External observations that are learned with one batch. The others wait for the next batch: the
/// overlay that workers share must not grow with a log.
pub const OBSERVATIONS_MAX: usize = 1 << 12;

/// One direction of a DNS connection.
type StreamKey = (Addr, u16, Addr, u16, Scope);

/// The position of a rare packet in the input.
#[derive(Clone, Copy)]
struct Place {
    /// Number of the packet in the input.
    number: u64,
    file: u32,
    /// Offset of its frame in the file.
    offset: u64,
}

/// Addresses with their TTLs, seconds.
pub type Given = Vec<(Addr, u32)>;

/// A line of `dns.log`.
#[derive(Clone, Debug)]
pub struct AnswerLine {
    /// Time, ns.
    pub time_ns: i64,
    /// Packet number.
    pub packet: u64,
    /// The client that queried.
    pub client: Addr,
    /// The server that responded.
    pub server: Addr,
    /// The name as queried.
    pub asked: Name,
    /// Address and TTL.
    pub addresses: Given,
    /// Alias targets in order.
    pub aliases: Vec<Name>,
    /// The protocol of the message.
    pub learned_from: NameProtocol,
    /// What supports it.
    pub standing: Standing,
}

/// See the module.
pub struct NameLearner {
    /// All names.
    pub names: Names,
    sources: NameSources,
    rules: Rules,
    /// Queries without a response, each a hash of client, server, ports, ID, name and type: eight bytes
    /// instead of 48 stay in the cache. A collision is as likely as a guess of the seed.
    questions: Ring<u64, ()>,
    /// The same for queries to other ports than those of DNS, with that port.
    elsewhere: Ring<(u64, u16), ()>,
    streams: Ring<StreamKey, Box<Stream>>,
    stream_budget: Budget,
    fragments: Reassembler,
    /// The names that the addresses of fragments without ports had on arrival, by packet number.
    held_named: Ring<u64, Box<[Ends; 2]>>,
    /// Names of DHCP clients, by transaction and client.
    exchanges: Ring<(u32, u64), Name>,
    name: NameBuf,
    /// The next rare packets, as read; each is at its number modulo [`READ_AHEAD`].
    window: Vec<Reading>,
    /// A message from a stream or from fragments, as read.
    whole: Option<Box<Reading>>,
    /// Messages that taught something.
    pub answers: u64,
    /// Damage found here.
    pub damaged: Counts,
    /// Answers of the batch, where `dns.log` is wanted.
    pub log: Option<Vec<AnswerLine>>,
    /// Names from other logs, learned at their times.
    pub external_names: Option<ExternalNames>,
    /// The error that ended reading them.
    pub failed: Option<crate::Error>,
    keying: Keying,
    note_rules: note::Rules,
}

impl NameLearner {
    /// A learner that writes to `names`.
    pub fn new(names: Names, options: &Options) -> NameLearner {
        let bytes = options.reassembly_budget_bytes as usize;
        NameLearner {
            names,
            sources: options.names,
            rules: options.rules,
            questions: Ring::new(QUESTIONS_MAX),
            elsewhere: Ring::new(ELSEWHERE_MAX),
            streams: Ring::new(STREAMS_MAX),
            stream_budget: Budget::new(bytes / 4),
            fragments: Reassembler::new(bytes / 4),
            held_named: Ring::new(HELD_NAMED_MAX),
            exchanges: Ring::new(EXCHANGES_MAX),
            name: NameBuf::new(),
            window: (0..READ_AHEAD).map(|_| Reading::default()).collect(),
            whole: None,
            answers: 0,
            damaged: Counts::new(),
            log: options.directory.is_some().then(Vec::new),
            external_names: None,
            failed: None,
            keying: Keying::of_options(options),
            note_rules: options.note_rules(),
        }
    }

    /// Refuses captures that were reduced for other rules: packets that matter would be missing.
    pub fn check_rules(&mut self, decoded: &Decoded) {
        if decoded.rules.iter().any(|rules| *rules != self.note_rules) {
            self.failed.get_or_insert_with(|| {
                let why = "larder extract had another --tcp-idle, --udp-idle, --linger or --ignore-vlan; \
                           extract again with those of this run";
                crate::Error::Options(format!("--names-read with --cut-every: {why}"))
            });
        }
    }

    /// Handles the rare packets of one decoded batch. `packets_before` counts those of earlier batches;
    /// `file` and `base` say where the batch's bytes lie in the input. Events of fragments go into the
    /// batch's lanes.
    pub fn batch(
        &mut self,
        decoded: &mut Decoded,
        bytes: &[u8],
        packets_before: u64,
        file: u32,
        base: u64,
    ) {
        let mut injected = Injected { base: bytes.len() as u32, ..Injected::default() };
        let mut outside = self.observations_of(decoded).into_iter().peekable();
        let mut window = std::mem::take(&mut self.window);
        let rare = &decoded.rare;
        rare.iter().take(FETCH_AHEAD).for_each(|rare| fetch_payload(rare, bytes));
        for step in 0..rare.len() + READ_AHEAD {
            if let Some(turn) = step.checked_sub(READ_AHEAD) {
                let rare = &rare[turn];
                while let Some((after, observation)) =
                    outside.next_if(|(after, _)| *after < rare.number)
                {
                    self.learn_observation(packets_before + u64::from(after), &observation);
                }
                let place = Place {
                    number: packets_before + u64::from(rare.number),
                    file,
                    offset: base + u64::from(rare.frame_offset),
                };
                let frame = &bytes[rare.frame_offset as usize..];
                self.packet(rare, frame, place, &window[turn % READ_AHEAD], &mut injected);
            }
            if let Some(rare) = rare.get(step + FETCH_AHEAD) {
                fetch_payload(rare, bytes);
            }
            if let Some(rare) = rare.get(step) {
                self.read_ahead(rare, bytes, &mut window[step % READ_AHEAD]);
            }
            // Half way between reading and turn, the index lines prefetched at the reading have arrived.
            if let Some(soon) = step.checked_sub(READ_AHEAD / 2) {
                window[soon % READ_AHEAD].prefetch_entries(&self.names);
            }
        }
        self.window = window;
        for (after, observation) in outside {
            self.learn_observation(packets_before + u64::from(after), &observation);
        }
        injected.put_in(decoded);
    }

    /// Ends the input: fragments whose ports never came are counted without ports.
    pub fn finish(&mut self, decoded: &mut Decoded) {
        let mut injected = Injected::default();
        self.fragments.finish();
        self.give_orphans(0, &mut injected);
        injected.put_in(decoded);
    }

    /// The external observations up to the time of the batch's last packet, each with the number of the
    /// last packet before it: a flow gets the names that were known at its start.
    fn observations_of(&mut self, decoded: &Decoded) -> Vec<(u32, DnsObservation)> {
        let Some(external_names) = &mut self.external_names else { return Vec::new() };
        let mut observations = Vec::new();
        if decoded.packets == 0 {
            return observations;
        }
        // By time, each with the last packet that is not later: packet times may go backwards, and the
        // lane of an event must not matter.
        let mut times: Vec<(i64, u32)> =
            decoded.lanes.iter().flatten().map(|event| (event.time_ns, event.packet)).collect();
        times.sort_unstable();
        let mut last = 0;
        for (_, packet) in &mut times {
            last = last.max(*packet);
            *packet = last;
        }
        while observations.len() < OBSERVATIONS_MAX {
            match external_names.until(decoded.latest_ns) {
                Ok(Some(observation)) => {
                    let earlier =
                        times.partition_point(|(time_ns, _)| *time_ns < observation.time_ns);
                    let after = earlier.checked_sub(1).map_or(0, |at| times[at].1);
                    observations.push((after, observation));
                }
                Ok(None) => break,
                Err(error) => {
                    self.failed.get_or_insert(error);
                    break;
                }
            }
        }
        observations
    }

    /// Learns and commits the external observations before the first packet, which is at `time_ns`.
    /// `make_way` syncs every other reader, which the engine needs now and then.
    pub fn learn_before(
        &mut self,
        time_ns: i64,
        mut make_way: impl FnMut(),
    ) -> Result<(), crate::Error> {
        let mut uncommitted = 0;
        while let Some(external_names) = &mut self.external_names
            && let Some(observation) = external_names.until(time_ns)?
        {
            self.learn_observation(0, &observation);
            uncommitted += 1;
            if uncommitted == OBSERVATIONS_MAX {
                uncommitted = 0;
                self.names.commit_all(&mut make_way)?;
            }
        }
        self.names.commit_all(&mut make_way)
    }

    pub(crate) fn learn_observation(&mut self, packet: u64, observation: &DnsObservation) {
        self.answers += 1;
        observation.learn_into(packet, self.sources, self.rules, &mut self.names);
    }

    /// Handles a rare packet. `reading` is of its payload if that is a DNS datagram.
    fn packet(
        &mut self,
        rare: &Rare,
        frame: &[u8],
        place: Place,
        reading: &Reading,
        injected: &mut Injected,
    ) {
        let packet = &rare.packet;
        if packet.fragment.is_some() {
            return self.fragment(rare, frame, place, injected);
        }
        let hop_limit = hop_limit(packet, frame);
        self.whole(rare, packet, payload_of(packet, frame), hop_limit, place, Some(reading));
    }

    /// Handles a packet that is no fragment, or a reassembled datagram, which was not read ahead.
    fn whole(
        &mut self,
        rare: &Rare,
        packet: &Packet,
        payload: &[u8],
        hop_limit: Option<u8>,
        place: Place,
        reading: Option<&Reading>,
    ) {
        let carrier = Carrier {
            packet: place.number,
            time_ns: rare.time_ns,
            src: packet.src,
            src_port: packet.src_port,
            dst: packet.dst,
            dst_port: packet.dst_port,
            scope: packet.scope.network(),
            for_names: packet.scope.is_for_names(),
            file: place.file,
            offset: place.offset,
            hop_limit,
        };
        if packet.dst_port == 853 || packet.dst_port == 8853 {
            self.names.note_encrypted(carrier.scope, packet.src, carrier.packet);
        }
        match packet.protocol {
            protocol::TCP => self.segment(&carrier, packet, payload),
            protocol::UDP => {
                self.datagram(&carrier, packet.payload_bytes as usize, payload, reading);
            }
            _ => {}
        }
    }

    fn damage(&mut self, kind: &'static str, carrier: &Carrier) {
        count(&mut self.damaged, kind, carrier.file, carrier.offset);
    }
}

/// Prefetches the payload of a packet, whose headers were just decoded.
fn fetch_payload(rare: &Rare, bytes: &[u8]) {
    let start = rare.frame_offset as usize + rare.packet.payload_offset as usize;
    let lines = rare.packet.payload_len as usize / LINE_BYTES + 1;
    prefetch_lines(bytes, start, lines.min(FETCH_LINES_MAX));
}

/// The captured payload of a packet in its frame.
pub fn payload_of<'a>(packet: &Packet, frame: &'a [u8]) -> &'a [u8] {
    let start = packet.payload_offset as usize;
    frame.get(start..start + packet.payload_len as usize).unwrap_or_default()
}
