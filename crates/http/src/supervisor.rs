//! What the calling thread does while loops serve: signals, `larder ctl`, metrics, checks of origins, the service manager.
//!
//! ```text
//! serves   until SIGINT, SIGTERM, `larder ctl stop`, or a loop that failed
//! drains   loops take no new connections, and finish what was begun: DRAIN_MS at most
//! ended    all loops are
//! ```
//! A second signal changes nothing, but for a SIGINT a second or more after the first ([`StopRule`]): it ends the server at once.
//!
//! Invariants
//! 1. A loop that fails ends the server; its error is told by who waits for the threads.
//!
//! Loops wait for nothing here.
//!
//! Cost: a look at the counters each second; else none while nobody asks and nothing is due.

mod checks;
mod duties;
mod shortages;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Instant;

use larder_io::event::{Events, Interest, Poller, Signal, Signals, StopRule, StopStep};
use larder_serve::changes::Changes;
use larder_serve::control::{self, Control};
use larder_serve::crew;
use larder_serve::metrics_http::{self, Endpoint};
use larder_serve::notify::Notifier;

use self::checks::Checks;
use self::duties::Duties;
use self::shortages::Shortages;
use crate::health::Failures;
use crate::live::{Follower, Reload};
use crate::server::{Common, Running};

/// How long answers that were begun may take when the server is asked to end, milliseconds.
pub const DRAIN_MS: u64 = 10_000;

/// How often the writer of the access log, the loops' counters and the origins are asked for news, milliseconds.
const NEWS_MS: u64 = 1_000;

/// How often failed connections to an origin are reported at most, milliseconds.
const FAILURES_EVERY_MS: u64 = 60_000;

/// Events of one wait.
const EVENTS_MAX: usize = 64;

/// Tokens of the poller.
const SIGNALS: u64 = 0;
const WAKER: u64 = 1;
const CONTROL: u64 = 2;
const METRICS: u64 = CONTROL + control::server::TOKENS;
const CHECKS: u64 = METRICS + metrics_http::TOKENS;

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serves,
    Drains { until_ms: u64 },
    Ended,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All that was begun is finished.
    Well,
    /// Some was not, in time.
    Late,
    /// A signal forced the end.
    Pressed,
}

/// Reads the signals that ask for an end, until the process has finished.
pub(crate) struct Stopping {
    pub signals: Signals,
    rule: StopRule,
}

impl Stopping {
    fn step(&mut self, signal: Signal) -> StopStep {
        self.rule.signal(signal == Signal::Interrupt, Instant::now())
    }

    /// True if a signal that arrived since the last call forces the end. The other signals have nothing left to act on.
    pub fn is_forced(&mut self) -> io::Result<bool> {
        let mut is_forced = false;
        while let Some(signal) = self.signals.read()? {
            let is_stop = matches!(signal, Signal::Interrupt | Signal::Terminate);
            is_forced |= is_stop && self.step(signal) == StopStep::Force;
        }
        Ok(is_forced)
    }
}

/// The calling thread's part of the server.
pub(crate) struct Supervisor {
    poller: Poller,
    stopping: Stopping,
    control: Option<Control>,
    endpoint: Option<Endpoint>,
    checks: Option<Checks>,
    duties: Duties,
    follower: Follower,
    /// A reload that a signal asked for, and that is under way.
    reloading: Option<Receiver<Result<Changes, String>>>,
    /// Another signal came meanwhile: what was read may have changed since.
    reloads_again: bool,
    shortages: Shortages,
    notifier: Option<Notifier>,
    alive_ms: Option<u64>,
    /// Of each origin: the failed connections that were reported, and when.
    failures: HashMap<String, (u64, u64)>,
    phase: Phase,
    ended: Ended,
}

