//! The choice of upstream: the fastest one that responds.
//!
//! ```text
//! up     responds; chosen by its smoothed round trip
//!   | SILENT_MAX queries in a row without a response
//! down   not chosen while another is up; now and then one query is sent to it too
//!   | any response
//! up     again, with the round trip of this response
//! ```
//!
//! Round trips are smoothed as in TCP (RFC 6298): mean and mean deviation, in microseconds. A core
//! waits for mean and four deviations, within [`WAIT_MS`]. A query without a response doubles the
//! wait for the next one (section 5.5 there), since a late response is measured only if its query
//! still waits. One query in 64 goes to the upstream that was measured longest ago. Otherwise a
//! fast upstream that was slow for an hour would never be chosen again.
//!
//! If all are down, all are tried in turn, since a failed attempt costs less than no attempt. But
//! if no upstream has responded for `DEAD_MS`, clients do not wait for each name. Then `PROBES_MAX`
//! queries per second are sent, with a time limit of [`PROBE_MS`], and the others fail at once.
//! (unbound sends one query at a time to such a server, dnsdist only its own checks.) The first
//! response ends this.
//!
//! An upstream that does not know EDNS (RFC 6891, section 6.2.2) is queried without it for
//! `PLAIN_MS`. unbound has the same time limit. Then it is queried with EDNS again.
//!
//! Invariant: an upstream is never chosen twice for a query while another one was not chosen.
//!
//! Cost: a walk over all upstreams for a choice, of which there are at most [`UPSTREAMS_MAX`]; no
//! allocation.

/// Upstreams of a zone, at most: a set of them is the bits of a word.
pub const UPSTREAMS_MAX: usize = 64;

/// How long a core waits for a response before it queries another upstream, milliseconds: least and
/// most.
pub const WAIT_MS: (u32, u32) = (50, 2_000);

/// The assumed round trip of an upstream that was never measured, microseconds: as in unbound.
const FIRST_US: u32 = 100_000;

/// Queries in a row without a response that make an upstream down.
const SILENT_MAX: u32 = 4;

/// How long an upstream that is down gets no queries, milliseconds: at first, and after doubling.
const REST_MS: (u64, u64) = (1_000, 30_000);

/// How long all upstreams must be silent before queries fail at once, milliseconds. It is longer
/// than a burst of queries to slow upstreams, or a restart of one.
const DEAD_MS: u64 = 3_000;

/// Queries per second that are sent nevertheless: a client queries a few names and types at once.
const PROBES_MAX: u32 = 8;

/// Time limit of such a query, milliseconds.
pub const PROBE_MS: u32 = 1_000;

/// How long an upstream is queried without EDNS, milliseconds.
pub const PLAIN_MS: u64 = 900_000;

/// Every Nth query goes to the upstream whose round trip was measured longest ago.
const EXPLORE_EVERY: u32 = 64;

/// A set of upstreams, by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tried(u64);

impl Tried {
    /// Adds an upstream.
    pub fn add(&mut self, upstream: usize) {
        self.0 |= 1 << upstream;
    }

    /// The number of upstreams in the set.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the upstream is in the set.
    pub fn has(self, upstream: usize) -> bool {
        self.0 >> upstream & 1 == 1
    }
}

/// Smoothed round trips to one server; see the module header.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrip {
    /// Mean and mean deviation, microseconds.
    srtt_us: u32,
    deviation_us: u32,
    /// Doublings of the wait since the last response.
    backoff: u32,
}

impl Default for RoundTrip {
    /// For a server that was never measured.
    fn default() -> RoundTrip {
        RoundTrip::first(FIRST_US)
    }
}

impl RoundTrip {
    /// After the first response.
    pub fn first(after_us: u32) -> RoundTrip {
        RoundTrip { srtt_us: after_us, deviation_us: after_us / 2, backoff: 0 }
    }

    /// After another response.
    pub fn answered(&mut self, after_us: u32) {
        let off = self.srtt_us.abs_diff(after_us);
        self.deviation_us = self.deviation_us - self.deviation_us / 4 + off / 4;
        self.srtt_us = self.srtt_us - self.srtt_us / 8 + after_us / 8;
        self.backoff = 0;
    }

