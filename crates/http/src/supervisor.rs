//! The supervisor's duties for HTTP: checks of origins, log lines, commands of operators, the last
//! save.
//!
//! [`larder_serve::supervisor`] has the loop, and handles signals and the end.

mod checks;
mod shortages;

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use larder_io::epoll::{Event, Poller};
use larder_serve::console;
use larder_serve::control::{Answer, Fields, Job, Service};
use larder_serve::lifecycle::Stage;
use larder_serve::reload::Reload;
use larder_serve::supervisor::{Ended, Server, TOKENS};
use larder_serve::worker_threads;

use self::checks::Checks;
use self::shortages::Shortages;
use crate::common::{Common, seconds};
use crate::ctl::Request;
use crate::health::Failures;
use crate::key::tag;
use crate::loop_channel::Message;
use crate::page::Figures;
use crate::reload::ConfigFollower;
use crate::snapshot;

/// How long clients may take to get responses that have begun when the server drains, milliseconds.
pub const DRAIN_MS: u64 = 10_000;

/// The shortest time between two log lines about failed connections to an origin, milliseconds.
const FAILURES_EVERY_MS: u64 = 60_000;

/// How long an event loop may take to forget a URL.
const FORGET: Duration = Duration::from_secs(10);

/// How long the thread of the access log may take to write its last lines.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// How long the TLS bridge may take to send the last bytes of event loops to clients.
const FINISH: Duration = Duration::from_secs(3);

/// The state that the supervisor's loop calls.
pub(crate) struct Duties {
    common: Common,
    reload: Reload,
    /// The cache is saved at the end: its file is larder's own.
    saves: bool,
    checks: Option<Checks>,
    follower: ConfigFollower,
    shortages: Shortages,
    /// By origin: how many failed connections were reported, and when.
    failures: HashMap<String, (u64, u64)>,
    is_stop_requested: bool,
    is_closed: bool,
    last_save: Option<Receiver<io::Result<u64>>>,
}

impl Duties {
    /// For event loops that have not begun. `saves`: the field of that name.
    pub fn new(common: Common, reload: Reload, saves: bool) -> Duties {
        let mut follower = common.config_watch.follower();
        let checks = Checks::of(&follower.current(), TOKENS);
        Duties {
            common,
            reload,
            saves,
            checks,
            follower,
            shortages: Shortages::default(),
            failures: HashMap::new(),
            is_stop_requested: false,
            is_closed: false,
            last_save: None,
        }
    }

    /// Logs failed connections to origins: the first at once, later ones together, at most a line a
    /// minute for each origin.
    fn report_failures(&mut self, now_ms: u64) {
        let health = self.common.config_watch.current().health;
        for Failures { origin, count, why } in health.failures() {
            let Some((before, reported_ms)) = self.failures.get(origin).copied() else {
                self.failures.insert(origin.to_owned(), (0, 0));
                continue;
            };
            if count > before && (before == 0 || now_ms >= reported_ms + FAILURES_EVERY_MS) {
                let failed = count - before;
                let line = self.common.log.warn("origin connections failed");
                line.text("origin", origin).number("count", failed).text("last_error", why);
                self.failures.insert(origin.to_owned(), (count, now_ms));
            }
        }
        // Origins that a reload removed.
        self.failures.retain(|name, _| health.failures().any(|it| it.origin == name));
    }

    fn stats(&self) -> Fields {
        Figures(self.common.clone()).fields()
    }

    /// Starts a thread that saves the cache for the next start.
    fn begin_last_save(&mut self) {
        let (common, waker) = (self.common.clone(), self.common.waker.clone());
        let Some(path) = common.options.operation.snapshot.clone().filter(|_| self.saves) else {
            return;
        };
        let (say, said) = sync_channel(1);
        let save = move || {
            // A signal may have forced the end meanwhile, and then no receiver is left.
            let _ = say.send(snapshot::save(&common.store, &path, seconds(&common.clock)));
            worker_threads::wake(&waker);
        };
        match thread::Builder::new().name("snapshot".to_owned()).spawn(save) {
            Ok(_) => self.last_save = Some(said),
            Err(error) => {
                let line = self.common.log.error("snapshot not saved");
                line.text("error", format_args!("no thread to save the cache: {error}"));
            }
        }
    }

