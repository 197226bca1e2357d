//! The threads of a server's cores: started, woken, told how far the server's life has come, and waited for.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use crate::stage::{Stage, Stages};
use larder_io::event::Waker;

/// Wakes all cores: each turns its loop once.
pub type WakeAll = Arc<dyn Fn() + Send + Sync>;

/// Threads of the cores. Dropped, they are ended at once.
pub struct Crew {
    name: &'static str,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// How many have ended, well or not.
    ended: Arc<AtomicUsize>,
    wake_all: WakeAll,
    stages: Arc<Stages>,
    supervisor: Arc<Waker>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("name", &self.name).finish_non_exhaustive()
    }
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
    /// None yet. Threads are called `name` and a number; `supervisor` is called when one ends.
    pub fn new(
        name: &'static str,
        wake_all: WakeAll,
        stages: Arc<Stages>,
        supervisor: Arc<Waker>,
    ) -> Crew {
        Crew { name, threads: Vec::new(), ended: Arc::default(), wake_all, stages, supervisor }
    }

    /// Starts a core.
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

    /// Takes all to a stage.
    pub fn go_on(&self, stage: Stage) {
        self.stages.go_on(stage);
        self.wake();
    }

    /// Makes each turn its loop once.
    pub fn wake(&self) {
        (self.wake_all)();
    }

    /// What [`Crew::wake`] calls, for others.
    pub fn wakes(&self) -> WakeAll {
        Arc::clone(&self.wake_all)
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
pub fn wake(waker: &Waker) {
    let _ = waker.wake();
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_io::event::{Events, Interest, Poller};

    /// Cores that end, well, badly or by a panic, are counted and wake the supervisor; the first error is told, and those who
    /// go on are ended by the stage.
    #[test]
    fn ends_are_seen() {
        let (stages, supervisor) = (Arc::new(Stages::new()), Arc::new(Waker::new().unwrap()));
        let woken = Arc::new(AtomicUsize::new(0));
        let count = woken.clone();
        let wake_all = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut crew = Crew::new("test", wake_all, stages.clone(), supervisor.clone());
        let seen = stages.clone();
        let lasting = move || {
            while seen.get() != Stage::Ends {
                thread::yield_now();
            }
            Err(io::Error::other("at its end"))
        };
        crew.start(lasting).unwrap();
        crew.start(|| Ok(())).unwrap();
        crew.start(|| panic!("a core that fails")).unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(1));
        poller.add(&*supervisor, 0, Interest::READ).unwrap();
        while crew.ended() < 2 {
            poller.wait(&mut events, None).unwrap();
            supervisor.clear().unwrap();
        }
        assert_eq!((crew.count(), crew.ended()), (3, 2));
        crew.go_on(Stage::Ends);
        assert_eq!(crew.join().unwrap_err().to_string(), "at its end");
        assert_eq!((crew.ended(), woken.load(Ordering::Relaxed)), (3, 1));
    }
}
