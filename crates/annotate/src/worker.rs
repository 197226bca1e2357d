//! One worker's half of a batch: flows by shard, names by flow, records rendered.
//!
//! A worker owns the shards `s` with `s % workers == me`, and nobody else touches them. It is given
//! the batch's events of its shards in packet order, a view of names as of that batch, and the
//! batch's bytes; it gives back the records that ended, rendered, in the order of the log. Nothing
//! here depends on the number of workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use larder::{Cache, Reader, prefetch_read};
use larder_serve::histogram::Histogram;
use larder_wire::dns::{Message, NameBuf};
use larder_wire::scope::Scope;
use larder_wire::stream::Budget;
use larder_wire::{Addr, Name};

use crate::decode::Held;
use crate::flow::{
    Event, Flow, FlowKey, FlowRules, FlowUser, Guess, Leave, SHARDS, Sent, Shard, protocol,
    shard_of,
};
use crate::format::Format;
use crate::live_stats::{LiveStats, Party, SAMPLES, Second, Tally};
use crate::names::{Committed, Ends, Found, Key, LearnedMarks, Support, View};
use crate::options::{LookupPer, NameSources, Options, Summary, Unresolved};
use crate::own_name::{OwnName, Segment, Stated};
use crate::record::{
    App, End, EndReason, FlowRecord, NameFlags, NameSource, Naming, NoNames, UnnamedReason,
};
use crate::stated::{choose, is_resolver_traffic, state};
use larder_store::FlowEvent;

mod flow_event;

/// A flow that began this soon after the capture did may have had its lookup before it.
const BEFORE_CAPTURE_NS: i64 = 10_000_000_000;
/// Events whose index line, and then whose flow, is asked for ahead of need.
const PREFETCH_INDEX: usize = 16;
const PREFETCH_FLOW: usize = 8;
/// The same for what is known of a flow that is about to end.
const PREFETCH_KNOWN: usize = 3;
/// Shards between the request for the flows that may be due in one, then for what these lead to,
/// and their end.
const PREFETCH_DUE: usize = 4;
const PREFETCH_DUE_USERS: usize = 2;
/// Most boxes of each kind that wait to be used again.
const SPARE_MAX: usize = 1 << 10;

/// Of so many groups of lookups one is timed: rare enough not to slow the others down.
const TIMED_GROUPS: u64 = 1024;

/// What a flow carries besides its books: a word, since most flows have no more to carry.
#[derive(Debug, Default)]
pub struct FlowState {
    known: Option<Box<Known>>,
}
const _: () = assert!(size_of::<Flow<FlowState>>() == 4 * 64, "a flow is four lines");

/// What is known of a flow's names.
#[derive(Debug, Default)]
struct Known {
    destination: Option<Found>,
    source: Option<Found>,
    own: Option<Box<OwnName>>,
}

impl Known {
    /// What the flow's destination is called so far.
    fn name(&self) -> Option<&Name> {
        let own = self.own.as_ref().and_then(|own| own.names().next());
        own.or(self.destination.as_ref().map(|found| &found.name))
    }

    /// What stays known of a flow whose record was handed out.
    fn of_rest(&self) -> Known {
        Known {
            destination: self.destination.clone(),
            source: self.source.clone(),
            own: self.own.as_ref().map(|own| Box::new(own.settled())),
        }
    }
}

/// LearnedMarks of a batch that workers need.
pub struct BatchInput<'a> {
    /// Packets before this batch.
    pub packets_before: u64,
    /// Packets in this batch.
    pub packets: u32,
    /// Time of the latest packet so far, this batch included, ns.
    pub time_ns: i64,
    /// Time of the input's first packet, ns.
    pub capture_start_ns: i64,
    /// The batch's bytes.
    pub bytes: &'a [u8],
    /// Fragments of earlier packets that are counted in it.
    pub held: &'a [Held],
    /// Payloads put together from fragments: events count them as if they stood behind `bytes`.
    pub joined: &'a [u8],
    /// Names as of this batch.
    pub committed: &'a Committed,
    /// After the input's end: open flows whose first packet is before this one end now.
    pub finish_before: u64,
    /// The clock was set by so much before this batch, ns.
    pub clock_step_ns: i64,
}

impl BatchInput<'_> {
    /// The captured payload of an event.
    fn payload(&self, event: &Event) -> Option<&[u8]> {
        let start = event.payload_offset as usize;
        let (bytes, start) = match start.checked_sub(self.bytes.len()) {
            Some(behind) => (self.joined, behind),
            None => (self.bytes, start),
        };
        bytes.get(start..start + event.payload_len as usize)
    }
}

