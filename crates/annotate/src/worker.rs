//! One worker's part of a batch: flows by shard, names by flow, rendered records.
//!
//! A worker owns the shards `s` with `s % workers == me`, and no other worker touches them. It gets the
//! batch's events of its shards in packet order, a view of names as of that batch, and the batch's
//! bytes. It returns the records that ended, rendered, in the order of the log. The result does not
//! depend on the number of workers.

mod each_packet;
mod extracted;
pub(crate) mod flow_event;
mod lane;
mod live;
mod statements;
mod ticks;

use std::collections::HashMap;
use std::sync::Arc;

use larder::{Cache, Reader};
use larder_serve::histogram::Histogram;
use larder_store::FlowEvent;
use larder_wire::note::Note;
use larder_wire::scope::Scope;
use larder_wire::stream::Budget;
use larder_wire::{Addr, Name};

use crate::Error;
use crate::decode::{Held, Tick};
use crate::evidence::{Hashes, Statement, Trial};
use crate::flow::{Event, Flow, FlowKey, FlowRules, Guess, SHARDS, Shard, shard_of};
use crate::format::Format;
use crate::live_stats::Second;
use crate::names::{Committed, Found, LearnedMarks, View};
use crate::options::{LookupPer, Options, Summary};
use crate::own_name::OwnName;
use crate::record::FlowRecord;
use crate::seen::Noted;
use each_packet::look_up_each;
use lane::Lane;
use ticks::take_tick;

/// Events between the prefetch of an index line, or of a flow, and its use.
const PREFETCH_INDEX: usize = 16;
const PREFETCH_FLOW: usize = 8;
/// The same for the names of a flow that is about to end.
const PREFETCH_KNOWN: usize = 3;
/// Boxes of each kind that are kept for reuse.
const SPARE_MAX: usize = 1 << 10;

/// The worker's part of a flow: one word, since most flows have no names.
#[derive(Debug, Default)]
pub struct FlowState {
    known: Option<Box<Known>>,
}
const _: () = assert!(size_of::<Flow<FlowState>>() == 4 * 64, "a flow is four cache lines");

/// The names of a flow.
#[derive(Debug, Default)]
struct Known {
    destination: Option<Found>,
    source: Option<Found>,
    own: Option<Box<OwnName>>,
    /// When the flow began, if a record of it was written before; ns.
    began_ns: Option<i64>,
    /// For `larder extract`: payload of each end that is still taken, `[high, low]`, bytes; see `extracted`.
    rest_bytes: [u32; 2],
}

impl Flow<FlowState> {
    /// Time of the first packet of all its records, ns.
    fn began_ns(&self) -> i64 {
        let known = self.user.known.as_ref();
        known.and_then(|known| known.began_ns).unwrap_or(self.start_ns)
    }

    /// What its rest keeps after its record was written.
    fn of_rest(&self) -> Box<Known> {
        let began_ns = Some(self.began_ns());
        Box::new(match &self.user.known {
            Some(known) => Known { began_ns, ..known.of_rest() },
            None => Known { began_ns, ..Known::default() },
        })
    }
}

impl Known {
    fn has_names(&self) -> bool {
        self.destination.is_some() || self.source.is_some() || self.own.is_some()
    }

    /// The name of the flow's destination so far.
    fn name(&self) -> Option<&Name> {
        let own = self.own.as_ref().and_then(|own| own.names().next());
        own.or(self.destination.as_ref().map(|found| &found.name))
    }

    /// The names that the rest of a flow keeps after its record was written.
    fn of_rest(&self) -> Known {
        Known {
            destination: self.destination.clone(),
            source: self.source.clone(),
            own: self.own.as_ref().map(|own| Box::new(own.settled())),
            began_ns: self.began_ns,
            rest_bytes: self.rest_bytes,
        }
    }
}

/// The input of a worker from one batch.
pub struct BatchInput<'a> {
    /// Packets before this batch.
    pub packets_before: u64,
    /// Packets in this batch.
    pub packets: u32,
    /// Time of the input's first packet, ns.
    pub capture_start_ns: i64,
    /// The batch's bytes.
    pub bytes: &'a [u8],
    /// Fragments of earlier packets that are counted in this batch.
    pub held: &'a [Held],
    /// Payloads reassembled from fragments. Offsets of events count them as if they followed `bytes`.
    pub joined: &'a [u8],
    /// Names as of this batch.
    pub committed: &'a Committed,
    /// The seconds that begin in it. Idle flows end then.
    pub ticks: &'a [Tick],
    /// After the input's end: open flows whose first packet is before this one end now.
    pub finish_before: u64,
    /// Records that end with this packet or before it are not logged.
    pub logged_after: u64,
    /// The step of the clock before this batch, ns.
    pub clock_step_ns: i64,
    /// The next cut at the start of this batch, ns; the greatest: none.
    pub cut_ns: i64,
    /// Time between cuts, ns; 0: there are none.
    pub cut_every_ns: i64,
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

