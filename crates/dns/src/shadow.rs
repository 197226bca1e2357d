//! A trial without risk: larder answers the questions of a running resolver to itself, and the
//! answers are compared.
//!
//! ```text
//! the resolver's traffic -> copy: a capture, dnstap -> pairs: question, their answer --+
//!                                                        |                             +-> tally -> report
//!                                                        +-> sender -> a core: our answer
//!                                                                      +-> upstreams
//! ```
//!
//! Nobody is served: there is no listening socket, and what the core answers goes into the
//! comparison and nowhere else. It asks its upstreams, and that is all that leaves the program. The
//! core is that of the server, with its policy, its cache and its ways to ask.
//!
//! | module | duty |
//! |---|---|
//! | `ask` | questions to the core |
//! | `copy` | messages out of captures and dnstap |
//! | `pairs` | questions that wait for both answers |
//! | `known` | differences that are expected |
//! | `tally` | what was found |
//! | `spread` | percentiles in a fixed room |
//! | `report` | text and JSON |
//!
//! The calling thread reads the copy and compares; the core has a thread of its own, so its times
//! are not those of the comparison. A copy that grows is taken as it comes, and where too much is
//! open questions are passed over; one that lies in a file waits for the core, and for the clock
//! where a speed is given.
//!
//! Bounds: those of `pairs`, `copy` and `tally`; beside them the cache and what a core may have in
//! flight. Cost: some microseconds a question, beside the answer itself.

mod ask;
mod copy;
mod known;
mod pairs;
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

use self::ask::{Asker, Gone};
use self::copy::{Copied, Kind, Polled, Seen, Whose};
use self::pairs::{Noted, Pairs};
use crate::backend::Backends;
use crate::clock::Clock;
use crate::core::Core;
use crate::driver::{Driver, Parts};
use crate::metrics::{self, Shared};
use crate::reload::Policies;
use crate::server::{self, Options, ServeError};
use crate::side_query;
use crate::zones::{Upstream, Zones};
use larder_serve::lifecycle::{Lifecycle, Stage};

pub use self::copy::{Counts as CopyCounts, From};
pub use self::report::Report;
pub use self::spread::SignedSpread;
pub use self::tally::{Different, Example, Tally};

/// Questions of a file that wait for our answer at one time.
const IN_FLIGHT_MAX: usize = 1_024;

/// How long an answer may take beyond what a core takes to give up.
const SLACK: Duration = Duration::from_secs(1);

/// The longest wait that the wish to stop is not looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// What is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// Addresses of the running resolver; one that is unspecified stands for all with its port.
    pub resolvers: Vec<SocketAddr>,
    /// The copy of its traffic.
    pub from: From,
    /// Addresses that larder asks from and no client does: what comes from there is left out.
    pub own: Vec<IpAddr>,
    /// How many times as fast as it was taken a copy in a file is replayed; 0: as fast as can be.
    pub speed: u32,
    /// Questions of so much of the copy's time at its beginning are answered and not counted.
    pub warm_up: Duration,
    /// Below this the resolver is taken to have answered from its cache, where the copy does not
    /// tell, microseconds.
    pub hit_us: u64,
    /// How often a line is told while the copy grows.
    pub every: Duration,
}

/// Runs a trial to the end of the copy, or until `stop` is set. Of `options`, what concerns
/// clients' sockets and the operation is not used, and there is one core. `tell` is given a line
/// now and then.
pub fn shadow(
    options: &Options,
    trial: &Trial,
    stop: &Arc<AtomicBool>,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, ServeError> {
    let whose = Whose { resolvers: trial.resolvers.clone(), own: trial.own.clone() };
    let mut copied = Copied::open(&trial.from, whose, stop).map_err(ServeError::Operation)?;
    // They end after the core.
    let _backends = server::Running::start(&options.backends)?;
    let core = Running::start(options)?;
    let mut work = Work::new(options, trial, stop, core, copied.is_live);
    let mut ended = Ok(());
    loop {
        let mut each = |seen: &Seen<'_>| {
            if ended.is_ok() {
                ended = work.take(seen);
            }
        };
        let polled = copied.poll(stop, &mut each).map_err(ServeError::Operation)?;
        if ended.is_err() || work.pump(Duration::ZERO).is_err() {
            return Err(work.core.end().err().unwrap_or_else(|| {
                ServeError::Operation("the core ended before the trial".to_owned())
            }));
        }
        if polled == Polled::End {
            break;
        }
        if work.is_line_due() {
            tell(&work.report(&copied.counts).line());
        }
    }
    work.finish();
    let report = work.report(&copied.counts);
    work.core.end()?;
    Ok(report)
}