/// A record that ended in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Number of the packet that ended it.
    pub end_packet: u64,
    /// Number of its first packet.
    pub first_packet: u64,
    /// Its flow: a packet that ends a fragmented tunnel begins two.
    pub key: FlowKey,
    /// Time of its last packet, ns.
    pub end_ns: i64,
    /// Where it lies, rendered, in [`Output::bytes`].
    pub start: usize,
    /// End of it.
    pub end: usize,
}

impl Ended {
    /// Its place in the log. No two records of a batch share one: an instance of a flow begins with one packet of its
    /// key, and that one begins no other.
    pub fn place(&self) -> (u64, u64, FlowKey) {
        (self.end_packet, self.first_packet, self.key)
    }
}

/// A name that a flow's end got, for the Name Resolution Blocks of `-w`.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Number of the flow's first packet in the input.
    pub packet: u64,
    /// The flow.
    pub key: FlowKey,
    /// The address.
    pub addr: Addr,
    /// Names, the chosen one last.
    pub names: Vec<Name>,
}

/// What a worker made of one batch.
#[derive(Default)]
pub struct Output {
    /// Records in the order of the log.
    pub ended: Vec<Ended>,
    /// They themselves, rendered.
    pub bytes: Vec<u8>,
    /// Names for `-w`, in packet order.
    pub resolved: Vec<Resolved>,
    /// Names of flows, for packets that are kept.
    pub flow_events: Vec<FlowEvent>,
}

impl Output {
    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        self.ended.clear();
        self.bytes.clear();
        self.resolved.clear();
        self.flow_events.clear();
    }
}

/// Shared by all workers.
pub struct Shared {
    /// The run's options.
    pub options: Options,
    /// Renders records.
    pub format: Format,
    /// What was ever learned.
    pub learned: Arc<LearnedMarks>,
}

impl Shared {
    /// Names as of a batch, through a worker's own reader.
    fn view<'a>(
        &'a self,
        committed: &'a Committed,
        reader: &'a Reader,
        cache: &'a Cache,
    ) -> View<'a> {
        View {
            reader,
            overlay: &committed.overlay,
            cache,
            rules: self.options.rules,
            learned: &self.learned,
            batch: committed.batch,
            scope: Scope::NONE,
        }
    }
}

/// See the module.
pub struct Worker {
    shards: Vec<Shard<FlowState>>,
    /// Place of a shard in `shards`: a division a packet saved.
    place_of: [u8; SHARDS],
    /// This worker's reader of the names.
    pub reader: Reader,
    cache: Cache,
    state: WorkerState,
    /// Set by the first call of [`Worker::finish`].
    open_flows: Option<OpenFlows>,
    /// What the live_stats knows already.
    told: Summary,
    told_live: usize,
    /// The second that it looks at, where somebody watches.
    second: Second,
}

struct WorkerState {
    shared: Arc<Shared>,
    budgets: Vec<Budget>,
    shard: usize,
    summary: Summary,
    lookups: u64,
    lookup_hits: u64,
    /// Groups of lookups made, where some are timed.
    lookup_groups: u64,
    lookup_times: Histogram,
    /// With rule 6 off: what flows said of addresses.
    said: HashMap<Addr, Name>,
    /// The record before, whose memory is the next one's.
    record: Option<Box<FlowRecord>>,
    spare: Spare,
}

/// Boxes of flows that ended, empty, for flows to come.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "the boxes themselves are what is used again")]
struct Spare {
    known: Vec<Box<Known>>,
    own: Vec<Box<OwnName>>,
}

impl Spare {
    fn known(&mut self) -> Box<Known> {
        self.known.pop().unwrap_or_default()
    }

    fn own(&mut self) -> Box<OwnName> {
        self.own.pop().unwrap_or_default()
    }

    fn take_back(&mut self, mut known: Box<Known>) {
        if let Some(mut own) = known.own.take()
            && self.own.len() < SPARE_MAX
        {
            *own = OwnName::default();
            self.own.push(own);
        }
        if self.known.len() < SPARE_MAX {
            *known = Known::default();
            self.known.push(known);
        }
    }
}

/// The flows that were open when the input ended.
struct OpenFlows {
    /// First packet, place of the shard, slot; in the order in which they end, the last first.
    left: Vec<(u64, u8, u32)>,
}

impl OpenFlows {
    fn of(shards: &[Shard<FlowState>]) -> OpenFlows {
        let mut left: Vec<(u64, u8, u32)> = Vec::new();
        for (place, shard) in shards.iter().enumerate() {
            left.extend(shard.open_flows().map(|(packet, slot)| (packet, place as u8, slot)));
        }
        // Two flows may begin with one packet, and where they are says nothing on other numbers of workers.
        let key = |&(_, place, slot): &(u64, u8, u32)| shards[usize::from(place)].key(slot);
        left.sort_unstable_by(|one, other| {
            other.0.cmp(&one.0).then_with(|| key(other).cmp(&key(one)))
        });
        OpenFlows { left }
    }

