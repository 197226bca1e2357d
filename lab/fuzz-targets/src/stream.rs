//! TCP streams: what is contiguous is what the sender sent there, and the budget is exact.

use larder_wire::stream::{Budget, Pushed, STREAM_BYTES_MAX, Stream};

use super::{Cut, byte_of};

/// What both streams may hold together: small, so that it binds.
const BUDGET_BYTES: usize = 16 << 10;

/// What the rewinds of both streams may add to that.
const SLACK_BYTES: usize = 1024;

const SYN: u8 = 2;

/// Steps of two streams, five bytes each: what to do and on which stream; TCP flags; distance from
/// where the step before was (2, signed); length in units of eight, or how much to consume.
pub fn stream(input: &[u8]) {
    let mut input = Cut(input);
    let mut budget = Budget::new(BUDGET_BYTES);
    let start = u32::from(input.u16()) << 16;
    let mut sides = [Side::new(1, start), Side::new(2, start)];
    while !input.is_empty() {
        let action = input.u8();
        let flags = input.u8();
        let distance = input.u16() as i16;
        let size = usize::from(input.u8());
        let side = &mut sides[usize::from(action & 1)];
        match action >> 1 & 15 {
            0 => side.skip_hole(&mut budget),
            1 => side.consume(size * 4, &mut budget),
            2 if size == 0 => side.clear(&mut budget),
            _ => side.push(distance, flags, size * 8 + usize::from(action >> 5), &mut budget),
        }
        let held: usize = sides.iter().map(|side| side.stream.held_bytes()).sum();
        assert_eq!(budget.used_bytes(), held, "invariant 4 of `wire::stream`");
        assert!(held <= BUDGET_BYTES + SLACK_BYTES);
    }
    for side in &mut sides {
        side.clear(&mut budget);
    }
    assert_eq!(budget.used_bytes(), 0);
}

struct Side {
    stream: Stream,
    number: u32,
    /// Where the last segment began.
    cursor: u32,
    /// Where the contiguous bytes may begin. More than one while the origin floats and no byte
    /// has told it yet.
    origins: Vec<u32>,
    /// The origin stays.
    fixed: bool,
}

impl Side {
    fn new(number: u32, cursor: u32) -> Side {
        Side { stream: Stream::new(), number, cursor, origins: Vec::new(), fixed: false }
    }

    fn push(&mut self, distance: i16, flags: u8, len: usize, budget: &mut Budget) {
        let seq = self.cursor.wrapping_add_signed(i32::from(distance));
        self.cursor = seq.wrapping_add(len as u32);
        let data_seq = seq.wrapping_add(u32::from(flags & SYN != 0));
        let data: Vec<u8> =
            (0..len as u32).map(|at| byte_of(self.number, data_seq.wrapping_add(at))).collect();
        let before = self.stream.contiguous().len();
        let pushed = self.stream.push(seq, flags, &data, budget);
        if !self.fixed && !self.origins.contains(&data_seq) {
            self.origins.push(data_seq);
        }
        match pushed {
            Pushed::Held | Pushed::Old | Pushed::Far => {
                assert_eq!(self.stream.contiguous().len(), before, "{pushed:?}");
            }
            Pushed::Ready | Pushed::Full => {}
        }
        self.check();
    }

    /// The contiguous bytes are those of one place in the sender's stream.
    fn check(&mut self) {
        let Side { stream, number, origins, .. } = self;
        let bytes = stream.contiguous();
        let is_from = |origin: u32| {
            bytes
                .iter()
                .enumerate()
                .all(|(at, &byte)| byte == byte_of(*number, origin.wrapping_add(at as u32)))
        };
        if !bytes.is_empty() {
            origins.retain(|&origin| is_from(origin));
            assert!(!origins.is_empty(), "bytes of no place");
        }
        assert!(stream.buffered_bytes() <= STREAM_BYTES_MAX);
        assert!(stream.buffered_bytes() <= stream.held_bytes());
        assert!(bytes.len() <= stream.buffered_bytes());
        let _ = stream.is_complete();
    }

    fn move_on(&mut self, count: usize) {
        for origin in &mut self.origins {
            *origin = origin.wrapping_add(count as u32);
        }
        self.fixed |= count > 0;
    }

    fn consume(&mut self, count: usize, budget: &mut Budget) {
        let before = self.stream.contiguous().len();
        self.stream.consume(count, budget);
        assert_eq!(self.stream.contiguous().len(), before - count.min(before));
        self.move_on(count.min(before));
        self.check();
    }

    fn skip_hole(&mut self, budget: &mut Budget) {
        let before = self.stream.contiguous().len();
        let hole = self.stream.hole_bytes();
        let reaches_over = self.stream.hole_acknowledged(self.cursor);
        assert!(hole > 0 || !reaches_over, "no hole to acknowledge");
        assert_eq!(self.stream.skip_hole(budget), hole);
        if hole > 0 {
            assert!(!self.stream.contiguous().is_empty(), "a hole ends with bytes");
            self.move_on(before + hole as usize);
        }
        self.check();
    }

    fn clear(&mut self, budget: &mut Budget) {
        self.stream.clear(budget);
        assert_eq!(self.stream.held_bytes(), 0);
        *self = Side::new(self.number, self.cursor);
    }
}
