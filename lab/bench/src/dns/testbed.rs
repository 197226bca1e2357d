//! The testbed of a run: its network, folder, cores and upstream, and the asking itself.
//!
//! Everything in here is made on the run's thread, whose network and cores the upstream, the servers and the
//! generators inherit, and is taken down when dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use larder_io::udp::{Sharing, UdpOptions, UdpSocket};

use super::hierarchy::ANY;
use super::plan::{Error, Plan, Work};
use super::query::{self, AUTHENTIC, FRESH_FROM, Mix};
use super::stub::{StubCounts, StubOptions, stub};
use crate::net::host::{Cores, Folder, at_port};
use crate::net::load::{Load, LoadOptions, Query, load};
use crate::net::{MESSAGE_BYTES_MAX, SOCKET_BUFFER_BYTES};
use crate::servers::{Background, on_cores};

/// Messages a system call: of the generator, the limits and the upstream.
pub const BATCH: usize = 64;
/// Most questions in flight where they leave by the clock.
const IN_FLIGHT_BY_CLOCK: usize = 8192;
/// A question without an answer is given up after this.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Longest that a server may take for the question that asks whether it is there.
const ANSWER_MAX: Duration = Duration::from_millis(20);
/// Ports of the run's own network; the upstream has the first.
pub const PORTS_FROM: u16 = 5300;
/// Where resolvers ask servers that they were referred to.
const DNS_PORT: u16 = 53;
/// Sockets of the generator for each core of the server: the kernel spreads clients by their ports.
const SOCKETS_A_CORE: usize = 8;

/// What all works of a run have in common.
pub struct Testbed<'a> {
    plan: &'a Plan,
    stop: &'a AtomicBool,
    /// For configurations and logs.
    pub folder: Folder,
    /// Where servers run, and where questions and upstream come from.
    pub cores: Cores,
    /// Whom servers ask.
    pub upstream: Upstream,
    fresh: Arc<AtomicU64>,
}

/// Whom to ask how.
pub struct Target {
    /// Where.
    pub address: SocketAddr,
    /// Tells whether bytes answer the question with a tag.
    pub check: fn(u64, &[u8]) -> bool,
    /// Questions a second by the clock; `None`: as fast as answers come.
    pub rate_per_s: Option<u32>,
}

impl<'a> Testbed<'a> {
    /// Takes cores and folder and starts the upstream, in the network of the calling thread.
    pub fn new(plan: &'a Plan, stop: &'a AtomicBool) -> Result<Testbed<'a>, Error> {
        let cores = Cores::split(plan.cores)?;
        let upstream_core = cores.load.last().copied().unwrap_or(0);
        let upstream = Upstream::start(plan.upstream.clone(), plan.hierarchy, upstream_core)?;
        let (folder, fresh) = (Folder::new("dns")?, Arc::new(AtomicU64::new(FRESH_FROM)));
        Ok(Testbed { plan, stop, folder, cores, upstream, fresh })
    }

    /// What of the machine limits the figures.
    pub fn machine(&self) -> String {
        let (server, load) = (self.cores.server.len(), self.cores.load.len());
        let text = format!("servers on {server} core(s), questions and upstream on {load}");
        match self.cores.are_shared() {
            true => {
                text + ", which the server has too: answers by the clock say little of it, compare \
                        answers a second of processor time"
            }
            false => text,
        }
    }

    /// The number of a name that was not queried.
    pub fn fresh(&self) -> u64 {
        self.fresh.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks every hot name once.
    pub fn each(&self, work: &Work, target: &Target, longest: Duration) -> Result<Load, Error> {
        let next = AtomicU64::new(0);
        let next_number = || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            (number < u64::from(work.hot)).then_some(number)
        };
        self.load(target, longest, |_| next_number)
    }

    /// Asks a work's mix for a while: what came of it, and how many questions were for names that nobody had
    /// asked before.
    pub fn mixed(
        &self,
        work: &Work,
        target: &Target,
        measured: Duration,
    ) -> Result<(Load, u64), Error> {
        let misses_before = self.fresh.load(Ordering::Relaxed);
        let load = self.load(target, measured, |seed| {
            let mut mix = Mix::new(work.hot, work.hit_share(), &self.fresh, seed);
            move || Some(mix.draw())
        })?;
        Ok((load, self.fresh.load(Ordering::Relaxed) - misses_before))
    }

    /// Asks numbers of names from every core of the load; `numbers` makes a source for each, from a seed. A
    /// source that has no more ends its load, and so does `stop`.
    fn load<S: FnMut() -> Option<u64> + Send>(
        &self,
        target: &Target,
        measured: Duration,
        numbers: impl Fn(u64) -> S + Sync,
    ) -> Result<Load, Error> {
        let Target { address, check, rate_per_s } = *target;
        let threads = self.cores.load.len();
        let sockets = match self.cores.server.len() {
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
            ..LoadOptions::new(address)
        };
        let (stop, edns) = (self.stop, self.plan.edns);
        let flags = if self.plan.upstream.signer.is_some() { AUTHENTIC } else { 0 };
        let body = |_, core: usize| {
            let seed = self.fresh.load(Ordering::Relaxed) ^ (core as u64) << 48;
            let mut numbers = numbers(seed);
            let write_query = |id, room: &mut [u8]| {
                let number = numbers().filter(|_| !stop.load(Ordering::Relaxed))?;
                let query = query::write(id, number, edns, room);
                room[3] |= flags;
                Some(query)
            };
            load(&options, write_query, check)
        };
        let (loads, ()) = on_cores(&self.cores.load, body, || ())?;
        let mut loads = loads.into_iter();
        let mut all = loads.next().ok_or_else(|| Error::Failed("no core is left".to_owned()))?;
        loads.for_each(|load| all.merge(&load));
        Ok(all)
    }
}