/// A core that runs, and the way to ask it.
struct Running {
    asker: Asker,
    published: Arc<Shared>,
    lifecycle: Arc<Lifecycle>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    fn start(options: &Options) -> Result<Running, ServeError> {
        let system = |what| move |error| ServeError::System(what, error);
        let mut key = [0; 16];
        random::fill(&mut key).map_err(system("random numbers"))?;
        let (policies, _) =
            Policies::new(options.policy.clone(), None, &key).map_err(ServeError::Policy)?;
        let settings = Arc::new(options.settings.clone());
        let cache = Cache::builder()
            .budget(options.cache_bytes)
            .readers_max(1)
            .stale(Seconds(settings.stale_s))
            .build()
            .map_err(ServeError::Cache)?;
        let zones = Zones::new(&options.forwards).map_err(|error| {
            ServeError::Forward(format!("these upstreams cannot be used: {error:?}"))
        })?;
        let (policy, clock) = (policies.follower(), Clock::start());
        let core =
            Core::new(settings.clone(), &cache, zones, clock.now()).map_err(ServeError::Cache)?;
        let waker = Arc::new(Waker::new().map_err(system("eventfd"))?);
        let (published, lifecycle) = (Arc::new(Shared::new(1)), Arc::new(Lifecycle::new()));
        let queries_max = settings.limits.questions_max as usize;
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
        let asker = Asker::new(sender);
        Ok(Running { asker, published, lifecycle, waker, thread: Some(thread) })
    }

    /// The core's loop has ended.
    fn is_gone(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it, and tells how it ended.
    fn end(&mut self) -> Result<(), ServeError> {
        self.lifecycle.advance(Stage::Ends);
        // Who cannot be woken looks around within a second.
        let _ = self.waker.wake();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        match thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(ServeError::System("answering", error)),
            // What it said was printed.
            Err(_) => Err(ServeError::Operation("the core failed".to_owned())),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Whoever wanted to know how it ends has asked.
        let _ = self.end();
    }
}

/// A trial on its way.
struct Work<'a> {
    options: &'a Options,
    trial: &'a Trial,
    stop: &'a AtomicBool,
    core: Running,
    is_live: bool,
    begun: Instant,
    pairs: Pairs,
    tally: Tally,
    /// The first and the last time in the copy, and when the last came.
    first_ns: Option<i64>,
    last_ns: i64,
    last_came: Instant,
    /// What the core had counted when the warm-up ended.
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

    /// Takes a message of the copy.
    fn take(&mut self, seen: &Seen<'_>) -> Result<(), Gone> {
        let first_ns = *self.first_ns.get_or_insert(seen.at_ns);
        let since_ns = u64::try_from(seen.at_ns.saturating_sub(first_ns)).unwrap_or(0);
        self.wait_for(since_ns)?;
        (self.last_ns, self.last_came) = (seen.at_ns.max(self.last_ns), Instant::now());
        match seen.kind {
            Kind::ClientQuery => return self.question(seen, Duration::from_nanos(since_ns)),
            Kind::ClientResponse => match self.pairs.response(seen) {
                Ok(Some(pair)) => self.tally.compare(&pair, self.trial.hit_us),
                Ok(None) => {}
                Err(()) => self.tally.unasked += 1,
            },
            Kind::Upstream { is_query } => {
                let is_counted = self.before.is_some();
                self.tally.upstream_theirs += u64::from(is_query && is_counted);
                self.pairs.upstream(seen);
            }
        }
        Ok(())
    }

    fn question(&mut self, seen: &Seen<'_>, since: Duration) -> Result<(), Gone> {
        let is_counted = since >= self.trial.warm_up;
        if is_counted && self.before.is_none() {
            self.before = Some(self.core.published.sum());
        }
        let questions =
            if is_counted { &mut self.tally.questions } else { &mut self.tally.warm_up };
        match self.pairs.question(seen, Instant::now(), is_counted) {
            Noted::Ask(asked) => {
                *questions += 1;
                self.core.asker.ask(asked, || self.core.is_gone())
            }
            Noted::Full => {
                *questions += 1;
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

    /// Waits with a message of a file for its time, and for the core. A copy that grows comes in
    /// its own time.
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

    /// Takes what was answered, waits for that so long, and gives up what took too long.
    fn pump(&mut self, patience: Duration) -> Result<(), Gone> {
        if self.core.is_gone() {
            return Err(Gone);
        }
        let mut patience = patience;
        while let Some(told) = self.core.asker.told(patience) {
            if let Some(pair) = self.pairs.told(told) {
                self.tally.compare(&pair, self.trial.hit_us);
            }
            patience = Duration::ZERO;
        }
        let now = Instant::now();
        if now >= self.expire_due {
            self.expire_due = now + PATIENCE;
            // Where nothing comes time goes on all the same, if it is now.
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

    /// How long our answer may take.
    fn our_wait(&self) -> Duration {
        Duration::from_millis(self.options.settings.question_ms_max.into()) + SLACK
    }

    /// Waits for the answers that are still to come, and counts the rest as lost.
    fn finish(&mut self) {
        let end = Instant::now() + self.our_wait();
        while self.pairs.in_flight() > 0 && Instant::now() < end {
            if self.pump(PATIENCE).is_err() {
                break;
            }
        }
        self.expire(None, Instant::now());
        // What the core counted last is published within this time.
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
        let mut counts = self.core.published.sum();
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

/// What an upstream is called.
fn name_of(upstream: &Upstream) -> String {
    match upstream {
        Upstream::Server(address) => address.to_string(),
        Upstream::Backend(_) => "an encrypted upstream".to_owned(),
    }
}
