//! Finds matches for the encoder: for each place the last earlier one with the same hash of its next
//! bytes, and nothing more.
//!
//! The matches of a frame are within it. After misses in a row the search advances faster:
//! encrypted payload costs little.

use ruzstd::encoding::{CompressionLevel, Matcher, Sequence};

use super::CONTENT_BYTES;

/// Bytes of a match, at least.
const MATCH_BYTES_MIN: usize = 5;

/// The table has two to this power entries.
const TABLE_BITS: u32 = 15;

/// Misses in a row after which each step is one byte longer.
const PATIENCE: usize = 64;

/// Bytes that a look at a place reads.
const LOOK_BYTES: usize = 8;

/// Matches within a frame of one block.
#[derive(Debug)]
pub struct FrameMatcher {
    content: Vec<u8>,
    /// The last place with this hash, and 1; 0: none.
    table: Vec<u32>,
    /// Memory for the next content.
    space: Vec<u8>,
}

impl Default for FrameMatcher {
    fn default() -> FrameMatcher {
        FrameMatcher { content: Vec::new(), table: vec![0; 1 << TABLE_BITS], space: Vec::new() }
    }
}

/// The bytes at a place, as a number. There are at least [`LOOK_BYTES`].
#[inline]
fn look(content: &[u8], at: usize) -> u64 {
    content
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Without the bytes that need not be the same.
#[inline]
fn significant(bytes: u64) -> u64 {
    bytes << (64 - 8 * MATCH_BYTES_MIN)
}

#[inline]
fn hash(bytes: u64) -> usize {
    (significant(bytes).wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - TABLE_BITS)) as usize
}

/// How many bytes from `one` and from the later `other` on are the same.
#[inline]
fn common(content: &[u8], one: usize, other: usize) -> usize {
    let most = content.len() - other;
    let mut same = 0;
    while same + LOOK_BYTES <= most {
        let differing = look(content, one + same) ^ look(content, other + same);
        if differing != 0 {
            return same + (differing.trailing_zeros() / 8) as usize;
        }
        same += LOOK_BYTES;
    }
    while same < most && content[one + same] == content[other + same] {
        same += 1;
    }
    same
}

impl Matcher for FrameMatcher {
    fn get_next_space(&mut self) -> Vec<u8> {
        let mut space = std::mem::take(&mut self.space);
        space.resize(CONTENT_BYTES, 0);
        space
    }

    fn get_last_space(&mut self) -> &[u8] {
        &self.content
    }

    fn commit_space(&mut self, space: Vec<u8>) {
        self.space = std::mem::replace(&mut self.content, space);
        // A place of an earlier block is none of this one.
        self.table.fill(0);
    }

    fn skip_matching(&mut self) {}

    fn start_matching(&mut self, mut handle_sequence: impl for<'a> FnMut(Sequence<'a>)) {
        let FrameMatcher { content, table, .. } = self;
        let content = &content[..];
        let (mut at, mut shown, mut misses) = (0, 0, 0);
        while at + LOOK_BYTES <= content.len() {
            let bytes = look(content, at);
            let earlier = std::mem::replace(&mut table[hash(bytes)], at as u32 + 1);
            let is_match =
                earlier > 0 && significant(look(content, earlier as usize - 1) ^ bytes) == 0;
            if !is_match {
                misses += 1;
                at += 1 + misses / PATIENCE;
                continue;
            }
            let mut from = earlier as usize - 1;
            let mut end = at + common(content, from, at);
            // The bytes before may be the same as well.
            while at > shown && from > 0 && content[at - 1] == content[from - 1] {
                (at, from) = (at - 1, from - 1);
            }
            end = end.max(at);
            let literals = &content[shown..at];
            handle_sequence(Sequence::Triple { literals, offset: at - from, match_len: end - at });
            // Two places of the match stand for all of them.
            for place in [at + 2, end - 2] {
                if place + LOOK_BYTES <= content.len() {
                    table[hash(look(content, place))] = place as u32 + 1;
                }
            }
            (at, shown, misses) = (end, end, 0);
        }
        if shown < content.len() {
            handle_sequence(Sequence::Literals { literals: &content[shown..] });
        }
    }

    fn reset(&mut self, _: CompressionLevel) {}

    fn window_size(&self) -> u64 {
        CONTENT_BYTES as u64
    }
}