/// The position of a record in the log. No two records of a batch share one: an instance of a flow begins
/// with one packet of its key, and that packet begins no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the packet that ended the record.
    pub end_packet: u64,
    /// That packet itself ended it, not the time before the packet.
    pub is_by_packet: bool,
    /// Number of its first packet.
    pub first_packet: u64,
    /// Its flow: a packet that completes a fragmented tunnel packet begins two.
    pub key: FlowKey,
}

/// A record that ended in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its position.
    pub place: Place,
    /// Time of its last packet, ns.
    pub end_ns: i64,
    /// Where the record is.
    pub body: Body,
    /// The index of its trial in [`Output::trials`].
    pub trial: Option<u32>,
    /// The index of its event in [`Output::flow_events`].
    pub flow_event: Option<u32>,
}

/// A record, rendered or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// From the first to the second offset of [`Output::bytes`].
    Rendered(usize, usize),
    /// The record at this place of [`Output::undecided`].
    Undecided(usize),
    /// The options leave the record out. Its trial counts.
    LeftOut,
}

/// The names of a flow's end, for the Name Resolution Blocks of `-w`.
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

/// The output of a worker from one batch.
#[derive(Default)]
pub struct Output {
    /// Records in the order of the log.
    pub ended: Vec<Ended>,
    /// The rendered records.
    pub bytes: Vec<u8>,
    /// Names for `-w`, in packet order.
    pub resolved: Vec<Resolved>,
    /// Names of flows, for the packet store.
    pub flow_events: Vec<FlowEvent>,
    /// Records of flows that state no name, and whose name is chosen among names by lookups.
    pub undecided: Vec<Box<FlowRecord>>,
    /// Names that flows stated, in packet order.
    pub statements: Vec<Statement>,
    /// For `larder extract`: packets of flows that are taken.
    pub teaching: Vec<Teaching>,
    /// For `larder extract`: notes on flows, each with the packet that it comes before.
    pub notes: Vec<(u32, Note)>,
    /// For an observer: trials of the choice among names by lookups.
    pub trials: Vec<Trial>,
    /// For a page: what the records show whose name is chosen.
    pub notes_of_records: Vec<Noted>,
    /// Records that were written, whose memory is used again.
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is used again")]
    spare: Vec<Box<FlowRecord>>,
}

impl Output {
    /// Clears all lists and keeps their memory.
    pub fn clear(&mut self) {
        self.ended.clear();
        self.bytes.clear();
        self.resolved.clear();
        self.flow_events.clear();
        self.spare.append(&mut self.undecided);
        self.spare.truncate(SPARE_MAX);
        self.statements.clear();
        self.trials.clear();
        self.notes_of_records.clear();
        self.teaching.clear();
        self.notes.clear();
    }
}

/// What a run is for: a log; a log, and the trials of all flows for an observer; or the packets that teach names
/// ([`crate::extract`]), without records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Purpose {
    Log,
    Observed,
    Extract,
}

/// A packet that `larder extract` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Teaching {
    /// Its number in the batch, from 1.
    pub packet: u32,
    /// Offset in the batch's bytes behind the part of it that matters; more than there are: all of it.
    pub end: u32,
}

/// Shared by all workers.
pub struct Shared {
    /// The run's options.
    pub options: Options,
    /// Renders records.
    pub format: Format,
    /// Marks of all that was ever learned.
    pub learned: Arc<LearnedMarks>,
    /// Hashes of statements.
    hashes: Hashes,
    /// What the run is for.
    pub purpose: Purpose,
}

impl Shared {
    /// What the workers of a run share.
    pub fn new(
        options: Options,
        learned: Arc<LearnedMarks>,
        purpose: Purpose,
    ) -> Result<Shared, Error> {
        let format = Format::new(options.format, options.ports_numeric)?;
        let hashes = Hashes::new(options.seed);
        Ok(Shared { options, format, learned, hashes, purpose })
    }

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
            scope: Scope::NONE,
        }
    }
}

/// See the module.
pub struct Worker {
    shards: Vec<Shard<FlowState>>,
    /// Index of a shard in `shards`: saves a division per packet.
    place_of: [u8; SHARDS],
    /// This worker's reader of the names.
    pub reader: Reader,
    cache: Cache,
    state: WorkerState,
    /// Set by the first call of [`Worker::finish`].
    open_flows: Option<OpenFlows>,
    /// The counts that [`LiveStats`] has.
    reported: Summary,
    reported_live: usize,
    /// The current second, while `larder top` asks.
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
    /// With rule 6 off: the names that flows stated, by address.
    stated: HashMap<Addr, Name>,
    /// The previous record, whose memory is used again.
    record: Option<Box<FlowRecord>>,
    spare: Spare,
}

