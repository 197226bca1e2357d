//! Asking upstreams: which one, by which way, in what octets.
//!
//! Who wants to forge an answer must guess ID and port (RFC 5452), and the letters where they are
//! random. An ID is drawn once the socket is known, and never one that the socket still waits for.

use std::collections::hash_map::Entry;
use std::num::NonZeroU64;

use larder_io::random::Random;
use larder_wire::dns::HEADER_BYTES;
use larder_wire::dns::edns::OPT_BYTES;

use super::answer::extended;
use super::in_flight::{ATTEMPTS_MAX, Ask, Attempt, Sent};
use super::local;
use super::{ById, Core, Net, Now, STREAM_BYTES_MAX, Settings};
use crate::pending::{InFlight, Question};
use crate::zones::{Answers, Zones};

/// Draws of an ID before a socket counts as full of questions.
const ID_DRAWS: usize = 8;

/// The longest question to an upstream: header, name, type and class, OPT.
pub const ASK_BYTES_MAX: usize = HEADER_BYTES + local::QUESTION_BYTES_MAX + OPT_BYTES;

impl Core {
    /// Asks the next upstream. Where enough were asked, those that have not answered yet are waited
    /// for; where none is left, the question has failed.
    pub(super) fn ask_another(
        &mut self,
        now: Now,
        question: Question,
        error: u16,
        net: &mut impl Net,
    ) {
        loop {
            let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question) else { return };
            let attempts_max = self.settings.attempts_max.clamp(1, ATTEMPTS_MAX);
            if ask.sent.len() >= attempts_max {
                let error = ask.error.unwrap_or(error);
                let is_hopeless = ask.sent.iter().all(Sent::is_over);
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
                self.settings.hedges && ask.sent.len() == 0 && self.zones.count(ask.zone) > 1;
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

    /// Sends a question to an upstream: over UDP, or to a backend. False where it could not be
    /// sent.
    pub(super) fn ask_upstream(
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
        let number = ask.sent.len();
        if number == ATTEMPTS_MAX {
            return false;
        }
        let has_edns = asks_with_edns(&self.zones, ask, upstream, now);
        let answers = self.zones.answers(upstream);
        let flags = Flags::of(ask, has_edns, &self.settings, answers);
        let (mut place, mut stream) = (None, None);
        let is_sent = if let Some(answers) = answers {
            let number = ask.next_stream();
            if is_waited_for {
                ask.due_ms = now.ms() + u64::from(answers.wait_ms);
            }
            let is_sent = send_by_stream(upstream, tag(question, number), sent, flags, net);
            stream = is_sent.then_some(number);
            is_sent
        } else {
            let attempt = Attempt { question, number: number as u8 };
            let is_sent = net.ask(upstream, |socket, out| {
                let (taken, id) = free_place(&mut self.by_id, &mut self.random, socket, attempt)?;
                place = Some(taken);
                Some(write_question(out.first_chunk_mut()?, id, sent, flags))
            });
            self.counts.upstream_queries_udp += u64::from(is_sent);
            is_sent
        };
        ask.sent.push(Sent {
            place,
            stream,
            upstream,
            at_us: now.us,
            has_edns,
            is_waited_for,
            is_answered: false,
        });
        is_sent
    }

    /// The same upstream again, by a stream.
    pub(super) fn ask_by_stream(
        &mut self,
        now: Now,
        question: Question,
        upstream: usize,
        net: &mut impl Net,
    ) {
        let Some(InFlight { sent, state: ask, .. }) = self.pending.get_mut(question) else {
            return;
        };
        if ask.by_stream.is_some_and(|(asked, _)| asked == upstream) {
            return;
        }
        let stream = ask.next_stream();
        ask.by_stream = Some((upstream, stream));
        ask.due_ms = now.ms() + u64::from(self.settings.stream_wait_ms);
        ask.stream_has_edns = asks_with_edns(&self.zones, ask, upstream, now);
        let answers = self.zones.answers(upstream);
        let flags = Flags::of(ask, ask.stream_has_edns, &self.settings, answers);
        self.counts.upstream_tcp_fallbacks += 1;
        if send_by_stream(upstream, tag(question, stream), sent, flags, net) {
            self.set_timer(now, question);
        } else {
            self.ask_another(now, question, extended::NETWORK_ERROR, net);
        }
    }

    /// Somebody guesses at the answers to this question: who was asked last is asked by a stream,
    /// and what comes over UDP is no answer any more.
    pub(super) fn ask_safely(&mut self, now: Now, question: Question, net: &mut impl Net) {
        let Core { pending, by_id, .. } = self;
        let Some(InFlight { state: ask, .. }) = pending.get_mut(question) else { return };
        let Some(upstream) = ask.sent.last().map(|last| last.upstream) else { return };
        for sent in ask.sent.iter_mut() {
            if let Some(place) = sent.place.take() {
                by_id.remove(&place.get());
            }
        }
        self.ask_by_stream(now, question, upstream, net);
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

    /// The socket of this number is closed: what was asked by it and is still waited for is asked
    /// by a stream, since somebody seems to guess at its answers.
    pub fn suspect(&mut self, now: Now, socket: u32, net: &mut impl Net) {
        let asked = self.in_flight_where(|sent| {
            sent.place.is_some_and(|place| unmix(place.get()) >> 16 == u64::from(socket))
        });
        for question in asked {
            self.ask_safely(now, question, net);
        }
    }
}

/// True where an upstream is asked with EDNS: nothing is known of it that speaks against it, and it
/// has not just said so.
fn asks_with_edns(zones: &Zones, ask: &Ask, upstream: usize, now: Now) -> bool {
    ask.plain != Some(upstream) && zones.has_edns(upstream, now.ms())
}

/// An odd number without structure, and the one that undoes multiplying by it.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const UNMIX: u64 = 0xf1de_83e1_9937_733d;

/// Socket and ID in a word whose upper bits vary too, as hash tables want it.
pub(super) fn place(socket: u32, id: u16) -> NonZeroU64 {
    let mixed = (u64::from(socket) << 16 | u64::from(id)).wrapping_mul(MIX);
    // Only socket 0 and ID 0 give 0, and sockets are numbered from 1.
    NonZeroU64::new(mixed).unwrap_or(NonZeroU64::MAX)
}

fn unmix(place: u64) -> u64 {
    place.wrapping_mul(UNMIX)
}

/// Takes an ID that is not in use at a socket; `None` where there is none among so many, or no
/// random numbers.
fn free_place(
    by_id: &mut ById,
    random: &mut Random,
    socket: u32,
    attempt: Attempt,
) -> Option<(NonZeroU64, u16)> {
    (0..ID_DRAWS).find_map(|_| {
        let id = random.u16().ok()?;
        let place = place(socket, id);
        let Entry::Vacant(free) = by_id.entry(place.get()) else { return None };
        free.insert(attempt);
        Some((place, id))
    })
}

/// Whether what an upstream says by AD counts.
pub(super) fn believes_ad(settings: &Settings, answers: Option<Answers>) -> bool {
    settings.rules.believes_ad || answers.is_some_and(|answers| answers.is_believed)
}

/// Sends a question by a stream, whose ID is its own to choose; false where it could not be.
fn send_by_stream(
    upstream: usize,
    tag: u64,
    question: &[u8],
    flags: Flags,
    net: &mut impl Net,
) -> bool {
    let mut message = [0; ASK_BYTES_MAX];
    let length = write_question(&mut message, 0, question, flags);
    net.ask_by_stream(upstream, tag, &message[..length])
}

/// Question and stream in a word.
pub(super) fn tag(question: Question, stream: u64) -> u64 {
    question.to_bits() | stream << (u64::BITS - Question::SPARE_BITS)
}

/// What a question to a server says beside its question.
#[derive(Debug, Clone, Copy)]
pub struct Flags {
    /// RD: the server is to find the answer where it has none.
    pub recursion_desired: bool,
    /// DO, where there is EDNS.
    pub dnssec_ok: bool,
    /// CD.
    pub checking_disabled: bool,
    /// AD: what the server says of it will be believed.
    pub believes_ad: bool,
    /// What we take over UDP, if we speak EDNS.
    pub udp_bytes: Option<u16>,
}

impl Flags {
    fn of(ask: &Ask, has_edns: bool, settings: &Settings, answers: Option<Answers>) -> Flags {
        Flags {
            recursion_desired: true,
            dnssec_ok: ask.dnssec_ok,
            checking_disabled: ask.checking_disabled,
            believes_ad: believes_ad(settings, answers),
            udp_bytes: has_edns.then_some(settings.udp_bytes_max),
        }
    }
}

/// Writes a message that asks a question: name in wire form, type and class, no more than fits. Its
/// length.
pub fn write_question(
    out: &mut [u8; ASK_BYTES_MAX],
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
const _: () = assert!(STREAM_BYTES_MAX >= ASK_BYTES_MAX);
