//! Works and rounds: everybody is asked once a round, in rotated order, so that a busy moment of the machine hits
//! all of them.
//!
//! For each work all contestants are started anew, filled with the hot names, measured in rounds, then asked at
//! half the rate of the slowest for as many rounds, to see how long clients wait; and ended. The first round
//! warms up and is thrown away. Nobody else runs while one is asked: a server without questions sleeps.
//!
//! Answers a second of processor time count what a server's threads ran while it was asked, the kernel's work for
//! its sockets with it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larder_io::cores::{available_cores, pin_to_core};
use larder_io::netns::enter_private_network;
use larder_io::random::Random;
use larder_io::udp::{UdpOptions, UdpSocket};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::hierarchy::ANY;
use super::process::Running;
use super::question::{self, FRESH_FROM, Mix};
use super::server::{Launch, Server, Setup};
use super::stub::{StubCounts, StubOptions, stub};
use crate::net::SOCKET_BUFFER_BYTES;
use crate::net::echo::echo;
use crate::net::load::{Load, LoadOptions, load};
use crate::net::relay::relay;
use crate::sample::Median;

/// Messages a system call: of the generator, the limits and the upstream.
pub const BATCH: usize = 64;
/// Most questions in flight where they leave by the clock.
const IN_FLIGHT_BY_CLOCK: usize = 8192;
/// A question without an answer is given up after this.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Names that a server must be able to take in a second, for the time that filling may take.
const FILL_PER_S_MIN: u64 = 1000;
/// Names that a cache has room for where names are asked that nobody asked before.
const FRESH_ENTRIES: u64 = 8_000_000;
/// Ports of the run's own network; the upstream has the first.
const PORTS_FROM: u16 = 5300;
/// Where resolvers ask servers that they were referred to.
const DNS_PORT: u16 = 53;
/// Sockets of the generator for each core of the server: the kernel spreads clients by their ports.
const SOCKETS_A_CORE: usize = 8;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// As reports call it.
    pub name: String,
    /// Names that are asked again and again.
    pub hot: u32,
    /// Of a hundred questions, how many are for those.
    pub hit_percent: u32,
}

impl Work {
    fn hit_share(&self) -> f64 {
        f64::from(self.hit_percent) / 100.0
    }
}

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Rounds that count.
    pub rounds: usize,
    /// How long each contestant is asked in a round.
    pub measured: Duration,
    /// Cores of a server.
    pub cores: usize,
    /// Questions in flight.
    pub in_flight: usize,
    /// How the upstream behaves.
    pub upstream: StubOptions,
    /// Whether servers find their way from a root instead of asking one upstream.
    pub hierarchy: bool,
    /// Whether to measure how long clients wait.
    pub latency: bool,
}

/// What rounds gave, round by round.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Answers a second of the server's processor time.
    pub per_cpu_s: Vec<f64>,
    /// Answers a second by the clock.
    pub per_s: Vec<f64>,
    /// Share of its cores' time that it ran.
    pub busy: Vec<f64>,
    /// Its answers a second of processor time over the limit's.
    pub of_limit: Vec<f64>,
    /// Questions that the upstream got for each miss; for each question where there are no misses.
    pub upstream: Vec<f64>,
    /// Microseconds at half the rate of the slowest that half, 99 % and 99.9 % of the answers took at most.
    pub latency_us: [Vec<f64>; 3],
    /// Wrong answers, in all rounds.
    pub wrong: u64,
    /// Questions given up, in all rounds.
    pub lost: u64,
    /// Octets in memory when it had just begun to answer.
    pub empty_bytes: Option<u64>,
    /// Octets in memory with the hot names.
    pub filled_bytes: Option<u64>,
}

/// A contestant's part in a work.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Who.
    pub name: &'static str,
    /// Whether it is no server but a limit.
    pub is_limit: bool,
    /// What it did.
    pub figures: Figures,
}

