//! Puts one direction of a TCP connection in order in bounded memory.
//!
//! For headers (a TLS ClientHello, the headers of an HTTP request: the first kibibytes of one
//! direction) and for DNS over TCP, where a consumer takes messages from the front until the
//! connection ends.
//!
//! ```text
//! origin                        next_seq
//!   | consumed | contiguous()      |  hole  | piece |  hole  | piece |
//!              '----- front -------'        '------- ahead ----------'
//! ```
//!
//! Lifecycle
//! 1. *unset*: nothing was pushed. The first segment sets the origin.
//! 2. *floating*: the origin is the first sequence number seen, without a SYN. Earlier data that
//!    arrives late moves the origin back, at most [`REWINDS_MAX`] times [`REWIND_BYTES_MAX`].
//! 3. *fixed*: a SYN was seen, bytes were consumed, or a hole was skipped. The origin stays.
//!
//! Invariants
//! 1. `front` has the bytes just before `next_seq`.
//! 2. `ahead` is sorted, its pieces are disjoint and not empty, and the first of them begins after
//!    `next_seq`: between `front` and `ahead` there is always a hole.
//! 3. The first segment that has a byte determines it; later segments only fill holes.
//! 4. The budget is charged exactly [`Stream::held_bytes`].
//!
//! Bounds: [`STREAM_BYTES_MAX`] bytes and [`PIECES_MAX`] pieces a stream, and a [`Budget`] that
//! many streams share; each of the few rewinds may add one piece to that. Cost: a segment in order
//! is one copy; any other is a binary search and a shift of at most [`PIECES_MAX`] small entries,
//! whatever the sender does. A stream whose bytes are all consumed holds no memory.

mod resync;

pub use resync::dns_resync;

/// Most bytes that one stream stores, in order and ahead together: the longest DNS message with its
/// length (65537 bytes), and as much again behind it.
pub const STREAM_BYTES_MAX: usize = 128 << 10;

/// Most pieces that wait behind holes in one stream.
pub const PIECES_MAX: usize = 128;

/// A segment that begins further than this after the next expected byte is not accepted. The
/// receive windows of relevant clients are smaller (RFC 7323 allows 1 GiB).
pub const WINDOW_BYTES_MAX: u32 = 1 << 20;

/// How far one late segment may move the origin of a floating stream back, bytes.
pub const REWIND_BYTES_MAX: u32 = 64 << 10;

/// How often the origin of a floating stream may move back.
pub const REWINDS_MAX: u8 = 8;

/// The cost of a piece except its bytes: its entry, and the allocator's overhead.
const PIECE_OVERHEAD_BYTES: usize = 48;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;

/// Bytes that several streams may hold together. Not for sharing between threads: a shard of a
/// flow table owns one, so that which stream is refused does not depend on timing.
#[derive(Clone, Debug)]
pub struct Budget {
    used_bytes: usize,
    max_bytes: usize,
}

impl Budget {
    /// A budget of `max_bytes`, all of it unused.
    pub const fn new(max_bytes: usize) -> Budget {
        Budget { used_bytes: 0, max_bytes }
    }

    /// Bytes in use.
    pub const fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes still free.
    pub const fn free_bytes(&self) -> usize {
        self.max_bytes.saturating_sub(self.used_bytes)
    }

    /// Replaces a charge of `old` bytes by one of `new`. For callers that first check
    /// [`Budget::free_bytes`].
    pub fn recharge(&mut self, old: usize, new: usize) {
        self.used_bytes = self.used_bytes.saturating_sub(old).saturating_add(new);
    }
}

/// The result of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pushed {
    /// [`Stream::contiguous`] has grown (or moved back to an earlier origin).
    Ready,
    /// Stored behind a hole.
    Held,
    /// Nothing new: empty, a retransmission, or before the origin.
    Old,
    /// Too far ahead to be accepted. If a stream returns only this, its position is lost:
    /// [`Stream::clear`] it and push again.
    Far,
    /// Refused, at least in part: this stream or the budget is full. Consume, or skip the hole with
    /// [`Stream::skip_hole`], or clear the stream.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unset,
    Floating,
    Fixed,
}

