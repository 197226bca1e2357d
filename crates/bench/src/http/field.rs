//! Works and rounds: everybody is asked once a round, in rotated order, so that a busy moment of the machine hits
//! all of them.
//!
//! For each work all contestants are started anew, given what they are to hold, measured in rounds, and ended. The
//! first round of works that ask again and again warms up and is thrown away. Nobody else runs while one is asked: a
//! server without clients sleeps.
//!
//! life of a work   leaves by
//! starting         everybody answers, or is left out
//! rounds           all have counted: figures; a stop: nothing
//! counting calls   if asked for, in a run that is not timed

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use larder_io::cores::pin_to_core;
use larder_io::netns::enter_private_network;
use larder_io::tcp::{ListenOptions, listen};

use super::body::{Resource, Way};
use super::busy;
use super::calls::Counting;
use super::ceiling::{Ceiling, Means};
use super::load::{Load, Pace, Target, load};
use super::origin::{Asked, Origin};
use super::plan::{Entry, Error, Event, Figures, Kind, Measured, Plan, Work};
use super::serve::serve;
use super::server::{Server, Setup};
use crate::net::place::{Cores, Folder, at_port, run_on};
use crate::process::{Running, Usage};

/// Ports of the run's own network; the origin has the first.
const PORTS_FROM: u16 = 8080;
/// Longest that a server may take for what it is to hold.
const FILL_MAX: Duration = Duration::from_secs(60);
/// Longest that a server may take for the question that asks whether it is there.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Longest that it takes until the first responses are compared.
const CHECK_MAX: Duration = Duration::from_secs(60);
/// Beyond the origin's time, what clients of a busy resource may wait.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// How long system calls are counted.
const CALLS_FOR: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(10);

/// Measures works. Ends early, with what is complete, when `stop` is set; servers are ended on every path out.
pub fn run(
    servers: &[Server],
    works: &[Work],
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    mut tell: impl FnMut(Event) + Send,
) -> Result<(), Error> {
    // On a thread of its own, which takes its network, its cores and its children with it.
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            enter_private_network().map_err(Error::NotPermitted)?;
            let mut field = Field::new(servers, plan, stop)?;
            tell(Event::Machine(field.machine()));
            for work in works {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if let Some(measured) = field.measure(work, &mut tell)? {
                    tell(Event::Measured(measured));
                }
            }
            Ok(())
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A run.
struct Field<'a> {
    servers: &'a [Server],
    plan: &'a Plan,
    stop: &'a AtomicBool,
    folder: Folder,
    cores: Cores,
    origin: Upstream,
    /// The last number of a resource that nobody has.
    number: u64,
}