    /// The next flow that began before `packet`.
    fn next_before(&mut self, packet: u64) -> Option<(u8, u32)> {
        let (_, place, slot) = self.left.pop_if(|(first, ..)| *first < packet)?;
        Some((place, slot))
    }

    /// The flow that comes `ahead` flows after the next one.
    fn ahead(&self, ahead: usize) -> Option<(u8, u32)> {
        let at = self.left.len().checked_sub(ahead + 1)?;
        Some((self.left[at].1, self.left[at].2))
    }
}

impl Worker {
    /// Worker `me` of `workers`.
    pub fn new(
        me: usize,
        workers: usize,
        reader: Reader,
        cache: Cache,
        shared: Arc<Shared>,
    ) -> Worker {
        let options = &shared.options;
        let ns = |seconds: u32| i64::from(seconds) * 1_000_000_000;
        let rules = FlowRules {
            tcp_ns: ns(options.tcp_idle_s),
            other_ns: ns(options.udp_idle_s),
            linger_ns: ns(options.linger_s),
            active_ns: if options.active_s == 0 { i64::MAX } else { ns(options.active_s) },
            first_sender_began: !options.rules.has(8),
        };
        let mine = || (0..SHARDS).filter(move |shard| shard % workers == me);
        let flows_max = options.flows_max;
        let limit = |shard: usize| flows_max / SHARDS + usize::from(shard < flows_max % SHARDS);
        let shards = mine().map(|shard| Shard::new(limit(shard), rules)).collect();
        // Half of the budget is for heads here, half for the name learner's streams and fragments.
        let budget_bytes = (options.reassembly_budget_bytes / 2) as usize / SHARDS;
        let budgets = mine().map(|_| Budget::new(budget_bytes)).collect();
        Worker {
            shards,
            place_of: std::array::from_fn(|shard| (shard / workers) as u8),
            reader,
            cache,
            state: WorkerState {
                shared,
                budgets,
                shard: 0,
                summary: Summary::default(),
                lookups: 0,
                lookup_hits: 0,
                lookup_groups: 0,
                lookup_times: Histogram::default(),
                said: HashMap::new(),
                record: None,
                spare: Spare::default(),
            },
            open_flows: None,
            told: Summary::default(),
            told_live: 0,
            second: Second::default(),
        }
    }

    /// Tells the live_stats of a batch, whose events are `events`.
    pub fn tell(&mut self, events: &[Event], time_ns: i64, live_stats: &LiveStats) {
        live_stats.tell(&mut self.told, &self.state.summary);
        let live = self.shards.iter().map(Shard::live).sum::<usize>();
        let more = live as i64 - self.told_live as i64;
        live_stats.totals.flows_live.fetch_add(more, Ordering::Relaxed);
        self.told_live = live;
        if live_stats.is_watched(time_ns) {
            self.look_around(events, time_ns / 1_000_000_000, live_stats);
        }
    }

    /// Some packets of a batch, and whom they were for.
    fn look_around(&mut self, events: &[Event], second: i64, live_stats: &LiveStats) {
        if self.second.number != second {
            live_stats.merge(std::mem::take(&mut self.second));
            self.second.number = second;
        }
        let step = events.len().div_ceil(SAMPLES).max(1);
        for event in events.iter().step_by(step) {
            let shard = &self.shards[usize::from(self.place_of[shard_of(event.hash)])];
            let Some(flow) = shard.get(&event.key, event.hash) else { continue };
            let party = match flow.user.known.as_ref().and_then(|known| known.name()) {
                Some(name) => Party::Name(name.clone()),
                None => Party::Addr(flow.destination().0),
            };
            let one = Tally { packets: 1, bytes: u64::from(event.ip_bytes) };
            self.second.add(event.key, flow.source_is_low, party, one, step as u64);
        }
    }

    /// What this worker counted.
    pub fn summary(&self) -> &Summary {
        &self.state.summary
    }

    /// Lookups made with `--lookup packet`, and how many found a name.
    pub fn lookups(&self) -> (u64, u64) {
        (self.state.lookups, self.state.lookup_hits)
    }

    /// How long the timed ones took.
    pub fn lookup_times(&self) -> &Histogram {
        &self.state.lookup_times
    }