/// Bytes that wait behind a hole.
#[derive(Debug)]
struct Piece {
    seq: u32,
    data: Box<[u8]>,
}

/// One direction of a TCP connection. See the module for its life and bounds.
///
/// A stream must be [cleared](Stream::clear) before it is dropped, else its charge stays in the
/// budget.
#[derive(Debug)]
pub struct Stream {
    front: Vec<u8>,
    /// Bytes at the start of `front` that were consumed.
    taken: usize,
    ahead: Vec<Piece>,
    /// Bytes of all pieces.
    ahead_bytes: usize,
    /// The bytes charged to the budget.
    charged_bytes: usize,
    next_seq: u32,
    fin_seq: Option<u32>,
    phase: Phase,
    rewinds: u8,
    differs: bool,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream::new()
    }
}

impl Stream {
    /// A stream at an unknown position. Takes no memory until data waits in it.
    pub const fn new() -> Stream {
        Stream {
            front: Vec::new(),
            taken: 0,
            ahead: Vec::new(),
            ahead_bytes: 0,
            charged_bytes: 0,
            next_seq: 0,
            fin_seq: None,
            phase: Phase::Unset,
            rewinds: 0,
            differs: false,
        }
    }

    /// A stream whose first byte is known to have number `seq`, as after a SYN.
    pub const fn starting_at(seq: u32) -> Stream {
        let mut stream = Stream::new();
        stream.next_seq = seq;
        stream.phase = Phase::Fixed;
        stream
    }

    /// Takes the segment with sequence number `seq`; `tcp_flags` are the byte of the TCP header,
    /// of which SYN and FIN count.
    ///
    /// A segment that the capture cut is pushed as far as it was captured: the rest is a hole.
    pub fn push(&mut self, seq: u32, tcp_flags: u8, data: &[u8], budget: &mut Budget) -> Pushed {
        let syn = tcp_flags & SYN != 0;
        // A SYN takes one number, and its data begins after it (RFC 9293, section 3.4).
        let seq = seq.wrapping_add(u32::from(syn));
        let rewound = self.locate(seq, syn, !data.is_empty());
        let pushed = self.place(seq, data, budget);
        self.drain_ahead();
        self.settle(budget);
        if tcp_flags & FIN != 0 && pushed != Pushed::Far {
            self.fin_seq.get_or_insert(seq.wrapping_add(data.len() as u32));
        }
        if rewound && pushed != Pushed::Full { Pushed::Ready } else { pushed }
    }

    /// The bytes in order that are not consumed yet.
    #[inline]
    pub fn contiguous(&self) -> &[u8] {
        &self.front[self.taken..]
    }

    /// Drops the first `count` bytes of [`Stream::contiguous`] (all of them, if it has fewer).
    pub fn consume(&mut self, count: usize, budget: &mut Budget) {
        let count = count.min(self.contiguous().len());
        if count == 0 {
            // Nothing was consumed: a stream without an origin must not get one here.
            return;
        }
        self.phase = Phase::Fixed;
        self.taken += count;
        if self.taken == self.front.len() {
            // An idle stream holds nothing.
            self.front = Vec::new();
            self.taken = 0;
        } else if self.taken > self.front.len() / 2 {
            // Moves fewer bytes than were consumed since the last move: linear in all.
            self.front.drain(..self.taken);
            self.taken = 0;
        }
        self.settle(budget);
    }

    /// Bytes missing between the contiguous ones and the first piece that waits; 0 where nothing
    /// waits.
    pub fn hole_bytes(&self) -> u32 {
        self.ahead.first().map_or(0, |piece| piece.seq.wrapping_sub(self.next_seq))
    }

