//! The end of a batch: its changes come into the engine.

use std::sync::Arc;

use larder::Ttl;

use super::lives::birth_of;
use super::{Committed, NOW, Names, Overlay};
use crate::Error;

impl Names {
    /// Writes the batch's changes to the engine. `Ok(None)`: a reader is too far behind; let every
    /// worker finish the batches before this one and sync its reader, then call again.
    pub fn commit(&mut self) -> Result<Option<Committed>, Error> {
        self.leavers.begin(self.overlay.first_horizon());
        if self.committed == 0 && self.overlay.has_reborn() {
            // The engine evicts in the order of births.
            let Names { changed, overlay, .. } = self;
            changed.sort_by_cached_key(|&(hash, first)| overlay.birth(hash.get(), first));
        }
        while let Some(&(hash, first)) = self.changed.get(self.committed) {
            let change = self.overlay.changes[first as usize];
            let key = self.overlay.slice(change.key);
            let value = self.overlay.get(hash.get(), key, u64::MAX).flatten();
            if let Some(value) = value.filter(|value| !self.lives.living(value).is_empty()) {
                let before = change.value.map(|before| birth_of(self.overlay.slice(before)));
                // An update does not move an entry.
                let removed = match before.is_some_and(|before| before != birth_of(value)) {
                    true => self.writer.remove(key),
                    false => Ok(()),
                };
                let inserted = removed.and_then(|()| {
                    self.writer.insert_hashed(hash, key, value, Ttl::FOREVER, NOW).map(|_| ())
                });
                match inserted {
                    Ok(()) => {}
                    Err(larder::Error::Stalled { .. }) => {
                        self.reader.sync();
                        return Ok(None);
                    }
                    Err(error) => return Err(engine_failed(error)),
                }
            }
            self.committed += 1;
        }
        let position = match self.writer.flush() {
            Ok(position) => position,
            Err(larder::Error::Stalled { .. }) => {
                self.reader.sync();
                return Ok(None);
            }
            Err(error) => return Err(engine_failed(error)),
        };
        self.reader.sync();
        let Names { leavers, overlay, cache, .. } = self;
        leavers.end(|key, stored| overlay.keep_entry(cache.hash(key).get(), key, stored));
        self.changed.clear();
        self.committed = 0;
        let next = Overlay::like(&self.overlay, self.lives.horizon());
        let overlay = Arc::new(std::mem::replace(&mut self.overlay, next));
        Ok(Some(Committed { position, overlay }))
    }
}

fn engine_failed(error: larder::Error) -> Error {
    Error::Options(format!("the names' cache failed: {error}"))
}