    /// Takes the events of its shards, in packet order. The reader must be at the batch's position.
    pub fn batch(&mut self, events: &[Event], input: &BatchInput<'_>, output: &mut Output) {
        let Worker { shards, place_of, reader, cache, state, .. } = self;
        let place = |hash: u64| usize::from(place_of[shard_of(hash)]);
        if input.clock_step_ns != 0 {
            shards.iter_mut().for_each(|shard| shard.shift_times(input.clock_step_ns));
        }
        let all = Arc::clone(&state.shared);
        let view = all.view(input.committed, reader, cache);
        if state.shared.options.lookup_per == LookupPer::Packet {
            if state.shared.options.time_lookups {
                look_up_each::<true>(events, input, view, state);
            } else {
                look_up_each::<false>(events, input, view, state);
            }
        }
        let mut lane = Lane { state, view, input, output, is_behind: false };
        // Of the events up to `PREFETCH_FLOW` ahead.
        let mut guesses = [Guess::default(); PREFETCH_FLOW];
        for (at, event) in events.iter().enumerate() {
            if let Some(ahead) = events.get(at + PREFETCH_INDEX) {
                shards[place(ahead.hash)].prefetch_index(ahead.hash);
            }
            let guess = guesses[at % PREFETCH_FLOW];
            if let Some(ahead) = events.get(at + PREFETCH_FLOW) {
                let shard = &shards[place(ahead.hash)];
                let guess = shard.prefetch_flow(ahead.hash, ahead.from_low);
                guesses[at % PREFETCH_FLOW] = guess;
                if guess.is_new {
                    lane.foresee(ahead);
                }
            }
            let shard = place(event.hash);
            lane.state.shard = shard;
            shards[shard].packet(event, guess, &mut lane);
        }
        let now_ns = input.time_ns;
        lane.is_behind = true;
        for at in 0..shards.len() {
            if let Some(shard) = shards.get(at + PREFETCH_DUE) {
                shard.prefetch_due(now_ns);
            }
            if let Some(shard) = shards.get(at + PREFETCH_DUE_USERS) {
                shard.prefetch_due_users(now_ns, &lane);
            }
            lane.state.shard = at;
            shards[at].expire(now_ns, input.packets, &mut lane);
        }
        sort_ended(&mut output.ended);
    }

    /// Ends the flows that began before packet `input.finish_before`; `input` describe an empty
    /// batch after the last. In parts, so that the records of all flows need not be held at once.
    /// `events`, which the first part alone may have, are of fragments that waited until the end.
    pub fn finish(&mut self, events: &[Event], input: &BatchInput<'_>, output: &mut Output) {
        let Worker { shards, place_of, reader, cache, state, open_flows, .. } = self;
        let all = Arc::clone(&state.shared);
        let view = all.view(input.committed, reader, cache);
        let mut lane = Lane { state, view, input, output, is_behind: true };
        for event in events {
            let place = usize::from(place_of[shard_of(event.hash)]);
            lane.state.shard = place;
            shards[place].packet(event, Guess::default(), &mut lane);
        }
        sort_ended(&mut lane.output.ended);
        let open = open_flows.get_or_insert_with(|| OpenFlows::of(shards));
        while let Some((place, slot)) = open.next_before(input.finish_before) {
            if let Some((place, slot)) = open.ahead(PREFETCH_FLOW) {
                shards[usize::from(place)].prefetch_slot(slot);
            }
            if let Some((place, slot)) = open.ahead(PREFETCH_KNOWN) {
                shards[usize::from(place)].prefetch_user(slot, &lane);
            }
            lane.state.shard = usize::from(place);
            shards[usize::from(place)].finish(slot, &mut lane);
        }
        // They ended in the order of the log.
    }
}

/// Puts records in the order of the log. What is sorted is their places, which are a third as large. The flow is read only of
/// those that begin and end together.
fn sort_ended(ended: &mut Vec<Ended>) {
    let packets = |one: &Ended| u128::from(one.end_packet) << 64 | u128::from(one.first_packet);
    let mut places: Vec<(u128, u32)> = ended.iter().map(packets).zip(0..).collect();
    let at = |place: u32| &ended[place as usize];
    places.sort_unstable_by(|&(one, one_at), &(other, other_at)| {
        one.cmp(&other).then_with(|| at(one_at).key.cmp(&at(other_at).key))
    });
    *ended = places.iter().map(|&(_, place)| *at(place)).collect();
}

