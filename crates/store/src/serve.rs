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
//! ```text
//! life of a client    leaves by
//! asks                a whole head; too long or too slow a head, damage
//! is answered         the last octet: asks again, or closed as it wished; no progress for STALL_MS; its end
//! ```
//!
//! Invariants
//! 1. What is cut short is seen as cut: a body whose length is known has it, another is in chunks, and the last chunk is sent when
//!    the segment is closed and whole.
//! 2. A live stream begins and goes on at the beginning of a block.
//!
//! Who may ask: see `gate`. A request names a host that is served here, comes from no page of another site, and has the token if there
//! is one; over a Unix socket the file's mode decides. There is no TLS.
//!
//! Bounds: [`Options::clients_max`] clients, a head and [`LEASE_BYTES_MAX`] leased octets each.

mod client;
mod gate;
mod request;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_io::access::Access;
use larder_io::event::{Events, Interest, Poller, Waker as Bell};
use larder_io::tcp::{self, ListenOptions};
use larder_serve::control::{self, SocketFile};

use self::client::{Client, Next};
use self::gate::Gate;
use crate::shelf::Shelf;

/// Octets that a client has leased at most.
pub const LEASE_BYTES_MAX: u64 = 1 << 20;

/// How long a client may make no progress, milliseconds, while there is something to send it or it asks.
const STALL_MS: u64 = 30_000;

/// How long nobody is accepted after the system had no descriptor, and how often stalled clients are looked for, milliseconds.
const PAUSE_MS: u64 = 1_000;

const LISTENER: u64 = 0;
const BELL: u64 = 1;
const CLIENTS: u64 = 2;
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
    /// Serves the segments of `shelf`.
    pub fn start(options: &Options, shelf: Arc<Shelf>) -> io::Result<Server> {
        let listener = Listener::open(options)?;
        let address = listener.address();
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
        poller.add(&listener, LISTENER, Interest::READ)?;
        poller.add(&bell.bell, BELL, Interest::READ)?;
        let counts = Arc::new(Counts::default());
        shelf.watch(Waker::from(Arc::clone(&bell)));
        let desk = Desk {
            poller,
            listener,
            clients: Vec::new(),
            clients_max: options.clients_max.max(1),
            paused_until_ms: None,
            common: Common {
                shelf,
                waker: Waker::from(Arc::clone(&bell)),
                counts: Arc::clone(&counts),
                gate: Gate::new(&options.hosts, options.token.clone()),
            },
            ring: Arc::clone(&bell),
            started: Instant::now(),
        };
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

/// What all clients need.
struct Common {
    shelf: Arc<Shelf>,
    waker: Waker,
    counts: Arc<Counts>,
    gate: Gate,
}

/// What clients connect to.
enum Listener {
    Tcp(TcpListener),
    /// And its file, which is removed at the end.
    Unix(UnixListener, #[expect(dead_code, reason = "removes the file")] SocketFile),
}

impl Listener {
    fn open(options: &Options) -> io::Result<Listener> {
        match &options.listen {
            Listen::Tcp(listen) => {
                let listener = tcp::listen(*listen, &ListenOptions::default());
                listener.map(Listener::Tcp).map_err(|error| {
                    let next = "name another address, or stop the program that has it";
                    io::Error::new(error.kind(), format!("{listen}: {error}; {next}"))
                })
            }
            Listen::Unix(path) => {
                let (listener, file) = control::listen_at(path, 0o600)?;
                options.access.apply(path)?;
                Ok(Listener::Unix(listener, file))
            }
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// A client that does not block, and the address of ours that it has reached.
    fn accept(&self) -> io::Result<(OwnedFd, Option<IpAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(true)?;
                let _ = tcp::set_nodelay(&socket);
                let local = socket.local_addr()?.ip();
                Ok((OwnedFd::from(socket), Some(local)))
            }
            Listener::Unix(listener, _) => {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(true)?;
                Ok((OwnedFd::from(socket), None))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

struct Desk {
    poller: Poller,
    listener: Listener,
    clients: Vec<Option<Client>>,
    clients_max: usize,
    paused_until_ms: Option<u64>,
    common: Common,
    ring: Arc<Ring>,
    started: Instant,
}

impl Desk {
    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn run(mut self) {
        let mut events = Events::new(EVENTS_MAX);
        let mut looked_ms = 0;
        while !self.ring.ends.load(Ordering::Acquire) {
            let is_idle = self.clients.is_empty() && self.paused_until_ms.is_none();
            let wait_ms = (!is_idle).then_some(PAUSE_MS);
            if self.poller.wait(&mut events, wait_ms).is_err() {
                return;
            }
            let now_ms = self.now_ms();
            let mut is_rung = false;
            for event in events.iter() {
                match event.token {
                    LISTENER => self.accept(now_ms),
                    BELL => is_rung = true,
                    token => self.turn((token - CLIENTS) as usize, now_ms),
                }
            }
            if is_rung {
                let _ = self.ring.bell.clear();
                // Before looking: who publishes from here on rings again.
                self.ring.is_rung.store(false, Ordering::Release);
                for slot in 0..self.clients.len() {
                    if let Some(client) = &mut self.clients[slot] {
                        client.leave_revoked(&self.common);
                    }
                    if self.clients[slot].as_ref().is_some_and(Client::waits_for_octets) {
                        self.turn(slot, now_ms);
                    }
                }
            }
            if now_ms >= looked_ms + PAUSE_MS {
                looked_ms = now_ms;
                self.expire(now_ms);
            }
        }
    }

    fn accept(&mut self, now_ms: u64) {
        loop {
            let (socket, local) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    // No descriptor, most likely: a level-triggered listener would spin.
                    let _ = self.poller.remove(&self.listener);
                    self.paused_until_ms = Some(now_ms + PAUSE_MS);
                    return;
                }
            };
            let free = self.clients.iter().position(Option::is_none);
            let slot = free.unwrap_or(self.clients.len());
            let counts = &self.common.counts;
            if slot >= self.clients_max {
                counts.closed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if self.poller.add(&socket, CLIENTS + slot as u64, Interest::READ).is_err() {
                continue;
            }
            counts.clients.fetch_add(1, Ordering::Relaxed);
            let client = Some(Client::new(socket, local, now_ms));
            match self.clients.get_mut(slot) {
                Some(place) => *place = client,
                None => self.clients.push(client),
            }
        }
    }

    /// Does for a client what can be done now.
    fn turn(&mut self, slot: usize, now_ms: u64) {
        let Some(place) = self.clients.get_mut(slot) else { return };
        let Some(client) = place else { return };
        let token = CLIENTS + slot as u64;
        let is_kept = match client.turn(&self.common, now_ms) {
            Next::Close => false,
            Next::Wait(interest) if client.interest == interest => true,
            Next::Wait(interest) => {
                client.interest = interest;
                self.poller.modify(&client.socket, token, interest).is_ok()
            }
        };
        if !is_kept {
            *place = None;
            while self.clients.last().is_some_and(Option::is_none) {
                self.clients.pop();
            }
        }
    }

    fn expire(&mut self, now_ms: u64) {
        if self.paused_until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
            self.paused_until_ms = None;
            if self.poller.add(&self.listener, LISTENER, Interest::READ).is_err() {
                self.paused_until_ms = Some(now_ms + PAUSE_MS);
            }
        }
        for place in &mut self.clients {
            let is_stalled = |client: &Client| {
                !client.waits_for_octets() && now_ms >= client.progress_ms + STALL_MS
            };
            if place.as_ref().is_some_and(is_stalled) {
                *place = None;
                self.common.counts.closed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
