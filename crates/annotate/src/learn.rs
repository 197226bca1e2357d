//! The serial middle: what may teach a name, in packet order, one batch at a time.
//!
//! Few packets come here (see [`crate::decode`]). The name learner keeps the state that spans flows:
//! questions that were asked, DNS streams over TCP, fragments, DHCP exchanges. It teaches
//! [`Names`], and it gives fragments to the flows they belong to. Whoever worker is free runs it;
//! it runs for one batch at a time, in batch order, so that its result is that of a single core.
//!
//! A rare packet waits for memory again and again: for its payload, for the index lines of what it
//! names, for the entries that these lead to. So payloads are asked for some packets ahead, DNS
//! datagrams are read (module `reading`) a few packets ahead of their turn, and what they will touch is
//! asked for then.
//!
//! Bounds: questions [`QUESTIONS_MAX`] (on ports of their own: `ELSEWHERE_MAX`), DHCP exchanges [`EXCHANGES_MAX`], each a ring in which the
//! oldest makes room; clients a sieve, which forgets none: full, it takes every response without a
//! query for unsolicited; streams and fragments by bytes.

mod reading;
mod ring;

use larder::prefetch_lines;
use larder_wire::dhcp;
use larder_wire::dns::answers::{CHAIN_MAX, Extract};
use larder_wire::dns::{self, NameBuf};
use larder_wire::fragment::{self, Outcome, Reassembler, Reject};
use larder_wire::nbns;
use larder_wire::packet::{self, Packet};
use larder_wire::scope::Scope;
use larder_wire::stream::{Budget, Stream};
use larder_wire::{Addr, Name};

use crate::decode::{self, Counts, Decoded, Keying, Rare, count};
use crate::feeds::dns_observation::DnsObservation;
use crate::feeds::external_names::ExternalNames;
use crate::flow::{Event, protocol, tcp_flag};
use crate::names::{
    AddressObservation, AliasObservation, Ends, NameProtocol, Names, Sieve, Standing,
};
use crate::options::{NameSources, Options, Rules};
use crate::own_name;
use crate::record::NameSource;
use reading::{Reading, Says};
use ring::Ring;

/// Rare packets between the reading of a DNS datagram and its turn: while the packets before it
/// teach, what it will touch comes from memory.
const READ_AHEAD: usize = 4;
/// Rare packets between the request for a payload and its reading.
const FETCH_AHEAD: usize = 8;
/// Most lines of a payload that are asked for: an answer of a few hundred octets.
const FETCH_LINES_MAX: usize = 8;
/// Octets of a line.
const LINE_BYTES: usize = 64;
/// Questions remembered at one time.
pub const QUESTIONS_MAX: usize = 1 << 16;
/// Bits that tell which clients' queries were seen: 512 KiB.
const CLIENTS_SIEVED: usize = 1 << 22;
/// DHCP exchanges remembered at one time.
pub const EXCHANGES_MAX: usize = 1 << 12;
/// Fragments that wait for their ports of which is remembered what their addresses were called when they came; of
/// others it was nothing.
const HELD_NAMED_MAX: usize = 1 << 10;
/// Queries on other ports than DNS has, remembered at one time.
const ELSEWHERE_MAX: usize = 1 << 12;
/// DNS streams over TCP followed at one time.
const STREAMS_MAX: usize = 1 << 14;

/// LearnedMarks from beside the capture that are learned with one batch. More of them wait for the next:
/// the overlay that workers share must not grow with a log.
pub const OBSERVATIONS_MAX: usize = 1 << 12;

/// One direction of a DNS connection.
type StreamKey = (Addr, u16, Addr, u16, Scope);

/// Where a rare packet stands in the input.
#[derive(Clone, Copy)]
struct Place {
    /// Number of the packet in the input.
    number: u64,
    file: u32,
    /// Octets before its frame in the file.
    offset: u64,
}

/// Addresses with their TTLs, seconds.
pub type Given = Vec<(Addr, u32)>;

/// What the name learner makes of an answer for `dns.log`.
#[derive(Clone, Debug)]
pub struct AnswerLine {
    /// Time, ns.
    pub time_ns: i64,
    /// Packet number.
    pub packet: u64,
    /// Who asked.
    pub client: Addr,
    /// Who answered.
    pub server: Addr,
    /// Name as asked.
    pub asked: Name,
    /// Address and TTL.
    pub addresses: Given,
    /// Alias targets in order.
    pub aliases: Vec<Name>,
    /// Who taught it.
    pub learned_from: NameProtocol,
    /// What supports it.
    pub standing: Standing,
}

