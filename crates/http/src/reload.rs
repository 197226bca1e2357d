//! Settings that an operator may change while the server runs.
//!
//! ```text
//! ConfigWatch::start    the settings of the start; the thread of the access log, if there is one
//! ConfigWatch::replace  new settings replace them; what cannot change stays as it was at the start
//! ConfigFollower        an event loop looks once a turn, and uses the newest settings from then on
//! ```
//!
//! Some settings are fixed at the start, because larder has opened or allocated something for them:
//! addresses, event loops, memory, the limit of clients, the operator's sockets, the snapshot. All
//! others may change, origins and the access log too. A reload ends no connection. A request that
//! has begun uses what it has; all later decisions use the new settings.
//!
//! Invariants
//! 1. Settings are replaced as a whole, and in order: no event loop sees a mixture, or older
//!    settings after newer ones.
//! 2. If the thread of the access log cannot be started, [`ConfigWatch::replace`] changes nothing.
//!
//! Cost: a load a turn of an event loop; after a change also a lock, and copies of some pointers.

use std::io;
use std::sync::Arc;

use larder_serve::changes::Changes;
use larder_serve::log::Log;
use larder_serve::watch::{self, Watch};
use larder_serve::writer::{Meter, Writer};
use parking_lot::Mutex;

use crate::access_log::{self, AccessLog};
use crate::health::Health;
use crate::options::{Operation, Options};

/// The settings in force.
#[derive(Debug, Clone)]
pub struct Config {
    /// The operator's settings.
    pub options: Arc<Options>,
    /// The health of the origins in `options`.
    pub health: Arc<Health>,
    /// The access log, of which each event loop makes its own copy.
    pub access_log: Option<Arc<AccessLog>>,
}

/// The way to new settings for an event loop or a supervisor.
pub type ConfigFollower = watch::Follower<Config>;

/// The settings in force, shared by all threads.
#[derive(Debug)]
pub struct ConfigWatch {
    watch: Watch<Config>,
    access_log: Mutex<Option<access_log::Shared>>,
    /// For failures of the access log.
    log: Log,
}

impl ConfigWatch {
    /// With the settings of the start. It fails if a thread cannot be started.
    pub fn start(options: Options, log: &Log) -> io::Result<ConfigWatch> {
        let access_log = options.operation.access_log.clone();
        let access_log = access_log.map(|it| access_log::start(it, log)).transpose()?;
        let config = Config {
            health: Arc::new(Health::new(&options.origins)),
            access_log: access_log.as_ref().map(access_log::Shared::feed),
            options: Arc::new(options),
        };
        let access_log = Mutex::new(access_log);
        Ok(ConfigWatch { watch: Watch::new(config), access_log, log: log.clone() })
    }

    /// The settings in force.
    pub fn current(&self) -> Config {
        (*self.watch.get()).clone()
    }

    /// For an event loop. It begins with the settings in force.
    pub fn follower(&self) -> ConfigFollower {
        self.watch.follower()
    }

    /// Replaces the settings that may change. The caller wakes the event loops.
    pub fn replace(&self, options: Options) -> io::Result<()> {
        // Only one replacement at a time: the lock is held to the end.
        let mut log = self.access_log.lock();
        let before = self.current();
        let options = changed(&before.options, options);
        match (&options.operation.access_log, &mut *log) {
            (None, log) => *log = None,
            (Some(wanted), Some(log)) => log.change(wanted.clone()),
            // Nothing was changed before this may fail (invariant 2).
            (Some(wanted), log @ None) => {
                *log = Some(access_log::start(wanted.clone(), &self.log)?)
            }
        }
        // The results of health checks stay valid only if the checks request the same path.
        let is_checked_so = options.health_checks.as_ref().map(|it| &it.path)
            == before.options.health_checks.as_ref().map(|it| &it.path);
        let health = Health::new(&options.origins);
        health.take_over(&before.health, is_checked_so);
        self.watch.replace(Config {
            health: Arc::new(health),
            access_log: log.as_ref().map(access_log::Shared::feed),
            options: Arc::new(options),
        });
        Ok(())
    }

    /// Makes the access log reopen its file.
    pub fn reopen_log(&self) {
        if let Some(log) = &*self.access_log.lock() {
            log.writer.reopen();
        }
    }

    /// The counters of the access log, if there is one.
    pub fn log_meter(&self) -> Option<Meter> {
        self.access_log.lock().as_ref().map(|log| log.writer.meter())
    }

    /// Takes out the thread of the access log, when the server ends.
    pub fn take_writer(&self) -> Option<Writer> {
        self.access_log.lock().take().map(|log| log.writer)
    }
}

/// `next`, except the settings that are fixed at the start.
fn changed(start: &Options, next: Options) -> Options {
    let operation =
        Operation { access_log: next.operation.access_log.clone(), ..start.operation.clone() };
    Options {
        listen: start.listen.clone(),
        loops: start.loops,
        io: start.io,
        memory: start.memory,
        clients_max: start.clients_max,
        tls_bridge: start.tls_bridge.clone(),
        operation,
        ..next
    }
}

/// The settings after a reload.
#[derive(Debug)]
pub struct Fresh {
    /// All of them.
    pub options: Options,
    /// What has changed, in words for an operator.
    pub changes: Changes,
}

/// Reads the settings again. It may take long: it runs on its own thread.
pub type Source = Arc<dyn Fn() -> Result<Fresh, String> + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{HealthChecks, OriginAddress};

    fn options(origins: &[&str]) -> Options {
        let origin = |name: &&str| OriginAddress {
            is_secure: false,
            address: format!("{name}:80").parse().unwrap(),
            name: (*name).to_owned(),
        };
        Options::new(Vec::new(), origins.iter().map(origin).collect())
    }

    /// A follower gets new settings once; fixed settings stay; origins that are in both keep their
    /// health. Invariant 1.
    #[test]
    fn settings_follow() {
        let checks = Some(HealthChecks { path: "/a".to_owned(), every_ms: 1 });
        let first =
            Options { health_checks: checks.clone(), ..options(&["192.0.2.1", "192.0.2.2"]) };
        let config_watch = Arc::new(ConfigWatch::start(first, &Log::default()).unwrap());
        let mut follower = config_watch.follower();
        let config = follower.current();
        assert!(follower.take_next().is_none());
        config.health.pass_over(0, 10, &io::Error::from_raw_os_error(111));
        config.health.set_down(1, true);
        let second = Options {
            health_checks: checks,
            loops: 7,
            keep_s: 9,
            ..options(&["192.0.2.3", "192.0.2.2", "192.0.2.1"])
        };
        config_watch.replace(second.clone()).unwrap();
        let config = follower.take_next().expect("another");
        assert!(follower.take_next().is_none());
        assert_eq!((config.options.loops, config.options.keep_s), (1, 9));
        assert_eq!([0, 1, 2].map(|at| config.health.is_good(at, 9)), [true, false, false]);
        assert!(config.health.is_good(2, 10));
        config_watch.replace(Options { health_checks: None, ..second }).unwrap();
        let config = follower.take_next().expect("another");
        assert!(config.health.is_good(1, 0), "nobody would find it up again");
    }
}
