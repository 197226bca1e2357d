//! The duties of the calling thread while cores serve: snapshots, changes of upstreams, requests of
//! operators.
//!
//! ```text
//! loading   the previous snapshot: no save runs until the load ends, since it would replace that file
//! saving    on the timer, and on request
//! last      after the cores have ended; skipped if a signal forces the end
//! ```
//!
//! [`larder_serve::supervisor`] has the event loop, signals and the end.
//!
//! Invariants
//! 1. Nothing is saved while the previous snapshot is being loaded. So a server that stops during
//!    the load loses no snapshot.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use larder::{Cache, Seconds};
use larder_io::epoll::{Poller, Waker};
use larder_serve::console::{self, Places};
use larder_serve::control::Service;
use larder_serve::lifecycle::Stage;
use larder_serve::log::Log;
use larder_serve::page_server::PageOptions;
use larder_serve::reload::Reload;
use larder_serve::supervisor::{Ended, Server};
use larder_serve::worker_threads::{WorkerThreads, wake};
use larder_serve::writer::Writer;

use crate::ctl::{self, Actions, Answer, ControlService, Fields};
use crate::dnstap::Target;
use crate::page::Figures;
use crate::query_log;
use crate::side_query::Running;
use crate::snapshot::{Loading, Snapshots, clear_leftovers};

/// The shortest time between two reports of a change of an upstream, milliseconds.
const UPSTREAM_EVERY_MS: u64 = 10_000;

/// How the operator observes and controls a server.
#[derive(Debug, Clone, Default)]
pub struct Operation {
    /// The socket of `larder ctl`, and its file mode.
    pub control: Option<(PathBuf, u32)>,
    /// The address that serves metrics.
    pub metrics: Option<SocketAddr>,
    /// The file of the cache's snapshots.
    pub snapshot: Option<PathBuf>,
    /// How often to save a snapshot in addition to the one at the end, seconds; 0: only at the end.
    pub snapshot_every_s: u64,
    /// The target of dnstap records.
    pub dnstap: Option<Target>,
    /// The query log.
    pub query_log: Option<query_log::Options>,
    /// The page for a browser.
    pub page: Option<PageOptions>,
    /// How many bits of clients' addresses the page shows; `None`: all.
    pub page_prefix: Option<query_log::Prefix>,
}

impl Operation {
    /// The addresses and sockets for operators.
    pub(crate) fn places(&self) -> Places {
        let (control, metrics) = (self.control.clone(), self.metrics);
        Places { control, limits: ctl::limits(), metrics }
    }
}

/// State shared with the cores.
pub(crate) struct Common {
    pub figures: Arc<Figures>,
    pub log: Log,
    /// The writers of dnstap and of the query log, if configured.
    pub writers: Vec<Writer>,
    /// Encrypted transports, which run next to the cores.
    pub beside: Option<Arc<dyn Running>>,
    pub reload: Reload,
    /// Wakes the supervisor.
    pub waker: Arc<Waker>,
}

/// The duties that the supervisor's event loop calls.
pub(crate) struct Duties {
    common: Common,
    snapshots: Option<Snapshots>,
    loading: Option<Loading>,
    snapshot_path: Option<PathBuf>,
    is_stop_requested: bool,
    is_last_save_begun: bool,
    /// For each upstream: whether it was last reported as up, and when.
    upstreams: HashMap<String, (bool, u64)>,
}

impl Duties {
    pub fn new(operation: &Operation, common: Common) -> Duties {
        let period_ms =
            (operation.snapshot_every_s > 0).then(|| operation.snapshot_every_s * 1_000);
        let now_ms = common.figures.clock.now().us / 1_000;
        let snapshots = (operation.snapshot.clone())
            .map(|path| Snapshots::new(common.figures.cache.clone(), path, period_ms, now_ms));
        Duties {
            common,
            snapshots,
            loading: None,
            snapshot_path: operation.snapshot.clone(),
            is_stop_requested: false,
            is_last_save_begun: false,
            upstreams: HashMap::new(),
        }
    }

    /// Removes temporary snapshot files of killed processes. Called before the server reports that
    /// it serves.
    pub fn clear_leftovers(&self) {
        let Some(path) = &self.snapshot_path else { return };
        if let Err(error) = clear_leftovers(path) {
            let line = self.common.log.warn("snapshot directory not readable");
            line.text("file", path.display()).text("error", error);
        }
    }

    /// Starts to load the snapshot. Called when the cores run.
    pub fn load(&mut self, workers: &WorkerThreads) {
        let Some(path) = self.snapshot_path.clone() else { return };
        let (wake_cores, own) = (workers.wakes(), Arc::clone(&self.common.waker));
        let wake_all = move || {
            wake_cores();
            wake(&own);
        };
        match Loading::start(
            self.common.figures.cache.clone(),
            path.clone(),
            self.seconds(),
            wake_all,
        ) {
            Ok(loading) => self.loading = Some(loading),
            Err(error) => {
                let line = self.common.log.warn("snapshot not loaded");
                line.text("file", path.display()).text("error", error);
            }
        }
    }

    fn seconds(&self) -> Seconds {
        Seconds(self.common.figures.clock.now().wall_s)
    }

