//! Starts the server: sockets, cache, one thread for each core. The calling thread then supervises
//! them.
//!
//! ```text
//! load the policy -> bind sockets, or take those of the service manager -> make the cache
//! -> start the threads, which respond -> supervisor.rs until the end -> return the counters
//! ```
//!
//! If a service manager passes sockets (socket activation), the server uses them instead of the
//! configured addresses. If it passes one socket of an address for each core (`ReusePort=yes`),
//! each core gets one. Otherwise the first core gets all sockets of that address, since a UDP
//! socket shared by two cores would wake both for each query.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use larder::{Cache, Seconds};
use larder_io::activation::{Inherited, take_inherited};
use larder_io::epoll::Waker;
use larder_io::random;
use larder_io::signals::Signals;
use larder_io::tcp::{self, ListenOptions};
use larder_io::udp::{Sharing, UdpOptions, UdpSocket};
use larder_serve::log::Log;
use larder_serve::reload::{Reload, with_part};
use larder_serve::server_page::{Begun, RunningPage};
use larder_serve::start::{self, ServeError, system};
use larder_serve::supervisor::{Ended, Supervisor};
use larder_serve::worker_threads::{WorkerThreads, wake};
use larder_serve::writer::Writer;

use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;

use crate::backend::{Backend, Backends};
use crate::clock::Clock;
use crate::core::{Core, Settings};
use crate::core_tap::CoreTap;
use crate::driver::{Driver, Parts};
use crate::metrics::{Counts, Shared};
use crate::page::{self, Figures, Notes};
use crate::policy::PolicyOptions;
use crate::query_log::{self, QueryLog};
use crate::reload::{Policies, Source};
use crate::side_query::{self, SideSender, SideServer};
use crate::supervisor::{Common, Duties, Operation};
use crate::upstream_udp::QuerySource;
use crate::zones::{Forward, Zones};
use crate::{client_tcp, dnstap, upstream_tcp, xdp};
use larder_serve::lifecycle::Lifecycle;

/// Requested size of each socket buffer of a UDP socket; the system may allow less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// What to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses to listen at, unless a service manager passes sockets.
    pub listen: Vec<SocketAddr>,
    /// Allow other processes of this user to listen there too.
    pub reuse_port: bool,
    /// Network interfaces whose frames are read, in addition to the sockets.
    pub xdp: xdp::Options,
    /// The upstreams of each zone.
    pub forwards: Vec<Forward>,
    /// Upstreams that are not servers, by number; started and stopped with the server.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Number of threads.
    pub cores: usize,
    /// Bytes of the cache, everything included.
    pub cache_bytes: u64,
    /// Settings of each core.
    pub settings: Settings,
    /// Which clients may query, and which queries the policy responds to.
    pub policy: PolicyOptions,
    /// The source of queries to upstreams.
    pub origin: QuerySource,
    /// Limits of TCP from clients, for each core.
    pub client_tcp_limits: client_tcp::Limits,
    /// Limits of TCP to upstreams, for each core.
    pub upstream_tcp_limits: upstream_tcp::Limits,
    /// Encrypted transports, which run next to the cores.
    pub beside: Option<Arc<dyn SideServer>>,
    /// How the operator observes and controls the server.
    pub operation: Operation,
}

/// How the server ended.
pub type Served = start::Served<Counts>;

