//! Packets from upstreams: whether a packet is the response to a query, and the next step of the
//! query.
//!
//! A packet that does not match its query changes nothing, since the true response may still
//! arrive. After too many such packets an attacker is assumed to guess.

use larder_wire::dns::Message;
use larder_wire::dns::edns::rcode;
use larder_wire::dns::rendered::{Facts, Kind, QueryInfo, Rules, Unfit};

use super::admission::TRUNCATED;
use super::answer::extended;
use super::in_flight::{Attempt, AttemptId};
use super::upstream::{believes_ad, place, tag};
use super::{Core, Net};
use crate::pending::{InFlight, QueryId};

/// Packets with the right ID that do not match the query, after which an attacker is assumed to
/// guess.
const MISMATCHES_MAX: u8 = 3;

/// A response code that is a result, not a failure.
const YXDOMAIN: u16 = 6;

/// The upstream of a response, and how it was queried.
#[derive(Debug, Clone, Copy)]
struct From {
    upstream: usize,
    has_edns: bool,
    is_stream: bool,
}

/// The next step of a query after a packet.
enum Next {
    /// It ends with the rendered response.
    Complete(Facts),
    /// It tries another upstream, or fails.
    Another(Option<u16>),
    /// It repeats the upstream over TCP.
    Stream,
    /// It repeats the upstream without EDNS.
    Plain,
    /// It fails.
    Fail(u16),
    /// It waits: the packet was not a response to it.
    Wait,
}

impl Next {
    /// The extended error of a response that does not complete the query.
    fn error(&self) -> Option<u16> {
        match self {
            Next::Another(error) => *error,
            Next::Fail(error) => Some(*error),
            _ => None,
        }
    }
}

impl Core {
    /// Processes a packet from an upstream that arrived at a socket. False if it matches nothing
    /// that was sent by this socket: it is late, or an attacker guesses.
    pub fn response(&mut self, socket: u32, message: &[u8], net: &mut impl Net) -> bool {
        let message_id = message.first_chunk().map(|id| u16::from_be_bytes(*id));
        let attempt =
            message_id.and_then(|id| self.attempts.get(&place(socket, id).get()).copied());
        let Some(AttemptId { query: id, number }) = attempt else {
            self.counts.upstream_mismatches += 1;
            return false;
        };
        let number = usize::from(number);
        let query = self.pending.get_mut(id);
        let attempt = query.and_then(|query| query.state.attempts.get_mut(number).copied());
        let Some(attempt) = attempt.filter(|attempt| !attempt.is_answered) else {
            self.counts.upstream_mismatches += 1;
            return false;
        };
        let from =
            From { upstream: attempt.upstream, has_edns: attempt.has_edns, is_stream: false };
        let next = self.judge(id, message, from);
        let Some(InFlight { state, .. }) = self.pending.get_mut(id) else { return false };
        if matches!(next, Next::Wait) {
            state.mismatches = state.mismatches.saturating_add(1);
            self.counts.upstream_mismatches += 1;
            if state.mismatches >= MISMATCHES_MAX {
                self.move_to_stream(id, net);
            }
            return false;
        }
        self.counts.upstream_answers += 1;
        self.note_round_trip(&attempt);
        self.end_attempt(id, number, next, net);
        true
    }

    fn note_round_trip(&mut self, attempt: &Attempt) {
        let after_us = self.now.us.saturating_sub(attempt.at_us).min(u64::from(u32::MAX)) as u32;
        let (zone, local) = self.zones.place(attempt.upstream);
        self.zones.choice(zone).answered(local, after_us);
    }

    /// Ends an attempt: its response counts, unless a response to another attempt may be better.
    fn end_attempt(&mut self, id: QueryId, number: usize, next: Next, net: &mut impl Net) {
        let Some(InFlight { state, .. }) = self.pending.get_mut(id) else { return };
        let is_another_awaited = number + 1 != state.attempts.len() && state.is_last_awaited();
        let last_upstream = state.attempts.last().map(|last| last.upstream);
        let Some(attempt) = state.attempts.get_mut(number) else { return };
        attempt.is_answered = true;
        let upstream = attempt.upstream;
        match next {
            Next::Complete(facts) if !(is_another_awaited && facts.kind == Kind::Inconclusive) => {
                self.complete(id, &facts, net);
            }
            Next::Stream if Some(upstream) == last_upstream => {
                self.query_by_stream(id, upstream, net);
            }
            // The response to the other attempt may be better.
            next if is_another_awaited => {
                self.counts.upstream_useless += 1;
                state.error = next.error().or(state.error);
            }
            next => self.proceed(id, upstream, next, net),
        }
    }

    /// Like [`Core::response`], for a packet longer than accepted, of which only the beginning is
    /// here: as if TC was set.
    pub fn truncated_response(&mut self, socket: u32, message: &[u8], net: &mut impl Net) -> bool {
        let mut beginning = std::mem::take(&mut self.scratch);
        beginning.clear();
        beginning.extend_from_slice(message);
        if let Some(flags) = beginning.get_mut(2) {
            *flags |= TRUNCATED;
        }
        let matches = self.response(socket, &beginning, net);
        self.scratch = beginning;
        matches
    }

    /// The upstream that is queried over this stream, if the stream is still in use.
    pub fn upstream_of_stream(&self, tag: u64) -> Option<usize> {
        let id = QueryId::from_bits(tag);
        let by_stream = self.pending.get(id).and_then(|query| query.state.by_stream);
        // Another stream may have replaced this one.
        let is_meant = |&(_, stream): &(usize, u64)| tag == self::tag(id, stream);
        by_stream.filter(is_meant).map(|(upstream, _)| upstream)
    }

