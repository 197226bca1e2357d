//! A moment in a cache's history: a log position per shard, or per group of shards.

use larder_mem::LogPosition as ShardPosition;

/// Numbers of a position.
pub(crate) const POSITION_SHARDS: usize = 8;

/// A moment in the cache's history: all operations before it are applied. Shards are independent,
/// so it has a number for each shard, and of two positions neither need be the earlier one.
///
/// Of a cache with more than eight shards it has a number for each eighth of them, the sum of
/// theirs. Such a cache has a shared index, whose readers show the present at any position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LogPosition {
    shards: [ShardPosition; POSITION_SHARDS],
}

impl LogPosition {
    /// After every position: all there is.
    pub const END: LogPosition = LogPosition { shards: [ShardPosition::END; POSITION_SHARDS] };

    /// Log records written since the cache was built, in all shards.
    pub fn records(self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.records()))
    }

    #[inline]
    pub(crate) fn of(shards: impl IntoIterator<Item = ShardPosition>) -> LogPosition {
        let mut position = LogPosition::default();
        for (number, shard) in shards.into_iter().enumerate() {
            position.add(number, shard);
        }
        position
    }

    /// The position of a shard, or a later one if it is the sum of several.
    #[inline]
    pub(crate) fn shard(&self, shard: usize) -> ShardPosition {
        self.shards[shard % POSITION_SHARDS]
    }

    /// Adds the position of a shard, to a position that is without it.
    #[inline]
    pub(crate) fn add(&mut self, shard: usize, position: ShardPosition) {
        let number = &mut self.shards[shard % POSITION_SHARDS];
        *number = match shard {
            ..POSITION_SHARDS => position,
            _ => ShardPosition::after(number.records().saturating_add(position.records())),
        };
    }
}

/// Earlier if it is earlier or equal in every shard; otherwise the two are not ordered.
impl PartialOrd for LogPosition {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let mut order = Equal;
        for (mine, theirs) in self.shards.iter().zip(&other.shards) {
            order = match (order, mine.cmp(theirs)) {
                (order, Equal) | (Equal, order) => order,
                (Less, Less) => Less,
                (Greater, Greater) => Greater,
                _ => return None,
            };
        }
        Some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of more than eight shards, each number is a sum: it counts all records, and grows with each of
    /// its shards.
    #[test]
    fn many_shards_are_summed() {
        let at = |records: [u64; 10]| LogPosition::of(records.map(ShardPosition::after));
        let early = at([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(early.records(), 55);
        assert!(early < at([1, 2, 3, 4, 5, 6, 7, 8, 9, 11]));
        assert!(early.shard(8) >= ShardPosition::after(9) && early.shard(2).records() == 3);
        assert_eq!(LogPosition::of([ShardPosition::END; 10]).records(), u64::MAX);
    }

    /// A position is before another if no shard is after: the order is partial, and END is last.
    #[test]
    fn order_is_partial() {
        let (start, end) = (ShardPosition::default(), ShardPosition::END);
        let one = LogPosition::of([end, start]);
        let other = LogPosition::of([start, end]);
        assert_eq!(one.partial_cmp(&other), None);
        assert!(one < LogPosition::END && LogPosition::default() < one);
        assert_eq!(one.partial_cmp(&one), Some(std::cmp::Ordering::Equal));
        assert_eq!(LogPosition::END.records(), u64::MAX);
    }
}