/// Serves until told to stop. On a reload (SIGHUP, `larder ctl reload`), `source` reads the
/// settings of the policy. Events are logged to `log`.
pub fn serve(options: &Options, source: Option<Source>, log: &Log) -> Result<Served, ServeError> {
    // Before this process opens anything: the service manager passes descriptors by number.
    let inherited = take_inherited().map_err(system("sockets of the service manager"))?;
    if inherited.is_empty() && options.listen.is_empty() {
        let text = "there is nothing to listen at: name an address with --listen";
        return Err(ServeError::refused(text));
    }
    // Before any thread starts: each inherits the blocked signals, and only this one reads them.
    let signals = Signals::block().map_err(system("signals"))?;
    let cores = options.cores.max(1);
    let mut key = [0; 16];
    random::fill(&mut key).map_err(system("random numbers"))?;
    let (policies, report) =
        Policies::new(options.policy.clone(), source, &key).map_err(ServeError::refused)?;
    let cache = new_cache(options, cores)?;
    let clock = Clock::start();
    let Sockets { bound, addresses, by_frames } = Sockets::open(options, inherited, cores, log)?;
    let supervisor_waker = Arc::new(Waker::new().map_err(system("eventfd"))?);
    let Recorded { writers, tap, log: query_log } =
        Recorded::start(&options.operation, clock, log)?;
    let upstreams = options.forwards.iter().flat_map(|forward| forward.upstreams.iter().copied());
    let published = Arc::new(Shared::new(cores, upstreams));
    let (page, notes) = page::begin(options.operation.page.as_ref(), clock);
    let places = options.operation.places();
    let supervisor = Supervisor::open(&places, supervisor_waker.clone(), signals, log)
        .map_err(ServeError::refused)?;

    let lifecycle = Arc::new(Lifecycle::new());
    let making = Making {
        options,
        settings: Arc::new(core_settings(options, by_frames.answer_bytes_max)),
        cache: &cache,
        policies: &policies,
        clock,
        published: &published,
        lifecycle: &lifecycle,
        tap,
        query_log,
        notes,
    };
    let Made { drivers, wakers, senders } = making.all(bound, by_frames.queues)?;
    let running = Running::start(&options.backends, log)?;
    let beside = options.beside.as_ref().map(|beside| beside.start(senders)).transpose();
    let beside = beside.map_err(ServeError::Refused)?;
    let figures = figures(options, (cache, clock), &published, &writers, beside.clone());
    let page = start_page(page, &figures, options, &addresses, log)?;
    let mut loops = start_loops(drivers, wakers, lifecycle, supervisor_waker.clone())?;
    let listeners = beside.as_ref().map(|beside| beside.listeners()).unwrap_or_default();
    let common = Common {
        figures,
        log: log.clone(),
        writers,
        reload: reload(policies, beside.clone()),
        beside,
        waker: supervisor_waker,
    };
    let mut duties = Duties::new(&options.operation, common);
    duties.clear_leftovers();
    log_listening(log, cores, &addresses, listeners);
    report.log(log);
    duties.load(&loops);
    let status = format!("answers with {cores} core{}", if cores == 1 { "" } else { "s" });
    let end = supervisor.run(&mut loops, &mut duties, &status).map_err(system("serving"))?;
    drop((page, running));
    Ok(Served { counts: published.counts.sum(), was_hurried: end == Ended::Forced })
}

/// The sockets of each core, and the queues of interfaces whose frames are read.
struct Sockets {
    bound: Vec<Bound>,
    addresses: Vec<SocketAddr>,
    by_frames: xdp::Opened,
}

impl Sockets {
    /// Binds them, or takes those of the service manager.
    fn open(
        options: &Options,
        inherited: Vec<Inherited>,
        cores: usize,
        log: &Log,
    ) -> Result<Sockets, ServeError> {
        let bound = if inherited.is_empty() {
            bind(options, cores)?
        } else {
            take(inherited, cores).map_err(system("sockets of the service manager"))?
        };
        let addresses = addresses(&bound);
        if bound.iter().any(Bound::is_empty) {
            let hint = "set ReusePort=yes and one socket per core, or --cores 1";
            let line = log.warn("fewer sockets than cores, one core serves").number("cores", cores);
            line.text("hint", hint);
        }
        let udp_addresses = bound.iter().flat_map(|bound| &bound.listeners);
        let udp_addresses: Vec<SocketAddr> =
            udp_addresses.filter_map(|socket| socket.local_address().ok()).collect();
        let by_frames =
            xdp::open(&options.xdp, &udp_addresses, cores, log).map_err(ServeError::Refused)?;
        Ok(Sockets { bound, addresses, by_frames })
    }
}

/// What the drivers of all cores are made of.
struct Making<'a> {
    options: &'a Options,
    settings: Arc<Settings>,
    cache: &'a Cache,
    policies: &'a Policies,
    clock: Clock,
    published: &'a Arc<Shared>,
    lifecycle: &'a Arc<Lifecycle>,
    tap: Option<dnstap::Tap>,
    query_log: Option<QueryLog>,
    notes: Option<Notes>,
}

