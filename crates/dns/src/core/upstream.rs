//! Queries to upstreams: which upstream, which transport, which bytes.
//!
//! To forge a response, an attacker must guess ID and port (RFC 5452), and the case of letters if
//! it is random. The ID is drawn after the socket is known, and is never one that still awaits a
//! response at the socket.

use std::collections::hash_map::Entry;
use std::num::NonZeroU64;

use larder_io::random::Random;
use larder_wire::dns::HEADER_BYTES;
use larder_wire::dns::edns::OPT_BYTES;

use super::answer::extended;
use super::in_flight::{ATTEMPTS_MAX, Attempt, AttemptId, QueryState};
use super::{AttemptTable, Core, Net, Now, STREAM_BYTES_MAX, Settings, local};
use crate::pending::{InFlight, QueryId};
use crate::zones::{Answers, Zones};

/// Draws of an ID before a socket counts as full.
const ID_DRAWS: usize = 8;

/// The longest query to an upstream: header, name, type and class, OPT.
pub const QUERY_BYTES_MAX: usize = HEADER_BYTES + local::QUESTION_BYTES_MAX + OPT_BYTES;

impl Core {
    /// Queries the next upstream. After the last attempt, waits for responses to earlier ones; if
    /// none can arrive, the query fails.
    pub(super) fn try_next(&mut self, id: QueryId, error: u16, net: &mut impl Net) {
        loop {
            let now_ms = self.now.ms();
            let Some(InFlight { state, .. }) = self.pending.get_mut(id) else { return };
            let attempts_max = self.settings.attempts_max.clamp(1, ATTEMPTS_MAX);
            if state.attempts.len() >= attempts_max {
                let error = state.error.unwrap_or(error);
                let is_hopeless = state.attempts.iter().all(Attempt::is_over);
                if is_hopeless {
                    return self.fail(id, error, net);
                }
                state.due_ms = u64::MAX;
                return self.set_timer(id);
            }
            let choice = self.zones.choice(state.zone).choose(now_ms, state.tried);
            state.tried.add(choice.upstream);
            state.by_stream = None;
            state.due_ms = now_ms + u64::from(choice.wait_ms);
            let hedges = self.settings.hedges
                && state.attempts.len() == 0
                && self.zones.count(state.zone) > 1;
            state.hedge_ms = hedges.then(|| now_ms + u64::from(choice.hedge_ms));
            let zone = state.zone;
            if let Some(probe) = choice.probe {
                let probe = self.zones.number(zone, probe);
                self.query_upstream(id, probe, false, net);
            }
            let upstream = self.zones.number(zone, choice.upstream);
            if self.query_upstream(id, upstream, true, net) {
                return self.set_timer(id);
            }
            self.zones.choice(zone).unreachable(choice.upstream, now_ms);
        }
    }

    /// Sends a query to an upstream over UDP, or to a backend. False if it could not be sent.
    pub(super) fn query_upstream(
        &mut self,
        id: QueryId,
        upstream: usize,
        is_waited_for: bool,
        net: &mut impl Net,
    ) -> bool {
        let Some(InFlight { question, state, .. }) = self.pending.get_mut(id) else {
            return false;
        };
        let number = state.attempts.len();
        if number == ATTEMPTS_MAX {
            return false;
        }
        let has_edns = has_edns(&self.zones, state, upstream, self.now);
        let answers = self.zones.answers(upstream);
        let flags = Flags::of(state, has_edns, &self.settings, answers);
        let (mut place, mut stream) = (None, None);
        let is_sent = if let Some(answers) = answers {
            let number = state.next_stream();
            if is_waited_for {
                state.due_ms = self.now.ms() + u64::from(answers.wait_ms);
            }
            let is_sent = send_by_stream(upstream, tag(id, number), question, flags, net);
            stream = is_sent.then_some(number);
            is_sent
        } else {
            let attempt = AttemptId { query: id, number: number as u8 };
            let is_sent = net.query_udp(upstream, |socket, out| {
                let (taken, message_id) =
                    free_place(&mut self.attempts, &mut self.random, socket, attempt)?;
                place = Some(taken);
                Some(write_query(out.first_chunk_mut()?, message_id, question, flags))
            });
            self.counts.upstream_queries_udp += u64::from(is_sent);
            is_sent
        };
        state.attempts.push(Attempt {
            place,
            stream,
            upstream,
            at_us: self.now.us,
            has_edns,
            is_waited_for,
            is_answered: false,
        });
        is_sent
    }