/// See the module.
pub struct NameLearner {
    /// What was learned.
    pub names: Names,
    sources: NameSources,
    rules: Rules,
    /// Questions in flight, each a hash of who asked whom, from which port, under which ID, for
    /// what: eight octets instead of 48 keep them near. That two of them meet in one hash is as
    /// likely as a guess of the seed.
    questions: Ring<u64, ()>,
    /// Clients whose queries were seen.
    clients: Sieve,
    /// The same of queries to a port that is not one of DNS, with that port.
    elsewhere: Ring<(u64, u16), ()>,
    streams: Ring<StreamKey, Box<Stream>>,
    stream_budget: Budget,
    fragments: Reassembler,
    /// What the addresses of fragments that wait for their ports were called when these came, by packet number.
    held_named: Ring<u64, Box<[Ends; 2]>>,
    /// Names of DHCP clients, by transaction and client.
    exchanges: Ring<(u32, u64), Name>,
    name: NameBuf,
    /// The next rare packets, as read; each has the place of its number, modulo [`READ_AHEAD`].
    window: Vec<Reading>,
    /// A message from a stream or from fragments, as read.
    whole: Option<Box<Reading>>,
    /// Messages that taught something.
    pub answers: u64,
    /// Damage found here.
    pub damaged: Counts,
    /// Answers of the batch, where `dns.log` is wanted.
    pub log: Option<Vec<AnswerLine>>,
    /// Names from beside the capture, learned at their times.
    pub external_names: Option<ExternalNames>,
    /// Why they can't be read on.
    pub failed: Option<crate::Error>,
    keying: Keying,
}

/// What a message came in.
#[derive(Clone, Copy)]
struct Carrier {
    packet: u64,
    time_ns: i64,
    src: Addr,
    src_port: u16,
    dst: Addr,
    dst_port: u16,
    scope: Scope,
    file: u32,
    offset: u64,
    /// Hop limit (TTL) of its IP packet, where that is read.
    hop_limit: Option<u8>,
}

impl Carrier {
    /// True when the sender speaks of its own address on its own link: the address is the packet's
    /// source, and the packet was not forwarded. Multicast DNS is sent with a hop limit of 255 (RFC
    /// 6762, section 11); the others are believed of local addresses only.
    fn is_own_word(&self, addr: Addr, learned_from: NameProtocol) -> bool {
        let (port, is_near) = match learned_from {
            NameProtocol::Mdns => (5353, self.hop_limit == Some(255)),
            NameProtocol::Llmnr => (5355, self.src.is_local()),
            NameProtocol::Nbns => (137, self.src.is_local()),
            NameProtocol::Dhcp => (68, self.src.is_local()),
            NameProtocol::Dns | NameProtocol::Ptr => return false,
        };
        addr == self.src && self.src_port == port && is_near
    }
}

impl NameLearner {
    /// A learner that teaches `names`.
    pub fn new(names: Names, options: &Options) -> NameLearner {
        let bytes = options.reassembly_budget_bytes as usize;
        NameLearner {
            names,
            sources: options.names,
            rules: options.rules,
            questions: Ring::new(QUESTIONS_MAX),
            clients: Sieve::new(CLIENTS_SIEVED),
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
        }
    }