/// The drivers of all cores, and how others reach them.
#[derive(Default)]
struct Made {
    drivers: Vec<Driver>,
    wakers: Vec<Arc<Waker>>,
    /// For servers beside, if there are any.
    senders: Vec<SideSender>,
}

impl Making<'_> {
    fn all(&self, bound: Vec<Bound>, queues: Vec<Vec<xdp::Queue>>) -> Result<Made, ServeError> {
        let mut made = Made::default();
        for (number, (bound, queues)) in bound.into_iter().zip(queues).enumerate() {
            let waker = Arc::new(Waker::new().map_err(system("eventfd"))?);
            let inbox = self.options.beside.as_ref().map(|_| {
                let (sender, inbox) = side_query::channel(waker.clone(), side_query::QUEUE_MAX);
                made.senders.push(sender);
                inbox
            });
            made.drivers.push(self.driver(number, bound, queues, waker.clone(), inbox)?);
            made.wakers.push(waker);
        }
        Ok(made)
    }

    /// The driver of one core.
    fn driver(
        &self,
        number: usize,
        bound: Bound,
        queues: Vec<xdp::Queue>,
        waker: Arc<Waker>,
        inbox: Option<side_query::Inbox>,
    ) -> Result<Driver, ServeError> {
        let Making { options, settings, clock, .. } = self;
        let Bound { listeners, stream_listeners } = bound;
        let zones = Zones::new(&options.forwards).map_err(no_zones)?;
        let core = Core::new(settings.clone(), self.cache, zones, clock.now()).map_err(no_cache)?;
        let queries_max = options.settings.limits.queries_max as usize;
        let backends = Backends::new(&options.backends, number, queries_max, waker.clone());
        let tap = self.tap.as_ref().map(|tap| {
            let at = listeners.iter().filter_map(|socket| socket.local_address().ok()).collect();
            CoreTap::new(tap.another(), *clock, at)
        });
        let parts = Parts {
            listeners,
            queues,
            stream_listeners,
            client_tcp_limits: options.client_tcp_limits.clone(),
            inbox,
            upstream_tcp_limits: options.upstream_tcp_limits.clone(),
            backends,
            origin: options.origin.clone(),
            number,
            tap,
            log: self.query_log.as_ref().map(QueryLog::another),
            notes: self.notes.as_ref().map(Notes::another),
            ..Parts::bare(
                core,
                self.policies.follower(),
                *clock,
                self.published.clone(),
                self.lifecycle.clone(),
                waker,
            )
        };
        Driver::new(parts).map_err(system("epoll"))
    }
}

/// Starts a thread for each core.
fn start_loops(
    drivers: Vec<Driver>,
    wakers: Vec<Arc<Waker>>,
    lifecycle: Arc<Lifecycle>,
    supervisor_waker: Arc<Waker>,
) -> Result<WorkerThreads, ServeError> {
    let wake_all = Arc::new(move || wakers.iter().for_each(|waker| wake(waker)));
    let mut loops = WorkerThreads::new("dns", wake_all, lifecycle, supervisor_waker);
    for mut driver in drivers {
        loops.start(move || driver.run()).map_err(system("a thread for a core"))?;
    }
    Ok(loops)
}

/// What operators are shown.
fn figures(
    options: &Options,
    (cache, clock): (Cache, Clock),
    published: &Arc<Shared>,
    writers: &[Writer],
    beside: Option<Arc<dyn side_query::Running>>,
) -> Arc<Figures> {
    Arc::new(Figures {
        cache,
        clock,
        published: published.clone(),
        meters: writers.iter().map(Writer::meter).collect(),
        backends: options.backends.clone(),
        beside,
    })
}

/// Starts the page, if there is one.
fn start_page(
    page: Option<Begun>,
    figures: &Arc<Figures>,
    options: &Options,
    addresses: &[SocketAddr],
    log: &Log,
) -> Result<Option<RunningPage>, ServeError> {
    let listen = addresses.iter().map(SocketAddr::to_string).collect();
    let prefix = options.operation.page_prefix;
    let shown = page::DnsShown { figures: figures.clone(), listen, prefix };
    let started = page.map(|page| page.start(shown, log));
    started.transpose().map_err(|error| ServeError::refused(format!("--ui: {error}")))
}

