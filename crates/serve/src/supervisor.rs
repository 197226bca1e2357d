//! The calling thread of a server, while its worker threads serve: signals, reloads, the console,
//! and an end that loses nothing.
//!
//! ```text
//! serves    until SIGINT, SIGTERM, `larder ctl stop`, or a worker that failed
//! drains    workers take nothing new and finish what was begun: `Server::DRAIN_MS` at most
//! finishes  snapshots are saved, logs are written
//! ended
//! ```
//! A second signal changes nothing, but for a SIGINT a second or more after the first
//! ([`StopRule`]): it ends the server at once.
//!
//! Invariants
//! 1. A worker that fails ends the server, with its error, after the others have ended.
//! 2. Signals stay blocked until the last phase is over: one that comes late is read here, and
//!    changes no exit code.
//!
//! Workers wait for nothing here, and no code here waits: long work has its own thread, which wakes
//! this one.
//!
//! Cost: a wake-up a second, and a hundred a second while a client of the control socket is
//! connected to a server that [`Server::WAKES_FOR_CLIENTS`].

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use larder_io::epoll::{Event, Interest, Poller, Waker};
use larder_io::signals::{Signal, Signals, StopRule, StopStep};

use crate::console::{self, Console, Duties, Places};
use crate::lifecycle::Stage;
use crate::log::Log;
use crate::reload::{Outcome, Reload, log_outcome};
use crate::worker_threads::{WorkerThreads, wake};

/// How often [`Server::tick`] is called at least, milliseconds.
pub const TICK_MS: u64 = 1_000;

/// How often workers are woken for clients of the control socket, milliseconds.
const NUDGE_MS: u64 = 10;

/// The token of the signals.
const SIGNALS: u64 = console::TOKENS;

/// Tokens from here on are the server's own.
pub const TOKENS: u64 = SIGNALS + 1;

/// How a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All that was begun is finished.
    Well,
    /// Some was not, in time.
    Late,
    /// A worker failed.
    Failed,
    /// A signal forced the end.
    Forced,
}

/// The parts that differ between servers.
pub trait Server: Duties {
    /// How long work that has begun may take at the end, milliseconds.
    const DRAIN_MS: u64;

    /// Whether workers must wake every `NUDGE_MS` while a client of the control socket is
    /// connected: all of them must see what the client stores before it can store more.
    const WAKES_FOR_CLIENTS: bool = false;

    /// The reload that SIGHUP starts.
    fn reload(&self) -> &Reload;

    /// Reopens log files, after a rotation.
    fn reopen(&mut self);

    /// True if a client of the control socket requested the end.
    fn is_stop_requested(&self) -> bool;

    /// Milliseconds until [`Server::tick`] has something to do, if less than [`TICK_MS`].
    fn wait_ms(&self, _now_ms: u64) -> Option<u64> {
        None
    }

    /// Does what is due by time or because of other threads, once a turn.
    fn tick(&mut self, poller: &Poller, now_ms: u64);

    /// A socket of the server's own is ready; its token is [`TOKENS`] or more.
    fn event(&mut self, _event: Event, _poller: &Poller, _now_ms: u64) {}

    /// The end begins. Returns the next stage of workers.
    fn drain(&mut self, has_failed: bool) -> Stage;

    /// All workers have ended. The supervisor calls it each turn until it is true. After
    /// [`Ended::Forced`] it must not wait.
    fn finish(&mut self, ended: Ended) -> bool;
}

/// The phase of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serves,
    Drains { until_ms: u64 },
    Finishes,
    Ended,
}

/// The loop. It has its sockets before workers start, so that a mistake ends the server first.
#[derive(Debug)]
pub struct Supervisor {
    console: Console,
    log: Log,
    waker: Arc<Waker>,
    signals: Signals,
    stop_rule: StopRule,
    is_stop_requested: bool,
    is_forced: bool,
    phase: Phase,
    ended: Ended,
    /// When workers were last woken for a client.
    nudged_ms: u64,
    /// How reloads by a signal have ended.
    outcomes: (Sender<Outcome>, Receiver<Outcome>),
}

impl Supervisor {
    /// Takes the signals, which are blocked in all threads, and opens the console; `waker` wakes it. The error says
    /// what to do.
    pub fn open(
        places: &Places,
        waker: Arc<Waker>,
        signals: Signals,
        log: &Log,
    ) -> io::Result<Supervisor> {
        let console = Console::open(places, waker.clone())?;
        console.poller().add(&signals, SIGNALS, Interest::READ)?;
        Ok(Supervisor {
            console,
            log: log.clone(),
            waker,
            signals,
            stop_rule: StopRule::default(),
            is_stop_requested: false,
            is_forced: false,
            phase: Phase::Serves,
            ended: Ended::Well,
            nudged_ms: 0,
            outcomes: mpsc::channel(),
        })
    }