impl Supervisor {
    /// Opens the sockets of an operator. The error says what to do.
    pub fn open(common: Common, signals: Signals, reload: Reload) -> io::Result<Supervisor> {
        let operation = &common.options.operation;
        let poller = Poller::new()?;
        poller.add(&signals, SIGNALS, Interest::READ)?;
        poller.add(&*common.waker, WAKER, Interest::READ)?;
        let control = operation.control.as_ref().map(|(path, mode)| {
            Control::open(path, *mode, control::Limits::default(), &poller, CONTROL)
        });
        let endpoint = operation.metrics.map(|address| {
            Endpoint::open(address, metrics_http::Limits::default(), &poller, METRICS)
        });
        let (follower, setup) = Follower::new(common.live.clone());
        Ok(Supervisor {
            control: control.transpose()?,
            endpoint: endpoint.transpose()?,
            checks: Checks::of(&setup, CHECKS),
            poller,
            stopping: Stopping { signals, rule: StopRule::default() },
            duties: Duties { common, reload, is_stop_asked: false },
            follower,
            reloading: None,
            reloads_again: false,
            shortages: Shortages::default(),
            notifier: None,
            alive_ms: None,
            failures: HashMap::new(),
            phase: Phase::Serves,
            ended: Ended::Well,
        })
    }

