//! What comes from upstreams: whether it is an answer at all, and where the question goes on after
//! it.
//!
//! A packet that does not fit what was sent changes nothing: the answer may still come. Too many of
//! them, and somebody guesses.

use larder_wire::dns::Message;
use larder_wire::dns::edns::rcode;
use larder_wire::dns::rendered::{Asked as AskedOf, Facts, Kind, Rules, Unfit};

use super::admission::TRUNCATED;
use super::answer::extended;
use super::in_flight::{Attempt, Sent};
use super::upstream::{believes_ad, place, tag};
use super::{Core, Net, Now};
use crate::pending::{InFlight, Question};

/// Packets to the right ID that do not fit its question, after which somebody is taken to guess.
const MISFITS_MAX: u8 = 3;

/// A response code that says what is so, and no failure.
const YXDOMAIN: u16 = 6;

/// Whose answer is looked at, and how it was asked.
#[derive(Debug, Clone, Copy)]
struct By {
    upstream: usize,
    has_edns: bool,
    is_stream: bool,
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
    /// A packet came from an upstream, by the socket of this number. False where it answers nothing
    /// that was sent by it: it is late, or somebody guesses.
    pub fn answered(&mut self, now: Now, socket: u32, octets: &[u8], net: &mut impl Net) -> bool {
        let id = octets.first_chunk().map(|id| u16::from_be_bytes(*id));
        let attempt = id.and_then(|id| self.by_id.get(&place(socket, id).get()).copied());
        let Some(Attempt { question, number }) = attempt else {
            self.counts.upstream_mismatches += 1;
            return false;
        };
        let number = usize::from(number);
        let flight = self.pending.get_mut(question);
        let sent = flight.and_then(|flight| flight.state.sent.get_mut(number).copied());
        let Some(sent) = sent.filter(|sent| !sent.is_answered) else {
            self.counts.upstream_mismatches += 1;
            return false;
        };
        let by = By { upstream: sent.upstream, has_edns: sent.has_edns, is_stream: false };
        let next = self.judge(now, question, octets, by);
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
        self.note_answer(now, &sent);
        self.weigh(now, question, number, next, net);
        true
    }

    /// An attempt was answered: how long that took.
    fn note_answer(&mut self, now: Now, sent: &Sent) {
        let after_us = now.us.saturating_sub(sent.at_us).min(u64::from(u32::MAX)) as u32;
        let (zone, local) = self.zones.place(sent.upstream);
        self.zones.choice(zone).answered(local, after_us);
    }