    /// The sockets.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Supervises the workers until the end. `status` is a line for the service manager. An error
    /// is that of a worker, or of this loop.
    pub fn run<S: Server>(
        mut self,
        workers: &mut WorkerThreads,
        server: &mut S,
        status: &str,
    ) -> io::Result<Ended> {
        self.console.start(status, &self.log);
        let (mut own, mut result) = (Vec::new(), Ok(()));
        while self.phase != Phase::Ended {
            let wait_ms = self.wait_ms(server);
            self.console.turn(server, Some(wait_ms), &mut own)?;
            let now_ms = server.now_ms();
            for event in &own {
                match event.token {
                    SIGNALS => self.read_signals(server)?,
                    _ => server.event(*event, self.console.poller(), now_ms),
                }
            }
            if S::WAKES_FOR_CLIENTS && self.nudge_ms(now_ms) == Some(0) {
                self.nudged_ms = now_ms;
                workers.wake();
            }
            self.report_reloads(status);
            server.tick(self.console.poller(), now_ms);
            result = result.and(self.go_on(now_ms, workers, server));
        }
        // Invariant 2.
        self.signals.unblock()?;
        result.map(|()| self.ended)
    }

    /// How long nothing is due.
    fn wait_ms<S: Server>(&self, server: &S) -> u64 {
        let now_ms = server.now_ms();
        let drained = match self.phase {
            Phase::Drains { until_ms } => Some(until_ms.saturating_sub(now_ms)),
            _ => None,
        };
        let nudge = self.nudge_ms(now_ms).filter(|_| S::WAKES_FOR_CLIENTS);
        let first = [server.wait_ms(now_ms), drained, nudge].into_iter().flatten().min();
        first.map_or(TICK_MS, |ms| ms.min(TICK_MS))
    }

    /// Milliseconds until workers are woken for a client, if there is one.
    fn nudge_ms(&self, now_ms: u64) -> Option<u64> {
        let has_clients = self.console.clients() > 0;
        has_clients.then(|| (self.nudged_ms + NUDGE_MS).saturating_sub(now_ms))
    }

