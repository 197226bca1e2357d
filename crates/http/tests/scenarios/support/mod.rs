//! Runs scenarios: a real server on the loopback, and an origin and clients that execute the steps
//! of a scenario in order.
//!
//! A scenario is straight code on one thread. Each step is a send, or a read that waits for its
//! bytes. So the scenario determines the order of events, and no step sleeps to let something
//! happen. Some states are invisible from a socket, such as a request that waits with another. For
//! those the scenario polls the server's counters.
//!
//! Each scenario runs with both I/O methods, and with each number of event loops that it states. At
//! its end all clients disconnect, and the server must become idle: no leases, no fetches, no
//! objects except cached ones.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder_http::counts::Counts;
use larder_http::options::{Options, OriginAddress};
use larder_http::server::Running;
use larder_http::store::Memory;
use larder_io::reactor::{Choice, Options as ReactorOptions, Reactor};

pub use larder_testkit::http::Connection as Client;
pub use larder_testkit::http::{Connection, End, Head, Origin, Response, answer, chunk, request};
use larder_testkit::skip::skip;
use larder_testkit::wait::{until, until_so_or};

/// May be cached for long.
pub const KEPT: &str = "Cache-Control: max-age=3600";
/// Must not be cached.
pub const UNKEPT: &str = "Cache-Control: no-store";

/// The settings of a run.
pub struct Scenario {
    loops: &'static [usize],
    origins: usize,
    adjust: Box<dyn Fn(&mut Options)>,
}

/// With one event loop.
pub fn scenario() -> Scenario {
    Scenario { loops: &[1], origins: 1, adjust: Box::new(|_| ()) }
}

impl Scenario {
    /// Runs once for each of these numbers of event loops.
    pub fn loops(self, loops: &'static [usize]) -> Scenario {
        Scenario { loops, ..self }
    }

    /// With this number of origins.
    pub fn origins(self, origins: usize) -> Scenario {
        Scenario { origins, ..self }
    }

    /// With these changes of the options.
    pub fn with(self, adjust: impl Fn(&mut Options) + 'static) -> Scenario {
        Scenario { adjust: Box::new(adjust), ..self }
    }

    pub fn run(&self, story: impl Fn(&World)) {
        for io in [Choice::Epoll, Choice::Uring] {
            let options = ReactorOptions { choice: io, ..ReactorOptions::default() };
            if let Err(error) = Reactor::new(&options) {
                skip(&format!("scenarios by {io:?}"), error);
                continue;
            }
            for &loops in self.loops {
                // Printed if the scenario fails.
                eprintln!("{io:?}, {loops} loops");
                let world = World::new(self, io, loops);
                let shown = Shown(&world);
                story(&world);
                drop(shown);
                world.end();
            }
        }
    }
}

/// Prints the server's state if a scenario fails.
struct Shown<'a>(&'a World);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let store = self.0.server.store();
            let (bodies, flights) = (store.bodies.counts(), store.flights.len());
            let counts = self.0.server.counts();
            eprintln!("{counts:?}\n{:?}\n{bodies:?} bodies, {flights} flights", self.0.objects());
        }
    }
}

/// A server, and its origins.
pub struct World {
    pub server: Running,
    origins: Vec<Origin>,
    /// Clients that have connected.
    connected: AtomicU64,
}