/// `--lookup packet`: both addresses of every packet, as the paper's system does.
///
/// With `TIMED`, each lookup of one group in [`TIMED_GROUPS`] is timed alone, in its place among
/// the others and so with the lines that its group asked for; reading the clock is in the figure.
fn look_up_each<const TIMED: bool>(
    events: &[Event],
    input: &BatchInput<'_>,
    view: View<'_>,
    state: &mut WorkerState,
) {
    const GROUP: usize = 16;
    for group in events.chunks(GROUP) {
        let mut keys = [Key::address(Scope::NONE, Addr::UNSPECIFIED); 2 * GROUP];
        for (at, event) in group.iter().enumerate() {
            keys[2 * at] = Key::address(event.key.scope, event.key.low);
            keys[2 * at + 1] = Key::address(event.key.scope, event.key.high);
        }
        let keys = &keys[..2 * group.len()];
        let mut hashes = [view.cache.hash(keys[0].as_bytes()); 2 * GROUP];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = view.cache.hash(key.as_bytes());
            view.reader.prefetch(*hash);
        }
        let timed = TIMED && state.lookup_groups.is_multiple_of(TIMED_GROUPS);
        state.lookup_groups += u64::from(TIMED);
        for (at, (key, hash)) in keys.iter().zip(hashes).enumerate() {
            let packet = input.packets_before + u64::from(group[at / 2].packet);
            let started = timed.then(Instant::now);
            let hit = view.candidates_hashed(hash, key, packet).is_some();
            if let Some(started) = started {
                state.lookup_times.add(started.elapsed().as_nanos() as u64);
            }
            state.lookups += 1;
            state.lookup_hits += u64::from(hit);
        }
    }
}

/// The flow table's user while one batch is handled.
struct Lane<'a, 'b> {
    state: &'a mut WorkerState,
    view: View<'a>,
    input: &'a BatchInput<'b>,
    output: &'a mut Output,
    /// All packets of the batch were counted: flows that end now may have had the last of them.
    is_behind: bool,
}

impl Lane<'_, '_> {
    fn names(&self) -> NameSources {
        self.state.shared.options.names
    }

    /// A flow of DNS, and packets are kept.
    fn wants_lookups(&self, flow: &Flow<FlowState>) -> bool {
        flow.app == Some(App::Dns)
            && flow.protocol == protocol::UDP
            && self.state.shared.options.store.is_some()
    }

    /// Tells the packet store what is asked for.
    #[cold]
    fn send_lookup(&mut self, flow: &Flow<FlowState>, event: &Event) {
        let Some(Ok(message)) = self.input.payload(event).map(Message::parse) else { return };
        let mut name = NameBuf::new();
        if message.query(&mut name).is_some() {
            self.output
                .flow_events
                .push(flow_event::of_lookup(flow, Name::from_canonical(name.as_bytes())));
        }
    }

    /// Asks for what will be read first when `event` begins a flow.
    #[cold]
    #[inline(never)]
    fn foresee(&self, event: &Event) {
        let FlowKey { low, high, low_port, high_port, scope, .. } = event.key;
        // The lesser port is the responder's, mostly.
        self.view.within(scope).prefetch_facts(if low_port < high_port { low } else { high });
    }

    fn find_names(&mut self, flow: &mut Flow<FlowState>, packet: u64, now_ns: i64) {
        let (source, _) = flow.source();
        let (destination, _) = flow.destination();
        let view = self.view.within(flow.key().scope);
        let ends = view.ends(source, destination, packet, now_ns);
        self.take_names(flow, ends, now_ns);
    }

    /// The names that a flow had before the first packet that is counted in it, `event`.
    fn find_first_names(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        let Some(held) = self.held(event) else {
            return self.find_names(flow, flow.first_packet, event.time_ns);
        };
        let by_sender = event.from_low == flow.source_is_low;
        let ends = held.ends.as_ref().map(|ends| ends[usize::from(!by_sender)].clone());
        self.take_names(flow, ends.unwrap_or_default(), event.time_ns);
    }

    /// What is known of an event that was held.
    fn held(&self, event: &Event) -> Option<&Held> {
        let held = event.is_held.then(|| self.input.held.get(event.payload_offset as usize));
        held.flatten()
    }

    #[inline]
    fn take_names(&mut self, flow: &mut Flow<FlowState>, ends: Ends, now_ns: i64) {
        flow.looked_up_from_low = flow.source_is_low;
        // Most have none.
        if !ends.is_empty() || flow.user.known.is_some() || !self.state.said.is_empty() {
            self.take_some_names(flow, ends, now_ns);
        }
    }

    #[inline(never)]
    fn take_some_names(&mut self, flow: &mut Flow<FlowState>, ends: Ends, now_ns: i64) {
        let (destination, _) = flow.destination();
        let Ends { source: found_source, destination: mut found } = ends;
        if let Some(name) = self.state.said.get(&destination) {
            found = Some(Found {
                name: name.clone(),
                source: NameSource::Sni,
                time_ns: now_ns,
                flags: NameFlags::NONE,
                rivals: Vec::new(),
                support: Support::default(),
            });
        }
        if found.is_some() || found_source.is_some() || flow.user.known.is_some() {
            let known = flow.user.known.get_or_insert_with(|| self.state.spare.known());
            known.destination = found;
            known.source = found_source;
        }
    }
}

