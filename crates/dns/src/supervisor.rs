//! What the calling thread does while cores serve: signals, `larder ctl`, metrics, snapshots, the service manager.
//!
//! ```text
//! serves   until SIGINT, SIGTERM, `larder ctl stop`, or a core that failed
//! drains   cores take nothing new and answer what they have: DRAIN_MS at most
//! saves    the cache, if it has a file
//! ended    trace and query log are finished, the control socket removed
//! ```
//! A signal while it drains or saves ends it at once: nothing more is saved, and the older snapshot is as it was.
//!
//! Invariants
//! 1. Cores wait for nothing here. What takes long (saves, loads, dumps) has a thread of its own, which wakes this one.
//! 2. Nothing is saved before what was saved last has been loaded: a start that is cut short loses no cache.
//! 3. A core that fails ends the server, with its error, after the others have drained.
//!
//! Cost: none while nobody asks and nothing is due, but a wake-up a second where there is a trace, a query log or an answerer, and a
//! hundred for each core while a client of the control socket is connected.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use larder::{Cache, Seconds};
use larder_io::event::{Events, Interest, Poller, Signal, Signals, Waker};

use crate::answerer::Answerer;
use crate::bridge::Running;
use crate::clock::Clock;
use crate::ctl::{self, Actions, Answer, Control, Fields};
use crate::dnstap::Target;
use crate::driver::Driver;
use crate::metrics::endpoint::{self, Endpoint};
use crate::metrics::{Gauge, Shared, cache_gauges, gauge_fields, write_gauges};
use crate::notify::Notifier;
use crate::policy::{PolicyError, Report};
use crate::query_log;
use crate::reload::Reload;
use crate::snapshot::{Loading, Snapshots, clear_leftovers};
use crate::stage::{Stage, Stages};
use crate::writer::Writer;

/// How long what is in flight may take at the end, milliseconds.
pub const DRAIN_MS: u64 = 2_000;

/// How often writers and answerers are asked for news, milliseconds.
const NEWS_MS: u64 = 1_000;

/// How often cores are woken while a client of the control socket may be loading, milliseconds: what it stores must be
/// seen by all of them before it can store more.
const NUDGE_MS: u64 = 10;

/// Events of one wait.
const EVENTS_MAX: usize = 64;

/// Tokens of the poller.
const SIGNALS: u64 = 0;
const WAKER: u64 = 1;
const CONTROL: u64 = 2;
const METRICS: u64 = CONTROL + ctl::server::TOKENS;

/// How a server is operated.
#[derive(Debug, Clone, Default)]
pub struct Operation {
    /// The socket of `larder ctl`, and its file mode.
    pub control: Option<(PathBuf, u32)>,
    /// Where metrics are told.
    pub metrics: Option<SocketAddr>,
    /// The file of the cache.
    pub snapshot: Option<PathBuf>,
    /// How often it is saved beside the end, seconds; 0: at the end only.
    pub snapshot_every_s: u64,
    /// Where dnstap records go.
    pub dnstap: Option<Target>,
    /// The query log.
    pub query_log: Option<query_log::Options>,
}