    /// True when there is a hole and the receiver acknowledged its bytes: the capture missed
    /// them, and they will not be sent again.
    pub fn hole_acknowledged(&self, tcp_ack: u32) -> bool {
        self.ahead.first().is_some_and(|piece| is_at_or_after(tcp_ack, piece.seq))
    }

    /// Stops waiting for a hole: contiguous bytes before it that were not consumed are dropped, and
    /// [`Stream::contiguous`] continues with the first bytes behind it. Returns the number of
    /// missing bytes, 0 (and nothing done) if there is no hole.
    pub fn skip_hole(&mut self, budget: &mut Budget) -> u32 {
        let skipped = self.hole_bytes();
        if skipped > 0 {
            self.phase = Phase::Fixed;
            self.front = Vec::new();
            self.taken = 0;
            self.next_seq = self.next_seq.wrapping_add(skipped);
            self.drain_ahead();
            self.settle(budget);
        }
        skipped
    }

    /// True when the sender closed its side and every byte before is contiguous or consumed.
    pub fn is_complete(&self) -> bool {
        self.fin_seq
            .is_some_and(|fin| self.phase != Phase::Unset && is_at_or_after(self.next_seq, fin))
    }

    /// True when a segment had other bytes than one before it in the same place. Which of the two
    /// the receiver took, the stream does not know (invariant 3). Bytes that are no longer held do
    /// not count.
    pub fn differs(&self) -> bool {
        self.differs
    }

    /// Stored bytes, in order and waiting, without those consumed.
    pub fn buffered_bytes(&self) -> usize {
        self.front.len() - self.taken + self.ahead_bytes
    }

    /// Bytes of memory that the budget is charged for this stream.
    pub fn held_bytes(&self) -> usize {
        self.front.len() + self.ahead_bytes + self.ahead.len() * PIECE_OVERHEAD_BYTES
    }

    /// Returns all memory to the budget and clears the position.
    pub fn clear(&mut self, budget: &mut Budget) {
        budget.recharge(self.charged_bytes, 0);
        *self = Stream::new();
    }

    /// Finds the origin, or moves a floating one back. True when it moved.
    fn locate(&mut self, seq: u32, syn: bool, has_data: bool) -> bool {
        let mut rewound = false;
        match self.phase {
            Phase::Fixed => return false,
            Phase::Unset => {
                self.next_seq = seq;
                self.phase = Phase::Floating;
            }
            Phase::Floating => {
                let origin = self.next_seq.wrapping_sub(self.front.len() as u32);
                let back = origin.wrapping_sub(seq);
                // An empty segment before the origin is a keep-alive probe, which has no
                // information.
                let may_move =
                    back <= REWIND_BYTES_MAX && self.rewinds < REWINDS_MAX && (has_data || syn);
                if back != 0 && !may_move {
                    return false;
                }
                if back != 0 {
                    self.rewinds += 1;
                    self.rewind(origin, seq);
                    rewound = true;
                }
            }
        }
        if syn {
            self.phase = Phase::Fixed;
        }
        rewound
    }

    /// Makes `seq` the origin. The contiguous bytes become the first piece.
    fn rewind(&mut self, origin: u32, seq: u32) {
        if !self.front.is_empty() {
            let data = std::mem::take(&mut self.front).into_boxed_slice();
            self.ahead_bytes += data.len();
            self.ahead.insert(0, Piece { seq: origin, data });
        }
        self.next_seq = seq;
    }

