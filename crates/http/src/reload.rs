//! What an operator may change while the server serves.
//!
//! ```text
//! ConfigWatch::start      the settings of the start; the thread of the access log, if there is one
//! ConfigWatch::replace    others take their place; what cannot change stays as it was at the start
//! Follower         a loop looks once a turn, and goes on with what is in force by then
//! ```
//!
//! Fixed at the start are what has been opened or cut to size: addresses, loops, memory, places for clients, the sockets of an operator, the
//! snapshot. All else may change, origins and the access log too. No connection ends by it: a request goes on with what it has, and
//! what is decided later is decided by what is in force then.
//!
//! Invariants
//! 1. Settings are replaced whole, and in order: no loop sees a mixture, or an older one after a newer.
//! 2. Where a thread for the log cannot be had, [`ConfigWatch::replace`] changes nothing.
//!
//! Cost: a load a turn of a loop; a lock for the copy of some pointers where there is something new.

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

/// What is in force.
#[derive(Debug, Clone)]
pub struct Config {
    /// What an operator decided.
    pub options: Arc<Options>,
    /// What is known of the origins, which are those of `options`.
    pub health: Arc<Health>,
    /// A log, of which each loop has another.
    pub access_log: Option<Arc<AccessLog>>,
}

/// What a loop, or who watches over them, has to learn of other settings.
pub type ConfigFollower = watch::Follower<Config>;

/// What is in force, for all.
#[derive(Debug)]
pub struct ConfigWatch {
    watch: Watch<Config>,
    access_log: Mutex<Option<access_log::Shared>>,
    /// For failures of the access log.
    log: Log,
}

impl ConfigWatch {
    /// With the settings of the start. An error is that of a thread.
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

    /// What is in force.
    pub fn current(&self) -> Config {
        (*self.watch.get()).clone()
    }

    /// For a loop; the first setup that it takes is the one in force.
    pub fn follower(&self) -> ConfigFollower {
        self.watch.follower()
    }

    /// Other settings, as far as they may change. Who wakes the loops is the caller.
    pub fn replace(&self, options: Options) -> io::Result<()> {
        // One after the other: the lock is held to the end.
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
        // What checks found is worth something while they ask the same.
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

    /// Has the access log begin its file anew.
    pub fn reopen_log(&self) {
        if let Some(log) = &*self.access_log.lock() {
            log.writer.reopen();
        }
    }

    /// What is counted of the access log, if there is one.
    pub fn log_meter(&self) -> Option<Meter> {
        self.access_log.lock().as_ref().map(|log| log.writer.meter())
    }

    /// Takes out who writes the log, at the end.
    pub fn take_writer(&self) -> Option<Writer> {
        self.access_log.lock().take().map(|log| log.writer)
    }
}

/// `next`, but for what has been opened or cut to size.
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

/// Settings that were read anew.
#[derive(Debug)]
pub struct Fresh {
    /// All of them.
    pub options: Options,
    /// What has changed, in words of an operator.
    pub changes: Changes,
}

/// Reads settings anew. It may take its time: it is called on a thread of its own.
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

    /// Followers are told of other settings once; what is fixed stays; origins that are still there keep what is known of them.
    /// Invariant 1.
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
