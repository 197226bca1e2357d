//! A reader's data for each shard.
//!
//! Up to eight are stored in place, because a hit in the CPU's caches takes 3 of 26 ns more behind
//! a pointer. (With only the first in place, the branch is unpredictable; this one is the same for
//! every lookup of a cache.)

/// Shards whose data is stored in place.
const IN_PLACE: usize = 8;

/// An item for each shard of a cache.
#[derive(Debug)]
pub(crate) enum PerShard<T> {
    Few([Option<T>; IN_PLACE]),
    Many(Box<[T]>),
}

impl<T> PerShard<T> {
    /// Makes each shard's item.
    pub fn new<U, E>(
        shards: impl ExactSizeIterator<Item = U>,
        mut make: impl FnMut(U) -> Result<T, E>,
    ) -> Result<Self, E> {
        if shards.len() > IN_PLACE {
            return Ok(PerShard::Many(shards.map(make).collect::<Result<_, _>>()?));
        }
        let mut made = [const { None }; IN_PLACE];
        for (place, shard) in made.iter_mut().zip(shards) {
            *place = Some(make(shard)?);
        }
        Ok(PerShard::Few(made))
    }

    /// A shard's item.
    #[inline(always)]
    pub fn get(&self, shard: usize) -> &T {
        match self {
            PerShard::Few(items) => {
                items[shard].as_ref().expect("a reader has an item for each shard")
            }
            PerShard::Many(items) => &items[shard],
        }
    }

    /// All items, by shard.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (few, many) = match self {
            PerShard::Few(items) => (&items[..], &[][..]),
            PerShard::Many(items) => (&[][..], &items[..]),
        };
        few.iter().flatten().chain(many)
    }

    /// All items, by shard.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (few, many) = match self {
            PerShard::Few(items) => (&mut items[..], &mut [][..]),
            PerShard::Many(items) => (&mut [][..], &mut items[..]),
        };
        few.iter_mut().flatten().chain(many)
    }

    /// All items, by shard.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            PerShard::Few(items) => items.into_iter().flatten().collect(),
            PerShard::Many(items) => items.into_vec(),
        }
    }
}
