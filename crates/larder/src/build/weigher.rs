//! What a program gives objects as weights. The builder does not know their type; the map does.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::Builder;
use crate::error::Error;

type Weigh<V> = dyn Fn(&V) -> u32 + Send + Sync;

/// A weigher of objects of any one type, in a builder: a `Box<Weigh<V>>`.
#[derive(Clone)]
pub(super) struct AnyWeigher(Arc<dyn Any + Send + Sync>);

impl fmt::Debug for AnyWeigher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Weigher")
    }
}

/// A weigher of objects of `V`.
pub(crate) struct Weigher<V> {
    /// What objects of one shard weigh together, at most.
    shard_max: u64,
    weigh: Arc<Box<Weigh<V>>>,
}

impl<V> Clone for Weigher<V> {
    fn clone(&self) -> Self {
        Weigher { shard_max: self.shard_max, weigh: self.weigh.clone() }
    }
}

impl<V> Weigher<V> {
    /// What the caller's function returns for an object, which fails if that is more than a shard holds.
    pub fn weight(&self, object: &V) -> Result<u32, Error> {
        let weight = (self.weigh)(object);
        if u64::from(weight) > self.shard_max {
            return Err(Error::TooHeavy { weight: weight.into(), weight_max: self.shard_max });
        }
        Ok(weight)
    }
}

impl Builder {
    /// Limits what the objects of a [`crate::ObjectMap`] weigh together, in addition to their number. `weigh` returns
    /// what one weighs, the bytes that it owns for example, whenever one is to be stored; it runs under no lock.
    /// Objects leave the map before one enters that needs their room. They are dropped right after that, so that for a
    /// moment more is in memory.
    ///
    /// Each shard has an equal part of `weight_max`, rounded down. An object that weighs more than that is refused with
    /// [`Error::TooHeavy`]. There are up to four shards, on any machine. If one object may weigh as much as all
    /// together, set [`Builder::shards`] to 1.
    ///
    /// State in [`crate::ObjectMap::builder`] about as many objects as weigh `weight_max`: a search for one to evict
    /// passes over the places that are empty.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use larder::{Clock, ObjectMap};
    ///
    /// // At most 64 MiB of images, and at most 1,000 of them.
    /// let builder = ObjectMap::<str, Arc<[u8]>>::builder(1000)
    ///     .weigher(64 << 20, |image: &Arc<[u8]>| image.len().try_into().unwrap_or(u32::MAX));
    /// let images = ObjectMap::<str, Arc<[u8]>>::build(builder, Clock::system())?;
    /// images.insert("lynx", [0; 3000].into())?;
    /// assert_eq!(images.stats()?.weight, 3000);
    /// # Ok::<(), larder::Error>(())
    /// ```
    ///
    /// Any other cache refuses to be built with a weigher, as does a map of objects of another type. A [`crate::Map`]
    /// counts the bytes of its entries. Default: none.
    pub fn weigher<V: 'static>(
        mut self,
        weight_max: u64,
        weigh: impl Fn(&V) -> u32 + Send + Sync + 'static,
    ) -> Self {
        let weigh: Box<Weigh<V>> = Box::new(weigh);
        self.weigher = Some(AnyWeigher(Arc::new(weigh)));
        self.weight_max = Some(weight_max);
        self
    }

    /// Takes the weigher out. What is built then has entries with weights.
    pub(crate) fn take_weigher<V: 'static>(&mut self) -> Result<Option<Weigher<V>>, Error> {
        let Some(AnyWeigher(weigh)) = self.weigher.take() else { return Ok(None) };
        let weigh = weigh.downcast();
        let weigh =
            weigh.map_err(|_| Error::Setting("the weigher is for another type of object"))?;
        match self.shard_weight_max() {
            Some(shard_max @ 1..) => Ok(Some(Weigher { shard_max, weigh })),
            _ => Err(Error::Setting("weight_max must be at least 1, and 1 for each shard")),
        }
    }

    /// What the entries of one shard weigh together, at most.
    pub(super) fn shard_weight_max(&self) -> Option<u64> {
        Some(self.weight_max? / self.shard_count().max(1) as u64)
    }
}

#[cfg(test)]
mod tests {
    use crate::map::ObjectMap;

    /// A map with weights has as many shards on any machine, and room for its objects.
    #[test]
    fn shards_do_not_follow_the_cores() {
        for (entries, shards) in [(1000, 1), (10_000, 2), (100_000, 4), (10_000_000, 4)] {
            for cores in [1, 2, 8, 64] {
                let builder = ObjectMap::<u64, u32>::builder(entries).for_cores(cores);
                let builder = builder.readers_max(cores.min(16)).weigher(100, |_: &u32| 1);
                assert_eq!(builder.shard_count(), shards, "{entries} {cores}");
                let limits = builder.shape().unwrap().limits;
                let room =
                    limits.entries_max.min(limits.charge_max / (40 * larder_mem::CHARGE_UNITS));
                assert!(room * shards as u64 * 100 >= entries * 97, "{entries} {cores}: {room}");
            }
        }
    }
}
