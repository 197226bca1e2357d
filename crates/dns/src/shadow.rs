//! A trial without risk: larder resolves the queries of a running resolver for itself, and the
//! responses are compared.
//!
//! ```text
//! the resolver's traffic -> copy: a capture, dnstap -> pairs: query, the resolver's response --+
//!                                                        |                                     +-> tally -> report
//!                                                        +-> sender -> a core: larder's response
//!                                                                      +-> upstreams
//! ```
//!
//! No client is served: there is no listening socket, and the core's responses only go into the
//! comparison. Only its queries to upstreams leave the program. The core is that of the server,
//! with its policy, cache and upstreams.
//!
//! | module | duty |
//! |---|---|
//! | `replay` | queries to the core |
//! | `copy` | messages from captures and dnstap |
//! | `pairs` | queries that wait for both responses |
//! | `known` | expected differences |
//! | `tally` | results |
//! | `spread` | percentiles in bounded memory |
//! | `report` | text and JSON |
//!
//! The calling thread reads the copy and compares. The core has a thread of its own, so its times
//! do not include the comparison. A live copy is processed as it arrives, and with too many open
//! queries further ones are skipped. A copy in a file waits for the core, and for the clock if a
//! speed is given.
//!
//! Bounds: those of `pairs`, `copy` and `tally`, the cache, and the core's queries in flight. Cost:
//! some microseconds for a query, in addition to the response itself.

mod copy;
mod known;
mod pairs;
mod replay;
mod report;
mod spread;
mod tally;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use larder::{Cache, Seconds};
use larder_io::epoll::Waker;
use larder_io::random;

use self::copy::{Copied, Kind, Polled, Seen, Whose};
use self::pairs::{Noted, Pairs};
use self::replay::{Gone, Replayer};
use crate::backend::Backends;
use crate::clock::Clock;
use crate::core::Core;
use crate::driver::{Driver, Parts};
use crate::metrics::{self, Shared};
use crate::reload::Policies;
use crate::server::{self, Options, no_cache, no_zones};
use crate::side_query;
use crate::zones::{Upstream, Zones};
use larder_serve::counters::Counters;
use larder_serve::lifecycle::{Lifecycle, Stage};
use larder_serve::log::Log;
use larder_serve::start::{ServeError, system};

pub use self::copy::{Counts as CopyCounts, From};
pub use self::report::Report;
pub use self::spread::SignedSpread;
pub use self::tally::{Different, Example, Tally};

/// Queries of a file that wait for larder's response at one time.
const IN_FLIGHT_MAX: usize = 1_024;

/// How long a response may take beyond the core's time limit.
const SLACK: Duration = Duration::from_secs(1);

/// The longest wait without a look at the request to stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// Settings of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// Addresses of the running resolver; an unspecified one stands for all with its port.
    pub resolvers: Vec<SocketAddr>,
    /// The copy of its traffic.
    pub from: From,
    /// Addresses from which larder, but no client, sends queries: their packets are skipped.
    pub own: Vec<IpAddr>,
    /// Replay speed of a copy in a file, relative to its own time; 0: as fast as possible.
    pub speed: u32,
    /// Queries within this time from the beginning of the copy are resolved but not counted.
    pub warm_up: Duration,
    /// Below this the resolver is assumed to have responded from its cache, if the copy has no
    /// better information, microseconds.
    pub hit_us: u64,
    /// How often to log a line for a live copy.
    pub every: Duration,
}

/// Runs a trial to the end of the copy, or until `stop` is set. It ignores the settings for
/// clients' sockets and operation in `options`, and has one core. For a live copy it logs a line
/// now and then.
pub fn shadow(
    options: &Options,
    trial: &Trial,
    stop: &Arc<AtomicBool>,
    log: &Log,
) -> Result<Report, ServeError> {
    let whose = Whose { resolvers: trial.resolvers.clone(), own: trial.own.clone() };
    let mut copied = Copied::open(&trial.from, whose, stop).map_err(ServeError::Refused)?;
    // The backends end after the core.
    let _backends = server::Running::start(&options.backends, log)?;
    let core = Running::start(options)?;
    let mut work = Work::new(options, trial, stop, core, copied.is_live);
    let mut ended = Ok(());
    loop {
        let mut each = |seen: &Seen<'_>| {
            if ended.is_ok() {
                ended = work.take(seen);
            }
        };
        let polled = copied.poll(stop, &mut each).map_err(ServeError::Refused)?;
        if ended.is_err() || work.pump(Duration::ZERO).is_err() {
            return Err(work
                .core
                .end()
                .err()
                .unwrap_or_else(|| ServeError::refused("the core ended before the trial")));
        }
        if polled == Polled::End {
            break;
        }
        if work.is_line_due() {
            work.report(&copied.counts).log(log);
        }
    }
    work.finish();
    let report = work.report(&copied.counts);
    work.core.end()?;
    Ok(report)
}

