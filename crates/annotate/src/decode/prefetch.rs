//! Prefetches the record headers that the reader will need.
//!
//! The place of a record is known only from the header before it, so a reader of a file in memory
//! waits for memory at every packet. Walkers go over parts of the batch before the reader. Each
//! starts at a guessed place and follows the lengths from there, one hop of one walker for each
//! packet that the reader decodes. While a line is on its way to a walker, the others hop and the
//! reader works. A walker at the end of its part takes the next part.
//!
//! Invariant: only a hint. No result depends on a walker, so its start may be guessed cheaply, and
//! a wrong guess only costs time.
//!
//! Bounds: a part is walked once; a hop goes forward, a search reads [`SEARCH_BYTES`].
//!
//! Cost: a hop takes 2 ns if the line has arrived. Nothing is allocated.

use larder_mem::prefetch_lines;
use larder_wire::capture::{Capture, Hopper};
use memchr::memmem::Finder;

/// Walkers before a reader. A hop is read at the walker's next turn: as many packets must take the
/// time of a memory access.
const WALKERS: usize = 4;
/// Bytes of a part. The lead is one part for each walker, and is walked before the reader begins:
/// shorter parts need more searches, longer ones a longer lead.
const PART_BYTES: usize = 32 << 10;
/// Shortest input that is worth the lead.
const INPUT_BYTES_MIN: usize = 2 * WALKERS * PART_BYTES;
/// Bytes that are searched for a record.
const SEARCH_BYTES: usize = 4 << 10;
/// Cache lines of a record that the decoder reads: its header, and those of the packet.
const RECORD_LINES: usize = 2;
/// Cache lines that most searches need.
const SEARCH_LINES: usize = 8;

/// The walkers before one reader.
pub(super) struct Prefetcher<'a> {
    bytes: &'a [u8],
    hopper: Hopper,
    /// Finds the bytes of a record's time that change slowly.
    alike: Finder<'a>,
    walkers: [Walker; WALKERS],
    /// The next walker.
    turn: usize,
    /// Start of the next part.
    next_part: usize,
    /// End of the reader's range.
    limit: usize,
}

/// At its end when `at >= end`.
#[derive(Clone, Copy)]
struct Walker {
    at: usize,
    end: usize,
    /// A record probably begins at `at`; else one is searched from there.
    walking: bool,
}

impl<'a> Prefetcher<'a> {
    /// For a reader that begins at `start`; returns after the lead was prefetched. `None` if
    /// walkers cannot walk, or would not pay.
    pub(super) fn new(
        capture: &Capture,
        bytes: &'a [u8],
        start: usize,
        limit: usize,
    ) -> Option<Prefetcher<'a>> {
        let limit = limit.min(bytes.len());
        if limit.saturating_sub(start) < INPUT_BYTES_MIN {
            return None;
        }
        let hopper = capture.hopper()?;
        let alike = Finder::new(bytes.get(start..)?.get(hopper.slow_bytes())?);
        let walkers = [Walker { at: 0, end: 0, walking: true }; WALKERS];
        let mut walkers =
            Prefetcher { bytes, hopper, alike, walkers, turn: 0, next_part: start, limit };
        (0..WALKERS).for_each(|turn| walkers.send(turn, start));
        walkers.walkers[0].walking = true;
        let mut walking = true;
        while walking {
            walking = false;
            for turn in 0..WALKERS {
                walking |= walkers.go(turn);
            }
        }
        Some(walkers)
    }

    /// One hop of one walker, for each packet read. `offset` is the reader's.
    #[inline(always)]
    pub(super) fn step(&mut self, offset: usize) {
        let turn = self.turn;
        self.turn = (turn + 1) % WALKERS;
        if !self.go(turn) && self.next_part < self.limit {
            self.send(turn, offset);
        }
    }

    /// False when this walker is at its end.
    #[inline(always)]
    fn go(&mut self, turn: usize) -> bool {
        let walker = &mut self.walkers[turn];
        if walker.at >= walker.end {
            return false;
        }
        if walker.walking {
            walker.at = self.hopper.hop(self.bytes, walker.at).unwrap_or(usize::MAX);
            prefetch_lines(self.bytes, walker.at, RECORD_LINES);
        } else {
            self.land(turn);
        }
        true
    }

    /// Sends a walker to the next part, or after the reader's place if the reader was faster.
    #[cold]
    #[inline(never)]
    fn send(&mut self, turn: usize, offset: usize) {
        let at = self.next_part.max(offset);
        let end = self.limit.min(at + PART_BYTES);
        self.walkers[turn] = Walker { at, end, walking: false };
        self.next_part = end;
        prefetch_lines(self.bytes, at, SEARCH_LINES);
        // The slowly changing bytes of the time are taken from the reader's place.
        let known = self.bytes.get(offset..).and_then(|rest| rest.get(self.hopper.slow_bytes()));
        if let Some(known) = known.filter(|known| *known != self.alike.needle()) {
            self.alike = Finder::new(known);
        }
    }

    /// Finds the first record of a walker's part.
    #[cold]
    #[inline(never)]
    fn land(&mut self, turn: usize) {
        let Prefetcher { bytes, hopper, .. } = *self;
        let from = self.walkers[turn].at;
        let window = bytes.get(from..bytes.len().min(from + SEARCH_BYTES)).unwrap_or_default();
        let window = window.get(hopper.slow_bytes().start..).unwrap_or_default();
        let mut found = self.alike.find_iter(window).map(|at| from + at);
        let at = found.find(|&at| hopper.is_sound(bytes, at)).unwrap_or(usize::MAX);
        let walker = &mut self.walkers[turn];
        (walker.at, walker.walking) = (at, true);
        prefetch_lines(bytes, at, RECORD_LINES);
    }
}

