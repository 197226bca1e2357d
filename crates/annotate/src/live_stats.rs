//! Statistics of a running capture: totals, and the names and flows with the most traffic.
//!
//! Totals are exact as of the last batch that was written. The traffic by name and flow is
//! estimated: each worker samples at most [`SAMPLES`] packets of a batch, evenly spread, and each
//! of them counts for as many as there are between two samples. Sampling runs only if `larder top`
//! asked within the last `WATCHED_S` seconds. If only a page wants it ([`LiveStats::observe`]), it is
//! [`PAGE_SAMPLES`] packets, of which the destinations count: a page shows no flows.
//!
//! A run with a page also notes what each record shows ([`Noted`]), for the thread of the page.
//!
//! Bounds: [`ROWS_MAX`] names and as many flows a second, and 65,536 in the current second;
//! [`NOTES_MAX`] notes; notes above that are counted and dropped. Cost: six relaxed additions a batch
//! and worker, and one for each source of names and reason for none that has occurred; while
//! `larder top` runs, a look at [`SAMPLES`] flows a batch; with a page, at [`PAGE_SAMPLES`], an
//! addition for each packet, and a note of about 200 bytes for each record.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_wire::flow_key::FlowKey;
use larder_wire::{Addr, Name};

use crate::options::Summary;
use crate::record::{NameSource, UnnamedReason};
use crate::seen::Noted;

/// Packets of a batch that a worker samples, at most.
pub const SAMPLES: usize = 64;

/// The same for a page. At 200 batches a second, a name with a tenth of the traffic is estimated to
/// 5 % in each second (standard deviation).
pub const PAGE_SAMPLES: usize = 16;

/// Names, and flows, of a complete second.
pub const ROWS_MAX: usize = 1_000;

/// Notes of records that wait for the thread of the page.
pub const NOTES_MAX: usize = 1 << 17;

/// Flows of the current second; if there are more, those with the least traffic are removed.
const ROWS_SEEN_MAX: usize = 1 << 16;

/// Sampling ends this long after the last request, seconds of packet time.
const WATCHED_S: i64 = 10;

/// The destination of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// The flow's name.
    Name(Name),
    /// The address, if the flow has no name.
    Addr(Addr),
}

/// Counts of a name or flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// IP bytes.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// One second, by names and by flows.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// The second, since 1970; packet time.
    pub number: i64,
    /// Counts by destination.
    pub parties: HashMap<Party, Tally>,
    /// Counts by flow, whether the initiator is the key's `low` end, and the destination.
    pub flows: HashMap<FlowKey, (Tally, bool, Party)>,
}

impl Second {
    /// Adds a packet that counts for `weight`.
    pub fn add(
        &mut self,
        key: FlowKey,
        source_is_low: bool,
        party: Party,
        one: Tally,
        weight: u64,
    ) {
        let tally = Tally { packets: weight, bytes: one.bytes * weight };
        let flow = self.flows.entry(key);
        flow.or_insert_with(|| (Tally::default(), source_is_low, party.clone())).0.add(tally);
        self.add_party(party, tally);
    }

    /// Adds traffic by its destination alone.
    pub fn add_party(&mut self, party: Party, tally: Tally) {
        self.parties.entry(party).or_default().add(tally);
        // If all packets of a file have one time, a second never ends.
        self.bound();
    }

    /// Adds the counts of another worker for the same second.
    fn merge(&mut self, other: Second) {
        for (party, tally) in other.parties {
            self.parties.entry(party).or_default().add(tally);
        }
        for (key, (tally, source_is_low, party)) in other.flows {
            self.flows.entry(key).or_insert((Tally::default(), source_is_low, party)).0.add(tally);
        }
        self.bound();
    }

    fn bound(&mut self) {
        if self.flows.len().max(self.parties.len()) > ROWS_SEEN_MAX {
            self.trim(ROWS_SEEN_MAX / 2);
        }
    }

    /// Removes the rows with the least traffic if there are more than `rows_max`.
    fn trim(&mut self, rows_max: usize) {
        keep_most(&mut self.parties, rows_max, |tally| tally.bytes);
        keep_most(&mut self.flows, rows_max, |(tally, ..)| tally.bytes);
    }
}