    /// Repeats a query to an upstream over TCP.
    pub(super) fn query_by_stream(&mut self, id: QueryId, upstream: usize, net: &mut impl Net) {
        let Some(InFlight { question, state, .. }) = self.pending.get_mut(id) else { return };
        if state.by_stream.is_some_and(|(queried, _)| queried == upstream) {
            return;
        }
        let stream = state.next_stream();
        state.by_stream = Some((upstream, stream));
        state.due_ms = self.now.ms() + u64::from(self.settings.stream_wait_ms);
        state.stream_has_edns = has_edns(&self.zones, state, upstream, self.now);
        let answers = self.zones.answers(upstream);
        let flags = Flags::of(state, state.stream_has_edns, &self.settings, answers);
        self.counts.upstream_tcp_fallbacks += 1;
        if send_by_stream(upstream, tag(id, stream), question, flags, net) {
            self.set_timer(id);
        } else {
            self.try_next(id, extended::NETWORK_ERROR, net);
        }
    }

    /// Repeats a query to the last upstream over TCP, and accepts no more responses over UDP: an
    /// attacker seems to guess.
    pub(super) fn move_to_stream(&mut self, id: QueryId, net: &mut impl Net) {
        let Core { pending, attempts, .. } = self;
        let Some(InFlight { state, .. }) = pending.get_mut(id) else { return };
        let Some(upstream) = state.attempts.last().map(|last| last.upstream) else { return };
        for attempt in state.attempts.iter_mut() {
            if let Some(place) = attempt.place.take() {
                attempts.remove(&place.get());
            }
        }
        self.query_by_stream(id, upstream, net);
    }

    /// The kernel reports that an upstream is unreachable: queries that wait for it try another.
    pub fn unreachable(&mut self, upstream: usize, net: &mut impl Net) {
        let (zone, local) = self.zones.place(upstream);
        let was_up = self.zones.choice(zone).is_up(local);
        self.zones.choice(zone).unreachable(local, self.now.ms());
        if !was_up {
            // Its queries have other upstreams, or end with their time limit: nothing has changed.
            return;
        }
        let waiting = self.in_flight_where(|attempt| {
            // An attempt with a response may continue over TCP, about which the kernel reports
            // nothing here.
            attempt.upstream == upstream && attempt.is_waited_for && !attempt.is_answered
        });
        for id in waiting {
            self.try_next(id, extended::NETWORK_ERROR, net);
        }
    }

    /// A socket is closed because an attacker seems to guess responses: queries that wait at it are
    /// repeated over TCP.
    pub fn suspect_socket(&mut self, socket: u32, net: &mut impl Net) {
        let waiting = self.in_flight_where(|attempt| {
            attempt.place.is_some_and(|place| unmix(place.get()) >> 16 == u64::from(socket))
        });
        for id in waiting {
            self.move_to_stream(id, net);
        }
    }
}

/// True if an upstream is queried with EDNS: it is not known to lack EDNS, and this query has not
/// just found that out.
fn has_edns(zones: &Zones, state: &QueryState, upstream: usize, now: Now) -> bool {
    state.plain != Some(upstream) && zones.has_edns(upstream, now.ms())
}

/// An odd number without structure, and its inverse for multiplication.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const UNMIX: u64 = 0xf1de_83e1_9937_733d;

/// Socket and ID in a word whose upper bits vary too, as hash tables need it.
pub(super) fn place(socket: u32, id: u16) -> NonZeroU64 {
    let mixed = (u64::from(socket) << 16 | u64::from(id)).wrapping_mul(MIX);
    // Only socket 0 and ID 0 give 0, and sockets are numbered from 1.
    NonZeroU64::new(mixed).unwrap_or(NonZeroU64::MAX)
}