    /// The attempt that queried a backend over this stream, if it is not over.
    fn attempt_by_stream(&self, tag: u64) -> Option<(usize, Attempt)> {
        let id = QueryId::from_bits(tag);
        let InFlight { state, .. } = self.pending.get(id)?;
        let is_meant = |stream| tag == self::tag(id, stream);
        let mut attempts = state.attempts.iter().copied().enumerate();
        attempts.find(|(_, it)| !it.is_answered && it.stream.is_some_and(is_meant))
    }

    /// Processes the outcome of a query over TCP or to a backend: the response, or `None` for a
    /// failure.
    pub fn stream_response(&mut self, tag: u64, message: Option<&[u8]>, net: &mut impl Net) {
        let id = QueryId::from_bits(tag);
        let attempt = self.attempt_by_stream(tag);
        let upstream = attempt.map(|(_, attempt)| attempt.upstream);
        let Some(upstream) = upstream.or_else(|| self.upstream_of_stream(tag)) else { return };
        let next = match message {
            Some(message) => {
                self.counts.upstream_answers += 1;
                let has_edns = match attempt {
                    Some((_, attempt)) => attempt.has_edns,
                    None => self.pending.get(id).is_none_or(|it| it.state.stream_has_edns),
                };
                self.judge(id, message, From { upstream, has_edns, is_stream: true })
            }
            None => Next::Another(Some(extended::NETWORK_ERROR)),
        };
        // No attacker can write into the stream, so a response that does not match is the
        // upstream's own fault.
        let next = if let Next::Wait | Next::Stream = next { Next::Another(None) } else { next };
        if let Some((number, attempt)) = attempt {
            match message {
                Some(_) => self.note_round_trip(&attempt),
                None => {
                    let (zone, local) = self.zones.place(upstream);
                    self.zones.choice(zone).silent(local, self.now.ms());
                }
            }
            return self.end_attempt(id, number, next, net);
        }
        if let Some(InFlight { state, .. }) = self.pending.get_mut(id) {
            state.by_stream = None;
        }
        self.proceed(id, upstream, next, net);
    }

    /// Decides what a packet means for a query. If it completes the query, it has been rendered.
    fn judge(&mut self, id: QueryId, message: &[u8], from: From) -> Next {
        let Some(InFlight { question, state, .. }) = self.pending.get(id) else {
            return Next::Wait;
        };
        let info = QueryInfo {
            question,
            is_case_random: self.settings.case_random && !from.is_stream,
            dnssec_ok: state.dnssec_ok,
        };
        let count = self.zones.count(state.zone).min(self.settings.attempts_max);
        let has_others = state.tried.count() < count;
        let believes_ad = believes_ad(&self.settings, self.zones.answers(from.upstream));
        let rules = Rules { believes_ad, ..self.settings.rules };
        let facts = match self.renderer.render(message, &info, self.now.wall_s, &rules) {
            Ok(facts) => facts,
            Err(Unfit::OtherQuestion | Unfit::OtherCase) => return Next::Wait,
            Err(Unfit::Truncated) => return Next::Stream,
            Err(Unfit::AliasChain) => return Next::Fail(extended::OTHER),
            Err(Unfit::Damaged(_) | Unfit::TooLong) => return Next::Another(None),
        };
        match facts.kind {
            Kind::Data | Kind::NoData | Kind::NoName => {
                if state.plain == Some(from.upstream) {
                    // It responds without EDNS: it did not understand EDNS.
                    let (zone, local) = self.zones.place(from.upstream);
                    self.zones.choice(zone).knows_no_edns(local, self.now.ms());
                }
                Next::Complete(facts)
            }
            // The name that a DNAME makes is too long: that is the result (RFC 6672, section 2.2).
            Kind::Failure if facts.rcode == YXDOMAIN => Next::Complete(facts),
            Kind::Inconclusive if has_others => Next::Another(None),
            Kind::Inconclusive => Next::Complete(facts),
            Kind::Failure
                if from.has_edns
                    && match facts.rcode {
                        // Some repeat the OPT record that they did not understand.
                        rcode::FORMERR | rcode::BADVERS => true,
                        rcode::NOTIMP => {
                            Message::parse(message).is_ok_and(|message| message.opt().is_none())
                        }
                        _ => false,
                    } =>
            {
                Next::Plain
            }
            Kind::Failure if has_others => Next::Another(facts.extended_error),
            Kind::Failure => Next::Fail(facts.extended_error.unwrap_or(extended::OTHER)),
        }
    }

    /// Carries out the decision about a response of an upstream.
    fn proceed(&mut self, id: QueryId, upstream: usize, next: Next, net: &mut impl Net) {
        match next {
            Next::Wait => {}
            Next::Complete(facts) => self.complete(id, &facts, net),
            Next::Stream => self.query_by_stream(id, upstream, net),
            Next::Fail(error) => self.fail(id, error, net),
            Next::Another(error) => {
                self.counts.upstream_useless += 1;
                if let Some(InFlight { state, .. }) = self.pending.get_mut(id) {
                    state.error = error.or(state.error);
                }
                self.try_next(id, extended::OTHER, net);
            }
            Next::Plain => {
                let Some(InFlight { state, .. }) = self.pending.get_mut(id) else { return };
                state.plain = Some(upstream);
                let (zone, local) = self.zones.place(upstream);
                state.due_ms = self.now.ms() + u64::from(self.zones.choice(zone).wait_ms(local));
                if self.query_upstream(id, upstream, true, net) {
                    self.set_timer(id);
                } else {
                    self.try_next(id, extended::OTHER, net);
                }
            }
        }
    }
}
