//! Works and rounds: each contestant is queried once a round, in rotated order, so that a busy moment of the machine
//! hits all of them.
//!
//! For each work all contestants are started again, given what they are to hold, measured in rounds, and ended. The
//! first round of works that ask again and again warms up and is thrown away. Nobody else runs while one is asked: a
//! server without clients sleeps.
//!
//! life of a work   leaves by
//! starting         each responds, or is left out
//! rounds           all have counted: figures; a stop: nothing
//! counting calls   if asked for, in a run that is not timed

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use larder_io::cores::pin_to_core;
use larder_io::netns::set_congestion_control;

use super::body::{Resource, Way};
use super::calls::Counting;
use super::ceiling::{Ceiling, Means};
use super::load::{Load, Target};
use super::plan::{Entry, Error, Event, Figures, Kind, Measured, Plan, Work};
use super::serve::serve;
use super::server::{Server, Setup};
use super::testbed::{PORTS_FROM, Span, Testbed, listening};
use crate::net::host::{at_port, run_on};
use crate::process::{Running, Usage};

/// Longest that a server may take for what it is to hold.
const FILL_MAX: Duration = Duration::from_secs(60);
/// Longest that a server may take for the question that asks whether it is there.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Bytes of first responses that are compared in the round that warms up: some of the longest, all of the others.
const COMPARED_BYTES: u64 = 1 << 30;
/// And in every other round, which must not wait for it.
const COMPARED_BYTES_LATER: u64 = 128 << 20;
/// How connections are controlled, the first that can be had: a machine's own way may pace what it sends (`bbr`), and
/// over loopback that is most of the cost.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];
/// How long system calls are counted.
const CALLS_FOR: Duration = Duration::from_secs(1);
/// Measures works. Ends early, with what is complete, when `stop` is set; servers are ended on every path out.
pub fn run(
    servers: &[Server],
    works: &[Work],
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    report: impl FnMut(Event) + Send,
) -> Result<(), Error> {
    let begin = || {
        let had = CONGESTION_CONTROLS.iter().find(|it| set_congestion_control(it).is_ok());
        let control = had.copied().unwrap_or("the machine's");
        let testbed = Testbed::new(plan, stop)?;
        let machine = format!("{}; congestion control {control}", testbed.machine());
        Ok((Contest { servers, plan, stop, testbed, number: 0 }, machine))
    };
    crate::servers::run(works, stop, report, begin, |contest, work, report| {
        contest.measure(work, report)
    })
}

/// A run.
struct Contest<'a> {
    servers: &'a [Server],
    plan: &'a Plan,
    stop: &'a AtomicBool,
    testbed: Testbed<'a>,
    /// The last number of a resource that is not cached.
    number: u64,
}

/// A contestant that is measured.
struct Contestant {
    running: Running,
    target: Target,
    entry: Entry,
}

