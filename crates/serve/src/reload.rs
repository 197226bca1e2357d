//! Reads settings and files again while a server runs, in the same way for SIGHUP and `larder ctl
//! reload`.
//!
//! ```text
//! Reload::start    a thread reads everything again, and puts it in force
//!   in order       each setting that differs is applied, or named as needing a restart
//!   an error       no setting changes; the error is reported
//! ```
//!
//! One reload runs at a time. A request that comes meanwhile gets another reload after it, since
//! the files may have changed since they were read. All requests that wait share that one.
//!
//! Invariants
//! 1. Each request gets the outcome of a reload that began after it.
//!
//! Bounds: one thread; [`WAITING_MAX`] requests that wait.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use crate::changes::Changes;
use crate::control::{Answer, Fields};
use crate::log::Log;

/// Requests that may wait for one reload.
pub const WAITING_MAX: usize = 64;

/// The result of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that differ from those before.
    pub changes: Changes,
    /// Other files that were read, with a line on each: the policy, certificates.
    pub parts: Vec<(&'static str, String)>,
}

/// Logs how a reload has ended. Where it failed, no setting has changed.
pub fn log_outcome(log: &Log, outcome: &Outcome) {
    match outcome {
        Ok(Reloaded { changes: Changes { changed, needs_restart }, parts }) => {
            let names = |names: &[String]| match names {
                [] => "none".to_owned(),
                names => names.join(","),
            };
            let line = log
                .info("settings reloaded")
                .text("changed", names(changed))
                .text("needs_restart", names(needs_restart));
            parts.iter().fold(line, |line, (name, value)| line.text(name, value));
        }
        Err(error) => drop(log.error("reload failed").text("error", error)),
    }
}

/// Adds another file that was read, also where the settings failed.
pub fn with_part(outcome: Outcome, name: &'static str, line: Option<String>) -> Outcome {
    match (outcome, line) {
        (Ok(mut reloaded), Some(line)) => {
            reloaded.parts.push((name, line));
            Ok(reloaded)
        }
        (Err(error), Some(line)) => Err(format!("{error}; {line}")),
        (outcome, None) => outcome,
    }
}

impl From<Reloaded> for Fields {
    fn from(Reloaded { changes, parts }: Reloaded) -> Fields {
        let changes =
            [("changed", changes.changed.into()), ("needs_restart", changes.needs_restart.into())];
        let parts = parts.into_iter().map(|(name, line)| (name, line.into()));
        changes.into_iter().chain(parts).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The outcome of a reload. The error states what to do, and then no setting has changed.
pub type Outcome = Result<Reloaded, String>;

/// Receives the outcome, on the thread of the reload.
pub type Report = Box<dyn FnOnce(&Outcome) + Send>;

/// Reads everything again and puts it in force; it may take long.
type Act = dyn Fn() -> Outcome + Send + Sync;

/// The reloads of one server. Clones share one state.
#[derive(Clone)]
pub struct Reload {
    act: Arc<Act>,
    work: Arc<Mutex<Work>>,
}

/// Whether a reload runs, and the requests that wait for the next one.
#[derive(Default)]
struct Work {
    is_running: bool,
    waiting: Vec<Report>,
}

impl Reload {
    /// `act` does the work, on its own thread.
    pub fn new(act: impl Fn() -> Outcome + Send + Sync + 'static) -> Reload {
        Reload { act: Arc::new(act), work: Arc::default() }
    }

    /// Begins a reload, and returns. It fails if no thread can be started, or too many requests
    /// wait.
    pub fn start(&self, report: Report) -> io::Result<()> {
        let mut work = self.lock();
        if work.waiting.len() >= WAITING_MAX {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "too many wait for a reload"));
        }
        work.waiting.push(report);
        if work.is_running {
            return Ok(());
        }
        let reload = self.clone();
        let spawned = thread::Builder::new().name("reload".to_owned()).spawn(move || reload.run());
        if let Err(error) = spawned {
            work.waiting.clear();
            return Err(error);
        }
        work.is_running = true;
        Ok(())
    }

