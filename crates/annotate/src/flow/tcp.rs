//! The counts of a flow: packets and bytes of each end, TCP's sequence space and states, Zeek's
//! history letters.

use super::Flow;
use super::event::tcp_flag::{ACK, FIN, RST, SYN};
use super::event::{Event, protocol};
use crate::record::ConnState;

/// TCP endpoint states with Zeek's meaning; other protocols use `Inactive` and `Established`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EndState {
    Inactive,
    SynSent,
    Partial,
    Established,
    Closed,
    Reset,
}

/// Counts of one end of a flow, in one cache line: the one that its packets touch.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// IP bytes.
    pub ip_bytes: u64,
    /// Payload bytes by the headers.
    pub payload_bytes: u64,
    /// TCP: bytes of sequence space used after `seq_start`.
    seq_high: u64,
    /// TCP: bytes never seen below `seq_high`.
    pub gap_bytes: u64,
    pub(super) seq_start: u32,
    /// Occurrences of each counted history letter of this end.
    counts: [u32; 3],
    /// The history letters that are written once and that this end has.
    letters_seen: u16,
    pub(super) state: EndState,
    pub(super) syn: bool,
    fin: bool,
}
const _: () = assert!(size_of::<Sent>() == 64);

impl Sent {
    pub(super) const NOTHING: Sent = Sent {
        packets: 0,
        ip_bytes: 0,
        payload_bytes: 0,
        seq_high: 0,
        gap_bytes: 0,
        seq_start: 0,
        counts: [0; 3],
        letters_seen: 0,
        state: EndState::Inactive,
        syn: false,
        fin: false,
    };

    /// Resets the counts, and keeps the state. The next packet begins the sequence space again.
    pub(super) fn renew(&mut self) {
        *self = Sent { state: self.state, ..Sent::NOTHING };
    }

    /// TCP payload by sequence numbers, as Zeek counts it.
    pub fn stream_bytes(&self) -> u64 {
        self.seq_high.saturating_sub(u64::from(self.syn) + u64::from(self.fin))
    }

    /// Sequence number of the first payload byte, if the SYN was seen.
    pub fn first_payload_seq(&self) -> Option<u32> {
        self.syn.then(|| self.seq_start.wrapping_add(1))
    }

    /// Advances the sequence space; tells whether the payload was (partly) sent before.
    #[inline(always)]
    pub(super) fn advance(&mut self, seq: u32, len: u32, payload: u32) -> SeqStep {
        if self.packets == 0 {
            self.seq_start = seq;
        }
        let high = self.seq_start.wrapping_add(self.seq_high as u32);
        let begin = seq.wrapping_sub(high) as i32;
        let end = i64::from(begin) + i64::from(len);
        let mut step = SeqStep::Plain;
        if begin > 0 && self.seq_high > 0 {
            self.gap_bytes += begin as u64;
            step = SeqStep::Gap;
        } else if begin < 0 && payload > 0 {
            let old = u64::from(payload).min(u64::from(begin.unsigned_abs()));
            if self.gap_bytes > 0 {
                self.gap_bytes -= old.min(self.gap_bytes);
            } else if end <= 0 {
                step = SeqStep::Again;
            }
        }
        if end > 0 {
            self.seq_high += end as u64;
        }
        step
    }
}

#[derive(PartialEq, Eq)]
pub(super) enum SeqStep {
    Plain,
    Gap,
    Again,
}

/// Letters of a history at most.
const LETTERS_MAX: usize = 22;

/// Zeek's history letters, upper case for the initiator. Each letter is written once an end, the
/// counted ones (`g t w`) at 1, 10, 100 ... occurrences. The letters of each end are in its
/// [`Sent`].
#[derive(Clone, Copy, Debug)]
pub struct History {
    letters: [u8; LETTERS_MAX],
    len: u8,
}

/// Letters that are written once an end, each with its bit.
mod once {
    pub const SYN: (u8, u16) = (b's', 1);
    pub const SYN_ACK: (u8, u16) = (b'h', 2);
    pub const ACK: (u8, u16) = (b'a', 4);
    pub const DATA: (u8, u16) = (b'd', 8);
    pub const FIN: (u8, u16) = (b'f', 16);
    pub const RST: (u8, u16) = (b'r', 32);
    pub const INCONSISTENT: (u8, u16) = (b'i', 64);
    pub const SYN_AND_MORE: (u8, u16) = (b'q', 128);
}

/// Letters that are counted, each with its index.
mod counted {
    pub const GAP: (u8, usize) = (b'g', 0);
    pub const AGAIN: (u8, usize) = (b't', 1);
    pub const ZERO_WINDOW: (u8, usize) = (b'w', 2);
}

impl History {
    pub(super) const EMPTY: History = History { letters: [0; LETTERS_MAX], len: 0 };

    pub(super) fn push(&mut self, letter: u8) {
        if let Some(place) = self.letters.get_mut(usize::from(self.len)) {
            *place = letter;
            self.len += 1;
        }
    }

    fn push_of(&mut self, letter: u8, from_source: bool) {
        self.push(if from_source { letter.to_ascii_uppercase() } else { letter });
    }

    /// Writes a letter of `sent` once.
    #[inline]
    fn add(&mut self, (letter, bit): (u8, u16), sent: &mut Sent, from_source: bool) {
        if sent.letters_seen & bit == 0 {
            sent.letters_seen |= bit;
            self.push_of(letter, from_source);
        }
    }

