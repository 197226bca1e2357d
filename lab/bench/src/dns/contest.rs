//! Works and rounds: each contestant is queried once a round, in rotated order, so that a busy moment of the machine
//! hits all of them.
//!
//! For each work all contestants are started again, filled with the hot names, measured in rounds, then asked at
//! half the rate of the slowest for as many rounds, to see how long clients wait; and ended. The first round
//! warms up and is thrown away. No other contestant runs meanwhile: a server without queries sleeps.
//!
//! Answers a second of processor time count what a server's threads ran while it was asked, the kernel's work for
//! its sockets with it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_io::cores::pin_to_core;
use larder_io::udp::{Sharing, UdpSocket};

use super::plan::{Entry, Error, Event, Figures, Measured, Plan, Work};
use super::query;
use super::server::{Launch, Server, Setup};
use super::testbed::{BATCH, PORTS_FROM, Target, Testbed, bound, query_once};
use crate::net::echo::echo;
use crate::net::host::{at_port, run_on};
use crate::net::relay::relay;
use crate::process::Running;
use crate::sample::Median;

/// Names that a server must be able to take in a second, for the time that filling may take.
const FILL_PER_S_MIN: u64 = 1000;
/// Names that a cache has room for where the load queries new names.
const FRESH_ENTRIES: u64 = 8_000_000;

