//! A policy that is replaced while the server runs.
//!
//! ```text
//! Policies::new    loads the first policy, before anything is bound
//! Policies::load   SIGHUP, `larder ctl reload`: reads the settings again, and loads the next policy
//!   in order       it takes the place of the one before, with the next generation
//!   an error       the one before stays in force, and so do its settings
//! Follower         a core asks once a turn whether there is another
//! ```
//!
//! [`larder_serve::reload`] calls it on a thread of its own, one at a time.
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

use std::sync::Arc;

use larder_serve::changes::Changes;
use larder_serve::reload::{Outcome, Reloaded};
use larder_serve::watch::{self, Watch};

use crate::policy::{self, Policy, PolicyError, PolicyOptions, Report};

/// Generation of the first policy.
const FIRST: u32 = 1;

/// What a core holds to learn of the policy.
pub type Follower = watch::Follower<Policy>;

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

/// The policy in force, and how the next one is loaded.
pub struct Policies {
    options: PolicyOptions,
    source: Option<Source>,
    key: [u8; 16],
    watch: Watch<Policy>,
}

impl Policies {
    /// Loads the first policy; later ones have the settings that `source` reads, or without one the same. `key` is that of
    /// hashes, from the system's random source.
    pub fn new(
        options: PolicyOptions,
        source: Option<Source>,
        key: &[u8; 16],
    ) -> Result<(Policies, Report), PolicyError> {
        let (policy, report) = policy::load(&options, FIRST, key)?;
        Ok((Policies { options, source, key: *key, watch: Watch::new(policy) }, report))
    }

    /// For a core; the first policy that it is told of is the one in force.
    pub fn follower(&self) -> Follower {
        self.watch.follower()
    }

    /// Loads what the settings and files say by now, one at a time. With an error nothing has changed.
    pub fn load(&self) -> Outcome {
        let fresh = self.source.as_ref().map(|source| source()).transpose()?;
        let options = fresh.as_ref().map_or(&self.options, |fresh| &fresh.policy);
        let generation = self.watch.get().generation().wrapping_add(1);
        let (policy, report) =
            policy::load(options, generation, &self.key).map_err(|error| error.to_string())?;
        self.watch.replace(policy);
        let changes = fresh.map(|fresh| {
            (fresh.applied)();
            fresh.changes
        });
        let parts = vec![("policy", report.to_string())];
        Ok(Reloaded { changes: changes.unwrap_or_default(), parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, MutexGuard};

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }

    const BAD: &[u8] = b"\x03bad\x07example\0\0\x01\0\x01";

    /// How many names are blocked after a load, as the operator is told.
    fn loaded(policies: &Policies) -> Result<u64, String> {
        let line = policies.load()?.parts[0].1.clone();
        let count = line.strip_prefix("names blocked ").unwrap().split(',').next().unwrap();
        Ok(count.parse().unwrap())
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
        let (policies, report) = Policies::new(options, None, &[3; 16]).unwrap();
        assert_eq!(report.blocked, 1);
        let mut follower = policies.follower();
        let first = follower.take_next().expect("the first");
        assert!(!first.answers(0, BAD));
        assert!(follower.take_next().is_none());

        std::fs::write(&path, "other.example\nbad.example\n").unwrap();
        assert_eq!(loaded(&policies), Ok(2));
        let second = follower.take_next().expect("the second");
        assert!(second.answers(0, BAD) && second.generation() == first.generation() + 1);

        std::fs::remove_file(&path).unwrap();
        assert!(loaded(&policies).unwrap_err().contains("cannot be read"));
        assert!(follower.take_next().is_none() && policies.watch.get().answers(0, BAD));
        std::fs::write(&path, "").unwrap();
        assert_eq!(loaded(&policies), Ok(0));
        assert!(!follower.take_next().expect("the third").answers(0, BAD));
    }

    /// A first policy that cannot be loaded is no server.
    #[test]
    fn first_must_be_there() {
        let hosts = vec!["/no/such/file".into()];
        let options = PolicyOptions { hosts, ..PolicyOptions::default() };
        assert!(Policies::new(options, None, &[3; 16]).is_err());
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
        let (policies, _) =
            Policies::new(PolicyOptions::default(), Some(source), &[3; 16]).unwrap();
        assert_eq!(loaded(&policies), Err("a slip".to_owned()));
        *lock(&list) = Ok("/no/such/file".to_owned());
        assert!(loaded(&policies).is_err() && !policies.watch.get().answers(0, BAD));
        assert_eq!(applied.load(Ordering::Relaxed), 0);
        *lock(&list) = Ok(path.to_str().unwrap().to_owned());
        assert_eq!(loaded(&policies), Ok(1));
        assert!(policies.watch.get().answers(0, BAD));
        assert_eq!(applied.load(Ordering::Relaxed), 1);
    }
}