#[cfg(test)]
mod tests {
    use larder_wire::capture::write;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A capture of `packets` records of some lengths, and where each begins.
    fn capture_of(packets: usize) -> (Vec<u8>, Vec<usize>) {
        let mut file = Vec::new();
        write::pcap_header(&mut file, 1, 65_535);
        let mut begins = Vec::new();
        for number in 0..packets {
            begins.push(file.len());
            let frame = vec![number as u8; 60 + number * 7919 % 1400];
            let ts_ns = 1_700_000_000_000_000_000 + number as i64 * 1_000_000;
            write::pcap_record(&mut file, ts_ns, &frame, frame.len() as u32);
        }
        (file, begins)
    }

    /// On a sound file, walkers go from record to record and over every part: a walker that walks
    /// is at the start of a record at every step, and all parts are given out.
    #[test]
    fn scouts_are_where_records_begin() {
        let (file, begins) = capture_of(2000);
        let (capture, start) = Capture::open(&file).unwrap();
        let mut walkers = Prefetcher::new(&capture, &file, start, file.len()).expect("long enough");
        assert_eq!(walkers.next_part, start + WALKERS * PART_BYTES, "the lead");
        for &offset in &begins {
            walkers.step(offset);
            for walker in walkers.walkers.iter().filter(|walker| walker.walking) {
                assert!(walker.at == file.len() || begins.binary_search(&walker.at).is_ok());
            }
        }
        assert_eq!(walkers.next_part, file.len());
    }

    /// Short inputs and pcapng have no walkers.
    #[test]
    fn no_scouts_where_they_do_not_pay() {
        let (file, _) = capture_of(10);
        let (capture, start) = Capture::open(&file).unwrap();
        assert!(Prefetcher::new(&capture, &file, start, file.len()).is_none());
        let mut file = Vec::new();
        write::section(&mut file, "test");
        let (capture, start) = Capture::open(&file).unwrap();
        file.resize(1 << 20, 0);
        assert!(Prefetcher::new(&capture, &file, start, file.len()).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// For any bytes and any place of the reader, walkers come to an end: no more hops than
        /// headers fit in, and no panic.
        #[test]
        fn damage_ends(
            damage in vec((24usize..1_000_000, any::<[u8; 4]>()), 0..200),
            offsets in vec(0usize..1_100_000, 1..50),
        ) {
            let (mut file, _) = capture_of(1000);
            for (at, bytes) in damage {
                let at = at % (file.len() - 28) + 24;
                file[at..at + 4].copy_from_slice(&bytes);
            }
            let (capture, start) = Capture::open(&file).unwrap();
            let limit = file.len() - 1000;
            if let Some(mut walkers) = Prefetcher::new(&capture, &file, start, limit) {
                for offset in offsets {
                    walkers.step(offset);
                }
                for _ in 0..file.len() / 16 * WALKERS {
                    walkers.step(start);
                }
                prop_assert!(walkers.walkers.iter().all(|walker| walker.at >= walker.end));
                prop_assert!(walkers.next_part >= limit);
            }
        }
    }
}