    /// Stores the new bytes of `data`: in `front` if they continue it, else between the pieces.
    fn place(&mut self, seq: u32, data: &[u8], budget: &mut Budget) -> Pushed {
        let base = self.next_seq;
        let distance = seq.wrapping_sub(base) as i32;
        let old_bytes = if distance < 0 { distance.unsigned_abs() as usize } else { 0 };
        // The end of `front` and the start of `data` overlap, as far as both reach.
        let over = old_bytes.min(self.front.len());
        let again = data.get(old_bytes - over..).unwrap_or_default();
        self.compare(again, |stream| &stream.front[stream.front.len() - over..]);
        if old_bytes >= data.len() {
            return Pushed::Old;
        }
        if distance > WINDOW_BYTES_MAX as i32 {
            return Pushed::Far;
        }
        let mut rest = &data[old_bytes..];
        let mut at = distance.max(0) as usize;
        let mut index = self.ahead.partition_point(|piece| piece.end_after(base) <= at);
        let mut pushed = Pushed::Old;
        while !rest.is_empty() {
            let next =
                self.ahead.get(index).map(|piece| (piece.begin_after(base), piece.end_after(base)));
            // There is a hole up to the next piece; then the piece covers its own bytes.
            let (hole, covered) = match next {
                Some((begin, end)) if begin <= at => (0, end - at),
                Some((begin, _)) => (begin - at, 0),
                None => (rest.len(), 0),
            };
            if hole > 0 {
                let (fill, behind) = rest.split_at(hole.min(rest.len()));
                let to_front = at == 0;
                if !self.admits(fill.len(), to_front, budget) {
                    return Pushed::Full;
                }
                if to_front {
                    self.front.extend_from_slice(fill);
                    self.next_seq = self.next_seq.wrapping_add(fill.len() as u32);
                    pushed = Pushed::Ready;
                } else {
                    let seq = base.wrapping_add(at as u32);
                    self.ahead.insert(index, Piece { seq, data: fill.into() });
                    self.ahead_bytes += fill.len();
                    index += 1;
                    if pushed == Pushed::Old {
                        pushed = Pushed::Held;
                    }
                }
                self.settle(budget);
                at += fill.len();
                rest = behind;
            } else {
                self.compare(rest, |stream| {
                    let piece = &stream.ahead[index];
                    &piece.data[at - piece.begin_after(base)..]
                });
                at += covered;
                rest = rest.get(covered..).unwrap_or_default();
                index += 1;
            }
        }
        pushed
    }

    /// Notes whether `again` has other bytes than those held from the same place on.
    fn compare(&mut self, again: &[u8], held: impl Fn(&Stream) -> &[u8]) {
        self.differs =
            self.differs || held(self).iter().zip(again).any(|(held, again)| held != again);
    }

    fn admits(&self, bytes: usize, to_front: bool, budget: &Budget) -> bool {
        let overhead = if to_front { 0 } else { PIECE_OVERHEAD_BYTES };
        (to_front || self.ahead.len() < PIECES_MAX)
            && self.front.len() + self.ahead_bytes + bytes <= STREAM_BYTES_MAX
            && bytes + overhead <= budget.free_bytes()
    }

    /// Moves the pieces that now continue `front` into it (invariant 2).
    fn drain_ahead(&mut self) {
        let mut count = 0;
        for piece in &mut self.ahead {
            if piece.seq != self.next_seq {
                break;
            }
            let data = std::mem::take(&mut piece.data);
            count += 1;
            self.next_seq = self.next_seq.wrapping_add(data.len() as u32);
            self.ahead_bytes -= data.len();
            if self.front.is_empty() {
                self.front = data.into_vec();
            } else {
                self.front.extend_from_slice(&data);
            }
        }
        self.ahead.drain(..count);
        debug_assert!(self.has_hole_before_pieces(), "invariant 2");
    }

    fn has_hole_before_pieces(&self) -> bool {
        let mut end = 0;
        self.ahead.iter().enumerate().all(|(index, piece)| {
            let begin = piece.begin_after(self.next_seq);
            let is_behind = begin > end || index > 0 && begin == end;
            end = begin + piece.data.len();
            is_behind && !piece.data.is_empty()
        })
    }

    /// Brings the budget's charge up to date (invariant 4).
    fn settle(&mut self, budget: &mut Budget) {
        let held_bytes = self.held_bytes();
        budget.recharge(self.charged_bytes, held_bytes);
        self.charged_bytes = held_bytes;
    }
}

