//! Stored packets over HTTP, from one thread to any number of clients: closed segments from their files,
//! the growing one as it grows.
//!
//! ```text
//! GET /                     the segments, a line each
//! GET /segments             the same as JSON
//! GET /segments/N.pcapng    a segment; of a growing one all bytes that exist and all that come, until it is closed
//! GET /find?q=QUERY         the packets of a search, or its flows: see `search`
//! GET /live.pcapng          all packets from now on, over the ends of segments: curl -sN …/live.pcapng | wireshark -k -i -
//! ```
//!
//! Clients get compressed segments as they were before: the server decodes a frame when a client has room
//! for it.
//!
//! [`Options::push`] is a second listener in the same event loop, for PCAP-over-IP: a client requests nothing, and
//! gets the stream of `/live.pcapng` as it is, without HTTP. It has no token, so an address of it is a decision of
//! the operator. What is below about `/live.pcapng` applies to it, too. A client that connects before there is a
//! segment gets the first one from its beginning.
//!
//! A client of a growing segment has a reader of its object. It leases published bytes and sends them from
//! there, without a copy, as the disk writer and all other clients do. A client that has sent all waits for
//! the writer to publish. A client that does not read never blocks the writer: when a segment is closed and
//! its memory is needed for another, the client continues from the file.
//!
//! Connections are [`http_server`](larder_serve::http_server)'s: kept open, and closed when a client makes
//! no progress for `STALL_MS` while there are bytes to send or a request is incomplete.
//!
//! Invariants
//! 1. An aborted body is seen as aborted: a body with a known length has that length, another is in chunks,
//!    and the last chunk is sent when the segment is closed and complete.
//! 2. A live stream begins and continues at the beginning of a block.
//!
//! A program can add pages of its own ([`Pages`]), which come before these paths. A page without data is
//! served without the token: it asks its user for one.
//!
//! Authorization: see [`Authorizer`]. A request names a host that is served here, comes from no page of another
//! site, and has the token if there is one; over a Unix socket the file's mode decides. There is no TLS.
//!
//! Bounds: [`Options::clients_max`] clients; for each of them `HEAD_BYTES_MAX` of a request, and [`LEASE_BYTES_MAX`]
//! leased bytes or a few decoded frames.

mod body;
mod reports;
mod request;
mod respond;
mod search;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_io::access::Access;
use larder_io::epoll::{Events, Interest, Poller, Waker as EventFd};
use larder_serve::authorize::Authorizer;
use larder_serve::http_server::{HttpServer, Limits, Listener, Mode};
pub use larder_serve::page_server::Listen;
use larder_serve::pages::Pages;

use self::respond::{Common, Sent};
use self::search::Searches;
use crate::catalog::Catalog;

/// Bytes that a client leases, at most.
pub const LEASE_BYTES_MAX: u64 = 1 << 20;

/// Time that a client may make no progress while there are bytes to send or a request is
/// incomplete, ms.
const STALL_MS: u64 = 30_000;

/// Bytes of a request's headers, at most. With those of a query its client may send
/// [`TARGET_BYTES_MAX`](crate::many::TARGET_BYTES_MAX).
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Interval of the check for stalled clients, ms.
const LOOK_MS: u64 = 1_000;

const WAKE: u64 = 0;
/// Tokens of the listener and its clients.
const HTTP: u64 = 1;
/// The same for clients that request nothing.
const PUSH: u64 = 1 << 32;
const EVENTS_MAX: usize = 256;

/// Clients at once, by default.
const CLIENTS_MAX: usize = 1024;

/// Options of the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// The address or socket of the HTTP server; `None`: there is none.
    pub listen: Option<Listen>,
    /// The address at which each client gets all packets from then on, without a request and without a token.
    pub push: Option<SocketAddr>,
    /// Names of hosts that requests may have, besides `localhost`, loopback addresses and the
    /// address of the server.
    pub hosts: Vec<String>,
    /// The token that requests must have (`Authorization: Bearer ..`); `None`: none.
    pub token: Option<Vec<u8>>,
    /// Mode and group of the Unix socket.
    pub access: Access,
    /// Clients at once; further ones are closed.
    pub clients_max: usize,
}

impl Options {
    /// Loopback names and the address itself, no token.
    pub fn new(listen: Listen) -> Options {
        Options { listen: Some(listen), push: None, ..Options::pushing(None) }
    }

    /// No HTTP server.
    pub fn pushing(push: Option<SocketAddr>) -> Options {
        let (hosts, token, access) = (Vec::new(), None, Access::PRIVATE);
        Options { listen: None, push, hosts, token, access, clients_max: CLIENTS_MAX }
    }
}

impl fmt::Debug for Options {
    /// Without the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { listen, push, hosts, token, .. } = self;
        f.debug_struct("Options")
            .field("listen", listen)
            .field("push", push)
            .field("hosts", hosts)
            .field("has_token", &token.is_some())
            .finish_non_exhaustive()
    }
}

/// Counts of the server.
#[derive(Debug, Default)]
pub struct Counts {
    /// Clients that were accepted.
    pub clients: AtomicU64,
    /// Responses with packets.
    pub bodies: AtomicU64,
    /// Bytes of packets that were sent.
    pub bytes: AtomicU64,
    /// Clients that were closed because they made no progress, or were too many.
    pub closed: AtomicU64,
    /// Requests that were refused because of their host, origin or token.
    pub denied: AtomicU64,
}

