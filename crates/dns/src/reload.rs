//! A policy that is replaced while the server runs.
//!
//! ```text
//! Reload::new      loads the first policy, before anything is bound
//! Reload::start    SIGHUP, `larder ctl reload`: a thread of its own reads the settings again, and loads the next one
//!   in order       it takes the place of the one before, with the next generation
//!   an error       the one before stays in force, and so do its settings; the error is told
//! Follower         a core asks once a turn whether there is another
//! ```
//!
//! Only one policy is loaded at a time. Who asks for a reload meanwhile gets another one right after it, since what was
//! read may have been changed since; who asks then is told with him, for one such reload serves all who wait.
//!
//! The cache is kept over a reload. What upstreams answered is no matter of policy, and what a policy answers by itself is
//! not cached (`core/local.rs`), nor is what stands behind an alias of its own (`core/alias.rs`). So all that can be wrong
//! is an answer to a question that the new policy would not have sent upstream. A core therefore asks the policy before it
//! serves what was born before the policy came, and serves what was born later without a question. No entry is
//! touched, no key changes, and it holds for what a snapshot brings back just as well. The cost: a look into the policy
//! (what that takes says `policy`) for each hit of an old entry, until it has been fetched anew.
//!
//! Bounds: two policies in memory while one is loaded, one thread. Cost in a core: a relaxed load a turn, and a lock that is
//! held for the copy of a pointer where there is something new. Nobody waits for a file.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use larder_serve::changes::Changes;

use crate::policy::{self, Policy, PolicyError, PolicyOptions, Report};

/// Generation of the first policy.
const FIRST: u32 = 1;

/// Those who may wait for one reload.
const WAITING_MAX: usize = 64;

/// The policy in force.
#[derive(Debug)]
struct Shared {
    /// Generation of the one in force: for those who only want to know whether it is another.
    generation: AtomicU32,
    policy: Mutex<Arc<Policy>>,
}

/// What a core holds to learn of the policy.
#[derive(Debug, Clone)]
pub struct Follower {
    shared: Arc<Shared>,
    /// That of the policy that was taken last.
    generation: u32,
}

impl Follower {
    /// The policy in force, unless it was taken already.
    #[inline]
    pub fn take_next(&mut self) -> Option<Arc<Policy>> {
        if self.shared.generation.load(Ordering::Relaxed) == self.generation {
            return None;
        }
        let policy = lock(&self.shared.policy).clone();
        self.generation = policy.generation();
        Some(policy)
    }
}

/// Settings that were read again.
pub struct Fresh {
    /// Those of the policy.
    pub policy: PolicyOptions,
    /// Which settings differ from those in force.
    pub changes: Changes,
    /// Called when the policy is in force, and with it what changed.
    pub applied: Box<dyn FnOnce()>,
}

/// Reads the settings again. It is called on a thread of its own. The error says what to do.
pub type Source = Arc<dyn Fn() -> Result<Fresh, String> + Send + Sync>;

/// What came of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Which settings differ from those before.
    pub changes: Changes,
    /// The policy that is in force now.
    pub policy: Report,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; policy: {}", self.changes, self.policy)
    }
}

/// Tells how a reload ended; the error says what to do, and nothing has changed.
pub type Told = Box<dyn FnOnce(&Result<Reloaded, String>) + Send>;

/// Whether a policy is being loaded, and for whom another will be.
#[derive(Default)]
struct Work {
    is_running: bool,
    waiting: Vec<Told>,
}

/// Loads policies; clones are handles of one and the same.
#[derive(Clone)]
pub struct Reload {
    options: Arc<PolicyOptions>,
    source: Option<Source>,
    key: [u8; 16],
    shared: Arc<Shared>,
    work: Arc<Mutex<Work>>,
}

impl Reload {
    /// Loads the first policy; later ones have the settings that `source` reads, or without one the same. `key` is that of
    /// hashes, from the system's random source.
    pub fn new(
        options: PolicyOptions,
        source: Option<Source>,
        key: &[u8; 16],
    ) -> Result<(Reload, Report), PolicyError> {
        let (policy, report) = policy::load(&options, FIRST, key)?;
        let policy = Mutex::new(Arc::new(policy));
        let reload = Reload {
            options: Arc::new(options),
            source,
            key: *key,
            shared: Arc::new(Shared { generation: AtomicU32::new(FIRST), policy }),
            work: Arc::default(),
        };
        Ok((reload, report))
    }

    /// For a core; the first policy that it is told of is the one in force.
    pub fn follower(&self) -> Follower {
        Follower { shared: self.shared.clone(), generation: FIRST.wrapping_sub(1) }
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        lock(&self.shared.policy).clone()
    }