/// Keeps the `rows_max` entries with the most bytes; of equal ones, any.
fn keep_most<K: std::hash::Hash + Eq, V>(
    map: &mut HashMap<K, V>,
    rows_max: usize,
    bytes: impl Fn(&V) -> u64,
) {
    if map.len() > rows_max {
        let mut rows: Vec<(K, V)> = map.drain().collect();
        rows.sort_unstable_by_key(|(_, value)| std::cmp::Reverse(bytes(value)));
        rows.truncate(rows_max);
        map.extend(rows);
    }
}

/// Totals; the thread that does the work adds to them.
#[derive(Debug, Default)]
pub struct Totals {
    /// Flows that have ended.
    pub flows_ended: AtomicU64,
    /// Of them, those whose destination has a name, or could have.
    pub flows_nameable: AtomicU64,
    /// Those that have one.
    pub flows_named: AtomicU64,
    /// The same by source of the name: in the order of [`NameSource::ALL`].
    pub flows_named_by: [AtomicU64; NameSource::ALL.len()],
    /// Those without, by reason: in the order of [`UnnamedReason::ALL`].
    pub flows_unnamed_by: [AtomicU64; UnnamedReason::ALL.len()],
    /// Flows that ended because the table was full.
    pub flows_evicted: AtomicU64,
    /// Flows in the table.
    pub flows_live: AtomicI64,
    /// Messages that gave a name.
    pub answers: AtomicU64,
    /// Addresses, and pairs of a client and an address, that have names.
    pub names_known: AtomicU64,
    /// Names that were evicted.
    pub names_evicted: AtomicU64,
    /// Packets that were damaged.
    pub damaged: AtomicU64,
    /// Records of rotated logs that could not be written.
    pub records_lost: AtomicU64,
    /// Time of the latest packet that was read, ns.
    pub read_ns: AtomicI64,
    /// Time of the latest packet whose batch was written, ns.
    pub written_ns: AtomicI64,
    /// Batches whose names are learned and whose flows are not counted: the lag of the replicas, in
    /// batches.
    pub batches_behind: AtomicU64,
    /// IP bytes of packets, of a run with a page.
    pub ip_bytes: AtomicU64,
    /// Records that the page does not show, because there were too many at once.
    pub notes_lost: AtomicU64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct LiveStats {
    /// Totals so far.
    pub totals: Totals,
    /// Sampling runs until this time, seconds of packet time.
    watched_until_s: AtomicI64,
    /// The run has a page.
    is_observed: AtomicBool,
    seconds: Mutex<Seconds>,
    notes: Mutex<Vec<Noted>>,
}

#[derive(Debug, Default)]
struct Seconds {
    now: Second,
    last: Second,
    /// Bytes by destination since the last [`LiveStats::take_parties`], of a run with a page.
    untaken: HashMap<Party, u64>,
}

impl LiveStats {
    /// True while `larder top` runs.
    pub fn is_watched(&self, time_ns: i64) -> bool {
        time_ns / 1_000_000_000 < self.watched_until_s.load(Ordering::Relaxed)
    }

    /// From now on the run has a page.
    pub fn observe(&self) {
        self.is_observed.store(true, Ordering::Relaxed);
    }

    /// True if the run has a page.
    pub fn is_observed(&self) -> bool {
        self.is_observed.load(Ordering::Relaxed)
    }

    /// Estimated bytes by destination since the last call.
    pub fn take_parties(&self) -> HashMap<Party, u64> {
        std::mem::take(&mut self.seconds().untaken)
    }

    /// Adds notes of records, and empties `notes`.
    pub fn note(&self, notes: &mut Vec<Noted>) {
        if notes.is_empty() {
            return;
        }
        let mut waiting = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = NOTES_MAX.saturating_sub(waiting.len());
        let lost = notes.len().saturating_sub(room);
        notes.truncate(room);
        waiting.append(notes);
        drop(waiting);
        self.totals.notes_lost.fetch_add(lost as u64, Ordering::Relaxed);
    }