    /// An attempt is over: its answer counts, unless another may do better.
    fn weigh(
        &mut self,
        now: Now,
        question: Question,
        number: usize,
        next: Next,
        net: &mut impl Net,
    ) {
        let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) else { return };
        let is_another_awaited = number + 1 != ask.sent.len() && ask.is_last_awaited();
        let last_upstream = ask.sent.last().map(|last| last.upstream);
        let Some(sent) = ask.sent.get_mut(number) else { return };
        sent.is_answered = true;
        let upstream = sent.upstream;
        match next {
            Next::Over(facts) if !(is_another_awaited && facts.kind == Kind::Inconclusive) => {
                self.over(now, question, &facts, net);
            }
            Next::Stream if Some(upstream) == last_upstream => {
                self.ask_by_stream(now, question, upstream, net);
            }
            // Another is waited for, and may do better.
            next if is_another_awaited => {
                self.counts.upstream_useless += 1;
                if let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) {
                    ask.error = next.error().or(ask.error);
                }
            }
            next => self.go_on(now, question, upstream, next, net),
        }
    }

    /// As [`Core::answered`], where the packet was longer than we said we take, and only its
    /// beginning is here: as if its sender had said so by TC.
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

    /// The attempt of a question that a backend was asked for by this stream, if it still may
    /// answer.
    fn attempt_by_stream(&self, tag: u64) -> Option<(usize, Sent)> {
        let question = Question::from_bits(tag);
        let InFlight { state: ask, .. } = self.pending.get(question)?;
        let is_meant = |stream| tag == self::tag(question, stream);
        let mut attempts = ask.sent.iter().copied().enumerate();
        attempts.find(|(_, sent)| !sent.is_answered && sent.stream.is_some_and(is_meant))
    }

    /// An answer came by a stream or from a backend, or the stream failed, or the backend did.
    pub fn answered_by_stream(
        &mut self,
        now: Now,
        tag: u64,
        octets: Option<&[u8]>,
        net: &mut impl Net,
    ) {
        let question = Question::from_bits(tag);
        let attempt = self.attempt_by_stream(tag);
        let asked = attempt.map(|(_, sent)| sent.upstream);
        let Some(upstream) = asked.or_else(|| self.asked_by_stream(tag)) else { return };
        let next = match octets {
            Some(octets) => {
                self.counts.upstream_answers += 1;
                let has_edns = match attempt {
                    Some((_, sent)) => sent.has_edns,
                    None => self.pending.get(question).is_none_or(|it| it.state.stream_has_edns),
                };
                self.judge(now, question, octets, By { upstream, has_edns, is_stream: true })
            }
            None => Next::Another(Some(extended::NETWORK_ERROR)),
        };
        // Nobody else can write into the stream: what does not fit is the upstream's own fault.
        let next = if let Next::Wait | Next::Stream = next { Next::Another(None) } else { next };
        if let Some((number, sent)) = attempt {
            match octets {
                Some(_) => self.note_answer(now, &sent),
                None => {
                    let (zone, local) = self.zones.place(upstream);
                    self.zones.choice(zone).silent(local, now.ms());
                }
            }
            return self.weigh(now, question, number, next, net);
        }
        if let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) {
            ask.by_stream = None;
        }
        self.go_on(now, question, upstream, next, net);
    }

    /// Looks at a packet; where it ends the question, what is to be stored has been rendered.
    fn judge(&mut self, now: Now, question: Question, octets: &[u8], by: By) -> Next {
        let Some(InFlight { sent, state: ask, .. }) = self.pending.get(question) else {
            return Next::Wait;
        };
        let asked = AskedOf {
            question: sent,
            is_case_random: self.settings.case_random && !by.is_stream,
            dnssec_ok: ask.dnssec_ok,
        };
        let count = self.zones.count(ask.zone).min(self.settings.attempts_max);
        let has_others = ask.tried.count() < count;
        let believes_ad = believes_ad(&self.settings, self.zones.answers(by.upstream));
        let rules = Rules { believes_ad, ..self.settings.rules };
        let facts = match self.renderer.render(octets, &asked, now.wall_s, &rules) {
            Ok(facts) => facts,
            Err(Unfit::OtherQuestion | Unfit::OtherCase) => return Next::Wait,
            Err(Unfit::Truncated) => return Next::Stream,
            Err(Unfit::AliasChain) => return Next::Failed(extended::OTHER),
            Err(Unfit::Damaged(_) | Unfit::TooLong) => return Next::Another(None),
        };
        match facts.kind {
            Kind::Data | Kind::NoData | Kind::NoName => {
                if ask.plain == Some(by.upstream) {
                    // Without EDNS it answers: it was not the question that it did not understand.
                    let (zone, local) = self.zones.place(by.upstream);
                    self.zones.choice(zone).knows_no_edns(local, now.ms());
                }
                Next::Over(facts)
            }
            // The name that a DNAME makes is too long: that is the answer (RFC 6672, section 2.2).
            Kind::Failure if facts.rcode == YXDOMAIN => Next::Over(facts),
            Kind::Inconclusive if has_others => Next::Another(None),
            Kind::Inconclusive => Next::Over(facts),
            Kind::Failure
                if by.has_edns
                    && match facts.rcode {
                        // Some repeat the OPT record that they did not understand.
                        rcode::FORMERR | rcode::BADVERS => true,
                        rcode::NOTIMP => {
                            Message::parse(octets).is_ok_and(|message| message.opt().is_none())
                        }
                        _ => false,
                    } =>
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
                ask.plain = Some(upstream);
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
}
