//! What is kept of a question in flight, and its timer.
//!
//! A question is asked of one upstream after another, now and then of two at once: each time is an
//! attempt, found by socket and ID. There is one timer, set to what comes first: another upstream,
//! something past its end, the end of all patience.

use std::num::NonZeroU64;

use larder::KeyHash;
use larder_io::timer::TimerId;

use super::answer::extended;
use super::upstream::tag;
use super::{Core, Net, Now};
use crate::choice::Tried;
use crate::pending::{InFlight, Question};

/// Upstreams asked for one question, at most, probes of those that were down among them.
pub const ATTEMPTS_MAX: usize = 8;

/// Streams of a question that are told apart.
const STREAMS: u64 = 1 << Question::SPARE_BITS;

/// A question on its way to one upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub question: Question,
    /// Which of the question's attempts.
    pub number: u8,
}

/// What was sent, for as long as an answer to it is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// Socket and ID, mixed; `None` where it could not be sent, and of what was not sent by a
    /// socket.
    pub place: Option<NonZeroU64>,
    /// The stream by which a backend was asked: the only way to ask one.
    pub stream: Option<u64>,
    pub upstream: usize,
    pub at_us: u64,
    pub has_edns: bool,
    pub is_waited_for: bool,
    pub is_answered: bool,
}

impl Sent {
    pub fn is_over(&self) -> bool {
        self.is_answered || (self.place.is_none() && self.stream.is_none())
    }
}

/// The attempts of a question, in order. The first lies with the question: most have no other, and
/// a question is moved and dropped with as many octets as all of them would take.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    first: Option<Sent>,
    others: Vec<Sent>,
}

impl Attempts {
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub fn push(&mut self, sent: Sent) {
        match self.first {
            None => self.first = Some(sent),
            Some(_) => self.others.push(sent),
        }
    }

    pub fn get_mut(&mut self, number: usize) -> Option<&mut Sent> {
        match number.checked_sub(1) {
            None => self.first.as_mut(),
            Some(other) => self.others.get_mut(other),
        }
    }

    pub fn last(&self) -> Option<&Sent> {
        self.others.last().or(self.first.as_ref())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.first.iter().chain(&self.others)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.first.iter_mut().chain(&mut self.others)
    }
}

/// What is kept of a question in flight.
#[derive(Debug)]
pub(super) struct Ask {
    pub hash: KeyHash,
    pub zone: usize,
    pub dnssec_ok: bool,
    pub checking_disabled: bool,
    /// One that answered only that it does not know EDNS.
    pub plain: Option<usize>,
    pub begun_us: u64,
    /// It is given up after so long, milliseconds.
    pub patience_ms: u32,
    pub tried: Tried,
    pub sent: Attempts,
    /// The last that was asked is given up at this time, milliseconds.
    pub due_ms: u64,
    /// Another is asked beside the first at this time, milliseconds.
    pub hedge_ms: Option<u64>,
    /// The upstream that is asked by a stream, and the stream's number.
    pub by_stream: Option<(usize, u64)>,
    pub stream_has_edns: bool,
    /// Streams by which it was asked.
    pub streams: u64,
    pub misfits: u8,
    /// Something is held past its end; and those who waited were told so.
    pub has_stale: bool,
    pub was_told_stale: bool,
    /// What an upstream said that could not answer: extended error.
    pub error: Option<u16>,
    pub timer: Option<TimerId>,
}

impl Ask {
    /// The number of one more stream.
    pub fn next_stream(&mut self) -> u64 {
        self.streams += 1;
        self.streams % STREAMS
    }

    pub fn begun_ms(&self) -> u64 {
        self.begun_us / 1_000
    }

    /// True while an answer may come from the upstream that was asked last.
    pub fn is_last_awaited(&self) -> bool {
        self.by_stream.is_some() || self.sent.last().is_some_and(|last| !last.is_over())
    }
}

impl Core {
    /// True where nobody was asked yet.
    pub(super) fn is_new(&self, question: Question) -> bool {
        self.pending.get(question).is_some_and(|flight| flight.state.sent.len() == 0)
    }

