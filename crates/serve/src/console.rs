//! The interfaces of a running program for operators and the service manager: control socket,
//! metrics, readiness and watchdog.
//!
//! ```text
//! open    binds the sockets; an error states what to do
//! ready   reports to the service manager that the program serves
//! turn    waits for the next event or time, and serves it
//! ```
//!
//! Invariants
//! 1. Only a turn feeds the watchdog, and only while [`Duties::is_alive`]: so the manager notices a
//!    program that hangs.
//!
//! Cost: no wake-up without requests and while nothing is due.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use larder_io::epoll::{Event, Events, Interest, Poller, Waker};

use crate::control::{self, Control, Service};
use crate::log::Log;
use crate::metrics_http::{self, Endpoint};
use crate::notify::Notifier;

/// How soon a program without progress is checked again, milliseconds.
const LOOK_AGAIN_MS: u64 = 200;

/// Events of one wait.
const EVENTS_MAX: usize = 64;

const WAKER: u64 = 0;
const CONTROL: u64 = 1;
const METRICS: u64 = CONTROL + control::server::TOKENS;

/// Tokens from here on are the program's own.
pub const TOKENS: u64 = METRICS + metrics_http::TOKENS;

/// Where a program is operated.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The control socket and its file mode.
    pub control: Option<(PathBuf, u32)>,
    /// Limits of clients of the control socket.
    pub limits: control::Limits,
    /// The address of metrics.
    pub metrics: Option<SocketAddr>,
}

/// The program's part in the console.
pub trait Duties: Service {
    /// The program's clock, milliseconds.
    fn now_ms(&self) -> u64;

    /// Metrics in Prometheus' text format.
    fn metrics(&self) -> String;

    /// Whether the program made progress since the last call, as far as it can detect that.
    fn is_alive(&mut self) -> bool {
        true
    }
}

/// The sockets, in the event loop of the thread that calls [`Console::turn`].
#[derive(Debug)]
pub struct Console {
    poller: Poller,
    waker: Arc<Waker>,
    control: Option<Control>,
    endpoint: Option<Endpoint>,
    notifier: Option<Notifier>,
    /// The service manager has got the message that the end has begun.
    is_stopping: bool,
    /// When the watchdog is due.
    alive_ms: u64,
    events: Events,
}

impl Console {
    /// Opens the sockets; `waker` ends a wait. The error states what to do.
    pub fn open(places: &Places, waker: Arc<Waker>) -> io::Result<Console> {
        let poller = Poller::new()?;
        poller.add(&*waker, WAKER, Interest::READ)?;
        let control = places
            .control
            .as_ref()
            .map(|(path, mode)| Control::open(path, *mode, places.limits, &poller, CONTROL));
        let endpoint = places.metrics.map(|address| {
            Endpoint::open(address, metrics_http::Limits::default(), &poller, METRICS)
        });
        Ok(Console {
            control: control.transpose()?,
            endpoint: endpoint.transpose()?,
            poller,
            waker,
            notifier: None,
            is_stopping: false,
            alive_ms: 0,
            events: Events::new(EVENTS_MAX),
        })
    }

    /// For sockets of the program's own, with tokens from [`TOKENS`] on.
    pub fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Clients of the control socket.
    pub fn clients(&self) -> usize {
        self.control.as_ref().map_or(0, Control::clients)
    }

    /// The program serves: logs where metrics are, and notifies the service manager that the
    /// environment names. An error there is logged, and is no reason to end.
    pub fn start(&mut self, status: &str, log: &Log) {
        let metrics = self.endpoint.as_ref().and_then(|endpoint| endpoint.address().ok());
        if let Some(address) = metrics {
            log.info("metrics listening").text("url", format_args!("http://{address}/metrics"));
        }
        match Notifier::from_environment() {
            Ok(found) => self.notifier = found,
            Err(error) => drop(log.warn("service manager not notified").text("error", error)),
        }
        self.ready(status);
    }

    /// The program serves, or does so again after a reload. A manager that does not read is
    /// ignored.
    pub fn ready(&self, status: &str) {
        self.notifier.as_ref().map(|notifier| notifier.ready(status));
    }

    /// Settings are being read again; [`Console::ready`] ends that.
    pub fn reloading(&self) {
        self.notifier.as_ref().map(Notifier::reloading);
    }

    /// The end has begun; the first call counts.
    pub fn stopping(&mut self) {
        if !std::mem::replace(&mut self.is_stopping, true) {
            self.notifier.as_ref().map(Notifier::stopping);
        }
    }

    /// Waits at most `wait_ms`, and serves the events. The program's own events are put into `own`,
    /// which is emptied first.
    pub fn turn(
        &mut self,
        duties: &mut impl Duties,
        wait_ms: Option<u64>,
        own: &mut Vec<Event>,
    ) -> io::Result<()> {
        own.clear();
        let now_ms = duties.now_ms();
        let due = [
            self.control.as_ref().and_then(|control| control.wait_ms(now_ms)),
            self.endpoint.as_ref().and_then(|endpoint| endpoint.wait_ms(now_ms)),
            self.alive_every_ms().map(|_| self.alive_ms.saturating_sub(now_ms)),
            wait_ms,
        ];
        self.poller.wait(&mut self.events, due.into_iter().flatten().min())?;
        let now_ms = duties.now_ms();
        for event in self.events.iter() {
            match (event.token, &mut self.control, &mut self.endpoint) {
                (WAKER, ..) => drop(self.waker.clear()?),
                (CONTROL..METRICS, Some(control), _) => {
                    control.handle(event, &self.poller, duties, now_ms);
                }
                (METRICS..TOKENS, _, Some(endpoint)) => {
                    endpoint.handle(event, &self.poller, now_ms, || duties.metrics());
                }
                (TOKENS.., ..) => own.push(event),
                _ => {}
            }
        }
        if let Some(control) = &mut self.control {
            control.expire(&self.poller, now_ms);
        }
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.expire(&self.poller, now_ms);
        }
        self.feed_watchdog(duties, now_ms);
        Ok(())
    }

    fn alive_every_ms(&self) -> Option<u64> {
        self.notifier.as_ref().and_then(Notifier::alive_every_ms)
    }

    /// Invariant 1.
    fn feed_watchdog(&mut self, duties: &mut impl Duties, now_ms: u64) {
        let (Some(every_ms), Some(notifier)) = (self.alive_every_ms(), &self.notifier) else {
            return;
        };
        if now_ms >= self.alive_ms {
            let is_alive = duties.is_alive();
            if is_alive {
                let _ = notifier.alive();
            }
            self.alive_ms = now_ms + if is_alive { every_ms } else { LOOK_AGAIN_MS };
        }
    }
}
