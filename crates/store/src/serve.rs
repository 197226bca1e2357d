//! Kept packets over HTTP: closed segments from their files, the one that grows as it grows, to any number of clients from one
//! thread.
//!
//! ```text
//! GET /                     the segments, a line each
//! GET /segments             the same as JSON
//! GET /segments/N.pcapng    a segment; of one that grows all there is and all that comes, until it is closed
//! GET /live.pcapng          from now on, over the ends of segments: curl -sN …/live.pcapng | wireshark -k -i -
//! ```
//!
//! A client of a segment that grows has a reader of its object: it leases what is published and sends it from there, without a
//! copy, as the disk's thread and all other clients do. Who has sent all waits for the writer to publish; a client that does not
//! read waits for itself alone, and never holds the writer up: when a segment is closed and its memory is wanted for another, it is
//! read on from its file.
//!
//! Connections are [`http_server`](larder_serve::http_server)'s: kept open, and closed when a client makes no progress for
//! `STALL_MS` while there is something to send it or it asks.
//!
//! Invariants
//! 1. What is cut short is seen as cut: a body whose length is known has it, another is in chunks, and the last chunk is sent when
//!    the segment is closed and whole.
//! 2. A live stream begins and goes on at the beginning of a block.
//!
//! Who may ask: see `authorizer`. A request names a host that is served here, comes from no page of another site, and has the token if there
//! is one; over a Unix socket the file's mode decides. There is no TLS.
//!
//! Bounds: [`Options::clients_max`] clients, a head and [`LEASE_BYTES_MAX`] leased octets each.

mod authorize;
mod body;
mod request;
mod respond;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_io::access::Access;
use larder_io::epoll::{Events, Interest, Poller, Waker as Bell};
use larder_io::tcp::ListenOptions;
use larder_serve::control;
use larder_serve::http_server::{HttpServer, Limits, Listener, Mode};

use self::authorize::Authorizer;
use self::body::Packets;
use self::respond::Common;
use crate::catalog::Catalog;

/// Octets that a client has leased at most.
pub const LEASE_BYTES_MAX: u64 = 1 << 20;

/// How long a client may make no progress, milliseconds, while there is something to send it or it asks.
const STALL_MS: u64 = 30_000;

/// Octets of a request's head at most.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// How often stalled clients are looked for, milliseconds.
const LOOK_MS: u64 = 1_000;

const BELL: u64 = 0;
/// The listener's, and those of its clients.
const HTTP: u64 = 1;
const EVENTS_MAX: usize = 256;

/// Clients at once, unless told otherwise.
const CLIENTS_MAX: usize = 1024;

/// Where to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// At this address.
    Tcp(SocketAddr),
    /// At a Unix socket with this path, which those may use whom [`Options::access`] lets.
    Unix(PathBuf),
}

/// Where to serve, whom, and how many.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// The address or socket.
    pub listen: Listen,
    /// Names of hosts that requests may be for, besides `localhost`, loopback addresses and the address that is listened on.
    pub hosts: Vec<String>,
    /// The token that requests must have (`Authorization: Bearer ..`); `None`: none.
    pub token: Option<Vec<u8>>,
    /// Who may use the Unix socket.
    pub access: Access,
    /// Clients at once; others are closed.
    pub clients_max: usize,
}

impl Options {
    /// Loopback names and the address itself, no token.
    pub fn new(listen: Listen) -> Options {
        let (hosts, token, access) = (Vec::new(), None, Access::PRIVATE);
        Options { listen, hosts, token, access, clients_max: CLIENTS_MAX }
    }
}

impl fmt::Debug for Options {
    /// Without the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { listen, hosts, token, .. } = self;
        f.debug_struct("Options")
            .field("listen", listen)
            .field("hosts", hosts)
            .field("has_token", &token.is_some())
            .finish_non_exhaustive()
    }
}

/// What the server did.
#[derive(Debug, Default)]
pub struct Counts {
    /// Clients that were accepted.
    pub clients: AtomicU64,
    /// Requests that were answered with packets.
    pub bodies: AtomicU64,
    /// Octets of packets that were sent.
    pub bytes: AtomicU64,
    /// Clients that were closed because they made no progress, or there were too many.
    pub closed: AtomicU64,
    /// Requests that were refused because of their host, origin or token.
    pub denied: AtomicU64,
}