/// Empty boxes of flows that ended, for new flows.
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
    /// First packet, index of the shard, slot; in the order in which they end, the last first.
    left: Vec<(u64, u8, u32)>,
}

impl OpenFlows {
    fn of(shards: &[Shard<FlowState>]) -> OpenFlows {
        let mut left: Vec<(u64, u8, u32)> = Vec::new();
        for (place, shard) in shards.iter().enumerate() {
            left.extend(shard.open_flows().map(|(packet, slot)| (packet, place as u8, slot)));
        }
        // Two flows may begin with one packet, and their shards may be in another order with other numbers
        // of workers.
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
            cut_every_ns: options.cut_every_ns(),
            is_part: shared.purpose == Purpose::Extract,
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
                stated: HashMap::new(),
                record: None,
                spare: Spare::default(),
            },
            open_flows: None,
            reported: Summary::default(),
            reported_live: 0,
            second: Second::default(),
        }
    }

    /// The counts of this worker.
    pub fn summary(&self) -> &Summary {
        &self.state.summary
    }

    /// Lookups made with `--lookup packet`, and how many found a name.
    pub fn lookups(&self) -> (u64, u64) {
        (self.state.lookups, self.state.lookup_hits)
    }

    /// Durations of the timed lookups.
    pub fn lookup_times(&self) -> &Histogram {
        &self.state.lookup_times
    }

    /// Handles the events of its shards, in packet order. The reader must be at the batch's position.
    pub fn batch(&mut self, events: &[Event], input: &BatchInput<'_>, output: &mut Output) {
        let Worker { shards, place_of, reader, cache, state, .. } = self;
        let place = |hash: u64| usize::from(place_of[shard_of(hash)]);
        if input.clock_step_ns != 0 {
            shards.iter_mut().for_each(|shard| shard.shift_times(input.clock_step_ns));
        }
        let mut ticks = input.ticks.iter().peekable();
        let mut cut_ns = input.cut_ns;
        let all = Arc::clone(&state.shared);
        let view = all.view(input.committed, reader, cache);
        if state.shared.options.lookup_per == LookupPer::Packet {
            if state.shared.options.time_lookups {
                look_up_each::<true>(events, input, view, state);
            } else {
                look_up_each::<false>(events, input, view, state);
            }
        }
        let mut lane = Lane::new(state, view, input, output);
        // Of the events up to `PREFETCH_FLOW` ahead.
        let mut guesses = [Guess::default(); PREFETCH_FLOW];
        for (at, event) in events.iter().enumerate() {
            while let Some(tick) = ticks.next_if(|tick| tick.packet <= event.packet) {
                cut_ns = take_tick(shards, *tick, &mut lane);
            }
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
            if event.time_ns < cut_ns && !event.is_reduced {
                shards[shard].packet(event, guess, &mut lane);
            } else {
                shards[shard].odd_packet(cut_ns, event, &mut lane);
            }
        }
        for tick in ticks {
            take_tick(shards, *tick, &mut lane);
        }
        put_in_order(lane.output);
    }

    /// Ends the flows that began before packet `input.finish_before`; `input` is an empty batch after the
    /// last one. Several calls end all flows, so that their records need not be held at once. Only the
    /// first call may have `events`: those of fragments that waited until the end.
    pub fn finish(&mut self, events: &[Event], input: &BatchInput<'_>, output: &mut Output) {
        let Worker { shards, place_of, reader, cache, state, open_flows, .. } = self;
        let all = Arc::clone(&state.shared);
        let view = all.view(input.committed, reader, cache);
        let mut lane = Lane { is_behind: true, ..Lane::new(state, view, input, output) };
        for event in events {
            let place = usize::from(place_of[shard_of(event.hash)]);
            lane.state.shard = place;
            shards[place].packet(event, Guess::default(), &mut lane);
        }
        put_in_order(lane.output);
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

/// Sorts records in the order of the log, and statements in that of their packets. Of records it sorts the
/// positions, which are a third as large, and reads the flow only of those that begin and end together.
fn put_in_order(output: &mut Output) {
    // Only a packet that waited for its fragments is out of order.
    output.statements.sort_by_key(Statement::place);
    let ended = &mut output.ended;
    let packets = |Ended { place, .. }: &Ended| {
        let by_packet = u128::from(place.is_by_packet) << 63;
        u128::from(place.end_packet) << 64 | by_packet | u128::from(place.first_packet)
    };
    let mut places: Vec<(u128, u32)> = ended.iter().map(packets).zip(0..).collect();
    let at = |place: u32| &ended[place as usize];
    places.sort_unstable_by(|&(one, one_at), &(other, other_at)| {
        one.cmp(&other).then_with(|| at(one_at).place.key.cmp(&at(other_at).place.key))
    });
    *ended = places.iter().map(|&(_, place)| *at(place)).collect();
}