/// A running core.
struct Running {
    replayer: Replayer,
    published: Arc<Shared>,
    lifecycle: Arc<Lifecycle>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    fn start(options: &Options) -> Result<Running, ServeError> {
        let mut key = [0; 16];
        random::fill(&mut key).map_err(system("random numbers"))?;
        let (policies, _) =
            Policies::new(options.policy.clone(), None, &key).map_err(ServeError::refused)?;
        let settings = Arc::new(options.settings.clone());
        let cache = Cache::builder()
            .budget(options.cache_bytes)
            .readers_max(1)
            .stale(Seconds(settings.stale_s))
            .build()
            .map_err(no_cache)?;
        let zones = Zones::new(&options.forwards).map_err(no_zones)?;
        let (policy, clock) = (policies.follower(), Clock::start());
        let core = Core::new(settings.clone(), &cache, zones, clock.now()).map_err(no_cache)?;
        let waker = Arc::new(Waker::new().map_err(system("eventfd"))?);
        let (published, lifecycle) =
            (Arc::new(Shared::new(1, std::iter::empty())), Arc::new(Lifecycle::new()));
        let queries_max = settings.limits.queries_max as usize;
        let backends = Backends::new(&options.backends, 0, queries_max, waker.clone());
        let (sender, inbox) = side_query::channel(waker.clone(), side_query::QUEUE_MAX);
        let parts = Parts {
            inbox: Some(inbox),
            upstream_tcp_limits: options.upstream_tcp_limits.clone(),
            backends,
            origin: options.origin.clone(),
            ..Parts::bare(core, policy, clock, published.clone(), lifecycle.clone(), waker.clone())
        };
        let mut driver = Driver::new(parts).map_err(system("epoll"))?;
        let thread = thread::Builder::new()
            .name("dns-shadow".to_owned())
            .spawn(move || driver.run())
            .map_err(system("a thread for a core"))?;
        let replayer = Replayer::new(sender);
        Ok(Running { replayer, published, lifecycle, waker, thread: Some(thread) })
    }

    /// The core's event loop has ended.
    fn is_gone(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the core, and returns its result.
    fn end(&mut self) -> Result<(), ServeError> {
        self.lifecycle.advance(Stage::Ends);
        // A core that is not woken looks within a second.
        let _ = self.waker.wake();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        match thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ServeError::System("answering", error)),
            // The panic was printed.
            Err(_) => Err(ServeError::refused("the core failed")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The result was requested before, if at all.
        let _ = self.end();
    }
}

/// A running trial.
struct Work<'a> {
    options: &'a Options,
    trial: &'a Trial,
    stop: &'a AtomicBool,
    core: Running,
    is_live: bool,
    begun: Instant,
    pairs: Pairs,
    tally: Tally,
    /// The first and the last time in the copy, and when the last message arrived.
    first_ns: Option<i64>,
    last_ns: i64,
    last_came: Instant,
    /// The core's counters at the end of the warm-up.
    before: Option<metrics::Counts>,
    line_due: Instant,
    expire_due: Instant,
}