/// The thread. Dropped, it ends, and so do its clients.
pub struct Server {
    address: Option<SocketAddr>,
    place: String,
    counts: Arc<Counts>,
    bell: Arc<Ring>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the thread: something was published, or it is to end.
struct Ring {
    bell: Bell,
    /// It was rung and has not looked yet: once is enough, however many segments' readers are told.
    is_rung: AtomicBool,
    ends: AtomicBool,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            // The counter of an eventfd is full only if nobody looks for ages: it looks then.
            let _ = self.bell.wake();
        }
    }
}

impl Server {
    /// Serves the segments of `catalog`.
    pub fn start(options: &Options, catalog: Arc<Catalog>) -> io::Result<Server> {
        let listener = listen(options)?;
        let address = listener.address().ok();
        let place = match &options.listen {
            Listen::Tcp(listen) => format!("http://{}/", address.unwrap_or(*listen)),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        };
        let poller = Poller::new()?;
        let ring = Ring {
            bell: Bell::new()?,
            is_rung: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        };
        let bell = Arc::new(ring);
        poller.add(&bell.bell, BELL, Interest::READ)?;
        let clients_max = options.clients_max;
        let limits = Limits { clients_max, head_bytes_max: HEAD_BYTES_MAX, stall_ms: STALL_MS };
        let http = HttpServer::open(listener, limits, Mode::KeepAlive, &poller, HTTP)?;
        let counts = Arc::new(Counts::default());
        catalog.watch(Waker::from(Arc::clone(&bell)));
        let common = Common {
            catalog,
            waker: Waker::from(Arc::clone(&bell)),
            counts: Arc::clone(&counts),
            authorizer: Authorizer::new(&options.hosts, options.token.clone()),
        };
        let started = Instant::now();
        let desk = Desk { poller, http, common, ring: Arc::clone(&bell), started };
        let thread = thread::Builder::new().name("serve".to_owned()).spawn(move || desk.run())?;
        Ok(Server { address, place, counts, bell, thread: Some(thread) })
    }

    /// The address that it serves at, if it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it serves, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What it did so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.bell.ends.store(true, Ordering::Release);
        self.bell.wake_by_ref();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(options: &Options) -> io::Result<Listener> {
    match &options.listen {
        Listen::Tcp(listen) => {
            let next = "name another address, or stop the program that has it";
            Listener::tcp(*listen, &ListenOptions::default(), next)
        }
        Listen::Unix(path) => {
            let (listener, file) = control::listen_at(path, 0o600)?;
            options.access.apply(path)?;
            Ok(Listener::Unix(listener, file))
        }
    }
}

struct Desk {
    poller: Poller,
    http: HttpServer<Packets>,
    common: Common,
    ring: Arc<Ring>,
    started: Instant,
}

impl Desk {
    fn run(self) {
        let Desk { poller, mut http, mut common, ring, started } = self;
        let mut events = Events::new(EVENTS_MAX);
        let mut looked_ms = 0;
        while !ring.ends.load(Ordering::Acquire) {
            let wait_ms = (!http.is_idle()).then_some(LOOK_MS);
            if poller.wait(&mut events, wait_ms).is_err() {
                return;
            }
            let now_ms = started.elapsed().as_millis() as u64;
            let mut is_rung = false;
            for event in events.iter() {
                match event.token {
                    BELL => is_rung = true,
                    _ => http.handle(event, &poller, now_ms, &mut common),
                }
            }
            if is_rung {
                let _ = ring.bell.clear();
                // Before looking: who publishes from here on rings again.
                ring.is_rung.store(false, Ordering::Release);
                http.bodies().for_each(|packets| packets.leave_revoked(&common.catalog));
                http.wake(&poller, now_ms, &mut common);
            }
            if now_ms >= looked_ms + LOOK_MS {
                looked_ms = now_ms;
                http.expire(&poller, now_ms, &mut common);
            }
        }
    }
}