    fn wakes(&self) -> impl FnOnce() + Send + 'static {
        let own = Arc::clone(&self.common.waker);
        move || wake(&own)
    }

    /// Reports upstreams that do not respond, and those that do again.
    fn report_upstreams(&mut self, now_ms: u64) {
        for (address, is_up) in self.common.figures.published.upstreams.are_up() {
            let (was_up, reported_ms) =
                *self.upstreams.entry(address.to_owned()).or_insert((true, 0));
            if is_up == was_up || (reported_ms > 0 && now_ms < reported_ms + UPSTREAM_EVERY_MS) {
                continue;
            }
            let log = &self.common.log;
            let line = if is_up { log.info("upstream up") } else { log.warn("upstream down") };
            line.text("upstream", address);
            self.upstreams.insert(address.to_owned(), (is_up, now_ms.max(1)));
        }
    }

    /// Logs the result of the load once it has ended.
    fn look_at_loading(&mut self) {
        let Some(result) = self.loading.as_mut().and_then(Loading::finished) else { return };
        self.loading = None;
        let path = self.snapshot_path.clone().unwrap_or_default();
        let log = &self.common.log;
        let line = match &result {
            Ok(None) => return,
            Ok(Some(loaded)) => log.info("snapshot loaded").number("entries", loaded.entries),
            Err(error) => log.warn("snapshot damaged, loaded in part").text("error", error),
        };
        line.text("file", path.display());
    }

    /// Saves if it is time (invariant 1). `last_save` and `larder ctl snapshot` check the invariant
    /// too.
    fn save_now_and_then(&mut self, now_ms: u64) {
        if self.loading.is_some() {
            return;
        }
        let (wake, now) = (self.wakes(), self.seconds());
        let Some(snapshots) = &mut self.snapshots else { return };
        if let Some(Err(text)) = snapshots.finished() {
            self.common.log.error("snapshot not saved").text("error", text);
        }
        if snapshots.is_due(now_ms) {
            // If a save still runs, no other is needed.
            let _ = snapshots.start(now, wake);
        }
    }

    /// Saves for the last time. True when the save has ended, or if there is nothing to save.
    fn last_save(&mut self) -> bool {
        let (now, wake) = (self.seconds(), self.wakes());
        let Some(snapshots) = &mut self.snapshots else { return true };
        let not_saved =
            |error: &str| drop(self.common.log.error("snapshot not saved").text("error", error));
        if self.loading.is_some() {
            not_saved("the last snapshot was not loaded to its end; it stays as it is");
            return true;
        }
        if !self.is_last_save_begun {
            // Discard the result of an earlier save: the last save reports its own.
            let _ = snapshots.finished();
            self.is_last_save_begun = snapshots.start(now, wake);
            if self.is_last_save_begun || snapshots.is_saving() {
                return false;
            }
            not_saved("no thread to save the cache; the older snapshot stays as it is");
            return true;
        }
        match snapshots.finished() {
            Some(Ok(saved)) => {
                let line = self.common.log.info("snapshot saved").number("entries", saved.entries);
                line.number("took_ms", saved.took_ms);
                true
            }
            Some(Err(text)) => {
                not_saved(&text);
                true
            }
            None => !snapshots.is_saving(),
        }
    }
}

impl console::Duties for Duties {
    fn now_ms(&self) -> u64 {
        self.common.figures.clock.now().us / 1_000
    }

    fn metrics(&self) -> String {
        self.common.figures.text()
    }
}

impl Service for Duties {
    fn request(&mut self, line: &[u8]) -> Answer {
        ControlService(self).request(line)
    }
}

impl Server for Duties {
    const DRAIN_MS: u64 = 2_000;
    const WAKES_FOR_CLIENTS: bool = true;

    fn reload(&self) -> &Reload {
        &self.common.reload
    }

    fn reopen(&mut self) {
        self.common.writers.iter().for_each(Writer::reopen);
    }

    fn is_stop_requested(&self) -> bool {
        self.is_stop_requested
    }

    fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.snapshots.as_ref().and_then(|snapshots| snapshots.wait_ms(now_ms))
    }

    fn tick(&mut self, _: &Poller, now_ms: u64) {
        self.report_upstreams(now_ms);
        self.look_at_loading();
        if !self.is_last_save_begun {
            self.save_now_and_then(now_ms);
        }
    }

    fn drain(&mut self, _: bool) -> Stage {
        if let Some(beside) = &self.common.beside {
            beside.drain();
        }
        Stage::Drains
    }

    fn finish(&mut self, ended: Ended) -> bool {
        if ended == Ended::Forced {
            return true;
        }
        if let Some(beside) = self.common.beside.take() {
            beside.finish();
        }
        let is_over = self.last_save();
        if is_over {
            self.common.writers.drain(..).for_each(Writer::finish);
        }
        is_over
    }
}

impl Actions for Duties {
    fn cache(&self) -> &Cache {
        &self.common.figures.cache
    }

    fn now(&self) -> Seconds {
        self.seconds()
    }

    fn stats(&mut self) -> Fields {
        self.common.figures.fields()
    }

    fn snapshot(&mut self) -> Answer {
        match &self.snapshots {
            None => {
                let text = "there is no file to save to; start larder dns with --snapshot FILE";
                Answer::Now(Err(text.to_owned()))
            }
            Some(_) if self.loading.is_some() => {
                let text = "the last snapshot is being loaded; ask again when it is";
                Answer::Now(Err(text.to_owned()))
            }
            Some(snapshots) => snapshots.answer(self.seconds()),
        }
    }

    fn reload(&mut self) -> Answer {
        Server::reopen(self);
        self.common.reload.answer()
    }

    fn stop(&mut self) -> Answer {
        self.is_stop_requested = true;
        Answer::done()
    }
}