    /// Takes the rare packets of one decoded batch. `packets_before`: packets of earlier batches;
    /// `file` and `base`: where the batch's bytes lie in the input. Fragments become events in the
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
            // Half way between reading and turn, the index lines asked for at the reading are here.
            if let Some(soon) = step.checked_sub(READ_AHEAD / 2) {
                window[soon % READ_AHEAD].ask_for_entries(&self.names);
            }
        }
        self.window = window;
        for (after, observation) in outside {
            self.learn_observation(packets_before + u64::from(after), &observation);
        }
        injected.put_in(decoded);
    }

    /// The input has ended: fragments that wait for their ports are counted without.
    pub fn finish(&mut self, decoded: &mut Decoded) {
        let mut injected = Injected::default();
        self.fragments.finish();
        self.give_orphans(0, &mut injected);
        injected.put_in(decoded);
    }

    /// What came to be known beside the capture by the time of the batch's last packet, each with
    /// the number of the last packet before it: a flow is named by what was known at its start.
    fn observations_of(&mut self, decoded: &Decoded) -> Vec<(u32, DnsObservation)> {
        let Some(external_names) = &mut self.external_names else { return Vec::new() };
        let mut observations = Vec::new();
        if decoded.packets == 0 {
            return observations;
        }
        // By time, each with the last packet that is not later: packet times may go backwards, and
        // which lane an event is in must not matter.
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

    /// Learns what was known beside the capture before its first packet at `time_ns`, and commits
    /// it. `make_way` syncs every other reader, which the engine needs now and then.
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
                while self.names.commit()?.is_none() {
                    make_way();
                }
            }
        }
        while self.names.commit()?.is_none() {
            make_way();
        }
        Ok(())
    }

    fn learn_observation(&mut self, packet: u64, observation: &DnsObservation) {
        self.answers += 1;
        observation.teach(packet, self.sources, self.rules, &mut self.names);
    }

    /// A rare packet's turn. `reading` is of its payload where that is a DNS datagram.
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

    /// A packet that is no fragment, or a datagram put together, which was not read ahead.
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
            scope: packet.scope,
            file: place.file,
            offset: place.offset,
            hop_limit,
        };
        if packet.dst_port == 853 || packet.dst_port == 8853 {
            self.names.note_encrypted(packet.scope, packet.src);
        }
        match packet.protocol {
            protocol::TCP => self.segment(&carrier, packet, payload),
            protocol::UDP => {
                self.datagram(&carrier, packet.payload_bytes as usize, payload, reading);
            }
            _ => {}
        }
    }

    /// A fragment: its event goes to its flow as soon as that is known, and a datagram that is now
    /// whole is read like any other.
    fn fragment(&mut self, rare: &Rare, frame: &[u8], place: Place, injected: &mut Injected) {
        let Some(fragment) = rare.packet.fragment else { return };
        let Place { number, file, offset } = place;
        let start = fragment.data_offset as usize;
        let data = frame.get(start..start + fragment.data_len as usize).unwrap_or_default();
        let push = self.fragments.push(&rare.packet, data, number, rare.time_ns);
        match push.ports {
            Some(ports) => {
                for held in &push.released {
                    self.give_held(&rare.packet, held, ports, rare.number, injected);
                }
                injected.events.push(event_of(
                    &rare.packet,
                    ports,
                    rare.number,
                    rare.time_ns,
                    self.keying.seed,
                ));
            }
            None => self.remember_names(&rare.packet, number, rare.time_ns),
        }
        let own = injected.events.len() - usize::from(push.ports.is_some());
        self.give_orphans(rare.number, injected);
        match push.outcome {
            Outcome::Incomplete => {}
            Outcome::Rejected(reject) => {
                count(&mut self.damaged, reject_kind(reject), file, offset);
            }
            Outcome::Complete { outer, payload } => {
                let read = packet::decode_payload(&outer, &payload);
                match read.map(|packet| self.keying.of(packet)) {
                    Ok(packet) => {
                        let inner = payload_of(&packet, &payload);
                        if packet.tunnels > outer.tunnels {
                            let ports = (packet.src_port, packet.dst_port);
                            injected.events.push(event_of(
                                &packet,
                                ports,
                                rare.number,
                                rare.time_ns,
                                self.keying.seed,
                            ));
                            injected.attach(injected.events.len() - 1, &packet, inner);
                        } else if push.ports.is_some() {
                            injected.attach(own, &packet, inner);
                        }
                        self.whole(rare, &packet, inner, None, place, None);
                    }
                    Err(_) => count(&mut self.damaged, "transport_malformed", file, offset),
                }
            }
        }
    }

    /// A fragment is held: a flow that begins with it is to have the names that are known now.
    fn remember_names(&mut self, packet: &Packet, number: u64, time_ns: i64) {
        let Packet { src, dst, scope, .. } = *packet;
        let view = self.names.view().within(scope);
        let ends =
            [(src, dst), (dst, src)].map(|(from, to)| view.ends(from, to, u64::MAX, time_ns));
        if !ends.iter().all(Ends::is_empty) {
            self.held_named.insert(number, Box::new(ends));
        }
    }

    /// Makes the event of a fragment that was held until packet `counted_with` of the batch; `packet` is one of its
    /// datagram.
    fn give_held(
        &mut self,
        packet: &Packet,
        held: &fragment::Held,
        ports: (u16, u16),
        counted_with: u32,
        injected: &mut Injected,
    ) {
        let event =
            event_of(&held_packet(packet, held), ports, counted_with, held.ts_ns, self.keying.seed);
        let payload_offset = injected.held.len() as u32;
        injected.events.push(Event { is_held: true, payload_offset, ..event });
        let ends = self.held_named.remove(&held.number);
        injected.held.push(decode::Held { number: held.number, ends });
    }

    /// The same for those that the reassembler gave up.
    fn give_orphans(&mut self, counted_with: u32, injected: &mut Injected) {
        for at in 0..self.fragments.orphans().len() {
            let orphan = self.fragments.orphans()[at];
            self.give_held(&orphan.seen, &orphan.held, (0, 0), counted_with, injected);
        }
    }

    fn damage(&mut self, kind: &'static str, carrier: &Carrier) {
        count(&mut self.damaged, kind, carrier.file, carrier.offset);
    }

    fn datagram(
        &mut self,
        carrier: &Carrier,
        wire_bytes: usize,
        payload: &[u8],
        reading: Option<&Reading>,
    ) {
        let (src_port, dst_port) = (carrier.src_port, carrier.dst_port);
        let either = |port| src_port == port || dst_port == port;
        if let Some(learned_from) = reading::name_protocol(src_port, dst_port) {
            match reading {
                Some(reading) => self.heed(carrier, reading, learned_from),
                None => self.dns(carrier, payload, wire_bytes, learned_from),
            }
        } else if either(137) {
            self.nbns(carrier, payload);
        } else if either(67) || either(68) {
            self.dhcp(carrier, payload);
        } else if either(546) || either(547) {
            self.dhcp6(carrier, payload);
        } else if !matches!(dst_port, 853 | 8853) {
            self.dns_elsewhere(carrier, payload, wire_bytes);
        }
    }

    /// A datagram that looks like DNS on a port of its own. A response teaches only after the query that
    /// it answers, between the same ports; anything else is not DNS as far as we know, and no damage.
    fn dns_elsewhere(&mut self, carrier: &Carrier, payload: &[u8], wire_bytes: usize) {
        let mut reading = self.whole.take().unwrap_or_default();
        reading.read(self.names.cache(), payload, wire_bytes, NameProtocol::Dns);
        match reading.says {
            Says::Question => {
                let client = (carrier.src, carrier.src_port);
                let server = (carrier.dst, carrier.dst_port);
                let key = reading.key(self.names.cache(), carrier.scope, client, server);
                self.elsewhere.insert((key, carrier.dst_port), ());
            }
            Says::Answer(Ok(())) => {
                let client = (carrier.dst, carrier.dst_port);
                let server = (carrier.src, carrier.src_port);
                let key = reading.key(self.names.cache(), carrier.scope, client, server);
                if self.elsewhere.remove(&(key, carrier.src_port)).is_some() {
                    self.questions.insert(key, ());
                    self.heed(carrier, &reading, NameProtocol::Dns);
                }
            }
            _ => {}
        }
        self.whole = Some(reading);
    }

    /// A TCP segment from or to port 53.
    fn segment(&mut self, carrier: &Carrier, packet: &Packet, payload: &[u8]) {
        if packet.src_port != 53 && packet.dst_port != 53 {
            return;
        }
        let key = (packet.src, packet.src_port, packet.dst, packet.dst_port, packet.scope);
        if packet.tcp_flags & (tcp_flag::SYN | tcp_flag::RST) != 0 {
            self.drop_stream(&key);
        }
        if packet.tcp_flags & tcp_flag::RST != 0 {
            return;
        }
        if payload.is_empty() && packet.tcp_flags & tcp_flag::SYN == 0 {
            if packet.tcp_flags & tcp_flag::FIN != 0 {
                self.drop_stream(&key);
            }
            return;
        }
        if self.streams.get_mut(&key).is_none()
            && let Some(mut oldest) = self.streams.insert(key, Box::new(Stream::new()))
        {
            oldest.clear(&mut self.stream_budget);
        }
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.push(packet.tcp_seq, packet.tcp_flags, payload, &mut self.stream_budget);
        self.drain(&key, carrier);
    }

    fn drop_stream(&mut self, key: &StreamKey) {
        if let Some(mut stream) = self.streams.remove(key) {
            stream.clear(&mut self.stream_budget);
        }
    }

    /// Takes every whole message from the front of a stream.
    fn drain(&mut self, key: &StreamKey, carrier: &Carrier) {
        // The stream is taken out while its messages are read; it goes back whole.
        let Some(slot) = self.streams.get_mut(key) else { return };
        let mut stream = std::mem::take(slot);
        loop {
            match dns::tcp::next_message(stream.contiguous()) {
                Ok(Some(range)) => {
                    let end = range.end;
                    let message = &stream.contiguous()[range];
                    let len = message.len();
                    self.dns(carrier, message, len, NameProtocol::Dns);
                    stream.consume(end, &mut self.stream_budget);
                }
                Ok(None) => {
                    // A hole that will not be filled: the rest waits in vain. Go on behind it, at
                    // the next segment, where messages usually begin.
                    if stream.buffered_bytes() > (64 << 10) + 2 && stream.hole_bytes() > 0 {
                        let front = stream.contiguous().len();
                        stream.consume(front, &mut self.stream_budget);
                        stream.skip_hole(&mut self.stream_budget);
                        self.damage("dns_tcp_hole", carrier);
                        continue;
                    }
                    break;
                }
                Err(_) => {
                    self.damage("dns_tcp_framing", carrier);
                    stream.clear(&mut self.stream_budget);
                    break;
                }
            }
        }
        if let Some(slot) = self.streams.get_mut(key) {
            *slot = stream;
        }
    }

    /// A message that was not read ahead.
    fn dns(
        &mut self,
        carrier: &Carrier,
        payload: &[u8],
        wire_bytes: usize,
        learned_from: NameProtocol,
    ) {
        let mut reading = self.whole.take().unwrap_or_default();
        reading.read(self.names.cache(), payload, wire_bytes, learned_from);
        self.heed(carrier, &reading, learned_from);
        self.whole = Some(reading);
    }

    /// Reads a packet some packets before its turn, if it is a DNS datagram, and asks for what it
    /// will touch.
    fn read_ahead(&mut self, rare: &Rare, bytes: &[u8], reading: &mut Reading) {
        let packet = &rare.packet;
        if packet.fragment.is_some() || packet.protocol != protocol::UDP {
            return;
        }
        let Some(learned_from) = reading::name_protocol(packet.src_port, packet.dst_port) else {
            return;
        };
        let payload = payload_of(packet, &bytes[rare.frame_offset as usize..]);
        reading.read(self.names.cache(), payload, packet.payload_bytes as usize, learned_from);
        if learned_from == NameProtocol::Dns {
            reading.ask_for_lines(&mut self.names, packet.scope, packet.dst);
        }
    }

    /// Acts on a message.
    fn heed(&mut self, carrier: &Carrier, reading: &Reading, learned_from: NameProtocol) {
        match reading.says {
            Says::Nothing => {}
            Says::Damaged(error) => self.damage(error.as_str(), carrier),
            Says::Question => {
                self.clients.add(self.names.address_hash(carrier.scope, carrier.src));
                let ends = ((carrier.src, carrier.src_port), (carrier.dst, carrier.dst_port));
                let key = reading.key(self.names.cache(), carrier.scope, ends.0, ends.1);
                self.questions.insert(key, ());
            }
            Says::Answer(outcome) => {
                if let Err(error) = outcome {
                    self.damage(error.as_str(), carrier);
                }
                if !reading.extract.is_empty() {
                    self.answers += 1;
                    self.teach(carrier, reading, learned_from);
                }
            }
        }
    }

    /// Rule 9: a response counts in full when its query was seen and was not answered already. One
    /// without a query may be forged, also where this client's queries are never seen.
    fn standing(&mut self, carrier: &Carrier, reading: &Reading) -> Standing {
        let ends = ((carrier.dst, carrier.dst_port), (carrier.src, carrier.src_port));
        let key = reading.key(self.names.cache(), carrier.scope, ends.0, ends.1);
        if self.questions.remove(&key).is_some() || !self.rules.has(9) {
            Standing::Confirmed
        } else if self.clients.has(self.names.address_hash(carrier.scope, carrier.dst)) {
            Standing::Unsolicited
        } else {
            Standing::OneSided
        }
    }

    fn teach(&mut self, carrier: &Carrier, reading: &Reading, learned_from: NameProtocol) {
        let extract = &reading.extract;
        let asked = extract.qname().unwrap_or_default();
        let is_dns = learned_from == NameProtocol::Dns;
        let standing = if is_dns { self.standing(carrier, reading) } else { Standing::Confirmed };
        let as_asked = learned_from != NameProtocol::Mdns && self.rules.has(1);
        let wanted = match learned_from {
            NameProtocol::Dns => self.sources.has(NameSource::DnsAddress),
            NameProtocol::Mdns => self.sources.has(NameSource::Mdns),
            NameProtocol::Llmnr => self.sources.has(NameSource::Llmnr),
            _ => true,
        };
        if wanted {
            if is_dns && standing != Standing::Unsolicited && self.rules.has(1) {
                for alias in extract.aliases() {
                    self.names.learn_alias(&AliasObservation {
                        packet: carrier.packet,
                        scope: carrier.scope,
                        client: carrier.dst,
                        owner: alias.owner,
                        target: alias.target,
                        standing,
                    });
                }
            }
            let mut targets = [&[][..]; CHAIN_MAX];
            let aliases = extract.aliases().len().min(CHAIN_MAX);
            for (target, alias) in targets.iter_mut().zip(extract.aliases()) {
                *target = alias.target;
            }
            for address in extract.addresses() {
                self.names.learn(&AddressObservation {
                    packet: carrier.packet,
                    time_ns: carrier.time_ns,
                    scope: carrier.scope,
                    client: if is_dns { carrier.dst } else { Addr::UNSPECIFIED },
                    asked: if as_asked { asked } else { address.owner },
                    addr: address.addr,
                    ttl_s: address.ttl_s,
                    learned_from,
                    standing: match learned_from {
                        NameProtocol::Dns => standing,
                        _ if carrier.is_own_word(address.addr, learned_from) => Standing::Confirmed,
                        _ => Standing::Claimed,
                    },
                    targets: &targets[..aliases],
                });
            }
        }
        if self.sources.has(NameSource::Ptr) && is_dns {
            for reverse in extract.reverses() {
                self.names.learn(&AddressObservation {
                    packet: carrier.packet,
                    time_ns: carrier.time_ns,
                    scope: carrier.scope,
                    client: Addr::UNSPECIFIED,
                    asked: reverse.name,
                    addr: reverse.addr,
                    ttl_s: reverse.ttl_s,
                    learned_from: NameProtocol::Ptr,
                    standing: Standing::Claimed,
                    targets: &[],
                });
            }
        }
        self.log_answer(carrier, extract, learned_from, standing);
    }

    /// A line of `dns.log` for what was asked; of multicast DNS, where nobody need ask, one for
    /// each name that owns addresses (at most `answers::NAMES_MAX`).
    fn log_answer(
        &mut self,
        carrier: &Carrier,
        extract: &Extract,
        learned_from: NameProtocol,
        standing: Standing,
    ) {
        let Some(log) = &mut self.log else { return };
        let to_group = carrier.dst.is_multicast_or_broadcast();
        let mut line = |asked: &[u8], addresses: Given| {
            log.push(AnswerLine {
                time_ns: carrier.time_ns,
                packet: carrier.packet,
                client: if to_group { Addr::UNSPECIFIED } else { carrier.dst },
                server: carrier.src,
                asked: Name::from_canonical(asked),
                addresses,
                aliases: extract.aliases().map(|a| Name::from_canonical(a.target)).collect(),
                learned_from,
                standing,
            });
        };
        if learned_from != NameProtocol::Mdns {
            let addresses = extract.addresses().map(|a| (a.addr, a.ttl_s)).collect();
            return line(extract.qname().unwrap_or_default(), addresses);
        }
        let mut owned: Vec<(&[u8], Given)> = Vec::new();
        for address in extract.addresses() {
            let given = (address.addr, address.ttl_s);
            match owned.iter_mut().find(|(owner, _)| *owner == address.owner) {
                Some((_, addresses)) => addresses.push(given),
                None => owned.push((address.owner, vec![given])),
            }
        }
        owned.into_iter().for_each(|(owner, addresses)| line(owner, addresses));
    }

    /// Teaches a name that a host gives itself.
    fn teach_host(
        &mut self,
        carrier: &Carrier,
        name: &[u8],
        addr: Addr,
        ttl_s: u32,
        by: NameProtocol,
        standing: Standing,
    ) {
        self.answers += 1;
        self.names.learn(&AddressObservation {
            packet: carrier.packet,
            time_ns: carrier.time_ns,
            scope: carrier.scope,
            client: Addr::UNSPECIFIED,
            asked: name,
            addr,
            ttl_s,
            learned_from: by,
            standing,
            targets: &[],
        });
        if let Some(log) = &mut self.log {
            log.push(AnswerLine {
                time_ns: carrier.time_ns,
                packet: carrier.packet,
                client: carrier.dst,
                server: carrier.src,
                asked: Name::from_canonical(name),
                addresses: vec![(addr, ttl_s)],
                aliases: Vec::new(),
                learned_from: by,
                standing,
            });
        }
    }

    fn nbns(&mut self, carrier: &Carrier, payload: &[u8]) {
        if !self.sources.has(NameSource::Nbns) {
            return;
        }
        let mut hosts: Vec<(Name, Addr, u32)> = Vec::new();
        let read = nbns::hosts(payload, |host| {
            // 0 stands for "no end" (RFC 1002, section 4.2.1.3).
            let ttl_s = if host.ttl_s == 0 { u32::MAX } else { host.ttl_s };
            hosts.push((Name::from_canonical(host.name), host.addr, ttl_s));
        });
        if let Err(error) = read {
            self.damage(error.as_str(), carrier);
        }
        for (name, addr, ttl_s) in hosts {
            let standing = match carrier.is_own_word(addr, NameProtocol::Nbns) {
                true => Standing::Confirmed,
                false => Standing::Claimed,
            };
            self.teach_host(carrier, name.as_bytes(), addr, ttl_s, NameProtocol::Nbns, standing);
        }
    }

    /// A name may come with the client's request and its address with the server's answer: the
    /// transaction joins them.
    fn dhcp(&mut self, carrier: &Carrier, payload: &[u8]) {
        if !self.sources.has(NameSource::Dhcp) {
            return;
        }
        let message = match dhcp::v4::MessageV4::parse(payload) {
            Ok(message) => message,
            Err(error) => return self.damage(error.as_str(), carrier),
        };
        let mut name = std::mem::take(&mut self.name);
        let named = message.client_fqdn(&mut name) || message.host_name(&mut name);
        let hash = self.names.cache().hash(message.hardware_addr()).get();
        let key = (message.transaction_id, hash);
        // A client that renews or informs has its address already, and names itself from there.
        let addr = if message.is_reply { message.bound_addr() } else { message.client_addr };
        let exchange = Exchange { key, is_reply: message.is_reply, addr };
        self.join_lease(carrier, exchange, named.then_some(name.as_bytes()));
        self.name = name;
    }

    fn dhcp6(&mut self, carrier: &Carrier, payload: &[u8]) {
        if !self.sources.has(NameSource::Dhcp) {
            return;
        }
        let message = match dhcp::v6::MessageV6::parse(payload) {
            Ok(message) => message,
            Err(error) => return self.damage(error.as_str(), carrier),
        };
        let mut name = std::mem::take(&mut self.name);
        let named = message.client_fqdn(&mut name);
        let hash = self.names.cache().hash(message.client_id().unwrap_or_default()).get();
        let key = (message.transaction_id, !hash);
        let is_reply = message.message_type == dhcp::v6::message_type::REPLY;
        let lease = message.leases().find(|lease| is_reply && lease.valid_s > 0);
        let exchange = Exchange { key, is_reply, addr: lease.map(|lease| lease.addr) };
        self.join_lease(carrier, exchange, named.then_some(name.as_bytes()));
        self.name = name;
    }

    /// A lease names its address when the client's request had the name, and a server answered from
    /// a server's port on a local network. A name that only the reply has is the server's claim.
    fn join_lease(&mut self, carrier: &Carrier, exchange: Exchange, name: Option<&[u8]>) {
        let Exchange { key, is_reply, addr } = exchange;
        let name = name.filter(|name| !name.is_empty());
        if let Some(name) = name.filter(|_| matches!(carrier.dst_port, 67 | 547) && !is_reply) {
            self.exchanges.insert(key, Name::from_canonical(name));
        }
        let asked = self.exchanges.get_mut(&key).cloned();
        let from_server = matches!(carrier.src_port, 67 | 547) && carrier.src.is_local();
        let standing = match (&asked, is_reply) {
            (_, false) => match addr {
                Some(addr) if carrier.is_own_word(addr, NameProtocol::Dhcp) => Standing::Confirmed,
                _ => Standing::Claimed,
            },
            (Some(_), true) if from_server => Standing::Leased,
            _ => Standing::Claimed,
        };
        let name = asked.or_else(|| name.map(Name::from_canonical));
        if let (Some(addr), Some(name)) = (addr, name) {
            self.teach_host(carrier, name.as_bytes(), addr, u32::MAX, NameProtocol::Dhcp, standing);
        }
    }
}

