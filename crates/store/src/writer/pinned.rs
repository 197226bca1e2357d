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

    fn wait_until_written(&self, patience: Duration) -> bool {
        let counts = &self.shared.counts;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (errors, mut before, mut since) = (load(&counts.disk_errors), 0, Instant::now());
        loop {
            let written = load(&counts.bytes_written);
            if written >= self.filled {
                return true;
            }
            if load(&counts.disk_errors) > errors || since.elapsed() >= patience {
                return false;
            }
            if written != before {
                (before, since) = (written, Instant::now());
            }
            self.wake();
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        Store::finish(*self)
    }
}
