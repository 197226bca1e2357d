//! Purges, as serial numbers: a purge costs the same however many records it concerns.

use foldhash::HashMap;

use crate::key::Key;
use crate::record::Kept;

/// Purges. A record with a lower serial number is deleted, or stale.
#[derive(Debug, Clone, Default)]
pub(super) struct Purges {
    pub(super) all: Before,
    pub(super) tagged: Before,
    pub(super) tags: HashMap<u64, Before>,
    /// Stale URLs, by primary key.
    pub(super) urls: HashMap<Key, u64>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    pub(super) gone: u64,
    pub(super) stale: u64,
}

impl Before {
    fn max(self, other: Before) -> Before {
        Before { gone: self.gone.max(other.gone), stale: self.stale.max(other.stale) }
    }
}

/// The effect of purges on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Good,
    Stale,
    Gone,
}

impl Purges {
    /// Their effect on a record of the URL with this primary key.
    pub(super) fn standing(&self, primary: &Key, kept: &Kept<'_>) -> Standing {
        let mut before = self.all;
        if kept.has_tags() {
            before = before.max(self.tagged);
            for tag in kept.tags() {
                before = before.max(self.tags.get(&tag).copied().unwrap_or_default());
            }
        }
        if !self.urls.is_empty()
            && let Some(&stale) = self.urls.get(primary)
        {
            before.stale = before.stale.max(stale);
        }
        match kept.serial {
            serial if serial < before.gone => Standing::Gone,
            serial if serial < before.stale => Standing::Stale,
            _ => Standing::Good,
        }
    }
}