/// Measures works. Ends early, with what is complete, when `stop` is set; servers are ended on every path out.
pub fn run(
    servers: &[Server],
    works: &[Work],
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    report: impl FnMut(Event) + Send,
) -> Result<(), Error> {
    let begin = || {
        let testbed = Testbed::new(plan, stop)?;
        let machine = testbed.machine();
        Ok((Contest { servers, plan, stop, testbed }, machine))
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
}

/// A contestant that is measured.
struct Contestant {
    running: Running,
    check: fn(u64, &[u8]) -> bool,
    entry: Entry,
}

impl Contest<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Measures one work; `None` where it was stopped.
    fn measure(
        &self,
        work: &Work,
        report: &mut impl FnMut(Event),
    ) -> Result<Option<Measured>, Error> {
        let mut taking = self.start(work, report)?;
        if work.hit_percent > 0 {
            for contestant in &mut taking {
                report(Event::Progress(format!(
                    "{}: {} takes the names",
                    work.name, contestant.entry.name
                )));
                self.fill(work, contestant)?;
            }
        }
        for round in 0..=self.plan.rounds {
            for turn in 0..taking.len() {
                let contestant = (turn + round) % taking.len();
                report(Event::Progress(format!(
                    "{}: round {round}, {}",
                    work.name, taking[contestant].entry.name
                )));
                self.query(work, &mut taking[contestant], round > 0)?;
            }
            if self.is_stopped() {
                return Ok(None);
            }
        }
        let both = limit_ratios(work, &mut taking);
        let rate_per_s = if self.plan.latency { Self::rate(&taking) } else { 0 };
        for round in 0..=self.plan.rounds {
            if rate_per_s == 0 || self.is_stopped() {
                break;
            }
            for turn in 0..taking.len() {
                let contestant = (turn + round) % taking.len();
                report(Event::Progress(format!(
                    "{}: waiting, round {round}, {}",
                    work.name, taking[contestant].entry.name
                )));
                self.wait(work, &mut taking[contestant], rate_per_s, round > 0)?;
            }
        }
        let entries = taking.into_iter().map(|contestant| contestant.entry).chain(both).collect();
        let (cores, rounds) = (self.testbed.cores.server.len(), self.plan.rounds);
        let work = work.clone();
        Ok((!self.is_stopped()).then_some(Measured { work, cores, rounds, rate_per_s, entries }))
    }

    /// Starts all that can take part.
    fn start(&self, work: &Work, report: &mut impl FnMut(Event)) -> Result<Vec<Contestant>, Error> {
        let hot = u64::from(work.hot);
        let entries = if work.hit_percent < 100 { hot + FRESH_ENTRIES } else { 2 * hot + 10_000 };
        let signer = self.plan.upstream.signer.as_deref();
        let check = if signer.is_some() { query::is_validated } else { query::is_answer };
        let mut taking = Vec::new();
        let mut port = PORTS_FROM;
        for server in self.servers {
            port += 1;
            let setup = Setup {
                listen: at_port(port),
                upstream: (!self.plan.hierarchy).then_some(self.testbed.upstream.address),
                anchor: signer.map(|signer| signer.anchor()),
                cores: self.testbed.cores.server.len(),
                entries,
                folder: &self.testbed.folder.0,
            };
            run_on(&self.testbed.cores.server)?;
            let started = server.start(&setup);
            run_on(&self.testbed.cores.load)?;
            let started = started.and_then(|mut running| {
                let number = self.testbed.fresh();
                running.wait_until(self.stop, |address| query_once(address, number))?;
                Ok(running)
            });
            match started {
                Ok(running) => {
                    if let Some(launch) = server.launch(&setup) {
                        let Launch { arguments, configuration } = launch;
                        report(Event::SetUp(server.name, vec![arguments], configuration));
                    }
                    taking.push(Contestant::new(server.name, running, check));
                }
                Err(reason) => report(Event::Skipped(server.name, reason)),
            }
        }
        if work.hit_percent > 0 {
            taking.push(self.limit("echo", port + 1, query::is_echo, |socket, _, stop| {
                let longer = |query| query + query::ANSWER_ADDS_BYTES;
                echo(socket, BATCH, longer, stop).map(drop)
            })?);
        }
        if work.hit_percent < 100 {
            taking.push(self.limit(
                "relay",
                port + 2,
                query::is_answer,
                |socket, upstream, stop| relay(socket, upstream, BATCH, stop).map(drop),
            )?);
        }
        Ok(taking)
    }

    /// Starts a limit, a thread a core.
    fn limit(
        &self,
        name: &'static str,
        port: u16,
        check: fn(u64, &[u8]) -> bool,
        body: fn(&UdpSocket, SocketAddr, &AtomicBool) -> io::Result<()>,
    ) -> Result<Contestant, Error> {
        let (address, upstream) = (at_port(port), self.testbed.upstream.address);
        let bodies = (self.testbed.cores.server.iter())
            .map(|&core| {
                let socket = bound(address, Sharing::Join)?;
                Ok(move |stop: &AtomicBool| {
                    pin_to_core(core)?;
                    body(&socket, upstream, stop)
                })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let running = Running::threads(address, bodies)?;
        let mut contestant = Contestant::new(name, running, check);
        contestant.entry.is_limit = true;
        Ok(contestant)
    }

    /// Asks every hot name twice: the second time answers those that were lost the first time, and meets the
    /// others in the cache.
    fn fill(&self, work: &Work, contestant: &mut Contestant) -> Result<(), Error> {
        if contestant.entry.is_limit {
            return Ok(());
        }
        let longest = Duration::from_secs(20 + u64::from(work.hot) / FILL_PER_S_MIN);
        for _ in 0..2 {
            self.testbed.each(work, &contestant.target(None), longest)?;
        }
        contestant.entry.figures.filled_bytes = contestant.running.resident_bytes();
        Ok(())
    }

    /// One round of one contestant, as fast as answers come.
    fn query(&self, work: &Work, contestant: &mut Contestant, counts: bool) -> Result<(), Error> {
        let target = contestant.target(None);
        self.testbed.mixed(work, &target, self.plan.measured / 4)?;
        let ran = contestant.running.ran_ns().unwrap_or(0);
        let upstream_queries = self.testbed.upstream.queries();
        let (load, misses) = self.testbed.mixed(work, &target, self.plan.measured)?;
        let upstream_queries = self.testbed.upstream.queries() - upstream_queries;
        let ran_s = (contestant.running.ran_ns().unwrap_or(0).saturating_sub(ran)) as f64 / 1e9;
        let figures = &mut contestant.entry.figures;
        figures.wrong += load.wrong;
        figures.lost += load.lost;
        if counts {
            figures.per_cpu_s.push(load.answers as f64 / ran_s.max(1e-9));
            figures.per_s.push(load.answers_per_s());
            figures
                .busy
                .push(ran_s / load.seconds.max(1e-9) / self.testbed.cores.server.len() as f64);
            let per = if misses > 0 { misses } else { load.sent };
            figures.upstream.push(upstream_queries as f64 / per.max(1) as f64);
        }
        Ok(())
    }

    /// One round of one contestant, by the clock.
    fn wait(
        &self,
        work: &Work,
        contestant: &mut Contestant,
        rate_per_s: u32,
        counts: bool,
    ) -> Result<(), Error> {
        let target = contestant.target(Some(rate_per_s));
        let (load, _) = self.testbed.mixed(work, &target, self.plan.measured)?;
        let figures = &mut contestant.entry.figures;
        figures.wrong += load.wrong;
        figures.lost += load.lost;
        if counts {
            for (figures, share) in figures.latency_us.iter_mut().zip([0.5, 0.99, 0.999]) {
                figures.push(load.latency.percentile(share) as f64 / 1e3);
            }
        }
        Ok(())
    }

    /// Half of what the slowest does by the clock.
    fn rate(taking: &[Contestant]) -> u32 {
        let rates = taking.iter().map(|one| Median::of(&one.entry.figures.per_s).value);
        // A contestant that never responded sets no rate.
        let rates = rates.filter(|rate| *rate > 0.0);
        (rates.fold(f64::INFINITY, f64::min) / 2.0).clamp(1.0, 1e7) as u32
    }
}

impl Contestant {
    fn new(name: &'static str, running: Running, check: fn(u64, &[u8]) -> bool) -> Contestant {
        let empty_bytes = running.resident_bytes();
        let figures = Figures { empty_bytes, ..Figures::default() };
        Contestant { running, check, entry: Entry { name, is_limit: false, figures } }
    }

    fn target(&self, rate_per_s: Option<u32>) -> Target {
        Target { address: self.running.address, check: self.check, rate_per_s }
    }
}

/// What everybody did of what the limits allow, round by round. A server that answers a share r of the questions
/// at the cost of an echo, and the others at that of a relay, takes r / echo + (1 - r) / relay seconds a question;
/// for a mix that is an entry of its own.
fn limit_ratios(work: &Work, taking: &mut [Contestant]) -> Option<Entry> {
    let of = |name| {
        let limit = taking.iter().find(|one| one.entry.is_limit && one.entry.name == name);
        limit.map(|limit| limit.entry.figures.per_cpu_s.clone())
    };
    let (echo, relay) = (of("echo"), of("relay"));
    let seconds = |share: f64, rates: &Option<Vec<f64>>, round: usize| {
        rates.as_ref().and_then(|rates| rates.get(round)).map_or(0.0, |rate| share / rate)
    };
    let share = work.hit_share();
    let rounds = taking.first().map_or(0, |one| one.entry.figures.per_cpu_s.len());
    let limit: Vec<f64> = (0..rounds)
        .map(|round| 1.0 / (seconds(share, &echo, round) + seconds(1.0 - share, &relay, round)))
        .collect();
    for Contestant { entry: Entry { figures, is_limit, .. }, .. } in taking {
        if !*is_limit {
            let pairs = figures.per_cpu_s.iter().zip(&limit);
            figures.of_limit = pairs.map(|(own, limit)| own / limit).collect();
        }
    }
    let figures = Figures { per_cpu_s: limit, ..Figures::default() };
    let both = Entry { name: "echo + relay", is_limit: true, figures };
    (echo.is_some() && relay.is_some()).then_some(both)
}

#[cfg(test)]
mod tests;