/// The server's thread. It ends when dropped, and its clients are closed.
pub struct Server {
    address: Option<SocketAddr>,
    push_address: Option<SocketAddr>,
    places: Vec<String>,
    counts: Arc<Counts>,
    wake: Arc<WakeOnce>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the thread: bytes were published, or it must end.
struct WakeOnce {
    eventfd: EventFd,
    /// The thread was woken and has not looked yet: one wake is enough for many segments.
    is_woken: AtomicBool,
    ends: AtomicBool,
}

impl Wake for WakeOnce {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // The counter of an eventfd is full only if the thread has been awake for long: then it
            // looks anyway.
            let _ = self.eventfd.wake();
        }
    }
}

impl Server {
    /// Serves the segments of `catalog`.
    pub fn start(options: &Options, catalog: Arc<Catalog>) -> io::Result<Server> {
        Server::start_with(options, catalog, None)
    }

    /// The same, and `pages` of a program.
    pub fn start_with(
        options: &Options,
        catalog: Arc<Catalog>,
        pages: Option<Arc<dyn Pages>>,
    ) -> io::Result<Server> {
        let listener =
            options.listen.as_ref().map(|listen| listen.open(options.access)).transpose()?;
        let address = listener.as_ref().and_then(|listener| listener.address().ok());
        let place = |listen: &Listen| match listen {
            Listen::Tcp(listen) => format!("http://{}/", address.unwrap_or(*listen)),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        };
        let mut places: Vec<String> = options.listen.iter().map(place).collect();
        let push =
            options.push.map(|listen| Listen::Tcp(listen).open(options.access)).transpose()?;
        let push_address = push.as_ref().and_then(|push| push.address().ok());
        places.extend(push_address.iter().map(|address| format!("tcp://{address}")));
        let poller = Poller::new()?;
        let wake = WakeOnce {
            eventfd: EventFd::new()?,
            is_woken: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        };
        let wake = Arc::new(wake);
        poller.add(&wake.eventfd, WAKE, Interest::READ)?;
        let clients_max = options.clients_max;
        let limits = Limits { clients_max, head_bytes_max: HEAD_BYTES_MAX, stall_ms: STALL_MS };
        let open = |listener: Option<Listener>, mode, first_token| {
            let server =
                listener.map(|it| HttpServer::open(it, limits, mode, &poller, first_token));
            server.transpose()
        };
        let http = open(listener, Mode::KeepAlive, HTTP)?;
        let push = open(push, Mode::Push, PUSH)?;
        let counts = Arc::new(Counts::default());
        catalog.watch(Waker::from(Arc::clone(&wake)));
        let common = Common {
            searches: catalog.directory().map(|folder| Searches::new(folder, catalog.log())),
            catalog,
            waker: Waker::from(Arc::clone(&wake)),
            counts: Arc::clone(&counts),
            authorizer: Authorizer::new(&options.hosts, options.token.clone()),
            pages,
        };
        let started = Instant::now();
        let server_loop =
            ServerLoop { poller, http, push, common, wake: Arc::clone(&wake), started };
        let thread =
            thread::Builder::new().name("serve".to_owned()).spawn(move || server_loop.run())?;
        Ok(Server { address, push_address, places, counts, wake, thread: Some(thread) })
    }

    /// The TCP address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The address of [`Options::push`], if it has one.
    pub fn push_address(&self) -> Option<SocketAddr> {
        self.push_address
    }

    /// The addresses, for messages.
    pub fn places(&self) -> &[String] {
        &self.places
    }

    /// The counts so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.wake.ends.store(true, Ordering::Release);
        self.wake.wake_by_ref();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct ServerLoop {
    poller: Poller,
    http: Option<HttpServer<Sent>>,
    push: Option<HttpServer<Sent>>,
    common: Common,
    wake: Arc<WakeOnce>,
    started: Instant,
}

impl ServerLoop {
    fn run(self) {
        let ServerLoop { poller, http, push, mut common, wake, started } = self;
        let mut servers = [http, push];
        let mut events = Events::new(EVENTS_MAX);
        let mut looked_ms = 0;
        while !wake.ends.load(Ordering::Acquire) {
            let is_idle = servers.iter().flatten().all(HttpServer::is_idle);
            let wait_ms = (!is_idle).then_some(LOOK_MS);
            if poller.wait(&mut events, wait_ms).is_err() {
                return;
            }
            let now_ms = started.elapsed().as_millis() as u64;
            let mut is_woken = false;
            for event in events.iter() {
                match event.token {
                    WAKE => is_woken = true,
                    token => {
                        let server = &mut servers[usize::from(token >= PUSH)];
                        if let Some(server) = server {
                            server.handle(event, &poller, now_ms, &mut common);
                        }
                    }
                }
            }
            if is_woken {
                let _ = wake.eventfd.clear();
                // Before looking: bytes that are published from here on wake the thread again.
                wake.is_woken.swap(false, Ordering::AcqRel);
                for server in servers.iter_mut().flatten() {
                    server.bodies().for_each(|body| body.leave_revoked(&common.catalog));
                    server.wake(&poller, now_ms, &mut common);
                }
            }
            if now_ms >= looked_ms + LOOK_MS {
                looked_ms = now_ms;
                for server in servers.iter_mut().flatten() {
                    server.expire(&poller, now_ms, &mut common);
                }
            }
        }
    }
}