    /// The notes since the last call. `spare` is an empty list whose memory is used again.
    pub fn take_notes(&self, spare: Vec<Noted>) -> Vec<Noted> {
        let mut waiting = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut waiting, spare)
    }

    /// The last complete second. Sampling begins with the first call.
    pub fn watch(&self) -> Second {
        let now_s = self.totals.read_ns.load(Ordering::Relaxed) / 1_000_000_000;
        self.watched_until_s.store(now_s + WATCHED_S, Ordering::Relaxed);
        self.seconds().last.clone()
    }

    /// Adds a second that a worker has completed.
    pub fn merge(&self, second: Second) {
        let mut seconds = self.seconds();
        if self.is_observed() {
            for (party, tally) in &second.parties {
                *seconds.untaken.entry(party.clone()).or_default() += tally.bytes;
            }
            if seconds.untaken.len() > ROWS_SEEN_MAX {
                keep_most(&mut seconds.untaken, ROWS_SEEN_MAX / 2, |bytes| *bytes);
            }
        }
        if seconds.now.number != second.number {
            let mut last = std::mem::take(&mut seconds.now);
            last.trim(ROWS_MAX);
            seconds.last = last;
            seconds.now.number = second.number;
        }
        seconds.now.merge(second);
    }

    fn seconds(&self) -> MutexGuard<'_, Seconds> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the counts of a worker since its last report.
    pub fn add(&self, before: &mut Summary, now: &Summary) {
        let add = |total: &AtomicU64, before: &mut u64, now: u64| {
            total.fetch_add(now - *before, Ordering::Relaxed);
            *before = now;
        };
        let totals = &self.totals;
        add(&totals.flows_ended, &mut before.flows, now.flows);
        add(&totals.flows_nameable, &mut before.flows_nameable, now.flows_nameable);
        add(&totals.flows_named, &mut before.flows_named, now.flows_named);
        add(&totals.flows_evicted, &mut before.flows_evicted, now.flows_evicted);
        for (source, count) in &now.flows_named_by {
            let at = NameSource::ALL.iter().position(|it| it == source);
            if let Some(total) = at.and_then(|at| totals.flows_named_by.get(at)) {
                add(total, before.flows_named_by.entry(*source).or_default(), *count);
            }
        }
        for (reason, count) in &now.flows_unnamed_by {
            let at = UnnamedReason::ALL.iter().position(|it| it.as_str() == *reason);
            if let Some(total) = at.and_then(|at| totals.flows_unnamed_by.get(at)) {
                add(total, before.flows_unnamed_by.entry(reason).or_default(), *count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> FlowKey {
        let (low, high) = (Addr::v4([10, 0, 0, 1]), Addr::v4([10, 0, 0, 2]));
        FlowKey {
            low,
            high,
            low_port: port,
            high_port: 443,
            protocol: 6,
            scope: Default::default(),
        }
    }

    /// The samples of several workers for one second are merged, and returned when the next second
    /// has begun.
    #[test]
    fn a_second_is_whole_when_it_is_shown() {
        let live_stats = LiveStats::default();
        let second = |number, port, weight| {
            let mut second = Second { number, ..Second::default() };
            let party = Party::Addr(Addr::v4([10, 0, 0, 2]));
            second.add(key(port), true, party, Tally { packets: 1, bytes: 100 }, weight);
            second
        };
        assert!(!live_stats.is_watched(0));
        assert!(live_stats.watch().parties.is_empty());
        assert!(live_stats.is_watched(0) && !live_stats.is_watched(11_000_000_000));
        live_stats.merge(second(1, 7, 2));
        live_stats.merge(second(1, 8, 3));
        assert!(live_stats.watch().parties.is_empty(), "not yet whole");
        live_stats.merge(second(2, 7, 1));
        let seen = live_stats.watch();
        let tally = seen.parties.values().next().expect("a party");
        assert_eq!((seen.number, tally.packets, tally.bytes, seen.flows.len()), (1, 5, 500, 2));
    }

    /// Counts by source and reason are added once, however often a worker reports.
    #[test]
    fn sources_and_reasons_are_added() {
        let live_stats = LiveStats::default();
        let (mut before, mut now) = (Summary::default(), Summary::default());
        for named in 1..=3 {
            now.flows_named_by.insert(NameSource::Ptr, named);
            now.flows_unnamed_by.insert(UnnamedReason::Local.as_str(), 7);
            live_stats.add(&mut before, &now);
        }
        let load = |all: &[AtomicU64]| -> Vec<u64> {
            all.iter().map(|total| total.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(load(&live_stats.totals.flows_named_by), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
        assert_eq!(load(&live_stats.totals.flows_unnamed_by), [0, 0, 0, 0, 7, 0]);
    }

    /// A second has a bounded number of rows, those with the most traffic.
    #[test]
    fn a_second_is_bounded() {
        let live_stats = LiveStats::default();
        let mut second = Second { number: 1, ..Second::default() };
        for port in 0..5_000 {
            let party = Party::Addr(Addr::v4([10, 1, (port >> 8) as u8, port as u8]));
            let one = Tally { packets: 1, bytes: u64::from(port) };
            second.add(key(port), true, party, one, 1);
        }
        live_stats.merge(second);
        live_stats.merge(Second { number: 2, ..Second::default() });
        let seen = live_stats.watch();
        assert_eq!((seen.parties.len(), seen.flows.len()), (ROWS_MAX, ROWS_MAX));
        assert!(seen.parties.values().all(|tally| tally.bytes >= 4_000));
    }

    /// Of rows with equal traffic as many as allowed are returned; a second that does not end is
    /// bounded too.
    #[test]
    fn equals_are_shown_and_a_long_second_is_bounded() {
        let mut second = Second { number: 1, ..Second::default() };
        let one = Tally { packets: 1, bytes: 100 };
        for port in 0..=u16::MAX {
            for host in 0..2 {
                let key = FlowKey { protocol: host, ..key(port) };
                let party = Party::Addr(Addr::v4([10, host, (port >> 8) as u8, port as u8]));
                second.add(key, true, party, one, 1);
            }
            assert!(second.flows.len() <= ROWS_SEEN_MAX + 1);
        }
        assert!(second.flows.len() >= ROWS_SEEN_MAX / 2);
        second.trim(ROWS_MAX);
        assert_eq!((second.parties.len(), second.flows.len()), (ROWS_MAX, ROWS_MAX));
        // Of a page.
        let mut second = Second { number: 1, ..Second::default() };
        for address in 0..3 * ROWS_SEEN_MAX as u32 {
            second.add_party(Party::Addr(Addr::v4(address.to_be_bytes())), one);
            assert!(second.parties.len() <= ROWS_SEEN_MAX + 1);
        }
    }

    /// Notes of records wait in a bounded list; those above the bound are counted.
    #[test]
    fn notes_are_bounded() {
        let live_stats = LiveStats::default();
        let note = Noted::of(&crate::record::FlowRecord::blank(), 0, false);
        live_stats.note(&mut vec![note.clone(); NOTES_MAX - 1]);
        let mut more = vec![note; 5];
        live_stats.note(&mut more);
        assert!(more.is_empty());
        assert_eq!(live_stats.totals.notes_lost.load(Ordering::Relaxed), 4);
        assert_eq!(live_stats.take_notes(Vec::new()).len(), NOTES_MAX);
        assert!(live_stats.take_notes(Vec::new()).is_empty());
    }

    /// A page gets the bytes of all seconds since it asked, by destination; without a page nothing is
    /// added up.
    #[test]
    fn a_page_gets_all_seconds() {
        let live_stats = LiveStats::default();
        let merge = |number| {
            let mut second = Second { number, ..Second::default() };
            let party = Party::Addr(Addr::v4([10, 0, 0, 2]));
            second.add(key(7), true, party, Tally { packets: 1, bytes: 100 }, 2);
            live_stats.merge(second);
        };
        merge(1);
        assert!(live_stats.take_parties().is_empty());
        live_stats.observe();
        (2..5).for_each(merge);
        assert_eq!(live_stats.take_parties().into_values().collect::<Vec<_>>(), [600]);
        assert!(live_stats.take_parties().is_empty());
    }
}