/// Logs every address that the server listens at.
fn log_listening(
    log: &Log,
    cores: usize,
    addresses: &[SocketAddr],
    others: Vec<(&'static str, String)>,
) {
    let text: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    log.info("listening").text("address", text.join(",")).number("cores", cores);
    let each = |(transport, address)| {
        log.info("listening").text("address", address).text("transport", transport);
    };
    others.into_iter().for_each(each);
}

fn new_cache(options: &Options, cores: usize) -> Result<Cache, ServeError> {
    Cache::builder()
        .budget(options.cache_bytes)
        .readers_max(cores)
        .stale(Seconds(options.settings.stale_s))
        .build()
        .map_err(no_cache)
}

/// The settings of cores: responses fit the frames of all interfaces.
fn core_settings(options: &Options, answer_bytes_max: Option<u16>) -> Settings {
    let mut settings = options.settings.clone();
    if let Some(bytes_max) = answer_bytes_max {
        settings.udp_bytes_max = settings.udp_bytes_max.min(bytes_max);
    }
    settings
}

/// The error of a cache that cannot be made.
pub(crate) fn no_cache(error: larder::Error) -> ServeError {
    ServeError::Refused(format!("the cache cannot be made: {error}"))
}

/// The error of invalid zones or upstreams.
pub(crate) fn no_zones(error: impl std::fmt::Debug) -> ServeError {
    ServeError::Refused(format!("these upstreams cannot be used: {error:?}"))
}

/// What the cores record for operators, and the threads that write it.
struct Recorded {
    writers: Vec<Writer>,
    tap: Option<dnstap::Tap>,
    log: Option<QueryLog>,
}

impl Recorded {
    fn start(operation: &Operation, clock: Clock, log: &Log) -> Result<Recorded, ServeError> {
        let tap = operation.dnstap.clone().map(|target| dnstap::start(target, &host_name(), log));
        let queries = operation.query_log.clone();
        let queries = queries.map(|queries| query_log::start(queries, clock, log));
        let (dnstap, tap) = tap.transpose().map_err(system("a thread for dnstap"))?.unzip();
        let (writer, log) =
            queries.transpose().map_err(system("a thread for the query log"))?.unzip();
        Ok(Recorded { writers: dnstap.into_iter().chain(writer).collect(), tap, log })
    }
}

/// Reloads everything that an operator may change while the server runs: the policy's settings and
/// files, and certificates.
fn reload(policies: Policies, beside: Option<Arc<dyn side_query::Running>>) -> Reload {
    Reload::new(move || {
        // Reload the certificates even if the policy fails.
        let certificate = beside.as_ref().map(|beside| beside.reload());
        with_part(policies.load(), "encrypted", certificate)
    })
}

/// Started backends, which are stopped at the end.
pub(crate) struct Running<'a>(&'a [Arc<dyn Backend>]);

impl Running<'_> {
    /// Starts them all. After an error it stops those already started.
    pub(crate) fn start<'a>(
        backends: &'a [Arc<dyn Backend>],
        log: &Log,
    ) -> Result<Running<'a>, ServeError> {
        let mut running = Running(&[]);
        for (at, backend) in backends.iter().enumerate() {
            backend.start(log).map_err(ServeError::refused)?;
            running.0 = &backends[..=at];
        }
        Ok(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        for backend in self.0 {
            backend.stop();
        }
    }
}

/// The listening sockets of one core.
#[derive(Default)]
struct Bound {
    listeners: Vec<UdpSocket>,
    stream_listeners: Vec<TcpListener>,
}

impl Bound {
    fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.stream_listeners.is_empty()
    }
}