    /// Begins to load what the settings and files say by now, and returns. `told` is called in the end, from the thread
    /// that loads; with an error nothing has changed. An error here is the system's, which has no thread for us, or says that 64 wait already.
    pub fn start(&self, told: Told) -> io::Result<()> {
        let mut work = lock(&self.work);
        if work.waiting.len() >= WAITING_MAX {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "too many wait for a reload"));
        }
        work.waiting.push(told);
        if work.is_running {
            return Ok(());
        }
        let reload = self.clone();
        let spawned = thread::Builder::new().name("policy".into()).spawn(move || reload.run());
        if let Err(error) = spawned {
            work.waiting.clear();
            return Err(error);
        }
        work.is_running = true;
        Ok(())
    }

    /// Loads for all who wait, until nobody does.
    fn run(&self) {
        loop {
            let waiting = {
                let mut work = lock(&self.work);
                if work.waiting.is_empty() {
                    work.is_running = false;
                    return;
                }
                std::mem::take(&mut work.waiting)
            };
            let outcome = self.load();
            for told in waiting {
                told(&outcome);
            }
        }
    }

    fn load(&self) -> Result<Reloaded, String> {
        let fresh = self.source.as_ref().map(|source| source()).transpose()?;
        let options = fresh.as_ref().map_or(&*self.options, |fresh| &fresh.policy);
        let generation = self.policy().generation().wrapping_add(1);
        let (policy, report) =
            policy::load(options, generation, &self.key).map_err(|error| error.to_string())?;
        // What was before is dropped after the lock.
        let _before = std::mem::replace(&mut *lock(&self.shared.policy), Arc::new(policy));
        self.shared.generation.store(generation, Ordering::Relaxed);
        let changes = fresh.map(|fresh| {
            (fresh.applied)();
            fresh.changes
        });
        Ok(Reloaded { changes: changes.unwrap_or_default(), policy: report })
    }
}

/// Whoever panicked with the lock left what it guards whole: it is replaced in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const BAD: &[u8] = b"\x03bad\x07example\0\0\x01\0\x01";

    fn reloaded(reload: &Reload) -> Result<u64, String> {
        let (tell, told) = mpsc::channel();
        let told_by_thread = move |outcome: &Result<Reloaded, String>| {
            let outcome = outcome.as_ref().map(|reloaded| reloaded.policy.blocked);
            tell.send(outcome.map_err(Clone::clone)).unwrap();
        };
        reload.start(Box::new(told_by_thread)).unwrap();
        told.recv().unwrap()
    }

    /// A core is told of the first policy and of each later one once; one that cannot be loaded changes nothing, and is told
    /// of.
    #[test]
    fn policies_follow() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "other.example\n").unwrap();
        let options = PolicyOptions {
            blocklists: vec![path.to_str().unwrap().to_owned()],
            ..PolicyOptions::default()
        };
        let (reload, report) = Reload::new(options, None, &[3; 16]).unwrap();
        assert_eq!(report.blocked, 1);
        let mut follower = reload.follower();
        let first = follower.take_next().expect("the first");
        assert!(!first.answers(0, BAD));
        assert!(follower.take_next().is_none());

        std::fs::write(&path, "other.example\nbad.example\n").unwrap();
        assert_eq!(reloaded(&reload), Ok(2));
        let second = follower.take_next().expect("the second");
        assert!(second.answers(0, BAD) && second.generation() == first.generation() + 1);

        std::fs::remove_file(&path).unwrap();
        assert!(reloaded(&reload).unwrap_err().contains("cannot be read"));
        assert!(follower.take_next().is_none() && reload.policy().answers(0, BAD));
        std::fs::write(&path, "").unwrap();
        assert_eq!(reloaded(&reload), Ok(0));
        assert!(!follower.take_next().expect("the third").answers(0, BAD));
    }

    /// All who ask are told, however many ask while one policy is being loaded.
    #[test]
    fn everybody_is_told() {
        let (reload, _) = Reload::new(PolicyOptions::default(), None, &[3; 16]).unwrap();
        let (tell, told) = mpsc::channel();
        for _ in 0..50 {
            let tell = tell.clone();
            let outcome = move |outcome: &Result<Reloaded, String>| {
                tell.send(outcome.is_ok()).unwrap();
            };
            reload.start(Box::new(outcome)).unwrap();
        }
        drop(tell);
        assert_eq!(told.iter().filter(|is_loaded| *is_loaded).count(), 50);
    }

    /// A first policy that cannot be loaded is no server.
    #[test]
    fn first_must_be_there() {
        let hosts = vec!["/no/such/file".into()];
        let options = PolicyOptions { hosts, ..PolicyOptions::default() };
        assert!(Reload::new(options, None, &[3; 16]).is_err());
    }

    /// A later policy has the settings that are read then; they count as in force only when it is, and settings that cannot be
    /// read change nothing.
    #[test]
    fn settings_follow() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "bad.example\n").unwrap();
        let list = Arc::new(Mutex::new(Err("a slip".to_owned())));
        let applied = Arc::new(AtomicU32::new(0));
        let source = {
            let (list, applied) = (list.clone(), applied.clone());
            Arc::new(move || {
                let policy =
                    PolicyOptions { blocklists: vec![lock(&list).clone()?], ..Default::default() };
                let changed = vec!["blocklist".to_owned()];
                let changes = Changes { changed, ..Changes::default() };
                let applied = applied.clone();
                let applied = Box::new(move || {
                    applied.fetch_add(1, Ordering::Relaxed);
                });
                Ok(Fresh { policy, changes, applied })
            })
        };
        let (reload, _) = Reload::new(PolicyOptions::default(), Some(source), &[3; 16]).unwrap();
        assert_eq!(reloaded(&reload), Err("a slip".to_owned()));
        *lock(&list) = Ok("/no/such/file".to_owned());
        assert!(reloaded(&reload).is_err() && !reload.policy().answers(0, BAD));
        assert_eq!(applied.load(Ordering::Relaxed), 0);
        *lock(&list) = Ok(path.to_str().unwrap().to_owned());
        assert_eq!(reloaded(&reload), Ok(1));
        assert!(reload.policy().answers(0, BAD));
        assert_eq!(applied.load(Ordering::Relaxed), 1);
    }
}
