//! Questions that are not held: in flight until an upstream answers, or none does.

use std::num::NonZeroU64;

use larder::{KeyHash, Proxy, Ttl};
use larder_io::timer::TimerId;
use larder_wire::dns::HEADER_BYTES;
use larder_wire::dns::edns::{OPT_BYTES, option, rcode};
use larder_wire::dns::query::{KEY_BYTES_MAX, Query};
use larder_wire::dns::rendered::{Asked as AskedOf, Facts, Kind, Unfit};

use super::alias::Target;
use super::answer::{Options, extended};
use super::guard::TRUNCATED;
use super::local::Locally;
use super::{Asked, Client, Core, Net, Now, STREAM_BYTES_MAX};
use crate::choice::Tried;
use crate::key;
use crate::pending::{InFlight, Question};

/// Upstreams asked for one question, at most, probes of those that were down among them.
pub const ATTEMPTS_MAX: usize = 8;

/// Packets to the right ID that do not fit its question, after which somebody is taken to guess.
const MISFITS_MAX: u8 = 3;

/// Draws of an ID before a socket counts as full of questions.
const ID_DRAWS: usize = 8;

/// The longest question to an upstream: header, name, type and class, OPT.
pub(super) const QUESTION_BYTES_MAX: usize = HEADER_BYTES + 255 + 4 + OPT_BYTES;

/// Streams of a question that are told apart.
const STREAMS: u64 = 1 << Question::SPARE_BITS;

/// A response code that says what is so, and no failure.
const YXDOMAIN: u16 = 6;

/// What a key of a digest begins with where it stands for a failure (the digest's own mark is 255).
const DIGEST_OF_FAILURE: u8 = 0xfe;

/// A question on its way to one upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    question: Question,
    /// Which of the question's attempts.
    number: u8,
}

/// What was sent, for as long as an answer to it is taken.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    /// Socket and ID, mixed; `None` where it could not be sent.
    place: Option<NonZeroU64>,
    upstream: usize,
    at_us: u64,
    is_waited_for: bool,
    is_answered: bool,
}

impl Sent {
    fn is_over(&self) -> bool {
        self.is_answered || self.place.is_none()
    }
}

/// What is kept of a question in flight.
#[derive(Debug)]
pub(super) struct Ask {
    hash: KeyHash,
    zone: usize,
    dnssec_ok: bool,
    checking_disabled: bool,
    has_edns: bool,
    begun_us: u64,
    begun_ms: u64,
    tried: Tried,
    sent: [Sent; ATTEMPTS_MAX],
    attempts: usize,
    /// The last that was asked is given up at this time, milliseconds.
    due_ms: u64,
    /// Another is asked beside the first at this time, milliseconds.
    hedge_ms: Option<u64>,
    /// The upstream that is asked by a stream, and the stream's number.
    by_stream: Option<(usize, u64)>,
    /// Streams by which it was asked.
    streams: u64,
    misfits: u8,
    /// Something is held past its end; and those who waited were told so.
    has_stale: bool,
    was_told_stale: bool,
    /// What an upstream said that could not answer: extended error.
    error: Option<u16>,
    timer: Option<TimerId>,
}

impl Ask {
    /// True while an answer may come from the upstream that was asked last.
    fn is_last_awaited(&self) -> bool {
        let last = self.attempts.checked_sub(1).map(|last| &self.sent[last]);
        self.by_stream.is_some() || last.is_some_and(|last| !last.is_over())
    }
}

/// Why no upstream is asked.
enum NotBegun {
    /// As many questions are in flight as may be.
    Full,
    /// No zone that is forwarded has the name.
    Nobodys,
}

/// Where a question goes on after an answer.
enum Next {
    /// Over, with what was rendered.
    Over(Facts),
    /// Another upstream, or a failure.
    Another(Option<u16>),
    /// The same upstream, by a stream.
    Stream,
    /// The same upstream, without EDNS.
    Plain,
    /// There will be no answer.
    Failed(u16),
    /// What came was none.
    Wait,
}

impl Next {
    /// Why there was no answer, if that was said.
    fn error(&self) -> Option<u16> {
        match self {
            Next::Another(error) => *error,
            Next::Failed(error) => Some(*error),
            _ => None,
        }
    }
}

impl Core {
    /// What is not held: told by somebody else's question, or asked.
    pub(super) fn miss(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        has_stale: bool,
        net: &mut impl Net,
    ) {
        let Asked { client, query, view, .. } = asked;
        match self.answer_locally(now, client, query, *view, net) {
            Locally::Answered => {}
            Locally::Nothing => self.seek(now, at, asked, None, has_stale, net),
            Locally::Alias(target) => self.miss_alias(now, at, asked, target, net),
        }
    }