impl<'a> Work<'a> {
    fn new(
        options: &'a Options,
        trial: &'a Trial,
        stop: &'a AtomicBool,
        core: Running,
        is_live: bool,
    ) -> Work<'a> {
        let begun = Instant::now();
        Work {
            options,
            trial,
            stop,
            core,
            is_live,
            begun,
            pairs: Pairs::default(),
            tally: Tally::default(),
            first_ns: None,
            last_ns: 0,
            last_came: begun,
            before: None,
            line_due: begun + trial.every,
            expire_due: begun,
        }
    }

    /// Processes a message of the copy.
    fn take(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        let first_ns = *self.first_ns.get_or_insert(seen.at_ns);
        let since_ns = u64::try_from(seen.at_ns.saturating_sub(first_ns)).unwrap_or(0);
        self.wait_for(since_ns)?;
        (self.last_ns, self.last_came) = (seen.at_ns.max(self.last_ns), Instant::now());
        match seen.kind {
            Kind::ClientQuery => return self.query(seen, Duration::from_nanos(since_ns)),
            Kind::ClientResponse => match self.pairs.response(seen) {
                Ok(Some(pair)) => self.tally.compare(&pair, self.trial.hit_us),
                Ok(None) => {}
                Err(()) => self.tally.unsolicited += 1,
            },
            Kind::Upstream { is_query } => {
                let is_counted = self.before.is_some();
                self.tally.upstream_theirs += u64::from(is_query && is_counted);
                self.pairs.upstream(seen);
            }
        }
        Ok(())
    }

    fn query(&mut self, seen: &Seen<'_>, since: Duration) -> Result<(), Gone> {
        let is_counted = since >= self.trial.warm_up;
        if is_counted && self.before.is_none() {
            self.before = Some(self.core.published.counts.sum());
        }
        let queries = if is_counted { &mut self.tally.queries } else { &mut self.tally.warm_up };
        match self.pairs.query(seen, Instant::now(), is_counted) {
            Noted::Send(query) => {
                *queries += 1;
                self.core.replayer.send(query, || self.core.is_gone())
            }
            Noted::Full => {
                *queries += 1;
                self.tally.passed_over += u64::from(is_counted);
                Ok(())
            }
            Noted::Repeated => {
                self.tally.repeated += 1;
                Ok(())
            }
            Noted::Malformed => {
                self.tally.malformed += 1;
                Ok(())
            }
        }
    }

    /// Delays a message of a file until its time, and until the core has room. A live copy is not
    /// delayed.
    fn wait_for(&mut self, since_ns: u64) -> Result<(), Gone> {
        if self.is_live {
            return Ok(());
        }
        while self.pairs.in_flight() >= IN_FLIGHT_MAX && !self.stop.load(Ordering::Relaxed) {
            self.pump(PATIENCE)?;
        }
        let Some(due) = since_ns.checked_div(self.trial.speed.into()).map(Duration::from_nanos)
        else {
            return Ok(());
        };
        while let Some(rest) = due.checked_sub(self.begun.elapsed())
            && !rest.is_zero()
            && !self.stop.load(Ordering::Relaxed)
        {
            self.pump(rest.min(PATIENCE))?;
        }
        Ok(())
    }

    /// Processes responses, waits for more up to `patience`, and drops queries that took too long.
    fn pump(&mut self, patience: Duration) -> Result<(), Gone> {
        if self.core.is_gone() {
            return Err(Gone);
        }
        let mut patience = patience;
        while let Some(outcome) = self.core.replayer.receive(patience) {
            if let Some(pair) = self.pairs.outcome(outcome) {
                self.tally.compare(&pair, self.trial.hit_us);
            }
            patience = Duration::ZERO;
        }
        let now = Instant::now();
        if now >= self.expire_due {
            self.expire_due = now + PATIENCE;
            // In a live copy, time passes without messages too.
            let silence = if self.is_live { now - self.last_came } else { Duration::ZERO };
            let silence_ns = i64::try_from(silence.as_nanos()).unwrap_or(i64::MAX);
            self.expire(Some(self.last_ns.saturating_add(silence_ns)), now);
        }
        Ok(())
    }

    fn expire(&mut self, copy_ns: Option<i64>, now: Instant) {
        let lost = self.pairs.expire(copy_ns, now, self.our_wait());
        self.tally.unanswered_theirs += lost.theirs;
        self.tally.unanswered_ours += lost.ours;
    }

    /// How long larder's response may take.
    fn our_wait(&self) -> Duration {
        Duration::from_millis(self.options.settings.query_ms_max.into()) + SLACK
    }

    /// Waits for the remaining responses, and counts the rest as lost.
    fn finish(&mut self) {
        let end = Instant::now() + self.our_wait();
        while self.pairs.in_flight() > 0 && Instant::now() < end {
            if self.pump(PATIENCE).is_err() {
                break;
            }
        }
        self.expire(None, Instant::now());
        // The core publishes its last counters within this time.
        thread::sleep(Duration::from_millis(2 * metrics::PUBLISH_MS));
    }

    fn is_line_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.is_live && now >= self.line_due;
        if is_due {
            self.line_due = now + self.trial.every;
        }
        is_due
    }

    fn report(&self, copy: &CopyCounts) -> Report {
        let mut counts = self.core.published.counts.sum();
        if let Some(before) = &self.before {
            counts.subtract(before);
        }
        let copied_ns = self.last_ns.saturating_sub(self.first_ns.unwrap_or(self.last_ns));
        let forwards = &self.options.forwards;
        Report {
            resolvers: self.trial.resolvers.clone(),
            from: self.trial.from.to_string(),
            upstreams: forwards.iter().flat_map(|it| &it.upstreams).map(name_of).collect(),
            is_live: self.is_live,
            took: self.begun.elapsed(),
            copied: Duration::from_nanos(u64::try_from(copied_ns).unwrap_or(0)),
            hit_us: self.trial.hit_us,
            copy: *copy,
            tally: self.tally.clone(),
            counts,
        }
    }
}

/// The name of an upstream.
fn name_of(upstream: &Upstream) -> String {
    match upstream {
        Upstream::Server(address) => address.to_string(),
        Upstream::Backend(_) => "an encrypted upstream".to_owned(),
    }
}
