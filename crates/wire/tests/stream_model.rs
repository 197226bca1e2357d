//! [`Stream`] compared with a simple model: an array with a flag for each byte that was written.

use larder_wire::stream::{Budget, PIECES_MAX, Pushed, STREAM_BYTES_MAX, Stream, dns_resync};
use proptest::prelude::*;

const SYN: u8 = 2;
const SPACE: usize = 400;

/// Every byte of the stream that was ever pushed; the first value written stays.
struct Model {
    bytes: Vec<Option<u8>>,
    /// Bytes before this one are contiguous.
    next: usize,
    /// Bytes before this one are consumed or skipped.
    taken: usize,
}

impl Model {
    fn push(&mut self, at: usize, data: &[u8]) {
        for (slot, &byte) in
            self.bytes[at..].iter_mut().zip(data).skip(self.next.saturating_sub(at))
        {
            slot.get_or_insert(byte);
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.bytes.get(self.next).is_some_and(Option::is_some) {
            self.next += 1;
        }
    }

    fn contiguous(&self) -> Vec<u8> {
        self.bytes[self.taken..self.next].iter().map(|byte| byte.expect("is contiguous")).collect()
    }

    fn hole(&self) -> usize {
        self.bytes[self.next..].iter().position(Option::is_some).unwrap_or(0)
    }

    fn skip_hole(&mut self) -> usize {
        let hole = self.hole();
        if hole > 0 {
            self.next += hole;
            self.taken = self.next;
            self.advance();
        }
        hole
    }

    fn buffered(&self) -> usize {
        self.bytes[self.taken..].iter().flatten().count()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { at: usize, data: Vec<u8> },
    Consume(usize),
    SkipHole,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..SPACE, prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(at, mut data)| {
            data.truncate(SPACE - at);
            Step::Push { at, data }
        }),
        2 => (0..80usize).prop_map(Step::Consume),
        1 => Just(Step::SkipHole),
    ]
}

proptest! {
    /// Segments with contradicting overlaps, skipped holes, and bytes consumed in between. After
    /// each step the stream has the same bytes as the model, and the budget is exact. Invariants 1,
    /// 3 and 4 of `stream`.
    #[test]
    fn stream_is_its_model(
        origin in prop_oneof![any::<u32>(), (u32::MAX - SPACE as u32)..=u32::MAX],
        steps in prop::collection::vec(step(), 0..50),
    ) {
        let mut budget = Budget::new(1 << 20);
        let mut stream = Stream::new();
        let mut model = Model { bytes: vec![None; SPACE], next: 0, taken: 0 };
        stream.push(origin.wrapping_sub(1), SYN, &[], &mut budget);
        for step in steps {
            match step {
                Step::Push { at, data } => {
                    let before = (model.next, model.buffered());
                    model.push(at, &data);
                    let expected = match (model.next > before.0, model.buffered() > before.1) {
                        (true, _) => Pushed::Ready,
                        (false, true) => Pushed::Held,
                        (false, false) => Pushed::Old,
                    };
                    let seq = origin.wrapping_add(at as u32);
                    prop_assert_eq!(stream.push(seq, 0, &data, &mut budget), expected);
                }
                Step::Consume(count) => {
                    model.taken = model.next.min(model.taken + count);
                    stream.consume(count, &mut budget);
                }
                Step::SkipHole => {
                    prop_assert_eq!(stream.skip_hole(&mut budget) as usize, model.skip_hole());
                }
            }
            prop_assert_eq!(stream.contiguous(), model.contiguous());
            prop_assert_eq!(stream.hole_bytes() as usize, model.hole());
            prop_assert_eq!(stream.buffered_bytes(), model.buffered());
            prop_assert_eq!(budget.used_bytes(), stream.held_bytes());
        }
        stream.clear(&mut budget);
        prop_assert_eq!(budget.used_bytes(), 0);
    }

    /// Without a SYN, and in any order within reach of the rewinds, a message is complete in the
    /// end.
    #[test]
    fn any_order_without_syn(
        origin in any::<u32>(),
        order in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let message: Vec<u8> = (0..90).collect();
        let mut budget = Budget::new(1 << 20);
        let mut stream = Stream::new();
        for part in order {
            let at = part * 10;
            stream.push(origin.wrapping_add(at as u32), 0, &message[at..at + 10], &mut budget);
        }
        prop_assert_eq!(stream.contiguous(), &message[..]);
    }

    /// For any sequence numbers, flags and lengths of a sender, all bounds hold.
    #[test]
    fn hostile_segments(
        segments in prop::collection::vec((any::<u32>(), 0u32..3_000_000, any::<u8>(), 0usize..3000), 0..400),
    ) {
        const BUDGET: usize = 100_000;
        let data = [0x55; 3000];
        let mut budget = Budget::new(BUDGET);
        let mut streams = [Stream::new(), Stream::new()];
        for (random, near, flags, len) in segments {
            let stream = &mut streams[random as usize & 1];
            let seq = if flags & 0x80 != 0 { random } else { near };
            stream.push(seq, flags & 3, &data[..len], &mut budget);
            if flags & 0x70 == 0 {
                stream.skip_hole(&mut budget);
            }
            if flags & 0x0c == 0 {
                stream.consume(len / 2, &mut budget);
            }
            let held: usize = streams.iter().map(Stream::held_bytes).sum();
            prop_assert_eq!(budget.used_bytes(), held);
            // A rewind turns bytes in order into a piece, whose entry is not refused.
            prop_assert!(held <= BUDGET + 2 * 8 * 48);
            for stream in &streams {
                prop_assert!(stream.buffered_bytes() <= STREAM_BYTES_MAX);
                prop_assert!(stream.held_bytes() - stream.buffered_bytes() <= STREAM_BYTES_MAX + (PIECES_MAX + 8) * 48);
            }
        }
    }

    /// The position found is one that has a length and a header.
    #[test]
    fn resync_is_in_bounds(bytes in prop::collection::vec(0u8..4, 0..3000)) {
        if let Some(at) = dns_resync(&bytes) {
            prop_assert!(at + 14 <= bytes.len());
            prop_assert_eq!(&bytes[at + 6..at + 8], &[0, 1], "one question");
        }
    }
}
