//! The testbed of a run: its network, folder, cores and origin, and the asking itself.
//!
//! Everything in here is made on the run's thread, whose network and cores the origin, the servers and the clients
//! inherit, and is taken down when dropped.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_io::tcp::{ListenOptions, Sharing, listen};

use super::busy::{self, Crowd};
use super::load::{Load, Pace, Target, load};
use super::origin::{Origin, Requests};
use super::plan::{Error, Plan};
use super::serve::serve;
use crate::net::host::{Cores, Folder, at_port};
use crate::process::{Running, Usage};
use crate::servers::{Background, on_cores};

/// Ports of the run's own network; the origin has the first.
pub const PORTS_FROM: u16 = 8080;
/// Longest that it takes until the first responses are compared.
const CHECK_MAX: Duration = Duration::from_secs(60);
/// Longest that a server may continue with work that no client waits for.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// A server is at rest that runs less than this in [`SETTLE_LOOK`].
const AT_REST_NS: u64 = 2_000_000;
const SETTLE_LOOK: Duration = Duration::from_millis(50);
/// Beyond the origin's time, what clients of a busy resource may wait.
const BUSY_MAX: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(10);

/// What all works of a run have in common.
pub struct Testbed<'a> {
    plan: &'a Plan,
    stop: &'a AtomicBool,
    /// For configurations, logs and files of servers.
    pub folder: Folder,
    /// Where servers run, and where clients and origin do.
    pub cores: Cores,
    /// Whom servers ask.
    pub origin: Upstream,
}

/// The origin's thread.
pub struct Upstream {
    /// Where it receives requests.
    pub address: SocketAddr,
    /// Those that it received.
    pub requests: Requests,
    _thread: Background,
}

impl Upstream {
    fn start(core: usize) -> io::Result<Upstream> {
        let address = at_port(PORTS_FROM);
        let listener = listening(address)?;
        let mut origin = Origin::default();
        let requests = origin.requests.clone();
        let body = move |stop: &AtomicBool| serve(&listener, &mut origin, stop);
        Ok(Upstream { address, requests, _thread: Background::start("origin", core, body)? })
    }
}

/// Listens with room for all clients at once; as many threads as may share the address.
pub fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address, &ListenOptions { sharing: Sharing::Join, backlog: 4096, ..Default::default() })
}

/// What of a contestant was used while it was counted, and for how long.
pub struct Span {
    /// By its threads.
    pub used: Usage,
    /// By the clock.
    pub seconds: f64,
}

impl<'a> Testbed<'a> {
    /// Takes cores and folder and starts the origin, in the network of the calling thread.
    pub fn new(plan: &'a Plan, stop: &'a AtomicBool) -> io::Result<Testbed<'a>> {
        let cores = Cores::split(plan.cores)?;
        let origin = Upstream::start(cores.load.last().copied().unwrap_or(0))?;
        Ok(Testbed { plan, stop, folder: Folder::new("http")?, cores, origin })
    }

    /// What of the machine limits the figures.
    pub fn machine(&self) -> String {
        let (server, load) = (self.cores.server.len(), self.cores.load.len());
        let text = format!("servers on {server} core(s), clients and origin on {load}");
        match self.cores.are_shared() {
            true => text + ", which the server has too: compare processor time",
            false => text,
        }
    }

    /// Whether the run is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Asks for a while, after a quarter of that to warm up; `compared_bytes` of the first responses are compared byte
    /// by byte before it counts.
    pub fn counted(
        &self,
        running: &Running,
        target: &Target,
        compared_bytes: u64,
    ) -> Result<(Load, Span), Error> {
        let measured = self.plan.measured;
        let counted = self.loaded(target, compared_bytes, |pace| {
            self.sleep(pace, |passed| {
                passed > CHECK_MAX || (passed >= measured / 4 && pace.is_checked())
            });
            let (before, begun) = (running.usage(), Instant::now());
            pace.count();
            self.sleep(pace, |passed| passed >= measured);
            pace.end();
            let seconds = begun.elapsed().as_secs_f64();
            Span { used: used(before, running.usage()), seconds }
        });
        self.settle(running);
        counted
    }

    /// Asks for a while without counting or comparing.
    pub fn uncounted(&self, target: &Target, measured: Duration) -> Result<Load, Error> {
        let lead = |pace: &Pace| self.sleep(pace, |passed| passed >= measured);
        self.loaded(target, 0, lead).map(|(load, ())| load)
    }

    /// Asks once with many clients.
    pub fn crowd(&self, running: &Running, target: &Target) -> Result<(Crowd, Span), Error> {
        let (mut before, mut begun) = (Usage::default(), Instant::now());
        let ready = || (before, begun) = (running.usage(), Instant::now());
        let longest = self.plan.takes + BUSY_MAX;
        let crowd = busy::request_all(target, self.plan.clients, longest, self.stop, ready)?;
        let seconds = begun.elapsed().as_secs_f64();
        let span = Span { used: used(before, running.usage()), seconds };
        self.settle(running);
        Ok((crowd, span))
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
        compared_bytes: u64,
        lead: impl FnOnce(&Pace) -> T,
    ) -> Result<(Load, T), Error> {
        let threads = self.cores.load.len();
        let pace = Pace::new(threads, compared_bytes / threads as u64);
        let connections = self.plan.connections;
        let body = |at, _| {
            let own = connections / threads + usize::from(at < connections % threads);
            load(target, own, &pace)
        };
        let (loads, led) = on_cores(&self.cores.load, body, || {
            let led = lead(&pace);
            pace.end();
            led
        })?;
        let mut all = Load::default();
        loads.iter().for_each(|load| all.merge(load));
        Ok((all, led))
    }

    /// Waits until a server has done with what it was asked, so that it does not disturb the next one.
    fn settle(&self, running: &Running) {
        let begun = Instant::now();
        let mut ran_ns = running.usage().ran_ns;
        while begun.elapsed() < SETTLE_MAX && !self.is_stopped() {
            thread::sleep(SETTLE_LOOK);
            let before = std::mem::replace(&mut ran_ns, running.usage().ran_ns);
            if ran_ns.saturating_sub(before) < AT_REST_NS {
                break;
            }
        }
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