impl FlowUser<FlowState> for Lane<'_, '_> {
    #[inline]
    fn number(&self, event: &Event) -> u64 {
        let counted_with = self.input.packets_before + u64::from(event.packet);
        self.held(event).map_or(counted_with, |held| held.number)
    }

    fn begin(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        flow.app = app_by_port(flow);
        flow.is_quiet = match flow.protocol {
            protocol::TCP => flow.app.is_some(),
            // Of packets that are kept it is known in which flows names were asked for.
            protocol::UDP => flow.app.is_some() && !self.wants_lookups(flow),
            _ => true,
        };
        self.find_first_names(flow, event);
        if self.state.shared.options.write_packets.is_some()
            && let Some(known) = &flow.user.known
        {
            let ends =
                [(flow.destination().0, &known.destination), (flow.source().0, &known.source)];
            for (addr, found) in ends {
                let Some(found) = found else { continue };
                let mut names: Vec<Name> = found.rivals.iter().rev().cloned().collect();
                names.push(found.name.clone());
                let (packet, key) = (flow.first_packet, flow.key());
                self.output.resolved.push(Resolved { packet, key, addr, names });
            }
        }
        if self.state.shared.options.store.is_some()
            && let Some(known) = &flow.user.known
        {
            self.output.flow_events.push(flow_event::of_known(flow, known));
        }
    }

    #[inline]
    fn packet(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        if event.payload_len > 0 && event.from_low == flow.source_is_low {
            if self.wants_lookups(flow) {
                self.send_lookup(flow, event);
            } else {
                self.look_for_own_name(flow, event);
            }
        } else if flow.awaits_reply && event.payload_len > 0 {
            self.take_reply(flow);
        }
    }

    #[inline]
    fn prefetch(&self, flow: &Flow<FlowState>) {
        match &flow.user.known {
            Some(known) => prefetch_read(&**known),
            // Asked again whether it has a name, or why not.
            None => self.view.within(flow.key().scope).prefetch_facts(flow.destination().0),
        }
    }

    fn end(&mut self, flow: &mut Flow<FlowState>, closed: bool, leave: Leave, packet: u32) {
        if let Some(own) = flow.user.known.as_mut().and_then(|known| known.own.as_mut()) {
            own.finish(&mut self.state.budgets[self.state.shard]);
        }
        // What is known of a flow that goes on is known of its rest.
        let rest = match &flow.user.known {
            Some(known) if leave == Leave::Active => Some(Box::new(known.of_rest())),
            _ => None,
        };
        let had_names = flow.user.known.is_some() || self.wants_lookups(flow);
        let end_packet = match leave {
            Leave::InputEnd => u64::MAX,
            _ => self.input.packets_before + u64::from(packet),
        };
        let end_reason = match leave {
            Leave::Evicted => EndReason::Evicted,
            Leave::Active => EndReason::Active,
            _ if closed => EndReason::Closed,
            Leave::Timeout => EndReason::Idle,
            Leave::Reused => EndReason::Closed,
            Leave::InputEnd => EndReason::InputEnd,
        };
        let blank = || Box::new(FlowRecord::blank());
        let mut record = self.state.record.take().unwrap_or_else(blank);
        let (has_name, has_lookup) = self.fill(&mut record, flow, end_packet, end_reason);
        if self.state.shared.options.store.is_some() {
            let behind = end_packet.saturating_add(u64::from(self.is_behind));
            let note = flow_event::of_record(flow, &record, behind);
            if had_names || !note.names.is_empty() {
                self.output.flow_events.push(note);
            }
            self.output
                .flow_events
                .extend(rest.iter().map(|rest| flow_event::of_rest(flow, rest, end_packet)));
        }
        if leave == Leave::Active {
            flow.is_quiet = flow.is_quiet || rest.as_ref().is_some_and(|rest| rest.own.is_some());
            flow.user.known = rest;
        }
        count(&mut self.state.summary, &record);
        let destination = &record.destination;
        let is_wanted = match self.state.shared.options.unresolved {
            Unresolved::False => true,
            _ if is_resolver_traffic(record.protocol, destination.addr, destination.port) => false,
            Unresolved::True => {
                let why = || self.why_unnamed(flow, has_name);
                !has_lookup && why() == UnnamedReason::NoLookupSeen
            }
            Unresolved::All => destination.naming.is_none(),
        };
        if is_wanted {
            let start = self.output.bytes.len();
            self.state.shared.format.writer().record(&record, &mut self.output.bytes);
            let end = self.output.bytes.len();
            let (first_packet, end_ns) = (record.first_packet, record.end_ns);
            let key = flow.key();
            self.output.ended.push(Ended { end_packet, first_packet, key, end_ns, start, end });
        }
        self.state.record = Some(record);
    }
}

