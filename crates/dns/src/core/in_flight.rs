//! The state of a query in flight, and its timer.
//!
//! A query is sent to one upstream after another, sometimes to two at once. Each time is an
//! attempt, found by socket and ID. There is one timer for a query, set to the earliest event: the
//! next upstream, a stale response, or its time limit.

use std::num::NonZeroU64;

use larder::KeyHash;
use larder_io::timer::TimerId;

use super::answer::extended;
use super::upstream::tag;
use super::{Core, Net};
use crate::choice::Tried;
use crate::pending::{InFlight, QueryId};

/// Attempts for a query, at most, probes of upstreams that were down included.
pub const ATTEMPTS_MAX: usize = 8;

/// Streams of a query that tags can distinguish.
const STREAMS: u64 = 1 << QueryId::SPARE_BITS;

/// Names an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttemptId {
    pub query: QueryId,
    /// Its place in [`Attempts`].
    pub number: u8,
}

/// A query that was sent to an upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// Socket and ID, mixed; `None` if it could not be sent, or was not sent over UDP.
    pub place: Option<NonZeroU64>,
    /// The stream to a backend.
    pub stream: Option<u64>,
    pub upstream: usize,
    pub at_us: u64,
    pub has_edns: bool,
    pub is_waited_for: bool,
    pub is_answered: bool,
}

impl Attempt {
    pub fn is_over(&self) -> bool {
        self.is_answered || (self.place.is_none() && self.stream.is_none())
    }
}

/// The attempts of a query, in order. The first is stored in place, since most queries have no
/// other. All of them in place would make a query larger, and so its moves and drops slower.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    first: Option<Attempt>,
    others: Vec<Attempt>,
}

impl Attempts {
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub fn push(&mut self, attempt: Attempt) {
        match self.first {
            None => self.first = Some(attempt),
            Some(_) => self.others.push(attempt),
        }
    }

    pub fn get_mut(&mut self, number: usize) -> Option<&mut Attempt> {
        match number.checked_sub(1) {
            None => self.first.as_mut(),
            Some(other) => self.others.get_mut(other),
        }
    }

    pub fn last(&self) -> Option<&Attempt> {
        self.others.last().or(self.first.as_ref())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.first.iter().chain(&self.others)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Attempt> {
        self.first.iter_mut().chain(&mut self.others)
    }
}

/// The state of a query in flight.
#[derive(Debug)]
pub(super) struct QueryState {
    pub hash: KeyHash,
    pub zone: usize,
    pub dnssec_ok: bool,
    pub checking_disabled: bool,
    /// The upstream that is queried without EDNS, since it did not understand it.
    pub plain: Option<usize>,
    pub started_us: u64,
    /// Its time limit since then, milliseconds.
    pub limit_ms: u32,
    pub tried: Tried,
    pub attempts: Attempts,
    /// When the last attempt times out, milliseconds.
    pub due_ms: u64,
    /// When a second upstream is queried too, milliseconds.
    pub hedge_ms: Option<u64>,
    /// The upstream that is queried over TCP, and the number of the stream.
    pub by_stream: Option<(usize, u64)>,
    pub stream_has_edns: bool,
    /// Streams used so far.
    pub streams: u64,
    /// Packets with the right ID that do not match the query.
    pub mismatches: u8,
    /// A stale response is cached; and it was sent to the clients that waited.
    pub has_stale: bool,
    pub was_stale_served: bool,
    /// Extended error of an upstream that could not respond.
    pub error: Option<u16>,
    pub timer: Option<TimerId>,
}

impl QueryState {
    /// The number of a new stream.
    pub fn next_stream(&mut self) -> u64 {
        self.streams += 1;
        self.streams % STREAMS
    }

    pub fn started_ms(&self) -> u64 {
        self.started_us / 1_000
    }

    /// True while a response to the last attempt may arrive.
    pub fn is_last_awaited(&self) -> bool {
        self.by_stream.is_some() || self.attempts.last().is_some_and(|last| !last.is_over())
    }
}

impl Core {
    /// True if no upstream was queried yet.
    pub(super) fn is_new(&self, id: QueryId) -> bool {
        self.pending.get(id).is_some_and(|query| query.state.attempts.len() == 0)
    }