/// What the name learner puts among the events of a batch.
#[derive(Default)]
struct Injected {
    /// In the order of the packets with which they are counted.
    events: Vec<Event>,
    /// What is to be known of those that were held.
    held: Vec<decode::Held>,
    /// Payloads put together from fragments, as if they stood behind the batch's bytes.
    joined: Vec<u8>,
    /// How many those are.
    base: u32,
}

impl Injected {
    /// Gives an event the payload of the datagram that it completes, if the flow may name itself by it.
    /// Its books do not change but in TCP, where its segment is the whole one: the other fragments have
    /// no sequence number.
    fn attach(&mut self, event: usize, packet: &Packet, payload: &[u8]) {
        let is_tcp = packet.protocol == protocol::TCP;
        let is_wanted = match packet.protocol {
            protocol::TCP => !payload.is_empty(),
            protocol::UDP => own_name::may_begin(payload),
            _ => false,
        };
        let (Some(event), true) = (self.events.get_mut(event), is_wanted) else { return };
        let Some(offset) = self.base.checked_add(self.joined.len() as u32) else { return };
        event.payload_offset = offset;
        event.payload_len = payload.len() as u32;
        if is_tcp {
            event.tcp_seq = packet.tcp_seq;
            event.payload_bytes = packet.payload_bytes;
        }
        self.joined.extend_from_slice(payload);
    }

