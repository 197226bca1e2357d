//! The threads of the cores: started, woken, told how far the server's life has come, and waited for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use larder_io::event::Waker;

use crate::driver::Driver;
use larder_io::stage::{Stage, Stages};

/// Threads of the cores. Dropped, they are ended at once.
pub(crate) struct Crew {
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// How many have ended, well or not.
    ended: Arc<AtomicUsize>,
    /// Those of the cores.
    pub wakers: Arc<[Arc<Waker>]>,
    stages: Arc<Stages>,
    supervisor: Arc<Waker>,
}

/// Says that a thread has ended, also by a panic.
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

impl Crew {
    /// None yet. `wakers` are those of the cores, `supervisor` is called when one ends.
    pub fn new(wakers: Vec<Arc<Waker>>, stages: Arc<Stages>, supervisor: Arc<Waker>) -> Crew {
        let wakers = wakers.into();
        Crew { threads: Vec::new(), ended: Arc::default(), wakers, stages, supervisor }
    }

    /// Starts a core.
    pub fn start(&mut self, mut driver: Driver) -> io::Result<()> {
        let (ended, supervisor) = (Arc::clone(&self.ended), Arc::clone(&self.supervisor));
        let run = move || {
            let _ending = Ending { ended, supervisor };
            driver.run()
        };
        let name = format!("dns-{}", self.threads.len());
        self.threads.push(thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// Takes all to a stage.
    pub fn go_on(&self, stage: Stage) {
        self.stages.go_on(stage);
        self.wake();
    }

    /// Makes each turn its loop once.
    pub fn wake(&self) {
        self.wakers.iter().for_each(|waker| wake(waker));
    }

    /// How many were started.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// How many have ended, well or not.
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits for all of them: the first error. They were told to end.
    pub fn join(&mut self) -> io::Result<()> {
        let mut first = Ok(());
        for thread in self.threads.drain(..) {
            let panicked = |_| Err(io::Error::other("a core's thread panicked; see above"));
            first = first.and(thread.join().unwrap_or_else(panicked));
        }
        first
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.go_on(Stage::Ends);
        // Who drops it without looking has an error of its own to tell.
        let _ = self.join();
    }
}

/// An eventfd fails for nothing that could be mended here; who is not woken looks around within a second.
pub(super) fn wake(waker: &Waker) {
    let _ = waker.wake();
}