    /// Sets a question's timer to what comes first.
    pub(super) fn set_timer(&mut self, now: Now, question: Question) {
        let Core { pending, timers, settings, .. } = self;
        let Some(InFlight { state: ask, .. }) = pending.get_mut(question) else { return };
        let mut at_ms = ask.due_ms.min(ask.begun_ms() + u64::from(ask.patience_ms));
        at_ms = ask.hedge_ms.map_or(at_ms, |hedge_ms| at_ms.min(hedge_ms));
        if ask.has_stale && !ask.was_told_stale {
            at_ms = at_ms.min(ask.begun_ms() + u64::from(settings.stale_wait_ms));
        }
        if let Some(timer) = ask.timer.take() {
            timers.cancel(timer);
        }
        // There is a timer for each question that may be in flight.
        ask.timer = timers.set(at_ms.max(now.ms()), question).ok();
    }

    /// Time has come to `now`.
    pub fn tick(&mut self, now: Now, net: &mut impl Net) {
        while let Some(question) = self.timers.expire(now.ms()) {
            let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) else {
                continue;
            };
            ask.timer = None;
            let waited_ms = now.ms() - ask.begun_ms();
            if waited_ms >= u64::from(ask.patience_ms) {
                let error = ask.error.unwrap_or(extended::NO_REACHABLE_AUTHORITY);
                self.forget_silent(now, question);
                self.fail(now, question, error, net);
                continue;
            }
            if ask.has_stale
                && !ask.was_told_stale
                && waited_ms >= u64::from(self.settings.stale_wait_ms)
            {
                ask.was_told_stale = true;
                self.tell_stale(now, question, net);
            }
            let Some(InFlight { state: ask, .. }) = self.pending.get(question) else { continue };
            if now.ms() >= ask.due_ms && ask.misfits > 0 && ask.by_stream.is_none() {
                // It does not give back what it is asked, or somebody guesses: a stream helps in
                // both cases.
                self.ask_safely(now, question, net);
            } else if now.ms() >= ask.due_ms {
                self.counts.upstream_timeouts += 1;
                self.forget_silent(now, question);
                self.ask_another(now, question, extended::NO_REACHABLE_AUTHORITY, net);
            } else if ask.hedge_ms.is_some_and(|hedge_ms| now.ms() >= hedge_ms) {
                self.counts.upstream_hedges += 1;
                self.ask_another(now, question, extended::NO_REACHABLE_AUTHORITY, net);
            } else {
                self.set_timer(now, question);
            }
        }
    }

    /// The upstream asked last did not answer in time.
    pub(super) fn forget_silent(&mut self, now: Now, question: Question) {
        let Some(InFlight { state: ask, .. }) = self.pending.get(question) else { return };
        let Some(sent) = ask.sent.last() else { return };
        if sent.is_waited_for && ask.by_stream.is_none() {
            let (zone, local) = self.zones.place(sent.upstream);
            self.zones.choice(zone).silent(local, now.ms());
        }
    }

    /// How long nothing is to be done if nothing comes, milliseconds.
    pub fn wait_ms(&self, now: Now) -> Option<u64> {
        self.timers.wait_ms(now.ms())
    }

    /// Questions whose last attempt is of a kind.
    pub(super) fn in_flight_where(&self, is_meant: impl Fn(&Sent) -> bool) -> Vec<Question> {
        let is_last = |attempt: &Attempt| {
            self.pending.get(attempt.question).is_some_and(|flight| {
                let sent = &flight.state.sent;
                usize::from(attempt.number) + 1 == sent.len() && sent.last().is_some_and(&is_meant)
            })
        };
        self.by_id.values().filter(|each| is_last(each)).map(|each| each.question).collect()
    }

    /// Notes how long a question took that upstreams were asked for.
    pub(super) fn note_time(&mut self, now: Now, question: Question) {
        let Some(InFlight { state: ask, .. }) = self.pending.get(question) else { return };
        if ask.sent.len() > 0 {
            self.counts.miss.note(now.us.saturating_sub(ask.begun_us));
        }
    }

    pub(super) fn end_question(&mut self, question: Question, net: &mut impl Net) {
        let Core { pending, by_id, timers, .. } = self;
        let Some(InFlight { state: ask, .. }) = pending.get(question) else { return };
        for sent in ask.sent.iter() {
            if let Some(place) = sent.place {
                by_id.remove(&place.get());
            }
            if let Some(stream) = sent.stream.filter(|_| !sent.is_answered) {
                net.forget(tag(question, stream));
            }
        }
        if let Some(timer) = ask.timer {
            timers.cancel(timer);
        }
        pending.end(question);
    }
}