/// The origin's thread, stopped and joined when dropped.
struct Upstream {
    address: SocketAddr,
    asked: Asked,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Upstream {
    fn start(core: usize) -> io::Result<Upstream> {
        let address = at_port(PORTS_FROM);
        let listener = listening(address)?;
        let (mut origin, stop) = (Origin::default(), Arc::new(AtomicBool::new(false)));
        let (asked, own_stop) = (origin.asked.clone(), Arc::clone(&stop));
        let thread = thread::Builder::new().name("origin".to_owned()).spawn(move || {
            pin_to_core(core)?;
            serve(&listener, &mut origin, &own_stop)
        })?;
        Ok(Upstream { address, asked, stop, thread: Some(thread) })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address, &ListenOptions { reuse_port: true, backlog: 4096, ..Default::default() })
}

/// Somebody who is measured.
struct Contestant {
    running: Running,
    target: Target,
    entry: Entry,
}

/// What of a contestant was used while it was counted, and for how long.
struct Span {
    used: Usage,
    seconds: f64,
}

impl<'a> Field<'a> {
    fn new(servers: &'a [Server], plan: &'a Plan, stop: &'a AtomicBool) -> io::Result<Field<'a>> {
        let cores = Cores::split(plan.cores)?;
        let origin = Upstream::start(cores.load.last().copied().unwrap_or(0))?;
        let folder = Folder::new("http")?;
        Ok(Field { servers, plan, stop, folder, cores, origin, number: 0 })
    }

    fn machine(&self) -> String {
        let (server, load) = (self.cores.server.len(), self.cores.load.len());
        let text = format!("servers on {server} core(s), clients and origin on {load}");
        match self.cores.are_shared() {
            true => text + ", which the server has too: compare processor time",
            false => text,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A resource that nobody holds.
    fn fresh(&mut self, work: &Work) -> Resource {
        self.number += 1;
        let takes_ms = if work.kind == Kind::Busy { self.plan.takes.as_millis() as u64 } else { 0 };
        Resource { way: Way::Size, bytes: work.bytes, number: self.number, takes_ms }
    }

    /// Measures one work; `None` where it was stopped.
    fn measure(
        &mut self,
        work: &Work,
        tell: &mut impl FnMut(Event),
    ) -> Result<Option<Measured>, Error> {
        let mut taking = self.start(work, tell)?;
        // What is asked once has nothing to warm up.
        let first = usize::from(work.kind == Kind::Busy);
        for round in first..=self.plan.rounds {
            for turn in 0..taking.len() {
                let contestant = (turn + round) % taking.len();
                let contestant = &mut taking[contestant];
                let name = contestant.entry.name;
                tell(Event::Progress(format!("{}: round {round}, {name}", work.name())));
                match work.kind {
                    Kind::Busy => self.crowd(work, contestant)?,
                    _ => self.ask(contestant, round > 0)?,
                }
                if self.is_stopped() {
                    return Ok(None);
                }
            }
        }
        if self.plan.strace && work.kind != Kind::Busy {
            for contestant in taking.iter_mut().filter(|contestant| !contestant.entry.is_limit) {
                let name = contestant.entry.name;
                tell(Event::Progress(format!("{}: system calls, {name}", work.name())));
                self.count_calls(contestant)?;
            }
        }
        let entries = taking.into_iter().map(|contestant| contestant.entry).collect();
        Ok((!self.is_stopped()).then(|| Measured { work: *work, plan: self.plan.clone(), entries }))
    }

    /// Starts everybody who can take part, and gives them what they are to hold.
    fn start(
        &mut self,
        work: &Work,
        tell: &mut impl FnMut(Event),
    ) -> Result<Vec<Contestant>, Error> {
        let mut taking = Vec::new();
        let mut port = PORTS_FROM;
        let resource = self.fresh(work);
        for server in self.servers {
            port += 2;
            let setup = Setup {
                listen: at_port(port),
                second: at_port(port + 1),
                origin: self.origin.address,
                kind: work.kind,
                resource,
                cores: self.cores.server.len(),
                folder: &self.folder.0,
            };
            let launch = server.launch(&setup);
            tell(Event::Progress(format!("{}: {} starts", work.name(), server.name)));
            run_on(&self.cores.server)?;
            let started = server.start(&setup);
            run_on(&self.cores.load)?;
            let started = started.and_then(|mut running| {
                let probe = Resource { way: Way::Size, bytes: 1, number: 0, takes_ms: 0 };
                let ask = |address| Target::of(address, probe).ask_once(ANSWER_MAX);
                running.wait_until(self.stop, ask)?;
                if let Some(fill) = &launch.fill {
                    fill.ask_once(FILL_MAX).map_err(|reason| format!("filling: {reason}"))?;
                }
                Ok(running)
            });
            match started {
                Ok(running) => {
                    let target = launch.target.clone();
                    tell(Event::SetUp(server.name, launch));
                    taking.push(Contestant::new(server.name, running, target, false));
                }
                Err(reason) => tell(Event::Skipped(server.name, reason)),
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
        let bodies = (self.cores.server.iter())
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

    /// Sleeps, unless it is stopped or the load has ended.
    fn sleep(&self, pace: &Pace, until: impl Fn(Duration) -> bool) {
        let begun = Instant::now();
        while !until(begun.elapsed()) && !self.is_stopped() && !pace.is_ended() {
            thread::sleep(NAP);
        }
    }

    /// Asks from every core of the load, and does `lead` meanwhile.
    fn loaded<T>(
        &self,
        target: &Target,
        lead: impl FnOnce(&Pace) -> T,
    ) -> Result<(Load, T), Error> {
        let threads = self.cores.load.len();
        let pace = Pace::new(threads);
        let connections = self.plan.connections;
        let (loads, led) = thread::scope(|scope| {
            let threads: Vec<_> = (self.cores.load.iter().enumerate())
                .map(|(at, &core)| {
                    let own = connections / threads + usize::from(at < connections % threads);
                    let pace = &pace;
                    scope.spawn(move || {
                        pin_to_core(core)?;
                        load(target, own, pace)
                    })
                })
                .collect();
            let led = lead(&pace);
            pace.end();
            let join = |thread: thread::ScopedJoinHandle<'_, io::Result<Load>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let loads: io::Result<Vec<Load>> = threads.into_iter().map(join).collect();
            (loads, led)
        });
        let mut all = Load::default();
        loads?.iter().for_each(|load| all.merge(load));
        Ok((all, led))
    }

    /// One round of one contestant.
    fn ask(&self, contestant: &mut Contestant, counts: bool) -> Result<(), Error> {
        let (running, measured) = (&contestant.running, self.plan.measured);
        let asked = self.origin.asked.all();
        let (load, span) = self.loaded(&contestant.target, |pace| {
            self.sleep(pace, |passed| {
                passed > CHECK_MAX || (passed >= measured / 4 && pace.is_checked())
            });
            let (before, begun) = (running.usage(), Instant::now());
            pace.count();
            self.sleep(pace, |passed| passed >= measured);
            pace.end();
            let seconds = begun.elapsed().as_secs_f64();
            Span { used: used(before, running.usage()), seconds }
        })?;
        contestant.note(&load, &span.used);
        if counts {
            let figures = &mut contestant.entry.figures;
            figures.fetches.push((self.origin.asked.all().saturating_sub(asked)) as f64);
            figures.p50_us.push(load.latency.percentile_ns(0.5) as f64 / 1e3);
            figures.p99_us.push(load.latency.percentile_ns(0.99) as f64 / 1e3);
            figures.add(&load, &span, self.cores.server.len());
        }
        Ok(())
    }

    /// One round of one contestant, with a resource that nobody has.
    fn crowd(&mut self, work: &Work, contestant: &mut Contestant) -> Result<(), Error> {
        let resource = Resource { way: Way::Slow, ..self.fresh(work) };
        let target = Target { path: resource.path(), resource, ..contestant.target.clone() };
        let (mut before, mut begun) = (Usage::default(), Instant::now());
        let ready = || (before, begun) = (contestant.running.usage(), Instant::now());
        let (clients, longest) = (self.plan.clients, self.plan.takes + BUSY_MAX);
        let mut crowd = busy::ask(&target, clients, longest, self.stop, ready)?;
        let seconds = begun.elapsed().as_secs_f64();
        let span = Span { used: used(before, contestant.running.usage()), seconds };
        contestant.note(&crowd.load, &span.used);
        let figures = &mut contestant.entry.figures;
        let fetches = self.origin.asked.of(&target.path);
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
        figures.add(&crowd.load, &span, self.cores.server.len());
        Ok(())
    }

    /// Asks while system calls are counted.
    fn count_calls(&self, contestant: &mut Contestant) -> Result<(), Error> {
        let Some(counting) = Counting::begin(&contestant.running, &self.folder.0) else {
            return Ok(());
        };
        let (load, ()) = self.loaded(&contestant.target, |pace| {
            self.sleep(pace, |passed| passed >= CALLS_FOR);
        })?;
        contestant.entry.figures.calls = counting.end(load.all_responses);
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
    fn add(&mut self, load: &Load, span: &Span, cores: usize) {
        let (ran_s, seconds) = (span.used.ran_ns as f64 / 1e9, span.seconds.max(1e-9));
        let gb = load.octets as f64 / 1e9;
        // Where nothing came there is no cost of it.
        self.cpu_us_per_request.push(ran_s * 1e6 / load.responses as f64);
        self.cpu_s_per_gb.push(ran_s / gb);
        self.requests_per_s.push(load.responses as f64 / seconds);
        self.gb_per_s.push(gb / seconds);
        self.busy.push(ran_s / seconds / cores as f64);
        self.switches_per_s.push(span.used.switches as f64 / seconds);
    }
}

/// What was used between two looks; threads and memory are those of the second.
fn used(before: Usage, after: Usage) -> Usage {
    Usage {
        ran_ns: after.ran_ns.saturating_sub(before.ran_ns),
        switches: after.switches.saturating_sub(before.switches),
        ..after
    }
}

#[cfg(test)]
mod tests;
