//! What the calling thread does while cores serve: signals, `larder ctl`, metrics, snapshots, the service manager.
//!
//! ```text
//! serves   until SIGINT, SIGTERM, `larder ctl stop`, or a core that failed
//! drains   cores take nothing new and answer what they have: DRAIN_MS at most
//! saves    the cache, if it has a file
//! ended    trace and query log are finished, the control socket removed
//! ```
//! A second signal changes nothing, but for a SIGINT a second or more after the first ([`StopRule`]): it ends the server at once,
//! nothing more is saved, and the older snapshot stays as it was.
//!
//! Invariants
//! 1. Nothing is saved while the last snapshot is being loaded: a start that is cut short loses no
//!    cache.
//! 2. A core that fails ends the server, with its error, after the others have drained.
//!
//! Cores wait for nothing here. What takes long (saves, loads, dumps) has a thread of its own, which
//! wakes this one.
//!
//! Cost: a wake-up a second while nobody asks and nothing is due, and a
//! hundred for each core while a client of the control socket is connected.

mod duties;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use larder::Cache;
use larder_io::event::{Events, Interest, Poller, Signal, Signals, StopRule, StopStep, Waker};

use self::duties::Duties;
use crate::answerer::Answerer;
use crate::bridge::Running;
use crate::clock::Clock;
use crate::ctl::{self, Asking, Control};
use crate::dnstap::Target;
use crate::metrics::Shared;
use crate::query_log;
use crate::reload::{Reload, Reloaded};
use crate::snapshot::{Loading, Snapshots, clear_leftovers};
use larder_serve::crew::{Crew, wake};
use larder_serve::metrics_http::{self, Endpoint};
use larder_serve::notify::Notifier;
use larder_serve::stage::Stage;
use larder_serve::writer::Writer;

/// How long what is in flight may take at the end, milliseconds.
pub const DRAIN_MS: u64 = 2_000;

/// How often writers and answerers are asked for news, milliseconds.
const NEWS_MS: u64 = 1_000;

/// How often cores are woken while a client of the control socket may be loading, milliseconds: what it stores must be
/// seen by all of them before it can store more.
const NUDGE_MS: u64 = 10;

/// How often a change of an upstream is reported at most, milliseconds.
const UPSTREAM_EVERY_MS: u64 = 10_000;

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
    stop_rule: StopRule,
    /// A signal forced the end.
    is_hurried: bool,
    /// Of each upstream: whether it was reported as up, and when.
    upstreams: HashMap<String, (bool, u64)>,
    /// How reloads that a signal asked for have ended, in words.
    reloaded: (mpsc::Sender<String>, mpsc::Receiver<String>),
}

impl Supervisor {
    /// Opens the sockets of an operator. The error says what to do.
    pub fn open(operation: &Operation, common: Common, signals: Signals) -> io::Result<Supervisor> {
        let poller = Poller::new()?;
        poller.add(&signals, SIGNALS, Interest::READ)?;
        poller.add(&*common.waker, WAKER, Interest::READ)?;
        let control = operation
            .control
            .as_ref()
            .map(|(path, mode)| Control::open(path, *mode, ctl::limits(), &poller, CONTROL));
        let endpoint = operation.metrics.map(|address| {
            Endpoint::open(address, metrics_http::Limits::default(), &poller, METRICS)
        });
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
            stop_rule: StopRule::default(),
            is_hurried: false,
            upstreams: HashMap::new(),
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
                            control.handle(event, poller, &mut Asking(duties), now_ms);
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
            let plural = if crew.count() == 1 { "" } else { "s" };
            // A manager that does not hear is none.
            let _ = notifier.ready(&format!("answers with {} core{plural}", crew.count()));
            self.alive_ms = notifier.alive_every_ms().map(|_| 0);
        }
        let Some(path) = self.duties.snapshot_path.clone() else { return };
        if let Err(error) = clear_leftovers(&path) {
            let directory = "its directory cannot be read";
            tell(&format!("snapshot {}: {directory}: {error}", path.display()));
        }
        let (wake_cores, own) = (crew.wakes(), Arc::clone(&self.duties.common.waker));
        let wake_all = move || {
            wake_cores();
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
            Some(NEWS_MS),
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
                Signal::LogsMoved => self.duties.reopen(),
                signal => {
                    let is_interrupt = signal == Signal::Interrupt;
                    match self.stop_rule.signal(is_interrupt, Instant::now()) {
                        StopStep::Stop => self.duties.is_stop_asked = true,
                        StopStep::Ignore => {}
                        StopStep::Force => self.is_hurried = true,
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins to read the settings and to load the policy anew; how that ends is told by `tick`.
    fn reload(&mut self, tell: &mut dyn FnMut(&str)) {
        if let Some(notifier) = &self.notifier {
            let _ = notifier.reloading();
        }
        let (said, wake) = (self.reloaded.0.clone(), self.duties.wakes());
        let told = Box::new(move |outcome: &Result<Reloaded, String>| {
            let text = match outcome {
                Ok(reloaded) => format!("settings were read anew: {reloaded}"),
                Err(error) => format!("settings stay as they were: {error}"),
            };
            // Nobody listens any more: the server has ended.
            let _ = said.send(text);
            wake();
        });
        if let Err(error) = self.duties.common.reload.start(told) {
            tell(&format!("settings stay as they were: {error}; send the signal again"));
        }
    }

    /// Reports upstreams that do not respond, and those that do again.
    fn report_upstreams(&mut self, now_ms: u64, tell: &mut dyn FnMut(&str)) {
        for (address, is_up) in self.duties.common.published.upstreams_up() {
            let (was_up, told_ms) = *self.upstreams.entry(address.clone()).or_insert((true, 0));
            if is_up == was_up || (told_ms > 0 && now_ms < told_ms + UPSTREAM_EVERY_MS) {
                continue;
            }
            tell(&match is_up {
                true => format!("upstream {address}: responds again"),
                false => format!(
                    "upstream {address}: no response to several queries, or unreachable; asked only now and then until it responds"
                ),
            });
            self.upstreams.insert(address, (is_up, now_ms.max(1)));
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
        self.report_upstreams(now_ms, tell);
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
        // Invariant 1; `last_save` and `larder ctl snapshot` look likewise.
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
            if crew.ended() == crew.count() {
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