    /// What is held neither here nor there; `target` is what is asked for in the place of a client's question.
    pub(super) fn seek(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        target: Option<&Target>,
        has_stale: bool,
        net: &mut impl Net,
    ) {
        let Asked { client, message, query, .. } = asked;
        self.counts.misses += 1;
        if self.settings.cache_only {
            let options = Options::error(extended::NOT_AUTHORITATIVE);
            return self.answer_empty(now, client, query, rcode::REFUSED, &options, net);
        }
        let hash = self.hashes[at];
        if let Some(error) = self.known_failure(at, now) {
            self.counts.cached_failures += 1;
            let mut options = Options::error(error);
            options.push(option::EXTENDED_ERROR, &extended::CACHED_ERROR.to_be_bytes());
            return self.answer_failure(now, at, asked, has_stale, &options, net);
        }
        if target.is_none() && self.deny_below(now, at, asked, net) {
            return;
        }
        let question = match self.pending.find(hash.get(), self.keys[at].as_bytes()) {
            Some(question) => {
                self.counts.merged_questions += 1;
                self.note_stale(now, question, has_stale);
                Ok(question)
            }
            None => {
                let sent = target.map_or(query.question(), Target::question);
                self.begin_question(now, at, query, sent, has_stale)
            }
        };
        let limited = Options::error(extended::OTHER);
        let question = match question {
            Ok(question) => question,
            Err(NotBegun::Full) => {
                self.counts.limit_questions += 1;
                return self.answer_failure(now, at, asked, has_stale, &limited, net);
            }
            Err(NotBegun::Nobodys) => {
                let options = Options::error(extended::NOT_AUTHORITATIVE);
                return self.answer_empty(now, client, query, rcode::REFUSED, &options, net);
            }
        };
        let was_told_stale =
            self.pending.get(question).is_some_and(|flight| flight.state.was_told_stale);
        if was_told_stale {
            self.answer_failure(now, at, asked, true, &limited, net);
        } else if !self.pending.join(question, *client, message) {
            self.counts.limit_waiters += 1;
            self.answer_failure(now, at, asked, has_stale, &limited, net);
            if self.pending.waiters(question) == 0 && self.is_new(question) {
                // Nobody is asked what nobody waits for.
                return self.end_question(question);
            }
        }
        self.send_if_new(now, question, net);
    }

    /// Asks again for what is held and soon to end; nobody waits for it.
    pub(super) fn prefetch(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        sent: &[u8],
        net: &mut impl Net,
    ) {
        let hash = self.hashes[at];
        if !self.settings.cache_only
            && self.pending.find(hash.get(), self.keys[at].as_bytes()).is_none()
            && self.known_failure(at, now).is_none()
            && let Ok(question) = self.begin_question(now, at, &asked.query, sent, false)
        {
            self.counts.prefetches += 1;
            self.send_if_new(now, question, net);
        }
    }