/// A work that was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Which.
    pub work: Work,
    /// On so many cores.
    pub cores: usize,
    /// Rounds.
    pub rounds: usize,
    /// Questions a second by the clock at which waiting was measured; 0 where it was not.
    pub rate_per_s: u32,
    /// Everybody who took part.
    pub entries: Vec<Entry>,
}

/// What a run says while it goes on.
pub enum Event {
    /// Where the measured time goes; for whoever waits.
    Progress(String),
    /// A server takes no part, and why.
    Skipped(&'static str, String),
    /// A server's command line and configuration.
    SetUp(&'static str, Launch),
    /// What of the machine limits the figures.
    Machine(String),
    /// A work is done.
    Measured(Measured),
}

/// Why there are no figures.
#[derive(Debug)]
pub enum Error {
    /// A network of its own is not permitted.
    NotPermitted(io::Error),
    /// Anything else.
    Failed(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Failed(error.to_string())
    }
}

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
            let folder = Folder::new()?;
            let field = Field::new(servers, plan, stop, &folder.0, &mut tell)?;
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

/// A folder for configurations and logs, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        let name = format!("larder-bench-dns-{:016x}", Random::new().u64()?);
        let folder = std::env::temp_dir().join(name);
        // Nobody else's, and new: the name cannot be guessed.
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What all works have in common.
struct Field<'a> {
    servers: &'a [Server],
    plan: &'a Plan,
    stop: &'a Arc<AtomicBool>,
    folder: &'a Path,
    server_cores: Vec<usize>,
    load_cores: Vec<usize>,
    upstream: Upstream,
    fresh: Arc<AtomicU64>,
}

/// Somebody who is measured.
struct Contestant {
    running: Running,
    check: fn(u64, &[u8]) -> bool,
    entry: Entry,
}

/// The thread of the stub, stopped and joined when dropped.
struct Upstream {
    /// Where any question is answered.
    address: SocketAddr,
    counts: Arc<StubCounts>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Upstream {
    fn start(options: StubOptions, hierarchy: bool, core: usize) -> io::Result<Upstream> {
        let (bound_to, address) = match hierarchy {
            true => ((Ipv4Addr::UNSPECIFIED, DNS_PORT).into(), (ANY, DNS_PORT).into()),
            false => (at_port(PORTS_FROM), at_port(PORTS_FROM)),
        };
        let socket = bound(bound_to, false)?;
        let (counts, stop) = (Arc::new(StubCounts::default()), Arc::new(AtomicBool::new(false)));
        let (own_counts, own_stop) = (Arc::clone(&counts), Arc::clone(&stop));
        let thread = thread::Builder::new().name("upstream".to_owned()).spawn(move || {
            pin_to_core(core)?;
            stub(&socket, &options, &own_counts, &own_stop)
        })?;
        Ok(Upstream { address, counts, stop, thread: Some(thread) })
    }

    fn questions(&self) -> u64 {
        self.counts.questions.load(Ordering::Relaxed)
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

impl<'a> Field<'a> {
    fn new(
        servers: &'a [Server],
        plan: &'a Plan,
        stop: &'a Arc<AtomicBool>,
        folder: &'a Path,
        tell: &mut impl FnMut(Event),
    ) -> Result<Field<'a>, Error> {
        let all = available_cores()?;
        let server_cores: Vec<usize> = all.iter().copied().take(plan.cores.max(1)).collect();
        // What is left, as many as the server has; one of the server's where nothing is.
        let left: Vec<usize> = all.iter().copied().skip(server_cores.len()).collect();
        let load_cores = match left.is_empty() {
            true => server_cores.last().copied().into_iter().collect(),
            false => left[..left.len().min(server_cores.len())].to_vec(),
        };
        let shared = load_cores.iter().any(|core| server_cores.contains(core));
        let (server, load) = (server_cores.len(), load_cores.len());
        let mut machine =
            format!("servers on {server} of {} cores, questions and upstream on {load}", all.len());
        if shared {
            machine.push_str(
                ", which the server has too: answers by the clock say little of it, compare \
                 answers a second of processor time",
            );
        }
        tell(Event::Machine(machine));
        let upstream_core = load_cores.last().copied().unwrap_or(0);
        let upstream = Upstream::start(plan.upstream, plan.hierarchy, upstream_core)?;
        let fresh = Arc::new(AtomicU64::new(FRESH_FROM));
        Ok(Field { servers, plan, stop, folder, server_cores, load_cores, upstream, fresh })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Measures one work; `None` where it was stopped.
    fn measure(
        &self,
        work: &Work,
        tell: &mut impl FnMut(Event),
    ) -> Result<Option<Measured>, Error> {
        let mut taking = self.start(work, tell)?;
        if work.hit_percent > 0 {
            for contestant in &mut taking {
                tell(Event::Progress(format!(
                    "{}: {} takes the names",
                    work.name, contestant.entry.name
                )));
                self.fill(work, contestant)?;
            }
        }
        for round in 0..=self.plan.rounds {
            for turn in 0..taking.len() {
                let contestant = (turn + round) % taking.len();
                tell(Event::Progress(format!(
                    "{}: round {round}, {}",
                    work.name, taking[contestant].entry.name
                )));
                self.ask(work, &mut taking[contestant], round > 0)?;
            }
            if self.is_stopped() {
                return Ok(None);
            }
        }
        let both = limit_ratios(work, &mut taking);
        let rate_per_s = if self.plan.latency { self.rate(&taking) } else { 0 };
        for round in 0..=self.plan.rounds {
            if rate_per_s == 0 || self.is_stopped() {
                break;
            }
            for turn in 0..taking.len() {
                let contestant = (turn + round) % taking.len();
                tell(Event::Progress(format!(
                    "{}: waiting, round {round}, {}",
                    work.name, taking[contestant].entry.name
                )));
                self.wait(work, &mut taking[contestant], rate_per_s, round > 0)?;
            }
        }
        let entries = taking.into_iter().map(|contestant| contestant.entry).chain(both).collect();
        let (cores, rounds) = (self.server_cores.len(), self.plan.rounds);
        let work = work.clone();
        Ok((!self.is_stopped()).then_some(Measured { work, cores, rounds, rate_per_s, entries }))
    }

    /// Starts everybody who can take part.
    fn start(&self, work: &Work, tell: &mut impl FnMut(Event)) -> Result<Vec<Contestant>, Error> {
        let hot = u64::from(work.hot);
        let entries = if work.hit_percent < 100 { hot + FRESH_ENTRIES } else { 2 * hot + 10_000 };
        let mut taking = Vec::new();
        let mut port = PORTS_FROM;
        for server in self.servers {
            port += 1;
            let setup = Setup {
                listen: at_port(port),
                upstream: (!self.plan.hierarchy).then_some(self.upstream.address),
                cores: self.server_cores.len(),
                entries,
                folder: self.folder,
            };
            run_on(&self.server_cores)?;
            let started = server.start(&setup);
            run_on(&self.load_cores)?;
            let started = started.and_then(|mut running| {
                let number = self.fresh.fetch_add(1, Ordering::Relaxed);
                running.wait_until_answers(number, question::is_answer, self.stop)?;
                Ok(running)
            });
            match started {
                Ok(running) => {
                    if let Some(launch) = server.launch(&setup) {
                        tell(Event::SetUp(server.name, launch));
                    }
                    taking.push(Contestant::new(server.name, running, question::is_answer));
                }
                Err(reason) => tell(Event::Skipped(server.name, reason)),
            }
        }
        if work.hit_percent > 0 {
            taking.push(self.limit("echo", port + 1, question::is_echo, |socket, _, stop| {
                let longer = |question| question + question::ANSWER_ADDS_BYTES;
                echo(socket, BATCH, longer, stop).map(drop)
            })?);
        }
        if work.hit_percent < 100 {
            taking.push(self.limit(
                "relay",
                port + 2,
                question::is_answer,
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
        let (address, upstream) = (at_port(port), self.upstream.address);
        let bodies = (self.server_cores.iter())
            .map(|&core| {
                let socket = bound(address, true)?;
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
        for _ in 0..2 {
            let next = AtomicU64::new(0);
            let ask = || {
                let number = next.fetch_add(1, Ordering::Relaxed);
                (number < u64::from(work.hot)).then_some(number)
            };
            let measured = Duration::from_secs(20 + u64::from(work.hot) / FILL_PER_S_MIN);
            self.load(contestant, measured, None, |_| ask)?;
        }
        contestant.entry.figures.filled_bytes = contestant.running.resident_bytes();
        Ok(())
    }

    /// One round of one contestant, as fast as answers come.
    fn ask(&self, work: &Work, contestant: &mut Contestant, counts: bool) -> Result<(), Error> {
        self.mixed(work, contestant, self.plan.measured / 4, None)?;
        let ran = contestant.running.ran_ns().unwrap_or(0);
        let asked = self.upstream.questions();
        let (load, misses) = self.mixed(work, contestant, self.plan.measured, None)?;
        let asked = self.upstream.questions() - asked;
        let ran_s = (contestant.running.ran_ns().unwrap_or(0).saturating_sub(ran)) as f64 / 1e9;
        let figures = &mut contestant.entry.figures;
        figures.wrong += load.wrong;
        figures.lost += load.lost;
        if counts {
            figures.per_cpu_s.push(load.answers as f64 / ran_s.max(1e-9));
            figures.per_s.push(load.answers_per_s());
            figures.busy.push(ran_s / load.seconds.max(1e-9) / self.server_cores.len() as f64);
            let per = if misses > 0 { misses } else { load.asked };
            figures.upstream.push(asked as f64 / per.max(1) as f64);
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
        let (load, _) = self.mixed(work, contestant, self.plan.measured, Some(rate_per_s))?;
        let figures = &mut contestant.entry.figures;
        figures.wrong += load.wrong;
        figures.lost += load.lost;
        if counts {
            for (figures, share) in figures.latency_us.iter_mut().zip([0.5, 0.99, 0.999]) {
                figures.push(load.latency.percentile_ns(share) as f64 / 1e3);
            }
        }
        Ok(())
    }

    /// Half of what the slowest does by the clock.
    fn rate(&self, taking: &[Contestant]) -> u32 {
        let rates = taking.iter().map(|one| Median::of(&one.entry.figures.per_s).value);
        // One that never answered is nobody's measure.
        let rates = rates.filter(|rate| *rate > 0.0);
        (rates.fold(f64::INFINITY, f64::min) / 2.0).clamp(1.0, 1e7) as u32
    }

    /// Asks a work's mix for a while: what came of it, and how many questions were for names that nobody had
    /// asked before.
    fn mixed(
        &self,
        work: &Work,
        contestant: &Contestant,
        measured: Duration,
        rate_per_s: Option<u32>,
    ) -> Result<(Load, u64), Error> {
        let misses_before = self.fresh.load(Ordering::Relaxed);
        let load = self.load(contestant, measured, rate_per_s, |seed| {
            let mut mix = Mix::new(work.hot, work.hit_share(), &self.fresh, seed);
            move || Some(mix.draw())
        })?;
        Ok((load, self.fresh.load(Ordering::Relaxed) - misses_before))
    }

    /// Asks numbers of names from every core of the load; `numbers` makes a source for each, from a seed. A
    /// source that has no more ends its load, and so does `stop`.
    fn load<S: FnMut() -> Option<u64> + Send>(
        &self,
        contestant: &Contestant,
        measured: Duration,
        rate_per_s: Option<u32>,
        numbers: impl Fn(u64) -> S,
    ) -> Result<Load, Error> {
        let threads = self.load_cores.len();
        let sockets = match self.server_cores.len() {
            1 => 1,
            cores => (cores * SOCKETS_A_CORE).div_ceil(threads),
        };
        let in_flight = rate_per_s.map_or(self.plan.in_flight, |_| IN_FLIGHT_BY_CLOCK);
        let options = LoadOptions {
            sockets,
            in_flight_max: (in_flight / threads / sockets).max(1),
            batch: BATCH,
            warm_up: Duration::ZERO,
            measured,
            lost_after: LOST_AFTER,
            rate_per_s: rate_per_s.map(|rate| (rate / threads as u32).max(1)),
            ..LoadOptions::new(contestant.running.address)
        };
        let (check, stop) = (contestant.check, self.stop);
        let loads = thread::scope(|scope| {
            let threads: Vec<_> = (self.load_cores.iter())
                .map(|&core| {
                    let seed = self.fresh.load(Ordering::Relaxed) ^ (core as u64) << 48;
                    let (mut numbers, options) = (numbers(seed), &options);
                    scope.spawn(move || {
                        pin_to_core(core)?;
                        let ask = |id, room: &mut [u8]| {
                            let number = numbers().filter(|_| !stop.load(Ordering::Relaxed))?;
                            Some(question::write(id, number, room))
                        };
                        load(options, ask, check)
                    })
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, io::Result<Load>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<io::Result<Vec<Load>>>()
        })?;
        let mut loads = loads.into_iter();
        let mut all = loads.next().ok_or_else(|| Error::Failed("no core is left".to_owned()))?;
        loads.for_each(|load| all.merge(&load));
        Ok(all)
    }
}

impl Contestant {
    fn new(name: &'static str, running: Running, check: fn(u64, &[u8]) -> bool) -> Contestant {
        let empty_bytes = running.resident_bytes();
        let figures = Figures { empty_bytes, ..Figures::default() };
        Contestant { running, check, entry: Entry { name, is_limit: false, figures } }
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

/// Keeps the calling thread, and what it starts, on these cores.
fn run_on(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

fn at_port(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A socket with room for every question in flight.
fn bound(address: SocketAddr, reuse_port: bool) -> io::Result<UdpSocket> {
    let options = UdpOptions {
        reuse_port,
        receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        ..UdpOptions::default()
    };
    UdpSocket::bind(address, &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::report::Style;

    fn work(name: &str, hot: u32, hit_percent: u32) -> Work {
        Work { name: name.to_owned(), hot, hit_percent }
    }

    /// Runs works as briefly as it can; `None`, and a line that says so, where no network is to be had.
    fn tiny(
        test: &str,
        servers: &[Server],
        works: &[Work],
        latency: bool,
    ) -> Option<Vec<Measured>> {
        let plan = Plan {
            rounds: 1,
            measured: Duration::from_millis(40),
            cores: 1,
            in_flight: 32,
            upstream: StubOptions::default(),
            hierarchy: false,
            latency,
        };
        let mut all = Vec::new();
        let result = run(servers, works, &plan, &Arc::default(), |event| match event {
            Event::Measured(measured) => all.push(measured),
            Event::Skipped(name, reason) => panic!("{name}: {reason}"),
            _ => {}
        });
        match result {
            Ok(()) => Some(all),
            Err(Error::NotPermitted(error)) => {
                eprintln!("SKIP {test}: no network of its own: {error}");
                None
            }
            Err(Error::Failed(error)) => panic!("{error}"),
        }
    }

    /// The limits are measured where they are limits, and answer rightly; that of a mix lies between its parts.
    #[test]
    fn limits_are_measured() {
        let works = [work("hits", 100, 100), work("misses", 1, 0), work("half", 100, 50)];
        let Some(all) = tiny("limits_are_measured", &[], &works, true) else { return };
        let names = |measured: &Measured| {
            measured.entries.iter().map(|entry| entry.name).collect::<Vec<_>>()
        };
        let all_names: Vec<_> = all.iter().map(names).collect();
        let both = vec!["echo", "relay", "echo + relay"];
        assert_eq!(all_names, [vec!["echo"], vec!["relay"], both]);
        for measured in &all {
            let measured_ones =
                measured.entries.iter().filter(|entry| entry.name != "echo + relay");
            for Entry { name, figures, .. } in measured_ones {
                let work = &measured.work.name;
                assert!(figures.per_cpu_s[0] > 0.0 && figures.per_s[0] > 0.0, "{work}: {name}");
                assert_eq!(figures.wrong, 0, "{work}: {name}");
                assert!(figures.latency_us.iter().all(|share| share.len() == 1));
            }
            assert!(measured.table(Style::Text).contains(&measured.work.name));
        }
        let [hits, misses, half] = &all[..] else { panic!("three works") };
        let rates: Vec<f64> = half.entries.iter().map(|one| one.figures.per_cpu_s[0]).collect();
        let both = 2.0 / (1.0 / rates[0] + 1.0 / rates[1]);
        assert!((rates[2] / both - 1.0).abs() < 1e-9, "{rates:?}");
        assert_eq!(hits.entries[0].figures.upstream, [0.0]);
        assert!((0.5..1.5).contains(&misses.entries[0].figures.upstream[0]));
    }

    /// A server in a process of its own answers rightly from its cache and from the upstream, which is asked for
    /// misses only.
    #[test]
    fn unbound_answers_rightly() {
        let test = "unbound_answers_rightly";
        let server = match Server::find("unbound", Path::new("larder")) {
            Ok(server) => server,
            Err(reason) => return eprintln!("SKIP {test}: unbound is {reason}"),
        };
        let works = [work("hits", 20, 100), work("misses", 1, 0)];
        let Some(all) = tiny(test, &[server], &works, false) else { return };
        let figures: Vec<&Figures> = all.iter().map(|one| &one.entries[0].figures).collect();
        assert!(all.iter().all(|measured| measured.entries[0].name == "unbound"));
        assert!(figures.iter().all(|one| one.wrong == 0 && one.per_s[0] > 0.0), "{figures:?}");
        assert_eq!(figures[0].upstream, [0.0]);
        assert!(figures[1].upstream[0] > 0.5, "{figures:?}");
        assert!(figures.iter().all(|one| one.of_limit.len() == 1 && one.of_limit[0] > 0.0));
        assert!(figures[0].filled_bytes.is_some_and(|bytes| bytes > 100_000));
    }

    /// A server that does not start is left out with its reason, and the others are measured.
    #[test]
    fn a_server_that_fails_is_skipped() {
        let test = "a_server_that_fails_is_skipped";
        let server = Server::find("larder", Path::new("/bin/false")).unwrap();
        let plan = Plan {
            rounds: 1,
            measured: Duration::from_millis(10),
            cores: 1,
            in_flight: 8,
            upstream: StubOptions::default(),
            hierarchy: false,
            latency: false,
        };
        let (mut skipped, mut measured) = (Vec::new(), 0);
        let result =
            run(&[server], &[work("hits", 1, 100)], &plan, &Arc::default(), |event| match event {
                Event::Skipped(name, reason) => skipped.push((name, reason)),
                Event::Measured(_) => measured += 1,
                _ => {}
            });
        match result {
            Err(Error::NotPermitted(error)) => {
                eprintln!("SKIP {test}: no network of its own: {error}");
            }
            Err(Error::Failed(error)) => panic!("{error}"),
            Ok(()) => {
                assert_eq!((skipped.len(), measured), (1, 1));
                assert!(skipped[0].1.contains("it ended"), "{skipped:?}");
            }
        }
    }

    /// A run that is stopped ends, and gives no half figures.
    #[test]
    fn a_run_can_be_stopped() {
        let plan = Plan {
            rounds: 1_000_000,
            measured: Duration::from_secs(3600),
            cores: 1,
            in_flight: 8,
            upstream: StubOptions::default(),
            hierarchy: false,
            latency: true,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let mut measured = 0;
        let works = [work("hits", 10, 100), work("misses", 1, 0)];
        let result = run(&[], &works, &plan, &stop, |event| match event {
            Event::Progress(_) => stop.store(true, Ordering::Relaxed),
            Event::Measured(_) => measured += 1,
            _ => {}
        });
        if let Err(Error::NotPermitted(error)) = result {
            eprintln!("SKIP a_run_can_be_stopped: no network of its own: {error}");
        }
        assert_eq!(measured, 0);
    }
}