/// The addresses of all sockets, without duplicates.
fn addresses(bound: &[Bound]) -> Vec<SocketAddr> {
    let udp = bound.iter().flat_map(|bound| &bound.listeners);
    let tcp = bound.iter().flat_map(|bound| &bound.stream_listeners);
    let mut all: Vec<SocketAddr> = (udp.filter_map(|socket| socket.local_address().ok()))
        .chain(tcp.filter_map(|socket| socket.local_addr().ok()))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Options of UDP sockets.
fn udp_options() -> UdpOptions {
    UdpOptions {
        receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        ..UdpOptions::default()
    }
}

/// How often to ask the kernel for a port that is free for both UDP and TCP.
const PORT_DRAWS: usize = 8;

/// Binds sockets for each core and address. A port of 0 becomes one port for all cores, UDP and
/// TCP.
fn bind(options: &Options, cores: usize) -> Result<Vec<Bound>, ServeError> {
    let mut bound: Vec<Bound> = (0..cores).map(|_| Bound::default()).collect();
    for &address in &options.listen {
        // The kernel chooses a port that is free for UDP; for TCP it may be in use.
        let is_drawn = |sockets: &io::Result<_>| {
            let error = sockets.as_ref().err().map(io::Error::kind);
            address.port() != 0 || error != Some(io::ErrorKind::AddrInUse)
        };
        let mut draws = (0..PORT_DRAWS).map(|_| bind_at(address, cores, options.reuse_port));
        let drawn = draws.find(is_drawn).unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()));
        let sockets = drawn.map_err(|error| ServeError::Listen(address, error))?;
        for (bound, (socket, listener)) in bound.iter_mut().zip(sockets) {
            bound.listeners.push(socket);
            bound.stream_listeners.push(listener);
        }
    }
    Ok(bound)
}

/// Binds one pair of sockets for each core. The address must be free for the first pair, unless
/// `reuse_port` allows sharing.
fn bind_at(
    mut address: SocketAddr,
    cores: usize,
    reuse_port: bool,
) -> io::Result<Vec<(UdpSocket, TcpListener)>> {
    let mut pairs = Vec::with_capacity(cores);
    for core in 0..cores {
        let sharing = Sharing::of(core, cores, reuse_port);
        let udp = UdpOptions { sharing, ..udp_options() };
        let tcp = ListenOptions { sharing, ..ListenOptions::default() };
        let socket = UdpSocket::bind(address, &udp)?;
        address = socket.local_address()?;
        pairs.push((socket, tcp::listen(address, &tcp)?));
    }
    Ok(pairs)
}

/// Distributes the passed sockets to the cores.
fn take(inherited: Vec<Inherited>, cores: usize) -> io::Result<Vec<Bound>> {
    let (mut udp, mut tcp) = (Vec::new(), Vec::new());
    for Inherited { name, fd } in inherited {
        let foreign = |error: io::Error| {
            let text = format!("{name}: {error}; larder dns takes UDP and TCP sockets");
            io::Error::new(error.kind(), text)
        };
        if socket_type(&fd)? == SocketType::DGRAM {
            let socket = UdpSocket::from_fd(fd, &udp_options()).map_err(foreign)?;
            udp.push((socket.local_address()?, socket));
        } else {
            let listener = tcp::listener_from_fd(fd).map_err(foreign)?;
            tcp.push((listener.local_addr()?, listener));
        }
    }
    let bound = deal(udp, cores).into_iter().zip(deal(tcp, cores));
    Ok(bound.map(|(listeners, stream_listeners)| Bound { listeners, stream_listeners }).collect())
}

/// Distributes sockets to cores. An address with one socket for each core gives one to each;
/// otherwise the first core gets all sockets of the address.
fn deal<T>(sockets: Vec<(SocketAddr, T)>, cores: usize) -> Vec<Vec<T>> {
    let mut counts: HashMap<SocketAddr, usize> = HashMap::new();
    for (address, _) in &sockets {
        *counts.entry(*address).or_insert(0) += 1;
    }
    counts.retain(|_, count| *count == cores);
    let mut dealt: Vec<Vec<T>> = (0..cores).map(|_| Vec::new()).collect();
    for (address, socket) in sockets {
        let core = counts.get_mut(&address).map_or(0, |left| {
            *left -= 1;
            *left
        });
        dealt[core].push(socket);
    }
    dealt
}

/// This machine's name, for collectors that receive the records of several machines.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address with one socket for each core gives one to each, in any order; otherwise the
    /// first core gets all.
    #[test]
    fn sockets_are_dealt() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let sockets = vec![(at(1), 'a'), (at(2), 'x'), (at(1), 'b'), (at(3), 'y')];
        assert_eq!(deal(sockets.clone(), 2), [vec!['x', 'b', 'y'], vec!['a']]);
        assert_eq!(deal(sockets, 1), [vec!['a', 'x', 'b', 'y']]);
        assert_eq!(deal(vec![(at(1), 'a')], 3), [vec!['a'], vec![], vec![]]);
    }
}