/// The thread of the stub.
pub struct Upstream {
    /// Where any question is answered.
    pub address: SocketAddr,
    counts: Arc<StubCounts>,
    _thread: Background,
}

impl Upstream {
    fn start(options: StubOptions, hierarchy: bool, core: usize) -> io::Result<Upstream> {
        let (bound_to, address) = match hierarchy {
            true => ((Ipv4Addr::UNSPECIFIED, DNS_PORT).into(), (ANY, DNS_PORT).into()),
            false => (at_port(PORTS_FROM), at_port(PORTS_FROM)),
        };
        let socket = bound(bound_to, Sharing::Alone)?;
        let counts = Arc::new(StubCounts::default());
        let own = Arc::clone(&counts);
        let body = move |stop: &AtomicBool| stub(&socket, &options, &own, stop);
        Ok(Upstream { address, counts, _thread: Background::start("upstream", core, body)? })
    }

    /// Queries for addresses that it received.
    pub fn queries(&self) -> u64 {
        // Who finds his way asks for servers too, and for signatures: all of it is work.
        let StubCounts { queries, others } = &*self.counts;
        queries.load(Ordering::Relaxed) + others.load(Ordering::Relaxed)
    }
}

/// Asks for a name over UDP and tells whether it is answered rightly; the error says what came instead.
pub fn query_once(address: SocketAddr, number: u64) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let socket = std::net::UdpSocket::bind(at_port(0)).map_err(words)?;
    socket.connect(address).map_err(words)?;
    socket.set_read_timeout(Some(ANSWER_MAX)).map_err(words)?;
    let mut room = [0; MESSAGE_BYTES_MAX];
    let Query { length, tag } = query::write(1, number, false, &mut room);
    // Refused until the server listens.
    let got = socket.send(&room[..length]).and_then(|_| socket.recv(&mut room));
    match got {
        Ok(length) if query::is_answer(tag, &room[..length]) => Ok(()),
        Ok(length) => {
            let code = if length > 3 { room[3] & 15 } else { 0 };
            Err(format!("a wrong answer of {length} bytes with RCODE {code}"))
        }
        Err(_) => Err("no answer".to_owned()),
    }
}

/// A socket with room for every question in flight.
pub fn bound(address: SocketAddr, sharing: Sharing) -> io::Result<UdpSocket> {
    let options = UdpOptions {
        sharing,
        receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        ..UdpOptions::default()
    };
    UdpSocket::bind(address, &options)
}