    /// After a timeout.
    pub fn silent(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// How long a core waits for a response, milliseconds.
    pub fn wait_ms(&self) -> u32 {
        let (least, most) = WAIT_MS;
        let wait_us = u64::from(self.srtt_us) + 4 * u64::from(self.deviation_us);
        // Doubling must start from the least wait: a server that responds at once from its cache
        // may take long for other names.
        let calm_ms = wait_us.div_ceil(1_000).max(least.into());
        (calm_ms << self.backoff.min(8)).min(most.into()) as u32
    }

    /// A lower rank means an earlier expected response.
    pub fn rank(&self) -> u64 {
        u64::from(self.srtt_us) << self.backoff.min(8)
    }
}

/// State of one upstream.
#[derive(Debug, Clone)]
struct Health {
    round_trip: RoundTrip,
    /// Queries without a response since the last one, and when the first of them timed out,
    /// milliseconds.
    silent: u32,
    silent_since_ms: u64,
    /// It is queried without EDNS until then, milliseconds.
    plain_until_ms: u64,
    /// While down: when it is queried again, and the rest after that, milliseconds.
    down: Option<(u64, u64)>,
    /// Number of the choice when it was last measured.
    measured: u64,
    /// Timeouts, and reports that it is unreachable, since the start.
    failures: u64,
}

impl Health {
    fn new() -> Health {
        Health {
            round_trip: RoundTrip::default(),
            silent: 0,
            silent_since_ms: 0,
            plain_until_ms: 0,
            down: None,
            measured: 0,
            failures: 0,
        }
    }

    fn is_dead(&self, now_ms: u64) -> bool {
        self.down.is_some() && now_ms >= self.silent_since_ms + DEAD_MS
    }

    /// Records `by` more queries without a response.
    fn note_silence(&mut self, now_ms: u64, by: u32) {
        self.failures += 1;
        if self.silent == 0 {
            self.silent_since_ms = now_ms;
        }
        self.silent = self.silent.saturating_add(by);
        if self.silent >= SILENT_MAX {
            self.down.get_or_insert((now_ms + REST_MS.0, REST_MS.0));
        }
    }
}

/// What a core has measured of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Smoothed round trip, microseconds; `None`: it was never measured.
    pub round_trip_us: Option<u32>,
    /// It is not down.
    pub is_up: bool,
    /// Timeouts, and reports that it is unreachable, since the start.
    pub failures: u64,
}

/// The upstreams for one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The upstream to query.
    pub upstream: usize,
    /// How long to wait for its response, milliseconds.
    pub wait_ms: u32,
    /// Its usual tail latency, milliseconds: mean and two deviations.
    pub hedge_ms: u32,
    /// An upstream that is down and may be up again: it gets the query too, but the core does not
    /// wait for it.
    pub probe: Option<usize>,
}

/// Whether a zone's upstreams are expected to respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// They are.
    Good,
    /// All are silent: this query may find out whether they respond again, within [`PROBE_MS`].
    Probe,
    /// All are silent, and enough queries are in flight to find out.
    Silence,
}

/// The upstreams of a zone.
#[derive(Debug, Clone)]
pub struct Upstreams {
    all: Vec<Health>,
    choices: u64,
    /// Second of the last queries to dead upstreams, and their number.
    probes: (u64, u32),
}

impl Upstreams {
    /// A number of upstreams, brought within 1 to [`UPSTREAMS_MAX`].
    pub fn new(count: usize) -> Upstreams {
        Upstreams {
            all: vec![Health::new(); count.clamp(1, UPSTREAMS_MAX)],
            choices: 0,
            probes: (0, 0),
        }
    }

    /// Whether a query that arrives at `now_ms` is sent.
    pub fn outlook(&mut self, now_ms: u64) -> Outlook {
        if !self.all.iter().all(|health| health.is_dead(now_ms)) {
            return Outlook::Good;
        }
        let second = now_ms / 1_000;
        if self.probes.0 != second {
            self.probes = (second, 0);
        }
        if self.probes.1 >= PROBES_MAX {
            return Outlook::Silence;
        }
        self.probes.1 += 1;
        Outlook::Probe
    }

    /// Chooses an upstream at `now_ms`, after those `tried`.
    pub fn choose(&mut self, now_ms: u64, tried: Tried) -> Choice {
        self.choices += 1;
        let is_first = tried == Tried::default();
        let probe = (0..self.all.len()).find(|&at| self.is_due(at, now_ms)).filter(|_| is_first);
        let explores = is_first && self.choices.is_multiple_of(EXPLORE_EVERY.into());
        let upstream = if explores {
            self.best(tried, |health| (health.down.is_some(), health.measured))
        } else {
            self.best(tried, |health| (health.down.is_some(), health.round_trip.rank()))
        };
        let probe = probe.filter(|&probe| probe != upstream);
        if let Some(probe) = probe
            && let Some((again_ms, rest_ms)) = &mut self.all[probe].down
        {
            *rest_ms = (2 * *rest_ms).min(REST_MS.1);
            *again_ms = now_ms + *rest_ms;
        }
        let round_trip = &self.all[upstream].round_trip;
        let hedge_us = u64::from(round_trip.srtt_us) + 2 * u64::from(round_trip.deviation_us);
        let wait_ms = round_trip.wait_ms();
        let hedge_ms = hedge_us.div_ceil(1_000).clamp(1, wait_ms.into()) as u32;
        Choice { upstream, wait_ms, hedge_ms, probe }
    }