    /// The same for a client of the control socket, which waits for the outcome.
    pub fn answer(&self) -> Answer {
        let reload = self.clone();
        Answer::Later(Box::new(move |_| {
            let (sender, received) = mpsc::channel();
            let sender = move |outcome: &Outcome| {
                // The client may have disconnected by then.
                let _ = sender.send(outcome.clone());
            };
            reload.start(Box::new(sender)).map_err(|error| format!("{error}; ask again"))?;
            let ended = "the reload failed by a bug; see the log of errors";
            received.recv().map_err(|_| ended.to_owned())?.map(Fields::from)
        }))
    }

    /// Reloads until no request waits.
    fn run(&self) {
        let _idle = Idle(self);
        loop {
            let waiting = std::mem::take(&mut self.lock().waiting);
            let outcome = (self.act)();
            waiting.into_iter().for_each(|report| report(&outcome));
            let mut work = self.lock();
            if work.waiting.is_empty() {
                work.is_running = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").finish_non_exhaustive()
    }
}

/// After a panic the next request starts a thread again. The requests that waited are dropped.
struct Idle<'a>(&'a Reload);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut work = self.0.lock();
            work.is_running = false;
            let dropped = std::mem::take(&mut work.waiting);
            drop(work);
            drop(dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Format, Level};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Each request gets an outcome, however many come while one reload runs. None of them gets the
    /// outcome of a reload that had begun before. Invariant 1.
    #[test]
    fn each_request_is_reported() {
        let (begins, begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (may_go, count) = (Mutex::new(may_go), Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        let reload = Reload::new(move || {
            begins.send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
            let name = counted.fetch_add(1, Ordering::Relaxed).to_string();
            let changes = Changes { changed: vec![name], ..Changes::default() };
            Ok(Reloaded { changes, parts: vec![("policy", "2 blocked".to_owned())] })
        });
        let (sender, received) = mpsc::channel();
        let request = || {
            let sender = sender.clone();
            reload.start(Box::new(move |outcome: &Outcome| {
                let Reloaded { changes, parts } = outcome.clone().unwrap();
                assert_eq!(parts, [("policy", "2 blocked".to_owned())]);
                sender.send(changes.changed).unwrap();
            }))
        };
        request().unwrap();
        begun.recv().unwrap();
        (0..WAITING_MAX).for_each(|_| request().unwrap());
        assert_eq!(request().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        go.send(()).unwrap();
        assert_eq!(received.recv().unwrap(), ["0"]);
        begun.recv().unwrap();
        go.send(()).unwrap();
        for _ in 0..WAITING_MAX {
            assert_eq!(received.recv().unwrap(), ["1"]);
        }
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    /// After a reload that panics, the next request gets a thread.
    #[test]
    fn a_panic_is_not_the_end() {
        let count = AtomicUsize::new(0);
        let reload = Reload::new(move || match count.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("a reload that fails"),
            _ => Err("no such file".to_owned()),
        });
        let request = || {
            let (sender, received) = mpsc::channel();
            let start = reload.start(Box::new(move |outcome: &Outcome| {
                sender.send(outcome.clone()).unwrap();
            }));
            start.unwrap();
            received.recv()
        };
        assert!(request().is_err(), "nobody is told");
        while reload.lock().is_running {
            thread::yield_now();
        }
        assert_eq!(request(), Ok(Err("no such file".to_owned())));
    }

    /// The log has the names of settings, and the word `none` where there are none.
    #[test]
    fn outcomes_are_logged() {
        let log = Log::new("dns", Level::Info, Format::Text);
        let needs_restart = vec!["cache".to_owned(), "cores".to_owned()];
        let changes = Changes { changed: Vec::new(), needs_restart };
        let parts = vec![("policy", "2 blocked".to_owned())];
        log_outcome(&log, &Ok(Reloaded { changes, parts }));
        log_outcome(&log, &Err("no such file".to_owned()));
        let reloaded = r#"info dns: settings reloaded changed=none needs_restart=cache,cores policy="2 blocked""#;
        assert_eq!(log.take(), [reloaded, r#"error dns: reload failed error="no such file""#]);
    }

    /// The control socket gets the outcome as fields.
    #[test]
    fn fields() {
        let changes = Changes { changed: vec!["a".to_owned()], needs_restart: Vec::new() };
        let reloaded = Reloaded { changes, parts: vec![("policy", "none".to_owned())] };
        let text = serde_json::Value::Object(reloaded.into()).to_string();
        assert_eq!(text, r#"{"changed":["a"],"needs_restart":[],"policy":"none"}"#);
    }
}