fn unmix(place: u64) -> u64 {
    place.wrapping_mul(UNMIX)
}

/// Takes an ID that is not in use at a socket; `None` after [`ID_DRAWS`] draws, or without random
/// numbers.
fn free_place(
    attempts: &mut AttemptTable,
    random: &mut Random,
    socket: u32,
    attempt: AttemptId,
) -> Option<(NonZeroU64, u16)> {
    (0..ID_DRAWS).find_map(|_| {
        let id = random.u16().ok()?;
        let place = place(socket, id);
        let Entry::Vacant(free) = attempts.entry(place.get()) else { return None };
        free.insert(attempt);
        Some((place, id))
    })
}

/// Whether AD in an upstream's response is trusted.
pub(super) fn believes_ad(settings: &Settings, answers: Option<Answers>) -> bool {
    settings.rules.believes_ad || answers.is_some_and(|answers| answers.is_believed)
}

/// Sends a query over a stream, which chooses the ID; false if it could not be sent.
fn send_by_stream(
    upstream: usize,
    tag: u64,
    question: &[u8],
    flags: Flags,
    net: &mut impl Net,
) -> bool {
    let mut message = [0; QUERY_BYTES_MAX];
    let length = write_query(&mut message, 0, question, flags);
    net.query_stream(upstream, tag, &message[..length])
}

/// Query and stream in a word.
pub(super) fn tag(id: QueryId, stream: u64) -> u64 {
    id.to_bits() | stream << (u64::BITS - QueryId::SPARE_BITS)
}

/// Flags and EDNS of a query to a server.
#[derive(Debug, Clone, Copy)]
pub struct Flags {
    /// RD: the server is to resolve the name.
    pub recursion_desired: bool,
    /// DO, if there is EDNS.
    pub dnssec_ok: bool,
    /// CD.
    pub checking_disabled: bool,
    /// AD: the server's AD will be trusted.
    pub believes_ad: bool,
    /// The longest response accepted over UDP, if there is EDNS.
    pub udp_bytes: Option<u16>,
}

impl Flags {
    fn of(
        state: &QueryState,
        has_edns: bool,
        settings: &Settings,
        answers: Option<Answers>,
    ) -> Flags {
        Flags {
            recursion_desired: true,
            dnssec_ok: state.dnssec_ok,
            checking_disabled: state.checking_disabled,
            believes_ad: believes_ad(settings, answers),
            udp_bytes: has_edns.then_some(settings.udp_bytes_max),
        }
    }
}

/// Writes a query and returns its length; `question` is name in wire form, type and class.
pub fn write_query(
    out: &mut [u8; QUERY_BYTES_MAX],
    id: u16,
    question: &[u8],
    flags: Flags,
) -> usize {
    let end = HEADER_BYTES + question.len();
    let [id0, id1] = id.to_be_bytes();
    let low = u8::from(flags.believes_ad) << 5 | u8::from(flags.checking_disabled) << 4;
    let high = u8::from(flags.recursion_desired);
    let header = [id0, id1, high, low, 0, 1, 0, 0, 0, 0, 0, u8::from(flags.udp_bytes.is_some())];
    out[..HEADER_BYTES].copy_from_slice(&header);
    out[HEADER_BYTES..end].copy_from_slice(question);
    let Some(udp_bytes) = flags.udp_bytes else { return end };
    let [size0, size1] = udp_bytes.to_be_bytes();
    let opt = [0, 0, 41, size0, size1, 0, 0, u8::from(flags.dnssec_ok) << 7, 0, 0, 0];
    out[end..end + OPT_BYTES].copy_from_slice(&opt);
    end + OPT_BYTES
}

const _: () = assert!(MIX.wrapping_mul(UNMIX) == 1);
const _: () = assert!(STREAM_BYTES_MAX >= QUERY_BYTES_MAX);