    /// Logs how the last save has ended. True when it has ended.
    fn is_saved(&self, ended: Ended) -> bool {
        let (Some(said), Some(path)) = (&self.last_save, &self.common.options.operation.snapshot)
        else {
            return true;
        };
        let log = &self.common.log;
        let line = match said.try_recv() {
            Ok(Ok(count)) => log.info("snapshot saved").number("entries", count),
            Ok(Err(error)) => {
                let line = log.error("snapshot not saved").text("error", error);
                line.text("hint", "make room there, or name another file")
            }
            Err(TryRecvError::Empty) if ended == Ended::Forced => {
                log.warn("snapshot not saved").text("error", "a signal forced the end")
            }
            Err(TryRecvError::Empty) => return false,
            // The panic of that thread has been printed.
            Err(TryRecvError::Disconnected) => return true,
        };
        line.text("file", path.display());
        true
    }

    /// Makes the first event loop forget a URL: only event loops write to the cache.
    fn forget(&self, url: Vec<u8>) -> Job {
        let channels = self.common.channels.clone();
        Box::new(move |_| {
            let (say, said) = sync_channel(1);
            channels.post(0, Message::Forget(url, say));
            match said.recv_timeout(FORGET) {
                Ok(was_there) => Ok(Fields::from_iter([("was_kept".to_owned(), was_there.into())])),
                Err(RecvTimeoutError::Disconnected) => Err("the server ended meanwhile".to_owned()),
                Err(RecvTimeoutError::Timeout) => {
                    Err("the loop is held up; see whether it is gone, and ask again".to_owned())
                }
            }
        })
    }
}

impl Service for Duties {
    fn request(&mut self, line: &[u8]) -> Answer {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(error) => return Answer::Now(Err(error)),
        };
        let store = &self.common.store;
        match request {
            Request::Version => {
                let version = env!("CARGO_PKG_VERSION").into();
                return Answer::Now(Ok(Fields::from_iter([("version".to_owned(), version)])));
            }
            Request::Stats => return Answer::Now(Ok(self.stats())),
            Request::Purge { url, is_soft: false } => return Answer::Later(self.forget(url)),
            Request::Purge { url, is_soft: true } => store.purge_url(&url),
            Request::PurgeTag { tag: text, is_soft } => {
                store.purge_tag(tag(text.as_bytes()), is_soft)
            }
            Request::Flush { is_soft } => store.purge_all(is_soft),
            Request::Reload => {
                Server::reopen(self);
                return self.reload.answer();
            }
            Request::Stop => self.is_stop_requested = true,
        }
        Answer::done()
    }
}

impl console::Duties for Duties {
    fn now_ms(&self) -> u64 {
        self.common.clock.us() / 1_000
    }

    fn metrics(&self) -> String {
        Figures(self.common.clone()).text()
    }
}

impl Server for Duties {
    const DRAIN_MS: u64 = DRAIN_MS;

    fn reload(&self) -> &Reload {
        &self.reload
    }

    fn reopen(&mut self) {
        self.common.config_watch.reopen_log();
    }

    fn is_stop_requested(&self) -> bool {
        self.is_stop_requested
    }

    fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.checks.as_ref().and_then(|checks| checks.wait_ms(now_ms))
    }

    fn tick(&mut self, poller: &Poller, now_ms: u64) {
        if let Some(config) = self.follower.take_next() {
            let before = std::mem::replace(&mut self.checks, Checks::of(&config, TOKENS));
            if let (Some(checks), Some(before)) = (&mut self.checks, before) {
                checks.take_over(&before, now_ms);
            }
        }
        self.report_failures(now_ms);
        self.shortages.look(now_ms, || self.common.shared.counts.sum(), &self.common.log);
        if let Some(checks) = &mut self.checks {
            checks.tick(poller, now_ms, &self.common.log);
        }
    }

    fn event(&mut self, event: Event, poller: &Poller, now_ms: u64) {
        if let Some(checks) = &mut self.checks {
            checks.handle(event.token, poller, now_ms, &self.common.log);
        }
    }

    fn drain(&mut self, has_failed: bool) -> Stage {
        if has_failed {
            // Requests on other event loops may wait for the event loop that failed.
            return Stage::Ends;
        }
        if let Some(tls_bridge) = &self.common.tls_bridge {
            tls_bridge.drain();
        }
        Stage::Drains
    }

    fn finish(&mut self, ended: Ended) -> bool {
        if !std::mem::replace(&mut self.is_closed, true) {
            if let Some(tls_bridge) =
                self.common.tls_bridge.as_ref().filter(|_| ended == Ended::Well)
            {
                tls_bridge.finish(FINISH);
            }
            if let Some(writer) = self.common.config_watch.take_writer() {
                writer.finish_within(LOG_PATIENCE);
            }
            // A client that is slow until the end is no reason to lose the cache.
            if matches!(ended, Ended::Well | Ended::Late) {
                self.begin_last_save();
            }
        }
        self.is_saved(ended)
    }
}
