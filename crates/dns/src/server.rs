//! The server: a thread a core, and one that watches over them.
//!
//! ```text
//! start     the policy is loaded, sockets are bound, the cache is made, threads begin; from here on it answers
//! serving   SIGHUP, SIGINT, SIGTERM are heard by the calling thread; SIGHUP loads the policy anew (`reload`)
//! stopping  cores end their turn and their loops; the calling thread gives the counts
//! ```

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larder::{Cache, Seconds};
use larder_io::event::{Events, Interest, Poller, Signal, Signals, Waker};
use larder_io::random;
use larder_io::tcp::{self, ListenOptions};
use larder_io::udp::{UdpOptions, UdpSocket};

use crate::core::{Core, Counts, Settings};
use crate::driver::{Clock, Driver, Parts};
use crate::policy::{PolicyError, PolicyOptions, Report};
use crate::pool::Origin;
use crate::reload::Reload;
use crate::zones::{Forward, Zones};
use crate::{exchanges, streams};

/// Octets that may wait at a listening socket, in either direction; the system may allow less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// What is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses to be asked at.
    pub listen: Vec<SocketAddr>,
    /// Whom to ask, by zone.
    pub forwards: Vec<Forward>,
    /// Threads.
    pub cores: usize,
    /// Octets of the cache, everything counted.
    pub cache_bytes: u64,
    /// What a core does.
    pub settings: Settings,
    /// Who may ask, and what is answered from here.
    pub policy: PolicyOptions,
    /// How upstreams are asked.
    pub origin: Origin,
    /// What streams of clients may do, for each core.
    pub stream_limits: streams::Limits,
    /// What streams to upstreams may do, for each core.
    pub exchange_limits: exchanges::Limits,
}

/// Why it does not serve.
#[derive(Debug)]
pub enum ServeError {
    /// A socket could not be bound.
    Bind(SocketAddr, io::Error),
    /// The policy could not be loaded.
    Policy(PolicyError),
    /// The cache could not be made.
    Cache(larder::Error),
    /// Zones are not as they should be.
    Forward(String),
    /// The system refused something else.
    System(&'static str, io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Bind(address, error) => {
                let next = match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "another server has it: stop that, or listen elsewhere"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "ports below 1024 need root or CAP_NET_BIND_SERVICE"
                    }
                    io::ErrorKind::AddrNotAvailable => "this machine has no such address",
                    _ => "listen elsewhere",
                };
                write!(f, "cannot listen at {address}: {error}; {next}")
            }
            ServeError::Policy(error) => write!(f, "{error}"),
            ServeError::Cache(error) => write!(f, "the cache cannot be made: {error}"),
            ServeError::Forward(text) => f.write_str(text),
            ServeError::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// Serves until a signal ends it; `started` is called once questions are answered, and `reloaded` from another thread each