    /// What is held may come to its end while a question is in flight: fetched before that, it had nothing past its end.
    fn note_stale(&mut self, now: Now, question: Question, has_stale: bool) {
        if has_stale
            && let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question)
            && !ask.has_stale
        {
            ask.has_stale = true;
            self.set_timer(now, question);
        }
    }

    /// The extended error of a failure that is remembered for a key. Others' failures are found as long as this core has any
    /// of its own: where nothing fails, nothing is looked for.
    fn known_failure(&self, at: usize, now: Now) -> Option<u16> {
        if now.wall_s >= self.failures_until_s {
            return None;
        }
        let mut room = [0; KEY_BYTES_MAX];
        let entry =
            self.proxy.get(failure_key(self.keys[at].as_bytes(), &mut room), now.seconds())?;
        entry.value().first_chunk().map(|code| u16::from_be_bytes(*code))
    }

    /// A question in flight that nobody was asked yet: that of a client, or the one in its place.
    fn begin_question(
        &mut self,
        now: Now,
        at: usize,
        query: &Query<'_>,
        question: &[u8],
        has_stale: bool,
    ) -> Result<Question, NotBegun> {
        let mut sent = std::mem::take(&mut self.sent);
        sent.clear();
        sent.extend_from_slice(question);
        let begun = self.begin_sent(now, at, query, has_stale, &mut sent);
        self.sent = sent;
        begun
    }

    /// As `begin_question`, which names the question `sent`.
    fn begin_sent(
        &mut self,
        now: Now,
        at: usize,
        query: &Query<'_>,
        has_stale: bool,
        sent: &mut [u8],
    ) -> Result<Question, NotBegun> {
        let name_bytes = sent.len() - 4;
        sent[..name_bytes].make_ascii_lowercase();
        let zone = self.zones.find(&sent[..name_bytes]).ok_or(NotBegun::Nobodys)?;
        if self.settings.case_random {
            random_case(&mut sent[..name_bytes], &mut self.random);
        }
        let ask = Ask {
            hash: self.hashes[at],
            zone,
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.checking_disabled,
            has_edns: true,
            begun_us: now.us,
            begun_ms: now.ms(),
            tried: Tried::default(),
            sent: [Sent::default(); ATTEMPTS_MAX],
            attempts: 0,
            due_ms: 0,
            hedge_ms: None,
            by_stream: None,
            streams: 0,
            misfits: 0,
            has_stale,
            was_told_stale: false,
            error: None,
            timer: None,
        };
        let key = self.keys[at].as_bytes();
        self.pending.begin(ask.hash.get(), key, sent, ask).ok_or(NotBegun::Full)
    }

    /// True where nobody was asked yet.
    fn is_new(&self, question: Question) -> bool {
        self.pending.get(question).is_some_and(|flight| flight.state.attempts == 0)
    }

    fn send_if_new(&mut self, now: Now, question: Question, net: &mut impl Net) {
        if self.is_new(question) {
            self.ask_another(now, question, extended::NO_REACHABLE_AUTHORITY, net);
        }
    }

    /// Asks the next upstream. Where enough were asked, those that have not answered yet are waited for; where none is
    /// left, the question has failed.
    fn ask_another(&mut self, now: Now, question: Question, error: u16, net: &mut impl Net) {
        loop {
            let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) else { return };
            let attempts_max = self.settings.attempts_max.clamp(1, ATTEMPTS_MAX);
            if ask.attempts >= attempts_max {
                let error = ask.error.unwrap_or(error);
                let is_hopeless = ask.sent[..ask.attempts].iter().all(Sent::is_over);
                if is_hopeless {
                    return self.fail(now, question, error, net);
                }
                ask.due_ms = u64::MAX;
                return self.set_timer(now, question);
            }
            let choice = self.zones.choice(ask.zone).choose(now.ms(), ask.tried);
            ask.tried.add(choice.upstream);
            ask.by_stream = None;
            ask.due_ms = now.ms() + u64::from(choice.wait_ms);
            let hedges =
                self.settings.hedges && ask.attempts == 0 && self.zones.count(ask.zone) > 1;
            ask.hedge_ms = hedges.then(|| now.ms() + u64::from(choice.hedge_ms));
            let zone = ask.zone;
            if let Some(probe) = choice.probe {
                let probe = self.zones.number(zone, probe);
                self.ask_upstream(now, question, probe, false, net);
            }
            let upstream = self.zones.number(zone, choice.upstream);
            if self.ask_upstream(now, question, upstream, true, net) {
                return self.set_timer(now, question);
            }
            self.zones.choice(zone).unreachable(choice.upstream, now.ms());
        }
    }

    /// Sends a question to an upstream over UDP. False where it could not be sent.
    fn ask_upstream(
        &mut self,
        now: Now,
        question: Question,
        upstream: usize,
        is_waited_for: bool,
        net: &mut impl Net,
    ) -> bool {
        let Some(InFlight { sent, state: ask, .. }) = self.pending.get_mut(question) else {
            return false;
        };
        let number = ask.attempts;
        let Some(slot) = ask.sent.get_mut(number) else { return false };
        ask.attempts += 1;
        slot.upstream = upstream;
        let message = &mut *self.asking;
        let Ok(mut id) = self.random.u16() else { return false };
        for _ in 0..ID_DRAWS {
            let flags = Flags {
                dnssec_ok: ask.dnssec_ok,
                checking_disabled: ask.checking_disabled,
                believes_ad: self.settings.rules.believes_ad,
                udp_bytes: ask.has_edns.then_some(self.settings.udp_bytes_max),
            };
            let length = write_question(message, id, sent, flags);
            // The socket is known only once it was chosen; one that has the ID in use already is rare, and then
            // the question is sent a second time, with another.
            let Some(socket) = net.ask(upstream, &message[..length]) else { return false };
            let place = place(socket, id);
            if let std::collections::hash_map::Entry::Vacant(free) = self.by_id.entry(place.get()) {
                free.insert(Attempt { question, number: number as u8 });
                *slot = Sent {
                    place: Some(place),
                    upstream,
                    at_us: now.us,
                    is_waited_for,
                    is_answered: false,
                };
                self.counts.upstream_queries_udp += 1;
                return true;
            }
            id = id.wrapping_add(1);
        }
        false
    }

    /// The same upstream again, by a stream.
    fn ask_by_stream(&mut self, now: Now, question: Question, upstream: usize, net: &mut impl Net) {
        let Some(InFlight { sent, state: ask, .. }) = self.pending.get_mut(question) else {
            return;
        };
        if ask.by_stream.is_some_and(|(asked, _)| asked == upstream) {
            return;
        }
        ask.streams += 1;
        let stream = ask.streams % STREAMS;
        ask.by_stream = Some((upstream, stream));
        ask.due_ms = now.ms() + u64::from(self.settings.stream_wait_ms);
        let mut message = [0; QUESTION_BYTES_MAX];
        let flags = Flags {
            dnssec_ok: ask.dnssec_ok,
            checking_disabled: ask.checking_disabled,
            believes_ad: self.settings.rules.believes_ad,
            udp_bytes: ask.has_edns.then_some(self.settings.udp_bytes_max),
        };
        let length = write_question(&mut message, 0, sent, flags);
        self.counts.upstream_tcp_fallbacks += 1;
        if net.ask_by_stream(upstream, tag(question, stream), &message[..length]) {
            self.set_timer(now, question);
        } else {
            self.ask_another(now, question, extended::NETWORK_ERROR, net);
        }
    }

    /// Somebody guesses at the answers to this question: who was asked last is asked by a stream, and what comes over UDP
    /// is no answer any more.
    fn ask_safely(&mut self, now: Now, question: Question, net: &mut impl Net) {
        let Core { pending, by_id, .. } = self;
        let Some(InFlight { state: ask, .. }) = pending.get_mut(question) else { return };
        let Some(last) = ask.attempts.checked_sub(1) else { return };
        for sent in &mut ask.sent[..=last] {
            if let Some(place) = sent.place.take() {
                by_id.remove(&place.get());
            }
        }
        let upstream = ask.sent[last].upstream;
        self.ask_by_stream(now, question, upstream, net);
    }

    /// A packet came from an upstream, by the socket of this number. False where it answers nothing that was sent by it:
    /// it is late, or somebody guesses.
    pub fn answered(&mut self, now: Now, socket: u32, octets: &[u8], net: &mut impl Net) -> bool {
        let id = octets.first_chunk().map(|id| u16::from_be_bytes(*id));
        let attempt = id.and_then(|id| self.by_id.get(&place(socket, id).get()).copied());
        let Some(Attempt { question, number }) = attempt else {
            self.counts.upstream_mismatches += 1;
            return false;
        };
        let number = usize::from(number);
        let is_new = |ask: &Ask| !ask.sent[number].is_answered;
        if !self.pending.get(question).is_some_and(|flight| is_new(flight.state)) {
            self.counts.upstream_mismatches += 1;
            return false;
        }
        let next = self.judge(now, question, octets, false);
        let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) else {
            return false;
        };
        if matches!(next, Next::Wait) {
            ask.misfits = ask.misfits.saturating_add(1);
            self.counts.upstream_mismatches += 1;
            if ask.misfits >= MISFITS_MAX {
                self.ask_safely(now, question, net);
            }
            return false;
        }
        self.counts.upstream_answers += 1;
        let is_another_awaited = number + 1 != ask.attempts && ask.is_last_awaited();
        let last_upstream = ask.sent[ask.attempts - 1].upstream;
        let sent = &mut ask.sent[number];
        sent.is_answered = true;
        let sent = *sent;
        let after_us = now.us.saturating_sub(sent.at_us).min(u64::from(u32::MAX)) as u32;
        let (zone, local) = self.zones.place(sent.upstream);
        self.zones.choice(zone).answered(local, after_us);
        match next {
            Next::Over(facts) if !(is_another_awaited && facts.kind == Kind::Inconclusive) => {
                self.over(now, question, &facts, net);
            }
            Next::Stream if sent.upstream == last_upstream => {
                self.ask_by_stream(now, question, sent.upstream, net);
            }
            // Another is waited for, and may do better.
            next if is_another_awaited => {
                self.counts.upstream_useless += 1;
                if let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) {
                    ask.error = next.error().or(ask.error);
                }
            }
            next => self.go_on(now, question, sent.upstream, next, net),
        }
        true
    }

    /// As [`Core::answered`], where the packet was longer than we said we take, and only its beginning is here: as if its sender
    /// had said so by TC.
    pub fn answered_in_part(
        &mut self,
        now: Now,
        socket: u32,
        octets: &[u8],
        net: &mut impl Net,
    ) -> bool {
        let mut beginning = std::mem::take(&mut self.scratch);
        beginning.clear();
        beginning.extend_from_slice(octets);
        if let Some(flags) = beginning.get_mut(2) {
            *flags |= TRUNCATED;
        }
        let fits = self.answered(now, socket, &beginning, net);
        self.scratch = beginning;
        fits
    }

    /// The upstream that a question is asked from by this stream, if it is.
    pub fn asked_by_stream(&self, tag: u64) -> Option<usize> {
        let question = Question::from_bits(tag);
        let asked = self.pending.get(question).and_then(|flight| flight.state.by_stream);
        // Another stream may have been given up for this one.
        let is_meant = |&(_, stream): &(usize, u64)| tag == self::tag(question, stream);
        asked.filter(is_meant).map(|(upstream, _)| upstream)
    }

    /// An answer came by a stream, or the stream failed.
    pub fn answered_by_stream(
        &mut self,
        now: Now,
        tag: u64,
        octets: Option<&[u8]>,
        net: &mut impl Net,
    ) {
        let question = Question::from_bits(tag);
        let Some(upstream) = self.asked_by_stream(tag) else { return };
        let next = match octets {
            Some(octets) => {
                self.counts.upstream_answers += 1;
                self.judge(now, question, octets, true)
            }
            None => Next::Another(Some(extended::NETWORK_ERROR)),
        };
        // Nobody else can write into the stream: what does not fit is the upstream's own fault.
        let next = if let Next::Wait | Next::Stream = next { Next::Another(None) } else { next };
        if let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) {
            ask.by_stream = None;
        }
        self.go_on(now, question, upstream, next, net);
    }

    /// Looks at a packet; where it ends the question, what is to be stored has been rendered.
    fn judge(&mut self, now: Now, question: Question, octets: &[u8], is_stream: bool) -> Next {
        let Some(InFlight { sent, state: ask, .. }) = self.pending.get(question) else {
            return Next::Wait;
        };
        let asked = AskedOf {
            question: sent,
            is_case_random: self.settings.case_random && !is_stream,
            dnssec_ok: ask.dnssec_ok,
        };
        let count = self.zones.count(ask.zone).min(self.settings.attempts_max);
        let has_others = ask.tried.count() < count;
        let facts = match self.renderer.render(octets, &asked, now.wall_s, &self.settings.rules) {
            Ok(facts) => facts,
            Err(Unfit::OtherQuestion | Unfit::OtherCase) => return Next::Wait,
            Err(Unfit::Truncated) => return Next::Stream,
            Err(Unfit::AliasChain) => return Next::Failed(extended::OTHER),
            Err(Unfit::Damaged(_) | Unfit::TooLong) => return Next::Another(None),
        };
        match facts.kind {
            Kind::Data | Kind::NoData | Kind::NoName => Next::Over(facts),
            // The name that a DNAME makes is too long: that is the answer (RFC 6672, section 2.2).
            Kind::Failure if facts.rcode == YXDOMAIN => Next::Over(facts),
            Kind::Inconclusive if has_others => Next::Another(None),
            Kind::Inconclusive => Next::Over(facts),
            Kind::Failure
                if ask.has_edns
                    && matches!(facts.rcode, rcode::FORMERR | rcode::NOTIMP)
                    && !has_opt(octets) =>
            {
                Next::Plain
            }
            Kind::Failure if has_others => Next::Another(facts.extended_error),
            Kind::Failure => Next::Failed(facts.extended_error.unwrap_or(extended::OTHER)),
        }
    }

    /// Does what a look at an answer of an upstream said.
    fn go_on(
        &mut self,
        now: Now,
        question: Question,
        upstream: usize,
        next: Next,
        net: &mut impl Net,
    ) {
        match next {
            Next::Wait => {}
            Next::Over(facts) => self.over(now, question, &facts, net),
            Next::Stream => self.ask_by_stream(now, question, upstream, net),
            Next::Failed(error) => self.fail(now, question, error, net),
            Next::Another(error) => {
                self.counts.upstream_useless += 1;
                if let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) {
                    ask.error = error.or(ask.error);
                }
                self.ask_another(now, question, extended::OTHER, net);
            }
            Next::Plain => {
                let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) else {
                    return;
                };
                ask.has_edns = false;
                let (zone, local) = self.zones.place(upstream);
                ask.due_ms = now.ms() + u64::from(self.zones.choice(zone).wait_ms(local));
                if self.ask_upstream(now, question, upstream, true, net) {
                    self.set_timer(now, question);
                } else {
                    self.ask_another(now, question, extended::OTHER, net);
                }
            }
        }
    }

    /// A question has its answer: it is kept, and everybody is told.
    fn over(&mut self, now: Now, question: Question, facts: &Facts, net: &mut impl Net) {
        let Some(InFlight { key, state: ask, .. }) = self.pending.get(question) else { return };
        if facts.ttl_s > 0 {
            let (stored, ttl) = (self.renderer.stored(), Ttl::seconds(facts.ttl_s));
            let kept = self.writer.insert_hashed(ask.hash, key, stored, ttl, now.seconds());
            if kept.is_err() {
                self.counts.limit_cache_writes += 1;
            }
            if facts.kind == Kind::NoName && facts.aliases == 0 {
                self.remember_denied(now, question, ttl);
            }
        } else if ask.has_stale && facts.kind != Kind::Inconclusive {
            // What is past its end has been replaced by what may not be kept: it must not come back.
            if self.writer.remove(key).is_err() {
                self.counts.limit_cache_writes += 1;
            }
        }
        self.tell_all(question, net, |core, client, query, net| {
            core.tell_rendered(now, client, query, net);
        });
        self.note_time(now, question);
        self.end_question(question);
    }

    /// A question has none: that is remembered, and those who wait get what is held past its end, or are told.
    fn fail(&mut self, now: Now, question: Question, error: u16, net: &mut impl Net) {
        let Some(InFlight { key, state: ask, .. }) = self.pending.get(question) else { return };
        let has_stale = ask.has_stale;
        let mut room = [0; KEY_BYTES_MAX];
        let (failure, code) = (failure_key(key, &mut room), error.to_be_bytes());
        let ttl = Ttl::seconds(if has_stale {
            self.settings.stale_ttl_s
        } else {
            self.settings.rules.failure_ttl_s
        });
        let until_s = ttl.as_seconds().map_or(u32::MAX, |ttl_s| now.wall_s.saturating_add(ttl_s));
        self.failures_until_s = self.failures_until_s.max(until_s);
        if self.writer.insert(failure, &code, ttl, now.seconds()).is_err() {
            self.counts.limit_cache_writes += 1;
        }
        self.counts.upstream_failures += 1;
        if !has_stale || !self.tell_stale(now, question, net) {
            let options = Options::error(error);
            self.tell_all(question, net, |core, client, query, net| {
                core.answer_empty(now, client, query, rcode::SERVFAIL, &options, net);
            });
        }
        self.note_time(now, question);
        self.end_question(question);
    }

    /// Tells those who wait what is held past its end; false where that is gone meanwhile.
    fn tell_stale(&mut self, now: Now, question: Question, net: &mut impl Net) -> bool {
        let Some(InFlight { key, state: ask, .. }) = self.pending.get(question) else {
            return false;
        };
        if !copy_stale(&self.proxy, ask.hash, key, now, &mut self.stale) {
            return false;
        }
        let stale = std::mem::take(&mut self.stale);
        self.tell_all(question, net, |core, client, query, net| {
            core.answer_stale(now, client, query, &stale, net);
        });
        self.stale = stale;
        true
    }

    /// Answers with something past its end.
    fn answer_stale(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        stored: &[u8],
        net: &mut impl Net,
    ) {
        self.counts.stale_answers += 1;
        let is_denied = stored.get(6..8) == Some(&rcode::NXDOMAIN.to_be_bytes());
        let code = if is_denied { extended::STALE_NXDOMAIN } else { extended::STALE_ANSWER };
        let ttl_s = self.settings.stale_ttl_s;
        self.answer_about(now, client, query, stored, ttl_s, &Options::error(code), net);
    }

    /// A client that cannot wait: what is held past its end, or SERVFAIL.
    fn answer_failure(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        has_stale: bool,
        options: &Options,
        net: &mut impl Net,
    ) {
        let Asked { client, query, .. } = asked;
        let key = self.keys[at].as_bytes();
        if has_stale && copy_stale(&self.proxy, self.hashes[at], key, now, &mut self.stale) {
            let stale = std::mem::take(&mut self.stale);
            self.answer_stale(now, client, query, &stale, net);
            self.stale = stale;
            return;
        }
        self.answer_empty(now, client, query, rcode::SERVFAIL, options, net);
    }

    /// Calls `tell` for each who waits.
    fn tell_all<N: Net>(
        &mut self,
        question: Question,
        net: &mut N,
        mut tell: impl FnMut(&mut Core, &Client, &Query<'_>, &mut N),
    ) {
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        while let Some(client) = self.pending.next_waiter(question, &mut message) {
            let mut key = std::mem::take(&mut self.scratch_key);
            // It was read before it was kept.
            if let Ok(query) = Query::read(&message, &mut key) {
                tell(self, &client, &query, net);
            }
            self.scratch_key = key;
            message.clear();
        }
        self.scratch = message;
    }

    /// Notes how long a question took that upstreams were asked for.
    fn note_time(&mut self, now: Now, question: Question) {
        let Some(InFlight { state: ask, .. }) = self.pending.get(question) else { return };
        if ask.attempts > 0 {
            self.counts.miss.note(now.us.saturating_sub(ask.begun_us));
        }
    }

    fn end_question(&mut self, question: Question) {
        let Core { pending, by_id, timers, .. } = self;
        let Some(InFlight { state: ask, .. }) = pending.get(question) else { return };
        for sent in &ask.sent[..ask.attempts] {
            if let Some(place) = sent.place {
                by_id.remove(&place.get());
            }
        }
        if let Some(timer) = ask.timer {
            timers.cancel(timer);
        }
        pending.end(question);
    }

    /// Sets a question's timer to what comes first.
    fn set_timer(&mut self, now: Now, question: Question) {
        let Core { pending, timers, settings, .. } = self;
        let Some(InFlight { state: ask, .. }) = pending.get_mut(question) else { return };
        let mut at_ms = ask.due_ms.min(ask.begun_ms + u64::from(settings.question_ms_max));
        at_ms = ask.hedge_ms.map_or(at_ms, |hedge_ms| at_ms.min(hedge_ms));
        if ask.has_stale && !ask.was_told_stale {
            at_ms = at_ms.min(ask.begun_ms + u64::from(settings.stale_wait_ms));
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
            let waited_ms = now.ms() - ask.begun_ms;
            if waited_ms >= u64::from(self.settings.question_ms_max) {
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
                // It does not give back what it is asked, or somebody guesses: a stream helps in both cases.
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
    fn forget_silent(&mut self, now: Now, question: Question) {
        let Some(InFlight { state: ask, .. }) = self.pending.get(question) else { return };
        let Some(sent) = ask.attempts.checked_sub(1).map(|last| ask.sent[last]) else { return };
        if sent.is_waited_for && ask.by_stream.is_none() {
            let (zone, local) = self.zones.place(sent.upstream);
            self.zones.choice(zone).silent(local, now.ms());
        }
    }

    /// An upstream cannot be reached, says the kernel: whoever waits for it asks another.
    pub fn unreachable(&mut self, now: Now, upstream: usize, net: &mut impl Net) {
        let (zone, local) = self.zones.place(upstream);
        let was_up = self.zones.choice(zone).is_up(local);
        self.zones.choice(zone).unreachable(local, now.ms());
        if !was_up {
            // Its questions have other upstreams, or wait for their end: nothing new was learned.
            return;
        }
        let asked = self.in_flight_where(|sent| {
            // Who has answered may be asked by a stream, of which the kernel says nothing here.
            sent.upstream == upstream && sent.is_waited_for && !sent.is_answered
        });
        for question in asked {
            self.ask_another(now, question, extended::NETWORK_ERROR, net);
        }
    }

    /// Questions whose last attempt is of a kind.
    fn in_flight_where(&self, is_meant: impl Fn(&Sent) -> bool) -> Vec<Question> {
        let is_last = |attempt: &Attempt| {
            self.pending.get(attempt.question).is_some_and(|flight| {
                let last = flight.state.attempts.checked_sub(1);
                last == Some(usize::from(attempt.number))
                    && last.is_some_and(|last| is_meant(&flight.state.sent[last]))
            })
        };
        self.by_id.values().filter(|each| is_last(each)).map(|each| each.question).collect()
    }

    /// How long nothing is to be done if nothing comes, milliseconds.
    pub fn wait_ms(&self, now: Now) -> Option<u64> {
        self.timers.wait_ms(now.ms())
    }

    /// The socket of this number is closed: what was asked by it and is still waited for is asked by a stream, since
    /// somebody seems to guess at its answers.
    pub fn suspect(&mut self, now: Now, socket: u32, net: &mut impl Net) {
        let asked = self.in_flight_where(|sent| {
            sent.place.is_some_and(|place| unmix(place.get()) >> 16 == u64::from(socket))
        });
        for question in asked {
            self.ask_safely(now, question, net);
        }
    }
}

/// An odd number without structure, and the one that undoes multiplying by it.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const UNMIX: u64 = 0xf1de_83e1_9937_733d;

/// Socket and ID in a word whose upper bits vary too, as hash tables want it.
fn place(socket: u32, id: u16) -> NonZeroU64 {
    let mixed = (u64::from(socket) << 16 | u64::from(id)).wrapping_mul(MIX);
    // Only socket 0 and ID 0 give 0, and sockets are numbered from 1.
    NonZeroU64::new(mixed).unwrap_or(NonZeroU64::MAX)
}

/// Question and stream in a word.
fn tag(question: Question, stream: u64) -> u64 {
    question.to_bits() | stream << (u64::BITS - Question::SPARE_BITS)
}

fn unmix(place: u64) -> u64 {
    place.wrapping_mul(UNMIX)
}

/// Copies what is held for a key, past its end or not; false where nothing is.
fn copy_stale(proxy: &Proxy, hash: KeyHash, key: &[u8], now: Now, out: &mut Vec<u8>) -> bool {
    let Some(entry) = proxy.get_stale_hashed(hash, key, now.seconds()) else { return false };
    out.clear();
    out.extend_from_slice(entry.value());
    true
}

/// The key of what is remembered of a question that failed.
fn failure_key<'a>(key: &[u8], room: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
    let made = &mut room[..key.len()];
    made.copy_from_slice(key);
    match made.first_mut() {
        Some(first @ 0xff) => *first = DIGEST_OF_FAILURE,
        _ => {
            if let Some(flags) = made.len().checked_sub(key::EXTRA_BYTES) {
                made[flags] |= key::FAILURE;
            }
        }
    }
    made
}

/// What a question to an upstream says beside its question.
#[derive(Debug, Clone, Copy)]
struct Flags {
    dnssec_ok: bool,
    checking_disabled: bool,
    believes_ad: bool,
    /// What we take over UDP, if we speak EDNS.
    udp_bytes: Option<u16>,
}

/// Writes a question; its length.
fn write_question(
    out: &mut [u8; QUESTION_BYTES_MAX],
    id: u16,
    question: &[u8],
    flags: Flags,
) -> usize {
    let end = HEADER_BYTES + question.len();
    let [id0, id1] = id.to_be_bytes();
    let low = u8::from(flags.believes_ad) << 5 | u8::from(flags.checking_disabled) << 4;
    let header = [id0, id1, 1, low, 0, 1, 0, 0, 0, 0, 0, u8::from(flags.udp_bytes.is_some())];
    out[..HEADER_BYTES].copy_from_slice(&header);
    out[HEADER_BYTES..end].copy_from_slice(question);
    let Some(udp_bytes) = flags.udp_bytes else { return end };
    let [size0, size1] = udp_bytes.to_be_bytes();
    let opt = [0, 0, 41, size0, size1, 0, 0, u8::from(flags.dnssec_ok) << 7, 0, 0, 0];
    out[end..end + OPT_BYTES].copy_from_slice(&opt);
    end + OPT_BYTES
}

/// Gives each letter a case that nobody can foresee (0x20).
fn random_case(name: &mut [u8], random: &mut larder_io::random::Random) {
    for octets in name.chunks_mut(64) {
        // Without random numbers the letters stay small, and the answer is held against that.
        let Ok(mut bits) = random.u64() else { return };
        for octet in octets {
            // Octets of length are below those of letters.
            if octet.is_ascii_lowercase() && bits & 1 == 1 {
                octet.make_ascii_uppercase();
            }
            bits >>= 1;
        }
    }
}

/// True where a response has an OPT record, as far as its counts and its end tell.
fn has_opt(message: &[u8]) -> bool {
    use larder_wire::dns::{Message, rtype};
    let Ok(message) = Message::parse(message) else { return false };
    message.records().any(|record| record.is_ok_and(|record| record.rtype == rtype::OPT))
}

const _: () = assert!(MIX.wrapping_mul(UNMIX) == 1);
const _: () = assert!(STREAM_BYTES_MAX >= QUESTION_BYTES_MAX);