impl World {
    fn new(scenario: &Scenario, io: Choice, loops: usize) -> World {
        let origins: Vec<Origin> = (0..scenario.origins).map(|_| Origin::new()).collect();
        let named = |origin: &Origin| OriginAddress {
            address: origin.address,
            name: origin.address.to_string(),
            is_secure: false,
        };
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let mut options = Options::new(listen, origins.iter().map(named).collect());
        options.loops = loops;
        options.io = io;
        options.memory = Memory { records_bytes: 4 << 20, bodies_bytes: 32 << 20 };
        (scenario.adjust)(&mut options);
        let server = Running::start(&options).unwrap();
        World { server, origins, connected: AtomicU64::new(0) }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    pub fn client(&self) -> Client {
        self.connected.fetch_add(1, Ordering::Relaxed);
        Client::open(self.address())
    }

    pub fn clients(&self, count: usize) -> Vec<Client> {
        (0..count).map(|_| self.client()).collect()
    }

    /// The only origin.
    pub fn origin(&self) -> &Origin {
        &self.origins[0]
    }

    pub fn origin_at(&self, at: usize) -> &Origin {
        &self.origins[at]
    }

    /// The origin gets this request on a new connection.
    pub fn receive(&self, line: &str) -> Connection {
        self.origin().receive(line)
    }

    /// The connection of the next request: a new one, or one of `known`, which is removed from it.
    pub fn with_request(&self, known: &mut Vec<Connection>) -> Connection {
        until("a question", || {
            self.origin().try_accept().or_else(|| {
                let at = known.iter_mut().position(|it| it.has_request())?;
                Some(known.remove(at))
            })
        })
    }

    /// Waits until the counters satisfy `is_so`. Those from before all clients were accepted do not
    /// count: then few connections are open, too.
    pub fn until_counts(&self, what: &str, is_so: impl Fn(&Counts) -> bool) {
        let is_so = || {
            self.server.wake();
            let counts = self.server.counts();
            counts.connections >= self.connected.load(Ordering::Relaxed) && is_so(&counts)
        };
        until_so_or(|| format!("{what}; {:?}", self.server.counts()), is_so);
    }

    /// Waits until `is_so` returns true.
    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        until_so_or(|| format!("{what}; {:?}", self.objects()), is_so);
    }

    /// Waits until a counter has not changed for some time, and returns it. On a very slow machine
    /// it may still change.
    pub fn until_still(&self, counter: impl Fn() -> u64) -> u64 {
        let (mut last, mut since) = (counter(), Instant::now());
        while last == 0 || since.elapsed() < Duration::from_millis(250) {
            self.server.wake();
            std::thread::sleep(Duration::from_millis(5));
            let now = counter();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        last
    }

    pub fn objects(&self) -> larder_mem::object::ObjectStats {
        self.server.store().objects.stats()
    }

    /// All clients have disconnected: waits until the server is idle, and ends it.
    fn end(self) {
        let World { server, origins, .. } = self;
        let store = server.store();
        let is_at_rest = || {
            server.wake();
            let stats = store.objects.stats();
            stats.leased_bytes == 0
                && stats.waiting_fillers == 0
                && stats.reserved_bytes == 0
                && stats.lost_bytes == 0
                && stats.objects == store.bodies.counts().0 as u64
                && store.flights.is_empty()
        };
        // A server that a scenario ended cannot become idle.
        if !server.has_ended() {
            let stands = || {
                let (stats, bodies) = (store.objects.stats(), store.bodies.counts());
                format!("no rest: {stats:?}, {bodies:?} bodies, {} flights", store.flights.len())
            };
            until_so_or(stands, is_at_rest);
        }
        store.objects.validate().unwrap();
        server.stop().unwrap();
        drop(origins);
    }
}

/// Bytes of the body that all scenarios use. They repeat after a prime number of bytes, which no buffer has, and are
/// copied: without optimisation, bytes that were computed one by one took most of the time of all scenarios.
pub fn pattern(from: usize, bytes: usize) -> Vec<u8> {
    const PERIOD: usize = 65_521;
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        (0..PERIOD as u64).map(byte).collect()
    });
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        let rest = &BYTES[(from + all.len()) % PERIOD..];
        all.extend_from_slice(&rest[..rest.len().min(bytes - all.len())]);
    }
    all
}

/// The first bytes of that body.
pub fn body(bytes: usize) -> Vec<u8> {
    pattern(0, bytes)
}

/// Prints where bodies differ, and not their content.
#[track_caller]
pub fn assert_bytes(found: &[u8], expected: &[u8]) {
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!("{} bytes, not {}; the first other one at {at:?}", found.len(), expected.len());
    }
}
