//! A moment in a cache's history: one log position per shard.

use larder_mem::LogPosition as ShardPosition;

/// Shards of a cache, at most. One shard takes about ten million writes a second.
pub(crate) const SHARDS_MAX: usize = 8;

/// A moment in the cache's history: all operations before it are applied. Shards are independent,
/// so it has a number for each shard, and of two positions neither need be the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LogPosition {
    shards: [ShardPosition; SHARDS_MAX],
}

impl LogPosition {
    /// After every position: all there is.
    pub const END: LogPosition = LogPosition { shards: [ShardPosition::END; SHARDS_MAX] };

    /// Log records written since the cache was built, in all shards.
    pub fn records(self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.records()))
    }

    #[inline]
    pub(crate) fn of(shards: impl IntoIterator<Item = ShardPosition>) -> LogPosition {
        let mut position = LogPosition::default();
        for (number, shard) in position.shards.iter_mut().zip(shards) {
            *number = shard;
        }
        position
    }

    #[inline]
    pub(crate) fn shard(&self, shard: usize) -> ShardPosition {
        self.shards[shard]
    }

    #[inline]
    pub(crate) fn set(&mut self, shard: usize, position: ShardPosition) {
        self.shards[shard] = position;
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