    /// Where metrics are told.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().and_then(|endpoint| endpoint.address().ok())
    }

    /// Watches over the loops until the end. `tell` is given lines for the operator. The signals stay blocked: whoever has more to
    /// finish reads them until that is done.
    pub fn run(
        mut self,
        running: &Running,
        tell: &mut dyn FnMut(&str),
    ) -> io::Result<(Ended, Stopping)> {
        self.greet(running, tell);
        let mut events = Events::new(EVENTS_MAX);
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
                    METRICS..CHECKS => {
                        let Supervisor { endpoint, poller, duties, .. } = &mut self;
                        if let Some(endpoint) = endpoint {
                            endpoint.handle(event, poller, now_ms, || duties.text());
                        }
                    }
                    CHECKS.. => {
                        let Supervisor { checks, poller, .. } = &mut self;
                        if let Some(checks) = checks {
                            checks.handle(event.token, poller, now_ms, tell);
                        }
                    }
                }
            }
            self.tick(now_ms, tell);
            self.go_on(now_ms, running, tell);
        }
        Ok((self.ended, self.stopping))
    }

    /// The loops have begun: the service manager is told.
    fn greet(&mut self, running: &Running, tell: &mut dyn FnMut(&str)) {
        match Notifier::from_environment() {
            Ok(notifier) => self.notifier = notifier,
            Err(error) => tell(&format!("the service manager is not told: {error}")),
        }
        if let Some(notifier) = &self.notifier {
            let loops = running.loops();
            let plural = if loops == 1 { "" } else { "s" };
            // A manager that does not hear is none.
            let _ = notifier.ready(&format!("serves with {loops} loop{plural}"));
            self.alive_ms = notifier.alive_every_ms().map(|_| 0);
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
            self.endpoint.as_ref().and_then(|endpoint| endpoint.wait_ms(now_ms)),
            self.checks.as_ref().and_then(|checks| checks.wait_ms(now_ms)),
            Some(NEWS_MS),
            self.alive_ms.map(until),
            drained,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn hear_signals(&mut self, tell: &mut dyn FnMut(&str)) -> io::Result<()> {
        while let Some(signal) = self.stopping.signals.read()? {
            match signal {
                Signal::HangUp if self.reloading.is_some() => self.reloads_again = true,
                Signal::HangUp => self.reload(tell),
                Signal::LogsMoved => self.duties.common.live.reopen_log(),
                signal => match self.stopping.step(signal) {
                    StopStep::Stop => self.duties.is_stop_asked = true,
                    StopStep::Ignore => {}
                    StopStep::Force => self.ended = Ended::Pressed,
                },
            }
        }
        Ok(())
    }

    /// Begins to read the settings anew, on a thread: names are looked up, and that may take long.
    fn reload(&mut self, tell: &mut dyn FnMut(&str)) {
        // Whatever comes of it: this is what a rotation wants.
        self.duties.common.live.reopen_log();
        if let Some(beside) = &self.duties.common.beside {
            tell(&beside.reload());
        }
        if let Some(notifier) = &self.notifier {
            let _ = notifier.reloading();
        }
        let (say, said) = mpsc::channel();
        let (reload, waker) = (self.duties.reload.clone(), self.duties.common.waker.clone());
        let work = move || {
            // Nobody listens any more: the server has ended.
            let _ = say.send(reload.run());
            crew::wake(&waker);
        };
        match thread::Builder::new().name("reload".to_owned()).spawn(work) {
            Ok(_) => self.reloading = Some(said),
            Err(error) => {
                tell(&format!("settings stay as they were: {error}; send the signal again"))
            }
        }
    }

    /// Reports connections to origins that failed: the first at once, later ones together, a line a minute for each origin.
    fn report_failures(&mut self, now_ms: u64, tell: &mut dyn FnMut(&str)) {
        let health = self.duties.common.live.setup().health;
        for Failures { origin, count, why } in health.failures() {
            let Some((before, told_ms)) = self.failures.get(origin).copied() else {
                self.failures.insert(origin.to_owned(), (0, 0));
                continue;
            };
            if count > before && (before == 0 || now_ms >= told_ms + FAILURES_EVERY_MS) {
                let failed = count - before;
                tell(&format!("origin {origin}: failed connections: {failed}, the last: {why}"));
                self.failures.insert(origin.to_owned(), (count, now_ms));
            }
        }
        // Origins that a reload removed.
        self.failures.retain(|name, _| health.failures().any(|it| it.origin == name));
    }

    /// Tells what came of a reload, if it is over.
    fn see_reload(&mut self, tell: &mut dyn FnMut(&str)) {
        let Some(said) = &self.reloading else { return };
        match said.try_recv() {
            Err(TryRecvError::Empty) => return,
            Ok(Ok(changes)) => tell(&format!("settings were read anew: {changes}")),
            Ok(Err(error)) => tell(&format!("settings stay as they were: {error}")),
            Err(TryRecvError::Disconnected) => {
                tell("settings stay as they were: a bug, please tell us")
            }
        }
        self.reloading = None;
        if let Some(notifier) = &self.notifier {
            let _ = notifier.ready("serves");
        }
        if std::mem::take(&mut self.reloads_again) {
            self.reload(tell);
        }
    }

    /// What time and other threads bring.
    fn tick(&mut self, now_ms: u64, tell: &mut dyn FnMut(&str)) {
        self.see_reload(tell);
        if let Some(setup) = self.follower.take_next() {
            let before = std::mem::replace(&mut self.checks, Checks::of(&setup, CHECKS));
            if let (Some(checks), Some(before)) = (&mut self.checks, before) {
                checks.take_over(&before, now_ms);
            }
        }
        self.report_failures(now_ms, tell);
        while let Some(news) = self.duties.common.live.log_news() {
            tell(&news);
        }
        let counts = || self.duties.common.shared.sum();
        if let Some(line) = self.shortages.news(now_ms, counts) {
            tell(&line);
        }
        if let Some(control) = &mut self.control {
            control.expire(&self.poller, now_ms);
        }
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.expire(&self.poller, now_ms);
        }
        if let Some(checks) = &mut self.checks {
            checks.tick(&self.poller, now_ms, tell);
        }
        if let (Some(notifier), Some(due_ms)) = (&self.notifier, self.alive_ms)
            && now_ms >= due_ms
        {
            let _ = notifier.alive();
            self.alive_ms = notifier.alive_every_ms().map(|every_ms| now_ms + every_ms);
        }
    }

    /// Takes the next phase if it has come.
    fn go_on(&mut self, now_ms: u64, running: &Running, tell: &mut dyn FnMut(&str)) {
        if self.phase == Phase::Serves && (self.duties.is_stop_asked || running.ended() > 0) {
            if let Some(notifier) = &self.notifier {
                let _ = notifier.stopping();
            }
            if running.ended() > 0 {
                // What the others have begun may wait for the one that failed.
                running.hurry();
            } else {
                tell("ending: answers that were begun are finished");
                running.drain();
            }
            self.phase = Phase::Drains { until_ms: now_ms + DRAIN_MS };
        }
        let Phase::Drains { until_ms } = self.phase else { return };
        if now_ms >= until_ms && self.ended == Ended::Well {
            self.ended = Ended::Late;
            tell("some answers were not finished in time");
        }
        if self.ended != Ended::Well {
            running.hurry();
        }
        if running.has_ended() {
            self.phase = Phase::Ended;
        }
    }
}
