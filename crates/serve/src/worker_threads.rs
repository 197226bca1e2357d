//! The worker threads of a server: this module starts them, wakes them, moves them to the next stage of
//! the server's lifecycle, and joins them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use crate::lifecycle::{Lifecycle, Stage};
use larder_io::epoll::Waker;

/// Wakes all workers: each runs its event loop once.
pub type WakeAll = Arc<dyn Fn() + Send + Sync>;

/// Drop stops all threads and joins them.
pub struct WorkerThreads {
    name: &'static str,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// Threads that have ended, with or without an error.
    ended: Arc<AtomicUsize>,
    wake_all: WakeAll,
    lifecycle: Arc<Lifecycle>,
    supervisor: Arc<Waker>,
}

impl fmt::Debug for WorkerThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerThreads").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Counts a thread that has ended, also by a panic.
struct Ending {
    ended: Arc<AtomicUsize>,
    supervisor: Arc<Waker>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Release);
        wake(&self.supervisor);
    }
}

impl WorkerThreads {
    /// No threads yet. A thread's name is `name` and a number; a thread that ends wakes `supervisor`.
    pub fn new(
        name: &'static str,
        wake_all: WakeAll,
        lifecycle: Arc<Lifecycle>,
        supervisor: Arc<Waker>,
    ) -> WorkerThreads {
        WorkerThreads {
            name,
            threads: Vec::new(),
            ended: Arc::default(),
            wake_all,
            lifecycle,
            supervisor,
        }
    }

    /// Starts one thread.
    pub fn start(
        &mut self,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (ended, supervisor) = (Arc::clone(&self.ended), Arc::clone(&self.supervisor));
        let run = move || {
            let _ending = Ending { ended, supervisor };
            run()
        };
        let name = format!("{}-{}", self.name, self.threads.len());
        self.threads.push(thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// Moves all threads to a stage of the lifecycle, and wakes them.
    pub fn advance(&self, stage: Stage) {
        self.lifecycle.advance(stage);
        self.wake();
    }

    /// Wakes each thread: it runs its event loop once.
    pub fn wake(&self) {
        (self.wake_all)();
    }

    /// The function that [`WorkerThreads::wake`] calls.
    pub fn wakes(&self) -> WakeAll {
        Arc::clone(&self.wake_all)
    }

    /// The number of threads that were started.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// The number of threads that have ended, with or without an error.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits for all threads, which must be in a stage in which they end, and returns the first error.
    pub fn join(&mut self) -> io::Result<()> {
        let mut first = Ok(());
        for thread in self.threads.drain(..) {
            let panicked = |_| Err(io::Error::other("a core's thread panicked; see above"));
            first = first.and(thread.join().unwrap_or_else(panicked));
        }
        first
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.advance(Stage::Ends);
        // A caller that drops this without `join` reports its own error.
        let _ = self.join();
    }
}

/// Ignores errors: an eventfd has none that could be repaired here, and a thread that is not woken checks
/// its state within a second anyway.
pub fn wake(waker: &Waker) {
    let _ = waker.wake();
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_io::epoll::{Events, Interest, Poller};

    /// Threads that end with success, an error or a panic are counted and wake the supervisor; `join` returns
    /// the first error, and the stage `Ends` ends the other threads.
    #[test]
    fn ends_are_seen() {
        let (lifecycle, supervisor) = (Arc::new(Lifecycle::new()), Arc::new(Waker::new().unwrap()));
        let woken = Arc::new(AtomicUsize::new(0));
        let count = woken.clone();
        let wake_all = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut workers =
            WorkerThreads::new("test", wake_all, lifecycle.clone(), supervisor.clone());
        let seen = lifecycle.clone();
        let lasting = move || {
            while seen.get() != Stage::Ends {
                thread::yield_now();
            }
            Err(io::Error::other("at its end"))
        };
        workers.start(lasting).unwrap();
        workers.start(|| Ok(())).unwrap();
        workers.start(|| panic!("a core that fails")).unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(1));
        poller.add(&*supervisor, 0, Interest::READ).unwrap();
        while workers.ended() < 2 {
            poller.wait(&mut events, None).unwrap();
            supervisor.clear().unwrap();
        }
        assert_eq!((workers.count(), workers.ended()), (3, 2));
        workers.advance(Stage::Ends);
        assert_eq!(workers.join().unwrap_err().to_string(), "at its end");
        assert_eq!((workers.ended(), woken.load(Ordering::Relaxed)), (3, 1));
    }
}
