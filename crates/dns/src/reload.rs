//! A policy that can be replaced while the server runs.
//!
//! ```text
//! Policies::new    loads the first policy, before the server binds sockets
//! Policies::load   on SIGHUP, `larder ctl reload`: reads the settings again, and loads the next policy
//!   success        the new policy replaces the old one, with the next generation
//!   an error       the old policy stays in force, and so do its settings
//! Follower         a core checks once a turn whether there is a new policy
//! ```
//!
//! [`larder_serve::reload`] calls it on a thread of its own, one reload at a time.
//!
//! The cache stays over a reload. Responses of upstreams do not depend on the policy. The cache has
//! neither responses that a policy made itself (`core/local.rs`) nor the records behind a policy's
//! alias (`core/alias.rs`). So a cached response is wrong only if the new policy would not have
//! sent its query upstream. A core therefore checks the policy before it serves an entry older than
//! the policy. It serves newer entries without a check. No entry and no key changes, and the same
//! holds for entries of a snapshot. The cost is one policy lookup (see `policy`) for each hit of an
//! old entry, until the entry is fetched again.
//!
//! Bounds: two policies in memory during a load, one thread. Cost in a core: one relaxed load a
//! turn. After a reload, it also takes a lock while it copies a pointer. No core waits for a file.

use std::sync::Arc;

use larder_serve::changes::Changes;
use larder_serve::reload::{Outcome, Reloaded};
use larder_serve::watch::{self, Watch};

use crate::policy::{self, Policy, PolicyError, PolicyOptions, Report};

/// Generation of the first policy.
const FIRST: u32 = 1;

/// Gives a core the policy in force.
pub type Follower = watch::Follower<Policy>;

/// Settings that a reload has read.
pub struct Fresh {
    /// The settings of the policy.
    pub policy: PolicyOptions,
    /// Which settings differ from those in force.
    pub changes: Changes,
    /// Called when the new policy and the changed settings are in force.
    pub applied: Box<dyn FnOnce()>,
}

/// Reads the settings again, on the thread of the reload. The error says what to do.
pub type Source = Arc<dyn Fn() -> Result<Fresh, String> + Send + Sync>;

/// The policy in force, and how the next one is loaded.
pub struct Policies {
    options: PolicyOptions,
    source: Option<Source>,
    key: [u8; 16],
    watch: Watch<Policy>,
}

impl Policies {
    /// Loads the first policy. `source` reads the settings of later ones; without it they keep the
    /// same settings. `key` is the key of the hashes, from the system's random source.
    pub fn new(
        options: PolicyOptions,
        source: Option<Source>,
        key: &[u8; 16],
    ) -> Result<(Policies, Report), PolicyError> {
        let (policy, report) = policy::load(&options, FIRST, key)?;
        Ok((Policies { options, source, key: *key, watch: Watch::new(policy) }, report))
    }

    /// A follower for a core; it first returns the policy in force.
    pub fn follower(&self) -> Follower {
        self.watch.follower()
    }

    /// Loads the policy of the current settings and files. Only one call at a time. After an error
    /// nothing has changed.
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

    /// The number of blocked names that a reload reports to the operator.
    fn loaded(policies: &Policies) -> Result<u64, String> {
        let line = policies.load()?.parts[0].1.clone();
        let count = line.strip_prefix("names blocked ").unwrap().split(',').next().unwrap();
        Ok(count.parse().unwrap())
    }

    /// A core receives the first policy and each later one once. A policy that cannot be loaded
    /// gives an error and changes nothing.
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

    /// The server does not start if the first policy cannot be loaded.
    #[test]
    fn first_must_be_there() {
        let hosts = vec!["/no/such/file".into()];
        let options = PolicyOptions { hosts, ..PolicyOptions::default() };
        assert!(Policies::new(options, None, &[3; 16]).is_err());
    }

    /// A reload uses the settings read at that time. They apply only once the policy is in force.
    /// Settings that cannot be read change nothing.
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