impl Contest<'_> {
    /// A resource that is not cached.
    fn fresh(&mut self, work: &Work) -> Resource {
        self.number += 1;
        let takes_ms = if work.kind == Kind::Busy { self.plan.takes.as_millis() as u64 } else { 0 };
        Resource { way: Way::Size, bytes: work.bytes, number: self.number, takes_ms }
    }

    /// Measures one work; `None` where it was stopped.
    fn measure(
        &mut self,
        work: &Work,
        report: &mut impl FnMut(Event),
    ) -> Result<Option<Measured>, Error> {
        let mut taking = self.start(work, report)?;
        // What is asked once has nothing to warm up.
        let first = usize::from(work.kind == Kind::Busy);
        for round in first..=self.plan.rounds {
            for turn in 0..taking.len() {
                let contestant = (turn + round) % taking.len();
                let contestant = &mut taking[contestant];
                let name = contestant.entry.name;
                report(Event::Progress(format!("{}: round {round}, {name}", work.name())));
                match work.kind {
                    Kind::Busy => self.crowd(work, contestant)?,
                    _ => self.request(contestant, round > 0)?,
                }
                if self.testbed.is_stopped() {
                    return Ok(None);
                }
            }
        }
        if self.plan.strace && work.kind != Kind::Busy {
            for contestant in taking.iter_mut().filter(|contestant| !contestant.entry.is_limit) {
                let name = contestant.entry.name;
                report(Event::Progress(format!("{}: system calls, {name}", work.name())));
                self.count_calls(contestant)?;
            }
        }
        let entries = taking.into_iter().map(|contestant| contestant.entry).collect();
        Ok((!self.testbed.is_stopped()).then(|| Measured {
            work: *work,
            plan: self.plan.clone(),
            entries,
        }))
    }

    /// Starts all that can take part, and fills their caches.
    fn start(
        &mut self,
        work: &Work,
        report: &mut impl FnMut(Event),
    ) -> Result<Vec<Contestant>, Error> {
        let mut taking = Vec::new();
        let mut port = PORTS_FROM;
        let resource = self.fresh(work);
        for server in self.servers {
            port += 2;
            let setup = Setup {
                listen: at_port(port),
                second: at_port(port + 1),
                origin: self.testbed.origin.address,
                kind: work.kind,
                resource,
                cores: self.testbed.cores.server.len(),
                folder: &self.testbed.folder.0,
            };
            let launch = server.launch(&setup);
            report(Event::Progress(format!("{}: {} starts", work.name(), server.name)));
            run_on(&self.testbed.cores.server)?;
            let started = server.start(&setup);
            run_on(&self.testbed.cores.load)?;
            let started = started.and_then(|mut running| {
                let probe = Resource { way: Way::Size, bytes: 1, number: 0, takes_ms: 0 };
                let request = |address| Target::of(address, probe).request_once(ANSWER_MAX);
                running.wait_until(self.stop, request)?;
                if let Some(fill) = &launch.fill {
                    fill.request_once(FILL_MAX).map_err(|reason| format!("filling: {reason}"))?;
                }
                Ok(running)
            });
            match started {
                Ok(running) => {
                    let target = launch.target.clone();
                    report(Event::SetUp(server.name, launch.processes, launch.configuration));
                    taking.push(Contestant::new(server.name, running, target, false));
                }
                Err(reason) => report(Event::Skipped(server.name, reason)),
            }
        }
        if work.kind == Kind::Hits {
            for &means in Means::of_bytes(work.bytes) {
                port += 2;
                taking.push(self.limit(means, resource, at_port(port))?);
            }
        }
        Ok(taking)
    }

    /// Starts a limit, a thread a core.
    fn limit(&self, means: Means, resource: Resource, at: SocketAddr) -> Result<Contestant, Error> {
        let bodies = (self.testbed.cores.server.iter())
            .map(|&core| {
                let (listener, mut ceiling) = (listening(at)?, Ceiling::new(means, resource)?);
                Ok(move |stop: &AtomicBool| {
                    pin_to_core(core)?;
                    serve(&listener, &mut ceiling, stop)
                })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let running = Running::threads(at, bodies)?;
        Ok(Contestant::new(means.name(), running, Target::of(at, resource), true))
    }

    /// One round of one contestant.
    fn request(&self, contestant: &mut Contestant, counts: bool) -> Result<(), Error> {
        let before = self.testbed.origin.requests.all();
        let compared = if counts { COMPARED_BYTES_LATER } else { COMPARED_BYTES };
        let Contestant { running, target, .. } = &*contestant;
        let (load, span) = self.testbed.counted(running, target, compared)?;
        contestant.note(&load, &span.used);
        if counts {
            let figures = &mut contestant.entry.figures;
            figures
                .fetches
                .push((self.testbed.origin.requests.all().saturating_sub(before)) as f64);
            figures.p50_us.push(load.latency.percentile(0.5) as f64 / 1e3);
            figures.p99_us.push(load.latency.percentile(0.99) as f64 / 1e3);
            let bytes = contestant.target.resource.bytes;
            figures.add(&load, bytes, &span, self.testbed.cores.server.len());
        }
        Ok(())
    }

    /// One round of one contestant, with a resource that is not cached.
    fn crowd(&mut self, work: &Work, contestant: &mut Contestant) -> Result<(), Error> {
        let resource = Resource { way: Way::Slow, ..self.fresh(work) };
        let target = Target { path: resource.path(), resource, ..contestant.target.clone() };
        let (mut crowd, span) = self.testbed.crowd(&contestant.running, &target)?;
        contestant.note(&crowd.load, &span.used);
        let figures = &mut contestant.entry.figures;
        let fetches = self.testbed.origin.requests.of(&target.path);
        figures.fetches.push(fetches.count as f64);
        crowd.first.sort();
        if let (Some(first_at), Some(most)) = (fetches.first_at, crowd.first.last()) {
            let ms = |at: &Instant| at.saturating_duration_since(first_at).as_secs_f64() * 1e3;
            figures.first_ms.push(ms(&crowd.first[(crowd.first.len() - 1) / 2]));
            figures.first_ms_most.push(ms(most));
        }
        if let Some(half) = crowd.last.len().checked_sub(1).map(|last| crowd.last[last / 2]) {
            figures.last_s.push(half.as_secs_f64());
        }
        figures.add(&crowd.load, work.bytes, &span, self.testbed.cores.server.len());
        Ok(())
    }

    /// Asks while system calls are counted.
    fn count_calls(&self, contestant: &mut Contestant) -> Result<(), Error> {
        let Some(counting) = Counting::begin(&contestant.running, &self.testbed.folder.0) else {
            return Ok(());
        };
        let load = self.testbed.uncounted(&contestant.target, CALLS_FOR)?;
        // Parts of them too: a long one takes a traced server longer than this.
        let requests = load.all_bytes as f64 / contestant.target.resource.bytes.max(1) as f64;
        contestant.entry.figures.calls = counting.end(requests);
        Ok(())
    }
}

impl Contestant {
    fn new(name: &'static str, running: Running, target: Target, is_limit: bool) -> Contestant {
        Contestant { running, target, entry: Entry { name, is_limit, figures: Figures::default() } }
    }

    /// Keeps what is of interest in every round.
    fn note(&mut self, load: &Load, used: &Usage) {
        let figures = &mut self.entry.figures;
        figures.wrong += load.wrong;
        figures.failed += load.failed;
        figures.first_fault = figures.first_fault.take().or_else(|| load.first_fault.clone());
        figures.threads = figures.threads.max(used.threads);
        figures.peak_bytes = figures.peak_bytes.max(used.peak_bytes);
    }
}

impl Figures {
    /// Adds a round with bodies of `bytes` bytes. Parts of responses count: long ones rarely end in time.
    fn add(&mut self, load: &Load, bytes: u64, span: &Span, cores: usize) {
        let (ran_s, seconds) = (span.used.ran_ns as f64 / 1e9, span.seconds.max(1e-9));
        let (gb, responses) = (load.bytes as f64 / 1e9, load.bytes as f64 / bytes.max(1) as f64);
        // Where nothing came there is no cost of it.
        self.cpu_us_per_request.push(ran_s * 1e6 / responses);
        self.cpu_s_per_gb.push(ran_s / gb);
        self.requests_per_s.push(responses / seconds);
        self.gb_per_s.push(gb / seconds);
        self.busy.push(ran_s / seconds / cores as f64);
        self.clients_busy.push(load.ran_ns / 1e9 / seconds / cores as f64);
        self.switches_per_s.push(span.used.switches as f64 / seconds);
    }
}

#[cfg(test)]
mod tests;