    fn is_due(&self, at: usize, now_ms: u64) -> bool {
        self.all[at].down.is_some_and(|(again_ms, _)| now_ms >= again_ms)
    }

    /// The upstream of the lowest `rank` that was not tried. If all were tried, the one of the
    /// lowest `rank`.
    fn best<R: Ord>(&self, tried: Tried, rank: impl Fn(&Health) -> R) -> usize {
        (0..self.all.len())
            .min_by_key(|&at| (tried.has(at), rank(&self.all[at])))
            .expect("there is at least one")
    }

    /// Records a response, and its round trip.
    pub fn answered(&mut self, upstream: usize, after_us: u32) {
        let choices = self.choices;
        let Some(health) = self.all.get_mut(upstream) else { return };
        if health.measured == 0 || health.down.is_some() {
            health.round_trip = RoundTrip::first(after_us);
        } else {
            health.round_trip.answered(after_us);
        }
        (health.silent, health.down) = (0, None);
        health.measured = choices.max(1);
    }

    /// Records a timeout at `now_ms`.
    pub fn silent(&mut self, upstream: usize, now_ms: u64) {
        let Some(health) = self.all.get_mut(upstream) else { return };
        health.round_trip.silent();
        health.note_silence(now_ms, 1);
    }

    /// Records that the kernel reports an upstream as unreachable: it is down at once.
    pub fn unreachable(&mut self, upstream: usize, now_ms: u64) {
        let Some(health) = self.all.get_mut(upstream) else { return };
        health.note_silence(now_ms, SILENT_MAX);
    }

    /// Records that an upstream responded only without EDNS.
    pub fn knows_no_edns(&mut self, upstream: usize, now_ms: u64) {
        if let Some(health) = self.all.get_mut(upstream) {
            health.plain_until_ms = now_ms + PLAIN_MS;
        }
    }

    /// True if an upstream is queried with EDNS.
    pub fn has_edns(&self, upstream: usize, now_ms: u64) -> bool {
        self.all.get(upstream).is_none_or(|health| now_ms >= health.plain_until_ms)
    }

    /// How long to wait for a response of this upstream, milliseconds.
    pub fn wait_ms(&self, upstream: usize) -> u32 {
        self.all.get(upstream).map_or(WAIT_MS.1, |health| health.round_trip.wait_ms())
    }

    /// True while an upstream is not down.
    pub fn is_up(&self, upstream: usize) -> bool {
        self.all.get(upstream).is_some_and(|health| health.down.is_none())
    }

    /// What is known of an upstream.
    pub fn measured(&self, upstream: usize) -> Measured {
        let failures = self.all.get(upstream).map_or(0, |health| health.failures);
        let round_trip_us = self.round_trip_us(upstream);
        Measured { round_trip_us, is_up: self.is_up(upstream), failures }
    }