impl Lane<'_, '_> {
    #[cold]
    fn look_for_own_name(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        let Some(data) = self.input.payload(event) else { return };
        let budget = &mut self.state.budgets[self.state.shard];
        let seq_first = flow.sent_by_source().first_payload_seq();
        let spare = &mut self.state.spare;
        let known = flow.user.known.get_or_insert_with(|| spare.known());
        let own = known.own.get_or_insert_with(|| spare.own());
        let was_looking = own.is_looking();
        if flow.protocol == protocol::TCP {
            own.tcp(&Segment { seq: event.tcp_seq, seq_first, data }, budget);
        } else {
            own.udp(data, budget);
        }
        if own.app.is_some() {
            flow.app = own.app;
        }
        flow.is_quiet = own.is_done();
        flow.awaits_reply = own.awaits_reply();
        let was_read = was_looking && !own.is_looking();
        let wants_flow_event = was_read && self.state.shared.options.store.is_some();
        let names: Vec<Name> =
            if wants_flow_event { own.names().cloned().collect() } else { Vec::new() };
        if !self.view.rules.has(6)
            && let Some(stated) = &own.server_name
            && stated.is_name
        {
            let name = stated.text.clone();
            self.state.said.insert(flow.destination().0, name);
        }
        if !names.is_empty() {
            self.output.flow_events.push(flow_event::of_own(flow, names));
        }
    }

    /// The responder of a flow that stated a name sent its first bytes.
    #[cold]
    fn take_reply(&mut self, flow: &mut Flow<FlowState>) {
        let own = flow.user.known.as_mut().and_then(|known| known.own.as_mut());
        if let Some(own) = own {
            own.replied(&mut self.state.budgets[self.state.shard]);
        }
        flow.is_quiet = true;
        flow.awaits_reply = false;
    }

    /// Puts in `record`, whatever it held, what is known of a flow that ends. Says whether the
    /// destination has a name that the flow does not state, and whether a lookup gave its address.
    fn fill(
        &mut self,
        record: &mut FlowRecord,
        flow: &mut Flow<FlowState>,
        end_packet: u64,
        end_reason: EndReason,
    ) -> (bool, bool) {
        let turned = flow.looked_up_from_low != flow.source_is_low;
        let mut late = false;
        let valid_at_start = self.view.rules.has(7);
        let known = flow.user.known.as_ref();
        let wants_name = match known.and_then(|known| known.destination.as_ref()) {
            None => valid_at_start,
            Some(_) => !valid_at_start,
        };
        if turned || wants_name {
            let start_ns = flow.start_ns;
            self.find_names(flow, end_packet, start_ns);
            late = !turned;
        }
        let is_tcp = flow.protocol == protocol::TCP;
        fill_end(&mut record.source, flow.source(), flow.sent_by_source(), is_tcp);
        fill_end(&mut record.destination, flow.destination(), flow.sent_by_destination(), is_tcp);
        (record.tls_server_name, record.tls_ech, record.http_host) = (None, None, None);
        record.no_names = NoNames::default();
        let mut support = Support::default();
        let mut has_name = false;
        if let Some(mut known) = flow.user.known.take() {
            let naming = |found: &Found, late: bool| Naming {
                name: found.name.clone(),
                source: found.source,
                age_ms: if late { 0 } else { age_ms(flow.start_ns, found.time_ns) },
                flags: match late {
                    true => found.flags.without(NameFlags::STALE).with(NameFlags::LATE),
                    false => found.flags,
                },
                conflict_grade: None,
            };
            if let Some(found) = &mut known.destination {
                record.destination.naming = Some(naming(found, late));
                support = found.support;
                has_name = true;
                take_names(found, &mut record.destination.candidates);
            }
            if let Some(found) = &mut known.source {
                record.source.naming = Some(naming(found, late && !turned));
                take_names(found, &mut record.source.candidates);
            }
            if let Some(own) = &mut known.own {
                self.heed_own_name(record, own, support, end_packet);
            }
            self.state.spare.take_back(known);
        }
        let unnamed = record.destination.naming.is_none();
        record.destination.unnamed_reason = unnamed.then(|| self.why_unnamed(flow, false));
        record.first_packet = flow.first_packet;
        record.end_packet = end_packet;
        record.start_ns = flow.start_ns;
        record.end_ns = flow.last_ns;
        record.protocol = flow.protocol;
        record.scope = flow.key().scope;
        record.tunnel = flow.tunnel;
        record.app = flow.app;
        record.conn_state = flow.conn_state();
        record.history.clear();
        record.history.push_str(flow.history.as_str());
        record.end_reason = end_reason;
        (has_name, support.has_lookup())
    }