/// time that a reload has ended. What all cores did.
pub fn serve(
    options: &Options,
    started: impl FnOnce(&[SocketAddr], &Report),
    reloaded: impl Fn(&Result<Report, PolicyError>) + Clone + Send + 'static,
) -> Result<Vec<Counts>, ServeError> {
    let system = |what| move |error| ServeError::System(what, error);
    // Before any thread starts, so that all of them leave signals to this one.
    let signals = Signals::block().map_err(system("signals"))?;
    let cores = options.cores.max(1);
    let mut key = [0; 16];
    random::fill(&mut key).map_err(system("random numbers"))?;
    let (reload, report) = Reload::new(options.policy.clone(), &key).map_err(ServeError::Policy)?;
    let cache = Cache::builder()
        .budget(options.cache_bytes)
        .proxies_max(cores)
        .stale(Seconds(options.settings.stale_s))
        .build()
        .map_err(ServeError::Cache)?;
    let clock = Clock::start();
    let stop = Arc::new(AtomicBool::new(false));
    let settings = Arc::new(options.settings.clone());
    let bound = bind(options, cores)?;
    let addresses: Vec<SocketAddr> =
        bound[0].listeners.iter().filter_map(|socket| socket.local_address().ok()).collect();

    let mut drivers = Vec::new();
    let mut wakers = Vec::new();
    for Bound { listeners, stream_listeners } in bound {
        let zones = Zones::new(&options.forwards).map_err(|error| {
            ServeError::Forward(format!("these upstreams cannot be used: {error:?}"))
        })?;
        let upstreams = zones.addresses().collect();
        let core =
            Core::new(settings.clone(), &cache, zones, clock.now()).map_err(ServeError::Cache)?;
        let waker = Arc::new(Waker::new().map_err(system("eventfd"))?);
        wakers.push(waker.clone());
        let parts = Parts {
            core,
            listeners,
            stream_listeners,
            stream_limits: options.stream_limits.clone(),
            exchange_limits: options.exchange_limits.clone(),
            upstreams,
            origin: options.origin.clone(),
            udp_bytes_max: options.settings.udp_bytes_max,
            policy: reload.follower(),
            clock,
            stop: stop.clone(),
            waker,
        };
        drivers.push(Driver::new(parts).map_err(system("epoll"))?);
    }
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = (drivers.into_iter().enumerate())
            .map(|(number, mut driver)| {
                let run = move || driver.run().map(|()| driver.core().counts().clone());
                thread::Builder::new().name(format!("dns-{number}")).spawn_scoped(scope, run)
            })
            .collect();
        started(&addresses, &report);
        let heard = wait_for_end(&signals, &reload, reloaded);
        stop.store(true, Ordering::Relaxed);
        for waker in &wakers {
            // Who cannot be woken looks around within a second.
            drop(waker.wake());
        }
        heard?;
        let mut counts = Vec::new();
        for thread in threads {
            let joined = thread?.join();
            counts.push(joined.map_err(|_| io::Error::other("a core's thread panicked"))??);
        }
        Ok(counts)
    })
    .map_err(system("serving"))?;
    signals.unblock().map_err(system("signals"))?;
    Ok(counts)
}

/// What one core listens by.
#[derive(Default)]
struct Bound {
    listeners: Vec<UdpSocket>,
    stream_listeners: Vec<TcpListener>,
}

/// Sockets a core and address; a port of 0 is the same for all cores, and for UDP and TCP.
fn bind(options: &Options, cores: usize) -> Result<Vec<Bound>, ServeError> {
    let udp = UdpOptions {
        reuse_port: cores > 1,
        receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        ..UdpOptions::default()
    };
    let tcp = ListenOptions { reuse_port: cores > 1, ..ListenOptions::default() };
    let mut bound: Vec<Bound> = (0..cores).map(|_| Bound::default()).collect();
    for &address in &options.listen {
        let mut address = address;
        for bound in &mut bound {
            let failed = |error| ServeError::Bind(address, error);
            let socket = UdpSocket::bind(address, &udp).map_err(failed)?;
            let address_bound = socket.local_address().map_err(failed)?;
            bound.stream_listeners.push(tcp::listen(address_bound, &tcp).map_err(failed)?);
            bound.listeners.push(socket);
            address = address_bound;
        }
    }
    Ok(bound)
}

fn wait_for_end(
    signals: &Signals,
    reload: &Reload,
    reloaded: impl Fn(&Result<Report, PolicyError>) + Clone + Send + 'static,
) -> io::Result<()> {
    let poller = Poller::new()?;
    let mut events = Events::new(4);
    poller.add(signals, 0, Interest::READ)?;
    loop {
        poller.wait(&mut events, None)?;
        while let Some(signal) = signals.read()? {
            match signal {
                Signal::Interrupt | Signal::Terminate => return Ok(()),
                // Where there is no thread for it now, whoever sent the signal hears nothing, and sends it again.
                Signal::HangUp => drop(reload.start(Box::new(reloaded.clone()))),
                _ => {}
            }
        }
    }
}
