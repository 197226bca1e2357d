//! Counters of a live capture: the kernel's and larder's own.
//!
//! The kernel resets its counters when they are read, so every reader adds them up here, one at a
//! time. The capture reads them twice a second while it reads frames; code that shows counters
//! calls [`LiveCounts::refresh`], which also finds frames dropped while the capture does not read.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::interface_counts::InterfaceCounts;
use super::queues::drops;
use super::socket::take_statistics;
use crate::batch_memory::lock;

/// Counts of a live capture.
#[derive(Debug, Default)]
pub struct LiveCounts {
    interfaces: Vec<InterfaceCounts>,
    /// How often the time of day was set while frames were read.
    pub clock_steps: AtomicU64,
    sockets: Mutex<Vec<(usize, Watched)>>,
}

/// The sockets whose counters are read.
#[derive(Debug)]
enum Watched {
    /// The socket of a ring.
    Ring(Arc<OwnedFd>),
    /// A queue of AF_XDP, and its drop counter at the last read.
    Queue(OwnedFd, u64),
}

impl LiveCounts {
    pub(super) fn new(names: &[String]) -> LiveCounts {
        let interfaces = names.iter();
        let interfaces =
            interfaces.map(|name| InterfaceCounts { name: name.clone(), ..Default::default() });
        LiveCounts { interfaces: interfaces.collect(), ..Default::default() }
    }

    /// Of each interface, in the order of the options.
    pub fn interfaces(&self) -> &[InterfaceCounts] {
        &self.interfaces
    }

    /// Reads the kernel's counters.
    pub fn refresh(&self) {
        // One at a time: the kernel returns each count to one reader only.
        for (interface, watched) in lock(&self.sockets).iter_mut() {
            self.add(*interface, watched);
        }
    }

    fn add(&self, interface: usize, watched: &mut Watched) {
        let counts = &self.interfaces[interface];
        match watched {
            Watched::Ring(socket) => {
                let Ok([all, dropped, freezes]) = take_statistics(socket) else { return };
                // The kernel counts dropped frames in both.
                let received = u64::from(all.saturating_sub(dropped));
                counts.received.fetch_add(received, Ordering::Relaxed);
                counts.dropped.fetch_add(u64::from(dropped), Ordering::Relaxed);
                counts.freezes.fetch_add(u64::from(freezes), Ordering::Relaxed);
            }
            Watched::Queue(socket, before) => {
                let Ok(dropped) = drops(socket) else { return };
                counts.dropped.fetch_add(dropped.saturating_sub(*before), Ordering::Relaxed);
                *before = dropped;
            }
        }
    }

    pub(super) fn watch(&self, interface: usize, socket: &Arc<OwnedFd>) {
        lock(&self.sockets).push((interface, Watched::Ring(Arc::clone(socket))));
    }

    pub(super) fn watch_queue(&self, interface: usize, socket: OwnedFd) {
        lock(&self.sockets).push((interface, Watched::Queue(socket, 0)));
    }

    /// Reads the counters of a socket a last time.
    pub(super) fn forget(&self, socket: &Arc<OwnedFd>) {
        self.forget_where(|_, watched| match watched {
            Watched::Ring(other) => Arc::ptr_eq(other, socket),
            Watched::Queue(..) => false,
        });
    }

    /// Like [`LiveCounts::forget`], for the queues of an interface.
    pub(super) fn forget_queues(&self, number: usize) {
        self.forget_where(|interface, watched| {
            interface == number && matches!(watched, Watched::Queue(..))
        });
    }

    /// Reads the counters a last time, and drops the sockets: code that shows counts later does not
    /// keep rings alive.
    pub(super) fn close(&self) {
        self.forget_where(|_, _| true);
    }

    fn forget_where(&self, mut is_meant: impl FnMut(usize, &Watched) -> bool) {
        lock(&self.sockets).retain_mut(|(interface, watched)| {
            let is_meant = is_meant(*interface, watched);
            if is_meant {
                self.add(*interface, watched);
            }
            !is_meant
        });
    }

    /// Frames that a queue received and that were delivered at once.
    pub(super) fn received(&self, interface: usize, frames: u64) {
        self.interfaces[interface].received.fetch_add(frames, Ordering::Relaxed);
    }

    pub(super) fn delivered(&self, interface: usize, frames: u64) {
        self.interfaces[interface].delivered.fetch_add(frames, Ordering::Relaxed);
    }

    /// Records whether an interface exists and is up.
    pub(super) fn set_up(&self, interface: usize, is_up: bool) {
        self.interfaces[interface].is_up.store(is_up, Ordering::Relaxed);
    }

    pub(super) fn went_down(&self, interface: usize) {
        self.interfaces[interface].downs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn came_again(&self, interface: usize) {
        self.interfaces[interface].reopened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn malformed(&self, interface: usize, blocks: u64) {
        self.interfaces[interface].malformed.fetch_add(blocks, Ordering::Relaxed);
    }
}