    fn put_in(self, decoded: &mut Decoded) {
        decoded.held = self.held;
        decoded.joined = self.joined;
        if !self.events.is_empty() {
            decoded.inject(self.events);
        }
    }
}

/// The event of a packet that flows see without its payload, with the ports of its datagram.
fn event_of(packet: &Packet, ports: (u16, u16), number: u32, time_ns: i64, seed: u64) -> Event {
    let whole = Packet {
        src_port: ports.0,
        dst_port: ports.1,
        payload_len: 0,
        payload_offset: 0,
        fragment: None,
        ..*packet
    };
    Event::of(&whole, seed, number, time_ns, 0)
}

/// A message of a DHCP exchange.
struct Exchange {
    /// Transaction and client.
    key: (u32, u64),
    is_reply: bool,
    /// The address that the reply gives, or that the client has already.
    addr: Option<Addr>,
}

/// The hop limit of the IP packet around a datagram without IP options or extension headers.
fn hop_limit(packet: &Packet, frame: &[u8]) -> Option<u8> {
    let udp = (packet.payload_offset as usize).checked_sub(8)?;
    let (header_bytes, first, place) = match packet.ip_version {
        4 => (20, 0x45..=0x45, 8),
        _ => (40, 0x60..=0x6f, 7),
    };
    let header = frame.get(udp.checked_sub(header_bytes)?..udp)?;
    first.contains(&header[0]).then(|| header[place])
}