    /// Counts a letter of `sent`.
    #[cold]
    fn count(&mut self, (letter, place): (u8, usize), sent: &mut Sent, from_source: bool) {
        let count = &mut sent.counts[place];
        *count = count.saturating_add(1);
        if matches!(*count, 1 | 10 | 100 | 1_000 | 10_000 | 100_000 | 1_000_000) {
            self.push_of(letter, from_source);
        }
    }

    /// The initiator is the other end: Zeek writes `^` and swaps the cases.
    fn flip(&mut self) {
        for letter in &mut self.letters[..usize::from(self.len)] {
            *letter = if letter.is_ascii_uppercase() {
                letter.to_ascii_lowercase()
            } else {
                letter.to_ascii_uppercase()
            };
        }
        self.letters.copy_within(0..LETTERS_MAX - 1, 1);
        self.letters[0] = b'^';
        self.len = (self.len + 1).min(LETTERS_MAX as u8);
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        // Letters are ASCII.
        std::str::from_utf8(&self.letters[..usize::from(self.len)]).unwrap_or_default()
    }
}

pub(super) fn tcp_state(o: &Sent, r: &Sent) -> ConnState {
    use EndState::*;
    let inactive = |state| matches!(state, Inactive | Partial);
    match (o.state, r.state) {
        (SynSent, Reset) => ConnState::REJ,
        (Reset, Reset) if o.stream_bytes() == 0 && r.stream_bytes() == 0 => ConnState::REJ,
        (o, Reset) if inactive(o) => ConnState::RSTRH,
        (_, Reset) => ConnState::RSTR,
        (Reset, r) if inactive(r) => ConnState::RSTOS0,
        (Reset, _) => ConnState::RSTO,
        (Closed, Closed) => ConnState::SF,
        (Closed, r) if inactive(r) => ConnState::SH,
        (Closed, _) => ConnState::S2,
        (o, Closed) if inactive(o) => ConnState::SHR,
        (_, Closed) => ConnState::S3,
        (SynSent, Inactive) => ConnState::S0,
        (Established, Established) => ConnState::S1,
        _ => ConnState::OTH,
    }
}

#[inline(always)]
pub(super) fn account<U>(flow: &mut Flow<U>, event: &Event) {
    // Packet times may go back; a flow's last time does not.
    flow.last_ns = flow.last_ns.max(event.time_ns);
    if event.is_tcp() {
        account_tcp(flow, event);
    } else {
        let from_source = event.from_low == flow.source_is_low;
        let sent = &mut flow.sent[usize::from(event.from_low)];
        if event.payload_bytes > 0 && flow.protocol == protocol::UDP {
            flow.history.add(once::DATA, sent, from_source);
        }
        sent.state = EndState::Established;
    }
    let sent = &mut flow.sent[usize::from(event.from_low)];
    sent.packets += 1;
    sent.ip_bytes += u64::from(event.ip_bytes);
    sent.payload_bytes += u64::from(event.payload_bytes);
}

#[inline(always)]
fn account_tcp<U>(flow: &mut Flow<U>, event: &Event) {
    let flags = event.tcp_flags;
    // The sender of a SYN began, even if packets of the other end came first.
    if flags & (SYN | ACK | RST) == SYN
        && event.from_low != flow.source_is_low
        && !flow.sent_by_source().syn
    {
        flow.source_is_low = event.from_low;
        flow.history.flip();
    }
    let from_source = event.from_low == flow.source_is_low;
    let history = &mut flow.history;
    let [mine, peer] = {
        let [high, low] = &mut flow.sent;
        if event.from_low { [low, high] } else { [high, low] }
    };

    let ends = flags & (SYN | FIN | RST);
    if ends & ends.wrapping_sub(1) != 0 {
        // More than one of the three.
        let letter = if flags & SYN == 0 { once::INCONSISTENT } else { once::SYN_AND_MORE };
        history.add(letter, mine, from_source);
    }
    if flags & RST != 0 {
        history.add(once::RST, mine, from_source);
        mine.state = EndState::Reset;
        return;
    }
    let space = event.payload_bytes + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    match mine.advance(event.tcp_seq, space, event.payload_bytes) {
        SeqStep::Plain => {}
        SeqStep::Gap => history.count(counted::GAP, mine, from_source),
        SeqStep::Again => history.count(counted::AGAIN, mine, from_source),
    }
    if flags & SYN != 0 {
        history.add(if flags & ACK == 0 { once::SYN } else { once::SYN_ACK }, mine, from_source);
        mine.syn = true;
        if mine.state == EndState::Inactive {
            mine.state = EndState::SynSent;
        }
        if flags & ACK != 0 && peer.state == EndState::SynSent {
            mine.state = EndState::Established;
            peer.state = EndState::Established;
        }
    } else if mine.state == EndState::Inactive {
        mine.state = EndState::Partial;
    }
    if event.payload_bytes > 0 {
        history.add(once::DATA, mine, from_source);
    } else if flags & (SYN | FIN | ACK) == ACK {
        history.add(once::ACK, mine, from_source);
    }
    if event.tcp_window == 0 && flags & (SYN | FIN) == 0 {
        history.count(counted::ZERO_WINDOW, mine, from_source);
    }
    if flags & FIN != 0 {
        history.add(once::FIN, mine, from_source);
        mine.fin = true;
        if mine.state != EndState::Reset {
            mine.state = EndState::Closed;
        }
    }
}