    /// Smoothed round trip of an upstream, microseconds; `None` before it was measured.
    pub fn round_trip_us(&self, upstream: usize) -> Option<u32> {
        let health = self.all.get(upstream).filter(|health| health.measured > 0);
        health.map(|health| health.round_trip.srtt_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(upstreams: &mut Upstreams, now_ms: u64) -> usize {
        upstreams.choose(now_ms, Tried::default()).upstream
    }

    /// Once all are measured, the fastest is chosen, except for one query in 64.
    #[test]
    fn the_fastest_is_queried() {
        let mut upstreams = Upstreams::new(3);
        for (upstream, us) in [(0, 30_000), (1, 2_000), (2, 9_000)] {
            upstreams.answered(upstream, us);
        }
        let mut queried = [0; 3];
        for now_ms in 0..640 {
            let upstream = first(&mut upstreams, now_ms);
            queried[upstream] += 1;
            upstreams.answered(upstream, [30_000, 2_000, 9_000][upstream]);
        }
        assert_eq!(queried.iter().sum::<u32>(), 640);
        assert!(queried[1] >= 620, "{queried:?}");
        assert!(queried[0] > 0 && queried[2] > 0, "the others are looked at again: {queried:?}");
    }

    /// A query is sent to each upstream once before it is sent to one again.
    #[test]
    fn none_is_queried_twice_before_all() {
        let mut upstreams = Upstreams::new(4);
        let mut tried = Tried::default();
        for _ in 0..4 {
            let Choice { upstream, .. } = upstreams.choose(0, tried);
            assert!(!tried.has(upstream));
            tried.add(upstream);
            upstreams.silent(upstream, 0);
        }
        assert!(tried.has(upstreams.choose(0, tried).upstream));
    }

    /// An upstream that is silent four times gets no queries, is probed after its rest, and is
    /// chosen again after a fast response.
    #[test]
    fn down_and_up_again() {
        let mut upstreams = Upstreams::new(2);
        upstreams.answered(0, 1_000);
        upstreams.answered(1, 5_000);
        for _ in 0..SILENT_MAX {
            upstreams.silent(0, 100);
        }
        assert!(!upstreams.is_up(0) && upstreams.is_up(1));
        let choice = upstreams.choose(200, Tried::default());
        assert_eq!((choice.upstream, choice.probe), (1, None), "it rests");
        let choice = upstreams.choose(100 + REST_MS.0, Tried::default());
        assert_eq!((choice.upstream, choice.probe), (1, Some(0)));
        let choice = upstreams.choose(101 + REST_MS.0, Tried::default());
        assert_eq!(choice.probe, None, "one probe, then twice the rest");
        upstreams.answered(0, 1_000);
        assert!(upstreams.is_up(0));
        assert_eq!(first(&mut upstreams, 2_000), 0);
    }

    /// If all are down, queries are still sent. An upstream that the kernel reports as unreachable
    /// is down at once.
    #[test]
    fn all_down() {
        let mut upstreams = Upstreams::new(2);
        upstreams.unreachable(0, 0);
        upstreams.unreachable(1, 0);
        let mut tried = Tried::default();
        tried.add(first(&mut upstreams, 1));
        let second = upstreams.choose(1, tried).upstream;
        assert!(!tried.has(second));
    }

    /// If no upstream has responded for a while, some queries per second are sent and the others
    /// fail. The first response ends that. A short burst of silence has no such effect.
    #[test]
    fn the_dead_are_left_alone() {
        let mut upstreams = Upstreams::new(2);
        for _ in 0..10 {
            upstreams.silent(0, 1_000);
        }
        upstreams.silent(1, 1_500);
        assert_eq!(upstreams.outlook(9_000), Outlook::Good, "the other is up");
        upstreams.unreachable(1, 8_000);
        assert!(!upstreams.is_up(0) && !upstreams.is_up(1));
        assert_eq!(upstreams.outlook(1_500 + DEAD_MS - 1), Outlook::Good);
        for second in [9, 10, 60] {
            for number in 0..20 {
                let expected = if number < PROBES_MAX { Outlook::Probe } else { Outlook::Silence };
                assert_eq!(upstreams.outlook(second * 1_000 + u64::from(number)), expected);
            }
        }
        upstreams.answered(1, 10);
        assert_eq!(upstreams.outlook(60_100), Outlook::Good);
        upstreams.unreachable(1, 60_200);
        assert_eq!(upstreams.outlook(60_200), Outlook::Good, "it was there a moment ago");
    }

    /// An upstream that does not know EDNS is queried without it, and after a while with it again.
    #[test]
    fn edns_is_tried_again() {
        let mut upstreams = Upstreams::new(2);
        upstreams.knows_no_edns(1, 500);
        assert!(upstreams.has_edns(0, 500) && !upstreams.has_edns(1, 500));
        assert!(!upstreams.has_edns(1, 499 + PLAIN_MS) && upstreams.has_edns(1, 500 + PLAIN_MS));
    }

    /// The wait follows round trips and their deviation, doubles after each timeout, and stays
    /// within limits.
    #[test]
    fn waits_follow_round_trips() {
        let mut upstreams = Upstreams::new(1);
        for _ in 0..50 {
            upstreams.answered(0, 100_000);
        }
        let calm = upstreams.choose(0, Tried::default()).wait_ms;
        assert!((100..=110).contains(&calm), "{calm}");
        upstreams.silent(0, 0);
        assert_eq!(upstreams.choose(0, Tried::default()).wait_ms, 2 * calm);
        for _ in 0..40 {
            upstreams.silent(0, 0);
        }
        assert_eq!(upstreams.choose(0, Tried::default()).wait_ms, WAIT_MS.1);
        upstreams.answered(0, 10);
        for _ in 0..50 {
            upstreams.answered(0, 10);
        }
        assert_eq!(upstreams.choose(0, Tried::default()).wait_ms, WAIT_MS.0);
    }
}