/// An earlier fragment, as a packet of the datagram that `packet` belongs to.
fn held_packet(packet: &Packet, held: &fragment::Held) -> Packet {
    let header_bytes = if packet.ip_version == 4 { 20 } else { 48 };
    Packet {
        ip_bytes: held.ip_bytes,
        payload_bytes: held.ip_bytes.saturating_sub(header_bytes),
        tcp_flags: 0,
        ..*packet
    }
}

/// Asks for the payload of a packet; its headers were just decoded.
fn fetch_payload(rare: &Rare, bytes: &[u8]) {
    let start = rare.frame_offset as usize + rare.packet.payload_offset as usize;
    let lines = rare.packet.payload_len as usize / LINE_BYTES + 1;
    prefetch_lines(bytes, start, lines.min(FETCH_LINES_MAX));
}

fn reject_kind(reject: Reject) -> &'static str {
    match reject {
        Reject::NotFragment => "fragment_none",
        Reject::Truncated => "fragment_truncated",
        Reject::Malformed => "fragment_malformed",
        Reject::Oversize => "fragment_oversize",
        Reject::Contradiction => "fragment_contradiction",
        Reject::Overlap => "fragment_overlap",
        Reject::NoRoom => "fragment_no_room",
    }
}

/// The captured payload of a packet in its frame.
pub fn payload_of<'a>(packet: &Packet, frame: &'a [u8]) -> &'a [u8] {
    let start = packet.payload_offset as usize;
    frame.get(start..start + packet.payload_len as usize).unwrap_or_default()
}