    /// Sets a query's timer to its earliest event.
    pub(super) fn set_timer(&mut self, id: QueryId) {
        let Core { pending, timers, settings, now, .. } = self;
        let Some(InFlight { state, .. }) = pending.get_mut(id) else { return };
        let mut at_ms = state.due_ms.min(state.started_ms() + u64::from(state.limit_ms));
        at_ms = state.hedge_ms.map_or(at_ms, |hedge_ms| at_ms.min(hedge_ms));
        if state.has_stale && !state.was_stale_served {
            at_ms = at_ms.min(state.started_ms() + u64::from(settings.stale_wait_ms));
        }
        if let Some(timer) = state.timer.take() {
            timers.cancel(timer);
        }
        // There is a timer for each query that may be in flight.
        state.timer = timers.set(at_ms.max(now.ms()), id).ok();
    }

    /// Processes the timers that are due.
    pub fn tick(&mut self, net: &mut impl Net) {
        let now_ms = self.now.ms();
        while let Some(id) = self.timers.expire(now_ms) {
            let Some(InFlight { state, .. }) = self.pending.get_mut(id) else { continue };
            state.timer = None;
            let waited_ms = now_ms - state.started_ms();
            if waited_ms >= u64::from(state.limit_ms) {
                let error = state.error.unwrap_or(extended::NO_REACHABLE_AUTHORITY);
                self.note_timeout(id);
                self.fail(id, error, net);
                continue;
            }
            if state.has_stale
                && !state.was_stale_served
                && waited_ms >= u64::from(self.settings.stale_wait_ms)
            {
                state.was_stale_served = true;
                self.respond_all_stale(id, net);
            }
            let Some(InFlight { state, .. }) = self.pending.get(id) else { continue };
            if now_ms >= state.due_ms && state.mismatches > 0 && state.by_stream.is_none() {
                // The upstream does not repeat the question as sent, or an attacker guesses: TCP
                // helps in both cases.
                self.move_to_stream(id, net);
            } else if now_ms >= state.due_ms {
                self.counts.upstream_timeouts += 1;
                self.note_timeout(id);
                self.try_next(id, extended::NO_REACHABLE_AUTHORITY, net);
            } else if state.hedge_ms.is_some_and(|hedge_ms| now_ms >= hedge_ms) {
                self.counts.upstream_hedges += 1;
                self.try_next(id, extended::NO_REACHABLE_AUTHORITY, net);
            } else {
                self.set_timer(id);
            }
        }
    }

    /// Records that the last upstream did not respond in time.
    fn note_timeout(&mut self, id: QueryId) {
        let Some(InFlight { state, .. }) = self.pending.get(id) else { return };
        let Some(last) = state.attempts.last() else { return };
        if last.is_waited_for && state.by_stream.is_none() {
            let (zone, local) = self.zones.place(last.upstream);
            self.zones.choice(zone).silent(local, self.now.ms());
        }
    }

    /// Milliseconds from `now` until [`Core::tick`] has something to do.
    pub fn wait_ms(&self, now: super::Now) -> Option<u64> {
        self.timers.wait_ms(now.ms())
    }

    /// Queries whose last attempt is of a kind.
    pub(super) fn in_flight_where(&self, is_meant: impl Fn(&Attempt) -> bool) -> Vec<QueryId> {
        let is_last = |attempt: &AttemptId| {
            self.pending.get(attempt.query).is_some_and(|query| {
                let all = &query.state.attempts;
                usize::from(attempt.number) + 1 == all.len() && all.last().is_some_and(&is_meant)
            })
        };
        self.attempts.values().filter(|each| is_last(each)).map(|each| each.query).collect()
    }

    /// Removes a query, and records how long it took if an upstream was queried.
    pub(super) fn end_query(&mut self, id: QueryId, net: &mut impl Net) {
        let Core { pending, attempts, timers, counts, now, .. } = self;
        let Some(InFlight { state, .. }) = pending.get(id) else { return };
        if state.attempts.len() > 0 {
            counts.miss.note(now.us.saturating_sub(state.started_us));
        }
        for attempt in state.attempts.iter() {
            if let Some(place) = attempt.place {
                attempts.remove(&place.get());
            }
            if let Some(stream) = attempt.stream.filter(|_| !attempt.is_answered) {
                net.cancel(tag(id, stream));
            }
        }
        if let Some(timer) = state.timer {
            timers.cancel(timer);
        }
        pending.end(id);
    }
}