    /// Rule 6: what a flow says of itself names this flow, and DNS stands beside it. A server name
    /// with an encrypted hello in it is that of the provider, and gives way to what this client
    /// looked up for the address.
    fn heed_own_name(
        &self,
        record: &mut FlowRecord,
        own: &mut OwnName,
        support: Support,
        packet: u64,
    ) {
        let names = self.names();
        let is_quic = own.app == Some(App::Quic);
        let [sni, host] = [&own.server_name, &own.http_host].map(|stated| {
            let stated = stated.as_ref().filter(|stated| stated.is_name);
            stated.map(|stated| &stated.text)
        });
        if let Some(stated) = choose(sni, is_quic, host, names) {
            let End { naming, candidates, .. } = &mut record.destination;
            let is_outer = own.ech == Some(true)
                && naming.as_ref().is_some_and(|naming| {
                    naming.source == NameSource::DnsPair && !naming.flags.has(NameFlags::LATE)
                });
            if is_outer && !candidates.contains(stated.0) {
                candidates.push(stated.0.clone());
            } else {
                let support = names.has(NameSource::DnsAddress).then_some(support);
                state(&mut record.destination, stated, support, |name, others| {
                    self.view.are_joined(name, others, packet)
                });
            }
        }
        let End { naming, candidates, .. } = &mut record.destination;
        if own.contradicts
            && let Some(naming) = naming
        {
            naming.flags = naming.flags.with(NameFlags::CONFLICT);
            candidates.extend(own.other.take().filter(|name| !candidates.contains(name)));
        }
        record.tls_ech = own.ech;
        let no_names = &mut record.no_names;
        let places = [
            (&mut own.server_name, &mut record.tls_server_name, &mut no_names.tls_server_name),
            (&mut own.http_host, &mut record.http_host, &mut no_names.http_host),
        ];
        for (stated, name, no_name) in places {
            let Some(Stated { text, is_name }) = stated.take() else { continue };
            *(if is_name { name } else { no_name }) = Some(text);
        }
    }

    /// Why no lookup names the destination; `is_known`: the names at hand say something of it.
    fn why_unnamed(&self, flow: &Flow<FlowState>, is_known: bool) -> UnnamedReason {
        let (client, _) = flow.source();
        let (addr, _) = flow.destination();
        let known = self.view.learned;
        let view = self.view.within(flow.key().scope);
        let hash = |addr| view.address_hash(addr);
        if addr.is_local() {
            UnnamedReason::Local
        } else if !is_known && known.named.has(hash(addr), self.view.batch) {
            UnnamedReason::Evicted
        } else if known.encrypted.has(hash(client), self.view.batch) {
            UnnamedReason::EncryptedDnsSuspected
        } else if flow.midstream
            || flow.start_ns.saturating_sub(self.input.capture_start_ns) < BEFORE_CAPTURE_NS
        {
            UnnamedReason::BeforeCapture
        } else {
            UnnamedReason::NoLookupSeen
        }
    }
}

/// The books of one end; its names are to come.
fn fill_end(end: &mut End, (addr, port): (Addr, u16), sent: &Sent, is_tcp: bool) {
    end.addr = addr;
    end.port = port;
    end.packets = sent.packets;
    end.ip_bytes = sent.ip_bytes;
    end.payload_bytes = Some(if is_tcp { sent.stream_bytes() } else { sent.payload_bytes });
    end.missed_bytes = sent.gap_bytes;
    end.naming = None;
    end.candidates.clear();
    end.unnamed_reason = None;
}

/// Moves the names of `found` to a record, the chosen one first.
fn take_names(found: &mut Found, candidates: &mut Vec<Name>) {
    candidates.push(std::mem::take(&mut found.name));
    candidates.append(&mut found.rivals);
}

fn age_ms(now_ns: i64, learned_ns: i64) -> u64 {
    (now_ns.saturating_sub(learned_ns).max(0) / 1_000_000) as u64
}

fn app_by_port(flow: &Flow<FlowState>) -> Option<App> {
    let (low, high) = (flow.source().1, flow.destination().1);
    let either = |port| low == port || high == port;
    match flow.protocol {
        protocol::TCP | protocol::UDP if either(53) => Some(App::Dns),
        protocol::UDP if either(5353) => Some(App::Mdns),
        protocol::UDP if either(5355) => Some(App::Llmnr),
        protocol::UDP if either(137) => Some(App::Nbns),
        protocol::UDP if either(67) || either(68) || either(546) || either(547) => Some(App::Dhcp),
        _ => None,
    }
}

fn count(summary: &mut Summary, record: &FlowRecord) {
    summary.flows += 1;
    summary.flows_evicted += u64::from(record.end_reason == EndReason::Evicted);
    if record.destination.addr.is_multicast_or_broadcast() {
        return;
    }
    summary.count_destination(&record.destination);
}
