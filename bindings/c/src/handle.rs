//! The cache behind a handle.

use std::borrow::Cow;

use engine::{Clock, Map};

/// A value that is borrowed on its way in, and owned on its way out.
pub type Bytes<'a> = Cow<'a, [u8]>;

/// A cache. Any number of threads may use it at once.
pub struct larder_cache {
    map: Map<[u8], Bytes<'static>>,
    clock: Clock,
}

impl larder_cache {
    /// A cache with its clock, which the map has too.
    pub fn new(map: Map<[u8], Bytes<'static>>, clock: Clock) -> larder_cache {
        larder_cache { map, clock }
    }

    /// The map, for values that live as long as this borrow of it.
    pub fn map(&self) -> &Map<[u8], Bytes<'_>> {
        &self.map
    }

    /// The map, to be kept.
    pub fn to_map(&self) -> Map<[u8], Bytes<'static>> {
        self.map.clone()
    }

    /// The map's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}