impl Piece {
    /// Distance of the first byte from `base`, which is never after it.
    fn begin_after(&self, base: u32) -> usize {
        self.seq.wrapping_sub(base) as usize
    }

    /// Distance from `base` to just after the last byte.
    fn end_after(&self, base: u32) -> usize {
        self.begin_after(base) + self.data.len()
    }
}

/// Sequence numbers compare on a circle (RFC 9293, section 3.4).
fn is_at_or_after(seq: u32, other: u32) -> bool {
    seq.wrapping_sub(other) as i32 >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(stream: &mut Stream, budget: &mut Budget, seq: u32, data: &[u8]) -> Pushed {
        stream.push(seq, 0, data, budget)
    }

    /// Segments in any order over the wrap of the sequence number are put in the sent order, and
    /// the budget is whole again in the end.
    #[test]
    fn order_is_restored_over_the_wrap() {
        let mut budget = Budget::new(1 << 20);
        let mut stream = Stream::new();
        assert_eq!(stream.push(u32::MAX - 2, SYN, b"", &mut budget), Pushed::Old);
        assert_eq!(pushed(&mut stream, &mut budget, 1, b"defg"), Pushed::Held);
        assert_eq!(stream.hole_bytes(), 3);
        assert_eq!(pushed(&mut stream, &mut budget, u32::MAX - 1, b"abcXX"), Pushed::Ready);
        assert_eq!(stream.contiguous(), b"abcdefg");
        assert_eq!(stream.push(5, FIN, b"", &mut budget), Pushed::Old);
        assert!(stream.is_complete());
        stream.push(2, FIN, b"", &mut budget);
        stream.push(900, FIN, b"", &mut budget);
        assert!(stream.is_complete(), "the first FIN counts");
        stream.consume(7, &mut budget);
        assert_eq!((stream.held_bytes(), budget.used_bytes()), (0, 0));
    }

    /// Different bytes for a place that has bytes are reported, in front and after a hole, and do
    /// not replace them. The same bytes again are not reported, in whatever pieces.
    #[test]
    fn other_bytes_are_noticed() {
        let mut budget = Budget::new(1 << 20);
        for (seq, data, expected) in [
            (0, &b"abcdef"[..], false),
            (2, b"cd", false),
            (2, b"cdefXY?jklZ", false),
            (u32::MAX - 3, b"old?abcdef", false),
            (u32::MAX - 3, b"old", false),
            (0, b"abXdef", true),
            (5, b"g", true),
            (u32::MAX, b"_abcdeX", true),
            (8, b"ijkl", false),
            (9, b"jk", false),
            (10, b"kLM", true),
            (11, b"lm", false),
            (11, b"m", true),
            (8, b"iJ", true),
        ] {
            let mut stream = Stream::starting_at(0);
            pushed(&mut stream, &mut budget, 0, b"abcdef");
            pushed(&mut stream, &mut budget, 9, b"jkl");
            assert!(!stream.differs());
            pushed(&mut stream, &mut budget, seq, data);
            assert_eq!(stream.differs(), expected, "{seq} {}", data.escape_ascii());
            assert!(stream.contiguous().starts_with(b"abcdef"));
            stream.clear(&mut budget);
            assert!(!stream.differs());
        }
    }

    /// Without a SYN, earlier data that arrives late moves the start back, but not after the
    /// consumer took something, and only a limited number of times.
    #[test]
    fn late_early_data() {
        let mut budget = Budget::new(1 << 20);
        let mut stream = Stream::new();
        assert_eq!(pushed(&mut stream, &mut budget, 1000, b"world"), Pushed::Ready);
        assert_eq!(pushed(&mut stream, &mut budget, 990, b"hello"), Pushed::Ready);
        assert_eq!(stream.contiguous(), b"hello");
        assert_eq!(pushed(&mut stream, &mut budget, 995, b", new"), Pushed::Ready);
        assert_eq!(stream.contiguous(), b"hello, newworld");
        stream.consume(1, &mut budget);
        assert_eq!(pushed(&mut stream, &mut budget, 980, b"0123456789"), Pushed::Old);

        let mut stream = Stream::new();
        for back in 0..100 {
            pushed(&mut stream, &mut budget, 1000 - back, b"x");
        }
        assert_eq!(stream.contiguous().len(), 1 + usize::from(REWINDS_MAX));
    }

    /// A SYN that arrives after data fixes the start; data before it is not accepted.
    #[test]
    fn late_syn() {
        let mut budget = Budget::new(1 << 20);
        let mut stream = Stream::new();
        pushed(&mut stream, &mut budget, 105, b"later");
        stream.push(99, SYN, b"", &mut budget);
        assert_eq!((stream.contiguous(), stream.hole_bytes()), (&b""[..], 5));
        assert_eq!(pushed(&mut stream, &mut budget, 90, b"forged"), Pushed::Old);
        assert_eq!(pushed(&mut stream, &mut budget, 100, b"first"), Pushed::Ready);
        assert_eq!(stream.contiguous(), b"firstlater");
    }

    /// After a hole is skipped, the bytes behind it are next, and the missing bytes stay out.
    #[test]
    fn holes_are_skipped() {
        let mut budget = Budget::new(1 << 20);
        let mut stream = Stream::new();
        stream.push(0, SYN, b"", &mut budget);
        pushed(&mut stream, &mut budget, 1, b"half a mess");
        pushed(&mut stream, &mut budget, 100, b"next");
        pushed(&mut stream, &mut budget, 200, b"last");
        assert!(!stream.hole_acknowledged(99));
        assert!(stream.hole_acknowledged(104));
        assert_eq!(stream.skip_hole(&mut budget), 88);
        assert_eq!(stream.contiguous(), b"next");
        assert_eq!(pushed(&mut stream, &mut budget, 12, b"age"), Pushed::Old);
        assert_eq!(stream.skip_hole(&mut budget), 96);
        assert_eq!(stream.contiguous(), b"last");
        assert_eq!(stream.skip_hole(&mut budget), 0);
        assert_eq!(stream.contiguous(), b"last");
        stream.clear(&mut budget);
        assert_eq!(budget.used_bytes(), 0);
    }

    /// The worst order (one byte a segment, from the back) meets the limit on pieces; distance,
    /// stream and budget have theirs.
    #[test]
    fn limits_hold() {
        let mut budget = Budget::new(1 << 20);
        let mut stream = Stream::new();
        stream.push(0, SYN, b"", &mut budget);
        let mut refused = 0;
        for seq in (2..10_000).rev() {
            refused += usize::from(pushed(&mut stream, &mut budget, seq, b"x") == Pushed::Full);
        }
        assert_eq!(refused, 9_998 - PIECES_MAX);
        assert_eq!(stream.ahead.len(), PIECES_MAX);
        assert_eq!(
            pushed(&mut stream, &mut budget, WINDOW_BYTES_MAX + 2, b"x"),
            Pushed::Far,
            "one byte beyond the window"
        );

        let mut stream = Stream::new();
        let segment = [0; 60_000];
        assert_eq!(pushed(&mut stream, &mut budget, 0, &segment), Pushed::Ready);
        assert_eq!(pushed(&mut stream, &mut budget, 60_000, &segment), Pushed::Ready);
        assert_eq!(pushed(&mut stream, &mut budget, 120_000, &segment), Pushed::Full);
        stream.consume(100_000, &mut budget);
        assert_eq!(pushed(&mut stream, &mut budget, 120_000, &segment), Pushed::Ready);
        assert_eq!(stream.contiguous().len(), 80_000);

        let mut small = Budget::new(100);
        let mut stream = Stream::new();
        assert_eq!(pushed(&mut stream, &mut small, 0, &[0; 90]), Pushed::Ready);
        assert_eq!(pushed(&mut stream, &mut small, 90, &[0; 11]), Pushed::Full);
        assert_eq!(small.used_bytes(), 90);
    }
}
