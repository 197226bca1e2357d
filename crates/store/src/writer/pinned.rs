//! A store as the place of pinned packets: see `pins`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Store;
use crate::block::Interface;
use crate::flow_event::Batch;
use crate::options::{Options, StoreError};
use crate::pins::PinnedStore;

pub(super) fn open_pinned(
    options: Options,
    interfaces: &[Interface],
) -> Result<Box<dyn PinnedStore>, StoreError> {
    Ok(Box::new(Store::open(options, interfaces)?))
}

impl PinnedStore for Store {
    fn append(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        Store::append(self, batch)
    }

    fn wait_for_room(&self, bytes: u64, patience: Duration) -> bool {
        Store::wait_for_room(self, bytes, patience)
    }

    fn losses(&self) -> u64 {
        let counts = &self.shared.counts;
        let counts = [&counts.disk_errors, &counts.packets_dropped, &counts.packets_lost];
        counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn wait_until_written(&mut self, losses: u64, patience: Duration) -> bool {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (mut before, mut since) = (0, Instant::now());
        loop {
            let counts = &self.shared.counts;
            let done = load(&counts.bytes_written) + load(&counts.bytes_lost);
            if self.losses() != losses || since.elapsed() >= patience {
                // What was lost is never written: the next wait counts from here.
                self.filled = self.filled.min(done);
                return false;
            }
            if done >= self.filled {
                return true;
            }
            if done != before {
                (before, since) = (done, Instant::now());
            }
            self.wake();
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        Store::finish(*self)
    }
}