    fn read_signals(&mut self, server: &mut impl Server) -> io::Result<()> {
        while let Some(signal) = self.signals.read()? {
            match signal {
                Signal::HangUp => self.reload(server),
                Signal::LogsMoved => server.reopen(),
                signal => {
                    let is_interrupt = signal == Signal::Interrupt;
                    match self.stop_rule.signal(is_interrupt, Instant::now()) {
                        StopStep::Stop => self.is_stop_requested = true,
                        StopStep::Ignore => {}
                        StopStep::Force => self.is_forced = true,
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins a reload; how it ends is reported by a later turn.
    fn reload(&mut self, server: &mut impl Server) {
        // Whatever the outcome of the rest, a log rotation needs this.
        server.reopen();
        self.console.reloading();
        let (say, waker) = (self.outcomes.0.clone(), self.waker.clone());
        let report = move |outcome: &Outcome| {
            // The server may have ended.
            let _ = say.send(outcome.clone());
            wake(&waker);
        };
        if let Err(error) = server.reload().start(Box::new(report)) {
            let hint = "send the signal again";
            self.log.error("reload failed").text("error", error).text("hint", hint);
        }
    }

    fn report_reloads(&self, status: &str) {
        for outcome in self.outcomes.1.try_iter() {
            log_outcome(&self.log, &outcome);
            self.console.ready(status);
        }
    }

    /// Enters the next phase if it is due.
    fn go_on<S: Server>(
        &mut self,
        now_ms: u64,
        workers: &mut WorkerThreads,
        server: &mut S,
    ) -> io::Result<()> {
        let has_failed = workers.ended() > 0;
        if self.phase == Phase::Serves
            && (self.is_stop_requested || server.is_stop_requested() || has_failed)
        {
            self.console.stopping();
            self.log.info("draining");
            workers.advance(server.drain(has_failed));
            self.phase = Phase::Drains { until_ms: now_ms + S::DRAIN_MS };
        }
        if self.is_forced {
            self.ended = Ended::Forced;
        }
        let mut result = Ok(());
        if let Phase::Drains { until_ms } = self.phase {
            if now_ms >= until_ms && self.ended == Ended::Well {
                self.ended = Ended::Late;
                self.log.warn("drain timed out").number("after_ms", S::DRAIN_MS);
            }
            if self.ended != Ended::Well {
                workers.advance(Stage::Ends);
            }
            if workers.ended() == workers.count() {
                result = workers.join();
                if result.is_err() && self.ended == Ended::Well {
                    self.ended = Ended::Failed;
                }
                self.phase = Phase::Finishes;
            }
        }
        if self.phase == Phase::Finishes && server.finish(self.ended) {
            self.phase = Phase::Ended;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Answer, Service};
    use crate::lifecycle::Lifecycle;
    use crate::log::{Format, Level};

    /// A server that records its calls.
    struct Noting {
        start: Instant,
        reload: Reload,
        is_stop_requested: bool,
        drains: Vec<bool>,
        finishes: Vec<Ended>,
    }

    impl Service for Noting {
        fn request(&mut self, _: &[u8]) -> Answer {
            Answer::done()
        }
    }

    impl Duties for Noting {
        fn now_ms(&self) -> u64 {
            self.start.elapsed().as_millis() as u64
        }

        fn metrics(&self) -> String {
            String::new()
        }
    }

    impl Server for Noting {
        const DRAIN_MS: u64 = 50;

        fn reload(&self) -> &Reload {
            &self.reload
        }

        fn reopen(&mut self) {}

        fn is_stop_requested(&self) -> bool {
            self.is_stop_requested
        }

        fn tick(&mut self, _: &Poller, _: u64) {}

        fn drain(&mut self, has_failed: bool) -> Stage {
            self.drains.push(has_failed);
            Stage::Drains
        }

        /// As with a save, it takes another turn.
        fn finish(&mut self, ended: Ended) -> bool {
            self.finishes.push(ended);
            self.finishes.len() > 1
        }
    }

    /// Runs workers that do `work` with the lifecycle, under a supervisor. Returns how that ended,
    /// its warnings, and the server's record.
    fn supervised(
        is_stop_requested: bool,
        work: &[fn(&Lifecycle) -> io::Result<()>],
    ) -> (io::Result<Ended>, Vec<String>, Noting) {
        let signals = Signals::block().unwrap();
        let waker = Arc::new(Waker::new().unwrap());
        let log = Log::new("test", Level::Warn, Format::Text);
        let supervisor =
            Supervisor::open(&Places::default(), waker.clone(), signals, &log).unwrap();
        let lifecycle = Arc::new(Lifecycle::new());
        let mut workers = WorkerThreads::new("test", Arc::new(|| {}), lifecycle.clone(), waker);
        for work in work.iter().copied() {
            let lifecycle = lifecycle.clone();
            workers.start(move || work(&lifecycle)).unwrap();
        }
        let mut server = Noting {
            start: Instant::now(),
            reload: Reload::new(|| Err("not asked for".to_owned())),
            is_stop_requested,
            drains: Vec::new(),
            finishes: Vec::new(),
        };
        let ended = supervisor.run(&mut workers, &mut server, "serves");
        (ended, log.take(), server)
    }

    fn until(lifecycle: &Lifecycle, stage: Stage) -> io::Result<()> {
        while lifecycle.get() < stage {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// A worker that fails ends the server: the others drain, all is finished, and its error is
    /// reported. Invariant 1.
    #[test]
    fn a_failed_worker_ends_the_server() {
        let work: [fn(&Lifecycle) -> _; 2] = [
            |lifecycle| until(lifecycle, Stage::Drains),
            |_| Err(io::Error::other("no more memory")),
        ];
        let (ended, lines, server) = supervised(false, &work);
        assert_eq!(ended.unwrap_err().to_string(), "no more memory");
        assert_eq!((server.drains, server.finishes), (vec![true], vec![Ended::Failed; 2]));
        assert_eq!(lines, [""; 0]);
    }

    /// Workers that do not finish in time are ended, which is reported. The supervisor waits for
    /// those that do, and logs nothing.
    #[test]
    fn a_drain_has_an_end() {
        let (ended, lines, server) = supervised(true, &[|lifecycle| until(lifecycle, Stage::Ends)]);
        assert_eq!((ended.unwrap(), server.finishes), (Ended::Late, vec![Ended::Late; 2]));
        assert_eq!(lines, ["warn test: drain timed out after_ms=50"]);
        let (ended, lines, server) =
            supervised(true, &[|lifecycle| until(lifecycle, Stage::Drains)]);
        assert_eq!((ended.unwrap(), server.drains), (Ended::Well, vec![false]));
        assert_eq!((server.finishes, lines.len()), (vec![Ended::Well; 2], 0));
    }
}