/// Threads of the cores. Dropped, they are ended at once.
pub(crate) struct Crew {
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// How many have ended, well or not.
    ended: Arc<AtomicUsize>,
    wakers: Arc<[Arc<Waker>]>,
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

/// An eventfd fails for nothing that could be mended here; who is not woken looks around within a second.
fn wake(waker: &Waker) {
    let _ = waker.wake();
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

    fn go_on(&self, stage: Stage) {
        self.stages.go_on(stage);
        self.wake();
    }

    /// Makes each turn its loop once.
    fn wake(&self) {
        self.wakers.iter().for_each(|waker| wake(waker));
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits for all of them: the first error. They were told to end.
    fn join(&mut self) -> io::Result<()> {
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

/// What is shared with the cores.
pub(crate) struct Common {
    pub cache: Cache,
    pub clock: Clock,
    pub published: Arc<Shared>,
    /// Of dnstap and the query log, where there are such.
    pub writers: Vec<Writer>,
    pub reload: Reload,
    /// Upstreams that are no servers.
    pub answerers: Vec<Arc<dyn Answerer>>,
    /// Wakes the supervisor.
    pub waker: Arc<Waker>,
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serves,
    Drains { until_ms: u64 },
    Saves,
    Ended,
}

/// The calling thread's part of the server.
pub(crate) struct Supervisor {
    poller: Poller,
    signals: Signals,
    control: Option<Control>,
    endpoint: Option<Endpoint>,
    duties: Duties,
    notifier: Option<Notifier>,
    alive_ms: Option<u64>,
    /// When cores were last woken for a client.
    nudged_ms: u64,
    phase: Phase,
    /// It was told twice to end.
    is_hurried: bool,
    /// How reloads that a signal asked for have ended, in words.
    reloaded: (mpsc::Sender<String>, mpsc::Receiver<String>),
}

/// What clients of the control socket may ask for.
struct Duties {
    common: Common,
    /// What is served beside the cores.
    beside: Option<Box<dyn Running>>,
    snapshots: Option<Snapshots>,
    loading: Option<Loading>,
    snapshot_path: Option<PathBuf>,
    is_stop_asked: bool,
    is_last_save_begun: bool,
}

impl Supervisor {
    /// Opens the sockets of an operator. The error says what to do.
    pub fn open(operation: &Operation, common: Common, signals: Signals) -> io::Result<Supervisor> {
        let poller = Poller::new()?;
        poller.add(&signals, SIGNALS, Interest::READ)?;
        poller.add(&*common.waker, WAKER, Interest::READ)?;
        let control = operation.control.as_ref().map(|(path, mode)| {
            Control::open(path, *mode, ctl::Limits::default(), &poller, CONTROL)
        });
        let endpoint = operation
            .metrics
            .map(|address| Endpoint::open(address, endpoint::Limits::default(), &poller, METRICS));
        let period_ms =
            (operation.snapshot_every_s > 0).then(|| operation.snapshot_every_s * 1_000);
        let now_ms = common.clock.now().us / 1_000;
        let snapshots = (operation.snapshot.clone())
            .map(|path| Snapshots::new(common.cache.clone(), path, period_ms, now_ms));
        Ok(Supervisor {
            control: control.transpose()?,
            endpoint: endpoint.transpose()?,
            poller,
            signals,
            duties: Duties {
                common,
                beside: None,
                snapshots,
                loading: None,
                snapshot_path: operation.snapshot.clone(),
                is_stop_asked: false,
                is_last_save_begun: false,
            },
            notifier: None,
            alive_ms: None,
            nudged_ms: 0,
            phase: Phase::Serves,
            is_hurried: false,
            reloaded: mpsc::channel(),
        })
    }

    /// What is served beside the cores lives and ends with them.
    pub fn watch_over(&mut self, beside: Box<dyn Running>) {
        self.duties.beside = Some(beside);
    }

    /// Where metrics are told.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().and_then(|endpoint| endpoint.address().ok())
    }

    /// Watches over the cores until the end. `tell` is given lines for the operator. True where it was ended in haste.
    pub fn run(mut self, mut crew: Crew, tell: &mut dyn FnMut(&str)) -> io::Result<bool> {
        self.greet(&crew, tell);
        let mut events = Events::new(EVENTS_MAX);
        let mut result = Ok(());
        while self.phase != Phase::Ended {
            let now_ms = self.duties.now_ms();
            self.poller.wait(&mut events, self.wait_ms(now_ms))?;
            let now_ms = self.duties.now_ms();
            for event in events.iter() {
                match event.token {
                    SIGNALS => self.hear_signals(tell)?,
                    WAKER => drop(self.duties.common.waker.clear()?),
                    CONTROL..METRICS => {
                        let Supervisor { control, poller, duties, .. } = &mut self;
                        if let Some(control) = control {
                            control.handle(event, poller, duties, now_ms);
                        }
                    }
                    METRICS.. => {
                        let Supervisor { endpoint, poller, duties, .. } = &mut self;
                        if let Some(endpoint) = endpoint {
                            endpoint.handle(event, poller, now_ms, || duties.text());
                        }
                    }
                }
            }
            self.tick(now_ms, &crew, tell);
            result = result.and(self.go_on(now_ms, &mut crew, tell));
        }
        if !self.is_hurried {
            self.duties.common.writers.drain(..).for_each(Writer::finish);
        }
        self.signals.unblock()?;
        result.map(|()| self.is_hurried)
    }

    /// The cores have begun: the manager is told, and the cache comes back.
    fn greet(&mut self, crew: &Crew, tell: &mut dyn FnMut(&str)) {
        match Notifier::from_environment() {
            Ok(notifier) => self.notifier = notifier,
            Err(error) => tell(&format!("the service manager is not told: {error}")),
        }
        if let Some(notifier) = &self.notifier {
            let plural = if crew.threads.len() == 1 { "" } else { "s" };
            // A manager that does not hear is none.
            let _ = notifier.ready(&format!("answers with {} core{plural}", crew.threads.len()));
            self.alive_ms = notifier.alive_every_ms().map(|_| 0);
        }
        let Some(path) = self.duties.snapshot_path.clone() else { return };
        if let Err(error) = clear_leftovers(&path) {
            let directory = "its directory cannot be read";
            tell(&format!("snapshot {}: {directory}: {error}", path.display()));
        }
        let (wakers, own) = (Arc::clone(&crew.wakers), Arc::clone(&self.duties.common.waker));
        let wake_all = move || {
            wakers.iter().for_each(|waker| wake(waker));
            wake(&own);
        };
        let cache = self.duties.common.cache.clone();
        match Loading::start(cache, path.clone(), self.duties.seconds(), wake_all) {
            Ok(loading) => self.duties.loading = Some(loading),
            Err(error) => tell(&format!(
                "snapshot {} is not loaded, and answers are found anew: {error}",
                path.display()
            )),
        }
    }

    /// How long nothing is due.
    fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let until = |due_ms: u64| due_ms.saturating_sub(now_ms);
        let drained = match self.phase {
            Phase::Drains { until_ms } => Some(until(until_ms)),
            _ => None,
        };
        [
            self.control.as_ref().and_then(|control| control.wait_ms(now_ms)),
            self.control.as_ref().filter(|control| control.clients() > 0).map(|_| NUDGE_MS),
            self.endpoint.as_ref().and_then(|endpoint| endpoint.wait_ms(now_ms)),
            self.duties.snapshots.as_ref().and_then(|snapshots| snapshots.wait_ms(now_ms)),
            (!self.duties.common.writers.is_empty()).then_some(NEWS_MS),
            self.duties.common.answerers.first().map(|_| NEWS_MS),
            self.alive_ms.map(until),
            drained,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn hear_signals(&mut self, tell: &mut dyn FnMut(&str)) -> io::Result<()> {
        while let Some(signal) = self.signals.read()? {
            match signal {
                Signal::HangUp => {
                    self.reload(tell);
                    if let Some(beside) = &mut self.duties.beside {
                        tell(&beside.reload());
                    }
                    self.duties.reopen();
                }
                _ if self.phase == Phase::Serves => self.duties.is_stop_asked = true,
                _ => self.is_hurried = true,
            }
        }
        Ok(())
    }

    /// Begins to load the policy anew; how that ends is told by `tick`.
    fn reload(&mut self, tell: &mut dyn FnMut(&str)) {
        if let Some(notifier) = &self.notifier {
            let _ = notifier.reloading();
        }
        let (said, wake) = (self.reloaded.0.clone(), self.duties.wakes());
        let told = Box::new(move |outcome: &Result<Report, PolicyError>| {
            let text = match outcome {
                Ok(report) => format!("policy loaded anew: {report}"),
                Err(error) => format!("the policy stays as it was: {error}"),
            };
            // Nobody listens any more: the server has ended.
            let _ = said.send(text);
            wake();
        });
        if let Err(error) = self.duties.common.reload.start(told) {
            tell(&format!("the policy stays as it was: {error}; send the signal again"));
        }
    }

    /// What time and other threads bring.
    fn tick(&mut self, now_ms: u64, crew: &Crew, tell: &mut dyn FnMut(&str)) {
        if let Some(control) = &mut self.control {
            control.expire(&self.poller, now_ms);
            if control.clients() > 0 && now_ms >= self.nudged_ms + NUDGE_MS {
                self.nudged_ms = now_ms;
                crew.wake();
            }
        }
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.expire(&self.poller, now_ms);
        }
        if let (Some(notifier), Some(due_ms)) = (&self.notifier, self.alive_ms)
            && now_ms >= due_ms
        {
            let _ = notifier.alive();
            self.alive_ms = notifier.alive_every_ms().map(|every_ms| now_ms + every_ms);
        }
        while let Ok(text) = self.reloaded.1.try_recv() {
            tell(&text);
            if let Some(notifier) = &self.notifier {
                let _ = notifier.ready("answers");
            }
        }
        for writer in &self.duties.common.writers {
            while let Some(news) = writer.news() {
                tell(&news);
            }
        }
        for answerer in &self.duties.common.answerers {
            if let Some(news) = answerer.news() {
                tell(&news);
            }
        }
        self.duties.look_at_loading(tell);
        if self.duties.loading.is_none() && self.phase == Phase::Serves {
            let wake = self.duties.wakes();
            let now = self.duties.seconds();
            if let Some(snapshots) = &mut self.duties.snapshots {
                if let Some(Err(text)) = snapshots.finished() {
                    tell(&text);
                }
                if snapshots.is_due(now_ms) {
                    // One that still runs is as good.
                    let _ = snapshots.start(now, wake);
                }
            }
        }
    }

    /// Takes the next phase if it has come.
    fn go_on(
        &mut self,
        now_ms: u64,
        crew: &mut Crew,
        tell: &mut dyn FnMut(&str),
    ) -> io::Result<()> {
        if self.phase == Phase::Serves && (self.duties.is_stop_asked || crew.ended() > 0) {
            if let Some(notifier) = &self.notifier {
                let _ = notifier.stopping();
            }
            if let Some(beside) = &mut self.duties.beside {
                beside.drain();
            }
            crew.go_on(Stage::Drains);
            self.phase = Phase::Drains { until_ms: now_ms + DRAIN_MS };
        }
        let mut result = Ok(());
        if let Phase::Drains { until_ms } = self.phase {
            if now_ms >= until_ms || self.is_hurried {
                crew.go_on(Stage::Ends);
            }
            if crew.ended() == crew.threads.len() {
                result = crew.join();
                if let Some(beside) = self.duties.beside.take().filter(|_| !self.is_hurried) {
                    beside.finish();
                }
                self.phase = Phase::Saves;
            }
        }
        if self.phase == Phase::Saves && (self.is_hurried || self.duties.last_save(tell)) {
            self.phase = Phase::Ended;
        }
        result
    }
}

impl Duties {
    fn now_ms(&self) -> u64 {
        self.common.clock.now().us / 1_000
    }

    fn seconds(&self) -> Seconds {
        Seconds(self.common.clock.now().wall_s)
    }

    /// Has files begun anew, after a rotation.
    fn reopen(&self) {
        self.common.writers.iter().for_each(Writer::reopen);
    }

    fn wakes(&self) -> impl FnOnce() + Send + 'static {
        let own = Arc::clone(&self.common.waker);
        move || wake(&own)
    }

    /// Tells how the load ended, if it did.
    fn look_at_loading(&mut self, tell: &mut dyn FnMut(&str)) {
        let Some(result) = self.loading.as_mut().and_then(Loading::finished) else { return };
        self.loading = None;
        let path = self.snapshot_path.clone().unwrap_or_default();
        match result {
            Ok(None) => {}
            Ok(Some(loaded)) => {
                tell(&format!("{} answers came back from {}", loaded.entries, path.display()));
            }
            Err(error) => tell(&format!(
                "snapshot {}: {error}; what was read before is used, the rest is found anew",
                path.display()
            )),
        }
    }

    /// Saves for the last time. True when that is over, or where there is nothing to save.
    fn last_save(&mut self, tell: &mut dyn FnMut(&str)) -> bool {
        let (now, wake) = (self.seconds(), self.wakes());
        let Some(snapshots) = &mut self.snapshots else { return true };
        if self.loading.is_some() {
            tell("the snapshot was not loaded to its end, and stays as it is");
            return true;
        }
        if !self.is_last_save_begun {
            // What a save that still runs has to say is said by this one.
            let _ = snapshots.finished();
            self.is_last_save_begun = snapshots.start(now, wake);
            if self.is_last_save_begun || snapshots.is_saving() {
                return false;
            }
            tell("no thread can be had to save the cache; the older snapshot is as it was");
            return true;
        }
        match snapshots.finished() {
            Some(Ok(saved)) => {
                tell(&format!("{} answers were saved in {} ms", saved.entries, saved.took_ms));
                true
            }
            Some(Err(text)) => {
                tell(&text);
                true
            }
            None => !snapshots.is_saving(),
        }
    }

    /// Figures that are not counted by cores.
    fn gauges(&self) -> Vec<Gauge> {
        // Statistics fail only for a cache that is broken, which its users are told of.
        let mut gauges =
            self.common.cache.stats().map_or_else(|_| Vec::new(), |it| cache_gauges(&it));
        let mut add = |name, help, value| gauges.push(Gauge { name, help, label: None, value });
        let up_s = self.common.clock.now().us as f64 / 1e6;
        add("uptime_seconds", "Time since the start", up_s);
        let counts = || self.common.writers.iter().map(|writer| (writer.name(), writer.counts()));
        let of = |name: &str| Some(("of", name.to_owned()));
        gauges.extend(counts().map(|(name, (written, _))| Gauge {
            name: "records_written",
            help: "Records of dnstap and lines of the query log that were written",
            label: of(name),
            value: written as f64,
        }));
        gauges.extend(counts().map(|(name, (_, lost))| Gauge {
            name: "records_lost",
            help: "Records of dnstap and lines of the query log that could not be written",
            label: of(name),
            value: lost as f64,
        }));
        gauges.extend(self.beside.iter().flat_map(|beside| beside.gauges()));
        let answerers = self.common.answerers.iter();
        gauges.extend(by_name(answerers.flat_map(|answerer| answerer.gauges()).collect()));
        gauges
    }

    /// All of it for Prometheus.
    fn text(&self) -> String {
        let mut text = String::new();
        self.common.published.sum().write_text(&mut text);
        write_gauges(&mut text, &self.gauges());
        text
    }
}

/// Gauges of one name, one after the other.
fn by_name(mut gauges: Vec<Gauge>) -> Vec<Gauge> {
    gauges.sort_by_key(|gauge| gauge.name);
    gauges
}

impl Actions for Duties {
    fn cache(&self) -> &Cache {
        &self.common.cache
    }

    fn now(&self) -> Seconds {
        self.seconds()
    }

    fn stats(&mut self) -> Fields {
        let mut fields = self.common.published.sum().fields();
        fields.extend(gauge_fields(&self.gauges()));
        fields
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
        self.reopen();
        let reload = self.common.reload.clone();
        Answer::Later(Box::new(move |_| {
            let (said, heard) = mpsc::channel();
            let told = Box::new(move |outcome: &Result<Report, PolicyError>| {
                let outcome = outcome.as_ref().map(Report::to_string);
                // The client may be gone by then.
                let _ = said.send(outcome.map_err(PolicyError::to_string));
            });
            reload.start(told).map_err(|error| error.to_string())?;
            let ended = "the server ended meanwhile";
            let report = heard.recv().map_err(|_| ended.to_owned())??;
            let mut fields = Fields::new();
            fields.insert("policy".to_owned(), report.into());
            Ok(fields)
        }))
    }

    fn stop(&mut self) -> Answer {
        self.is_stop_asked = true;
        Answer::done()
    }
}
